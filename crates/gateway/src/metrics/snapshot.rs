//! Figures that other rooms count themselves, read at each scrape.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::state::StoreStatus;

/// A function set once and read at each scrape.
pub(super) struct Source<T>(OnceLock<Box<dyn Fn() -> T + Send + Sync>>);

impl<T> Source<T> {
    pub(super) fn set_once(&self, source: Box<dyn Fn() -> T + Send + Sync>) {
        if self.0.set(source).is_err() {
            tracing::debug!("a metrics source was set twice; the first stays");
        }
    }

    fn read(&self) -> Option<T> {
        self.0.get().map(|source| source())
    }
}

impl<T> Default for Source<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<T> fmt::Debug for Source<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("set", &self.0.get().is_some()).finish()
    }
}

/// The kernel side's counters.
#[derive(Debug, Default)]
pub(super) struct KernelReasons(pub(super) Source<BTreeMap<String, u64>>);

impl Collector for KernelReasons {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(reasons) = self.0.read() else { return Ok(()) };
        let help = "What the kernel side did with packets and flows, by reason.";
        let mut family = encoder.encode_descriptor("kernel", help, None, MetricType::Counter)?;
        for (reason, count) in &reasons {
            family
                .encode_family(&[("reason", reason.as_str())])?
                .encode_counter::<[(&str, &str); 0], u64, u64>(count, None)?;
        }
        Ok(())
    }
}

/// The store's figures; `None` when there is no store.
#[derive(Debug, Default)]
pub(super) struct StoreSnapshot(pub(super) Source<Option<StoreStatus>>);

impl Collector for StoreSnapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(status) = self.0.read().flatten() else { return Ok(()) };
        // No `..`: a figure added to the store's status is added here too.
        let StoreStatus {
            capacity_bytes,
            held_bytes,
            used_bytes,
            objects,
            segments,
            hits,
            misses,
            evicted_bytes,
            declined_bytes,
            checksum_failures,
            errors,
            degraded,
        } = status;
        let bytes = Some(&Unit::Bytes);
        for (name, help, unit, value) in [
            ("capacity", "Size of the store.", bytes, capacity_bytes),
            ("held", "Content bytes in the store.", bytes, held_bytes),
            ("used", "Bytes of the store that content takes.", bytes, used_bytes),
            ("objects", "Objects in the store.", None, objects),
            ("segments", "Segments in the store.", None, segments),
            ("degraded", "1 when the store refuses writes since an error.", None, degraded.into()),
        ] {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?.encode_gauge(&value)?;
        }
        for (name, help, unit, value) in [
            ("hits", "Look-ups that found every byte.", None, hits),
            ("misses", "Look-ups that did not find every byte.", None, misses),
            ("evicted", "Bytes evicted to make room.", bytes, evicted_bytes),
            ("declined", "Bytes not taken, not worth what would go.", bytes, declined_bytes),
            ("checksum_failures", "Segments whose checksum was wrong.", None, checksum_failures),
            ("errors", "Errors of the device.", None, errors),
        ] {
            encoder
                .encode_descriptor(name, help, unit, MetricType::Counter)?
                .encode_counter::<[(&str, &str); 0], u64, u64>(&value, None)?;
        }
        Ok(())
    }
}
