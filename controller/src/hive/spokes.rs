//! The connection to the spoke of a target: opened when a wake needs it, closed when it is no longer needed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use shared::cloud::Inventory;
use shared::hive::api::{ClusterDeployment, RESUME_SKIPS_CLUSTER_OPERATORS};
use shared::hive::conditions::READY;
use shared::hive::decide::{Notice, Watch, resume_started};
use shared::hive::unreachable::{active_url, ip_override};
use shared::spoke::{Spoke, SpokeError, Upgrade};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::memory::{Connection, Memory, Way};
use super::requests::Requests;
use super::{Context, report};
use crate::hub::{full_name, key_of};
use crate::machines;
use crate::spoke::{self, Route, Scope, SpokeWatch};

/// How often spot Machines are looked for while Nodes are awaited.
const SPOT_AGAIN: Duration = Duration::from_secs(30);

/// While a spoke cannot be asked, its kubeconfig's Secret is read again after this time: it may have been replaced. So may the
/// overrides of its address.
const COMPARE: Duration = Duration::from_secs(15);

/// What the spoke says, over the connection of this wake.
pub async fn look(context: &Context, cluster: &ClusterDeployment, memory: &mut Memory) -> Result<Spoke, SpokeError> {
    let operators = !cluster.label_is_true(RESUME_SKIPS_CLUSTER_OPERATORS);
    let connection = connect(context, cluster, memory, Scope::Everything { operators }).await?;
    let found = connection.watch.look().await;
    if found.is_err() && connection.compared.elapsed() > COMPARE {
        let (_, version) = secret(context, cluster).await?;
        connection.compared = Instant::now();
        if connection.way != way(cluster, version) {
            memory.spoke = None; // the next look connects anew
        }
    }
    found
}

/// Keeps of the connection what the plan wants kept.
pub async fn keep(context: &Context, cluster: &ClusterDeployment, memory: &mut Memory, watch: Watch) {
    let scope = match watch {
        Watch::Nothing => {
            memory.spoke = None;
            memory.requests = None;
            return;
        }
        Watch::Certificates => Scope::Certificates,
        Watch::Everything => Scope::Everything { operators: !cluster.label_is_true(RESUME_SKIPS_CLUSTER_OPERATORS) },
    };
    if let Err(error) = connect(context, cluster, memory, scope).await {
        debug!(cluster = full_name(cluster), error = &error as &dyn std::error::Error, "spoke not watched");
    }
    let ready = cluster.condition(READY).filter(|ready| ready.status == "True");
    let ready = ready.and_then(|ready| ready.last_transition_time.as_ref());
    if let (Some(requests), Some(since)) = (&memory.requests, ready) {
        requests.awake(since.0).await;
    }
}

/// Asks a spoke that is awake whether it is being upgraded.
pub async fn upgrade(context: &Context, cluster: &ClusterDeployment) -> Upgrade {
    match client(context, cluster).await {
        Ok((client, _)) => spoke::upgrade(&client).await,
        Err(_) => Upgrade::Unknown,
    }
}

async fn connect<'a>(
    context: &Context,
    cluster: &ClusterDeployment,
    memory: &'a mut Memory,
    scope: Scope,
) -> Result<&'a mut Connection, SpokeError> {
    if memory.spoke.as_ref().is_some_and(|connection| connection.watch.scope() != scope) {
        memory.spoke = None;
    }
    let kept = memory.spoke.take();
    let connection = if let Some(kept) = kept { kept } else { open(context, cluster, memory, scope).await? };
    Ok(memory.spoke.insert(connection))
}

async fn open(
    context: &Context,
    cluster: &ClusterDeployment,
    memory: &mut Memory,
    scope: Scope,
) -> Result<Connection, SpokeError> {
    let (client, version) = client(context, cluster).await?;
    let since = resume_started(cluster).unwrap_or_else(Timestamp::now);
    let (news, looks) = (memory.news.clone(), context.news.clone());
    let key = key_of(cluster);
    let changed = move || {
        news.store(true, Ordering::Relaxed);
        let _ = looks.unbounded_send(key.clone());
    };
    let requests = memory.requests.get_or_insert_with(|| Requests::new(context, cluster, since)).clone();
    let watch = SpokeWatch::begin(client.clone(), scope, since, changed, move |client| requests.clone().pass(client));
    let now = Instant::now();
    Ok(Connection { watch, way: way(cluster, version), opened: now, compared: now, client, spot: None })
}

/// Makes spot Machines anew that have lost their instances with the sleep.
pub async fn replace_spot(context: &Context, cluster: &ClusterDeployment, memory: &mut Memory, existing: &Inventory) {
    let Some(connection) = memory.spoke.as_mut().filter(|c| c.spot.is_none_or(|at| at.elapsed() > SPOT_AGAIN)) else {
        return;
    };
    let Some(since) = resume_started(cluster).filter(|_| context.claim.holds()) else { return };
    connection.spot = Some(Instant::now());
    match machines::replace(&connection.client, existing, since, || context.claim.holds()).await {
        Ok(replaced) if replaced.is_empty() => {}
        Ok(replaced) => report::notice(context, cluster, &Notice::spot_replaced(&replaced)).await,
        Err(error) => {
            warn!(cluster = full_name(cluster), error = &error as &dyn std::error::Error, "spot Machines not replaced");
        }
    }
}

/// A client of the spoke, and the version of the Secret with its kubeconfig.
pub async fn client(context: &Context, cluster: &ClusterDeployment) -> Result<(Client, Option<String>), SpokeError> {
    let (kubeconfig, version) = secret(context, cluster).await?;
    let route = Route { url: active_url(cluster), ip: ip_override(cluster) };
    let client = spoke::client(&kubeconfig, &route).await.map_err(|error| match error {
        SpokeError::Kubeconfig(why) if why.starts_with("kubeconfig ") => {
            SpokeError::Kubeconfig(in_secret(cluster, &why))
        }
        other => other,
    })?;
    Ok((client, version))
}

fn way(cluster: &ClusterDeployment, version: Option<String>) -> Way {
    Way { version, url: active_url(cluster).map(str::to_owned), ip: ip_override(cluster).map(str::to_owned) }
}

/// The administrator's kubeconfig and the version of its Secret.
pub async fn secret(context: &Context, cluster: &ClusterDeployment) -> Result<(Vec<u8>, Option<String>), SpokeError> {
    let name = secret_name(cluster).ok_or_else(|| {
        SpokeError::Kubeconfig("spec.clusterMetadata.adminKubeconfigSecretRef.name is missing".to_owned())
    })?;
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &cluster.namespace().unwrap_or_default());
    let secret = secrets.get(name).await.map_err(|error| match error {
        kube::Error::Api(status) if status.is_not_found() => {
            SpokeError::Kubeconfig(in_secret(cluster, "does not exist"))
        }
        other => SpokeError::Failed(in_secret(cluster, &format!("cannot be read: {other}"))),
    })?;
    let version = secret.resource_version();
    let kubeconfig = secret.data.and_then(|mut data| data.remove("kubeconfig"));
    let kubeconfig = kubeconfig.ok_or_else(|| SpokeError::Kubeconfig(in_secret(cluster, "has no key kubeconfig")))?;
    Ok((kubeconfig.0, version))
}

fn secret_name(cluster: &ClusterDeployment) -> Option<&str> {
    let metadata = cluster.spec.cluster_metadata.as_ref()?;
    Some(metadata.admin_kubeconfig_secret_ref.name.as_str()).filter(|name| !name.is_empty())
}

fn in_secret(cluster: &ClusterDeployment, why: &str) -> String {
    format!("Secret {}/{}: {why}", cluster.namespace().unwrap_or_default(), secret_name(cluster).unwrap_or_default())
}
