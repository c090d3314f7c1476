//! R1: what is written on the objects that are held for a recovery.

use crate::annotation::keys;
use crate::fdb::suspension::{Stamp, Suspension};
use crate::record::Format;
use serde_json::json;

use super::super::*;
use super::world::*;

#[test]
fn the_hold_is_for_a_recovery_and_takes_every_release_away() {
    let mut world = World::suspended();
    world.claims[0]["metadata"]["annotations"] = json!({
        keys::SUSPENDED_AT: "2026-11-21T18:00:00Z", keys::RELEASED_AT: "2026-11-21T18:29:59Z", keys::RELEASE: "uid-storage-1",
        keys::SUSPENSION: json!({ "v": 1, "uid": "uid-storage-1", "group": "storage-1", "removal": REMOVAL, "minimum": "2h", "why": "operator" }).to_string(),
    });
    let record = world.record(&["storage-1"]);
    let steps = world.steps(&record, RunState::default()).unwrap();
    let Step::Hold(edits) = &steps[0] else { panic!("{steps:?}") };
    let annotations = &edits[0].patch["metadata"]["annotations"];
    assert_eq!(annotations[keys::SUSPENDED_AT], NOW);
    assert_eq!((&annotations[keys::RELEASED_AT], &annotations[keys::RELEASE]), (&Value::Null, &Value::Null));
    let held = Suspension::read(annotations[keys::SUSPENSION].as_str().unwrap()).unwrap();
    assert_eq!((held.why.as_str(), held.minimum.as_str()), ("recovery", "2h0m0s"));
    assert_eq!(held.removal.as_deref(), Some(REMOVAL));
    world.carry_out(&steps[0], &mut RunState::default());
    assert!(!words(&world, &record, RunState::default()).contains(&"hold"), "a fresh one is not renewed");
}

/// Whatever the plugin's clock and the cluster's minimum say.
#[test]
fn a_hold_ends_no_earlier_than_the_suspension_before() {
    for (since, recorded, in_force, held_since, held_for) in [
        ("2026-11-21T18:00:00Z", "2h", None, NOW, "2h0m0s"),
        ("2026-11-21T18:00:00Z", "5m", None, NOW, "1h0m0s"),
        ("2026-11-21T18:00:00Z", "2h", Some("3h"), NOW, "3h0m0s"),
        ("2026-11-21T18:00:00Z", "24h", Some("2 hours"), NOW, "24h0m0s"),
        ("2026-11-21T18:00:00Z", "24h", Some("0"), NOW, "24h0m0s"),
        ("2026-11-21T18:00:00Z", "soon", Some("3h"), NOW, "3h0m0s"),
        // The plugin's clock is slow.
        ("2026-11-21T20:00:00Z", "2h", None, "2026-11-21T20:00:00Z", "2h0m0s"),
        ("2026-11-21T20:00:00Z", "24h", Some("2 hours"), "2026-11-21T20:00:00Z", "24h0m0s"),
    ] {
        let (mut world, record) = begun();
        if let Some(minimum) = in_force {
            world.cluster["metadata"]["annotations"] = json!({ keys::MINIMUM_SUSPENSION: minimum });
        }
        let suspension = Suspension {
            uid: "uid-storage-1".to_owned(),
            group: "storage-1".to_owned(),
            removal: Some(REMOVAL.to_owned()),
            minimum: recorded.to_owned(),
            ..Suspension::default()
        };
        world.claims[0]["metadata"]["annotations"] =
            json!({ keys::SUSPENDED_AT: since, keys::SUSPENSION: suspension.text() });
        let step = world.steps(&record, RunState::default()).unwrap().remove(0);
        world.carry_out(&step, &mut RunState::default());
        let stamp = Stamp::of(&world.claims[0]);
        assert!(stamp.is_recovery(), "{stamp:?}");
        let minimum = stamp.record.map(|record| record.minimum);
        assert_eq!((stamp.since, minimum.as_deref()), (Some(at(held_since)), Some(held_for)), "{since} {in_force:?}");
        assert!(!words(&world, &record, RunState::default()).contains(&"hold"), "{since} {in_force:?}");
    }
}
