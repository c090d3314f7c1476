//! Rows of a file: what they do, and what is refused.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::kinds::{Change, Intent, KINDS};
use crate::power::Power;

const WIDGET: &str = r#"
kinds:
- group: example.com
  versions: [v1, v1beta1]
  kind: Widget
  plural: widgets
  shortNames: [wd]
  stage: 4
  switches:
  - {at: /spec/suspend, asleep: true}
  - {at: /metadata/annotations/example.com~1power, asleep: "off", awake: ["on"]}
  states:
  - {is: Asleep, when: [{condition: Suspended, is: ["True"]}]}
  - {is: Failed, when: [{at: /status/phase, is: [Failed]}], message: {at: /status/message}}
  - {is: Awake, when: [{desired: Awake}, {at: /status/ready, atLeast: /spec/size}]}
  - {is: Waking, when: [{at: /status/ready, present: true}], message: {condition: Ready, member: message}}
  observedGeneration: /status/observedGeneration
  refuseWhen:
  - {when: [{at: /status/busy, zero: true}], message: it is idle}
  loses: its cache
"#;

/// The file with one line of it replaced.
fn with(line: &str, by: &str) -> String {
    assert!(WIDGET.contains(line), "{line}");
    WIDGET.replace(line, by)
}

fn widget() -> (Kinds, &'static TargetKind) {
    let kinds = extended(KINDS, WIDGET).unwrap();
    (kinds, kinds.targets[KINDS.targets.len()])
}

#[test]
fn a_row_of_a_file_sleeps_and_wakes_as_any_other() {
    let (kinds, row) = widget();
    assert_eq!(kinds.named("wd"), [row]);
    assert_eq!((row.kind.resource_name().as_str(), row.stage, row.in_namespace), ("widgets.example.com", 4, true));
    let object = json!({
        "metadata": { "name": "one", "namespace": "shop", "resourceVersion": "1", "generation": 1, "annotations": { "example.com/power": "on" } },
        "spec": { "suspend": false, "size": 2 }, "status": { "observedGeneration": 1, "ready": 2, "busy": 1 },
    });
    let change = |object: &Value, power| {
        let intent =
            Intent { power, reason: None, end: None, now: Timestamp::UNIX_EPOCH, queried: false, force: false };
        match row.change(object, &intent) {
            Ok(Change::Patch { patch, .. }) => {
                let mut after = object.clone();
                json_patch::merge(&mut after, &patch);
                Ok(after)
            }
            Ok(_) => Ok(object.clone()),
            Err(error) => Err(error.to_string()),
        }
    };
    assert_eq!(row.record(&object).unwrap().observed, "Running");
    let asleep = change(&object, Power::Hibernating).unwrap();
    assert_eq!(
        (&asleep["spec"]["suspend"], &asleep["metadata"]["annotations"]["example.com/power"]),
        (&json!(true), &json!("off"))
    );
    assert_eq!(change(&asleep, Power::Running).unwrap()["spec"], object["spec"]);
    let mut idle = object.clone();
    idle["status"]["busy"] = json!(0);
    assert_eq!(change(&idle, Power::Hibernating), Err("it is idle".to_owned()));
    idle["status"]["phase"] = json!("Failed");
    assert_eq!(row.record(&idle).unwrap().observed, "Failed");
}

#[test]
fn what_a_row_may_not_be_is_refused_by_field() {
    for (text, part) in [
        (with("group: example.com", "group: apps"), "kinds[0] (Widget): group: found \"apps\""),
        (with("group: example.com", "group: rbac.authorization.k8s.io"), "group: found"),
        (with("group: example.com", "group: hive.openshift.io"), "group: found"),
        (with("group: example.com", "group: \"a.b/../x\""), "group: found"),
        (with("plural: widgets", "plural: widgets/status"), "plural: found"),
        (with("kind: Widget", "kind: widget"), "kind: found"),
        (with("versions: [v1, v1beta1]", "versions: [v1/x]"), "versions: found"),
        (with("versions: [v1, v1beta1]", "versions: []"), "versions and switches must have"),
        (with("shortNames: [wd]", "shortNames: [deploy]"), "shortNames: found \"deploy\""),
        (with("stage: 4", "stage: 6"), "stage: found"),
        (with("/spec/suspend", "/spec/template/spec/replicas"), "switches: at: found"),
        (with("/spec/suspend", "/spec/containers/0/suspend"), "switches: at: found"),
        (with("/spec/suspend", "/spec/podTemplate"), "switches: at: found"),
        (with("/spec/suspend", "/spec/secretName"), "switches: at: found"),
        (with("/spec/suspend", "/spec/serviceAccountName"), "switches: at: found"),
        (with("/spec/suspend", "/spec/image"), "switches: at: found"),
        (with("/spec/suspend", "/spec/env"), "switches: at: found"),
        (with("/spec/suspend", "/status/suspend"), "switches: at: found"),
        (with("/spec/suspend", "/spec/"), "switches: at: found"),
        (with("example.com~1power", "hibernate.sh~1protected"), "switches: at: found"),
        (with("example.com~1power", "kubectl.kubernetes.io~1x"), "switches: at: found"),
        (with("example.com~1power", "a/b"), "switches: at: found"),
        (with("asleep: true", "asleep: 3"), "asleep: found"),
        (with("asleep: true", "asleep: {image: x}"), "is malformed"),
        (
            with("asleep: \"off\", awake: [\"on\"]", "asleep: true"),
            "asleep of /metadata/annotations/example.com~1power: found true, must be a text, as every annotation is: \"true\" in quotes",
        ),
        (with("asleep: \"off\", awake: [\"on\"]", "asleep: 0"), "found 0, must be a text"),
        (with("asleep: true", "asleep: true, awake: [x]"), "awake of /spec/suspend: only if asleep is a string"),
        (with("{desired: Awake}", "{at: /status/x}"), "when: a test must be desired alone"),
        (
            with("{desired: Awake}", "{desired: Awake, at: /status/x, present: true}"),
            "when: a test must be desired alone",
        ),
        (with("{desired: Awake}", "{at: /status/x, is: [a], zero: true}"), "when: a test must be desired alone"),
        (with("{desired: Awake}", "{at: /etc, present: true}"), "at: found"),
        (with("is: Failed", "is: Broken"), "is malformed"),
        (
            with(
                "/metadata/annotations/example.com~1power, asleep: \"off\", awake: [\"on\"]",
                "/spec/suspend/now, asleep: true",
            ),
            "must not overlap",
        ),
        (with("loses: its cache", "run: rm"), "is malformed"),
        (format!("{WIDGET}{}", WIDGET.replace("kinds:\n", "")), "kinds[1] (Widget): shortNames"),
        (
            format!("{WIDGET}{}", WIDGET.replace("kinds:\n", "").replace("[wd]", "[]")),
            "widgets.example.com is in the table",
        ),
        (with("Widget", "&a Widget"), "anchors or aliases"),
        ("a".repeat(MAX_FILE + 1), "is refused"),
    ] {
        let error = extended(KINDS, &text).unwrap_err();
        assert!(error.contains(part), "{error}\n{text}");
    }
}

#[test]
fn a_word_of_another_kind_needs_the_group() {
    let kinds = extended(KINDS, &with("kind: Widget\n  plural: widgets", "kind: Cluster\n  plural: clusters")).unwrap();
    assert!(kinds.named("cluster").iter().all(|row| row.kind.group != "example.com"));
    assert_eq!(kinds.named("clusters.example.com").len(), 1);
}

#[test]
fn the_sample_of_the_documentation_is_one() {
    let docs = include_str!("../../../../docs/kinds.md");
    let (_, sample) = docs.split_once("```yaml\n").unwrap();
    let kinds = extended(KINDS, sample.split_once("```").unwrap().0).unwrap();
    assert_eq!(kinds.targets.len(), KINDS.targets.len() + 1);
}

/// Rows of a file last as long as the program: so many take about 300 MB.
const FILES: u64 = 100_000;

#[test]
fn fuzz_of_files() {
    ::fuzz::run_at_most(FILES, "kinds", &[WIDGET.as_bytes()], |bytes| {
        let read = extended(KINDS, &String::from_utf8_lossy(bytes));
        for row in read.iter().flat_map(|kinds| &kinds.targets[KINDS.targets.len()..]) {
            let crate::kinds::Reader::Row(sleep) = row.reader else { panic!("a row of data") };
            for switch in sleep.switches {
                let at = switch.at;
                assert!(at.starts_with("/spec/") || at.starts_with("/metadata/annotations/"), "{at}");
                assert!(!at.contains("template") && !at.contains("hibernate.sh"), "{at}");
                assert!(at.starts_with("/spec/") || matches!(switch.asleep, Scalar::Text(_)), "{at}");
            }
        }
        read.is_ok()
    });
}
