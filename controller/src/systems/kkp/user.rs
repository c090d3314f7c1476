//! The user cluster's own API server, reached by the kubeconfig that KKP keeps for itself in the cluster's namespace.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, Pod, Secret, Service};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use shared::annotation::format;
use shared::hive::preflight::WebhookLook;
use shared::kkp::api::Cluster;
use shared::kkp::decide::{MachineDeployment, Machinery, Quota};
use shared::kkp::preflight::{self, UserCluster, WRITTEN_BY_A_WAKE};
use shared::spoke::SpokeError;
use shared::text::sanitize;

use super::machinery::{Asked, Machines, Seen, bare, lost_pods, nodes, pods};
use super::{Kkp, TargetState};
use crate::csr::pages::{list, list_metadata};
use crate::runtime::{System, clock, slot};
use crate::spoke::webhooks::{kube_system, webhooks};
use crate::spoke::{self, Route, failure};

/// The Secret with the kubeconfig, and its key.
const KUBECONFIG: (&str, &str) = ("internal-admin-kubeconfig", "kubeconfig");
/// How long a user cluster gets to answer all that is asked of it.
const DEADLINE: Duration = Duration::from_secs(30);
/// Namespace of bootstrap tokens.
const KUBE_SYSTEM: &str = "kube-system";
/// Label of a bootstrap token with the namespace and the name of its `MachineDeployment`.
const TOKEN_OF: &str = "machinedeployment.k8s.io/name";
/// For how long a bootstrap token must be valid. OSM makes one for 15 minutes, and renews it for an hour when the `MachineDeployment`
/// changes, as it does with its count.
const TOKEN_VALID: SignedDuration = SignedDuration::from_mins(5);
/// Namespace of the kubelets' Leases.
const LEASES: &str = "kube-node-lease";

/// The client of a user cluster, and the version of the Secret that it was made of.
pub struct Cached {
    version: Option<String>,
    client: Client,
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
    let client = match client(kkp, cluster, state).await {
        Ok(client) => client,
        Err(error) => return error.into(),
    };
    match slot::outside(tokio::time::timeout(DEADLINE, Box::pin(read(&client, part)))).await {
        Ok(Ok((machinery, preflight))) => Seen::Asked(Box::new(Asked { machinery, preflight, client })),
        Ok(Err(error)) => failure(&error).into(),
        Err(_) => Seen::Silent(format!("the cluster's API server gives no answer within {DEADLINE:?}")),
    }
}

/// The client. The Secret is read each time: KKP renews the certificate in it when a pause ends (row 15).
async fn client(kkp: &Kkp, cluster: &Cluster, state: &mut TargetState) -> Result<Client, SpokeError> {
    let (name, key) = KUBECONFIG;
    let namespace = cluster.control_plane_namespace();
    let about = |why: String| format!("Secret {namespace}/{name}: {why}");
    let secrets: Api<Secret> = Api::namespaced(kkp.hub().client.clone(), &namespace);
    let secret =
        secrets.get_opt(name).await.map_err(|error| SpokeError::Failed(about(format!("cannot be read: {error}"))))?;
    let secret = secret.ok_or_else(|| SpokeError::Kubeconfig(about("does not exist".to_owned())))?;
    let version = secret.resource_version();
    if let Some(cached) = state.user.as_ref().filter(|cached| cached.version == version && version.is_some()) {
        return Ok(cached.client.clone());
    }
    let data = secret.data.and_then(|mut data| data.remove(key));
    let ByteString(kubeconfig) = data.ok_or_else(|| SpokeError::Kubeconfig(about(format!("has no key {key}"))))?;
    let client = spoke::client(&kkp.hub().network, &kubeconfig, &Route::default()).await;
    let client = client.map_err(|error| SpokeError::Kubeconfig(about(error.to_string())))?;
    state.user = Some(Cached { version, client: client.clone() });
    Ok(client)
}

/// A kind of machine-controller.
pub fn machine_kind(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.k8s.io", "v1alpha1", kind))
}

async fn read(client: &Client, part: &Part) -> kube::Result<(Machinery, Option<UserCluster>)> {
    let all = ListParams::default();
    let kind = |name: &str| Api::<DynamicObject>::all_with(client.clone(), &machine_kind(name));
    let (deployments, sets, machines) = (kind("MachineDeployment"), kind("MachineSet"), kind("Machine"));
    let (node_api, pod_api) = (Api::<Node>::all(client.clone()), Api::<Pod>::all(client.clone()));
    let attachments = Api::<VolumeAttachment>::all(client.clone());
    let leases = Api::<Lease>::namespaced(client.clone(), LEASES);
    let machines = async {
        let (deployments, machines) =
            (list(&deployments, &all, "MachineDeployments"), list(&machines, &all, "Machines"));
        let (deployments, machines) = tokio::try_join!(deployments, machines)?;
        // Only the preflight asks whose Machines they are.
        let sets = if part.preflight { list(&sets, &all, "MachineSets").await? } else { Vec::new() };
        kube::Result::Ok(Machines { deployments, sets, all: machines })
    };
    // A wake reads none of these: a cluster with more of them than any answer may have must wake, too.
    let of_drain = async {
        if !part.pods {
            return Ok((Vec::new(), Vec::new(), Vec::new()));
        }
        tokio::try_join!(
            list(&pod_api, &all, "Pods"),
            list_metadata(&attachments, &all, "VolumeAttachments"),
            list(&leases, &all, "Leases"),
        )
    };
    let (machines, found_nodes, (found_pods, attachments, leases)) =
        tokio::try_join!(machines, list(&node_api, &all, "Nodes"), of_drain)?;
    let found_nodes = nodes(&found_nodes, &machines, &leases, clock::now());
    let preflight = if part.preflight {
        let nodes =
            found_nodes.iter().map(|one| preflight::Node { name: one.name.clone(), has_machine: one.has_machine });
        let user = UserCluster {
            nodes: nodes.collect(),
            machines: machines.for_preflight(),
            bare_pods: bare(&found_pods),
            ..of_kinds(client).await?
        };
        Some(user)
    } else {
        None
    };
    let wanted: u64 = machines.deployments().iter().map(|one| u64::from(one.replicas)).sum();
    let refused_since = part.refused_since.filter(|_| wanted > machines.all.len() as u64);
    let machinery = Machinery {
        deployments: machines.deployments(),
        machines: machines.names(),
        pods: pods(&found_pods, &found_nodes),
        lost_pods: lost_pods(&found_pods, &found_nodes),
        nodes: found_nodes,
        attachments: attachments.iter().map(ResourceExt::name_any).collect(),
        unready: None,
        quota: match refused_since {
            Some(since) => quota(client, since).await,
            None => None,
        },
    };
    Ok((machinery, preflight))
}

/// What only the preflight reads.
async fn of_kinds(client: &Client) -> kube::Result<UserCluster> {
    let all = ListParams::default();
    let (services, volumes) = (Api::<Service>::all(client.clone()), Api::<PersistentVolume>::all(client.clone()));
    let jobs = Api::<Job>::all(client.clone());
    let (services, volumes, jobs, webhooks) = tokio::join!(
        list(&services, &all, "Services"),
        list_metadata(&volumes, &all, "PersistentVolumes"),
        list(&jobs, &all, "Jobs"),
        webhooks_on_wake(client),
    );
    let (services, volumes, jobs) = (services?, volumes?, jobs?);
    let name = |namespace: Option<String>, name: String| format!("{}/{name}", namespace.unwrap_or_default());
    let is_balancer =
        |service: &&Service| service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer");
    let is_under_way = |job: &&Job| {
        let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
        !conditions.into_iter().any(|one| matches!(one.type_.as_str(), "Complete" | "Failed") && one.status == "True")
    };
    Ok(UserCluster {
        unfinished_jobs: jobs.iter().filter(is_under_way).map(|one| name(one.namespace(), one.name_any())).collect(),
        load_balancers: services.iter().filter(is_balancer).map(|one| name(one.namespace(), one.name_any())).collect(),
        volumes: volumes.len(),
        webhooks_on_wake: webhooks?,
        ..UserCluster::default()
    })
}

/// Webhooks that a wake has to call before their Pods run, and for what.
async fn webhooks_on_wake(client: &Client) -> kube::Result<Vec<String>> {
    let (webhooks, labels) = tokio::join!(webhooks(client), kube_system(client));
    let webhooks = webhooks.map_err(|why| kube::Error::Service(why.into()))?;
    let on_wake = |one: WebhookLook| {
        one.holds_up(&labels, WRITTEN_BY_A_WAKE).map(|resource| format!("{} ({resource})", one.name))
    };
    Ok(webhooks.into_iter().flatten().filter_map(on_wake).collect())
}

/// Why Machines are not created: the `MachineDeployment` does not say, only Events of its `MachineSet` do (row 62).
async fn quota(client: &Client, since: Timestamp) -> Option<Quota> {
    let events: Api<Event> = Api::all(client.clone());
    let params = ListParams::default().fields("involvedObject.kind=MachineSet,reason=ReconcileError").limit(100);
    quota_of(events.list(&params).await.ok()?.items, since)
}

/// The newest refusal of this wake, and every set that was refused.
fn quota_of(mut events: Vec<Event>, since: Timestamp) -> Option<Quota> {
    let is_new = |event: &Event| event.last_timestamp.as_ref().is_none_or(|at| at.0 >= since);
    events.retain(|event| is_new(event) && event.message.as_deref().is_some_and(|text| text.contains("quota")));
    events.sort_by_key(|event| event.last_timestamp.as_ref().map(|at| at.0));
    let why = sanitize(events.last()?.message.as_deref()?);
    let set = |event: &Event| {
        let object = &event.involved_object;
        Some(format!("{}/{}", object.namespace.as_deref()?, object.name.as_deref()?))
    };
    let mut sets: Vec<String> = events.iter().filter_map(set).collect();
    sets.sort();
    sets.dedup();
    Some(Quota { why, sets })
}

/// What the bootstrap of the `MachineDeployments` lacks whose counts are to be restored.
pub async fn missing_tokens(asked: &Asked) -> Option<String> {
    let is_raised = |one: &&MachineDeployment| one.replicas == 0 && one.copy.is_some_and(|count| count > 0);
    let raised: Vec<MachineDeployment> = asked.machinery.deployments.iter().filter(is_raised).cloned().collect();
    if raised.is_empty() {
        return None;
    }
    match slot::outside(tokio::time::timeout(DEADLINE, tokens(&asked.client, &raised))).await {
        Ok(Ok(missing)) => missing,
        Ok(Err(error)) => Some(failure(&error).to_string()),
        Err(_) => Some("the cluster's API server does not list bootstrap tokens".to_owned()),
    }
}

/// What the bootstrap of new Nodes lacks: OSM makes a token for each `MachineDeployment`, and renews it when it reconciles (row 53).
async fn tokens(client: &Client, deployments: &[MachineDeployment]) -> kube::Result<Option<String>> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), KUBE_SYSTEM);
    let params = ListParams::default().fields("type=bootstrap.kubernetes.io/token").labels(TOKEN_OF);
    Ok(missing_token(&list(&secrets, &params, "bootstrap tokens").await?, deployments, clock::now()))
}

fn missing_token(secrets: &[Secret], deployments: &[MachineDeployment], now: Timestamp) -> Option<String> {
    let is_valid = |secret: &Secret| {
        let expiration = secret.data.as_ref().and_then(|data| data.get("expiration"));
        let expiration = expiration.and_then(|value| format::time(str::from_utf8(&value.0).ok()?));
        expiration.is_some_and(|at| at.duration_since(now) > TOKEN_VALID)
    };
    let valid: Vec<&str> = secrets
        .iter()
        .filter(|secret| is_valid(secret))
        .filter_map(|secret| secret.labels().get(TOKEN_OF))
        .map(String::as_str)
        .collect();
    let has_token = |deployment: &&MachineDeployment| {
        let (namespace, name) = deployment.name.split_once('/').unwrap_or(("", &deployment.name));
        // The name alone if both are too long for a label.
        valid.contains(&format!("{namespace}-{name}").as_str()) || valid.contains(&name)
    };
    let missing = deployments.iter().find(|deployment| !has_token(deployment))?;
    Some(format!("waiting for operating-system-manager to renew the bootstrap token of {}", sanitize(&missing.name)))
}
