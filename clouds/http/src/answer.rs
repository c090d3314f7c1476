//! What comes of a call.

use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde::de::DeserializeOwned;
use serde_json::Value;
use shared::cloud::{CloudError, CloudErrorKind};
use shared::text::sanitize_to;

/// Longest message of a cloud that is quoted, in characters.
const MAX_MESSAGE: usize = 200;

/// How deep in an answer its message may be.
const MAX_DEPTH: usize = 3;

/// A successful answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status, of class 2xx.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    pub(crate) what: String,
    pub(crate) body: Vec<u8>,
}

/// Why a call has no successful answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// It was not sent.
    NotSent(CloudError),
    /// It was rejected.
    Rejected(Rejection),
    /// There is no answer, only a part of one, or one by a gateway: it may be under way.
    Unknown(CloudError),
}

/// A call that the cloud has rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Method, host and path.
    pub what: String,
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: Box<HeaderMap>,
    /// The cloud's message, sanitized; empty if it gives none.
    pub message: String,
}

impl Answer {
    /// Bytes of its body.
    #[expect(clippy::len_without_is_empty, reason = "an empty answer is no special one")]
    pub fn len(&self) -> usize {
        self.body.len()
    }

    /// The body, as the type that the caller builds of it.
    ///
    /// # Errors
    /// When it has another form.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        serde_json::from_slice(&self.body).map_err(|error| {
            // Its text would quote the answer.
            let (what, line, column) = (&self.what, error.line(), error.column());
            let message = format!("{what}: the answer is malformed at line {line}, column {column}");
            CallError::Unknown(CloudError::new(CloudErrorKind::Unavailable, message))
        })
    }
}

impl CallError {
    /// Whether a token is not, or no longer, accepted.
    pub fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Rejected(rejection) if rejection.status == StatusCode::UNAUTHORIZED)
    }

    /// The answer to a request for something that does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Rejected(rejection) if rejection.status == StatusCode::NOT_FOUND)
    }
}

impl Rejection {
    pub(crate) fn new(what: String, status: StatusCode, headers: HeaderMap, body: &[u8]) -> Self {
        let found = serde_json::from_slice::<Value>(body).ok();
        let message = found.as_ref().and_then(|value| message_in(value, MAX_DEPTH)).unwrap_or_default();
        Self { what, status, headers: Box::new(headers), message: sanitize_to(message, MAX_MESSAGE) }
    }

    /// Whether the service itself has answered, so that nothing is under way: a gateway may answer 408 and 5xx while the
    /// service still works. `mark` is a header that only the service sets.
    pub fn is_by_service(&self, mark: &str) -> bool {
        let is_certain = self.status.is_client_error() && self.status != StatusCode::REQUEST_TIMEOUT;
        is_certain || self.headers.contains_key(mark)
    }

    /// How it is handled.
    pub fn kind(&self) -> CloudErrorKind {
        match self.status.as_u16() {
            401 | 403 => CloudErrorKind::Denied,
            429 => CloudErrorKind::Throttled,
            500.. => CloudErrorKind::Unavailable,
            _ => CloudErrorKind::Invalid,
        }
    }
}

/// The first string under the key `message`: every cloud has it there, at its own depth.
fn message_in(value: &Value, depth: usize) -> Option<&str> {
    let inner = |value| if depth > 0 { message_in(value, depth - 1) } else { None };
    match value {
        Value::Object(fields) => {
            let here = fields.get("message").and_then(Value::as_str);
            here.or_else(|| fields.values().find_map(inner))
        }
        Value::Array(values) => values.iter().find_map(inner),
        _ => None,
    }
}

impl From<CallError> for CloudError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::NotSent(error) | CallError::Unknown(error) => error,
            CallError::Rejected(rejection) => {
                let kind = rejection.kind();
                let Rejection { what, status, message, .. } = rejection;
                let colon = if message.is_empty() { "" } else { ": " };
                Self::new(kind, format!("{what}: {}{colon}{message}", status.as_u16()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_error_only_its_message_is_quoted() {
        for (status, body, kind, message) in [
            (
                403,
                r#"{"forbidden": {"code": 403, "message": "Quota exceeded for cores"}}"#,
                CloudErrorKind::Denied,
                "Quota exceeded for cores",
            ),
            (
                409,
                r#"{"NeutronError": {"type": "IpInUse", "message": "in use", "detail": "x"}}"#,
                CloudErrorKind::Invalid,
                "in use",
            ),
            (
                404,
                r#"{"error": {"code": 404, "title": "Not Found", "message": "no such"}}"#,
                CloudErrorKind::Invalid,
                "no such",
            ),
            (400, r#"{"errors": [{"code": "bad", "message": "a\u001b[31mb"}]}"#, CloudErrorKind::Invalid, "a [31mb"),
            (500, "<html>Traceback: password=hush</html>", CloudErrorKind::Unavailable, ""),
            (503, r#"{"a": {"b": {"c": {"d": {"message": "too deep"}}}}}"#, CloudErrorKind::Unavailable, ""),
            (429, r#"{"message": 5}"#, CloudErrorKind::Throttled, ""),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let rejection = Rejection::new("GET nova/servers".to_owned(), status, HeaderMap::new(), body.as_bytes());
            assert_eq!(rejection.is_by_service("x-compute-request-id"), status.is_client_error());
            assert_eq!((rejection.kind(), rejection.message.as_str()), (kind, message), "{body}");
        }
        let long = format!(r#"{{"message": "{}"}}"#, "x".repeat(1000));
        let rejection = Rejection::new("GET x".to_owned(), StatusCode::BAD_REQUEST, HeaderMap::new(), long.as_bytes());
        assert!(rejection.message.chars().count() <= MAX_MESSAGE + 1, "{}", rejection.message);
        let error = CloudError::from(CallError::Rejected(Rejection { message: "no".to_owned(), ..rejection }));
        assert_eq!(error.message, "GET x: 400: no");
    }
}
