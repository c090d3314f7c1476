//! Fields that cannot be read, in every kind: each is the denial of that field, hides nothing else, and stands in the
//! way of no wake.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by them")]

mod common;

use common::*;
use serde_json::{Value, json};

const CLAIM: &str = "/metadata/annotations/hibernate.sh~1rollout";
const BY: &str = "/metadata/annotations/hibernate.sh~1requested-by";
const VOLUMES: Kind = ("", "persistentvolumeclaims", "PersistentVolumeClaim");
const SERVICES: Kind = ("", "services", "Service");

fn long() -> Value {
    json!("1h".repeat(2_500))
}

/// Group, resource and kind.
type Kind = (&'static str, &'static str, &'static str);

/// Makes an object in a power state.
type Made = fn(&str) -> Value;

/// Where to write what, and which field the denial names.
type Case = (&'static str, Value, &'static str);

fn of_hive() -> Vec<Case> {
    vec![
        ("/spec/hibernateAfter", long(), "spec.hibernateAfter"),
        ("/spec/installed", json!("yes"), "spec.installed"),
        ("/spec/platform", json!(7), "spec.platform"),
        ("/spec/clusterMetadata/infraID", long(), "spec.clusterMetadata.infraID"),
        ("/spec/clusterMetadata", long(), "spec.clusterMetadata"),
        (
            "/spec/clusterMetadata/adminKubeconfigSecretRef",
            json!({ "name": long() }),
            "spec.clusterMetadata.adminKubeconfigSecretRef.name",
        ),
        ("/spec/clusterPoolRef", json!({ "poolName": long() }), "spec.clusterPoolRef.poolName"),
        ("/spec/clusterPoolRef", json!({ "claimName": long() }), "spec.clusterPoolRef.claimName"),
        ("/status/installedTimestamp", long(), "status.installedTimestamp"),
    ]
}

fn of_kkp() -> Vec<Case> {
    vec![
        ("/spec/pauseReason", long(), "spec.pauseReason"),
        ("/spec/version", long(), "spec.version"),
        ("/spec/cloud/dc", long(), "spec.cloud.dc"),
        ("/spec/cloud/providerName", long(), "spec.cloud.providerName"),
        ("/status/phase", long(), "status.phase"),
        ("/status/conditions/ClusterDehydrated/reason", long(), "status.conditions.ClusterDehydrated.reason"),
    ]
}

/// Every kind that sleeps: how an object of it is made in a power state, and its cases.
fn kinds() -> [(Kind, Made, Vec<Case>); 2] {
    [(CLUSTERS, cluster as Made, of_hive()), (KKP_CLUSTERS, kkp_cluster, of_kkp())]
}

fn causes(response: &Value) -> Vec<String> {
    let causes = response["status"]["details"]["causes"].as_array().cloned().unwrap_or_default();
    causes.iter().map(|cause| cause["field"].as_str().unwrap().to_owned()).collect()
}

/// The object after the mutating webhook, and the answer of the validating one.
async fn admitted(kind: Kind, old: &Value, new: &Value) -> (Value, Value) {
    let mutated = ask("/mutate", &request(kind, "UPDATE", Some(old), Some(new))).await;
    assert_eq!(mutated["allowed"], true, "{mutated}");
    let mut object = new.clone();
    json_patch::patch(&mut object, &patch_of(&mutated)).unwrap();
    let judged = ask("/validate", &request(kind, "UPDATE", Some(old), Some(&object))).await;
    (object, judged)
}

#[tokio::test]
async fn a_field_that_cannot_be_read_is_denied_by_its_name_and_hides_no_forgery() {
    for (kind, made, cases) in kinds() {
        for (pointer, value, field) in cases {
            let forged = |state: &str| with(with(made(state), pointer, value.clone()), BY, json!("mallory"));
            // With the change of state, and without one.
            for (old, new) in [(made(""), forged("Hibernating")), (made("Running"), forged("Running"))] {
                let (object, judged) = admitted(kind, &old, &new).await;
                let stamped = object.pointer(BY) == Some(&json!("alice"));
                let causes = causes(&judged);
                assert!(causes.iter().any(|cause| cause == field), "{field}: {judged}");
                assert!(stamped || causes.iter().any(|cause| cause.contains("requested-by")), "{field}: {judged}");
                assert_eq!(stamped, old == made(""), "{field}");
                let detail = judged["status"]["message"].as_str().unwrap();
                assert!(
                    detail.contains(&format!("{field}: found ")) && detail.contains("which cannot be read: "),
                    "{detail}"
                );
                assert!(detail.len() < 2_000, "{}", detail.len());
            }
        }
    }
}

#[tokio::test]
async fn a_wake_is_never_refused_for_what_cannot_be_read_and_its_forgeries_are_put_back() {
    for (kind, made, cases) in kinds() {
        let every = cases
            .iter()
            .filter(|case| case.0 != "/spec/clusterMetadata")
            .fold(made("Running"), |object, (pointer, value, _)| with(object, pointer, value.clone()));
        let each = cases.iter().map(|(pointer, value, _)| with(made("Running"), pointer, value.clone()));
        for new in each.chain([every]) {
            let new =
                with(with(new, BY, json!("mallory")), "/metadata/annotations/hibernate.sh~1hold-awake-by", json!("m"));
            let new = if kind == CLUSTERS { with(new, CLAIM, json!("forged")) } else { new };
            let (object, judged) = admitted(kind, &made("Hibernating"), &new).await;
            assert_eq!(judged["allowed"], true, "{judged}");
            assert!(judged["warnings"].to_string().contains("which cannot be read"), "{judged}");
            assert_eq!(object.pointer(BY), Some(&json!("alice")));
            assert_eq!(object.pointer("/metadata/annotations/hibernate.sh~1hold-awake-by"), None);
            assert_eq!(object.pointer(CLAIM), None);
        }
    }
}

/// What is stored already blocks no write but the way into sleep: Hive's and KKP's own controllers go on.
#[tokio::test]
async fn what_is_stored_blocks_nothing_but_sleep() {
    for (kind, made, cases) in kinds() {
        for (pointer, value, field) in cases {
            let stored = |state: &str| with(made(state), pointer, value.clone());
            for state in ["Running", "Hibernating"] {
                let protect = "/metadata/annotations/hibernate.sh~1protected";
                let (_, judged) = admitted(kind, &stored(state), &with(stored(state), protect, json!("true"))).await;
                assert_eq!(judged["allowed"], true, "{field}: {judged}");
                let mended = with(made(state), protect, json!("true"));
                let (_, judged) = admitted(kind, &stored(state), &mended).await;
                assert_eq!(judged["allowed"], true, "{field}: {judged}");
            }
            let (_, judged) = admitted(kind, &stored("Running"), &stored("Hibernating")).await;
            assert_eq!(causes(&judged), [field], "{judged}");
            let (_, judged) = admitted(kind, &stored("Hibernating"), &stored("Running")).await;
            assert_eq!(judged["allowed"], true, "{field}: {judged}");
        }
    }
}

/// The state itself: what is no wake for certain is none.
#[tokio::test]
async fn a_state_that_cannot_be_read_is_no_wake() {
    for (kind, made, pointer, field) in [
        (CLUSTERS, cluster as Made, "/spec/powerState", "spec.powerState"),
        (CLUSTERS, cluster, "/spec", "spec"),
        (
            KKP_CLUSTERS,
            kkp_cluster,
            "/metadata/annotations/hibernate.sh~1power-state",
            "metadata.annotations[hibernate.sh/power-state]",
        ),
    ] {
        for value in [json!(7), json!(true)] {
            let new = with(made("Hibernating"), pointer, value);
            let judged = ask("/validate", &request(kind, "UPDATE", Some(&made("Hibernating")), Some(&new))).await;
            assert!(causes(&judged).contains(&field.to_owned()), "{judged}");
        }
    }
}

/// Annotations that cannot be read at all are denied, by the mutating endpoint, too, unless the write is a wake.
#[tokio::test]
async fn annotations_that_cannot_be_read_are_denied_but_to_a_wake() {
    let odd = |object: Value| with(object, "/metadata/annotations", json!(["hibernate.sh/requested-by"]));
    for (kind, old, new, allowed) in [
        (CLUSTERS, cluster("Running"), odd(cluster("Running")), false),
        (CLUSTERS, cluster(""), odd(cluster("Hibernating")), false),
        (CLUSTERS, cluster("Hibernating"), odd(cluster("Running")), true),
        (KKP_CLUSTERS, kkp_cluster("Hibernating"), odd(kkp_cluster("Running")), false),
        (DEPLOYMENTS, deployment(3), odd(deployment(0)), false),
    ] {
        for path in ["/mutate", "/validate"] {
            let response = ask(path, &request(kind, "UPDATE", Some(&old), Some(&new))).await;
            // A workload is only mutated.
            let expected = allowed || (kind == DEPLOYMENTS && path == "/validate");
            assert_eq!(response["allowed"], expected, "{path}: {response}");
            assert_eq!(response["patch"], Value::Null);
        }
    }
}

/// KKP: whoever lengthens the reason of the pause must not be able to end it (K7), or to restore (K9).
#[tokio::test]
async fn a_cluster_that_may_be_asleep_stays_asleep() {
    let reason = json!(format!("dehydrated by kubectl-hibernate{}", "x".repeat(5_000)));
    let old = with(with(kkp_cluster("Hibernating"), "/spec/pauseReason", reason), "/status/conditions", json!({}));
    let restore = "/metadata/annotations/kubermatic.k8c.io~1active-restore";
    let sleep = with(old.clone(), "/spec/pauseReason", json!("dehydrated by kubectl-hibernate"));
    let sleep = with(sleep, "/metadata/annotations/hibernate.sh~1paused-by-sleep", json!("u".repeat(5_000)));
    let woken = with(sleep.clone(), "/spec/pause", json!(false));
    let judged = ask("/validate", &update(KKP_CLUSTERS, &sleep, &woken)).await;
    assert_eq!(causes(&judged), ["spec.pause"], "{judged}");
    for (new, field) in [
        (with(old.clone(), "/spec/pause", json!(false)), "spec.pause"),
        (with(old.clone(), restore, json!("r")), "metadata.annotations[kubermatic.k8c.io/active-restore]"),
    ] {
        let judged = ask("/validate", &update(KKP_CLUSTERS, &old, &new)).await;
        assert_eq!(causes(&judged), [field], "{judged}");
    }
    let deleted = ask("/validate", &request(KKP_CLUSTERS, "DELETE", Some(&old), None)).await;
    assert!(deleted.to_string().contains("the cluster is dehydrated"), "{deleted}");
}

#[tokio::test]
async fn a_volume_that_cannot_be_read_is_kept_until_a_human_turns_the_key() {
    let labels: serde_json::Map<_, _> = (0..1_001).map(|number| (format!("l{number}"), json!(""))).collect();
    let owner = |name: Value| {
        let kind = json!({ "apiVersion": "apps.foundationdb.org/v1beta2", "kind": "FoundationDBCluster" });
        let mut owner = kind;
        owner["name"] = name;
        owner["uid"] = json!("u1");
        owner
    };
    let object = |owner: &Value, labels: &Value, annotations: &Value| json!({ "metadata": { "name": "v", "namespace": "db", "uid": "v1", "labels": labels, "annotations": annotations, "ownerReferences": [owner] } });
    let key = json!({ "hibernate.sh/release": "v1" });
    for kind in [VOLUMES, SERVICES] {
        for (owner, labels) in [(owner(long()), json!({})), (owner(json!("prod")), json!(labels))] {
            let answer = async |object: Value| ask("/validate", &request(kind, "DELETE", Some(&object), None)).await;
            assert_eq!(answer(object(&owner, &labels, &json!({}))).await["allowed"], false, "{kind:?}");
            assert_eq!(answer(object(&owner, &labels, &key)).await["allowed"], true, "{kind:?}: S3");
            let mut leaving = object(&owner, &labels, &json!({}));
            leaving["metadata"]["deletionTimestamp"] = json!("2026-11-21T18:00:00Z");
            assert_eq!(answer(leaving).await["allowed"], true, "{kind:?}: S2");
        }
    }
}

/// C7
#[tokio::test]
async fn a_recorded_count_survives_a_workload_that_cannot_be_read() {
    let record = "/metadata/annotations";
    let old = with(deployment(0), record, json!({ "hibernate.sh/replicas": "3" }));
    let forged = with(with(old.clone(), record, json!({ "hibernate.sh/replicas": "9" })), "/spec/replicas", json!("0"));
    let (object, _) = admitted(DEPLOYMENTS, &old, &forged).await;
    assert_eq!(object["metadata"]["annotations"]["hibernate.sh/replicas"], "3");
}

/// HTTP 400 would let every entry under failurePolicy Ignore pass.
#[tokio::test]
async fn a_user_with_a_long_name_is_judged_like_any_other() {
    let name = "u".repeat(5_000);
    let ask_as = async |path: &str, old: &Value, new: &Value| {
        let mut request = update(CLUSTERS, old, new);
        request["userInfo"]["username"] = json!(name);
        ask(path, &request).await
    };
    let forged = with(cluster("Running"), BY, json!("mallory"));
    let judged = ask_as("/validate", &cluster("Running"), &forged).await;
    assert_eq!(causes(&judged), ["metadata.annotations[hibernate.sh/requested-by]"], "{judged}");
    let mut sleep = cluster("Hibernating");
    let stamped = ask_as("/mutate", &cluster("Running"), &sleep).await;
    json_patch::patch(&mut sleep, &patch_of(&stamped)).unwrap();
    assert!(sleep.pointer(BY).unwrap().as_str().unwrap().starts_with("uuu"), "{stamped}");
    assert_eq!(ask_as("/validate", &cluster("Running"), &sleep).await["allowed"], true);
}
