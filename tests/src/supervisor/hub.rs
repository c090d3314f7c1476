//! What is installed on the hub: definitions, our manifests, users, and kubeconfigs of our service accounts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::controlplane::server::{Cluster, User};
use crate::kubeconfig::Access;
use crate::options::Program;
use crate::{apply, foreign};

/// The hub's users with static tokens. The first is the administrator.
pub(super) fn users() -> Vec<User> {
    vec![
        User::new("admin", "system:masters"),
        User::new("alice", "editors"),
        User::new("bob", "guests"),
        // Hive's own controllers, which the webhook never denies.
        User::new("system:serviceaccount:hive:hive-controllers", "system:serviceaccounts:hive"),
        // The FoundationDB operator, which is a double.
        User::new("system:serviceaccount:fdb:fdb-kubernetes-operator-controller-manager", "system:serviceaccounts:fdb"),
    ]
}

/// Definitions of foreign kinds: our own, or the files of a folder where it has them.
///
/// # Errors
/// When a file cannot be read.
pub(super) fn definitions(upstream: Option<&Path>) -> Result<Vec<Value>> {
    preferred(foreign::definitions(), upstream)
}

/// These definitions, or the files of a folder where it has them.
///
/// # Errors
/// When a file cannot be read.
pub(super) fn preferred(ours: Vec<Value>, upstream: Option<&Path>) -> Result<Vec<Value>> {
    let Some(folder) = upstream else { return Ok(ours) };
    let wanted: BTreeSet<String> =
        ours.iter().filter_map(|crd| crd["metadata"]["name"].as_str().map(str::to_owned)).collect();
    let mut found: BTreeMap<String, Value> = BTreeMap::new();
    read_folder(folder, &mut |definition| {
        if let Some(name) = definition["metadata"]["name"].as_str().filter(|name| wanted.contains(*name)) {
            found.insert(name.to_owned(), definition.clone());
        }
    })?;
    tracing::info!(found = ?found.keys().collect::<Vec<_>>(), "definitions from {}", folder.display());
    Ok(ours
        .into_iter()
        .map(|own| own["metadata"]["name"].as_str().and_then(|name| found.remove(name)).unwrap_or(own))
        .collect())
}

fn read_folder(folder: &Path, take: &mut impl FnMut(&Value)) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("read folder {}", folder.display()))? {
        let path = entry.with_context(|| format!("read folder {}", folder.display()))?.path();
        if path.is_dir() {
            read_folder(&path, take)?;
        } else if path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
            let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            for document in text.split("\n---").filter(|document| document.contains("CustomResourceDefinition")) {
                let value: Value = serde_saphyr::from_str(document.trim_start_matches("---"))
                    .with_context(|| format!("read {}", path.display()))?;
                take(&value);
            }
        }
    }
    Ok(())
}

/// Everything but the webhook configurations: definitions of foreign kinds, our manifests, rights of the test users.
///
/// # Errors
/// When a definition cannot be read.
pub(super) fn objects(upstream: Option<&Path>) -> Result<Vec<Value>> {
    Ok([definitions(upstream)?, manifests::base(), manifests::fdb(), people()].concat())
}

/// Registers the webhook by URL. Its certificate task fills in the caBundle.
///
/// # Errors
/// When the hub refuses the configurations.
pub(super) async fn register_webhook(client: &Client, url: &str) -> Result<()> {
    let configurations = manifests::webhook_configurations(url);
    apply::all(client, &configurations).await.context("register the webhook")
}

/// Rights of `alice`: what a cluster administrator's delegate has. `bob` has none.
fn people() -> Vec<Value> {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
    let role = |name: &str, rules: &[Value]| json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    let bind = |name: &str, role: &str, kind: &str, subject: &str| {
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": RBAC, "kind": kind, "name": subject}],
        })
    };
    let (read, edit) = (["get", "list", "watch"], ["get", "list", "watch", "create", "update", "patch", "delete"]);
    let editor = [
        rule(&["hive.openshift.io"], &["clusterdeployments"], &edit),
        rule(&["apps"], &["deployments", "statefulsets", "deployments/scale", "statefulsets/scale"], &edit),
        rule(&["cluster.x-k8s.io", "cluster.k8s.io"], &["machinedeployments", "machinedeployments/scale"], &edit),
        rule(&["autoscaling"], &["horizontalpodautoscalers"], &read),
        rule(&["", "events.k8s.io"], &["events", "namespaces"], &read),
    ];
    let operator = [
        rule(&["apps.foundationdb.org"], &["foundationdbclusters", "foundationdbclusters/status"], &edit),
        rule(&[""], &["pods", "persistentvolumeclaims", "services", "configmaps"], &edit),
    ];
    vec![
        role("testbed-editor", &editor),
        bind("testbed-editor", "testbed-editor", "User", "alice"),
        bind("testbed-hive", "testbed-editor", "Group", "system:serviceaccounts:hive"),
        role("testbed-fdb-operator", &operator),
        bind("testbed-fdb-operator", "testbed-fdb-operator", "Group", "system:serviceaccounts:fdb"),
    ]
}

/// Writes a kubeconfig for each user and, twice each, for our programs' service accounts: straight, and through the
/// proxy.
///
/// # Errors
/// When a token is refused or a file cannot be written.
pub(super) async fn kubeconfigs(
    hub: &Cluster,
    client: &Client,
    authority: &str,
    proxy: &str,
    users: &[User],
    dir: &Path,
) -> Result<BTreeMap<String, PathBuf>> {
    let mut written = BTreeMap::new();
    let mut write = |name: &str, user: &str, token: &str, server: &str| -> Result<()> {
        let path = dir.join(format!("{name}.kubeconfig"));
        Access { cluster: "hub", server, authority, user, token, namespace: "demo" }.write(&path)?;
        written.insert(name.to_owned(), path);
        Ok(())
    };
    for user in users {
        let short = user.name.rsplit(':').next().unwrap_or(user.name);
        write(short, user.name, &user.token, &hub.url)?;
    }
    write("admin-through-proxy", "admin", &hub.admin_token, proxy)?;
    for program in [Program::Controller, Program::Webhook] {
        let account = program.executable();
        let token = service_account_token(client, shared::annotation::keys::NAMESPACE, account).await?;
        write(account, account, &token, &hub.url)?;
        write(&format!("{account}-through-proxy"), account, &token, proxy)?;
    }
    Ok(written)
}

/// A token of a service account, good for a month.
///
/// # Errors
/// When there is no such account.
pub(super) async fn service_account_token(client: &Client, namespace: &str, account: &str) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [], "expirationSeconds": 30 * 24 * 3600},
    });
    let answer: TokenRequest = accounts
        .create_subresource("token", account, &PostParams::default(), &request)
        .await
        .with_context(|| format!("get a token for service account {account}"))?;
    answer.status.and_then(|status| status.token).with_context(|| format!("no token for service account {account}"))
}
