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
            Write::Act { effect, .. } => format!("{effect:?}"),
            Write::Apply { kind: Kind::View, status: Some(status), .. } => status["result"].to_string(),
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

#[test]
fn rule_g8() {
    let mut policy = child("a", "enforce", Some("NonCompliant"));
    let subscription = json!({ "kind": "Subscription", "metadata": { "name": "ptp", "namespace": "o" } });
    let template =
        json!([{ "objectDefinition": { "spec": { "object-templates": [{ "objectDefinition": subscription }] } } }]);
    policy.1["spec"]["policy-templates"] = template;
    let view = |name: &str, resource: &str, object: &str| {
        let scope = json!({ "resource": resource, "name": object, "namespace": "o" });
        (Kind::View, json!({ "metadata": { "name": name, "namespace": "a" }, "spec": { "scope": scope } }))
    };
    let action = |version: &str, namespace: &str| {
        let template = json!({
            "metadata": { "name": "install-ptp", "resourceVersion": version },
            "spec": { "approved": true, "clusterServiceVersionNames": ["install-ptp.v1"] },
        });
        let kube = json!({ "resource": "installplan", "namespace": namespace, "template": template });
        let spec = json!({ "actionType": "Update", "kube": kube });
        (Kind::Action, json!({ "metadata": { "name": "install-ptp", "namespace": "a" }, "spec": spec }))
    };
    let called_for = |objects: &[(Kind, Value)], knobs: &Knobs| {
        let mut found = called_for(objects, knobs);
        found.retain(|one| !one.starts_with("propagate"));
        found
    };
    let knobs = Knobs::default();
    let read = |objects: &[(Kind, Value)], knobs: &Knobs, part: &str| {
        let found = called_for(objects, knobs);
        assert!(found.len() == 1 && found[0].contains(part), "{found:?}");
    };
    let (subscription, plan) =
        (view("s", "Subscription.operators.coreos.com", "ptp"), view("i", "InstallPlan", "install-ptp"));
    read(&[policy.clone(), subscription.clone()], &knobs, r#""state":"UpgradePending""#);
    read(&[policy.clone(), plan.clone()], &knobs, r#""approved":false"#);
    read(&[policy.clone(), view("i", "InstallPlan", "install-other")], &knobs, "null");
    read(&[child("a", "inform", Some("NonCompliant")), plan.clone()], &knobs, "null");
    read(&[policy.clone(), action("1", "o")], &knobs, r#"act a/install-ptp: Approve("install-ptp")"#);
    for refused in [action("2", "o"), action("1", "default")] {
        assert_eq!(called_for(&[policy.clone(), refused], &knobs), ["act a/install-ptp: Fail"]);
    }
    let asleep = Knobs { asleep: ["a".to_owned()].into(), ..Knobs::default() };
    assert_eq!(called_for(&[policy.clone(), subscription, action("1", "o")], &asleep), [""; 0]);
    let approved = Knobs { approved: [("a".to_owned(), "install-ptp".to_owned())].into(), ..Knobs::default() };
    assert_eq!(called_for(&[policy.clone()], &approved), ["comply a/ns.p: Compliant"]);
    let mut ended = action("1", "o");
    ended.1["status"] = json!({ "conditions": [] });
    assert_eq!(called_for(&[policy.clone(), ended], &approved)[1], "collect a/install-ptp: gone");
    assert!(called_for(&[policy, plan], &approved)[1].contains(r#""resourceVersion":"2""#));
}

#[test]
fn actions_create_and_delete_objects_and_jobs_end() {
    let action = |name: &str, type_: &str, kube: Value| {
        let spec = json!({ "actionType": type_, "kube": kube });
        (Kind::Action, json!({ "metadata": { "name": name, "namespace": "a" }, "spec": spec }))
    };
    let create = |name: &str, resource: &str, metadata: Value| {
        action(name, "Create", json!({ "resource": resource, "template": { "metadata": metadata } }))
    };
    let namespace = || create("ns", "namespace", json!({ "name": "o" }));
    let job = || create("job", "job", json!({ "name": "pull", "namespace": "o" }));
    let mut knobs = Knobs { stuck: [("a".to_owned(), "other".to_owned())].into(), ..Knobs::default() };
    let mut act = |objects: &[(Kind, Value)]| {
        let mut words = Vec::new();
        for change in arrows::changes(&store::View::made(objects), &knobs.clone()) {
            match change.write {
                Write::Act { effect, .. } => {
                    words.push(format!("{effect:?}").split(['(', ',']).next().unwrap().to_owned());
                    effect.carry_out("a", &mut knobs);
                }
                Write::Apply { status: Some(status), .. } => words.push(status["result"]["status"].to_string()),
                _ => {}
            }
        }
        words
    };
    let scope = json!({ "resource": "jobs", "name": "pull", "namespace": "o" });
    let view =
        || (Kind::View, json!({ "metadata": { "name": "v", "namespace": "a" }, "spec": { "scope": scope.clone() } }));
    assert_eq!(act(&[job()]), ["Fail"], "without its namespace");
    assert_eq!(act(&[namespace()]), ["Create"]);
    assert_eq!(act(&[namespace()]), ["Fail"], "it exists");
    assert_eq!(act(&[job()]), ["Create"]);
    assert_eq!(act(&[view()]), [r#"{"active":1}"#, "Create"], "and it ends");
    assert_eq!(act(&[view()]), [r#"{"succeeded":1}"#]);
    assert_eq!(act(&[create("job", "job", json!({ "name": "other", "namespace": "o" }))]), ["Create"]);
    assert_eq!(act(&[]), ["Create"], "it fails");
    assert_eq!(act(&[action("gone", "Delete", json!({ "resource": "namespace", "name": "o" }))]), ["Delete"]);
    assert_eq!(act(&[view()]), ["null"], "with everything in it");
}
