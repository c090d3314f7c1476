//! Kubelets with certificates of their own: after each start a kubelet has none, asks for one as the bootstrapper, and
//! speaks as its Node once the request is approved and the spoke's real controller manager has signed it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::PostParams;
use kube::{Api, Client};
use rcgen::{CertificateParams, DnType, KeyPair, SanType};
use serde_json::{Value, json};

use super::LABEL;
use crate::kubeconfig::{self, base64};

/// Namespace of the service account that kubelets without a certificate borrow.
pub const BOOTSTRAPPER_NAMESPACE: &str = "openshift-machine-config-operator";
/// That service account.
pub const BOOTSTRAPPER: &str = "node-bootstrapper";

/// How long a kubelet waits after a refusal before it asks again.
const RETRY: Duration = Duration::from_secs(5);

/// What the bootstrapper needs on a spoke: it may ask, and nothing else.
pub fn bootstrapper() -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": BOOTSTRAPPER_NAMESPACE}}),
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": BOOTSTRAPPER, "namespace": BOOTSTRAPPER_NAMESPACE},
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "system-bootstrap-node-bootstrapper"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-bootstrapper"},
            "subjects": [{"kind": "ServiceAccount", "name": BOOTSTRAPPER, "namespace": BOOTSTRAPPER_NAMESPACE}],
        }),
    ]
}

/// Where kubelets of a spoke get their certificates.
#[derive(Clone)]
pub struct Issuance {
    /// URL of the API server, past all gates.
    pub server: String,
    /// Certificate of the authority that signed the server's, PEM.
    pub authority: String,
    /// A client of the bootstrapper.
    pub bootstrapper: Client,
}

/// The certificates of one kubelet.
pub struct Wallet {
    issuance: Issuance,
    infra_id: String,
    node: String,
    ip: String,
    open: Option<Open>,
    refused: Option<Instant>,
}

/// A request that is not answered yet.
struct Open {
    boot: f64,
    csr: String,
    key: KeyPair,
}

impl Wallet {
    /// An empty one.
    pub fn new(issuance: Issuance, infra_id: &str, node: &str, ip: &str) -> Self {
        let (infra_id, node, ip) = (infra_id.to_owned(), node.to_owned(), ip.to_owned());
        Self { issuance, infra_id, node, ip, open: None, refused: None }
    }

    /// A client of the Node itself, once the request of this boot has been approved and signed.
    ///
    /// # Errors
    /// When the API server refuses the request itself.
    pub async fn client(&mut self, boot: f64) -> Result<Option<Client>> {
        let Some(open) = self.open.as_ref().filter(|open| open.boot.total_cmp(&boot).is_eq()) else {
            if self.refused.is_none_or(|at| at.elapsed() >= RETRY) {
                self.open = Some(self.ask_for_client(boot).await?);
            }
            return Ok(None);
        };
        let requests: Api<CertificateSigningRequest> = Api::all(self.issuance.bootstrapper.clone());
        let found = requests.get_opt(&open.csr).await.with_context(|| format!("read CSR {}", open.csr))?;
        let status = found.and_then(|found| found.status);
        let has = |type_: &str| {
            let conditions = status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.is_some_and(|conditions| conditions.iter().any(|condition| condition.type_ == type_))
        };
        if status.is_none() || has("Denied") || has("Failed") {
            (self.open, self.refused) = (None, Some(Instant::now()));
            return Ok(None);
        }
        let Some(certificate) = status.as_ref().and_then(|status| status.certificate.clone()) else { return Ok(None) };
        let certificate = String::from_utf8(certificate.0).context("read an issued certificate")?;
        let Issuance { server, authority, .. } = &self.issuance;
        kubeconfig::client_with_certificate(server, authority, &certificate, &open.key.serialize_pem()).await.map(Some)
    }

    async fn ask_for_client(&self, boot: f64) -> Result<Open> {
        let key = KeyPair::generate().context("make a key")?;
        let request = self.request(&key, Vec::new())?;
        let usages = ["digital signature", "client auth"];
        let csr =
            self.create(&self.issuance.bootstrapper, "kubernetes.io/kube-apiserver-client-kubelet", &usages, &request);
        Ok(Open { boot, csr: csr.await?, key })
    }

    /// Asks for a serving certificate as the Node itself, and does not wait for it.
    ///
    /// # Errors
    /// When the API server refuses the request itself.
    pub async fn ask_for_serving(&self, client: &Client) -> Result<()> {
        let name = SanType::DnsName(self.node.as_str().try_into().context("a DNS name")?);
        let address = SanType::IpAddress(self.ip.parse().context("an IP address")?);
        let request = self.request(&KeyPair::generate().context("make a key")?, vec![name, address])?;
        let usages = ["digital signature", "server auth"];
        self.create(client, "kubernetes.io/kubelet-serving", &usages, &request).await.map(drop)
    }

    fn request(&self, key: &KeyPair, names: Vec<SanType>) -> Result<String> {
        request(&format!("system:node:{}", self.node), &["system:nodes"], names, key)
    }

    async fn create(&self, client: &Client, signer: &str, usages: &[&str], request: &str) -> Result<String> {
        create(client, &self.infra_id, signer, usages, request).await.with_context(|| format!("ask for {}", self.node))
    }
}

/// A PKCS #10 request, PEM.
///
/// # Errors
/// When the key cannot sign.
pub fn request(common_name: &str, organizations: &[&str], names: Vec<SanType>, key: &KeyPair) -> Result<String> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    for organization in organizations {
        params.distinguished_name.push(DnType::OrganizationName, *organization);
    }
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.subject_alt_names = names;
    Ok(params.serialize_request(key)?.pem()?)
}

/// Makes a request of a cluster's kubelet, as `client`'s user, and answers its name.
///
/// # Errors
/// When the API server refuses it.
pub async fn create(client: &Client, infra_id: &str, signer: &str, usages: &[&str], request: &str) -> Result<String> {
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let object = serde_json::from_value(json!({
        "metadata": {"generateName": "csr-", "labels": {LABEL: infra_id}},
        "spec": {"signerName": signer, "usages": usages, "request": base64(request)},
    }))?;
    let made = requests.create(&PostParams::default(), &object).await?;
    made.metadata.name.context("a name")
}
