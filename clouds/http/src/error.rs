//! Why a call has no successful answer.

use std::fmt;
use std::time::Duration;

use cloud_common::MemoryFull;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use shared::cloud::{CloudError, CloudErrorKind};
use shared::read::{self, Limits};
use shared::text::sanitize_to;

/// Longest message of a cloud that is quoted, in characters.
const MAX_MESSAGE: usize = 200;

/// Longest code of a cloud that is quoted, in characters.
const MAX_CODE: usize = 60;

/// Where clouds have their message and, behind the first three, their code, with how much of it is quoted; the first counts.
const ERROR_FIELDS: [(&str, usize); 7] = [
    ("message", MAX_MESSAGE),
    ("error_description", MAX_MESSAGE),
    ("errorMessage", MAX_MESSAGE),
    ("reason", MAX_CODE),
    ("code", MAX_CODE),
    ("errorCode", MAX_CODE),
    ("error", MAX_CODE),
];
const MESSAGE_FIELDS: usize = 3;

/// What begins the part of a message that differs from try to try, such as request IDs and times.
const UNSTABLE_PARTS: &[&str] = &[
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
const RATE_LIMIT_CODES: &[&str] = &["rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED"];

/// How deep in an answer its message may be.
const MAX_DEPTH: usize = 3;

/// Why a call has no successful answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// It was not sent.
    NotSent(CloudError),
    /// It was rejected.
    Rejected(Rejection),
    /// There is no answer, only a part of one, or one by a gateway: it may be in progress.
    Unknown(CloudError),
}

/// A call that the cloud has rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Method, host and path.
    pub what: String,
    pub status: StatusCode,
    /// How it is handled.
    pub kind: CloudErrorKind,
    pub headers: Box<HeaderMap>,
    /// The cloud's code, such as `AllocationFailed`, sanitized; empty if it gives none.
    pub code: String,
    /// The cloud's message, sanitized; empty if it gives none.
    pub message: String,
}

impl CallError {
    /// A request that has not left this process, or has not arrived.
    pub(crate) fn not_sent(what: &str, kind: CloudErrorKind, why: &str) -> Self {
        Self::NotSent(CloudError::new(kind, format!("{what}: {why}")))
    }

    /// A request that may have been carried out.
    pub(crate) fn unknown(what: &str, why: &str) -> Self {
        Self::Unknown(CloudError::new(CloudErrorKind::Unavailable, format!("{what}: {why}")))
    }

    /// There is no memory for an answer.
    pub(crate) fn too_large(what: &str, full: MemoryFull) -> Self {
        let why = match full {
            MemoryFull::Consumer => "the answers of this account are too large together",
            MemoryFull::Shared => {
                "the answers of all accounts and clusters are too large together, or those of this namespace"
            }
        };
        Self::unknown(what, why)
    }

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
        let found = read::json::<Words>(body, &Limits::answer(body.len()));
        let Words { code, message } = found.map(|read| read.value).unwrap_or_default();
        let kind = kind(status, &code);
        Self { what, status, kind, headers: Box::new(headers), code, message }
    }

    /// Whether the service itself has answered, so that nothing is in progress: a gateway may answer 408 and 5xx while the
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
        403 if RATE_LIMIT_CODES.contains(&code) => CloudErrorKind::Throttled,
        401 | 403 => CloudErrorKind::Denied,
        429 => CloudErrorKind::Throttled,
        500.. => CloudErrorKind::Unavailable,
        _ => CloudErrorKind::Invalid,
    }
}

/// A cloud's code and message, from anywhere in an answer, sanitized: every cloud has them at its own depth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    pub code: String,
    pub message: String,
}

/// The values found for [`ERROR_FIELDS`], each with its depth: the shallowest of a field counts.
type Hits = [Option<(usize, String)>; ERROR_FIELDS.len()];

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut hits = Hits::default();
        FieldFinder { hits: &mut hits, depth: 0, word: None }.deserialize(deserializer)?;
        let (messages, codes) = hits.split_at_mut(MESSAGE_FIELDS);
        let [message, code] = [messages, codes].map(|hits| hits.iter_mut().find_map(Option::take));
        let text = |hit: Option<(usize, String)>| hit.map(|(_, text)| text).unwrap_or_default();
        Ok(Self { code: text(code), message: text(message) })
    }
}

/// A message without what differs from try to try, so that a condition does not change with each.
fn stable(message: &str) -> &str {
    let end = UNSTABLE_PARTS.iter().filter_map(|mark| message.find(mark)).min().unwrap_or(message.len());
    message[..end].trim_end()
}

/// Finds [`ERROR_FIELDS`] in any JSON, and keeps nothing else of it.
struct FieldFinder<'h> {
    hits: &'h mut Hits,
    depth: usize,
    /// Which of [`ERROR_FIELDS`] the value is under.
    word: Option<usize>,
}

impl<'de> DeserializeSeed<'de> for FieldFinder<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let _ = deserializer.deserialize_any(self); // what is no text, list or map has no words: the reader goes on behind it
        Ok(())
    }
}

impl<'de> Visitor<'de> for FieldFinder<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("words")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        let Some(at) = self.word else { return Ok(()) };
        if self.hits[at].as_ref().is_none_or(|(depth, _)| self.depth < *depth) {
            self.hits[at] = Some((self.depth, sanitize_to(stable(text), ERROR_FIELDS[at].1)));
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let depth = self.depth + 1;
        while list.next_element_seed(FieldFinder { hits: &mut *self.hits, depth, word: None })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let depth = self.depth + 1;
        while let Some(key) = map.next_key::<String>()? {
            let is_within = self.depth <= MAX_DEPTH;
            let word = ERROR_FIELDS.iter().position(|(word, _)| is_within && *word == key);
            map.next_value_seed(FieldFinder { hits: &mut *self.hits, depth, word })?;
        }
        Ok(())
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
        use CloudErrorKind::{Denied, Invalid, Throttled, Unavailable};
        for (status, body, kind, message) in [
            (
                403,
                r#"{"forbidden": {"code": 403, "message": "Quota exceeded for cores"}}"#,
                Denied,
                "Quota exceeded for cores",
            ),
            (409, r#"{"NeutronError": {"type": "IpInUse", "message": "in use", "detail": "x"}}"#, Invalid, "in use"),
            (404, r#"{"error": {"code": 404, "title": "Not Found", "message": "no such"}}"#, Invalid, "no such"),
            (400, r#"{"errors": [{"code": "bad", "message": "a\u001b[31mb"}]}"#, Invalid, "a [31mb"),
            (500, "<html>Traceback: password=hush</html>", Unavailable, ""),
            (503, r#"{"a": {"b": {"c": {"d": {"message": "too deep"}}}}}"#, Unavailable, ""),
            (429, r#"{"message": 5}"#, Throttled, ""),
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
