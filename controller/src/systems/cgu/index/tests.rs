use serde_json::{Value, json};
use shared::cgu::objects;
use shared::cgu::wire::UPGRADE_NAMESPACE;

use super::*;

fn object<K: Object>(namespace: &str, name: &str, labels: &Value, mut body: Value) -> Guarded<K> {
    body["metadata"] = json!({ "namespace": namespace, "name": name, "labels": labels, "resourceVersion": "7" });
    serde_json::from_value(body).unwrap()
}

fn policy(namespace: &str, name: &str, compliant: &str) -> Guarded<PolicyObject> {
    let labels = if name.contains('.') { json!({ ROOT_POLICY: name }) } else { json!({}) };
    let status = json!([{ "clustername": "a", "compliant": compliant }]);
    object(namespace, name, &labels, json!({ "spec": {}, "status": { "status": status, "compliant": compliant } }))
}

#[test]
fn what_a_policy_says_affects_the_upgrades_that_list_it() {
    let mut known = Governance::default();
    let mut set = |namespace: &str, name: &str, compliant: Option<&str>| {
        let (key, object) =
            ((namespace.to_owned(), name.to_owned()), compliant.map(|compliant| policy(namespace, name, compliant)));
        let mut affected = ROOTS.set(&mut known, key.clone(), object.as_ref().and_then(ROOTS.entry));
        affected.extend(CHILDREN.set(&mut known, key, object.as_ref().and_then(CHILDREN.entry)));
        (affected, (known.roots.len(), known.children.len()))
    };
    let p = || vec![Affected::Policy("p".to_owned())];
    assert_eq!(set("ns", "p", Some("NonCompliant")), (p(), (1, 0)));
    assert_eq!(set("ns", "p", Some("NonCompliant")), (vec![], (1, 0)), "nothing new");
    assert_eq!(set("ns", "p", Some("Compliant")), (p(), (1, 0)));
    assert_eq!(set("a", "ns.p", Some("NonCompliant")), (p(), (1, 1)));
    assert_eq!(set("a", "ns.p", Some("Compliant")), (vec![], (1, 1)), "the root says so");
    assert_eq!(set("b", "ns.p", Some("Compliant")), (p(), (1, 2)));
    assert_eq!(set("a", "ns.p", None), (p(), (1, 1)));
    assert_eq!(set("ns", "p", None), (p(), (0, 1)));
    assert_eq!(["a", "b", "c"].map(|cluster| known.children_of(cluster).count()), [0, 1, 0]);
}

#[test]
fn a_kind_that_the_hub_does_not_serve_holds_up_none() {
    let completes = |source: &'static str, code: u16| {
        let status = kube::core::Status { code, ..kube::core::Status::default() };
        let error = watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)));
        State::default().completes_list::<()>(source, &Change::Failed(error))
    };
    let of_upgrades = [CLUSTERS.name, ROOTS.name, CHILDREN.name, PLACEMENTS.name, DEFINITION.name];
    let of_some = [VIEWS.name, CONFIGS.name, OVERRIDE_MAPS.name];
    for source in of_upgrades.into_iter().chain(of_some) {
        assert_eq!([403, 404, 503].map(|code| completes(source, code)), [false, true, false], "{source}");
    }
    assert!(completes(IMAGE_BASED.name, 503) && completes(IMAGE_BASED.name, 404), "only an Event is about it");
}

#[test]
fn an_object_that_cannot_be_read_has_no_content() {
    let policy = (ROOTS.entry)(&object("ns", "p", &json!({}), json!({ "spec": [[[1]]] }))).unwrap();
    assert_eq!((&policy.templates, &policy.compliance), (&None, &None));
    let config = |body: Value| (CONFIGS.entry)(&object("ns", "images", &json!({}), body));
    assert_eq!(config(json!({})), Some(PreCachingConfigSpec::default()), "TALM reads it, too");
    assert_eq!(config(json!({ "spec": { "spaceRequired": 7 } })), None);
}

#[test]
fn an_older_placement_is_not_believed() {
    let key = || ("ns".to_owned(), "x".to_owned());
    let placement = |version: u64, clusters: &[&str]| {
        let labels = json!({ UPGRADE: "u", UPGRADE_NAMESPACE: "ns" });
        let clusters: Vec<String> = clusters.iter().map(ToString::to_string).collect();
        let selector = json!({ "labelSelector": { "matchExpressions": [objects::match_names(&clusters)] } });
        let spec = json!({ "predicates": [{ "requiredClusterSelector": selector }] });
        let mut object: Guarded<PlacementObject> = object("ns", "x", &labels, json!({ "spec": spec }));
        object.meta_mut().resource_version = Some(version.to_string());
        (PLACEMENTS.entry)(&object)
    };
    let mut known = Governance::default();
    let mut set = |one| PLACEMENTS.set(&mut known, key(), one);
    let upgrade = || vec![Affected::Upgrade(Reference { name: "u".to_owned(), namespace: "ns".to_owned() })];
    assert_eq!(set(placement(9, &["a"])), upgrade());
    assert_eq!(set(placement(8, &[])), [], "what we have written is newer");
    assert_eq!(set(placement(10, &["a"])), [], "the same");
    assert_eq!(set(placement(11, &["a", "b"])), upgrade());
    assert_eq!(set(None), upgrade());
    let others = object("ns", "y", &json!({}), json!({ "spec": {} }));
    assert_eq!((PLACEMENTS.entry)(&others), None, "another client's");
}
