//! What a call to the supervisor answers.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

/// A refused call.
pub(crate) struct Refused(anyhow::Error);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (StatusCode::BAD_REQUEST, format!("{:#}", self.0)).into_response()
    }
}

impl<E: Into<anyhow::Error>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

/// The body, or why the call is refused.
pub(crate) type Answer<T> = Result<Json<T>, Refused>;
