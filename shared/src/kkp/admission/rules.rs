//! Rows K1 to K9, K11 and K12, one function each; those that other kinds have, too, are in [`crate::admission`]. K10 is
//! about all of them and stands in [`super::judge`], K13 in [`super::judge_deletion`].

use super::HIBERNATING;
use super::cluster::{Cluster, Status};
use crate::admission::{Change, Fault, Rule, Verdict, annotation_field, form, protection, stamp};
use crate::annotation::{format, keys as common};
use crate::kkp::api::Encryption;
use crate::kkp::keys;

/// The table.
pub const RULES: &[Rule<Cluster>] = &[
    Rule { row: "K1", judge: state_exists },
    Rule { row: "K2", judge: protection::not_being_deleted },
    Rule { row: "K3", judge: has_machines },
    Rule { row: "K4", judge: not_paused },
    Rule { row: "K4", judge: no_restore },
    Rule { row: "K4", judge: runs },
    Rule { row: "K4", judge: not_encrypting },
    Rule { row: "K5", judge: protection::not_protected },
    Rule { row: "K5", judge: protection::not_held_awake },
    Rule { row: "K6", judge: |change| form::time(change, keys::POWER_STATE_AT) },
    Rule { row: "K6", judge: |change| form::time(change, common::REQUESTED_AT) },
    Rule { row: "K6", judge: |change| form::time(change, common::HOLD_AWAKE_UNTIL) },
    Rule { row: "K6", judge: |change| form::time(change, common::PREFLIGHT_REQUESTED_AT) },
    Rule { row: "K6", judge: |change| form::to_come(change, common::HOLD_AWAKE_UNTIL) },
    Rule { row: "K6", judge: |change| form::boolean(change, common::PROTECTED) },
    Rule { row: "K6", judge: |change| form::boolean(change, keys::FORCE) },
    Rule { row: "K6", judge: |change| form::boolean(change, keys::ALLOW_UNPAUSE) },
    Rule { row: "K6", judge: |change| form::boolean(change, keys::ALLOW_DELETE) },
    Rule { row: "K7", judge: stays_paused },
    Rule { row: "K7", judge: guards_the_pause },
    Rule { row: "K8", judge: changes_at_the_wake },
    Rule { row: "K9", judge: no_restore_while_asleep },
    Rule { row: "K11", judge: |change| stamp::not_forged(change, common::REQUESTED_BY) },
    Rule { row: "K11", judge: |change| stamp::not_forged(change, common::REQUESTED_AT) },
    Rule { row: "K11", judge: stamp::holder_not_forged },
    Rule { row: "K11", judge: stamp::claim_not_forged },
    Rule { row: "K12", judge: stamp::stamped },
];

/// K1
fn state_exists(change: &Change<'_, Cluster>) -> Verdict {
    match change.new_annotation(keys::POWER_STATE) {
        None | Some("Running" | HIBERNATING) => Verdict::Allow,
        Some(_) if !change.alters_annotation(keys::POWER_STATE) => Verdict::Allow,
        Some(other) => Verdict::deny(
            Fault::NotSupported,
            annotation_field(keys::POWER_STATE),
            format!("found {other:?}, must be \"Running\" or \"Hibernating\""),
        ),
    }
}

/// Denies what is forbidden in a field.
fn forbid(is_forbidden: bool, field: impl Into<String>, message: impl Into<String>) -> Verdict {
    Verdict::deny(Fault::Forbidden, field, message).when(is_forbidden)
}

/// K3
fn has_machines(change: &Change<'_, Cluster>) -> Verdict {
    match change.new.spec.cloud.provider_name.as_str() {
        _ if !change.goes_to_sleep() => Verdict::Allow,
        provider @ ("bringyourown" | "edge") => Verdict::deny(
            Fault::Forbidden,
            "spec.cloud.providerName",
            format!("found {provider}: KKP neither creates nor deletes its machines"),
        ),
        "baremetal" => Verdict::warn("provider baremetal: the machines stop serving, but no cloud cost is saved"),
        _ => Verdict::Allow,
    }
}

/// Whether a sleep or a wake of ours is under way: it has paused the cluster.
fn is_under_way(cluster: &Cluster) -> bool {
    cluster.is_asleep() || cluster.paused_by_us()
}

/// K4
fn not_paused(change: &Change<'_, Cluster>) -> Verdict {
    let is_forbidden = change.goes_to_sleep() && change.new.paused() && !is_under_way(&change.new);
    forbid(is_forbidden, "spec.pause", "another client has paused the cluster: set spec.pause to false first")
}

/// K4
fn no_restore(change: &Change<'_, Cluster>) -> Verdict {
    let is_forbidden = change.goes_to_sleep() && change.new_annotation(keys::ACTIVE_RESTORE).is_some();
    let field = annotation_field(keys::ACTIVE_RESTORE);
    forbid(is_forbidden, field, "an EtcdRestore is in progress: wait for its end")
}

/// K4. A new object has no status yet: the controller's preflight waits for KKP.
fn runs(change: &Change<'_, Cluster>) -> Verdict {
    let Status { phase, conditions, .. } = &change.new.status;
    let is_judged = change.goes_to_sleep() && change.old.is_some() && !is_under_way(&change.new);
    if is_judged && phase != "Running" {
        return forbid(true, "status.phase", format!("found {phase:?}, must be \"Running\""));
    }
    forbid(
        is_judged && conditions.up_to_date.status != "True",
        "status.conditions.SeedResourcesUpToDate",
        "not True: KKP still applies changes, and a pause now would block its updates of other clusters",
    )
}

/// K4
fn not_encrypting(change: &Change<'_, Cluster>) -> Verdict {
    let is_judged = change.goes_to_sleep() && !is_under_way(&change.new);
    let why = change.new.encryption_under_way().filter(|_| is_judged);
    why.map_or(Verdict::Allow, |why| forbid(true, Encryption::FIELD, why))
}

/// K7. KKP would raise everything but etcd, and the cluster would stay broken (row 8).
fn stays_paused(change: &Change<'_, Cluster>) -> Verdict {
    let unpauses = change.old.as_ref().is_some_and(Cluster::paused) && !change.new.paused();
    let has_reason = change.is_by_controller()
        || allows_unpause(change)
        || change.new_annotation(keys::ACTIVE_RESTORE).is_some()
        || change.new.metadata.deletion_timestamp.is_some();
    if !unpauses || !change.stays_asleep() || has_reason {
        return Verdict::Allow;
    }
    let message = format!(
        "the cluster is dehydrated, and KKP alone does not start its etcd: wake it with kubectl hibernate resume cluster/{} or with \
         annotation {}=Running; to end the pause nevertheless, set annotation {}=true in the same write",
        change.new.metadata.name,
        keys::POWER_STATE,
        keys::ALLOW_UNPAUSE
    );
    Verdict::deny(Fault::Forbidden, "spec.pause", message)
}

fn allows_unpause(change: &Change<'_, Cluster>) -> bool {
    change.new_annotation(keys::ALLOW_UNPAUSE).and_then(format::boolean) == Some(true)
}

/// K7
fn guards_the_pause(change: &Change<'_, Cluster>) -> Verdict {
    if !change.goes_to_sleep() || !allows_unpause(change) {
        return Verdict::Allow;
    }
    Verdict::warn(format!(
        "{} is \"true\": any client can end the pause of the dehydrated cluster",
        keys::ALLOW_UNPAUSE
    ))
}

/// K8
fn changes_at_the_wake(change: &Change<'_, Cluster>) -> Verdict {
    let before = change.old.as_ref().map(Cluster::applied_at_the_wake);
    if !change.stays_asleep() || before == Some(change.new.applied_at_the_wake()) {
        return Verdict::Allow;
    }
    Verdict::warn("the cluster is dehydrated: KKP applies a new version, provider or datacenter only after its wake")
}

/// K9
fn no_restore_while_asleep(change: &Change<'_, Cluster>) -> Verdict {
    let added =
        change.old_annotation(keys::ACTIVE_RESTORE).is_none() && change.new_annotation(keys::ACTIVE_RESTORE).is_some();
    forbid(
        added && change.stays_asleep(),
        annotation_field(keys::ACTIVE_RESTORE),
        "the cluster is dehydrated, and an EtcdRestore deletes its etcd volumes: wake it first, then create the EtcdRestore",
    )
}
