//! Writes of KKP's Clusters: what a sleeping one is guarded from, and what KKP itself writes, which reaches nothing of
//! ours.

use anyhow::Result;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, CustomResourceExt as _};
use serde_json::{Value, json};
use shared::annotation::keys as common;
use shared::kkp::api::Cluster;
use shared::kkp::keys;

use super::{Kind, Verb, Write, merge};

pub const INTO_SLEEP: &str = "kkp-into-sleep.hibernate.sh";
pub const RESTORE: &str = "kkp-active-restore.hibernate.sh";
pub const CHANGES: &str = "kkp.hibernate.sh";
pub const DELETE: &str = "kkp-delete.hibernate.sh";
pub const STAMP: &str = "kkp-stamp.hibernate.sh";
pub const RECORD: &str = "kkp-stamp-record.hibernate.sh";

pub const CLUSTER: Kind = Kind("kubermatic.k8c.io", "v1", "Cluster");
const CONFIG_MAP: Kind = Kind("", "v1", "ConfigMap");

fn cluster(name: &str, fields: &Value) -> Value {
    let mut cluster = CLUSTER.object(
        "",
        name,
        &json!({ "spec": {
            "humanReadableName": "shop", "version": "1.34.1", "cloud": { "dc": "eu", "providerName": "aws" },
        } }),
    );
    merge(&mut cluster, fields);
    cluster
}

fn annotated(key: &str, value: impl Into<Value>) -> Value {
    json!({ "metadata": { "annotations": { key: value.into() } } })
}

fn both(mut one: Value, other: &Value) -> Value {
    merge(&mut one, other);
    one
}

/// The definition, and clusters in each state. [`set_status`] adds the conditions.
pub fn stored() -> Vec<Value> {
    let paused = |reason: &str| json!({ "spec": { "pause": true, "pauseReason": reason } });
    let sleep = || annotated(keys::POWER_STATE, "Hibernating");
    let copied = || both(sleep(), &paused("dehydrated by kubectl-hibernate: weekend"));
    let named = annotated(keys::PAUSED_BY_SLEEP, "u-1/2026-11-22T18:00:00Z");
    let asleep = || both(copied(), &named);
    let config_map = |namespace: &str, name: &str| CONFIG_MAP.object(namespace, name, &json!({ "data": { "a": "b" } }));
    vec![
        json!(Cluster::crd()),
        cluster("awake", &json!({})),
        cluster("asleep", &both(asleep(), &annotated("example.com/x", "1"))),
        cluster("draining", &both(sleep(), &annotated(common::REQUESTED_BY, "bob"))),
        // What a restored backup holds: no status.
        cluster("lost", &asleep()),
        cluster("forged", &json!({})),
        // Our reason, and no sleep of ours.
        cluster("copied", &copied()),
        cluster("waking", &both(asleep(), &annotated(keys::POWER_STATE, "Running"))),
        cluster("restoring", &both(asleep(), &annotated(keys::ACTIVE_RESTORE, "r"))),
        cluster("theirs", &both(sleep(), &paused("maintenance"))),
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "cluster-asleep" } }),
        config_map("cluster-asleep", keys::RECORD.0),
        config_map("cluster-asleep", "settings"),
        config_map("plain", keys::RECORD.0),
    ]
}

/// Gives the stored clusters their conditions.
pub async fn set_status(client: &Client) -> Result<()> {
    let clusters: Api<Cluster> = Api::all(client.clone());
    let phases = [
        ("asleep", "Dehydrated"),
        ("draining", "Draining"),
        ("forged", "Dehydrated"),
        ("waking", "Dehydrated"),
        ("restoring", "Dehydrated"),
    ];
    for (name, phase) in phases {
        let condition = json!({
            "status": if phase == "Dehydrated" { "True" } else { "False" }, "reason": phase, "kubermaticVersion": "v",
            "lastHeartbeatTime": "2026-11-22T18:00:00Z",
        });
        let status = json!({ "status": { "phase": "Running", "conditions": { keys::DEHYDRATED: condition } } });
        clusters.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    }
    Ok(())
}

/// All of them.
pub fn writes() -> Vec<Write> {
    let write = |what, user, verb, reaches| Write { what, user, kind: &CLUSTER, namespace: "", verb, reaches };
    let update = |what, name, body, reaches| write(what, "admin", Verb::Patch(name, body), reaches);
    let create = |what, body: &Value, reaches| write(what, "admin", Verb::Create(cluster("new", body)), reaches);
    let delete = |what, name, reaches| write(what, "admin", Verb::Delete(name), reaches);
    let on_record = |what, body, reaches| Write {
        what,
        user: "admin",
        kind: &CONFIG_MAP,
        namespace: "cluster-asleep",
        verb: Verb::Patch(keys::RECORD.0, body),
        reaches,
    };
    let (sleep, wake) = (|| annotated(keys::POWER_STATE, "Hibernating"), || annotated(keys::POWER_STATE, "Running"));
    let (unpause, restore) = (|| json!({ "spec": { "pause": false } }), || annotated(keys::ACTIVE_RESTORE, "r"));
    let version = || json!({ "spec": { "version": "1.35.0" } });
    let label = || json!({ "metadata": { "labels": { "a": "b" } } });
    let finalizers = || json!({ "metadata": { "finalizers": ["kubermatic.k8c.io/cleanup-in-cluster-lb"] } });
    vec![
        create("a cluster is created", &json!({}), &[]),
        create("a sleeping cluster is created", &sleep(), &[INTO_SLEEP, STAMP]),
        create("a protected cluster is created", &annotated(common::PROTECTED, "true"), &[CHANGES]),
        update("an awake cluster gets a label", "awake", label(), &[]),
        update("an awake cluster is paused", "awake", json!({ "spec": { "pause": true } }), &[]),
        update("an awake cluster gets a version", "awake", version(), &[]),
        update("an awake cluster is restored", "awake", restore(), &[]),
        update("an awake cluster is put to sleep", "awake", sleep(), &[INTO_SLEEP, STAMP]),
        update("a state that does not exist", "awake", annotated(keys::POWER_STATE, "asleep"), &[CHANGES, STAMP]),
        update("an awake cluster is protected", "awake", annotated(common::PROTECTED, "true"), &[CHANGES]),
        update("a hold", "awake", annotated(common::HOLD_AWAKE_UNTIL, "2126-01-01T00:00:00Z"), &[CHANGES, STAMP]),
        update("a preflight", "awake", annotated(common::PREFLIGHT_REQUESTED_AT, "2026-11-22T18:00:00Z"), &[CHANGES]),
        update("a sleeping cluster is put to sleep", "asleep", sleep(), &[]),
        update("a sleeping cluster is woken", "asleep", wake(), &[CHANGES, STAMP]),
        update("it is woken by removal", "asleep", annotated(keys::POWER_STATE, Value::Null), &[CHANGES, STAMP]),
        update("it loses all annotations", "asleep", json!({ "metadata": { "annotations": null } }), &[CHANGES, STAMP]),
        update("one loses its stamp", "draining", annotated(common::REQUESTED_BY, Value::Null), &[CHANGES, STAMP]),
        update("one gets another stamp", "draining", annotated(common::REQUESTED_BY, "mallory"), &[CHANGES]),
        update("it is un-paused", "asleep", unpause(), &[CHANGES]),
        update("it is un-paused by removal", "asleep", json!({ "spec": { "pause": null } }), &[CHANGES]),
        update("it is un-paused and woken", "asleep", both(unpause(), &wake()), &[CHANGES, STAMP]),
        update("it gets a version", "asleep", version(), &[CHANGES]),
        update("it gets a datacenter", "asleep", json!({ "spec": { "cloud": { "dc": "us" } } }), &[CHANGES]),
        update("it is restored", "asleep", restore(), &[RESTORE]),
        update("it is restored and un-paused", "asleep", both(restore(), &unpause()), &[RESTORE]),
        update("it is restored and woken", "asleep", both(restore(), &wake()), &[CHANGES, STAMP]),
        // KKP's own: rows 12, 13, 16, 18 and 31, and the dashboard's.
        update("it gets finalizers", "asleep", finalizers(), &[]),
        update("it gets a label", "asleep", label(), &[]),
        update("it gets KKP's annotations", "asleep", annotated("presetInvalidated", "true"), &[]),
        update("it loses annotations of others", "asleep", annotated("example.com/x", Value::Null), &[]),
        update("it gets defaults", "asleep", json!({ "spec": { "exposeStrategy": "NodePort" } }), &[]),
        update(
            "it gets credentials",
            "asleep",
            json!({ "spec": { "cloud": { "aws": { "secretAccessKey": "x" } } } }),
            &[],
        ),
        update("it gets a pause reason", "asleep", json!({ "spec": { "pauseReason": "x" } }), &[]),
        update("it gets our expiry", "asleep", annotated(keys::CERTIFICATES_EXPIRE_AT, "2027-01-01T00:00:00Z"), &[]),
        write("its status", "admin", Verb::PatchStatus("asleep", json!({ "status": { "phase": "Updating" } })), &[]),
        update("without status: it is un-paused", "lost", unpause(), &[CHANGES]),
        update("without status: it is restored", "lost", restore(), &[RESTORE]),
        delete("without status: it is deleted", "lost", &[DELETE]),
        update("restoring: it is un-paused", "restoring", unpause(), &[CHANGES]),
        update("restoring: another one", "restoring", annotated(keys::ACTIVE_RESTORE, "s"), &[]),
        update("restoring: its end", "restoring", annotated(keys::ACTIVE_RESTORE, Value::Null), &[]),
        update("draining: a restore", "draining", restore(), &[]),
        update("draining: a version", "draining", version(), &[]),
        delete("draining: it is deleted", "draining", &[]),
        update("waking: it is un-paused", "waking", unpause(), &[]),
        update("waking: it is restored", "waking", restore(), &[]),
        update("waking: it is put to sleep again", "waking", sleep(), &[INTO_SLEEP, STAMP]),
        delete("waking: it is deleted", "waking", &[]),
        update("without intent: it is restored", "forged", restore(), &[]),
        delete("without intent: it is deleted", "forged", &[]),
        update("paused by others: it is un-paused", "theirs", unpause(), &[]),
        update("paused by others: it is restored", "theirs", restore(), &[]),
        update("paused by others with our reason: it is un-paused", "copied", unpause(), &[]),
        update("paused by others with our reason: it is restored", "copied", restore(), &[]),
        delete("paused by others with our reason: it is deleted", "copied", &[]),
        on_record("a request", annotated(keys::POWER_STATE, "Running"), &[RECORD]),
        on_record("a newer request", annotated(keys::POWER_STATE_AT, "2026-11-22T18:00:00Z"), &[RECORD]),
        on_record("who", annotated(common::REQUESTED_BY, "mallory"), &[RECORD]),
        on_record("when", annotated(common::REQUESTED_AT, "2026-11-22T18:00:00Z"), &[RECORD]),
        on_record("why", annotated(common::REASON, "x"), &[]),
        on_record("the record itself", json!({ "data": { "a": "c" } }), &[]),
        Write { namespace: "plain", ..on_record("elsewhere", annotated(keys::POWER_STATE, "Running"), &[]) },
        Write {
            verb: Verb::Patch("settings", annotated(keys::POWER_STATE, "Running")),
            ..on_record("another ConfigMap", json!({}), &[])
        },
        delete("an awake cluster is deleted", "awake", &[]),
        delete("a sleeping cluster is deleted", "asleep", &[DELETE]),
    ]
}
