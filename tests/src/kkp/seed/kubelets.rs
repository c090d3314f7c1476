//! The seed's kubelets: Pods of the control plane become Ready in the order of their dependencies, etcd serves or not,
//! and the user cluster's API server answers or not.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};

use crate::kkp::control_plane::{API_SERVER, ETCD};
use crate::kkp::etcd::Seen;
use crate::kkp::options::wait;
use crate::kkp::registry::UserCluster;
use crate::kkp::seed::{is_true, unless_gone};
use crate::kkp::{certificates, is_pod_ready, running};
use crate::supervisor::clock::Clock;

/// From a control-plane Pod whose dependencies are there to one that is Ready.
const POD_START: f64 = 1.0;
/// From the Pods of etcd to one that serves: 11 to 28 s (rows 36, 42).
const ETCD_START: f64 = 12.0;

/// One round over all Pods.
pub(super) async fn tick(cluster: &UserCluster) -> Result<()> {
    let settings = cluster.settings();
    let mut pods: Vec<_> =
        cluster.of_seed.pods.all().into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect();
    // Those that run have their room.
    pods.sort_by_key(|pod| (!is_pod_ready(pod), pod.name_any()));
    let mut placed: BTreeMap<String, usize> = BTreeMap::new();
    pods.retain(|pod| {
        let count = placed.entry(component(pod).to_owned()).or_default();
        *count += 1;
        settings.room.get(component(pod)).is_none_or(|room| *count <= *room)
    });
    run_etcd(cluster, &pods.iter().map(AsRef::as_ref).collect::<Vec<_>>());
    let (serves, members) = {
        let state = cluster.state();
        (state.etcd.serves(), state.etcd.ready.clone())
    };
    let api: Api<Pod> = Api::namespaced(cluster.seed.clone(), &cluster.info.namespace);
    // etcd -> API server -> the rest.
    let api_runs = serves && pods.iter().any(|pod| component(pod) == API_SERVER && is_pod_ready(pod));
    cluster.gate.set_open(api_runs && !settings.api_silent);
    for pod in &pods {
        let may = match component(pod) {
            ETCD => ordinal(pod).is_some_and(|ordinal| members.contains(&ordinal)),
            API_SERVER => serves,
            "prometheus" | "kube-state-metrics" => true,
            _ => api_runs,
        };
        // etcd has its own start.
        let old_enough = component(pod) == ETCD || age(pod) >= wait(POD_START);
        let ready = may && old_enough;
        if is_pod_ready(pod) != ready {
            let patch = Patch::Strategic(running(pod, ready));
            unless_gone(api.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await)?;
        }
    }
    Ok(())
}

fn run_etcd(cluster: &UserCluster, pods: &[&Pod]) {
    let claims: BTreeMap<String, String> = cluster
        .of_seed
        .claims
        .all()
        .iter()
        .filter_map(|claim| Some((claim.name_any(), claim.metadata.uid.clone()?)))
        .collect();
    let volume = |pod: &&&Pod| Some((ordinal(pod)?, claims.get(&format!("data-{}", pod.name_any()))?.clone()));
    let replicas = cluster.of_seed.stateful_sets.named(ETCD).and_then(|set| set.spec.as_ref()?.replicas);
    let secret = cluster.of_seed.secrets.named(certificates::ETCD);
    let left = secret.and_then(|secret| certificates::days_left(&secret, certificates::SECRETS[0].1));
    let initialized = cluster.cluster().is_some_and(|object| is_true(&object, "EtcdClusterInitialized"));
    let mut state = cluster.state();
    let seen = Seen {
        now: Clock::now(),
        replicas: replicas.and_then(|count| u32::try_from(count).ok()).unwrap_or_default(),
        pods: pods.iter().filter(|pod| component(pod) == ETCD).filter_map(|pod| volume(&pod)).collect(),
        initialized,
        certificates_valid: left.is_some_and(|days| days >= 0),
        start: wait(ETCD_START),
    };
    state.etcd.go_on(&seen);
}

fn component(pod: &Pod) -> &str {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get("app")).map_or("", String::as_str)
}

fn ordinal(pod: &Pod) -> Option<u32> {
    pod.metadata.name.as_deref()?.rsplit('-').next()?.parse().ok()
}

/// In seconds. Creation times have whole ones, so that a Pod may be a second younger.
pub(crate) fn age(pod: &Pod) -> f64 {
    let created = pod.metadata.creation_timestamp.as_ref().map_or(0.0, |time| time.0.as_duration().as_secs_f64());
    Clock::now() - created
}
