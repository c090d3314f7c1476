//! The `AdmissionReview` of `admission.k8s.io/v1` as it arrives and as it is answered.
//!
//! The part before the two objects says which kind they are and which rules apply. The objects are read afterwards, by
//! kind ([`shared::admission::Objects`]).

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use shared::admission::{MAX_TEXT_BYTES, User};
use shared::read::{self, Limits, Read, ReadError};

use crate::limiter::MAX_BODY_BYTES;

/// The only version of the API that is spoken.
pub const API_VERSION: &str = "admission.k8s.io/v1";
/// Kind of the request's and of the answer's envelope.
pub const KIND: &str = "AdmissionReview";

/// Why a body is no review that can be answered on its merits. The answer is HTTP 400.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// Not JSON, or not of the shape of a review.
    #[error("read the request body as an {KIND} of {API_VERSION}: {0}")]
    Malformed(#[from] ReadError),
    /// Another kind of object.
    #[error("kind is {0:?}, must be {KIND:?}")]
    Kind(String),
    /// Another version.
    #[error("apiVersion is {0:?}, must be {API_VERSION:?}")]
    Version(String),
    /// Nothing is asked.
    #[error("the {KIND} has no request")]
    NoRequest,
    /// The answer could not be matched with the question.
    #[error("request.uid is empty")]
    NoUid,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    request: Option<Request<'a>>,
}

/// A request is borrowed from its body: it keeps a copy of what has escapes.
const REVIEW: Limits = Limits {
    kept: 2 * MAX_BODY_BYTES,
    text: MAX_BODY_BYTES,
    annotation: MAX_BODY_BYTES,
    brief: 0,
    skips: |_, _| false,
};

/// What the API server wants to know.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<'a> {
    /// Goes back with the answer.
    #[serde(borrow, default)]
    pub uid: Cow<'a, str>,
    /// Kind of the objects.
    #[serde(borrow)]
    pub kind: GroupKind<'a>,
    /// Resource that is written.
    #[serde(borrow)]
    pub resource: GroupResource<'a>,
    /// Such as `status` or `scale`, or empty.
    #[serde(borrow, default)]
    pub sub_resource: Cow<'a, str>,
    /// Name of the object; empty while it has yet to be generated, and for each object of a collection that is deleted.
    #[serde(borrow, default)]
    pub name: Cow<'a, str>,
    /// Namespace, empty for cluster-scoped objects.
    #[serde(borrow, default)]
    pub namespace: Cow<'a, str>,
    /// What is done to it.
    pub operation: Operation,
    /// Who does it.
    #[serde(borrow)]
    pub user_info: UserInfo<'a>,
    /// The whole review, with the objects.
    #[serde(skip)]
    pub body: &'a str,
}

/// The user of a request.
#[derive(Debug, Deserialize)]
pub struct UserInfo<'a> {
    /// Name, truncated if longer: under `failurePolicy: Ignore` a refused review would let the request through.
    #[serde(borrow, default)]
    username: Cow<'a, str>,
    /// Groups: any number of them, so they are searched and never kept.
    #[serde(borrow, default)]
    groups: Option<&'a RawValue>,
}

/// Group and kind of an object.
#[derive(Debug, Deserialize)]
pub struct GroupKind<'a> {
    /// API group, empty for the core group.
    #[serde(borrow, default)]
    pub group: Cow<'a, str>,
    /// Kind.
    #[serde(borrow, default)]
    pub kind: Cow<'a, str>,
}

/// Group and resource of a request.
#[derive(Debug, Deserialize)]
pub struct GroupResource<'a> {
    /// API group, empty for the core group.
    #[serde(borrow, default)]
    pub group: Cow<'a, str>,
    /// Resource, in the plural.
    #[serde(borrow, default)]
    pub resource: Cow<'a, str>,
}

/// What a request does to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum Operation {
    /// A new object.
    Create,
    /// A new version of an object, by PUT, PATCH or apply.
    Update,
    /// The end of an object.
    Delete,
    /// A connection to an object, such as `exec`.
    Connect,
    /// One that this version of the API does not have.
    #[serde(other)]
    Unknown,
}

impl<'a> Request<'a> {
    /// Reads a review and takes its request out.
    ///
    /// # Errors
    /// When the body is not a review of this version with a request that can be answered.
    pub fn read(body: &'a str) -> Result<Self, ReviewError> {
        let Read { value: envelope, .. } = read::text::<Envelope<'a>>(body, &REVIEW)?;
        if envelope.kind != KIND {
            return Err(ReviewError::Kind(envelope.kind.into_owned()));
        }
        if envelope.api_version != API_VERSION {
            return Err(ReviewError::Version(envelope.api_version.into_owned()));
        }
        match envelope.request {
            None => Err(ReviewError::NoRequest),
            Some(request) if request.uid.is_empty() => Err(ReviewError::NoUid),
            Some(request) => Ok(request),
        }
    }

    /// Who does it.
    pub fn user(&self) -> User {
        let name = self.user_info.username.as_ref();
        let end = name.floor_char_boundary(MAX_TEXT_BYTES);
        User { username: if end < name.len() { format!("{}…", &name[..end]) } else { name.to_owned() } }
    }

    /// The list of their groups, as it is written.
    pub fn groups(&self) -> Option<&str> {
        self.user_info.groups.map(RawValue::get)
    }
}

/// The review without its objects, which an API server writes last. `None` if they are elsewhere.
pub fn head(body: &str) -> Option<String> {
    let head = body.get(..body.find("\"object\":")?)?.trim_end().strip_suffix(',')?;
    Some(format!("{head}}}}}"))
}

/// The uid of a request that could not be read otherwise, if there is one.
pub fn uid(body: &str) -> Option<String> {
    let path = ["request", "uid"].map(str::to_owned);
    let uid = read::pick(body, &[&path])[0]?;
    serde_json::from_str(uid).ok().filter(|uid: &String| uid.len() <= MAX_TEXT_BYTES)
}

/// The envelope of an answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Review<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

impl<'a> From<Response<'a>> for Review<'a> {
    fn from(response: Response<'a>) -> Self {
        Self { api_version: API_VERSION, kind: KIND, response }
    }
}

/// The answer to the API server.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Response<'a> {
    /// Of the request.
    pub uid: &'a str,
    /// Whether it may go on.
    pub allowed: bool,
    /// Why it may not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// What is to be changed first.
    #[serde(flatten)]
    pub patch: Option<Patch>,
    /// For the audit log. The API server puts the webhook's name in front of each key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub audit_annotations: BTreeMap<&'static str, String>,
    /// For the user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A JSON patch, as an answer carries it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Patch {
    patch: ByteString,
    patch_type: &'static str,
}

impl Patch {
    /// Wraps the text of a JSON patch.
    pub fn json(text: Vec<u8>) -> Self {
        Self { patch: ByteString(text), patch_type: "JSONPatch" }
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IgnoredAny;
    use shared::admission::Objects;

    use super::*;

    const REQUEST: &str = r#"{"uid":"u-1","kind":{"group":"apps","version":"v1","kind":"Deployment"},
        "resource":{"group":"apps","version":"v1","resource":"deployments"},"name":"web","namespace":"shop",
        "operation":"UPDATE","userInfo":{"username":"al\u0069ce","groups":["devs"],"extra":{"x":["y"]}},
        "object":{"metadata":{}},"oldObject":null,"dryRun":true,
        "options":{"kind":"PatchOptions","fieldManager":"kubectl-hibernate"}}"#;

    fn review(request: &str) -> String {
        format!(r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{request}}}"#)
    }

    #[test]
    fn a_request_is_read() {
        let body = review(REQUEST);
        let request = Request::read(&body).unwrap();
        assert_eq!((request.uid.as_ref(), request.name.as_ref(), request.namespace.as_ref()), ("u-1", "web", "shop"));
        assert_eq!(request.resource.resource, "deployments");
        assert_eq!(request.operation, Operation::Update);
        assert_eq!(request.user().username, "alice", "escapes are undone");
        let mut objects = Objects::<IgnoredAny>::read(&body).unwrap();
        assert_eq!((objects.field_manager().as_str(), objects.dry_run), ("kubectl-hibernate", true));
        assert!(objects.object.is_some() && objects.old_object.is_none());
        assert!(matches!(request.uid, Cow::Borrowed(_)), "nothing is copied without need");
    }

    #[test]
    fn a_name_is_cut_at_a_character() {
        let user = |name: &str| {
            let body = review(&REQUEST.replace(r"al\u0069ce", name));
            Request::read(&body).unwrap().user().username
        };
        assert_eq!(user("alice"), "alice");
        assert_eq!(user(&"x".repeat(MAX_TEXT_BYTES)).len(), MAX_TEXT_BYTES);
        assert_eq!(
            user(&format!("x{}", "ü".repeat(MAX_TEXT_BYTES))),
            format!("x{}…", "ü".repeat(MAX_TEXT_BYTES / 2 - 1))
        );
    }

    /// As an API server writes a review, the head needs no object; an extra of this name is none.
    #[test]
    fn a_head_says_what_the_whole_says() {
        let body = review(REQUEST);
        let head = head(&body).unwrap();
        let [of_head, of_body] = [head.as_str(), body.as_str()].map(|text| Request::read(text).unwrap());
        assert!(head.len() < body.len() && !head.contains("metadata"));
        assert_eq!(format!("{of_head:?}"), format!("{of_body:?}"));
        let extra = body.replace(r#"{"x":["y"]}"#, r#"{"x":["y"],"object":["y"]}"#);
        assert!(Request::read(&super::head(&extra).unwrap()).is_err(), "the whole is read");
    }

    #[test]
    fn odd_options_and_operations_are_no_reason_to_fail() {
        for (from, to) in
            [("\"UPDATE\"", "\"PONDER\""), (r#""fieldManager":"kubectl-hibernate""#, r#""fieldManager":7"#)]
        {
            let body = review(&REQUEST.replace(from, to));
            let request = Request::read(&body).unwrap();
            let manager = Objects::<IgnoredAny>::read(&body).unwrap().field_manager();
            assert!(request.operation == Operation::Unknown || manager.is_empty());
        }
    }

    #[test]
    fn what_is_no_review_is_told_so() {
        let error = |body: &str| Request::read(body).unwrap_err().to_string();
        assert!(error("").starts_with("read the request body as an AdmissionReview of admission.k8s.io/v1: EOF"));
        assert!(error("{").contains("EOF while parsing"));
        assert_eq!(error("{}"), r#"kind is "", must be "AdmissionReview""#);
        assert_eq!(
            error(&review("null").replace("k8s.io/v1\"", "k8s.io/v1beta1\"")),
            r#"apiVersion is "admission.k8s.io/v1beta1", must be "admission.k8s.io/v1""#
        );
        assert_eq!(error(&review("null")), "the AdmissionReview has no request");
        assert_eq!(error(&review(&REQUEST.replace("u-1", ""))), "request.uid is empty");
        assert!(error(&review(&REQUEST.replace(r#""operation":"UPDATE","#, ""))).contains("missing field `operation`"));
    }

    #[test]
    fn the_uid_is_found_wherever_the_rest_is_odd() {
        assert_eq!(uid(&review(r#"{"operation":[],"uid":"u-2","userInfo":7}"#)).as_deref(), Some("u-2"));
        assert_eq!(uid(r#"{"request":{"uid":7}}"#), None);
        assert_eq!(uid("[]"), None);
    }
}
