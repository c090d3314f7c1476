//! The client of people: a hub's API server by kubeconfig and credentials, with a few requests, by path, without
//! discovery. It has no command line and prints nothing.

pub mod answer;
pub mod config;
pub mod connection;
pub mod credential;
pub mod error;
pub mod exec;
mod login;
pub mod middleware;
mod pages;
mod pod;
mod proxy;
mod server;
mod session;
pub mod watch;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::{GetParams, Patch, PatchParams, PostParams, ValidationDirective};
use kube::core::{Request, request};
use rustls::NamedGroup;
use rustls::crypto::CryptoProvider;
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::kinds::Kind;
use shared::object::{items, name_of, text};

use crate::answer::Call;
use crate::connection::{Connection, Notice, Notify};
use crate::error::HubError;
use crate::middleware::{HubLayer, within};
pub use crate::pages::{ObjectList, Pages};
use crate::session::Session;

/// A client for the hub.
#[derive(Clone)]
pub struct HubClient {
    session: Arc<Session>,
    timeout: Option<Duration>,
    /// URL of the API server.
    pub url: Arc<str>,
    /// Namespace by flag, context or default.
    pub namespace: String,
    /// Whether each request is a notice.
    pub verbose: bool,
    notify: Notify,
}

/// One kind in one of its versions: what a path is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    pub kind: &'static Kind,
    /// A version that the hub serves.
    pub version: &'static str,
    /// Whether a patch is one of the status.
    is_status: bool,
}

/// How a patch is sent.
#[derive(Clone, Debug)]
pub struct Write {
    /// Whether the API server only judges it.
    pub dry_run: bool,
    /// Field manager.
    pub manager: String,
    /// Whether a patch is refused that sets a field which the hub does not know: it drops such a field otherwise, and answers
    /// as if it had set it.
    pub strict: bool,
}

impl Write {
    /// As this field manager.
    pub fn new(manager: &str, dry_run: bool) -> Self {
        Self { dry_run, manager: manager.to_owned(), strict: false }
    }
}

impl Resource {
    pub fn new(kind: &'static Kind, version: &'static str) -> Self {
        Self { kind, version, is_status: false }
    }

    /// A kind in its preferred version.
    pub fn preferred(kind: &'static Kind) -> Self {
        Self::new(kind, kind.versions[0])
    }

    /// The status of its objects, to be patched.
    pub fn status(self) -> Self {
        Self { is_status: true, ..self }
    }

    /// The path of the resource. As kubectl does, it ignores a namespace given for a kind that has none.
    fn path(self, namespace: Option<&str>) -> String {
        let Kind { group, plural, .. } = self.kind;
        let root = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
        match namespace.filter(|_| self.kind.is_namespaced()) {
            Some(namespace) => format!("{root}/{}/namespaces/{namespace}/{plural}", self.version),
            None => format!("{root}/{}/{plural}", self.version),
        }
    }

    fn call(self, verb: &'static str, name: &str) -> Call {
        Call { verb, kind: self.kind, name: name.to_owned() }
    }
}

impl HubClient {
    /// Sets up a client. Nothing is sent yet.
    ///
    /// # Errors
    /// When the kubeconfig or what overrides it cannot be used.
    pub fn connect(args: &Connection, notify: Notify) -> Result<Self, HubError> {
        let config = config::load(args)?;
        let url: Arc<str> = server::shown(config.cluster_url.to_string().trim_end_matches('/')).into();
        let (namespace, timeout, verbose) = (config.default_namespace.clone(), args.request_timeout, args.verbose);
        let layer = HubLayer::new(Arc::clone(&notify), verbose.then(|| Arc::clone(&url)), timeout);
        let session = Arc::new(Session::new(config, Arc::clone(&url), layer)?);
        Ok(Self { session, timeout, url, namespace, verbose, notify })
    }

    /// One object. The namespace of a cluster-scoped one is ignored.
    pub async fn get(&self, resource: Resource, namespace: &str, name: &str) -> Result<Value, HubError> {
        let request = Request::new(resource.path(Some(namespace))).get(name, &GetParams::default());
        self.send(resource.call("get", name), request).await
    }

    /// Sends a patch: a JSON patch if it is an array, otherwise a JSON merge patch. A JSON patch whose `test` fails is
    /// a [`HubError::Conflict`].
    pub async fn patch(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        patch: &Value,
        write: &Write,
    ) -> Result<Value, HubError> {
        let field_manager = Some(write.manager.clone());
        let field_validation = write.strict.then_some(ValidationDirective::Strict);
        let params = PatchParams { dry_run: write.dry_run, field_manager, field_validation, ..PatchParams::default() };
        let path = Request::new(resource.path(Some(namespace)));
        let (verb, request) = match (typed_patch(patch), resource.is_status) {
            (Ok(patch), false) => ("patch", path.patch(name, &params, &patch)),
            (Ok(patch), true) => ("patch the status of", path.patch_subresource("status", name, &params, &patch)),
            (Err(error), _) => ("patch", Err(error)),
        };
        self.send(resource.call(verb, name), request).await
    }

    /// Creates an object, in a namespace or in none. Objects such as access reviews answer instead of being kept.
    pub async fn create(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        object: &Value,
        write: &Write,
    ) -> Result<Value, HubError> {
        let params = PostParams { dry_run: write.dry_run, field_manager: Some(write.manager.clone()) };
        let body = serde_json::to_vec(object).map_err(request::Error::SerializeBody);
        let request = body.and_then(|body| Request::new(resource.path(namespace)).create(&params, body));
        self.send(resource.call("create", name_of(object)), request).await
    }

    /// Whether the API server's authorizer lets the user do this, in the form of `spec.resourceAttributes`. None if it
    /// does not answer.
    pub async fn is_allowed(&self, attributes: &Value) -> Option<bool> {
        static REVIEW: Kind = Kind::cluster_scoped(
            "authorization.k8s.io",
            &["v1"],
            "SelfSubjectAccessReview",
            "selfsubjectaccessreviews",
        );
        let resource = Resource::preferred(&REVIEW);
        let review = typed(json!({ "spec": { "resourceAttributes": attributes } }), resource);
        let write = Write::new(keys::PLUGIN, false);
        self.create(resource, None, &review, &write).await.ok()?.pointer("/status/allowed")?.as_bool()
    }

    /// Tells of something that was skipped or not read, where that is no failure and every request is a notice.
    pub fn note(&self, text: &str) {
        if self.verbose {
            (self.notify)(Notice::Progress(text));
        }
    }

    /// The API groups that it serves.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn groups(&self) -> Result<Vec<String>, HubError> {
        let apis = self.raw("/apis").await?;
        Ok(items(&apis, "/groups").map(|group| text(group, "/name").to_owned()).collect())
    }

    /// What is at a path of the API server itself, such as `/version` or `/apis`.
    pub async fn raw(&self, path: &'static str) -> Result<Value, HubError> {
        static SERVER: Kind = Kind::cluster_scoped("", &[], "APIServer", "apiserver");
        let request = http::Request::get(path).body(Vec::new()).map_err(request::Error::BuildRequest);
        self.send(Call { verb: "get", kind: &SERVER, name: path.to_owned() }, request).await
    }

    async fn send(
        &self,
        call: Call,
        request: Result<http::Request<Vec<u8>>, request::Error>,
    ) -> Result<Value, HubError> {
        let request = request.map_err(|source| answer::unsendable(&call, source))?;
        let (url, call, timeout) = (&self.url, &call, self.timeout);
        let send = move |client: Client| {
            let request = request.clone();
            async move {
                let answer = client.request::<Value>(request);
                // The layer limits the time to the response's head; this one limits the whole of it.
                let result = within(timeout, answer).await.unwrap_or_else(|late| Err(kube::Error::Service(late)));
                result.map_err(|source| answer::judge(url, call, source))
            }
        };
        Box::pin(self.session.send(send)).await
    }
}

/// A selector; none if it is empty.
fn selector(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn typed_patch(patch: &Value) -> Result<Patch<&Value>, request::Error> {
    match patch {
        Value::Array(_) => {
            serde_json::from_value(patch.clone()).map(Patch::Json).map_err(request::Error::SerializeBody)
        }
        _ => Ok(Patch::Merge(patch)),
    }
}

/// The object with a patch of either form applied, for `--dry-run=client`. A JSON patch that does not fit leaves it as
/// it is.
pub fn patched(object: &Value, patch: &Value) -> Value {
    let mut object = object.clone();
    match typed_patch(patch) {
        Ok(Patch::Json(patch)) => drop(json_patch::patch(&mut object, &patch)),
        _ => json_patch::merge(&mut object, patch),
    }
    object
}

/// Whether this is a DNS subdomain, as names of objects and namespaces are.
pub fn is_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let outer = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    name.len() <= 253
        && name.bytes().all(inner)
        && outer(name.as_bytes().first())
        && outer(name.as_bytes().last())
        && !name.contains("..")
}

/// Whether this is a DNS label, as names of namespaces are.
pub fn is_namespace(name: &str) -> bool {
    is_name(name) && name.len() <= 63 && !name.contains('.')
}

/// TLS as every connection of the plugin has it: aws-lc-rs with the post-quantum key exchange in front. API servers
/// built with Go 1.24 and later prefer it: offered second, they answer with a `HelloRetryRequest`, which is one more
/// round trip. X25519 is still offered in the same message.
pub fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.kx_groups.sort_by_key(|group| group.name() != NamedGroup::X25519MLKEM768);
    provider
}

/// Items of a list come without their apiVersion and kind.
fn typed(mut object: Value, resource: Resource) -> Value {
    if object.is_object() {
        let Kind { group, .. } = resource.kind;
        let version = resource.version;
        object["apiVersion"] = if group.is_empty() { version.into() } else { format!("{group}/{version}").into() };
        object["kind"] = resource.kind.kind.into();
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_has_a_namespace_where_the_kind_has_one() {
        static POD: Kind = Kind::namespaced("", &["v1"], "Pod", "pods");
        static NODE: Kind = Kind::cluster_scoped("", &["v1"], "Node", "nodes");
        static VAULT: Kind = Kind::cluster_scoped("example.com", &["v2"], "Vault", "vaults");
        for (kind, namespace, path) in [
            (&POD, Some("x"), "/api/v1/namespaces/x/pods"),
            (&POD, None, "/api/v1/pods"),
            (&NODE, Some("x"), "/api/v1/nodes"),
            (&NODE, None, "/api/v1/nodes"),
            (&VAULT, Some("x"), "/apis/example.com/v2/vaults"),
        ] {
            assert_eq!(Resource::preferred(kind).path(namespace), path);
        }
    }

    #[test]
    fn a_dry_run_of_the_client_shows_the_object_as_it_would_be() {
        let object = json!({ "spec": { "paused": true, "retryFailed": 1 } });
        let json = json!([{ "op": "add", "path": "/spec/paused", "value": false }]);
        assert_eq!(patched(&object, &json)["spec"]["paused"], false);
        assert_eq!(
            patched(&object, &json!({ "spec": { "retryFailed": 2 } }))["spec"],
            json!({ "paused": true, "retryFailed": 2 })
        );
    }
}
