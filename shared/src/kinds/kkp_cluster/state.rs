//! What `status` shows of a Cluster.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::annotation::format;
use crate::kinds::record::Record;
use crate::kkp::api::Cluster;
use crate::kkp::ledger::sleep_history;
use crate::kkp::pause::is_paused_by_us;
use crate::kkp::{keys, record};

/// How long before the first certificate expires `status` warns.
const EXPIRES_SOON: SignedDuration = SignedDuration::from_hours(14 * 24);

/// Who set `spec.pause`, if this program's controller did.
const US: &str = "hibernate-controller";
/// Who set it otherwise.
pub(super) const OTHERS: &str = "another client";

/// Adds to a record what only a Cluster has. The numbers are in its companion.
pub(super) fn describe(cluster: &Cluster, mut record: Record) -> Record {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    record.platform = text(&cluster.spec.cloud.provider_name);
    record.region = text(&cluster.spec.cloud.dc);
    record.sleep_history = Some(sleep_history(cluster));
    let paused_by = paused_by(cluster, None);
    let pause_reason = cluster.spec.pause_reason.as_deref().filter(|_| cluster.spec.pause).unwrap_or_default(); // row 13
    for (key, value) in [
        ("displayName", cluster.spec.human_readable_name.as_str()),
        ("version", cluster.spec.version.as_str()),
        ("pausedBy", paused_by.unwrap_or_default()),
        ("pauseReason", pause_reason),
        ("notReady", cluster.lacks().unwrap_or_default()),
        ("certificatesExpireAt", cluster.annotation(keys::CERTIFICATES_EXPIRE_AT).unwrap_or_default()),
    ] {
        if !value.is_empty() {
            record.more.insert(key, json!(value));
        }
    }
    record
}

/// Who has set `spec.pause`, if it is set: the sleep of this record, or another client.
pub(super) fn paused_by(cluster: &Cluster, record: Option<&record::Record>) -> Option<&'static str> {
    cluster.spec.pause.then(|| if is_paused_by_us(cluster, record) { US } else { OTHERS })
}

/// A field that only this kind has.
pub(super) fn more(record: &Record, key: &str) -> String {
    plain(record.more.get(key))
}

/// A number of what stays while the cluster sleeps.
pub(super) fn remaining(record: &Record, key: &str) -> String {
    plain(record.more.get("remaining").and_then(|remaining| remaining.get(key)))
}

fn plain(value: Option<&Value>) -> String {
    match value {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

fn expiry(record: &Record) -> Option<Timestamp> {
    format::time(record.more.get("certificatesExpireAt")?.as_str()?)
}

/// `40d`, or `expired`.
pub(super) fn certificates(record: &Record, now: Timestamp) -> String {
    expiry(record).map(|expires| left(expires, now)).unwrap_or_default()
}

fn left(expires: Timestamp, now: Timestamp) -> String {
    let hours = expires.duration_since(now).as_hours();
    match hours {
        _ if expires <= now => "expired".to_owned(),
        0..48 => format!("{hours}h"),
        _ => format!("{}d", hours / 24),
    }
}

/// What deserves attention: certificates that expire soon, a record that cannot be used, and what a wake has left
/// unready.
pub(super) fn warnings(record: &Record, now: Timestamp) -> Vec<String> {
    let expires = expiry(record).filter(|expires| expires.duration_since(now) < EXPIRES_SOON).map(|expires| {
        let at = format::seconds(expires);
        let when = match left(expires, now) {
            left if left == "expired" => format!("has expired at {at}"),
            left => format!("expires in {left}, at {at}"),
        };
        format!(
            "the first certificate of its control plane {when}: wake it in time, because KKP renews certificates only of clusters that it reconciles, \
             and neither a wake past KKP nor a deletion works with an expired one"
        )
    });
    let unusable = record.more.get("recordError").and_then(Value::as_str).map(str::to_owned);
    let lacks = record.more.get("notReady").and_then(Value::as_str);
    let lacks = lacks.map(|lacks| format!("it is awake, and not all of its control plane is ready: {lacks}"));
    expires.into_iter().chain(unusable).chain(lacks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::kkp_cluster::KKP_CLUSTER;
    use crate::kinds::kkp_cluster::tests::{cluster, stands};
    use crate::kinds::lifecycle::UNNOTICED;
    use crate::kkp::data::Outcome;

    fn record(annotations: &Value, detail: Option<(&str, &str)>, change: &Value) -> Record {
        let mut object = cluster(annotations, detail);
        json_patch::merge(&mut object, change);
        KKP_CLUSTER.record(&object).unwrap()
    }

    /// Row 6: KKP's own phase says Running throughout.
    #[test]
    fn state_comes_from_our_condition() {
        use Outcome::{Asleep, Failed, Held, Pending};
        let wanted = json!({ keys::POWER_STATE: "Hibernating" });
        for (detail, outcome, observed, step) in [
            (None, None, "Running", Some((UNNOTICED, false))),
            (Some(("Draining", "x")), Some(Pending), "Draining", Some(("x", false))),
            (Some(("Dehydrated", "x")), Some(Asleep), "Dehydrated", None),
            (Some(("Dehydrated", "x")), Some(Pending), "Dehydrated", Some(("x", false))),
            (Some(("DrainTimedOut", "x")), Some(Failed), "DrainTimedOut", Some(("x", true))),
            (Some(("DrainTimedOut", "x")), Some(Pending), "DrainTimedOut", Some(("x", true))),
            (Some(("Preflight", "x")), Some(Failed), "Preflight", Some(("x", true))),
            (Some(("Preflight", "x")), Some(Pending), "Preflight", Some(("x", false))),
            (Some(("AwakePaused", "x")), Some(Pending), "AwakePaused", Some(("x", true))),
            (Some(("RecordUnreadable", "x")), Some(Held), "RecordUnreadable", Some(("x", true))),
            // Nobody has written a state.
            (Some(("Dehydrated", "x")), None, "Dehydrated", None),
            (Some(("Preflight", "x")), None, "Preflight", Some(("x", false))),
            (Some(("RecordUnreadable", "x")), None, "RecordUnreadable", Some(("x", true))),
        ] {
            let object = outcome.into_iter().fold(cluster(&wanted, detail), stands);
            let record = KKP_CLUSTER.record(&object).unwrap();
            assert_eq!((record.desired.as_str(), record.observed.as_str()), ("Hibernating", observed));
            let found = record.step.as_ref().map(|step| (step.message.as_str(), step.failed));
            assert_eq!(found, step, "{detail:?} {outcome:?}");
        }
        let awake = record(&json!({}), None, &json!({}));
        assert_eq!((awake.desired.as_str(), awake.observed.as_str(), awake.step), ("Running", "Running", None));
        assert_eq!((awake.platform.as_deref(), awake.region.as_deref()), (Some("aws"), Some("eu")));
    }

    #[test]
    fn a_conditions_age_is_since_when_it_is_so() {
        let record = record(&json!({}), Some(("Draining", "")), &json!({}));
        assert_eq!(record.since.map(|since| since.to_string()), Some("2026-11-22T17:00:00Z".to_owned()));
    }

    /// Row 13: a reason that is left over says nothing.
    #[test]
    fn a_pause_is_ours_or_of_others() {
        let (theirs, ours) = ("maintenance", "dehydrated by kubectl-hibernate: weekend");
        for (pause, reason, detail, by, step) in [
            (false, ours, None, "", None),
            (
                true,
                theirs,
                None,
                OTHERS,
                Some("another client has set spec.pause (maintenance): KKP does not reconcile it"),
            ),
            (true, theirs, Some(("Draining", "x")), OTHERS, Some("x")),
            (true, theirs, Some(("WaitingForApi", "x")), OTHERS, Some("x")),
            (true, theirs, Some(("Dehydrated", "")), OTHERS, None),
            (true, ours, Some(("Dehydrated", "")), US, None),
            (true, ours, Some(("AwakePaused", "x")), US, Some("x")),
            (true, ours, None, US, None),
        ] {
            let named = json!({ keys::PAUSED_BY_SLEEP: "u-1/2026-11-22T17:00:00Z" });
            let record = record(&named, detail, &json!({ "spec": { "pause": pause, "pauseReason": reason } }));
            assert_eq!(more(&record, "pausedBy"), by, "{detail:?}");
            assert_eq!(more(&record, "pauseReason").is_empty(), !pause);
            assert_eq!(record.step.map(|step| step.message).as_deref(), step);
        }
    }

    #[test]
    fn what_a_wake_has_left_unready_is_warned_of() {
        let awake = |message: Value| {
            json!({ "status": { "conditions": { keys::AWAKE: {
                "status": "True", "reason": "Awake", "message": message, "kubermaticVersion": "v", "lastHeartbeatTime": "t",
            } } } })
        };
        let warned = |message: Value| {
            let record = record(&json!({}), None, &awake(message));
            assert_eq!(record.observed, "Running");
            warnings(&record, Timestamp::UNIX_EPOCH)
        };
        assert!(warned(Value::Null).is_empty());
        let expected = "it is awake, and not all of its control plane is ready: etcd (2 of 3)";
        assert_eq!(warned(json!("etcd (2 of 3)")), [expected]);
    }

    #[test]
    fn certificates_that_expire_soon_are_warned_of() {
        let now: Timestamp = "2026-11-22T18:00:00Z".parse().unwrap();
        for (expires, cell, warning) in [
            ("", "", ""),
            ("soon", "", ""),
            ("2027-11-22T18:00:00Z", "365d", ""),
            ("2026-12-06T18:00:00Z", "14d", ""),
            ("2026-12-06T17:00:00Z", "13d", "expires in 13d, at 2026-12-06T17:00:00Z: wake it in time"),
            ("2026-11-24T17:00:00Z", "47h", "expires in 47h, at "),
            ("2026-11-22T18:00:00Z", "expired", "has expired at 2026-11-22T18:00:00Z"),
        ] {
            let record =
                record(&json!({ keys::CERTIFICATES_EXPIRE_AT: expires }), Some(("Dehydrated", "")), &json!({}));
            assert_eq!(certificates(&record, now), cell, "{expires}");
            let warnings = warnings(&record, now);
            assert_eq!(warnings.is_empty(), warning.is_empty(), "{expires}");
            assert!(warnings.iter().all(|text| text.contains(warning)), "{warnings:?}");
        }
    }
}
