use serde_json::{Value, json};

use super::*;
use crate::cgu::templates::without_templates;
use crate::cgu::wire::parse;
use crate::guarded::Guarded;

/// A root policy with these objects and this compliance.
fn root(objects: &Value, compliance: &[(&str, Option<&str>)]) -> Value {
    let status: Vec<Value> = compliance
        .iter()
        .map(|(cluster, compliant)| match compliant {
            Some(compliant) => json!({ "clustername": cluster, "clusternamespace": cluster, "compliant": compliant }),
            None => json!({ "clustername": cluster, "clusternamespace": cluster }),
        })
        .collect();
    json!({
        "spec": { "remediationAction": "inform", "policy-templates": [{ "objectDefinition": {
            "metadata": { "name": "a" }, "spec": { "object-templates": objects },
        } }] },
        "status": { "status": status },
    })
}

fn read(object: &Value) -> Policy {
    Policy::read(&parse(object))
}

fn object(kind: &str) -> Value {
    json!([{ "complianceType": "musthave", "objectDefinition": {
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": kind, "metadata": { "name": "ptp", "namespace": "openshift-ptp" },
    } }])
}

/// Compliance of section 4, and row 49.
#[test]
fn compliance_is_read_as_talm_reads_it() {
    let policy = read(&root(
        &object("Namespace"),
        &[
            ("1", Some("NonCompliant")),
            ("2", Some("Compliant")),
            ("3", Some("Pending")),
            ("4", None),
            ("5", Some("Weird")),
        ],
    ));
    for (cluster, expected) in [
        ("1", Compliance::NonCompliant),
        ("2", Compliance::Compliant),
        ("3", Compliance::NonCompliant),
        ("4", Compliance::NonCompliant),
        ("5", Compliance::NotMatched),
        ("6", Compliance::NotMatched),
    ] {
        assert_eq!(policy.compliance_of(cluster), expected, "cluster {cluster}");
    }
    let mut silent = root(&object("Namespace"), &[]);
    silent["status"] = Value::Null;
    assert_eq!(read(&silent).compliance_of("6"), Compliance::NonCompliant, "no status");
}

#[test]
fn what_cannot_be_used_is_left_out() {
    let sound = root(&object("Namespace"), &[]);
    let definition = "/spec/policy-templates/0/objectDefinition";
    let spec = "/spec/policy-templates/0/objectDefinition/spec";
    let raw = json!("{{range .items}}\n- objectDefinition: {name: {{ .name }}, status: {a: 1}}\n- other: 1\n{{end}}");
    for (path, value, expected) in [
        ("/spec/policy-templates", json!([]), None),
        (definition, Value::Null, None),
        ("/spec/policy-templates/0/objectDefinition/metadata", Value::Null, None),
        (spec, Value::Null, None),
        (spec, json!({}), None),
        (spec, json!({ "object-templates": [], "object-templates-raw": "" }), None),
        (spec, json!({ "object-templates": [{}] }), None),
        (spec, json!({ "object-templates-raw": "a: [" }), None),
        (spec, json!({ "object-templates-raw": "a: 1" }), None),
        (spec, json!({ "object-templates-raw": raw }), Some(true)),
    ] {
        let mut found = sound.clone();
        *found.pointer_mut(path).unwrap() = value.clone();
        let templates = read(&found).templates;
        assert_eq!(templates.map(|templates| templates.has_status), expected, "{path} {value}");
    }
}

#[test]
fn subscriptions_are_kept_as_the_status_holds_them() {
    let content = |objects: &Value| {
        let subscriptions = read(&root(objects, &[])).templates.unwrap().subscriptions;
        serde_json::to_string(&subscriptions).unwrap()
    };
    let ptp = r#"[{"kind":"Subscription","name":"ptp","apiVersion":"operators.coreos.com/v1alpha1","namespace":"openshift-ptp"}]"#;
    assert_eq!(content(&object("Subscription")), ptp);
    assert_eq!(content(&object("Namespace")), "[]");
    let mut unwanted = object("Subscription");
    unwanted[0]["complianceType"] = json!("mustnothave");
    assert_eq!(content(&unwanted), "[]");
}

#[test]
fn templates_go_from_raw_objects() {
    for (raw, plain) in [
        ("a: {{ $x.y }}", "a: placeholder"),
        ("a: {{.name}}{{ if true }}", "a: placeholder"),
        ("a: {{ .name | upper }}b", "a: b"),
        ("a: {{ open", "a: {{ open"),
        ("{{ .a }}{{{{", "placeholder{{{{"),
    ] {
        assert_eq!(without_templates(raw), plain);
    }
    let open = "{{".repeat(1 << 19);
    assert_eq!(without_templates(&open).len(), open.len(), "in one pass");
}

/// Owners of policies decide how many there are: each is charged what is kept of it.
#[test]
fn what_is_kept_of_a_policy_is_charged() {
    let read = |object: &Value| -> (Option<usize>, usize) {
        let mut object = object.clone();
        object["metadata"] = json!({ "name": "p" });
        let Guarded(policy, kept) = serde_json::from_str(&object.to_string()).unwrap();
        let templates = Policy::read(&policy.unwrap()).templates;
        (templates.map(|templates| templates.subscriptions.len()), kept)
    };
    let subscriptions = |count: usize| root(&Value::from(vec![object("Subscription")[0].clone(); count]), &[]);
    let (count, kept) = read(&subscriptions(100));
    assert!(count == Some(100) && kept > 30_000, "{count:?} {kept}");
    let mut two = subscriptions(60);
    let templates = two["spec"]["policy-templates"].as_array_mut().unwrap();
    templates.push(templates[0].clone());
    for many in [subscriptions(101), two, subscriptions(3_000)] {
        let (count, kept) = read(&many);
        assert!(count.is_none() && kept < 2_000, "{count:?} {kept}");
    }
    let names: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
    let clusters: Vec<_> = names.iter().map(|name| (name.as_str(), None)).collect();
    assert!(read(&root(&object("Namespace"), &clusters)).1 > 80_000);
}

/// `ShouldSoak` of section 5.2.
#[test]
fn a_soak_is_a_whole_number_of_seconds() {
    let since = Timestamp::from_second(100).unwrap();
    for (annotation, expected) in
        [(Some("5"), Some(105)), (Some("0"), Some(100)), (Some("-1"), None), (Some("x"), None), (None, None)]
    {
        let mut policy = root(&object("Namespace"), &[]);
        policy["metadata"] = json!({ "annotations": { SOAK_SECONDS: annotation } });
        let end = annotation.and_then(|_| read(&policy).soak_end(since));
        assert_eq!(end.map(Timestamp::as_second), expected, "{annotation:?}");
    }
}

fn child(namespace: &str, name: &str) -> Child {
    let name = format!("{namespace}.{name}");
    Child::read(&parse(&json!({ "metadata": { "name": name, "labels": { ROOT_POLICY: name } } }))).unwrap()
}

fn reference(name: &str) -> Reference {
    Reference { name: name.to_owned(), namespace: "ns".to_owned() }
}

/// Rows 6 and 8, duplicated-managed-policy-name and dependency-order of section 5.1, and 9.1.
#[test]
fn policies_are_found_by_their_children_and_roots() {
    let policy =
        |compliant: &str| read(&root(&object("Namespace"), &[("1", Some(compliant)), ("2", Some("Compliant"))]));
    let mut roots: BTreeMap<Reference, Arc<Policy>> = [
        ("a", "NonCompliant"),
        ("b", "Compliant"),
        ("c", "NonCompliant"),
        ("invalid", "NonCompliant"),
        ("later", "NonCompliant"),
    ]
    .map(|(name, compliant)| (reference(name), Arc::new(policy(compliant))))
    .into();
    roots.insert(reference("enforced"), Arc::new(Policy { enforced: true, ..policy("NonCompliant") }));
    Arc::make_mut(roots.get_mut(&reference("invalid")).unwrap()).templates = None;
    Arc::make_mut(roots.get_mut(&reference("c")).unwrap()).dependencies = vec![reference("later")];
    let all = ["a", "b", "c", "invalid", "later", "enforced", "gone"];
    let mut children: Vec<Child> = all.iter().map(|name| child("ns", name)).collect();
    let find = |listed: &[&str], children: &[Child], clusters: &[&str]| {
        let listed: Vec<String> = listed.iter().map(ToString::to_string).collect();
        let complies =
            |root: &Reference| clusters.iter().all(|name| roots[root].compliance_of(name) == Compliance::Compliant);
        find(&listed, children, &roots, complies).map_err(|error| (error.reason(), error.to_string()))
    };
    let found = find(&["b", "a", "enforced"], &children, &["1", "2"]).unwrap();
    assert_eq!((found.for_upgrade, found.compliant), (vec![reference("a")], vec![reference("b")]));
    // Who is not matched complies with nothing that could be skipped.
    assert_eq!(find(&["b"], &children, &["1", "3"]).unwrap().for_upgrade, [reference("b")]);

    let not_all = "NotAllManagedPoliciesExist";
    for (listed, reason, message) in [
        (&["a", "nowhere", "gone"][..], not_all, "Missing managed policies: [nowhere gone] "),
        (&["nowhere", "invalid"], not_all, "Invalid managed policies: [invalid] "),
        (
            &["c", "later"],
            "UnresolvableDenpendency",
            "Managed Policy c depends on later, which is to be remediated later",
        ),
    ] {
        assert_eq!(find(listed, &children, &["1"]).unwrap_err(), (reason, message.to_owned()));
    }
    assert!(find(&["later", "c"], &children, &["1"]).is_ok());
    assert_eq!(find(&vec!["a"; 20_000], &children, &["1"]).unwrap().for_upgrade, [reference("a")]);
    let names: Vec<String> = (0..501).map(|number| number.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let many =
        "managedPolicies names 501 policies, and 500 is the most: divide them among several ClusterGroupUpgrades";
    assert_eq!(find(&names, &children, &["1"]).unwrap_err(), ("NotServed", many.to_owned()));

    children.push(child("other", "b"));
    let message =
        "Managed policy name should be unique, but was found in multiple namespaces: {\"b\":[\"ns\",\"other\"]} ";
    assert_eq!(find(&["a"], &children, &["1"]).unwrap_err(), ("AmbiguousManagedPoliciesNames", message.to_owned()));
}

#[test]
fn a_child_is_a_policy_with_the_label() {
    let read = |name: &str, labels: Value| {
        let annotations = json!({ DEPLOY_WAVE: "-2" });
        Child::read(&parse(&json!({
            "metadata": { "name": name, "labels": labels, "annotations": annotations },
            "spec": { "policy-templates": [{ "objectDefinition": { "a": ["{{hub fromConfigMap hub}}"] } }] },
        })))
    };
    let child = read("ns.a.b", json!({ ROOT_POLICY: "value" })).unwrap();
    assert_eq!((child.root.name.as_str(), child.root.namespace.as_str(), child.is_unresolved), ("a.b", "ns", true));
    assert_eq!(child.wave, Wave::At(-2));
    assert_eq!(read("nodot", json!({ ROOT_POLICY: "value" })), None);
    assert_eq!(read("ns.a", json!({})), None);
}

/// Authors of policies write this text.
#[test]
fn raw_objects_that_unfold_without_end_are_invalid() {
    let level = |level: usize| {
        let again = vec![level.checked_sub(1).map_or("x".to_owned(), |below| format!("*a{below}")); 10].join(", ");
        format!("  a{level}: &a{level} [{again}]")
    };
    let bomb = format!("-\n{}\n", (0..7).map(level).collect::<Vec<_>>().join("\n"));
    let mut found = root(&object("Namespace"), &[]);
    found["spec"]["policy-templates"][0]["objectDefinition"]["spec"] = json!({ "object-templates-raw": bomb });
    assert_eq!(read(&found).templates, None);
}
