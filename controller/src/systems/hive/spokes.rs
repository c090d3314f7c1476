//! The connection to the spoke of a target: opened when a wake needs it, closed when it is no longer needed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use shared::cloud::Inventory;
use shared::hive::api::{ClusterDeployment, RESUME_SKIPS_CLUSTER_OPERATORS, ip_override, url_override};
use shared::hive::conditions::{ACTIVE_OVERRIDE, READY};
use shared::hive::decide::{Facts, Notice, Watch, resume_started};
use shared::spoke::{Spoke, SpokeError, Upgrade};
use shared::text::sanitize_chain;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::csr_approval::CsrApproval;
use super::state::{Connection, TargetState};
use super::{Hive, report};
use crate::fleet::{Member, Verdict};
use crate::machines;
use crate::runtime::hub::{full_name, key_of};
use crate::runtime::{Hub, ReconcileError, System, clock, hash};
use crate::spoke::reader::SpokeClient;
use crate::spoke::{self, Network, Route, Scope, SpokeWatch, kubeconfig};

/// How often spot Machines are listed while Nodes are awaited.
const SPOT_PERIOD: Duration = Duration::from_secs(30);

/// How often Machines are listed for the names of their instances: what the machine API gives up is soon brought back.
const RENAME_PERIOD: Duration = Duration::from_secs(5);

/// While a spoke cannot be asked, its kubeconfig's Secret is read again after this time: it may have been replaced. So
/// may the overrides of its address.
const COMPARE_PERIOD: Duration = Duration::from_secs(15);

/// What the spoke says, over the connection of this wake.
pub async fn observe(hive: &Hive, cluster: &ClusterDeployment, state: &mut TargetState) -> Result<Spoke, SpokeError> {
    let connection = connect(hive, cluster, state, everything(cluster)).await?;
    let found = connection.watch.observe().await;
    if found.is_err() && connection.compared.elapsed() > COMPARE_PERIOD {
        let (_, version) = kubeconfig::read(&hive.handle.hub.client, cluster).await?;
        connection.compared = Instant::now();
        if connection.address != address(cluster, version.as_deref()) {
            state.spoke = None; // the next reconcile reconnects
        }
    }
    found
}

fn everything(cluster: &ClusterDeployment) -> Scope {
    Scope::Everything { operators: !cluster.label_is_true(RESUME_SKIPS_CLUSTER_OPERATORS) }
}

/// Keeps of the connection what is to be watched.
pub async fn keep(hive: &Hive, facts: &Facts<'_>, cluster: &ClusterDeployment, state: &mut TargetState, watch: Watch) {
    let scope = match watch {
        Watch::Nothing => {
            state.spoke = None;
            state.csr_approval = None;
            return;
        }
        Watch::Kept => return,
        Watch::Certificates => Scope::Certificates,
        Watch::Everything => everything(cluster),
    };
    if let Err(error) = connect(hive, cluster, state, scope).await {
        debug!(cluster = full_name(cluster), error = sanitize_chain(&error), "spoke not watched");
    }
    if let (Some(approval), Some(since)) = (&state.csr_approval, cluster.true_since(READY)) {
        approval.awake(since);
    }
    if let (Some(approval), Some(Ok(machines))) = (&state.csr_approval, &facts.machines) {
        approval.machines_are(machines);
    }
}

/// Asks a spoke that is awake whether it is being upgraded.
///
/// # Errors
/// The hub did not give the kubeconfig: that says nothing about the cluster.
pub async fn upgrade(hub: &Hub, network: &Network, cluster: &ClusterDeployment) -> Result<Upgrade, SpokeError> {
    match client(hub, network, cluster).await {
        Ok((client, _)) => Ok(spoke::upgrade(&client).await),
        Err(error @ SpokeError::Failed(_)) => Err(error),
        Err(error) => Ok(Upgrade::Unknown(sanitize_chain(&error))),
    }
}

async fn connect<'a>(
    hive: &Hive,
    cluster: &ClusterDeployment,
    state: &'a mut TargetState,
    scope: Scope,
) -> Result<&'a mut Connection, SpokeError> {
    if state.spoke.as_ref().is_some_and(|connection| connection.watch.scope() != scope) {
        state.spoke = None;
    }
    let kept = state.spoke.take();
    let connection = if let Some(kept) = kept { kept } else { open(hive, cluster, state, scope).await? };
    Ok(state.spoke.insert(connection))
}

async fn open(
    hive: &Hive,
    cluster: &ClusterDeployment,
    state: &mut TargetState,
    scope: Scope,
) -> Result<Connection, SpokeError> {
    let (client, version) = client(&hive.handle.hub, &hive.network, cluster).await?;
    let since = resume_started(cluster).unwrap_or_else(clock::now);
    let (news, handle) = (state.news.clone(), hive.handle.clone());
    let key = key_of(cluster);
    let changed = move || {
        news.store(true, Ordering::Relaxed);
        handle.trigger(key.clone());
    };
    let approval = state.csr_approval.get_or_insert_with(|| CsrApproval::new(hive, cluster, since)).clone();
    let watch = SpokeWatch::begin(client.clone(), scope, since, hive.handle.panics(), changed, move |client| {
        approval.clone().pass(client)
    });
    let (now, address) = (Instant::now(), address(cluster, version.as_deref()));
    // Held besides that of the reconcile, which is at work on the same target.
    let (tenant, uid) = (hive.tenant(cluster), cluster.metadata.uid.as_deref());
    let mark = hive.handle.hub.marks.begin(Hive::NAME, &tenant, uid, &full_name(cluster)).unwrap_or_default();
    Ok(Connection { watch, _mark: mark, address, opened: now, compared: now, client, spot: None, renamed: None })
}

/// Replaces spot Machines that lost their instances with the sleep.
pub async fn replace_spot(hive: &Hive, cluster: &ClusterDeployment, state: &mut TargetState, existing: &Inventory) {
    let Some(connection) = state.spoke.as_mut().filter(|c| c.spot.is_none_or(|at| at.elapsed() > SPOT_PERIOD)) else {
        return;
    };
    let Some(since) = resume_started(cluster).filter(|_| hive.handle.hub.claim.holds()) else { return };
    connection.spot = Some(Instant::now());
    let may = || hive.handle.hub.claim.holds();
    let (replaced, result) = machines::replace(&connection.client, existing, since, may).await;
    if !replaced.is_empty() {
        report::notice(hive, cluster, &Notice::spot_replaced(&replaced)).await;
    }
    if let Err(error) = result {
        let name = full_name(cluster);
        if let Some(left_out) = hive.handle.hub.warnings.due("spot Machines", &name) {
            warn!(cluster = name, error = sanitize_chain(&error), left_out, "spot Machines not replaced");
        }
    }
}

/// Gives Machines the names of the instances that were made in place of theirs.
pub async fn name_machines(hive: &Hive, cluster: &ClusterDeployment, state: &mut TargetState, existing: &Inventory) {
    let Some(connection) = state.spoke.as_mut().filter(|c| c.renamed.is_none_or(|at| at.elapsed() > RENAME_PERIOD))
    else {
        return;
    };
    connection.renamed = Some(Instant::now());
    if let Err(error) = machines::rename(&connection.client, existing, || hive.handle.hub.claim.holds()).await {
        not_renamed(hive, cluster, &error);
    }
}

/// Renames Machines before the last trace of a wake is removed. Whether all of them have their names.
pub async fn all_named(hive: &Hive, cluster: &ClusterDeployment, existing: &Inventory) -> bool {
    if existing.instances.iter().all(|instance| instance.provider_id.is_none()) {
        return true;
    }
    let Ok((client, _)) = client(&hive.handle.hub, &hive.network, cluster).await else { return false };
    let renamed = machines::rename(&client, existing, || hive.handle.hub.claim.holds()).await;
    renamed.inspect_err(|error| not_renamed(hive, cluster, error)).is_ok()
}

fn not_renamed(hive: &Hive, cluster: &ClusterDeployment, error: &ReconcileError) {
    let name = full_name(cluster);
    if let Some(left_out) = hive.handle.hub.warnings.due("Machines", &name) {
        warn!(cluster = name, error = sanitize_chain(error), left_out, "Machines do not name their new instances");
    }
}

/// A client of the spoke, and the version of the Secret with its kubeconfig.
pub async fn client(
    hub: &Hub,
    network: &Network,
    cluster: &ClusterDeployment,
) -> Result<(SpokeClient, Option<String>), SpokeError> {
    let (kubeconfig, version) = kubeconfig::read(&hub.client, cluster).await?;
    let route = Route { url: active_url(cluster), ip: ip_override(cluster) };
    let client =
        spoke::client(network, kubeconfig::consumer(cluster), &kubeconfig, &route).await.map_err(
            |error| match error {
                SpokeError::Kubeconfig(why) if why.starts_with("kubeconfig ") => {
                    SpokeError::Kubeconfig(kubeconfig::in_secret(cluster, &why))
                }
                other => other,
            },
        )?;
    Ok((client, version))
}

/// Hash of what decides where a connection leads: the version of the kubeconfig's Secret, and the overrides.
fn address(cluster: &ClusterDeployment, version: Option<&str>) -> u64 {
    hash(&(version, active_url(cluster), ip_override(cluster)))
}

/// The URL at which the API server answers as far as is known: the override while Hive, or whoever owns the condition,
/// says that it is active; else `None`, the kubeconfig's own.
fn active_url(cluster: &ClusterDeployment) -> Option<&str> {
    url_override(cluster).filter(|_| cluster.is_true(ACTIVE_OVERRIDE))
}

impl Member for ClusterDeployment {
    async fn objection(&self, hub: &Hub, network: &Network) -> Verdict {
        Ok(match upgrade(hub, network, self).await? {
            Upgrade::Idle => None,
            Upgrade::Progressing(what) => Some(format!("it is being upgraded: {what}")),
            Upgrade::Unknown(why) => Some(why),
        })
    }
}
