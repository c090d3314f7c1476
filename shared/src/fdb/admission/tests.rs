//! The cases of `tests/corpus/fdb.yaml`, and what a denial says and advises.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::admission::corpus::{Verb, applied, corpus};
use crate::admission::testing::{Bench, annotations, edited, stored};
use crate::admission::{Edits, Settings};
use crate::fdb::api::FoundationDBCluster;

static BENCH: LazyLock<Bench<Annotated>> = LazyLock::new(|| Bench {
    corpus: corpus(include_str!("../../../../tests/corpus/fdb.yaml")),
    settings: Settings::default(),
    judge: judge_cluster,
    stamp: |_| Edits::default(),
});

fn clusters(cluster: &Value) -> HashMap<String, Cluster> {
    let cluster: FoundationDBCluster = serde_json::from_value(cluster.clone()).unwrap();
    [("u1".to_owned(), Cluster::of(&cluster, Duration::ZERO))].into()
}

fn deleted(object: &Value) -> Deleted {
    let (deleted, unread) = stored::<Deleted>(object);
    Deleted { unread, ..deleted.unwrap() }
}

/// The object of a case of the deletion of a volume, and its cluster.
fn volume(case: &str) -> (Value, Value) {
    let name = format!("deletion of a volume: {case}");
    let case = BENCH.corpus.cases.iter().find(|case| case.name == name).unwrap();
    (case.stored.clone(), case.cluster.clone())
}

fn row(kind: Kind, object: &Value, cluster: &Value) -> String {
    match judge(kind, &deleted(object), &CacheState::Fresh(&clusters(cluster))) {
        Verdict::Allow(row) => row.to_owned(),
        Verdict::Deny(row, _) => format!("{row} deny"),
    }
}

#[test]
fn the_table() {
    let deletions = BENCH.cases(&[Verb::Delete]).filter(|case| !case.cluster.is_null());
    assert!(deletions.clone().count() > 30);
    for case in deletions {
        let kind = if case.stored["kind"] == "Service" { Kind::Service } else { Kind::Pvc };
        let (says, reaches) = (case.says.as_deref(), case.reaches.as_deref());
        assert_eq!(Some(row(kind, &case.stored, &case.cluster).as_str()), says, "{}", case.name);
        assert!(reaches.is_none() || (reaches == Some("")) == (says == Some("S1")), "{}", case.name);
    }
}

#[test]
fn bad_minimums_are_refused_when_they_are_written() {
    let of_clusters = BENCH.cases(&[Verb::Update, Verb::Create, Verb::Status]).filter(|case| case.says.is_some());
    assert!(of_clusters.map(|case| BENCH.check(case)).count() > 10);
}

/// What is denied of a volume.
fn message(object: &Value, cache: &CacheState<'_>) -> String {
    judge_deletion(Kind::Pvc, &deleted(object), cache).denials[0].detail.message.clone()
}

#[test]
fn a_denial_names_the_group_since_until_and_the_ways_out() {
    let known = clusters(&volume("held").1);
    let detail = |case: &str| message(&volume(case).0, &CacheState::Fresh(&known));
    assert_eq!(
        detail("held"),
        "process group storage-1 of FoundationDBCluster db/prod has been suspended since 2026-11-21T18:00:00Z, until \
         2026-11-21T20:00:00Z at least; to bring the group back: kubectl hibernate recover process-groups -n db -c prod \
         storage-1; to delete it anyway: kubectl annotate pvc prod-storage-1-data -n db hibernate.sh/release=p-1 --overwrite"
    );
    for (case, says) in [
        ("not stamped", "the controller releases them 2h0m0s after the deletion of the group's Pod"),
        ("recovering", "if there is no progress: kubectl hibernate recover process-groups -n db -c prod storage-1; "),
        ("is off, but unreadably held", "since 2026-11-21T18:00:00Z, until 2026-11-21T20:00:00Z"),
    ] {
        assert!(detail(case).contains(says), "{case}: {}", detail(case));
    }
}

#[test]
fn what_is_in_use_is_removed_by_the_operator_and_not_with_the_key() {
    let (plain, cluster) = volume("not stamped, not marked");
    let known = clusters(&cluster);
    let detail = message(&plain, &CacheState::Fresh(&known));
    assert_eq!(
        detail,
        "process group storage-1 of FoundationDBCluster db/prod is not marked for removal: this volume is in use \
         and not released; to remove the group: kubectl fdb remove process-groups -n db -c prod prod-storage-1 (or \
         add storage-1 to spec.processGroupsToRemove); only to delete a volume that is in use: kubectl annotate pvc \
         prod-storage-1-data -n db hibernate.sh/release=p-1 --overwrite"
    );
    let detail = message(&volume("released, not marked").0, &CacheState::Fresh(&known));
    let says = ["but the group is not marked for removal", "to remove the group"];
    assert!(says.iter().all(|says| detail.contains(says)) && !detail.contains("recover"), "{detail}");
    let service = deleted(&applied(&plain, &json!({ "metadata": { "name": "prod-storage-1" } })));
    let detail = judge_deletion(Kind::Service, &service, &CacheState::Fresh(&known)).denials[0].detail.message.clone();
    assert!(detail.contains("this Service is in use") && detail.contains("-c prod prod-storage-1 (or"), "{detail}");
    let detail = message(&plain, &CacheState::Fresh(&clusters(&volume("held, the group is forgotten").1)));
    assert!(detail.contains("is not released: volume and Service of a removed group are kept"), "{detail}");
}

#[test]
fn s4_while_nothing_is_known_everything_in_scope_stays() {
    let plain = volume("not stamped").0;
    let detail = message(&plain, &CacheState::Stale("FoundationDBClusters are not defined here"));
    assert!(
        detail.contains("FoundationDBCluster prod") && detail.contains("FoundationDBClusters are not defined here")
    );
    let judged = |object: &Value| judge(Kind::Pvc, &deleted(object), &CacheState::Stale("x"));
    assert_eq!(judged(&volume("the key").0), Verdict::Allow("S3"));
    assert!(matches!(judged(&plain), Verdict::Deny("S4", _)));
}

/// Whatever a volume is denied for, the command that the denial names opens it.
#[test]
fn the_key_opens_what_each_row_denies() {
    let stale = (volume("not stamped"), CacheState::Stale("the watch lags behind"));
    let denied =
        BENCH.cases(&[Verb::Delete]).filter(|case| case.says.as_ref().is_some_and(|says| says.ends_with(" deny")));
    let volumes = denied.filter(|case| case.stored["kind"] != "Service" && case.stored["metadata"]["uid"] == "p-1");
    let clusters: Vec<_> = volumes.map(|case| (case, clusters(&case.cluster))).collect();
    let fresh = clusters.iter().map(|(case, known)| (case.stored.clone(), CacheState::Fresh(known)));
    let all: Vec<_> = fresh.chain([(stale.0.0, stale.1)]).collect();
    assert!(all.len() > 15, "{}", all.len());
    for (object, cache) in all {
        let message = message(&object, &cache);
        let (_, command) = message.rsplit_once("kubectl annotate ").unwrap();
        assert_eq!(command, "pvc prod-storage-1-data -n db hibernate.sh/release=p-1 --overwrite", "{message}");
        let opened = edited(&object, &annotations(command));
        assert_eq!(judge(Kind::Pvc, &deleted(&opened), &cache), Verdict::Allow("S3"), "{message}");
    }
}

/// Nobody knows what it asks for, and which removals it knows.
#[test]
fn a_cluster_that_cannot_be_read_keeps_what_it_owns() {
    let identity = serde_json::from_value(json!({ "name": "prod", "namespace": "db", "uid": "u1" })).unwrap();
    let unreadable = Cluster::unreadable(&identity, "more than 2 MiB of it would be kept");
    let known = HashMap::from([("u1".to_owned(), unreadable)]);
    let cache = CacheState::Fresh(&known);
    let mut denied = 0;
    for case in BENCH.cases(&[Verb::Delete]).filter(|case| !case.cluster.is_null()) {
        let kind = if case.stored["kind"] == "Service" { Kind::Service } else { Kind::Pvc };
        match judge(kind, &deleted(&case.stored), &cache) {
            Verdict::Allow(row) => assert!(["S1", "S2", "S3", "S5"].contains(&row), "{}: {row}", case.name),
            Verdict::Deny(row, _) => {
                assert_eq!(row, UNREADABLE, "{}", case.name);
                denied += 1;
            }
        }
    }
    assert!(denied > 20, "{denied}");
    assert_eq!(
        message(&volume("not stamped").0, &cache),
        "denied, because it cannot be told whether it is kept: FoundationDBCluster db/prod cannot be read: more than 2 MiB of it would be \
         kept; to delete it anyway: kubectl annotate pvc prod-storage-1-data -n db hibernate.sh/release=p-1 --overwrite"
    );
}

#[test]
fn a_minimum_that_is_written_as_advised_is_accepted() {
    BENCH.advice(&[], Value::Null, &[]);
}

/// A record of another removal.
const OTHER: &str = r#"{"v":1,"uid":"p-1","group":"storage-1","removal":"2026-11-20T00:00:00Z","minimum":"2h","class":"storage","why":"operator"}"#;

proptest! {
    /// Whatever stands on a volume of a live cluster with suspension on: without a key or a release of this removal it
    /// stays.
    #[test]
    fn nothing_goes_without_a_release_of_this_removal(
        at in proptest::option::of(".{0,25}"),
        record in proptest::option::of(prop_oneof![".{0,30}", Just(OTHER.to_owned())]),
        released in proptest::option::of("(2026-11-21T20:00:00Z|.{0,20})"),
    ) {
        let (plain, cluster) = volume("not stamped");
        let notes = json!({
            "hibernate.sh/suspended-at": at, "hibernate.sh/suspension": record, "hibernate.sh/released-at": released,
        });
        let row = row(Kind::Pvc, &applied(&plain, &json!({ "metadata": { "annotations": notes } })), &cluster);
        prop_assert!(row.ends_with(" deny"), "{row}");
    }
}
