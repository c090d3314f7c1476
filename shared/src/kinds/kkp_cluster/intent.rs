//! Intent on a Cluster: annotations, in one merge patch.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::desired;
use crate::annotation::{format, keys as common, reason_edit};
use crate::kinds::lifecycle::{Change, Intent};
use crate::kkp::api::Cluster;
use crate::kkp::data::State;
use crate::kkp::keys;
use crate::kkp::pause::{PAUSE_FOREIGN, foreign_pause};
use crate::kkp::phase::Phase;
use crate::power::Power;

/// | # | wanted | seen | patch |
/// |---|---|---|---|
/// | I1 | as it is | as wanted, and I3 and I4 do not apply | nothing, or the reason if another is given |
/// | I2 | a change | the other state, or none | state, its time, the reason or the removal of the old one, the force or the removal of the old one |
/// | I3 | asleep, with a force; without one | asleep, without a force; with one, and no sleep is past its preflight | as I2: a new request |
/// | I4 | asleep | asleep, but the drain timed out | as I2: the controller tries again only for a new request |
///
/// A request carries the resourceVersion: of two at the same time one meets a conflict. Who and when is stamped by the
/// webhook.
pub(super) fn change(cluster: &Cluster, intent: &Intent<'_>) -> Change {
    let old_force = cluster.annotation(keys::FORCE);
    let sleeps = intent.power == Power::Hibernating;
    let changes = desired(cluster) != intent.power;
    let forces = sleeps && intent.force && old_force != Some("true");
    let phase = State::of(cluster).and_then(|state| state.phase);
    let has_begun = phase.is_some_and(|phase| phase.is_of_sleep() && phase != Phase::Preflight);
    let withdraws = sleeps && !intent.force && old_force == Some("true") && !has_begun;
    let timed_out = phase == Some(Phase::DrainTimedOut);
    let is_unknown = cluster.condition(keys::DEHYDRATED).is_none_or(|one| one.reason.as_deref() == Some(PAUSE_FOREIGN));
    let foreign = (!sleeps && is_unknown).then(|| foreign_pause(cluster)).flatten();
    let requests = changes || forces || withdraws || sleeps && timed_out;
    let reason = reason_edit(cluster.annotation(common::REASON), intent.reason, changes);
    let mut annotations: Map<String, Value> = reason.into_iter().collect();
    if !requests {
        if annotations.is_empty() {
            let message = foreign.map_or("unchanged".to_owned(), |why| format!("unchanged: {why}"));
            return Change::None { message, will_reach: true }; // I1
        }
        let patch = json!({ "metadata": { "annotations": annotations } });
        return Change::Patch { patch, message: "reason updated".to_owned(), warnings: Vec::new() }; // I1
    }
    annotations.extend(request(cluster, intent)); // I2, I3, I4
    if forces {
        annotations.insert(keys::FORCE.to_owned(), json!("true"));
    } else if old_force.is_some() && !intent.force {
        annotations.insert(keys::FORCE.to_owned(), Value::Null);
    }
    let message = match intent.power {
        Power::Hibernating if intent.force => "dehydration requested, with force",
        Power::Hibernating => "dehydration requested",
        Power::Running => "hydration requested",
    };
    let mut metadata = json!({ "annotations": annotations });
    if let Some(version) = &cluster.metadata.resource_version {
        metadata["resourceVersion"] = json!(version);
    }
    let warnings = foreign.into_iter().collect();
    Change::Patch { patch: json!({ "metadata": metadata }), message: message.to_owned(), warnings }
}

/// The annotations of a request. It is newer than the one before, and than what the controller has reported: both are
/// compared with it, and each has the time of another clock.
pub(super) fn request(cluster: &Cluster, intent: &Intent<'_>) -> Map<String, Value> {
    let reported = cluster.condition(keys::DEHYDRATED).map(|condition| condition.last_heartbeat_time.as_str());
    let at = later(cluster.annotation(keys::POWER_STATE_AT).into_iter().chain(reported), intent.now);
    let mut annotations = Map::new();
    annotations.insert(keys::POWER_STATE.to_owned(), json!(intent.power));
    annotations.insert(keys::POWER_STATE_AT.to_owned(), json!(at));
    annotations
}

/// Now, or a second after the last of the times that were written before: of two requests the newest wins, whatever the
/// clocks say.
pub(super) fn later<'a>(before: impl IntoIterator<Item = &'a str>, now: Timestamp) -> String {
    let last = before.into_iter().filter_map(format::time).max();
    let after = last.map(|time| time.checked_add(SignedDuration::from_secs(1)).unwrap_or(time));
    format::seconds(after.map_or(now, |after| after.max(now)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::kkp_cluster::KKP_CLUSTER;
    use crate::kinds::kkp_cluster::tests::cluster;

    /// Ten seconds after what the condition reports.
    const NOW: &str = "2026-11-22T18:00:10Z";

    fn change(object: &Value, action: Power, reason: Option<&str>, force: bool) -> Option<(Value, String)> {
        let intent = Intent { power: action, reason, end: None, now: NOW.parse().unwrap(), queried: false, force };
        match KKP_CLUSTER.change(object, &intent).unwrap() {
            Change::Patch { patch, message, .. } => Some((patch, message)),
            Change::None { .. } | Change::RequestCheck { .. } => None,
        }
    }

    #[test]
    fn a_request_is_one_patch_of_annotations() {
        use Power::{Hibernating, Running};
        let asleep = |more: Value| {
            let mut all = json!({ keys::POWER_STATE: "Hibernating", keys::POWER_STATE_AT: "2026-11-22T17:00:00Z" });
            json_patch::merge(&mut all, &more);
            all
        };
        let timed_out = Some(("DrainTimedOut", "a/b"));
        let (refused, waking) = (Some(("Preflight", "refused: no")), Some(("WaitingForNodes", "1 of 5")));
        let sleep = |more: Value| {
            let mut all = json!({ keys::POWER_STATE: "Hibernating", keys::POWER_STATE_AT: NOW });
            // As a merge patch, a null would remove the key from what is expected.
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            Some(json!({ "metadata": { "resourceVersion": "7", "annotations": all } }))
        };
        let wake = |more: Value| {
            sleep(more).map(|mut patch| {
                patch["metadata"]["annotations"][keys::POWER_STATE] = json!("Running");
                patch
            })
        };
        let forced = json!({ keys::FORCE: "true" });
        let unforced = json!({ keys::FORCE: null });
        for (row, annotations, detail, action, reason, force, expected) in [
            ("I1", json!({}), None, Running, None, false, None),
            ("I1", asleep(json!({})), None, Hibernating, None, false, None),
            ("I1", asleep(json!({ common::REASON: "a" })), None, Hibernating, Some("a"), false, None),
            (
                "I1",
                asleep(json!({ common::REASON: "a" })),
                None,
                Hibernating,
                Some("b"),
                false,
                Some(json!({ "metadata": { "annotations": { common::REASON: "b" } } })),
            ),
            ("I1", asleep(forced.clone()), None, Hibernating, None, true, None),
            ("I1", asleep(forced.clone()), Some(("Draining", "")), Hibernating, None, false, None),
            ("I1", asleep(forced.clone()), Some(("Dehydrated", "")), Hibernating, None, false, None),
            ("I2", json!({}), None, Hibernating, None, false, sleep(json!({}))),
            ("I2", json!({ keys::POWER_STATE: "asleep" }), None, Hibernating, None, false, sleep(json!({}))),
            (
                "I2",
                json!({}),
                None,
                Hibernating,
                Some("a"),
                true,
                sleep(json!({ common::REASON: "a", keys::FORCE: "true" })),
            ),
            ("I2", forced.clone(), None, Hibernating, None, false, sleep(unforced.clone())),
            ("I2", forced.clone(), None, Hibernating, None, true, sleep(json!({}))),
            (
                "I2",
                asleep(json!({ common::REASON: "a" })),
                None,
                Running,
                None,
                false,
                wake(json!({ common::REASON: null })),
            ),
            ("I2", asleep(forced.clone()), None, Running, None, false, wake(unforced.clone())),
            ("I3", asleep(json!({})), None, Hibernating, None, true, sleep(forced.clone())),
            ("I3", asleep(forced.clone()), None, Hibernating, None, false, sleep(unforced.clone())),
            ("I3", asleep(forced.clone()), refused, Hibernating, None, false, sleep(unforced.clone())),
            // The next sleep begins when the wake is complete.
            ("I3", asleep(forced.clone()), waking, Hibernating, None, false, sleep(unforced.clone())),
            ("I4", asleep(json!({})), timed_out, Hibernating, None, false, sleep(json!({}))),
            ("I4", asleep(forced.clone()), timed_out, Hibernating, None, false, sleep(unforced)),
            ("I2", asleep(json!({})), timed_out, Running, None, false, wake(json!({}))),
        ] {
            let patch = change(&cluster(&annotations, detail), action, reason, force).map(|(patch, _)| patch);
            assert_eq!(patch, expected, "{row} {annotations} {action:?} {reason:?} {force}");
        }
    }

    #[test]
    fn a_request_is_newer_than_the_one_before_whatever_the_clocks_say() {
        for (before, at) in [
            (None, NOW),
            (Some("2026-11-22T17:59:58Z"), NOW),
            (Some(NOW), "2026-11-22T18:00:11Z"),
            (Some("2026-11-22T19:00:00Z"), "2026-11-22T19:00:01Z"),
            (Some("soon"), NOW),
            (Some("9999-12-30T22:00:00Z"), "9999-12-30T22:00:00Z"), // the last that there is
        ] {
            assert_eq!(later(before, NOW.parse().unwrap()), at, "{before:?}");
        }
        // The controller compares it with its own clock, too: the end of a drain that is to be retried.
        let object = cluster(&json!({ keys::POWER_STATE: "Hibernating" }), Some(("DrainTimedOut", "a/b")));
        for (now, at) in [("2026-11-22T17:55:00Z", "2026-11-22T18:00:01Z"), (NOW, NOW)] {
            let (power, now) = (Power::Hibernating, now.parse().unwrap());
            let intent = Intent { power, reason: None, end: None, now, queried: false, force: false };
            let Change::Patch { patch, .. } = KKP_CLUSTER.change(&object, &intent).unwrap() else { panic!("{now}") };
            assert_eq!(patch["metadata"]["annotations"][keys::POWER_STATE_AT], at);
        }
    }

    /// No controller follows it: the pause is of no sleep of this Cluster, and KKP leaves the cluster alone.
    #[test]
    fn a_wake_of_a_cluster_that_was_made_like_a_sleeping_one_says_that_nothing_follows() {
        let (other, own) = ("u-9/2026-11-22T17:00:00Z", "u-1/2026-11-22T17:00:00Z");
        let told = |annotations: Value, detail: Option<(&str, &str)>, change: Value, power: Power| {
            let mut object = cluster(&annotations, detail);
            let paused =
                json!({ "spec": { "pause": true, "pauseReason": "dehydrated by kubectl-hibernate: weekend" } });
            json_patch::merge(&mut object, &paused);
            json_patch::merge(&mut object, &change);
            let intent =
                Intent { power, reason: None, end: None, now: NOW.parse().unwrap(), queried: false, force: false };
            match KKP_CLUSTER.change(&object, &intent).unwrap() {
                Change::Patch { warnings, .. } => warnings.concat(),
                Change::None { message, .. } => message.replace("unchanged", ""),
                Change::RequestCheck { .. } => panic!("nothing is asked"),
            }
        };
        let asleep = |sleep: &str| json!({ keys::POWER_STATE: "Hibernating", keys::PAUSED_BY_SLEEP: sleep });
        let (none, held) = (json!({}), Some(("PauseForeign", "x")));
        let theirs = json!({ "spec": { "pauseReason": "maintenance" } });
        for (annotations, detail, change, power, says) in [
            (asleep(other), None, none.clone(), Power::Running, true),
            (asleep(other), held, none.clone(), Power::Running, true),
            (json!({}), None, none.clone(), Power::Running, true), // of its spec alone
            (asleep(own), None, none.clone(), Power::Running, false),
            (asleep(other), Some(("Dehydrated", "")), none.clone(), Power::Running, false),
            (asleep(other), None, json!({ "spec": { "pause": false } }), Power::Running, false),
            (asleep(other), None, theirs, Power::Running, false),
            (json!({ keys::PAUSED_BY_SLEEP: other }), None, none, Power::Hibernating, false),
        ] {
            let told = told(annotations.clone(), detail, change.clone(), power);
            assert_eq!(!told.is_empty(), says, "{annotations} {detail:?} {change}: {told}");
            let ways =
                ["no wake follows", "set spec.pause to false, in one write with", "set the annotation to \"u-1/"];
            assert!(!says || ways.iter().all(|way| told.contains(way)), "{told}");
        }
    }

    #[test]
    fn messages_say_what_was_requested() {
        for (annotations, action, reason, force, expected) in [
            (json!({}), Power::Hibernating, None, false, "dehydration requested"),
            (json!({}), Power::Hibernating, None, true, "dehydration requested, with force"),
            (json!({ keys::POWER_STATE: "Hibernating" }), Power::Running, None, false, "hydration requested"),
            (json!({ keys::POWER_STATE: "Hibernating" }), Power::Hibernating, Some("b"), false, "reason updated"),
        ] {
            assert_eq!(change(&cluster(&annotations, None), action, reason, force).unwrap().1, expected);
        }
    }
}
