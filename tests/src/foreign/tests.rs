//! Our definitions of foreign kinds against the real ones, where these are at hand: every field of ours exists there,
//! with the same type, format, enum, pattern, default and required fields, so that the test world refuses what reality
//! refuses.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// What has to be the same in both schemas of a field. Ours may keep unknown fields, which upstream prunes or refuses.
const SAME: &[&str] =
    &["type", "format", "enum", "pattern", "default", "nullable", "minimum", "maximum", "minLength", "maxLength"];

fn upstream() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/upstream-crds");
    folder.is_dir().then_some(folder)
}

fn definition(kind: &str) -> Value {
    let found =
        definitions().into_iter().chain(manifests::cgu_definitions()).find(|crd| crd["spec"]["names"]["kind"] == kind);
    found.unwrap()
}

fn texts(value: &Value) -> BTreeSet<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn compare(path: &str, ours: &Value, theirs: &Value, differences: &mut Vec<String>) {
    // Kubernetes' own type, of which upstream has every rule and our library has none.
    if path == "ClusterGroupUpgrade.status.conditions[]" {
        return;
    }
    for key in SAME {
        let value = |schema: &Value| {
            if *key == "enum" { Value::from_iter(texts(&schema["enum"])) } else { schema[key].clone() }
        };
        if value(ours) != value(theirs) {
            differences.push(format!("{path}: {key} is {}, upstream {}", ours[key], theirs[key]));
        }
    }
    if texts(&ours["required"]) != texts(&theirs["required"]) {
        differences.push(format!("{path}: requires {}, upstream {}", ours["required"], theirs["required"]));
    }
    for (name, field) in ours["properties"].as_object().into_iter().flatten() {
        match &theirs["properties"][name] {
            Value::Null => differences.push(format!("{path}.{name}: unknown upstream")),
            upstream => compare(&format!("{path}.{name}"), field, upstream, differences),
        }
    }
    if ours["items"].is_object() {
        compare(&format!("{path}[]"), &ours["items"], &theirs["items"], differences);
    }
}

fn compare_with(kind: &str, file: &str) {
    let Some(folder) = upstream() else {
        eprintln!("not compared: the real definitions are not at hand");
        return;
    };
    let theirs: Value = serde_saphyr::from_str(&fs::read_to_string(folder.join(file)).unwrap()).unwrap();
    let ours = definition(kind);
    let (ours, theirs) = (&ours["spec"], &theirs["spec"]);
    let mut differences = Vec::new();
    for key in ["kind", "plural", "singular", "shortNames"] {
        assert_eq!(ours["names"][key], theirs["names"][key], "{kind}: {key}");
    }
    assert_eq!((&ours["group"], &ours["scope"]), (&theirs["group"], &theirs["scope"]), "{kind}");
    let (ours, theirs) = (&ours["versions"][0], &theirs["versions"][0]);
    assert_eq!((&ours["name"], &ours["subresources"]), (&theirs["name"], &theirs["subresources"]), "{kind}");
    let schema = |version: &Value| version["schema"]["openAPIV3Schema"].clone();
    compare(kind, &schema(ours), &schema(theirs), &mut differences);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn each_kind_is_as_upstream_has_it() {
    for (kind, file) in [
        ("ClusterDeployment", "hive/hive.openshift.io_clusterdeployments.yaml"),
        ("ClusterSync", "hive/hiveinternal.openshift.io_clustersyncs.yaml"),
        ("FoundationDBCluster", "fdb/apps.foundationdb.org_foundationdbclusters.yaml"),
        ("ClusterGroupUpgrade", "talm/ran.openshift.io_clustergroupupgrades.yaml"),
        ("PreCachingConfig", "talm/ran.openshift.io_precachingconfigs.yaml"),
    ] {
        compare_with(kind, file);
    }
}

/// A hub may have TALM's kinds from us: none of upstream's fields is missing.
#[test]
fn kinds_that_we_install_have_every_field() {
    fn missing(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
        if ours["x-kubernetes-preserve-unknown-fields"] == true {
            return;
        }
        for (name, field) in theirs["properties"].as_object().into_iter().flatten() {
            match &ours["properties"][name] {
                // Of the object itself, not of its kind.
                Value::Null if matches!(name.as_str(), "apiVersion" | "kind" | "metadata") => {}
                Value::Null => found.push(format!("{path}.{name}")),
                ours => missing(&format!("{path}.{name}"), ours, field, found),
            }
        }
        for inner in ["items", "additionalProperties"].into_iter().filter(|inner| theirs[inner].is_object()) {
            missing(&format!("{path}[]"), &ours[inner], &theirs[inner], found);
        }
    }
    let Some(folder) = upstream() else { return };
    for ours in manifests::cgu_definitions() {
        let file = format!("talm/ran.openshift.io_{}.yaml", ours["spec"]["names"]["plural"].as_str().unwrap());
        let theirs: Value = serde_saphyr::from_str(&fs::read_to_string(folder.join(file)).unwrap()).unwrap();
        let schema = |definition: &Value| definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
        let mut found = Vec::new();
        missing("", &schema(&ours), &schema(&theirs), &mut found);
        assert_eq!(found, [""; 0]);
    }
}

/// What is stripped must not take away what the rules of the schema are.
#[test]
fn the_schema_refuses_what_the_documentation_says() {
    let crd = definition("ClusterDeployment");
    let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert_eq!(spec["properties"]["powerState"]["enum"], json!(["", "Running", "Hibernating"]));
    assert!(spec["properties"]["hibernateAfter"]["pattern"].as_str().unwrap().starts_with("^("));
    assert_eq!(texts(&spec["required"]), BTreeSet::from(["baseDomain", "clusterName", "platform"]));
    assert_eq!(spec["x-kubernetes-preserve-unknown-fields"], true);
}
