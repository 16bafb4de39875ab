//! The dashboard's files, embedded at build time.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

use super::problem::Problem;

/// One file of the dashboard.
#[derive(Debug)]
pub(super) struct Asset {
    /// Its path in the URL.
    pub(super) path: &'static str,
    media_type: &'static str,
    etag: &'static str,
    bytes: &'static [u8],
}

/// All files; `build.rs` writes the table.
pub(super) const ASSETS: &[Asset] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// Answers what no API route answers: a file, or 404.
pub(super) async fn asset(uri: Uri, headers: HeaderMap) -> Response {
    let path = if uri.path() == "/" { "/index.html" } else { uri.path() };
    let Some(asset) = ASSETS.iter().find(|asset| asset.path == path) else {
        let detail = "there is nothing at this address";
        return Problem::new(StatusCode::NOT_FOUND, "not_found", detail).into_response();
    };
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|etags| {
        etags.to_str().is_ok_and(|etags| etags.split(',').any(|etag| etag.trim() == asset.etag))
    });
    let mut response = if known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Body::from(asset.bytes).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.media_type));
    headers.insert(header::ETAG, HeaderValue::from_static(asset.etag));
    // The gateway may be another build at the next request.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
