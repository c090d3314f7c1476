//! Rows V1 to V10 and V12, one function each; those that other kinds have, too, are in [`crate::admission`]. V11 is
//! about all of them and stands in [`super::judge`].

use std::time::Duration;

use jiff::SignedDuration;

use super::cluster::Cluster;
use crate::admission::{Change, Fault, Rule, Verdict, form, protection, stamp};
use crate::annotation::keys;
use crate::duration;
use crate::hive::api::{POWERSTATE_PAUSE, RECONCILE_PAUSE, go_bool};

/// A cluster younger than this may not get through a sleep: its first certificates are valid for a day.
const SETTLING_PERIOD: SignedDuration = SignedDuration::from_hours(24);
/// A `hibernateAfter` shorter than this causes a warning.
const HIBERNATE_AFTER_WARNING_THRESHOLD: Duration = Duration::from_mins(10);

/// The rule that depends on how the webhook is set up: its row.
pub const PLATFORM_ROW: &str = "V4";
/// Its field.
pub const PLATFORM_FIELD: &str = "spec.platform";

/// The table. Rows in the order in which the user reads what they say.
pub const RULES: &[Rule<Cluster>] = &[
    Rule { row: "V1", judge: state_exists },
    Rule { row: "V2", judge: installed },
    Rule { row: "V3", judge: protection::not_being_deleted },
    Rule { row: PLATFORM_ROW, judge: platform_is_served },
    Rule { row: "V4", judge: azure_has_a_resource_group },
    Rule { row: "V5", judge: has_an_identity },
    Rule { row: "V6", judge: protection::not_protected },
    Rule { row: "V6", judge: protection::not_held_awake },
    Rule { row: "V7", judge: not_paused },
    Rule { row: "V7", judge: settled },
    Rule { row: "V7", judge: no_pool_decides },
    Rule { row: "V7", judge: not_upgrading },
    Rule { row: "V8", judge: hibernate_after },
    Rule { row: "V9", judge: |change| form::time(change, keys::REQUESTED_AT) },
    Rule { row: "V9", judge: |change| form::time(change, keys::HOLD_AWAKE_UNTIL) },
    Rule { row: "V9", judge: |change| form::time(change, keys::WAKE_AT) },
    Rule { row: "V9", judge: |change| form::time(change, keys::PREFLIGHT_REQUESTED_AT) },
    Rule { row: "V9", judge: |change| form::to_come(change, keys::HOLD_AWAKE_UNTIL) },
    Rule { row: "V9", judge: |change| form::to_come(change, keys::WAKE_AT) },
    Rule { row: "V9", judge: |change| form::boolean(change, keys::PROTECTED) },
    Rule { row: "V9", judge: |change| form::count(change, keys::REPLICAS) },
    Rule { row: "V10", judge: |change| stamp::not_forged(change, keys::REQUESTED_BY) },
    Rule { row: "V10", judge: |change| stamp::not_forged(change, keys::REQUESTED_AT) },
    Rule { row: "V10", judge: stamp::holder_not_forged },
    Rule { row: "V10", judge: stamp::claim_not_forged },
    Rule { row: "V12", judge: stamp::stamped },
];

/// V1
fn state_exists(change: &Change<'_, Cluster>) -> Verdict {
    match change.new.spec.power_state.as_str() {
        "" | "Running" | "Hibernating" => Verdict::Allow,
        _ if !change.alters_power_state() => Verdict::Allow,
        other => Verdict::deny(
            Fault::NotSupported,
            "spec.powerState",
            format!("found {other:?}, must be \"Running\", \"Hibernating\" or empty"),
        ),
    }
}

/// V2
fn installed(change: &Change<'_, Cluster>) -> Verdict {
    Verdict::warn("the cluster is not installed yet: it goes to sleep only once its installation is done")
        .when(change.goes_to_sleep() && !change.new.installed())
}

/// V4
fn platform_is_served(change: &Change<'_, Cluster>) -> Verdict {
    let (platform, served) = (change.new.platform(), &change.settings.served_platforms);
    let found = if platform.is_empty() { "no platform" } else { platform };
    let message = format!("found {found}, but only clusters on {} can be put to sleep", served.join(", "));
    let is_served = served.iter().any(|name| name == platform);
    Verdict::deny(Fault::Forbidden, PLATFORM_FIELD, message).when(change.goes_to_sleep() && !is_served)
}

/// V4. What is not installed yet has no resource group to name; without any metadata V5 speaks.
fn azure_has_a_resource_group(change: &Change<'_, Cluster>) -> Verdict {
    let Some(identity) = &change.new.spec.cluster_metadata else { return Verdict::Allow };
    let is_missing = change.new.platform() == "azure" && identity.platform.azure.resource_group_name.is_empty();
    let field = "spec.clusterMetadata.platform.azure.resourceGroupName";
    let message = "missing: without the name of the resource group the cluster's machines on Azure cannot be found";
    Verdict::deny(Fault::Required, field, message).when(change.goes_to_sleep() && change.new.installed() && is_missing)
}

/// V5
fn has_an_identity(change: &Change<'_, Cluster>) -> Verdict {
    if !change.goes_to_sleep() || !change.new.installed() {
        return Verdict::Allow;
    }
    let (field, why) = match &change.new.spec.cluster_metadata {
        None => ("spec.clusterMetadata", "its machines cannot be found"),
        Some(identity) if identity.infra_id.is_empty() => {
            ("spec.clusterMetadata.infraID", "the cluster's machines cannot be found")
        }
        Some(identity) if !identity.admin_kubeconfig_secret_ref.name.is_empty() => return Verdict::Allow,
        Some(_) => (
            "spec.clusterMetadata.adminKubeconfigSecretRef.name",
            "the controller cannot verify that the cluster is running",
        ),
    };
    Verdict::deny(Fault::Required, field, format!("missing or empty on an installed cluster: without it {why}"))
}

/// V7
fn not_paused(change: &Change<'_, Cluster>) -> Verdict {
    let set = |key: &&&str| change.new_annotation(key).is_some_and(go_bool);
    let Some(key) = [RECONCILE_PAUSE, POWERSTATE_PAUSE].iter().find(set) else { return Verdict::Allow };
    Verdict::warn(format!("{key} is set: the cluster goes to sleep only once it is removed"))
        .when(change.goes_to_sleep())
}

/// V7
fn settled(change: &Change<'_, Cluster>) -> Verdict {
    let age = change.new.installed_at().map(|installed| change.now.duration_since(installed));
    Verdict::warn("installed less than 24 h ago: its first certificates may expire while it sleeps")
        .when(change.goes_to_sleep() && age.is_some_and(|age| age < SETTLING_PERIOD))
}

/// V7. The plugin has read the pool and warned in more detail already.
fn no_pool_decides(change: &Change<'_, Cluster>) -> Verdict {
    let Some(pool) = change.new.unclaimed_pool() else { return Verdict::Allow };
    Verdict::warn(format!("unclaimed cluster of ClusterPool {pool}: the pool sets powerState itself and may undo this"))
        .when(change.goes_to_sleep() && change.field_manager != keys::PLUGIN)
}

/// V7
fn not_upgrading(change: &Change<'_, Cluster>) -> Verdict {
    Verdict::warn("an upgrade is in progress: hibernation interrupts the upgrade, which continues after the wake")
        .when(change.goes_to_sleep() && change.new.upgrading())
}

/// V8
fn hibernate_after(change: &Change<'_, Cluster>) -> Verdict {
    match change.new_hibernate_after().map(duration::parse_positive) {
        Some(Err(error)) => Verdict::deny(Fault::Invalid, "spec.hibernateAfter", format!("found {error}")),
        Some(Ok(after)) if after < HIBERNATE_AFTER_WARNING_THRESHOLD => Verdict::warn(format!(
            "spec.hibernateAfter {} is shorter than 10 minutes: the cluster falls asleep soon after each wake",
            duration::go_string(after)
        )),
        _ => Verdict::Allow,
    }
}
