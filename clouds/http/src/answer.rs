//! What comes of a call.

use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde::de::DeserializeOwned;
use serde_json::Value;
use shared::cloud::{CloudError, CloudErrorKind};
use shared::text::sanitize_to;

/// Longest message of a cloud that is quoted, in characters.
const MAX_MESSAGE: usize = 200;

/// Longest code of a cloud that is quoted, in characters.
const MAX_CODE: usize = 60;

/// Where clouds have their message and their code; the first of them counts.
const MESSAGES: &[&str] = &["message", "error_description", "errorMessage"];
const CODES: &[&str] = &["reason", "code", "errorCode", "error"];

/// What begins the part of a message that differs from try to try: IDs of requests, times.
const UNSTABLE: &[&str] = &[
    " Trace ID:",
    " Correlation ID:",
    " Timestamp:",
    " Diagnostic information:",
    " Please try again after",
    " (Code:",
    " tracking id",
    " Request ID:",
];

/// Codes of a 403 that mean a 429.
const RATE_LIMITS: &[&str] = &["rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED"];

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
    /// How it is handled.
    pub kind: CloudErrorKind,
    /// The headers.
    pub headers: Box<HeaderMap>,
    /// The cloud's code, such as `AllocationFailed`, sanitized; empty if it gives none.
    pub code: String,
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
    /// The answer of a login: whatever is wrong with it is wrong with the credentials.
    #[must_use]
    pub fn of_login(self) -> Self {
        match self {
            Self::Rejected(rejection) if rejection.kind == CloudErrorKind::Invalid => {
                Self::Rejected(Rejection { kind: CloudErrorKind::Denied, ..rejection })
            }
            other => other,
        }
    }

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
        let (code, message) = found.as_ref().map(words).unwrap_or_default();
        let kind = kind(status, &code);
        Self { what, status, kind, headers: Box::new(headers), code, message }
    }

    /// Whether the service itself has answered, so that nothing is under way: a gateway may answer 408 and 5xx while the
    /// service still works. `mark` is a header that only the service sets.
    pub fn is_by_service(&self, mark: &str) -> bool {
        let is_certain = self.status.is_client_error() && self.status != StatusCode::REQUEST_TIMEOUT;
        is_certain || self.headers.contains_key(mark)
    }

    /// How long the cloud asks to wait, if it says so in seconds.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.headers.get(reqwest::header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
        Some(Duration::from_secs(seconds))
    }
}

fn kind(status: StatusCode, code: &str) -> CloudErrorKind {
    match status.as_u16() {
        403 if RATE_LIMITS.contains(&code) => CloudErrorKind::Throttled,
        401 | 403 => CloudErrorKind::Denied,
        429 => CloudErrorKind::Throttled,
        500.. => CloudErrorKind::Unavailable,
        _ => CloudErrorKind::Invalid,
    }
}

/// A cloud's code and message, from anywhere in an answer, sanitized.
pub fn words(value: &Value) -> (String, String) {
    let find = |keys: &[&str], most| {
        let found = keys.iter().find_map(|key| word_in(value, key, MAX_DEPTH));
        sanitize_to(stable(found.unwrap_or_default()), most)
    };
    (find(CODES, MAX_CODE), find(MESSAGES, MAX_MESSAGE))
}

/// A message without what differs from try to try, so that a condition does not change with each.
fn stable(message: &str) -> &str {
    let end = UNSTABLE.iter().filter_map(|mark| message.find(mark)).min().unwrap_or(message.len());
    message[..end].trim_end()
}

/// The first string under a key: every cloud has it at its own depth.
fn word_in<'a>(value: &'a Value, key: &str, depth: usize) -> Option<&'a str> {
    let inner = |value| if depth > 0 { word_in(value, key, depth - 1) } else { None };
    match value {
        Value::Object(fields) => {
            let here = fields.get(key).and_then(Value::as_str);
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
                let Rejection { what, status, kind, code, message, .. } = rejection;
                let words = [code, message].into_iter().filter(|word| !word.is_empty()).map(|word| format!(": {word}"));
                Self::new(kind, format!("{what}: {}{}", status.as_u16(), words.collect::<String>()))
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
            assert_eq!((rejection.kind, rejection.message.as_str()), (kind, message), "{body}");
        }
        for (message, kept) in [
            (
                "AADSTS900023: no tenant. Trace ID: 1-2 Correlation ID: 3 Timestamp: 2026-11-27 01:02:03Z",
                "AADSTS900023: no tenant.",
            ),
            ("Internal error. Please try again (Code: '73C0')", "Internal error. Please try again"),
        ] {
            let body = format!(r#"{{"error": "invalid_request", "error_description": "{message}"}}"#);
            let rejection =
                Rejection::new("POST x".to_owned(), StatusCode::BAD_REQUEST, HeaderMap::new(), body.as_bytes());
            assert_eq!((rejection.code.as_str(), rejection.message.as_str()), ("invalid_request", kept));
        }
        let long = format!(r#"{{"message": "{}"}}"#, "x".repeat(1000));
        let rejection = Rejection::new("GET x".to_owned(), StatusCode::BAD_REQUEST, HeaderMap::new(), long.as_bytes());
        assert!(rejection.message.chars().count() <= MAX_MESSAGE + 1, "{}", rejection.message);
        let error = CloudError::from(CallError::Rejected(Rejection { message: "no".to_owned(), ..rejection }));
        assert_eq!(error.message, "GET x: 400: no");
    }
}
