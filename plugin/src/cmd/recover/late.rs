//! When the volume of a group was released that cannot be brought back any more. The operator forgets a group as soon
//! as all of it is gone, but the controller's Events are kept for a while.

use hub::{HubClient, Resource};
use serde_json::Value;
use shared::annotation::groups::ProcessGroups;
use shared::annotation::keys;
use shared::kinds::Kind;
use shared::record::Format;

use crate::output;
use crate::read::fdb::called;
use crate::recover::check::Refusal;

static EVENT: Kind = Kind::namespaced("", &["v1"], "Event", "events");

/// Says of each group that is gone when it was released, as far as Events tell.
pub(crate) async fn report(hub: &HubClient, namespace: &str, cluster: &str, refusals: &[Refusal]) {
    let gone: Vec<&str> = refusals.iter().filter_map(gone).collect();
    if gone.is_empty() {
        return;
    }
    let fields = format!("involvedObject.kind=FoundationDBCluster,involvedObject.name={cluster},reason=Released");
    // They are a help, not what was asked for: who may not read them does without.
    let Ok(events) = hub.list(Resource::preferred(&EVENT), Some(namespace), &fields, "").await else { return };
    for id in gone {
        if let Some(at) = events.items.iter().filter(|event| names(event, id)).filter_map(time).max() {
            output::note(&format!(
                "{}: {id}: too late: the suspension expired, and the volume was released for deletion at {at}",
                called(cluster)
            ));
        }
    }
}

fn gone(refusal: &Refusal) -> Option<&str> {
    match refusal {
        Refusal::Unknown { id, .. } | Refusal::Gone { id, .. } | Refusal::Going { id, .. } => Some(id),
        _ => None,
    }
}

/// Whether the annotation of an Event names this group.
fn names(event: &Value, id: &str) -> bool {
    let annotation = event["metadata"]["annotations"][keys::PROCESS_GROUPS].as_str();
    annotation.and_then(|text| ProcessGroups::read(text).ok()).is_some_and(|groups| groups.has(id))
}

/// When it was written last.
fn time(event: &Value) -> Option<&str> {
    let series = &event["series"]["lastObservedTime"];
    [series, &event["eventTime"], &event["lastTimestamp"], &event["metadata"]["creationTimestamp"]]
        .into_iter()
        .find_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_names_groups_in_its_annotation() {
        let groups = ProcessGroups::new(["storage-1", "storage-50"]).text();
        let event = |groups: &str| json!({ "metadata": { "annotations": { keys::PROCESS_GROUPS: groups } } });
        assert!(names(&event(&groups), "storage-50"));
        assert!(!names(&event(&groups), "storage-5"));
        for other in [event(&groups.replace("\"v\":1", "\"v\":2")), json!({ "message": "storage-50: x" })] {
            assert!(!names(&other, "storage-50"), "{other}");
        }
    }

    #[test]
    fn the_time_is_that_of_the_last_write() {
        let event = json!({ "eventTime": "2026-11-21T18:00:00.000000Z", "lastTimestamp": null });
        assert_eq!(time(&event), Some("2026-11-21T18:00:00.000000Z"));
        assert_eq!(time(&json!({})), None);
    }
}
