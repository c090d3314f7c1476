//! The `AdmissionReview` of `admission.k8s.io/v1` as it arrives and as it is answered.
//!
//! The two objects in a request are left as the text that they are: what to read of them depends on their kind, and
//! most of it never has to be read at all.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use shared::admission::bounded::{cut, short, short_if_any};
use shared::admission::{User, from_map};

/// The only version of the API that is spoken.
pub const API_VERSION: &str = "admission.k8s.io/v1";
/// Kind of the request's and of the answer's envelope.
pub const KIND: &str = "AdmissionReview";

/// Why a body is no review that can be answered on its merits. The answer is HTTP 400.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// Not JSON, or not of the shape of a review.
    #[error("read the request body as an {KIND} of {API_VERSION}: {0}")]
    Malformed(#[from] serde_json::Error),
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
    request: Option<&'a RawValue>,
}

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
    /// The object as it would be stored.
    #[serde(borrow, default)]
    pub object: Option<&'a RawValue>,
    /// The object as it is stored.
    #[serde(borrow, default)]
    pub old_object: Option<&'a RawValue>,
    /// Whether nothing will be stored.
    #[serde(default)]
    pub dry_run: Option<bool>,
    /// `CreateOptions`, `UpdateOptions` or `PatchOptions`.
    #[serde(borrow, default)]
    options: Option<&'a RawValue>,
}

/// The user of a request.
#[derive(Debug, Deserialize)]
pub struct UserInfo<'a> {
    /// Name. A longer one is cut: what is under `failurePolicy: Ignore` would pass if it were refused.
    #[serde(default, deserialize_with = "cut")]
    username: String,
    /// Groups: any number of them, so they are searched and never kept.
    #[serde(borrow, default)]
    pub groups: Option<&'a RawValue>,
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

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Options {
    #[serde(deserialize_with = "short_if_any")]
    field_manager: Option<String>,
}

impl<'a> Request<'a> {
    /// Reads a review and takes its request out.
    ///
    /// # Errors
    /// When the body is not a review of this version with a request that can be answered.
    pub fn read(body: &'a [u8]) -> Result<Self, ReviewError> {
        let mut text = serde_json::Deserializer::from_slice(body);
        let envelope: Envelope<'a> = from_map(&mut text)?;
        text.end()?;
        if envelope.kind != KIND {
            return Err(ReviewError::Kind(envelope.kind.into_owned()));
        }
        if envelope.api_version != API_VERSION {
            return Err(ReviewError::Version(envelope.api_version.into_owned()));
        }
        let request = envelope.request.ok_or(ReviewError::NoRequest)?;
        let request: Self = from_map(&mut serde_json::Deserializer::from_str(request.get()))?;
        if request.uid.is_empty() {
            return Err(ReviewError::NoUid);
        }
        Ok(request)
    }

    /// Who does it.
    pub fn user(&self) -> User {
        User { username: self.user_info.username.clone() }
    }

    /// The field manager that the client gave; empty if it gave none, in which case the API server made one up.
    pub fn field_manager(&self) -> String {
        self.options
            .and_then(|options| serde_json::from_str::<Options>(options.get()).ok())
            .and_then(|options| options.field_manager)
            .unwrap_or_default()
    }
}

/// The uid of a request that could not be read otherwise, if there is one.
pub fn uid(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Envelope {
        #[serde(deserialize_with = "from_map")]
        request: Request,
    }
    #[derive(Deserialize)]
    struct Request {
        #[serde(deserialize_with = "short")]
        uid: String,
    }
    let envelope: Envelope = from_map(&mut serde_json::Deserializer::from_slice(body)).ok()?;
    Some(envelope.request.uid)
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

/// What the API server gets to know.
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
        let request = Request::read(body.as_bytes()).unwrap();
        assert_eq!((request.uid.as_ref(), request.name.as_ref(), request.namespace.as_ref()), ("u-1", "web", "shop"));
        assert_eq!(request.resource.resource, "deployments");
        assert_eq!((request.operation, request.dry_run), (Operation::Update, Some(true)));
        assert_eq!(request.user().username, "alice", "escapes are undone");
        assert_eq!(request.field_manager(), "kubectl-hibernate");
        assert!(request.object.is_some() && request.old_object.is_none());
        assert!(matches!(request.uid, Cow::Borrowed(_)), "nothing is copied without need");
    }

    #[test]
    fn odd_options_and_operations_are_no_reason_to_fail() {
        for (from, to) in
            [("\"UPDATE\"", "\"PONDER\""), (r#""fieldManager":"kubectl-hibernate""#, r#""fieldManager":7"#)]
        {
            let body = review(&REQUEST.replace(from, to));
            let request = Request::read(body.as_bytes()).unwrap();
            assert!(request.operation == Operation::Unknown || request.field_manager().is_empty());
        }
    }

    #[test]
    fn what_is_no_review_is_told_so() {
        let error = |body: &str| Request::read(body.as_bytes()).unwrap_err().to_string();
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
        assert_eq!(uid(review(r#"{"operation":[],"uid":"u-2","userInfo":7}"#).as_bytes()).as_deref(), Some("u-2"));
        assert_eq!(uid(br#"{"request":{"uid":7}}"#), None);
        assert_eq!(uid(b"[]"), None);
    }
}
