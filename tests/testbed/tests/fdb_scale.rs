//! A large database of the FoundationDB double: 500 process groups, 100 of them removed at once.

#![allow(clippy::unwrap_used, clippy::panic)] // a helper of a test is part of the test

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use testbed::FdbOptions;
use testbed::fdb::common::world;

const WITHIN: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_groups_come_up_and_a_hundred_go() {
    let options = FdbOptions {
        storage: 450,
        log: 49,
        zones: 5,
        removal_mode: "All".to_owned(),
        wait_between: Some(0),
        ..FdbOptions::default()
    };
    let _heavy = testbed::heavy().await.unwrap();
    let world = world().await;
    let begun = Instant::now();
    let db = world.fdb("large", options).await.unwrap();
    let up = begun.elapsed();
    let mut zones = BTreeMap::<String, usize>::new();
    for group in db.groups().await.unwrap() {
        *zones.entry(group.fault_domain).or_default() += 1;
    }
    assert!(zones.len() == 5 && zones.values().all(|count| (95..=105).contains(count)), "{zones:?}");
    let begun = Instant::now();
    let ids = db.ids("storage").await.unwrap();
    let (gone, _) = ids.split_at(100);
    db.remove(&gone.iter().map(String::as_str).collect::<Vec<_>>()).await.unwrap();
    let replaced =
        async || Ok((db.groups().await?.iter().filter(|group| gone.contains(&group.id)).count() == 0).then_some(()));
    db.wait("end of a hundred groups", WITHIN, replaced).await.unwrap();
    db.wait_reconciled(WITHIN).await.unwrap();
    assert_eq!(db.database().await.unwrap().volumes.len(), 499);
    let log = db.log().await.unwrap();
    assert!(log.deletes.iter().all(|delete| delete.error.is_none()));
    let longest = log.passes.iter().map(|pass| pass.ended - pass.began).fold(0.0, f64::max);
    eprintln!(
        "500 groups up in {up:.1?}, 100 replaced in {:.1?}, longest of {} passes {longest:.1} s",
        begun.elapsed(),
        log.passes.len()
    );
}
