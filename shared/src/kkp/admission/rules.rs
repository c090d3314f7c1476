//! Rows K1 to K9, one function each. K10 is about all of them and stands in [`super::judge`].

use super::cluster::Cluster;
use super::{ANNOTATIONS, HIBERNATING, Holds};
use crate::admission::{Change, Fault, Rule, Verdict, protection};
use crate::annotation::hold::{Hold, NAMELESS, hold};
use crate::annotation::{format, keys as common};
use crate::kkp::keys;

/// The table.
pub const RULES: &[Rule<Cluster>] = &[
    Rule { row: "K1", judge: state_exists },
    Rule { row: "K2", judge: not_being_deleted },
    Rule { row: "K3", judge: has_machines },
    Rule { row: "K4", judge: not_paused },
    Rule { row: "K4", judge: no_restore },
    Rule { row: "K4", judge: runs },
    Rule { row: "K5", judge: not_protected },
    Rule { row: "K5", judge: not_held_awake },
    Rule { row: "K6", judge: is_well_formed },
    Rule { row: "K7", judge: stays_paused },
    Rule { row: "K8", judge: changes_at_the_wake },
    Rule { row: "K9", judge: no_restore_while_asleep },
];

fn annotation(key: &str) -> String {
    format!("metadata.annotations[{key}]")
}

/// K1
fn state_exists(change: &Change<'_, Cluster>) -> Verdict {
    match change.new_annotation(keys::POWER_STATE) {
        None | Some("Running" | HIBERNATING) => Verdict::Allow,
        Some(_) if !change.alters_annotation(keys::POWER_STATE) => Verdict::Allow,
        Some(other) => Verdict::deny(
            Fault::NotSupported,
            annotation(keys::POWER_STATE),
            format!("found {other:?}, must be \"Running\" or \"Hibernating\""),
        ),
    }
}

/// K2
fn not_being_deleted(change: &Change<'_, Cluster>) -> Verdict {
    if !change.goes_to_sleep() || change.new.metadata.deletion_timestamp.is_none() {
        return Verdict::Allow;
    }
    Verdict::deny(
        Fault::Forbidden,
        "metadata.deletionTimestamp",
        "the cluster is being deleted and cannot be put to sleep",
    )
}

/// K3
fn has_machines(change: &Change<'_, Cluster>) -> Verdict {
    match change.new.provider() {
        _ if !change.goes_to_sleep() => Verdict::Allow,
        provider @ ("bringyourown" | "edge") => Verdict::deny(
            Fault::Forbidden,
            "spec.cloud.providerName",
            format!("found {provider}: KKP can neither remove nor create its machines"),
        ),
        "baremetal" => Verdict::warn("provider baremetal: the machines stop serving, but no cloud cost is saved"),
        _ => Verdict::Allow,
    }
}

/// K4. A sleep that is under way is paused by us.
fn not_paused(change: &Change<'_, Cluster>) -> Verdict {
    if !change.goes_to_sleep() || !change.new.paused() || change.new.is_asleep() {
        return Verdict::Allow;
    }
    Verdict::deny(
        Fault::Forbidden,
        "spec.pause",
        "another client has paused the cluster: set spec.pause to false first",
    )
}

/// K4
fn no_restore(change: &Change<'_, Cluster>) -> Verdict {
    if !change.goes_to_sleep() || change.new_annotation(keys::ACTIVE_RESTORE).is_none() {
        return Verdict::Allow;
    }
    Verdict::deny(
        Fault::Forbidden,
        annotation(keys::ACTIVE_RESTORE),
        "an EtcdRestore is under way: wait until it has ended",
    )
}

/// K4
fn runs(change: &Change<'_, Cluster>) -> Verdict {
    let phase = change.new.phase();
    if !change.goes_to_sleep() || change.new.is_asleep() {
        return Verdict::Allow;
    }
    if phase != "Running" {
        return Verdict::deny(Fault::Forbidden, "status.phase", format!("found {phase:?}, must be \"Running\""));
    }
    if change.new.is_up_to_date() {
        return Verdict::Allow;
    }
    Verdict::deny(
        Fault::Forbidden,
        "status.conditions.SeedResourcesUpToDate",
        "not True: KKP is still at work, and a pause now would hold up its updates of other clusters",
    )
}

/// K5
fn not_protected(change: &Change<'_, Cluster>) -> Verdict {
    if change.goes_to_sleep() { protection::judge(change) } else { Verdict::Allow }
}

/// K5. The hold as it was counts, too.
fn not_held_awake(change: &Change<'_, Cluster>) -> Verdict {
    let old = hold(|key| change.old_annotation(key), change.now);
    let held = match hold(|key| change.new_annotation(key), change.now) {
        _ if !change.goes_to_sleep() => return Verdict::Allow,
        Hold::None => old,
        new => new,
    };
    let message = match held {
        Hold::None => return Verdict::Allow,
        Hold::Malformed { text, .. } => {
            format!("found {text:?}, which is not a time: the hold has no end; correct or remove it first")
        }
        Hold::Until { until, by } => {
            let (until, by) = (format::seconds(until), by.unwrap_or(NAMELESS));
            format!("held awake until {until} by {by}: wait, or remove the annotation in a separate write first")
        }
    };
    Verdict::deny(Fault::Forbidden, annotation(common::HOLD_AWAKE_UNTIL), message)
}

/// K6
fn is_well_formed(change: &Change<'_, Cluster>) -> Verdict {
    let wrong = ANNOTATIONS.iter().find_map(|(key, holds)| {
        let text = change.new_annotation(key).filter(|_| change.alters_annotation(key))?;
        let (fits, right) = match holds {
            Holds::Time => (format::time(text).is_some(), "an RFC 3339 time such as 2026-11-21T18:00:00Z"),
            Holds::Boolean => (format::boolean(text).is_some(), "\"true\" or \"false\""),
        };
        (!fits).then(|| Verdict::deny(Fault::Invalid, annotation(key), format!("found {text:?}, must be {right}")))
    });
    wrong.unwrap_or(Verdict::Allow)
}

/// K7. KKP would raise everything but etcd, and the cluster would stay broken (row 8).
fn stays_paused(change: &Change<'_, Cluster>) -> Verdict {
    let unpauses = change.old.as_ref().is_some_and(Cluster::paused) && !change.new.paused();
    let has_reason = change.user.username == change.settings.controller
        || change.new_annotation(keys::ACTIVE_RESTORE).is_some()
        || change.new.metadata.deletion_timestamp.is_some();
    if !unpauses || !change.stays_asleep() || has_reason {
        return Verdict::Allow;
    }
    let message = "the cluster sleeps: KKP alone would not bring etcd back. Wake it with kubectl hibernate resume cluster/NAME, or by \
                   annotation hibernate.sh/power-state=Running";
    Verdict::deny(Fault::Forbidden, "spec.pause", message)
}

/// K8
fn changes_at_the_wake(change: &Change<'_, Cluster>) -> Verdict {
    let before = change.old.as_ref().map(Cluster::version_and_datacenter);
    if !change.stays_asleep() || before == Some(change.new.version_and_datacenter()) {
        return Verdict::Allow;
    }
    Verdict::warn("the cluster sleeps: KKP applies a new version or datacenter only when it wakes")
}

/// K9
fn no_restore_while_asleep(change: &Change<'_, Cluster>) -> Verdict {
    let added =
        change.old_annotation(keys::ACTIVE_RESTORE).is_none() && change.new_annotation(keys::ACTIVE_RESTORE).is_some();
    if !added || !change.stays_asleep() {
        return Verdict::Allow;
    }
    Verdict::deny(
        Fault::Forbidden,
        annotation(keys::ACTIVE_RESTORE),
        "the cluster sleeps, and an EtcdRestore deletes its etcd volumes: wake it first",
    )
}
