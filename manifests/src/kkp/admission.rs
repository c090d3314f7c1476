//! The entries for KKP's Clusters. Each has conditions on exactly what it judges: KKP writes its Clusters all the time,
//! and none of those writes may wait for us.

use serde_json::Value;
use shared::admission::cel::{annotation_changes, annotations_dropped, condition, list, not};
use shared::admission::stamp::STAMPS;
use shared::annotation::keys as common;
use shared::kkp::admission::{ANNOTATIONS, HIBERNATING};
use shared::kkp::api::NAMESPACE_PREFIX;
use shared::kkp::keys;
use shared::kkp::phase::Phase;

use crate::entry::{ClientConfig, Entry, FAIL, IGNORE, configurations, entry, is_exempt_user, rule};
use crate::{admission, fdb};

/// The webhook configurations of the default installation with the entries for KKP.
pub fn webhook_configurations(client: &ClientConfig) -> Vec<Value> {
    let judging = [admission::validating(), fdb::validating(), validating()].concat();
    configurations(client, &judging, &[admission::mutating(), mutating()].concat())
}

pub(crate) fn validating() -> Vec<Entry> {
    let exempt = is_exempt_user();
    vec![
        entry(
            "kkp-into-sleep.hibernate.sh",
            FAIL,
            clusters(&["CREATE", "UPDATE"]),
            vec![condition("into-sleep", into_sleep()), condition("not-exempt", not(&exempt))],
        ),
        // An EtcdRestore deletes the etcd volumes of a sleeping cluster.
        entry(
            "kkp-active-restore.hibernate.sh",
            FAIL,
            clusters(&["UPDATE"]),
            vec![condition("adds-active-restore", adds_restore()), condition("stays-asleep", stays_asleep())],
        ),
        entry(
            "kkp.hibernate.sh",
            IGNORE,
            clusters(&["CREATE", "UPDATE"]),
            vec![
                condition("judged-fields-change", judged_fields_change()),
                // What the entries above take is not asked twice.
                condition("not-into-sleep-or-exempt", format!("{}\n|| {exempt}", not(&into_sleep()))),
                condition(
                    "no-active-restore-or-awake",
                    format!("oldObject == null || {} || {}", not(&adds_restore()), not(&stays_asleep())),
                ),
            ],
        ),
        entry("kkp-delete.hibernate.sh", IGNORE, clusters(&["DELETE"]), vec![condition("asleep", deletes_sleeping())]),
    ]
}

pub(crate) fn mutating() -> Vec<Entry> {
    let changes = [keys::POWER_STATE, common::HOLD_AWAKE_UNTIL].map(annotation_changes).join("\n|| ");
    let changes = format!("{changes}\n|| {}", annotations_dropped(STAMPS));
    let stamped = vec![condition("power-state-hold-or-stamp-changes", changes)];
    let recorded =
        vec![condition("is-record", is_record()), condition("request-or-stamp-changes", request_or_stamp_changes())];
    let records = vec![rule("Namespaced", "", &["v1"], &["CREATE", "UPDATE"], &["configmaps"])];
    vec![
        entry("kkp-stamp.hibernate.sh", IGNORE, clusters(&["CREATE", "UPDATE"]), stamped),
        entry("kkp-stamp-record.hibernate.sh", IGNORE, records, recorded),
    ]
}

/// The `ConfigMap` is the record of a Cluster.
fn is_record() -> String {
    let (record, _) = keys::RECORD;
    format!(
        "object.metadata.?name.orValue('') == '{record}'
&& request.?namespace.orValue('').startsWith('{NAMESPACE_PREFIX}')"
    )
}

fn request_or_stamp_changes() -> String {
    let stamped = [keys::POWER_STATE, keys::POWER_STATE_AT, common::REQUESTED_BY, common::REQUESTED_AT];
    stamped.map(annotation_changes).join("\n|| ")
}

/// Writes of the object itself. `clusters/status` is another resource and stays out.
fn clusters(operations: &[&str]) -> Vec<Value> {
    vec![rule("Cluster", "kubermatic.k8c.io", &["v1"], operations, &["clusters"])]
}

fn wants_sleep(object: &str) -> String {
    format!("{object}.metadata.?annotations[?'{}'].orValue('') == '{HIBERNATING}'", keys::POWER_STATE)
}

/// The write makes the cluster want to sleep, and it did not before.
fn into_sleep() -> String {
    format!("{}\n&& (oldObject == null || {})", wants_sleep("object"), not(&wants_sleep("oldObject")))
}

/// The cluster is paused by us, or about to be: as the rules see it.
fn asleep() -> String {
    let condition =
        |field: &str| format!("oldObject.?status.?conditions[?'{}'].?{field}.orValue('')", keys::DEHYDRATED);
    format!(
        "({} == 'True'
  || {} in {}
  || (oldObject.?spec.?pause.orValue(false) && oldObject.?spec.?pauseReason.orValue('').startsWith('{}')
  && oldObject.metadata.?annotations[?'{}'].hasValue()
  && !({} in {})))",
        condition("status"),
        condition("reason"),
        list(&Phase::ASLEEP.map(Into::into)),
        keys::PAUSED_BY_US,
        keys::PAUSED_BY_SLEEP,
        condition("reason"),
        list(&Phase::WAKING.map(Into::into))
    )
}

fn stays_asleep() -> String {
    format!("{}\n&& {}", wants_sleep("object"), asleep())
}

fn deletes_sleeping() -> String {
    format!("{}\n&& !has(oldObject.metadata.deletionTimestamp)\n&& {}", wants_sleep("oldObject"), asleep())
}

fn adds_restore() -> String {
    let key = keys::ACTIVE_RESTORE;
    format!(
        "object.metadata.?annotations[?'{key}'].hasValue()
&& !oldObject.metadata.?annotations[?'{key}'].hasValue()"
    )
}

/// An annotation of ours is another one than before, or the sleeping cluster is un-paused or changed in what KKP
/// applies at its wake.
fn judged_fields_change() -> String {
    let applied = ["?version", "?cloud.?dc", "?cloud.?providerName"];
    let changes = applied.map(|field| format!("object.?spec.{field} != oldObject.?spec.{field}")).join("\n  || ");
    format!(
        "{}.exists(key,
  object.metadata.?annotations[?key] != (oldObject == null ? optional.none() : oldObject.metadata.?annotations[?key]))
|| (oldObject != null
  && {}
  && ((oldObject.?spec.?pause.orValue(false) && !object.?spec.?pause.orValue(false))
  || {changes}))",
        list(ANNOTATIONS),
        stays_asleep()
    )
}
