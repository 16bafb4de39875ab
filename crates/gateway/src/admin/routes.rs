//! The routes of the API. Their list is data, so that a test can hold it
//! against `openapi.json`.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use axum::{Json, Router, middleware};
use serde::{Deserialize, Serialize};
use weir_ranges::ObjectId;

use super::assets::asset;
use super::feed::{Followers, History, Recent};
use super::guard::{guard, problem};
use super::options::AdminOptions;
use super::problem::Problem;
use super::server::{View, ViewPanicked, read};
use crate::metrics::{AdminRefusal, CONTENT_TYPE, Metrics};
use crate::state::{ObjectStatus, Status, VerifyStatus};

/// What every handler may look at.
pub(super) struct Shared {
    pub(super) view: Arc<dyn View>,
    pub(super) recent: Arc<Recent>,
    pub(super) followers: Followers,
    pub(super) metrics: Arc<Metrics>,
    pub(super) options: AdminOptions,
}

/// Path, method in lower case, and handler of every route that is not a file.
pub(super) fn table() -> Vec<(&'static str, &'static str, MethodRouter<Arc<Shared>>)> {
    vec![
        ("/api/v1/status", "get", get(status)),
        ("/api/v1/flows", "get", get(flows)),
        ("/api/v1/objects", "get", get(objects)),
        ("/api/v1/objects/{id}", "get", get(object)),
        ("/api/v1/objects/{id}", "delete", delete(remove_object)),
        ("/api/v1/store/verify", "get", get(verify)),
        ("/api/v1/store/verify", "post", post(start_verify)),
        ("/api/v1/history", "get", get(history)),
        ("/api/v1/events", "get", get(events)),
        ("/api/v1/openapi.json", "get", get(openapi)),
        ("/metrics", "get", get(metrics)),
    ]
}

/// Everything behind the guard.
pub(super) fn router(shared: Arc<Shared>) -> Router {
    table()
        .into_iter()
        .fold(Router::new(), |router, (path, _, handler)| router.route(path, handler))
        .fallback(get(asset))
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), guard))
        .with_state(shared)
}

/// The API's description, kept by hand.
pub(super) const OPENAPI: &str = include_str!("openapi.json");

async fn status(State(shared): State<Arc<Shared>>) -> Result<Json<Status>, Problem> {
    Ok(Json(read(&shared.view, |view| view.status()).await?))
}

async fn flows(
    State(shared): State<Arc<Shared>>,
    limit: Result<Query<Limit>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Problem> {
    let limit = Limit::checked(limit)?;
    let mut flows = read(&shared.view, |view| view.flows()).await?;
    // The youngest first: the new ones are what one looks for.
    flows.sort_by(|a, b| a.age_seconds.total_cmp(&b.age_seconds).then(a.id.cmp(&b.id)));
    Ok(limited(flows, limit))
}

async fn objects(
    State(shared): State<Arc<Shared>>,
    limit: Result<Query<Limit>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Problem> {
    let limit = Limit::checked(limit)?;
    let mut objects = read(&shared.view, |view| view.objects()).await?;
    objects.sort_by(|a, b| a.idle_seconds.total_cmp(&b.idle_seconds).then(a.id.cmp(&b.id)));
    Ok(limited(objects, limit))
}

async fn object(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
) -> Result<Json<ObjectStatus>, Problem> {
    let id = object_id(&id)?;
    let found = read(&shared.view, move |view| view.object(id)).await?;
    found.map(Json).ok_or_else(object_unknown)
}

async fn remove_object(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let id = object_id(&id)?;
    let removed = read(&shared.view, move |view| view.remove_object(id)).await?;
    if removed { Ok(StatusCode::NO_CONTENT) } else { Err(object_unknown()) }
}

async fn verify(State(shared): State<Arc<Shared>>) -> Result<Json<VerifyStatus>, Problem> {
    let status = read(&shared.view, |view| view.verify_status()).await?;
    status.map(Json).ok_or_else(store_none)
}

/// 202 when a scrub begins, 200 when one was under way already: either is there to
/// be followed.
async fn start_verify(State(shared): State<Arc<Shared>>) -> Result<Response, Problem> {
    let started = read(&shared.view, |view| view.start_verify()).await?;
    let (began, status) = started.ok_or_else(store_none)?;
    let code = if began { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((code, Json(status)).into_response())
}

async fn history(State(shared): State<Arc<Shared>>) -> Json<History> {
    Json(shared.recent.history())
}

async fn events(State(shared): State<Arc<Shared>>) -> Response {
    match shared.followers.follow() {
        Some(stream) => Sse::new(stream).keep_alive(KeepAlive::default()).into_response(),
        None => {
            shared.metrics.admin.request_refused(AdminRefusal::TooManyFollowers);
            problem(AdminRefusal::TooManyFollowers).into_response()
        }
    }
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Result<Response, Problem> {
    let metrics = Arc::clone(&shared.metrics);
    let text = read(&shared.view, move |_| metrics.encode()).await?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}

async fn method_not_allowed() -> Problem {
    let detail = "this address does not offer that method";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", detail)
}

fn object_id(id: &str) -> Result<ObjectId, Problem> {
    id.parse().map_err(|_| {
        let detail = "an object's id is 32 hexadecimal digits";
        Problem::new(StatusCode::BAD_REQUEST, "object_id", detail)
    })
}

fn object_unknown() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "object_unknown", "the store holds no such object")
}

fn store_none() -> Problem {
    let detail = "the gateway runs without a store; its status says why";
    Problem::new(StatusCode::CONFLICT, "store_none", detail)
}

/// `?limit=`, 1 to 10,000 elements, 1,000 when absent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    limit: Option<usize>,
}

impl Limit {
    fn checked<E>(query: Result<Query<Self>, E>) -> Result<usize, Problem> {
        query
            .ok()
            .map(|Query(query)| query.limit.unwrap_or(LIMIT_DEFAULT))
            .filter(|limit| (1..=LIMIT_MAX).contains(limit))
            .ok_or_else(|| {
                let detail = format!("the only parameter is limit, 1 to {LIMIT_MAX}");
                Problem::new(StatusCode::BAD_REQUEST, "limit", detail)
            })
    }
}

/// The first `limit` elements; a header says how many there are.
fn limited<T: Serialize>(mut elements: Vec<T>, limit: usize) -> Response {
    let total = elements.len().to_string();
    elements.truncate(limit);
    ([(TOTAL_HEADER, total)], Json(elements)).into_response()
}

impl From<ViewPanicked> for Problem {
    fn from(ViewPanicked: ViewPanicked) -> Self {
        let detail = "the gateway failed to describe itself; this is a bug, see its log";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
    }
}

/// How many elements there are in all.
const TOTAL_HEADER: HeaderName = HeaderName::from_static("x-weir-total");

const LIMIT_DEFAULT: usize = 1000;
const LIMIT_MAX: usize = 10_000;
