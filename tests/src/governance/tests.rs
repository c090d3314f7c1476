//! The rules that no upgrade runs into when it does what it should. G7, G8 and the ends of actions and Jobs are those of
//! the upgrades in `e2e/cgu.rs`.

use serde_json::json;

use super::*;

fn cluster(name: &str) -> (Kind, Value) {
    (Kind::Cluster, json!({ "metadata": { "name": name, "labels": { "name": name } } }))
}

fn placement(name: &str, clusters: &[&str]) -> (Kind, Value) {
    let selector = json!({ "matchExpressions": [{ "key": "name", "operator": "In", "values": clusters }] });
    let spec = json!({ "predicates": [{ "requiredClusterSelector": { "labelSelector": selector } }] });
    (Kind::Placement, json!({ "metadata": { "name": name, "namespace": "ns" }, "spec": spec }))
}

fn set() -> (Kind, Value) {
    (Kind::SetBinding, json!({ "metadata": { "name": "default", "namespace": "ns" } }))
}

fn decision(placement: &str, clusters: &[&str]) -> (Kind, Value) {
    let listed: Vec<Value> = clusters.iter().map(|name| json!({ "clusterName": name })).collect();
    let labels = json!({ "cluster.open-cluster-management.io/placement": placement });
    let metadata = json!({ "name": format!("{placement}-decision-1"), "namespace": "ns", "labels": labels });
    (Kind::Decision, json!({ "metadata": metadata, "status": { "decisions": listed } }))
}

fn binding(placement: &str, enforces: bool) -> (Kind, Value) {
    let mut binding = json!({
        "metadata": { "name": placement, "namespace": "ns" },
        "placementRef": { "name": placement, "kind": "Placement", "apiGroup": "cluster.open-cluster-management.io" },
        "subjects": [{ "name": "p", "kind": "Policy", "apiGroup": "policy.open-cluster-management.io" }],
    });
    if enforces {
        binding["subFilter"] = json!("restricted");
        binding["bindingOverrides"] = json!({ "remediationAction": "enforce" });
    }
    (Kind::Binding, binding)
}

fn root() -> (Kind, Value) {
    (Kind::Policy, json!({ "metadata": { "name": "p", "namespace": "ns" }, "spec": { "remediationAction": "inform" } }))
}

fn child(cluster: &str, action: &str, compliant: Option<&str>) -> (Kind, Value) {
    let labels = json!({ "policy.open-cluster-management.io/root-policy": "ns.p" });
    let mut child = json!({
        "metadata": { "name": "ns.p", "namespace": cluster, "labels": labels }, "spec": { "remediationAction": action },
    });
    if let Some(compliant) = compliant {
        child["status"] = json!({ "compliant": compliant });
    }
    (Kind::Policy, child)
}

/// What is called for: the arrow with the object, and what is written.
fn called_for(objects: &[(Kind, Value)], knobs: &Knobs) -> Vec<String> {
    let shown = |change: Change| {
        let what = match change.write {
            Write::Delete { .. } => "gone".to_owned(),
            Write::Act { .. } => unreachable!("no test has actions"),
            Write::Apply { status: Some(status), .. } => {
                let listed = |field: &str, name: &str| {
                    let all = status[field].as_array().into_iter().flatten();
                    let one = |one: &Value| {
                        format!(
                            "{}={}",
                            one[name].as_str().unwrap_or_default(),
                            one["compliant"].as_str().unwrap_or("-")
                        )
                    };
                    all.map(one).collect::<Vec<_>>().join(" ")
                };
                let words = [
                    listed("decisions", "clusterName"),
                    listed("status", "clustername"),
                    status["conditions"][0]["reason"].as_str().unwrap_or_default().to_owned(),
                    status["compliant"].as_str().unwrap_or_default().to_owned(),
                ];
                words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
            }
            Write::Apply { object, .. } => object.unwrap()["spec"]["remediationAction"].as_str().unwrap().to_owned(),
        };
        format!("{}: {what}", change.key)
    };
    arrows::changes(&store::View::made(objects), knobs).into_iter().map(shown).collect()
}

#[test]
fn rules_g1_to_g6() {
    let knobs = Knobs::default();
    let base = || vec![cluster("a"), cluster("b"), root()];
    let with = |more: &[(Kind, Value)]| [base(), more.to_vec()].concat();
    let satisfied = "satisfy ns/all: AllDecisionsScheduled";
    let mut tainted = cluster("a");
    tainted.1["spec"] = json!({ "taints": [{ "key": "cluster.open-cluster-management.io/unreachable" }] });
    let mut wrong = binding("all", false);
    wrong.1["placementRef"]["kind"] = json!("PlacementRule");
    let mut elsewhere = binding("all", false);
    elsewhere.1["metadata"]["namespace"] = json!("other");
    for (what, objects, expected) in [
        ("G4", with(&[placement("all", &["a", "b"]), set()]), vec!["decide ns/all-decision-1: a=- b=-", satisfied]),
        (
            "G4, no set",
            with(&[placement("all", &["a"])]),
            vec!["decide ns/all-decision-1: ", "satisfy ns/all: NoManagedClusterSetBindings"],
        ),
        ("G4, a taint", vec![tainted, placement("all", &["a"]), set()], vec!["decide ns/all-decision-1: ", satisfied]),
        (
            "G1",
            with(&[decision("all", &["a"]), binding("all", false)]),
            vec!["decide ns/all-decision-1: gone", "propagate a/ns.p: inform", "report ns/p: a=- NonCompliant"],
        ),
        ("G3, a wrong reference", with(&[decision("all", &["a"]), wrong]), vec!["decide ns/all-decision-1: gone"]),
        ("G3, another namespace", with(&[decision("all", &["a"]), elsewhere]), vec!["decide ns/all-decision-1: gone"]),
        (
            "G2, alone",
            with(&[decision("some", &["b"]), binding("some", true)]),
            vec!["decide ns/some-decision-1: gone", "report ns/p: b=- Compliant"],
        ),
        (
            "G2",
            with(&[
                decision("all", &["a"]),
                binding("all", false),
                decision("some", &["a"]),
                binding("some", true),
                child("a", "inform", Some("NonCompliant")),
            ]),
            vec![
                "decide ns/all-decision-1: gone",
                "decide ns/some-decision-1: gone",
                "propagate a/ns.p: enforce",
                "report ns/p: a=NonCompliant NonCompliant",
            ],
        ),
        (
            "G6",
            with(&[child("a", "enforce", Some("NonCompliant"))]),
            vec!["propagate a/ns.p: gone", "comply a/ns.p: Compliant"],
        ),
        ("G6, inform", with(&[child("a", "inform", Some("NonCompliant"))]), vec!["propagate a/ns.p: gone"]),
        (
            "G6, at first",
            with(&[child("a", "inform", None)]),
            vec!["propagate a/ns.p: gone", "comply a/ns.p: NonCompliant"],
        ),
    ] {
        assert_eq!(called_for(&objects, &knobs), expected, "{what}");
    }
    let key = ("a".to_owned(), "p".to_owned());
    let enforced = with(&[child("a", "enforce", Some("NonCompliant"))]);
    for knobs in [
        Knobs { asleep: ["a".to_owned()].into(), ..Knobs::default() },
        Knobs { stuck: [key.clone()].into(), ..Knobs::default() },
    ] {
        assert_eq!(called_for(&enforced, &knobs), ["propagate a/ns.p: gone"], "{knobs:?}");
    }
    let knobs = Knobs { compliant: [key].into(), ..Knobs::default() };
    assert_eq!(called_for(&with(&[child("a", "inform", None)]), &knobs)[1], "comply a/ns.p: Compliant");
}
