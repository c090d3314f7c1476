//! What is written is read back, fits, and counts only for the condition that it describes.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::annotation::format;
use crate::finding::Severity;
use crate::hive::conditions::PROGRESS;
use crate::hive::preflight::PREFLIGHT;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn count(awaited: usize) -> Count {
    Count { unit: Unit::Instances, awaited, total: 6 }
}

fn counted(awaited: usize) -> Progress {
    Progress { at: at(0), unit: Unit::Instances, awaited, total: 6 }
}

fn expiry() -> Finding {
    let sentence = "the first certificate to expire is that in ns/c, at 2027-02-01T00:00:00Z";
    let finding = Finding::new(Severity::Info, "CertificateExpires", sentence);
    Finding { ends: format::time("2027-02-01T00:00:00Z"), ..finding }
}

/// A cluster whose conditions were written so many seconds after [`at`] zero.
fn cluster(data: &Data, written: i64) -> ClusterDeployment {
    let condition =
        |type_: &str| json!({"type": type_, "status": "True", "lastProbeTime": format::seconds(at(written))});
    let empty = ClusterDeployment::default();
    serde_json::from_value(json!({
        "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment", "metadata": {"name": "demo"},
        "spec": {"baseDomain": "d", "clusterName": "demo", "platform": {}},
        "status": {"conditions": [condition(PROGRESS), condition(PREFLIGHT), data.replaces(&empty, at(written))]},
    }))
    .unwrap()
}

fn progress(cluster: &ClusterDeployment) -> Option<Progress> {
    Data::of(cluster).progress_of(cluster.condition(PROGRESS)?)
}

fn preflight(cluster: &ClusterDeployment) -> Option<Preflight> {
    Data::of(cluster).preflight_of(cluster.condition(PREFLIGHT)?)
}

#[test]
fn the_message_is_compact_and_reads_back() {
    let data = Data::default().with_progress(at(0), Some(count(2))).with_preflight(at(5), vec![expiry()]);
    assert_eq!(
        data.text(),
        r#"{"v":1,"progress":{"at":"2027-01-15T08:00:00Z","unit":"instances","awaited":2,"total":6},"preflight":{"at":"2027-01-15T08:00:05Z","findings":[{"severity":"info","code":"CertificateExpires","sentence":"the first certificate to expire is that in ns/c, at 2027-02-01T00:00:00Z","ends":"2027-02-01T00:00:00Z"}]}}"#
    );
    assert_eq!(Data::read(&data.text()), Ok(data));
}

#[test]
fn a_part_counts_only_for_the_condition_that_it_describes() {
    let data = Data::default().with_progress(at(0), Some(count(2))).with_preflight(at(0), vec![expiry()]);
    let current = cluster(&data, 0);
    assert_eq!(progress(&current), Some(counted(2)));
    assert_eq!(preflight(&current).unwrap().findings, [expiry()]);
    let written_since = cluster(&data, 1);
    assert_eq!((progress(&written_since), preflight(&written_since)), (None, None));
    assert_eq!(progress(&ClusterDeployment::default()), None);
}

#[test]
fn one_part_is_replaced_and_the_other_stays() {
    let both = Data::default().with_progress(at(0), Some(count(2))).with_preflight(at(0), vec![expiry()]);
    let read = Data::of(&cluster(&both, 0)).with_progress(at(0), Some(count(1)));
    assert_eq!((read.progress, &read.preflight), (Some(counted(1)), &both.preflight));
    assert_eq!(read.with_progress(at(0), None).preflight, both.preflight);
}

#[test]
fn other_versions_are_ignored_and_odd_parts_are_left_out() {
    for text in ["", "{}", "[]", "null", r#"{"v":2,"progress":{}}"#, r#"{"v":"1"}"#, "6 instances running"] {
        assert!(Data::read(text).is_err(), "{text}");
    }
    for text in [
        r#"{"v":1}"#,
        r#"{"v":1,"progress":7,"preflight":null,"rollout":{}}"#,
        r#"{"v":1,"progress":{"at":"now","unit":"instances","awaited":1,"total":1}}"#,
        r#"{"v":1,"progress":{"at":"2027-01-15T08:00:00Z","unit":"disks","awaited":1,"total":1}}"#,
        r#"{"v":1,"progress":{"at":"2027-01-15T08:00:00Z","unit":"instances","awaited":-1,"total":1}}"#,
    ] {
        assert_eq!(Data::read(text), Ok(Data::default()), "{text}");
    }
    let text = r#"{"v":1,"preflight":{"at":"2027-01-15T08:00:00Z","findings":[{"severity":"dire","code":"a b","sentence":"x\ny"}]}}"#;
    let found = Data::read(text).unwrap().preflight.unwrap().findings;
    assert_eq!(found, [Finding::new(Severity::Block, "ab", "x y")]);
}

#[test]
fn the_condition_is_no_failure_to_hive() {
    let data = Data::default().with_progress(at(0), Some(count(1)));
    let condition = data.replaces(&ClusterDeployment::default(), at(0)).unwrap();
    let mut order = [(condition.type_, condition.status), (PREFLIGHT.to_owned(), "True".to_owned())];
    assert_eq!(super::super::edit::moves(&mut order).len(), 1);
    assert_eq!(order[0].0, PREFLIGHT, "what is True comes first");
}

#[test]
fn too_many_findings_are_cut_from_the_least_grave_and_the_rest_is_counted() {
    let many = |severity| (0..30).map(move |n| Finding::new(severity, &format!("Code{n}"), "\"".repeat(600)));
    let findings = many(Severity::Info).chain(many(Severity::Block)).collect();
    let data = Data::default().with_preflight(at(0), findings);
    assert!(data.text().len() <= Data::MAX_BYTES);
    let cut = Data::read(&data.text()).unwrap().preflight.unwrap();
    assert!(cut.findings.iter().all(|finding| finding.severity == Severity::Block));
    assert_eq!(cut.findings.len() + cut.left_out, 60);
    let listed = crate::hive::preflight::findings(&cluster(&data, 0)).unwrap();
    let more = format!("{} more findings are in the message of the condition HibernationPreflight", cut.left_out);
    assert_eq!(listed[..cut.findings.len()], cut.findings[..]);
    assert_eq!(listed[cut.findings.len()..], [Finding::new(Severity::Info, "LeftOut", more)]);
}

proptest! {
    #[test]
    fn whatever_is_found_fits_and_reads_back(
        awaited in any::<u32>(),
        found in proptest::collection::vec((0..3_u8, "[A-Za-z]{1,20}", ".{0,700}", proptest::option::of(0..1_000_000_i64)), 0..12),
    ) {
        let severity = |n| [Severity::Block, Severity::Warn, Severity::Info][usize::from(n)];
        let finding = |(n, code, sentence, ends): (u8, String, String, Option<i64>)| {
            Finding { ends: ends.map(at), ..Finding::new(severity(n), &code, sentence) }
        };
        let data = Data::default()
            .with_progress(at(0), Some(count(awaited as usize)))
            .with_preflight(at(0), found.into_iter().map(finding).collect());
        let text = data.text();
        prop_assert!(text.len() <= Data::MAX_BYTES);
        let read = Data::read(&text).unwrap();
        prop_assert_eq!(read.progress, data.progress);
        let (read, written) = (read.preflight.unwrap(), data.preflight.unwrap());
        prop_assert_eq!(&read.findings[..], &written.findings[..written.findings.len() - read.left_out]);
    }

    #[test]
    fn no_text_is_too_odd_to_be_read(text in ".{0,80}") {
        let _ = Data::read(&text);
    }
}
