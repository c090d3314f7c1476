//! The kubeconfigs of a user cluster, in Secrets on the seed.
//!
//! KKP's hold client certificates. Here the certificate is there for its expiry, and a token of the user cluster does
//! the work: it is bound to a Secret, and void once that is gone. So a kubeconfig from before a renewal really stops
//! working when its certificate has expired.

use anyhow::{Context as _, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::ensure::put_secret;
use super::unless_gone;
use crate::apply;
use crate::kkp::registry::UserCluster;
use crate::kkp::{KUBECONFIG, certificates};
use crate::kubeconfig::{base64, document};

const ACCOUNT: &str = "internal-admin";
const LABEL: &str = "testbed.hibernate.sh/kubeconfig";

fn account() -> Vec<serde_json::Value> {
    let subject = json!({ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": "kube-system" });
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" });
    vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": ACCOUNT, "namespace": "kube-system" } }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": ACCOUNT },
            "roleRef": role, "subjects": [subject],
        }),
    ]
}

/// Writes kubeconfigs that are valid for so many days.
pub(crate) async fn renew(cluster: &UserCluster, days: i64) -> Result<()> {
    apply::all(&cluster.user, &account()).await?;
    let number = {
        let mut state = cluster.state();
        state.certificates.kubeconfigs += 1;
        state.certificates.kubeconfigs
    };
    let secrets: Api<Secret> = Api::namespaced(cluster.user.clone(), "kube-system");
    let name = format!("{ACCOUNT}-{number}");
    let bound = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": "kube-system", "labels": { LABEL: ACCOUNT } } });
    let bound = secrets.create(&PostParams::default(), &serde_json::from_value(bound)?).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.user.clone(), "kube-system");
    let object = json!({ "kind": "Secret", "apiVersion": "v1", "name": name, "uid": bound.metadata.uid });
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": { "audiences": [], "expirationSeconds": 30 * 24 * 3600, "boundObjectRef": object },
    });
    let answer: TokenRequest = accounts.create_subresource("token", ACCOUNT, &PostParams::default(), &request).await?;
    let token = answer.status.and_then(|status| status.token).context("no token")?;
    let identity = cluster.state().certificates.issue(ACCOUNT, days)?;
    let user = json!({
        "token": token,
        "client-certificate-data": base64(&identity.certificate), "client-key-data": base64(&identity.key),
    });
    let server = cluster.gate.url().replace("127.0.0.1", &cluster.settings().host);
    let text = document((&cluster.info.id, &server, &cluster.authority), ("default", &user), "default")?;
    for secret in [KUBECONFIG.0, "admin-kubeconfig"] {
        let data = [(KUBECONFIG.1.to_owned(), ByteString(text.clone().into_bytes()))];
        put_secret(cluster, secret, data.into()).await?;
    }
    cluster.state().certificates.kubeconfig_until = Some(certificates::in_days(days));
    Ok(())
}

/// Voids every token of a kubeconfig that was given out so far.
pub(crate) async fn void(cluster: &UserCluster) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(cluster.user.clone(), "kube-system");
    for secret in secrets.list(&ListParams::default().labels(&format!("{LABEL}={ACCOUNT}"))).await? {
        unless_gone(secrets.delete(&secret.name_any(), &DeleteParams::default()).await)?;
    }
    Ok(())
}
