//! The preflight before a sleep or a wake: asks the spoke what could stand in the way, and answers in a condition.
//!
//! What is made of it is decided in `shared::hive::preflight`. A spoke that is silent and a kind that is not there are findings,
//! never errors: only the write of the answer can fail, and then the cluster is reconciled again.

use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use shared::annotation::format;
use shared::cloud::{CloudError, Instance, Inventory, Spot};
use shared::hive::api::ClusterDeployment;
use shared::hive::decide::Served;
use shared::hive::preflight::{self, Certificate, CloudLook, Part, SpokeLook, SpokePreflight, VersionLook};
use shared::spoke::csr::Csr;
use tokio::time::Instant as Clock;
use tracing::info;

use super::state::TargetState;
use super::{Hive, HiveError, spokes};
use crate::cloud_registry::PLATFORMS;
use crate::csr::pages::{list, list_metadata};
use crate::runtime::hub::full_name;
use crate::runtime::{System, clock, slot};
use crate::spoke::webhooks::{kube_system, part, webhooks};

/// How long the spoke gets for all of it together.
const DEADLINE: Duration = Duration::from_secs(8);

/// Annotation by which OpenShift says until when the certificate in a Secret is valid: no certificate has to be read.
const NOT_AFTER: &str = "auth.openshift.io/certificate-not-after";
/// Where the certificates are whose end ends more: the API server's signers, and the signer of the kubelets' certificates.
const SIGNERS: &[&str] = &["openshift-kube-apiserver-operator", "openshift-kube-controller-manager-operator"];

/// Runs the preflight if it is due or requested, and writes the answer. Returns the object if it was written.
///
/// # Errors
/// When the answer could not be written. The request still stands, so the next reconcile answers it.
pub async fn answer(
    hive: &Hive,
    cluster: &ClusterDeployment,
    machines: Option<&Result<Inventory, CloudError>>,
    state: &mut TargetState,
) -> Result<Option<ClusterDeployment>, HiveError> {
    let served = Served::platform(cluster.spec.platform.name(), PLATFORMS) == Served::ByUs;
    // An answer that another client's write came before is not asked for again.
    let unwritten = state.preflight.as_mut().and_then(|(at, spoke)| Some((*at, spoke.take()?)));
    let unwritten = unwritten.filter(|(at, _)| at.elapsed() < preflight::AGAIN);
    if !served || unwritten.is_none() && due_in(cluster, state) != Some(Duration::ZERO) {
        return Ok(None);
    }
    let (asked_at, spoke) = if let Some(unwritten) = unwritten {
        unwritten
    } else {
        let asked_at = Clock::now();
        state.preflight = Some((asked_at, None));
        let awake = preflight::is_awake(cluster);
        (asked_at, if awake { ask(hive, cluster).await } else { SpokePreflight::NotAwake })
    };
    let cloud = machines.map(|machines| machines.as_ref().map(cloud_look).map_err(Clone::clone));
    let now = clock::now();
    let previous = preflight::found_at(cluster).map(|found| (preflight::findings(cluster), found));
    let answer = preflight::answer(cloud.as_ref(), &spoke, previous, now);
    let Some(patch) = preflight::patch(cluster, &answer, now) else { return Ok(None) };
    let written = hive.hub().patch_status(cluster, patch).await.map_err(|error| {
        state.preflight = Some((asked_at, Some(spoke)));
        HiveError::Status(error)
    })?;
    info!(cluster = full_name(cluster), status = answer.status, reason = answer.reason, "preflight");
    Ok(Some(written))
}

/// When the preflight is due: one that is asked for too soon waits.
pub fn due_in(cluster: &ClusterDeployment, state: &TargetState) -> Option<Duration> {
    let last = state.preflight.as_ref().map(|(at, _)| at.elapsed());
    preflight::due_in(cluster, last, clock::now())
}

fn cloud_look(machines: &Inventory) -> CloudLook {
    let one_time = |instance: &&Instance| instance.spot == Some(Spot::OneTime);
    CloudLook {
        selector: machines.profile.selector.clone(),
        instances: machines.instances.len(),
        spot: machines.instances.iter().filter(one_time).map(|instance| instance.id.clone()).collect(),
    }
}

/// Connects to the spoke with its administrator kubeconfig, and reads what the preflight needs.
async fn ask(hive: &Hive, cluster: &ClusterDeployment) -> SpokePreflight {
    match spokes::client(hive.hub(), cluster).await {
        Ok((client, _)) => look(&client).await,
        Err(error) => SpokePreflight::NotAsked(error.to_string()),
    }
}

/// Asks the spoke, all at once. Each part that cannot be read says so by itself.
pub async fn look(client: &Client) -> SpokePreflight {
    let parts = async {
        let (version, certificates, pending_requests, webhooks, kube_system, budgets) = tokio::join!(
            version(client),
            certificates(client),
            pending_requests(client),
            webhooks(client),
            kube_system(client),
            budgets(client)
        );
        SpokeLook { version, certificates, pending_requests, webhooks, kube_system, budgets }
    };
    match slot::outside(tokio::time::timeout(DEADLINE, Box::pin(parts))).await {
        Ok(look) => SpokePreflight::Looked(Box::new(look)),
        Err(_) => SpokePreflight::NotAsked(format!("the cluster's API server gives no answer within {DEADLINE:?}")),
    }
}

async fn version(client: &Client) -> Part<VersionLook> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("config.openshift.io", "v1", "ClusterVersion"));
    let versions: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let found = part(versions.get("version").await)?;
    Ok(found.map(|version| version_look(&version.data)))
}

fn version_look(version: &Value) -> VersionLook {
    let list = |path: &str| version.pointer(path).and_then(Value::as_array).into_iter().flatten();
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let is = |condition: &Value| text(condition, "type") == "Progressing" && text(condition, "status") == "True";
    // The newest comes first.
    let from = list("/status/history").find(|update| text(update, "state") == "Completed");
    let to = version.pointer("/status/desired/version").and_then(Value::as_str);
    VersionLook {
        progressing: list("/status/conditions").any(is),
        from: from.map(|update| text(update, "version")),
        to: to.map(str::to_owned),
    }
}

/// Only the metadata of Secrets is read, never what is in them.
async fn certificates(client: &Client) -> Part<Vec<Certificate>> {
    let mut found = Vec::new();
    for namespace in SIGNERS {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let list = part(list_metadata(&secrets, &ListParams::default(), "Secrets").await)?;
        found.extend(list.iter().flatten().filter_map(|secret| {
            let not_after = format::time(secret.annotations().get(NOT_AFTER)?)?;
            Some(Certificate { name: format!("{namespace}/{}", secret.name_any()), not_after })
        }));
    }
    Ok(Some(found).filter(|found| !found.is_empty()))
}

async fn pending_requests(client: &Client) -> Part<usize> {
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let requests = part(list(&requests, &ListParams::default(), "CertificateSigningRequests").await)?;
    Ok(requests.map(|requests| requests.iter().filter(|request| is_pending(request)).count()))
}

fn is_pending(request: &CertificateSigningRequest) -> bool {
    Csr::from(request).settled().is_none()
}

async fn budgets(client: &Client) -> Part<Vec<String>> {
    let budgets: Api<PodDisruptionBudget> = Api::all(client.clone());
    let budgets = part(list(&budgets, &ListParams::default(), "PodDisruptionBudgets").await)?;
    let tight = |budget: &&PodDisruptionBudget| {
        let status = budget.status.as_ref();
        // One that covers no pod allows none either, and means nothing.
        status.is_some_and(|status| status.disruptions_allowed == Some(0) && status.expected_pods > Some(0))
    };
    Ok(budgets.map(|budgets| budgets.iter().filter(tight).map(full_name).collect()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_version_tells_where_it_comes_from_and_goes() {
        let version = json!({ "status": {
            "desired": { "version": "4.20.9" },
            "history": [
                { "version": "4.20.9", "state": "Partial" },
                { "version": "4.20.8", "state": "Completed" },
                { "version": "4.20.7", "state": "Completed" },
            ],
            "conditions": [{ "type": "Progressing", "status": "True" }],
        } });
        let expected = VersionLook { progressing: true, from: Some("4.20.8".into()), to: Some("4.20.9".into()) };
        assert_eq!(version_look(&version), expected);
        assert_eq!(version_look(&json!({})), VersionLook::default());
    }

    #[test]
    fn a_request_is_pending_until_it_is_decided_about() {
        let request = |conditions: Value| {
            let spec = json!({ "request": "", "signerName": "x" });
            let object = json!({ "metadata": {}, "spec": spec, "status": { "conditions": conditions } });
            is_pending(&serde_json::from_value(object).unwrap())
        };
        assert!(request(json!(null)) && request(json!([])));
        for type_ in ["Approved", "Denied", "Failed"] {
            assert!(!request(json!([{ "type": type_, "status": "True" }])), "{type_}");
        }
    }
}
