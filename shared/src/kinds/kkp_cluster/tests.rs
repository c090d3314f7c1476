use serde_json::{Value, json};

use super::*;
use crate::kkp::data::{Outcome, STATE, State};

/// A Cluster with these annotations, and our condition with this reason and message.
pub(crate) fn cluster(annotations: &Value, detail: Option<(&str, &str)>) -> Value {
    let condition = detail.map(|(reason, message)| {
        json!({
            "status": if reason == "Dehydrated" { "True" } else { "False" }, "reason": reason, "message": message,
            "kubermaticVersion": "v", "lastHeartbeatTime": "2026-11-22T18:00:00Z", "lastTransitionTime": "2026-11-22T17:00:00Z",
        })
    });
    let conditions = condition.map_or_else(|| json!({}), |condition| json!({ keys::DEHYDRATED: condition }));
    json!({
        "apiVersion": "kubermatic.k8c.io/v1", "kind": "Cluster",
        "metadata": { "name": "abc", "uid": "u-1", "resourceVersion": "7", "annotations": annotations },
        "spec": { "humanReadableName": "shop", "version": "1.34.1", "cloud": { "dc": "eu", "providerName": "aws" } },
        "status": { "phase": "Running", "namespaceName": "cluster-abc", "conditions": conditions },
    })
}

/// With the state that the controller writes beside our condition.
pub(super) fn stands(mut object: Value, outcome: Outcome) -> Value {
    let conditions = &mut object["status"]["conditions"];
    let (reason, at) = (&conditions[keys::DEHYDRATED]["reason"], &conditions[keys::DEHYDRATED]["lastHeartbeatTime"]);
    let phase = reason.as_str().unwrap().parse().ok();
    let state = State { phase, outcome }.condition(at.as_str().unwrap());
    conditions[STATE] = serde_json::to_value(state).unwrap();
    object
}

/// `cluster` alone means KKP's; the clusters of other systems have groups of their own, and are no targets.
#[test]
fn a_word_means_kkps_cluster_or_nothing() {
    for (word, named) in [
        ("cluster", true),
        ("Clusters", true),
        ("cluster.kubermatic.k8c.io", true),
        ("clusters.v1.kubermatic.k8c.io", true),
        ("cluster.cluster.x-k8s.io", false),
        ("clusters.v1beta1.cluster.x-k8s.io", false),
        ("managedcluster", false),
        ("cd", false),
    ] {
        assert_eq!(KKP_CLUSTER.kind.is_named(word), named, "{word}");
    }
}
