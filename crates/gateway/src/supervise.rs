//! Tasks whose panics are counted and end only themselves.

use std::future::Future;
use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::metrics::Metrics;

/// Runs `task`; a panic in it is logged and counted, and goes no further.
pub(crate) fn spawn<F>(metrics: &Arc<Metrics>, name: &'static str, task: F) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let metrics = Arc::clone(metrics);
    tokio::spawn(async move {
        if let Err(error) = tokio::spawn(task).await
            && error.is_panic()
        {
            metrics.sessions.panics.inc();
            tracing::error!(task = name, %error, "task_panicked");
        }
    })
}
