//! What a call to the supervisor answers.

use anyhow::Result;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

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

/// Settings with a merge patch over them.
///
/// # Errors
/// When the patch names something else.
pub(crate) fn merged<T: Serialize + DeserializeOwned>(settings: &T, change: &Value) -> Result<T> {
    let mut settings = serde_json::to_value(settings)?;
    json_patch::merge(&mut settings, change);
    Ok(serde_json::from_value(settings)?)
}
