use serde_json::{Value, json};
use shared::cgu::objects;
use shared::cgu::wire::UPGRADE_NAMESPACE;

use super::*;

fn object<K: Object>(namespace: &str, name: &str, labels: &Value, mut body: Value) -> Guarded<K> {
    body["metadata"] = json!({ "namespace": namespace, "name": name, "labels": labels, "resourceVersion": "7" });
    serde_json::from_value(body).unwrap()
}

fn policy(namespace: &str, name: &str, compliant: &str) -> Option<PolicyEntry> {
    let is_child = name.contains('.');
    let labels = if is_child { json!({ ROOT_POLICY: name }) } else { json!({}) };
    let status = json!([{ "clustername": "a", "compliant": compliant }]);
    let body = json!({ "spec": {}, "status": { "status": status, "compliant": compliant } });
    (POLICIES.entry)(&object(namespace, name, &labels, body))
}

#[test]
fn what_a_policy_says_affects_the_upgrades_that_list_it() {
    let mut known = Governance::default();
    let mut set = |namespace: &str, name: &str, compliant: Option<&str>| {
        let one = compliant.and_then(|compliant| policy(namespace, name, compliant));
        let affected = set_policy(&mut known, (namespace.to_owned(), name.to_owned()), one);
        let counts = (known.roots.len(), known.children.values().map(BTreeMap::len).sum::<usize>());
        (affected, counts)
    };
    let p = || vec![Affected::Policy("p".to_owned())];
    assert_eq!(set("ns", "p", Some("NonCompliant")), (p(), (1, 0)));
    assert_eq!(set("ns", "p", Some("NonCompliant")), (vec![], (1, 0)), "nothing new");
    assert_eq!(set("ns", "p", Some("Compliant")), (p(), (1, 0)));
    assert_eq!(set("a", "ns.p", Some("NonCompliant")), (p(), (1, 1)));
    assert_eq!(set("a", "ns.p", Some("Compliant")), (vec![], (1, 1)), "the root says so");
    assert_eq!(set("a", "ns.p", None), (p(), (1, 0)));
    assert_eq!(set("ns", "p", None), (p(), (0, 0)));
    // Whoever may create policies in a namespace decides how many there are.
    for number in 0..20_000 {
        let name = format!("ns.{number}");
        let child = policy("a", &name, "Compliant");
        set_policy(&mut known, ("a".to_owned(), name), child);
    }
    assert_eq!(known.children["a"].len(), 20_000);
}

#[test]
fn a_kind_that_no_upgrade_needs_holds_up_none() {
    fn completes<K: Resource<DynamicType = ()>>(code: u16) -> bool {
        let status = kube::core::Status { code, ..kube::core::Status::default() };
        let error = watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)));
        State::default().completes_list::<K, ()>(&Change::Failed(error))
    }
    assert!(completes::<ImageBasedGroupUpgrade>(503) && completes::<ImageBasedGroupUpgrade>(404));
    assert!(completes::<ViewObject>(404) && completes::<ConfigMap>(404) && completes::<PreCachingConfigObject>(404));
    assert!(!completes::<ViewObject>(503) && !completes::<PolicyObject>(404) && !completes::<PolicyObject>(503));
}

#[test]
fn an_object_that_cannot_be_read_has_no_content() {
    let unreadable = (POLICIES.entry)(&object("ns", "p", &json!({}), json!({ "spec": [[[1]]] })));
    let Some(PolicyEntry::Root(policy)) = unreadable else { panic!("a root") };
    assert_eq!((policy.templates, policy.compliance), (None, None));
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
        let selector = json!({ "labelSelector": { "matchExpressions": [objects::selected(&clusters)] } });
        let spec = json!({ "predicates": [{ "requiredClusterSelector": selector }] });
        let mut object: Guarded<PlacementObject> = object("ns", "x", &labels, json!({ "spec": spec }));
        object.meta_mut().resource_version = Some(version.to_string());
        (PLACEMENTS.entry)(&object)
    };
    let mut known = Governance::default();
    let mut set = |one| (PLACEMENTS.set)(&mut known, key(), one);
    let upgrade = || vec![Affected::Upgrade(Reference { name: "u".to_owned(), namespace: "ns".to_owned() })];
    assert_eq!(set(placement(9, &["a"])), upgrade());
    assert_eq!(set(placement(8, &[])), [], "what we have written is newer");
    assert_eq!(set(placement(10, &["a"])), [], "the same");
    assert_eq!(set(placement(11, &["a", "b"])), upgrade());
    assert_eq!(set(None), upgrade());
    let others = object("ns", "y", &json!({}), json!({ "spec": {} }));
    assert_eq!((PLACEMENTS.entry)(&others), None, "another client's");
}
