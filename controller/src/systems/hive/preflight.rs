//! The preflight before a sleep or a wake: asks the spoke what could stand in the way, and answers in a condition.
//!
//! What is made of it is decided in `shared::hive::preflight`. A spoke that is silent and a kind that is not there are
//! findings, never errors: only the write of the answer can fail, and then the cluster is reconciled again.

use std::time::Duration;

use kube::api::ListParams;
use shared::annotation::format;
use shared::cloud::{CloudError, Inventory};
use shared::hive::api::ClusterDeployment;
use shared::hive::preflight::{self, Certificate, Part, SpokeObservation, SpokePreflight, VersionObservation};
use shared::spoke::fields::NOT_AFTER;
use shared::spoke::kinds::{CertificateRequest, ClusterVersion, PodDisruptionBudget, SecretObservation};
use tokio::time::Instant as Clock;
use tracing::info;

use super::state::TargetState;
use super::{Hive, spokes};
use crate::csr::settled;
use crate::runtime::hub::full_name;
use crate::runtime::{ReconcileError, Reconciled, clock, slot};
use crate::spoke::reader::SpokeClient;
use crate::spoke::webhooks::{kube_system, part, taken, webhooks};
use fair::{ChargeGuard, ChargedValue};

/// How long the spoke gets for all of it together.
const DEADLINE: Duration = Duration::from_secs(8);

/// Where the certificates are whose end ends more: the API server's signers, and the signer of the kubelets'
/// certificates.
const SIGNERS: [&str; 2] = ["openshift-kube-apiserver-operator", "openshift-kube-controller-manager-operator"];

/// Whether a preflight is due of this version of the object.
pub fn is_due(cluster: &ClusterDeployment, state: &TargetState) -> bool {
    preflight::due_in(cluster, state.preflight_age(), clock::now()) == Some(Duration::ZERO)
}

/// Runs the preflight and writes the answer. Returns the object if it was written.
///
/// # Errors
/// When the answer could not be written. The request still stands, so the next reconcile answers it.
pub async fn answer(
    hive: &Hive,
    cluster: &ClusterDeployment,
    machines: Option<&Result<Inventory, CloudError>>,
    state: &mut TargetState,
) -> Reconciled<Option<ClusterDeployment>> {
    // What could not be written because another client wrote first is not asked for again.
    let unwritten = state.preflight.take().filter(|(at, _)| at.elapsed() < preflight::AGAIN);
    let (started_at, unwritten) = unwritten.and_then(|(at, spoke)| Some((at, spoke?))).unzip();
    let started_at = started_at.unwrap_or_else(Clock::now);
    state.preflight = Some((started_at, None));
    let (spoke, held) = match unwritten {
        Some(unwritten) => unwritten,
        None if preflight::is_awake(cluster) => ask(hive, cluster).await,
        None => (SpokePreflight::NotAwake, Vec::new()),
    };
    let now = clock::now();
    let previous = preflight::findings(cluster).zip(preflight::found_at(cluster));
    let answer = preflight::answer(machines, &spoke, previous, now);
    let Some(patch) = preflight::patch(cluster, &answer, now) else { return Ok(None) };
    let written = hive.handle.hub.patch_status(cluster, patch).await.map_err(|error| {
        state.preflight = Some((started_at, Some((spoke, held))));
        ReconcileError::status(error)
    })?;
    info!(cluster = full_name(cluster), status = answer.status, reason = answer.reason, "preflight");
    Ok(Some(written))
}

/// Connects to the spoke with its administrator kubeconfig, and reads what the preflight needs.
async fn ask(hive: &Hive, cluster: &ClusterDeployment) -> (SpokePreflight, Vec<ChargeGuard>) {
    match spokes::client(&hive.handle.hub, &hive.network, cluster).await {
        Ok((client, _)) => observation(&client).await,
        Err(error) => (SpokePreflight::NotAsked(error.to_string()), Vec::new()),
    }
}

/// Asks the spoke, and what its answers are charged: one question first, so that a silent spoke costs one connection,
/// then the others all at once. Each part that cannot be read says so by itself.
pub async fn observation(client: &SpokeClient) -> (SpokePreflight, Vec<ChargeGuard>) {
    let parts = async {
        let version = version(client).await;
        let parts = tokio::join!(
            certificates(client),
            pending_requests(client),
            webhooks(client),
            kube_system(client),
            budgets(client)
        );
        (version, parts)
    };
    let Ok((version, parts)) = slot::outside(tokio::time::timeout(DEADLINE, Box::pin(parts))).await else {
        let why = format!("the cluster's API server gives no answer within {DEADLINE:?}");
        return (SpokePreflight::NotAsked(why), Vec::new());
    };
    let (certificates, pending_requests, [validating, mutating], (kube_system, labels), budgets) = parts;
    let mut held: Vec<ChargeGuard> = labels.into_iter().collect();
    let webhooks = taken(validating, &mut held).and_then(|mut all| {
        all.get_or_insert_default().extend(taken(mutating, &mut held)?.unwrap_or_default());
        Ok(all)
    });
    let certificates = all_of(certificates.map(|part| taken(part, &mut held)));
    let budgets = taken(budgets, &mut held);
    let observation = SpokeObservation { version, certificates, pending_requests, webhooks, kube_system, budgets };
    (SpokePreflight::Looked(Box::new(observation)), held)
}

/// The certificates of all namespaces, if there are any.
fn all_of(parts: [Part<Vec<Certificate>>; 2]) -> Part<Vec<Certificate>> {
    let mut all = Vec::new();
    for part in parts {
        all.extend(part?.unwrap_or_default());
    }
    Ok(Some(all).filter(|all| !all.is_empty()))
}

async fn version(client: &SpokeClient) -> Part<VersionObservation> {
    let found = part(client.get::<ClusterVersion>("version").await)?;
    Ok(found.map(|version| version_observation(&version)))
}

fn version_observation(ClusterVersion { status, .. }: &ClusterVersion) -> VersionObservation {
    // The newest comes first.
    let from = status.history.iter().find(|update| update.state.as_deref() == Some("Completed"));
    VersionObservation {
        progressing: status.progressing().is_some(),
        from: from.map(|update| update.version.clone().unwrap_or_default()),
        to: status.desired.version.clone(),
    }
}

/// Only the metadata of Secrets is read, never what is in them.
async fn certificates(client: &SpokeClient) -> [Part<ChargedValue<Vec<Certificate>>>; 2] {
    let of = |namespace: &'static str| async move {
        let secrets = part(client.list::<SecretObservation>(Some(namespace), &ListParams::default(), "Secrets").await)?;
        let certificate = |SecretObservation { metadata }: SecretObservation| {
            let not_after = format::time(metadata.annotations.get(NOT_AFTER)?)?;
            Some(Certificate { name: format!("{namespace}/{}", metadata.name), not_after })
        };
        Ok(secrets.map(|secrets| secrets.map(|all| all.into_iter().filter_map(certificate).collect())))
    };
    let (first, second) = tokio::join!(of(SIGNERS[0]), of(SIGNERS[1]));
    [first, second]
}

async fn pending_requests(client: &SpokeClient) -> Part<usize> {
    let what = "CertificateSigningRequests";
    let requests = part(client.list::<CertificateRequest>(None, &ListParams::default(), what).await)?;
    Ok(requests.map(|requests| requests.iter().filter(|request| settled(request).is_none()).count()))
}

async fn budgets(client: &SpokeClient) -> Part<ChargedValue<Vec<String>>> {
    let what = "PodDisruptionBudgets";
    let budgets = part(client.list::<PodDisruptionBudget>(None, &ListParams::default(), what).await)?;
    // One that covers no pod allows none either, and means nothing.
    let tight = |PodDisruptionBudget { metadata, status }: PodDisruptionBudget| {
        let is_tight = status.disruptions_allowed == Some(0) && status.expected_pods > Some(0);
        is_tight.then(|| metadata.full_name())
    };
    Ok(budgets.map(|budgets| budgets.map(|all| all.into_iter().filter_map(tight).collect())))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower::BoxError;

    use super::*;
    use fair::{Consumer, MemoryLimit};

    #[tokio::test(start_paused = true)]
    async fn a_silent_spoke_costs_one_connection() {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = requests.clone();
        let silent = tower::service_fn(move |_: Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<Result<Response<Body>, BoxError>>()
        });
        let memory = MemoryLimit::default().of(Consumer::new("tenant", "spoke"));
        let (found, _) = observation(&SpokeClient::new(Client::new(silent, "default"), memory)).await;
        assert!(matches!(found, SpokePreflight::NotAsked(_)), "{found:?}");
        assert_eq!(requests.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_version_tells_where_it_comes_from_and_goes() {
        let version = json!({ "status": {
            "desired": { "version": "4.20.9" },
            "history": [
                { "version": "4.20.9", "state": "Partial" },
                { "version": "4.20.8", "state": "Completed" },
                { "version": "4.20.7", "state": "Completed" },
            ],
            "conditions": [{ "type": "Progressing", "status": "True", "lastTransitionTime": "2026-11-22T18:00:00Z" }],
        } });
        let expected = VersionObservation { progressing: true, from: Some("4.20.8".into()), to: Some("4.20.9".into()) };
        assert_eq!(version_observation(&serde_json::from_value(version).unwrap()), expected);
        assert_eq!(version_observation(&ClusterVersion::default()), VersionObservation::default());
    }

    #[test]
    fn a_request_is_pending_until_it_is_decided_about() {
        let request = |conditions: Value| {
            let spec = json!({ "request": "", "signerName": "x" });
            let object = json!({ "metadata": {}, "spec": spec, "status": { "conditions": conditions } });
            settled(&serde_json::from_value(object).unwrap()).is_none()
        };
        assert!(request(json!([])));
        for type_ in ["Approved", "Denied", "Failed"] {
            assert!(!request(json!([{ "type": type_, "status": "True" }])), "{type_}");
        }
    }
}
