//! The user cluster's own API server, reached by the kubeconfig that KKP keeps for itself in the cluster's namespace.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::ListParams;
use shared::annotation::format;
use shared::hive::preflight::WebhookObservation;
use shared::kkp::api::Cluster;
use shared::kkp::decide::preflight::{UserCluster, WRITTEN_BY_A_WAKE};
use shared::kkp::decide::{MachineDeployment, Machinery, Quota};
use shared::spoke::SpokeError;
use shared::spoke::fields::TOKEN_OF;
use shared::spoke::kinds::{
    self, BootstrapToken, Event, Job, KkpMachine, Lease, MachineSet, NODE_LEASES, Node, PersistentVolume, Service,
    VolumeAttachment,
};
use shared::text::sanitize;

use super::machinery::{Connected, Machines, Seen, bare, count, lost_pods, nodes, pods};
use super::{Kkp, TargetState};
use crate::runtime::{System, clock, slot};
use crate::spoke::reader::SpokeClient;
use crate::spoke::webhooks::{kube_system, webhooks};
use crate::spoke::{self, Route, failure, kubeconfig};
use fair::{ChargeGuard, Consumer};

/// The Secret with the kubeconfig.
const KUBECONFIG: &str = "internal-admin-kubeconfig";
/// How long a user cluster gets to answer all that is asked of it.
const DEADLINE: Duration = Duration::from_secs(30);
/// Namespace of bootstrap tokens.
const KUBE_SYSTEM: &str = "kube-system";
/// For how long a bootstrap token must be valid. OSM makes one for 15 minutes, and renews it for an hour when the
/// `MachineDeployment` changes, as it does with its count.
const TOKEN_VALID: SignedDuration = SignedDuration::from_mins(5);
/// Webhooks and sets of Machines that are named.
const MOST_NAMED: usize = 100;

/// The client of a user cluster, and the version of the Secret that it was made of.
pub struct Cached {
    version: Option<String>,
    client: SpokeClient,
}

/// What is to be read, besides machines and Nodes.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Everything that only the preflight reads.
    pub preflight: bool,
    /// Pods and what is attached to Nodes.
    pub pods: bool,
    /// Refusals of Machines since then.
    pub refused_since: Option<Timestamp>,
}

/// Asks the user cluster. It is a tenant's: whatever it answers, the reconcile goes on.
pub async fn ask(kkp: &Kkp, cluster: &Cluster, state: &mut TargetState, part: &Part) -> Seen {
    let client = client(kkp, cluster, state).await.map_err(|error| error.to_string())?;
    let answer = slot::outside(tokio::time::timeout(DEADLINE, Box::pin(read(&client, part)))).await;
    let answer = answer.map_err(|_| format!("the cluster's API server gives no answer within {DEADLINE:?}"))?;
    let (machinery, preflight, held) = answer.map_err(|error| failure(&error).to_string())?;
    Ok(Box::new(Connected { machinery, preflight, client, held }))
}

/// The client. The Secret is read each time: KKP renews the certificate in it when a pause ends (row 15).
async fn client(kkp: &Kkp, cluster: &Cluster, state: &mut TargetState) -> Result<SpokeClient, SpokeError> {
    let namespace = cluster.control_plane_namespace();
    let (kubeconfig, version) = kubeconfig::read_secret(&kkp.handle.hub.client, &namespace, KUBECONFIG).await?;
    if let Some(cached) = state.user.as_ref().filter(|cached| cached.version == version && version.is_some()) {
        return Ok(cached.client.clone());
    }
    let consumer = Consumer::new(&kkp.tenant(cluster), cluster.name_any());
    let client = spoke::client(&kkp.network, consumer, &kubeconfig, &Route::default()).await;
    let client = client.map_err(|error| SpokeError::Kubeconfig(format!("Secret {namespace}/{KUBECONFIG}: {error}")))?;
    state.user = Some(Cached { version, client: client.clone() });
    Ok(client)
}

/// What it holds, and what the answers are charged as long as anything of them is in use.
async fn read(client: &SpokeClient, part: &Part) -> kube::Result<(Machinery, Option<UserCluster>, Vec<ChargeGuard>)> {
    let all = ListParams::default();
    // Alone: a silent cluster costs one connection.
    let found_nodes = client.list::<Node>(None, &all, "Nodes").await?;
    let machines = async {
        let deployments = client.list::<kinds::MachineDeployment>(None, &all, "MachineDeployments");
        let (deployments, machines) = tokio::try_join!(deployments, client.list::<KkpMachine>(None, &all, "Machines"))?;
        // Only the preflight asks whose Machines they are.
        let sets =
            if part.preflight { Some(client.list::<MachineSet>(None, &all, "MachineSets").await?) } else { None };
        kube::Result::Ok(Machines { deployments, sets, all: machines })
    };
    // A wake reads none of these: a cluster with more of them than any answer may have must wake, too.
    let of_drain = async {
        if !part.pods {
            return Ok(None);
        }
        let found = tokio::try_join!(
            client.list::<kinds::Pod>(None, &all, "Pods"),
            client.list::<VolumeAttachment>(None, &all, "VolumeAttachments"),
            client.list::<Lease>(Some(NODE_LEASES), &all, "Leases"),
        );
        found.map(Some)
    };
    let (machines, of_drain) = tokio::try_join!(machines, of_drain)?;
    let (found_pods, attachments, leases) = match &of_drain {
        Some((pods, attachments, leases)) => (pods.as_slice(), attachments.as_slice(), leases.as_slice()),
        None => (&[][..], &[][..], &[][..]),
    };
    let (found_nodes, mut held) = (nodes(&found_nodes, &machines, leases, clock::now()), vec![found_nodes.guard()]);
    let preflight = if part.preflight {
        let user = UserCluster { bare_pods: bare(found_pods), ..machines.for_preflight(&found_nodes) };
        Some(of_kinds(client, user, &mut held).await?)
    } else {
        None
    };
    let deployments = machines.deployments();
    let wanted: u64 = deployments.iter().map(|one| u64::from(one.replicas)).sum();
    let refused_since = part.refused_since.filter(|_| wanted > machines.all.len() as u64);
    let machinery = Machinery {
        deployments,
        machines: machines.names(),
        pods: pods(found_pods, &found_nodes),
        lost_pods: lost_pods(found_pods, &found_nodes),
        nodes: found_nodes,
        attachments: attachments.iter().map(|one| one.metadata.name.clone()).collect(),
        unready: None,
        quota: match refused_since {
            Some(since) => quota(client, since).await,
            None => None,
        },
    };
    held.extend([machines.deployments.guard(), machines.all.guard()]);
    if let Some((pods, attachments, _)) = &of_drain {
        held.extend([pods.guard(), attachments.guard()]);
    }
    Ok((machinery, preflight, held))
}

/// What only the preflight reads.
async fn of_kinds(client: &SpokeClient, user: UserCluster, held: &mut Vec<ChargeGuard>) -> kube::Result<UserCluster> {
    let all = ListParams::default();
    let (services, volumes, jobs, webhooks) = tokio::join!(
        client.list::<Service>(None, &all, "Services"),
        client.list::<PersistentVolume>(None, &all, "PersistentVolumes"),
        client.list::<Job>(None, &all, "Jobs"),
        webhooks_in_the_way(client),
    );
    let (services, volumes, jobs) = (services?, volumes?, jobs?);
    let (webhooks_on_wake, webhooks_on_drain) = webhooks?;
    held.extend([services.guard(), jobs.guard(), volumes.guard()]);
    let is_balancer = |service: &&Service| service.spec.type_.as_deref() == Some("LoadBalancer");
    let is_under_way = |job: &&Job| !job.status.is_done;
    Ok(UserCluster {
        unfinished_jobs: jobs.iter().filter(is_under_way).map(|one| one.metadata.full_name()).collect(),
        load_balancers: services.iter().filter(is_balancer).map(|one| one.metadata.full_name()).collect(),
        volumes: count(volumes.iter().filter(|one| !is_local(one)).count()),
        local_volumes: volumes.iter().filter(|one| is_local(one)).filter_map(claim_of).collect(),
        webhooks_on_wake,
        webhooks_on_drain,
        ..user
    })
}

/// Whether a volume goes with its Node.
fn is_local(PersistentVolume { spec, .. }: &PersistentVolume) -> bool {
    spec.host_path.is_some() || spec.local.is_some() || spec.names_nodes
}

fn claim_of(PersistentVolume { spec, .. }: &PersistentVolume) -> Option<String> {
    Some(format!("{}/{}", spec.claim_ref.namespace.as_deref()?, spec.claim_ref.name.as_deref()?))
}

/// Webhooks that a wake has to call before their Pods run, and those that a drain has to call while it ends their Pods,
/// and for what.
async fn webhooks_in_the_way(client: &SpokeClient) -> kube::Result<(Vec<String>, Vec<String>)> {
    let (webhooks, (labels, _held)) = tokio::join!(webhooks(client), kube_system(client));
    let named = |one: &WebhookObservation, resource: &str| format!("{} ({resource})", sanitize(&one.name));
    let (mut on_wake, mut on_drain) = (Vec::new(), Vec::new());
    for kind in webhooks {
        let kind = kind.map_err(|why| kube::Error::Service(why.into()))?;
        for one in kind.iter().flat_map(|found| found.iter()) {
            on_wake.extend(one.holds_up(&labels, WRITTEN_BY_A_WAKE).map(|resource| named(one, resource)));
            on_drain.extend(one.holds_up_drain().then(|| named(one, "pods")));
        }
    }
    on_wake.truncate(MOST_NAMED);
    on_drain.truncate(MOST_NAMED);
    Ok((on_wake, on_drain))
}

/// Why Machines are not created: the `MachineDeployment` does not say, only Events of its `MachineSet` do (row 62).
async fn quota(client: &SpokeClient, since: Timestamp) -> Option<Quota> {
    let params = ListParams::default().fields("involvedObject.kind=MachineSet,reason=ReconcileError");
    quota_of(&client.list::<Event>(None, &params, "Events").await.ok()?, since)
}

/// The newest refusal of this wake, and every set that was refused.
fn quota_of(events: &[Event], since: Timestamp) -> Option<Quota> {
    let is_new = |event: &&Event| event.last_timestamp.is_none_or(|at| at >= since);
    let is_quota = |event: &&Event| event.message.as_deref().is_some_and(|text| text.contains("quota"));
    let refused: Vec<&Event> = events.iter().filter(is_new).filter(is_quota).collect();
    let newest = refused.iter().max_by_key(|event| event.last_timestamp)?;
    let why = sanitize(newest.message.as_deref()?);
    let set = |event: &&Event| {
        let object = &event.involved_object;
        Some(format!("{}/{}", object.namespace.as_deref()?, object.name.as_deref()?))
    };
    let mut sets: Vec<String> = refused.iter().filter_map(set).collect();
    sets.sort();
    sets.dedup();
    sets.truncate(MOST_NAMED);
    Some(Quota { why, sets })
}

/// What the bootstrap of the `MachineDeployments` lacks whose counts are to be restored.
pub async fn missing_tokens(user: &Connected) -> Option<String> {
    let is_raised = |one: &&MachineDeployment| one.replicas == 0 && one.copy.is_some_and(|count| count > 0);
    let raised: Vec<MachineDeployment> = user.machinery.deployments.iter().filter(is_raised).cloned().collect();
    if raised.is_empty() {
        return None;
    }
    match slot::outside(tokio::time::timeout(DEADLINE, tokens(&user.client, &raised))).await {
        Ok(Ok(missing)) => missing,
        Ok(Err(error)) => Some(failure(&error).to_string()),
        Err(_) => Some("the cluster's API server does not list bootstrap tokens".to_owned()),
    }
}

/// What the bootstrap of new Nodes lacks: OSM makes a token for each `MachineDeployment`, and renews it when it
/// reconciles (row 53).
async fn tokens(client: &SpokeClient, deployments: &[MachineDeployment]) -> kube::Result<Option<String>> {
    let params = ListParams::default().fields("type=bootstrap.kubernetes.io/token").labels(TOKEN_OF);
    let tokens = client.list::<BootstrapToken>(Some(KUBE_SYSTEM), &params, "bootstrap tokens").await?;
    Ok(missing_token(&tokens, deployments, clock::now()))
}

fn missing_token(tokens: &[BootstrapToken], deployments: &[MachineDeployment], now: Timestamp) -> Option<String> {
    let is_valid = |token: &&BootstrapToken| {
        let expiration = token.data.expiration.as_ref();
        let expiration = expiration.and_then(|value| format::time(str::from_utf8(&value.0).ok()?));
        expiration.is_some_and(|at| at.duration_since(now) > TOKEN_VALID)
    };
    let valid: Vec<&str> =
        tokens.iter().filter(is_valid).filter_map(|token| token.metadata.labels.get(TOKEN_OF)).collect();
    let has_token = |deployment: &&MachineDeployment| {
        let (namespace, name) = deployment.name.split_once('/').unwrap_or(("", &deployment.name));
        // The name alone if both are too long for a label.
        valid.contains(&format!("{namespace}-{name}").as_str()) || valid.contains(&name)
    };
    let missing = deployments.iter().find(|deployment| !has_token(deployment))?;
    Some(format!("waiting for operating-system-manager to renew the bootstrap token of {}", sanitize(&missing.name)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(spec: &Value) -> PersistentVolume {
        serde_json::from_value(json!({ "metadata": { "name": "pv" }, "spec": spec })).unwrap()
    }

    #[test]
    fn a_volume_on_the_disk_of_a_node_is_local_whatever_driver_made_it() {
        let affine =
            |terms: &[Value]| json!({ "csi": {}, "nodeAffinity": { "required": { "nodeSelectorTerms": terms } } });
        let term = |key: &str, operator: &str| json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": ["a"] }] });
        let field = json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["a"] }] });
        let (host, zone) = (term("kubernetes.io/hostname", "In"), term("topology.kubernetes.io/zone", "In"));
        for (spec, local) in [
            (json!({ "hostPath": { "path": "/data" } }), true),
            (json!({ "local": { "path": "/dev/sdb" } }), true),
            (affine(std::slice::from_ref(&host)), true),
            (affine(&[host.clone(), term("topology.topolvm.io/node", "In")]), true),
            (affine(&[field]), true),
            (affine(std::slice::from_ref(&zone)), false),
            (affine(&[host, zone]), false),
            (affine(&[term("kubernetes.io/hostname", "NotIn")]), false),
            (affine(&[]), false),
            (json!({ "csi": { "driver": "ebs.csi.aws.com" }, "nodeAffinity": null }), false),
            (json!({ "nfs": {} }), false),
        ] {
            assert_eq!(is_local(&volume(&spec)), local, "{spec}");
        }
    }

    #[test]
    fn local_volumes_are_named_by_their_claims() {
        let of = |claim: &Value| claim_of(&volume(&json!({ "hostPath": {}, "claimRef": claim })));
        assert_eq!(of(&json!({ "namespace": "shop", "name": "data-db-0" })), Some("shop/data-db-0".to_owned()));
        assert_eq!(of(&json!({})), None);
    }
}
