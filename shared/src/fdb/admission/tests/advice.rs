//! The ways out that denials name are gone.

use super::*;
use crate::admission::testing::{Person, annotations, edited, note};

fn verdict(object: &Value, cache: &CacheState<'_>) -> Verdict {
    judge(Kind::Pvc, &deleted(object), cache)
}

/// Whatever it is denied for: the command that the denial names opens it.
#[test]
fn the_key_opens_what_each_row_denies() {
    let known = clusters(&cluster());
    let in_use = clusters(&with(cluster(), "/status/processGroups/0/removalTimestamp", Value::Null));
    let (fresh, plain) = (CacheState::Fresh(&known), object(&json!({})));
    let released = [("hibernate.sh/released-at", "2026-11-21T20:00:00Z")];
    let of_another = record(Some("2026-11-20T00:00:00Z"), "operator");
    for (row, object, cache) in [
        ("S4", plain.clone(), CacheState::Stale("the watch lags behind")),
        ("S10", stamped(&[], &record(Some(REMOVAL), "recovery")), fresh),
        ("S12", stamped(&released, &of_another), fresh),
        ("S13", stamped(&[], &record(Some(REMOVAL), "operator")), fresh),
        ("S14", plain.clone(), fresh),
        ("S14", plain.clone(), CacheState::Fresh(&in_use)),
        (UNREADABLE, with(plain, "/metadata/labels", json!(7)), fresh),
    ] {
        let Verdict::Deny(found, message) = verdict(&object, &cache) else { panic!("{row}") };
        assert_eq!(found, row);
        let (_, command) = message.rsplit_once("kubectl annotate ").unwrap();
        assert_eq!(command, "pvc prod-storage-1-data -n db hibernate.sh/release=p-1 --overwrite", "{row}");
        assert_eq!(verdict(&edited(&object, &annotations(command)), &cache), Verdict::Allow("S3"), "{row}");
    }
}

#[test]
fn a_minimum_that_is_written_as_advised_is_accepted() {
    let read = |object: &Value| serde_json::from_value(object.clone()).unwrap();
    let denials = |old: &Value, new: &Value, _: &str| {
        let evaluation = judge_cluster(&Change {
            old: Some(read(old)),
            new: read(new),
            user: &User::default(),
            field_manager: "",
            now: jiff::Timestamp::UNIX_EPOCH,
            settings: &Settings::default(),
            unread: UnreadFields::default(),
        });
        evaluation.denials.into_iter().map(|denial| denial.detail).collect()
    };
    let person = Person { denials: &denials, sound: Value::Null, now: "" };
    for wrong in ["2 hours", "-2h", "", "9999999h"] {
        person.requests(&json!({"metadata": {"name": "prod"}}), &[note(keys::MINIMUM_SUSPENSION, wrong)]);
    }
}
