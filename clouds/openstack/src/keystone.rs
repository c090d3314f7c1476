//! Logging in: a token, and where the services are.

use std::sync::Arc;
use std::time::Duration;

use cloud_http::{Answer, Body, CallError, Http, Login, Method, Url, is_plain};
use http::{HeaderName, HeaderValue};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use shared::cloud::{CloudError, CloudErrorKind, Priority};

use crate::clouds_yaml::Cloud;
use crate::names::Id;

/// The oldest microversion of Nova with what we record: 2.71 shows server groups (Stein, 2019).
const MIN_MICROVERSION: u32 = 71;

/// The newest that we know: 2.100 (Epoxy, 2025).
const MAX_MICROVERSION: u32 = 100;

/// The header by which a client chooses a microversion.
const VERSION_HEADER: HeaderName = HeaderName::from_static("openstack-api-version");

const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-auth-token");

/// A service of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Compute,
    Network,
    Image,
}

/// A token, and what came with it.
#[derive(Clone, PartialEq)]
pub(crate) struct Session {
    token: HeaderValue,
    /// ID of the project.
    pub(crate) project: Id,
    compute: Url,
    network: Url,
    image: Url,
    /// The minor version of Nova's API 2 that is asked for.
    pub(crate) version: u32,
}

/// Logs in as a cloud's entry says.
pub(crate) struct Keystone {
    pub(crate) http: Arc<Http>,
    pub(crate) cloud: Cloud,
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Token,
}

#[derive(Deserialize)]
struct Token {
    expires_at: Timestamp,
    project: Option<Project>,
    #[serde(default)]
    catalog: Vec<CatalogEntry>,
}

#[derive(Deserialize)]
struct Project {
    id: Id,
}

#[derive(Deserialize)]
struct CatalogEntry {
    #[serde(rename = "type")]
    kind: String,
    endpoints: Vec<Endpoint>,
}

#[derive(Deserialize)]
struct Endpoint {
    interface: String,
    region_id: Option<String>,
    url: String,
}

#[derive(Deserialize)]
struct Root {
    version: Version,
}

#[derive(Deserialize)]
struct Version {
    version: String,
}

impl Session {
    pub(crate) fn headers(&self, service: Service) -> Vec<(HeaderName, HeaderValue)> {
        let mut headers = vec![(TOKEN_HEADER, self.token.clone())];
        if service == Service::Compute {
            let version = HeaderValue::from_str(&format!("compute 2.{}", self.version));
            headers.extend(version.map(|version| (VERSION_HEADER, version)));
        }
        headers
    }

    /// The URL of a path with its query.
    pub(crate) fn url(&self, service: Service, path: &str) -> Result<Url, CallError> {
        let base = match service {
            Service::Compute => &self.compute,
            Service::Network => &self.network,
            Service::Image => &self.image,
        };
        below(base, path)
    }
}

impl Login for Keystone {
    type Token = Session;

    async fn login(&self) -> Result<(Session, Duration), CallError> {
        let url = below(&self.cloud.keystone, "/v3/auth/tokens")?;
        let body = Body::Json(json!({"auth": self.cloud.auth}));
        let answer = self.http.call(Priority::Waking, Method::POST, url, &[], Some(&body)).await?;
        let token = header(&answer);
        let answered = answer.json::<TokenAnswer>().await?;
        let (token, Token { expires_at, project, catalog }) = (token?, &answered.token);
        let project =
            project.as_ref().ok_or_else(|| invalid("Keystone's token is of no project".to_owned()))?.id.clone();
        let life = Duration::try_from(expires_at.duration_since(Timestamp::now())).unwrap_or_default();
        let [compute, network, image] = [("compute", ""), ("network", "/v2.0"), ("image", "/v2")];
        let find = |(kind, version): (&str, &str)| self.endpoint(catalog, kind, version);
        let (compute, network, image) = (find(compute)?, find(network)?, find(image)?);
        let session = Session { token, project, compute, network, image, version: MIN_MICROVERSION };
        let version = self.microversion(&session).await?;
        Ok((Session { version, ..session }, life))
    }
}

impl Keystone {
    /// The URL of a service, with its version.
    fn endpoint(&self, catalog: &[CatalogEntry], kind: &str, version: &str) -> Result<Url, CallError> {
        let all = catalog.iter().filter(|service| service.kind == kind).flat_map(|service| &service.endpoints);
        let of_interface = all.filter(|endpoint| endpoint.interface == self.cloud.interface);
        let region = self.cloud.region.as_deref();
        let mut found = of_interface.filter(|endpoint| region.is_none() || region == endpoint.region_id.as_deref());
        let interface = &self.cloud.interface;
        let of_region = region.map(|region| format!(" of region {region}")).unwrap_or_default();
        let Some(endpoint) = found.next() else {
            let fields = "check region_name and interface in clouds.yaml";
            return Err(invalid(format!("the catalog has no {interface} endpoint for {kind}{of_region}: {fields}")));
        };
        if found.next().is_some() && region.is_none() {
            return Err(invalid(format!(
                "the catalog has several endpoints for {kind}: set region_name in clouds.yaml"
            )));
        }
        let url = Url::parse(endpoint.url.trim_end_matches('/')).ok();
        let Some(url) = url.filter(is_plain) else {
            return Err(invalid(format!("the catalog's endpoint for {kind} is no URL of a service")));
        };
        if self.cloud.keystone.scheme() == "https" && url.scheme() != "https" {
            let why = "Keystone is asked by https: tokens are not sent without TLS";
            return Err(invalid(format!("the catalog's {interface} endpoint for {kind} is http: {why}")));
        }
        if url.path().trim_end_matches('/').ends_with(version) { Ok(url) } else { below(&url, version) }
    }

    /// The newest microversion of Nova that both sides know.
    async fn microversion(&self, session: &Session) -> Result<u32, CallError> {
        let headers = session.headers(Service::Image);
        let url = session.url(Service::Compute, "/")?;
        let answer = self.http.call(Priority::Waking, Method::GET, url, &headers, None).await?;
        let root = answer.json::<Root>().await?;
        let version = &root.version.version;
        let newest = version.strip_prefix("2.").and_then(|minor| minor.parse::<u32>().ok()).unwrap_or_default();
        if newest < MIN_MICROVERSION {
            let version = shared::text::sanitize_to(version, 20);
            return Err(invalid(format!(
                "Nova's newest microversion is {version}: 2.{MIN_MICROVERSION} is needed to record servers"
            )));
        }
        Ok(newest.min(MAX_MICROVERSION))
    }
}

fn header(answer: &Answer) -> Result<HeaderValue, CallError> {
    let token = answer.headers.get("x-subject-token").cloned();
    let mut token = token.ok_or_else(|| invalid("Keystone's answer has no token".to_owned()))?;
    token.set_sensitive(true);
    Ok(token)
}

/// A URL with more of a path.
fn below(url: &Url, path: &str) -> Result<Url, CallError> {
    let text = format!("{}{path}", url.as_str().trim_end_matches('/'));
    Url::parse(&text).map_err(|_| invalid(format!("{path} makes no URL")))
}

fn invalid(message: String) -> CallError {
    CallError::NotSent(CloudError::new(CloudErrorKind::Invalid, message))
}

#[cfg(test)]
mod tests;
