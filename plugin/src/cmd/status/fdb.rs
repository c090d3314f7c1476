//! FoundationDB clusters as a person reads them.

use std::time::Duration;

use jiff::Timestamp;
use shared::annotation::{format, keys};
use shared::fdb::api::Health;
use shared::fdb::suspension::Minimum;
use view::age::age;
use view::fdb::{DatabaseState, SuspendedGroup};

use super::{Render, Style};
use crate::output;

impl Render for DatabaseState {
    fn full(&self, style: &Style) -> Vec<String> {
        lines(self, *style).iter().map(|line| output::plain(line)).collect()
    }
}

/// What deserves attention of a cluster.
pub(super) fn warning(record: &DatabaseState) -> Option<String> {
    let is_wanted = record.protected == "no" && record.minimum_suspension.is_some();
    let why = record.unprotected_because.as_deref().unwrap_or_default();
    is_wanted.then(|| format!("{}/{} is NOT PROTECTED: {why}", record.namespace, record.name))
}

fn lines(record: &DatabaseState, Style { now, headers, wide, .. }: Style) -> Vec<String> {
    let protection = match (record.protected, &record.unprotected_because) {
        ("no", _) => "NOT PROTECTED".to_owned(),
        ("off", _) => "no, because suspension is off".to_owned(),
        ("unknown", Some(why)) => format!("unknown ({why})"),
        (word, _) => word.to_owned(),
    };
    let mut lines = vec![
        format!("{}/{}", record.namespace, record.name),
        format!("  Health:      {}", health(record.health.as_ref())),
        format!("  Suspension:  {}", suspension(record.minimum_suspension.as_deref())),
        format!("  Protected:   {protection}"),
    ];
    if !record.unlocked.is_empty() {
        lines.push(format!("  NOT PROTECTED: {}, because of {}", record.unlocked.join(", "), keys::RELEASE));
    }
    if !record.excluded.is_empty() {
        lines.push(format!(
            "  EXCLUDED:    {}: not removed, but excluded in the database; the operator replaces a group that stays excluded (run \
             `recover process-groups` again, or include it)",
            record.excluded.join(", ")
        ));
    }
    if record.skipped {
        lines.push("  Operator:    paused (spec.skip is true)".to_owned());
    }
    if !record.recovering.is_empty() {
        lines.push(format!(
            "  Recovering:  {} (if there is no progress, run `recover process-groups` again)",
            record.recovering.join(", ")
        ));
    }
    if record.suspended.is_empty() {
        lines.push("  Suspended:   nothing".to_owned());
        return lines;
    }
    let mut header = vec!["GROUP", "CLASS", "ZONE", "SINCE", "EXPIRES", "SIZE"];
    if wide {
        header.extend(["WHY", "CLAIM"]);
    }
    let rows = record.suspended.iter().map(|group| {
        let mut cells = vec![
            group.group.clone(),
            group.class.clone(),
            group.zone.clone().unwrap_or_default(),
            group.since.map_or_else(|| "not stamped yet".to_owned(), |since| age(since, now)),
            expires(group, now),
            group.size.clone(),
        ];
        if wide {
            cells.extend([group.why.clone().unwrap_or_default(), group.claim.clone()]);
        }
        cells
    });
    lines.extend(output::table(if headers { &header } else { &[] }, rows));
    lines
}

/// How long removed groups are kept, by the cluster's annotation.
fn suspension(minimum: Option<&str>) -> String {
    let Some(text) = minimum else { return format!("no annotation {}", keys::MINIMUM_SUSPENSION) };
    match Minimum::of(minimum, Duration::ZERO) {
        Minimum::Unreadable(_) => {
            format!("{text:?} is invalid: all suspended groups are kept until it is corrected")
        }
        Minimum::Off | Minimum::For(_) => text.to_owned(),
    }
}

fn health(health: Option<&Health>) -> String {
    let Some(health) = health else { return "unknown".to_owned() };
    let words = [
        if health.available { "available" } else { "NOT AVAILABLE" },
        if health.healthy { "healthy" } else { "not healthy" },
        if health.full_replication { "fully replicated" } else { "not fully replicated" },
    ];
    words.join(", ")
}

/// `in 119m (2026-11-21T20:00:00Z)`.
fn expires(group: &SuspendedGroup, now: Timestamp) -> String {
    match group.expires {
        _ if group.released => "released".to_owned(),
        None => "-".to_owned(),
        Some(at) if at <= now => format!("due ({})", format::seconds(at)),
        Some(at) => format!("in {} ({})", age(now, at), format::seconds(at)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use view::protection::Protection;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-21T18:30:00Z".parse().unwrap()
    }

    fn held() -> Value {
        json!({
            keys::SUSPENDED_AT: "2026-11-21T18:00:05Z",
            keys::SUSPENSION: json!({ "v": 1, "uid": "p-1", "group": "storage-1", "removal": "2026-11-21T17:59:58Z", "minimum": "2h", "why": "operator" }).to_string(),
        })
    }

    /// A cluster as the hub sends it, and its claims.
    fn cluster(annotations: &Value) -> (Value, Vec<Value>) {
        let object = json!({
            "apiVersion": "apps.foundationdb.org/v1beta2", "kind": "FoundationDBCluster",
            "metadata": { "name": "sample", "namespace": "db", "annotations": { keys::MINIMUM_SUSPENSION: "2h" } },
            "spec": { "version": "7.3.69", "skip": true },
            "status": {
                "health": { "available": true, "healthy": true, "fullReplication": false },
                "processGroups": [
                    { "processGroupID": "storage-1", "processClass": "storage", "faultDomain": "zone-a",
                      "removalTimestamp": "2026-11-21T17:59:58Z", "exclusionTimestamp": "2026-11-21T18:00:00Z" },
                    { "processGroupID": "storage-2", "processClass": "storage" },
                ],
            },
        });
        let labels = json!({ "foundationdb.org/fdb-cluster-name": "sample", "foundationdb.org/fdb-process-group-id": "storage-1" });
        let claim = json!({
            "metadata": { "name": "sample-storage-1-data", "uid": "p-1", "labels": labels, "annotations": annotations },
            "spec": { "resources": { "requests": { "storage": "16Gi" } } },
        });
        (object, vec![claim])
    }

    fn state((object, claims): &(Value, Vec<Value>), protection: Protection) -> DatabaseState {
        DatabaseState::new(&serde_json::from_value(object.clone()).unwrap(), claims, &[], protection)
    }

    fn text(state: &DatabaseState, wide: bool) -> String {
        state.full(&Style { now: now(), colors: false, headers: true, wide }).join("\n")
    }

    fn shown(annotations: &Value, protection: Protection) -> String {
        text(&state(&cluster(annotations), protection), true)
    }

    #[test]
    fn a_suspended_group_shows_until_when() {
        let held = held();
        insta::assert_snapshot!(shown(&held, Protection::Yes));
        insta::assert_snapshot!(shown(&json!({}), Protection::No("x".to_owned())));
        let mut released = held;
        released[keys::RELEASED_AT] = json!("2026-11-21T20:00:05Z");
        assert!(shown(&released, Protection::Yes).contains("released"));
    }

    #[test]
    fn a_minimum_that_cannot_be_read_is_said_to_keep_everything() {
        let mut cluster = cluster(&held());
        cluster.0["metadata"]["annotations"][keys::MINIMUM_SUSPENSION] = json!("bad");
        let state = state(&cluster, Protection::Yes);
        let text = text(&state, false);
        let part = "  Suspension:  \"bad\" is invalid: all suspended groups are kept until it is corrected";
        assert!(text.contains(part), "{text}");
        assert_eq!(state.minimum_suspension.as_deref(), Some("bad"));
        assert!(state.suspended.iter().all(|group| group.expires.is_none()), "{state:?}");
    }

    #[test]
    fn a_cluster_that_switches_suspension_off_lacks_no_protection() {
        let (plain, stamped) = (json!({}), held());
        for (minimum, annotations, is_off) in [
            ("0", &plain, true),
            ("0s", &plain, true),
            // What is stamped already needs its protection.
            ("0", &stamped, false),
            ("2h", &plain, false),
            ("bad", &plain, false),
        ] {
            let mut cluster = cluster(annotations);
            cluster.0["metadata"]["annotations"][keys::MINIMUM_SUSPENSION] = json!(minimum);
            let state = state(&cluster, Protection::No("x".to_owned()));
            let text = text(&state, false);
            let expected = if is_off {
                "  Protected:   no, because suspension is off\n"
            } else {
                "  Protected:   NOT PROTECTED\n"
            };
            assert!(text.contains(expected), "{minimum}: {text}");
            assert_eq!(warning(&state).is_none(), is_off, "{minimum}");
        }
    }

    #[test]
    fn a_group_that_stays_excluded_is_shown() {
        let mut cluster = cluster(&held());
        cluster.0["status"]["processGroups"][1]["processGroupConditions"] =
            json!([{ "type": "ProcessIsMarkedAsExcluded", "timestamp": 1 }]);
        let text = text(&state(&cluster, Protection::Yes), false);
        let part = "  EXCLUDED:    storage-2: not removed, but excluded in the database";
        assert!(text.contains(part), "{text}");
        cluster.0["spec"]["processGroupsToRemove"] = json!(["storage-2"]);
        assert!(state(&cluster, Protection::Yes).excluded.is_empty(), "it is being removed");
    }

    #[test]
    fn a_key_on_a_volume_in_use_is_shown() {
        let mut cluster = cluster(&json!({ keys::RELEASE: "p-1" }));
        let of = |name: &str, key: &str| json!({ "metadata": { "name": name, "uid": "p-2", "annotations": { keys::RELEASE: key } } });
        cluster.1.extend([of("sample-storage-2-data", "p-2"), of("sample-storage-3-data", "p-1")]);
        let state = state(&cluster, Protection::Yes);
        assert!(state.suspended[0].released, "it is shown where it is suspended");
        let text = text(&state, false);
        let part = "  NOT PROTECTED: sample-storage-2-data, because of hibernate.sh/release\n";
        assert!(text.contains(part), "{text}");
    }
}
