//! `AdmissionReview`s over TLS, straight to the webhook.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use rustls::ClientConfig;
use serde_json::{Value, json};
use shared::annotation::keys;
use testbed::World;

/// A client with connections of its own.
pub struct Reviewer {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: String,
}

/// The webhook, as the API server knows it.
pub struct Webhook {
    authority: String,
    url: String,
}

impl Webhook {
    pub async fn of(world: &World) -> Result<Self> {
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(world.hub().await?);
        let entries = configurations.get(keys::WEBHOOK).await?.webhooks.unwrap_or_default();
        let authority = entries.into_iter().find_map(|entry| entry.client_config.ca_bundle).context("a caBundle")?;
        let url = world.now().await?.webhook.and_then(|webhook| webhook.url).context("a webhook")?;
        Ok(Self { authority: String::from_utf8(authority.0)?, url: format!("{url}/validate") })
    }

    /// Where it listens.
    pub fn address(&self) -> Result<SocketAddr> {
        let authority = self.url.trim_start_matches("https://").split('/').next().unwrap_or_default();
        authority.parse().with_context(|| format!("no address: {authority}"))
    }

    /// How to speak HTTP/2 with it.
    pub fn tls(&self) -> Result<Arc<ClientConfig>> {
        let mut tls = testbed::proxy::tls::client(&self.authority)?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(tls))
    }

    /// A client with connections of its own.
    pub fn client(&self) -> Result<Reviewer> {
        self.client_at(Ipv4Addr::LOCALHOST.into())
    }

    /// The same from an address of this machine.
    pub fn client_at(&self, address: IpAddr) -> Result<Reviewer> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_local_address(Some(address));
        let tls = testbed::proxy::tls::client(&self.authority)?;
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new()).pool_idle_timeout(Duration::from_mins(10)).build(connector);
        Ok(Reviewer { client, url: self.url.clone() })
    }
}

impl Reviewer {
    /// Posts a body. The answer's status, and how long it took.
    pub async fn post(&self, body: Bytes) -> Result<(StatusCode, Duration)> {
        let begin = Instant::now();
        let request = Request::post(&self.url).header("content-type", "application/json").body(Full::new(body))?;
        let answer = self.client.request(request).await?;
        let status = answer.status();
        answer.into_body().collect().await?;
        Ok((status, begin.elapsed()))
    }
}

/// A sleep of an installed cluster, with so many labels and groups.
pub fn review(labels: usize, groups: usize) -> Bytes {
    let cluster = |state: &str| {
        json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
            "metadata": {
                "name": "demo", "namespace": "clusters", "uid": "5f0bb9a2", "resourceVersion": "1",
                "labels": (0..labels).map(|at| (format!("example.com/label-{at:08}"), json!("value"))).collect::<serde_json::Map<_, _>>(),
            },
            "spec": { "installed": true, "powerState": state, "platform": { "aws": { "region": "us-east-1" } } },
        })
    };
    review_of(&cluster("Hibernating"), &cluster("Running"), groups)
}

/// An update of a cluster by a user of so many groups.
pub fn review_of(object: &Value, old: &Value, groups: usize) -> Bytes {
    let kind = json!({ "group": "hive.openshift.io", "version": "v1", "kind": "ClusterDeployment" });
    let resource = json!({ "group": "hive.openshift.io", "version": "v1", "resource": "clusterdeployments" });
    let names: Value = (0..groups).map(|at| json!(format!("group-{at:08}"))).collect();
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "0c9a8d74", "kind": kind, "resource": resource, "name": "demo", "namespace": "clusters", "operation": "UPDATE",
            "userInfo": { "username": "alice", "groups": names },
            "object": object, "oldObject": old, "dryRun": false,
        },
    });
    Bytes::from(review.to_string())
}
