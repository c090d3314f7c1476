//! Checks the user's permissions for all steps before the first write.

use futures::future::join_all;
use hub::exec::POD;
use hub::{HubClient, Write};
use serde_json::json;
use shared::kinds::{FOUNDATIONDB_CLUSTER, Kind};

use crate::read::fdb::{SERVICE, kind_of};
use crate::read::rights::is_allowed;
use crate::recover::{Edit, Step};
use crate::select::unique;

/// One permission that the steps need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Permission {
    verb: &'static str,
    kind: &'static Kind,
    /// Empty for the object itself.
    subresource: &'static str,
}

/// The permissions for these steps.
fn needed(steps: &[Step]) -> Vec<Permission> {
    let patch = |kind, subresource| Permission { verb: "patch", kind, subresource };
    let cluster = |subresource| vec![patch(&FOUNDATIONDB_CLUSTER.kind, subresource)];
    let edited = |edits: &[Edit]| edits.iter().map(|edit| patch(kind_of(edit.kind), "")).collect::<Vec<_>>();
    unique(steps.iter().flat_map(|step| match step {
        Step::Hold(edits) => edited(edits),
        Step::Skip(_) | Step::Lists(_) | Step::Resume(_) => cluster(""),
        Step::Status(_) => cluster("status"),
        // API servers check `get` (the request is a GET) and, since 1.35, also `create`.
        Step::Include(..) => {
            ["get", "create"].map(|verb| Permission { verb, kind: &POD, subresource: "exec" }).to_vec()
        }
        Step::Services(_) => vec![Permission { verb: "create", kind: &SERVICE, subresource: "" }],
        Step::Clear(edits, _) => [edited(edits), cluster("")].concat(),
        Step::Settle | Step::Verify | Step::Await(_) => Vec::new(),
    }))
}

/// Missing permissions, formatted. Empty if the hub rejects `SelfSubjectAccessReviews`.
pub(crate) async fn missing(hub: &HubClient, namespace: &str, steps: &[Step], write: &Write) -> Vec<String> {
    let rights = needed(steps);
    let reviews = rights.iter().map(|right| async {
        let Permission { verb, kind: Kind { group, plural, .. }, subresource } = right;
        let attributes =
            json!({ "namespace": namespace, "verb": verb, "group": group, "resource": plural, "subresource": subresource });
        (is_allowed(hub, &attributes, write).await == Some(false)).then(|| words(*right, namespace))
    });
    join_all(reviews).await.into_iter().flatten().collect()
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
    fn every_step_needs_its_rights_once() {
        let none = json!([]);
        let steps = [
            Step::Skip(none.clone()),
            Step::Settle,
            Step::Lists(none.clone()),
            Step::Status(none.clone()),
            Step::Include(Vec::new(), crate::recover::record::Record::default()),
            Step::Services(Vec::new()),
            Step::Resume(none.clone()),
            Step::Clear(Vec::new(), none),
        ];
        let detail: Vec<String> = needed(&steps).into_iter().map(|right| words(right, "db")).collect();
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
