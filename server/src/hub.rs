//! The reader of the hub: tenants fill its objects, and there may be any number of them.
//!
//! Each object passes [`shared::read`] as it comes ([`Guarded`]). Pages are as long as their bytes allow, what is deleted
//! is not read, and what is kept is charged to its tenant ([`crate::WatchMemory`]).

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Limited};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::api::{GetParams, ListParams};
use kube::client::Body;
use kube::core::Request as Requests;
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use shared::guarded::{Guarded, Managed, Named};
use shared::read::{Foreign, pick};
use tower::BoxError;

/// Bytes of a page of more than one object, and of one object.
const PAGE_BYTES: usize = 2 << 20;
const OBJECT_BYTES: usize = 8 << 20;

/// Objects of a page, where nothing else is said.
const PAGE: u32 = 100;

/// What is answered in place of what was deleted.
const DELETED: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}"#;

/// Where access reviews are asked for.
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// How many objects of each list fit into a page, by path.
type Limits = Arc<Mutex<HashMap<String, u32>>>;

/// The same client, within these bounds.
pub fn bounded(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let limits = Limits::default();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, limits) = (client.clone(), limits.clone());
        async move {
            let (parts, body) = request.into_parts();
            if parts.method == Method::GET
                && let Some(asked) = query(&parts.uri, "limit").and_then(|limit| limit.parse().ok())
            {
                return page(&client, &parts.uri, &parts.headers, asked, &limits).await;
            }
            let is_delete = parts.method == Method::DELETE;
            let answer = client.send(Request::from_parts(parts, body)).await?;
            if is_delete { deleted(answer).await } else { Ok(answer) }
        }
    });
    Client::new(service, namespace)
}

/// A page of at most so many objects: of fewer, if they are large. The rest comes with the next page.
async fn page(
    client: &Client,
    uri: &Uri,
    headers: &HeaderMap,
    asked: u32,
    limits: &Limits,
) -> Result<Response<Body>, BoxError> {
    let path = uri.path().to_owned();
    let mut limit = limits.lock().get(&path).map_or(asked, |known| (2 * known).min(asked));
    loop {
        let mut smaller = Request::get(with_limit(uri, limit)?).body(Body::empty())?;
        *smaller.headers_mut() = headers.clone();
        let (parts, body) = client.send(smaller).await?.into_parts();
        let most = if limit > 1 { PAGE_BYTES } else { OBJECT_BYTES };
        match Limited::new(body, most).collect().await {
            Ok(body) => {
                if limit < asked || limits.lock().contains_key(&path) {
                    limits.lock().insert(path, limit);
                }
                return Ok(Response::from_parts(parts, Body::from(body.to_bytes().to_vec())));
            }
            Err(error) if error.is::<http_body_util::LengthLimitError>() && limit > 1 => limit = (limit / 4).max(1),
            Err(error) => return Err(error),
        }
    }
}

/// What was deleted is not of interest, and a collection of it may be of any size.
async fn deleted(answer: Response<Body>) -> Result<Response<Body>, BoxError> {
    if !answer.status().is_success() {
        return Ok(answer);
    }
    let (mut parts, mut body) = answer.into_parts();
    while body.frame().await.transpose()?.is_some() {}
    parts.headers.remove(http::header::CONTENT_LENGTH);
    Ok(Response::from_parts(parts, Body::from(DELETED.as_bytes().to_vec())))
}

fn query<'a>(uri: &'a Uri, key: &str) -> Option<&'a str> {
    uri.query()?.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
}

fn with_limit(uri: &Uri, limit: u32) -> Result<Uri, http::Error> {
    let others = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.starts_with("limit="));
    let query: Vec<_> = others.map(str::to_owned).chain([format!("limit={limit}")]).collect();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(format!("{}?{}", uri.path(), query.join("&")).try_into()?);
    Uri::from_parts(parts).map_err(http::Error::from)
}

/// Whether this account may list all objects of a kind, as the hub's authorizer says. Without its answer, a list shows
/// it.
pub async fn may_list<K: Resource<DynamicType = ()>>(client: &Client) -> bool {
    may(client, &json!({ "group": K::group(&()), "resource": K::plural(&()), "verb": "list" })).await
}

/// Whether this account has a right, as the hub's authorizer says. Without its answer, the attempt shows it.
pub async fn may(client: &Client, attributes: &(impl Serialize + Sync)) -> bool {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": attributes },
    });
    let request = Request::post(REVIEWS).header(CONTENT_TYPE, "application/json");
    let Ok(request) = request.body(review.to_string().into_bytes()) else { return true };
    let answer = client.request_text(request).await.unwrap_or_default();
    let allowed = ["status", "allowed"].map(str::to_owned);
    pick(&answer, &[&allowed])[0] != Some("false")
}

/// An object by its name, if there is one.
///
/// # Errors
/// When the hub does not answer, or the object cannot be read to its end.
pub async fn get<K: Resource + Foreign + Clone + Debug>(api: &Api<Guarded<K>>, name: &str) -> kube::Result<Option<K>> {
    let found = api.get_opt(name).await?;
    found.map(Guarded::read).transpose().map_err(kube::Error::SerdeError)
}

/// Who wrote an object, if there is one of this name. `namespace`: none for kinds without one.
///
/// # Errors
/// As [`get`].
pub async fn managed<K: Resource<DynamicType = ()>>(
    client: &Client,
    namespace: Option<&str>,
    name: &str,
) -> kube::Result<Option<Managed>> {
    let request = Requests::new(K::url_path(&(), namespace)).get_metadata(name, &GetParams::default());
    match client.request::<Guarded<Managed>>(request.map_err(kube::Error::BuildRequest)?).await {
        Ok(found) => found.read().map(Some).map_err(kube::Error::SerdeError),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// What `keep` leaves of all objects of a kind, page by page. It gets those, too, that cannot be read to their end.
///
/// # Errors
/// When the hub does not answer, or `keep` refuses one of them.
pub async fn list<K: Resource + Foreign + Clone, T>(
    api: &Api<Guarded<K>>,
    params: &ListParams,
    keep: impl FnMut(Guarded<K>) -> serde_json::Result<T>,
) -> kube::Result<Vec<T>> {
    pages(api.clone().into_client(), Requests::new(api.resource_url()), false, params.clone(), keep).await
}

/// The same of who they are.
///
/// # Errors
/// As [`list`].
pub async fn names<K: Resource<DynamicType = ()> + Clone, T>(
    client: &Client,
    namespace: Option<&str>,
    params: &ListParams,
    keep: impl FnMut(Guarded<Named<K>>) -> serde_json::Result<T>,
) -> kube::Result<Vec<T>> {
    pages(client.clone(), Requests::new(K::url_path(&(), namespace)), true, params.clone(), keep).await
}

async fn pages<K: Foreign + Clone, T>(
    client: Client,
    requests: Requests,
    metadata_only: bool,
    mut params: ListParams,
    mut keep: impl FnMut(Guarded<K>) -> serde_json::Result<T>,
) -> kube::Result<Vec<T>> {
    params.limit = params.limit.or(Some(PAGE));
    let mut found = Vec::new();
    loop {
        let request = if metadata_only { requests.list_metadata(&params) } else { requests.list(&params) };
        let page: Page<K> = client.request(request.map_err(kube::Error::BuildRequest)?).await?;
        for object in page.items.into_iter().flatten() {
            found.push(keep(object).map_err(kube::Error::SerdeError)?);
        }
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => params.continue_token = Some(next),
            None => return Ok(found),
        }
    }
}

#[derive(Deserialize)]
#[serde(bound = "K: Foreign")]
struct Page<K> {
    #[serde(default)]
    metadata: ListMeta,
    /// An API server writes null for none.
    items: Option<Vec<Guarded<K>>>,
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::DeleteParams;
    use serde_json::json;

    use super::*;

    /// A hub with so many objects of so many bytes, and the requests that it was sent.
    fn hub(objects: usize, bytes: usize) -> (Client, Arc<AtomicUsize>) {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = sent.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            let number = |key| query(request.uri(), key).map_or(0, |text| text.parse::<usize>().unwrap());
            let (limit, begin) = (number("limit"), number("continue"));
            let end = objects.min(begin + limit);
            let item = |number: usize| json!({ "metadata": { "name": number.to_string(), "namespace": "x" }, "other": "y".repeat(bytes) });
            let items: Vec<_> = (begin..end).map(item).collect();
            let next = if end < objects { end.to_string() } else { String::new() };
            let items = if items.is_empty() { json!(null) } else { json!(items) };
            let text = if request.method() == Method::DELETE {
                json!({ "kind": "ConfigMapList", "items": [{ "other": "z".repeat(bytes) }] })
            } else {
                json!({ "kind": "ConfigMapList", "apiVersion": "v1", "metadata": { "continue": next }, "items": items })
            };
            std::future::ready(Ok::<_, BoxError>(Response::new(Body::from(text.to_string().into_bytes()))))
        });
        (bounded(Client::new(service, "default")), sent)
    }

    #[tokio::test]
    async fn the_authorizer_says_whether_a_kind_may_be_listed() {
        for (code, answer, may) in [
            (201, r#"{"kind":"SelfSubjectAccessReview","spec":{},"status":{"allowed":true}}"#, true),
            (201, r#"{"kind":"SelfSubjectAccessReview","spec":{},"status":{"allowed":false,"reason":"x"}}"#, false),
            // A list shows it.
            (403, r#"{"kind":"Status","code":403,"message":"no reviews"}"#, true),
            (201, "no JSON", true),
        ] {
            let service = tower::service_fn(move |request: Request<Body>| async move {
                assert_eq!((request.method(), request.uri().path()), (&Method::POST, REVIEWS));
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let review: serde_json::Value = serde_json::from_slice(&body).unwrap();
                let asked = json!({ "group": "", "resource": "configmaps", "verb": "list" });
                assert_eq!(review["spec"]["resourceAttributes"], asked);
                let answer = Response::builder().status(code).body(Body::from(answer.as_bytes().to_vec()));
                Ok::<_, BoxError>(answer.unwrap())
            });
            assert_eq!(may_list::<ConfigMap>(&bounded(Client::new(service, "default"))).await, may, "{answer}");
        }
    }

    #[tokio::test]
    async fn pages_are_as_long_as_their_bytes_allow() {
        for (objects, bytes, most) in [(0, 0, 1), (250, 100, 3), (40, 100_000, 16), (10, 1_400_000, 30)] {
            let (client, sent) = hub(objects, bytes);
            let maps: Api<Guarded<ConfigMap>> = Api::namespaced(client.clone(), "x");
            assert_eq!(list(&maps, &ListParams::default(), Guarded::read).await.unwrap().len(), objects);
            assert!(sent.load(Ordering::Relaxed) <= most, "{objects} of {bytes}: {sent:?} requests");
            let named = names::<ConfigMap, _>(&client, Some("x"), &ListParams::default(), Guarded::read).await.unwrap();
            assert_eq!(named.len(), objects);
        }
        let (client, _) = hub(1, 9 << 20);
        let maps: Api<Guarded<ConfigMap>> = Api::namespaced(client, "x");
        assert!(list(&maps, &ListParams::default(), Guarded::read).await.is_err(), "larger than any object");
    }

    #[tokio::test]
    async fn what_is_deleted_is_not_read() {
        let (client, _) = hub(0, 4 << 20);
        let maps: Api<Guarded<ConfigMap>> = Api::namespaced(client, "x");
        assert!(maps.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap().is_right());
    }

    /// One that cannot be read is for the caller to judge: it spoils no list of all tenants' objects.
    #[tokio::test]
    async fn an_object_that_cannot_be_read_spoils_no_list() {
        let list_of =
            r#"{"metadata":{},"items":[{"metadata":{"name":"a","uid":"u","annotations":{"hibernate.sh/x":"LONG"}}}]}"#;
        let text = list_of.replace("LONG", &"x".repeat(17 << 10));
        let service = tower::service_fn(move |_: Request<Body>| {
            std::future::ready(Ok::<_, BoxError>(Response::new(Body::from(text.clone().into_bytes()))))
        });
        let client = Client::new(service, "default");
        let all = ListParams::default();
        let found = names::<ConfigMap, _>(&client, None, &all, |one| Ok(one.meta().uid.clone())).await;
        assert_eq!(found.unwrap(), [Some("u".to_owned())]);
        let refused = names::<ConfigMap, _>(&client, None, &all, Guarded::read).await.unwrap_err().to_string();
        assert!(refused.contains("a text of at most 16 KiB"), "{refused}");
    }
}
