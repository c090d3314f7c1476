//! The entries for KKP's Clusters. Each has conditions on exactly what it judges: KKP writes its Clusters all the time,
//! and none of those writes may wait for us.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhook,
    ValidatingWebhookConfiguration,
};
use serde_json::{Value, json};
use shared::admission::cel::{annotation_changes, condition, is_exempt_user, list, not};
use shared::annotation::keys as common;
use shared::kkp::admission::{ANNOTATIONS, ASLEEP, HIBERNATING, WAKING};
use shared::kkp::api::NAMESPACE_PREFIX;
use shared::kkp::keys;

use crate::entry::{ClientConfig, FAIL, IGNORE, by_name, mutating_entry, rule, validating_entry};
use crate::{admission, fdb};

/// The webhook configurations of the default installation with the entries for KKP.
pub fn webhook_configurations(client: &ClientConfig) -> Vec<Value> {
    let (mut judging, mut changing) = (admission::validating(client), admission::mutating(client));
    judging.webhooks.get_or_insert_default().extend([fdb::validating(client), validating(client)].concat());
    changing.webhooks.get_or_insert_default().extend(mutating(client));
    vec![json!(judging), json!(changing)]
}

/// The patch that adds the entries to the `ValidatingWebhookConfiguration` of the base.
pub(crate) fn validating_patch() -> Value {
    let webhooks = Some(validating(&ClientConfig::Service));
    json!(ValidatingWebhookConfiguration { metadata: by_name(), webhooks })
}

/// The patch that adds the entry to the `MutatingWebhookConfiguration` of the base.
pub(crate) fn mutating_patch() -> Value {
    let webhooks = Some(mutating(&ClientConfig::Service));
    json!(MutatingWebhookConfiguration { metadata: by_name(), webhooks })
}

fn validating(client: &ClientConfig) -> Vec<ValidatingWebhook> {
    let exempt = is_exempt_user();
    vec![
        validating_entry(
            client,
            "kkp-into-sleep.hibernate.sh",
            FAIL,
            clusters(&["CREATE", "UPDATE"]),
            vec![condition("into-sleep", into_sleep()), condition("not-exempt", not(&exempt))],
        ),
        // An EtcdRestore deletes the etcd volumes of a sleeping cluster.
        validating_entry(
            client,
            "kkp-active-restore.hibernate.sh",
            FAIL,
            clusters(&["UPDATE"]),
            vec![condition("adds-active-restore", adds_restore()), condition("stays-asleep", stays_asleep())],
        ),
        validating_entry(
            client,
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
        validating_entry(
            client,
            "kkp-delete.hibernate.sh",
            IGNORE,
            clusters(&["DELETE"]),
            vec![condition("asleep", deletes_sleeping())],
        ),
    ]
}

fn mutating(client: &ClientConfig) -> Vec<MutatingWebhook> {
    let changes = [keys::POWER_STATE, common::HOLD_AWAKE_UNTIL].map(annotation_changes).join("\n|| ");
    let conditions = vec![condition("power-state-or-hold-changes", changes)];
    let rules = vec![clusters(&["CREATE", "UPDATE"])];
    vec![
        mutating_entry(client, "kkp-stamp.hibernate.sh", IGNORE, rules, conditions, None),
        mutating_entry(
            client,
            "kkp-stamp-record.hibernate.sh",
            IGNORE,
            vec![rule("", &["v1"], &["CREATE", "UPDATE"], &["configmaps"])],
            vec![
                condition("is-record", is_record()),
                condition("request-or-stamp-changes", request_or_stamp_changes()),
            ],
            None,
        ),
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
fn clusters(operations: &[&str]) -> RuleWithOperations {
    let rule = rule("kubermatic.k8c.io", &["v1"], operations, &["clusters"]);
    RuleWithOperations { scope: Some("Cluster".to_owned()), ..rule }
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
        list(&ASLEEP.map(Into::into)),
        keys::PAUSED_BY_US,
        keys::PAUSED_BY_SLEEP,
        condition("reason"),
        list(&WAKING.map(Into::into))
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
