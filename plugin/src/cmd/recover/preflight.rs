//! Messages before the first write: why groups cannot be recovered, what endangers the recovery, and which permissions
//! are missing.

use futures::future::join_all;
use hub::exec::POD;
use hub::{HubClient, Resource};
use serde_json::{Value, json};
use shared::annotation::groups::ProcessGroups;
use shared::annotation::keys;
use shared::fdb::recover::check::{Place, Refusal};
use shared::fdb::recover::include::{left_out, orders};
use shared::fdb::recover::presence::spec_drift;
use shared::fdb::recover::{Request, Step};
use shared::kinds::{FOUNDATIONDB_CLUSTER, Kind};
use shared::record::Format;
use view::protection::{self, Protection};

use super::run::Run;
use crate::error::FdbError;
use crate::output;
use crate::read::fdb::{DatabaseSnapshot, SERVICE, called, kind_of};
use crate::select::unique;

/// Says of each group that is gone when its volume was released, as far as Events tell: the operator forgets a group as
/// soon as all of it is gone, but the controller's Events are kept for a while.
pub(super) async fn report_released(hub: &HubClient, Place { namespace, name }: &Place, refusals: &[Refusal]) {
    let gone: Vec<&str> = refusals.iter().filter_map(gone).collect();
    if gone.is_empty() {
        return;
    }
    let fields = format!("involvedObject.kind=FoundationDBCluster,involvedObject.name={name},reason=Released");
    // They are a help, not what was asked for: who may not read them does without.
    let Ok(events) = hub.list(Resource::preferred(&view::EVENT), Some(namespace), &fields, "").await else { return };
    for id in gone {
        if let Some(at) = events.items.iter().filter(|event| names(event, id)).filter_map(time).max() {
            let cluster = called(name);
            output::note(&format!(
                "{cluster}: {id}: too late: the suspension expired, and the volume was released for deletion at {at}"
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

/// What the user should know before.
pub(super) async fn judge(run: &Run<'_>, seen: &DatabaseSnapshot, steps: &[Step]) -> Result<(), FdbError> {
    warn_unprotected(run, seen, "the operator can delete the volumes during the recovery").await;
    if let Some(outdated) = spec_drift(&seen.facts(), &run.record) {
        run.warn(&format!("{outdated}: the operator replaces the group again, unless {} is set back", outdated.field));
    }
    for target in left_out(&seen.cluster, &run.record) {
        run.warn(&format!(
            "{target:?} is neither an IP address nor the locality of a process group: it is not included in the database"
        ));
    }
    let orders = orders(&seen.cluster, &run.record);
    if !run.options.include && !orders.is_empty() {
        let command = run.by_hand(&orders);
        output::note(&format!("--include=never leaves the groups excluded in the database; afterwards run: {command}"));
    }
    let missing = missing(run.hub, &run.place.namespace, steps).await;
    if missing.is_empty() { Ok(()) } else { Err(FdbError::Rights { cluster: run.cluster.clone(), missing }) }
}

pub(super) async fn warn_unprotected(run: &Run<'_>, seen: &DatabaseSnapshot, danger: &str) {
    if let Protection::No(why) = protection::of(run.hub, &run.place.namespace, &seen.cluster).await {
        output::warning(&format!("NOT PROTECTED: {why}; {danger}"));
    }
}

/// Permissions that the user does not have, formatted. Empty if the hub rejects `SelfSubjectAccessReviews`.
async fn missing(hub: &HubClient, namespace: &str, steps: &[Step]) -> Vec<String> {
    let reviews = permissions(steps).into_iter().map(async |permission| {
        let Permission { verb, kind: Kind { group, plural, .. }, subresource } = permission;
        let attributes =
            json!({ "namespace": namespace, "verb": verb, "group": group, "resource": plural, "subresource": subresource });
        (hub.is_allowed(&attributes).await == Some(false)).then(|| words(permission, namespace))
    });
    join_all(reviews).await.into_iter().flatten().collect()
}

/// One permission that the steps need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Permission {
    verb: &'static str,
    kind: &'static Kind,
    /// Empty for the object itself.
    subresource: &'static str,
}

fn permissions(steps: &[Step]) -> Vec<Permission> {
    let patch = |kind, subresource| Permission { verb: "patch", kind, subresource };
    let of_request = |request| match request {
        Request::Edit(edit) => patch(kind_of(edit.kind), ""),
        Request::Cluster(_) => patch(&FOUNDATIONDB_CLUSTER.kind, ""),
        Request::Status(_) => patch(&FOUNDATIONDB_CLUSTER.kind, "status"),
        Request::Create(_) => Permission { verb: "create", kind: &SERVICE, subresource: "" },
    };
    unique(steps.iter().flat_map(|step| match step {
        // API servers check `get` (the request is a GET) and, since 1.35, also `create`.
        Step::Include(..) => {
            ["get", "create"].map(|verb| Permission { verb, kind: &POD, subresource: "exec" }).to_vec()
        }
        step => step.requests().into_iter().map(of_request).collect(),
    }))
}

fn words(right: Permission, namespace: &str) -> String {
    let Permission { verb, kind, subresource } = right;
    let kind = kind.resource_name();
    let whole = if subresource.is_empty() { kind } else { format!("{kind}/{subresource}") };
    let hint = if subresource == "exec" { " (needed to run fdbcli; without it: --include=never)" } else { "" };
    format!("{verb} {whole} in namespace {namespace}{hint}")
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn every_step_needs_its_rights_once() {
        let none = json!([]);
        let steps = [
            Step::Skip(none.clone()),
            Step::Settle,
            Step::Lists(none.clone()),
            Step::Status(none.clone()),
            Step::Include(Vec::new(), shared::fdb::recover::record::Record::default()),
            Step::Services(vec![none.clone()]),
            Step::Resume(none.clone()),
            Step::Clear(Vec::new(), none),
        ];
        let detail: Vec<String> = permissions(&steps).into_iter().map(|right| words(right, "db")).collect();
        assert_eq!(
            detail,
            [
                "patch foundationdbclusters.apps.foundationdb.org in namespace db",
                "patch foundationdbclusters.apps.foundationdb.org/status in namespace db",
                "get pods/exec in namespace db (needed to run fdbcli; without it: --include=never)",
                "create pods/exec in namespace db (needed to run fdbcli; without it: --include=never)",
                "create services in namespace db",
            ]
        );
    }
}
