//! Whether the user may do all of it: asked before anything is changed, so that nothing is left half-done.

use futures::future::join_all;
use serde_json::{Value, json};
use shared::target::{FOUNDATIONDB_CLUSTER, Kind};

use crate::api::exec::POD;
use crate::api::{Hub, Resource, Write};
use crate::read::fdb::{SERVICE, kind_of};
use crate::recover::{Edit, Step};
use crate::select::unique;

static REVIEW: Kind =
    Kind::cluster_scoped("authorization.k8s.io", &["v1"], "SelfSubjectAccessReview", "selfsubjectaccessreviews");

/// One thing to be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Right {
    verb: &'static str,
    kind: &'static Kind,
    /// Subresource, empty for the object itself.
    part: &'static str,
}

/// What the steps need.
fn needed(steps: &[Step]) -> Vec<Right> {
    let patch = |kind, part| Right { verb: "patch", kind, part };
    let cluster = |part| vec![patch(&FOUNDATIONDB_CLUSTER.kind, part)];
    let edited = |edits: &[Edit]| edits.iter().map(|edit| patch(kind_of(edit.kind), "")).collect::<Vec<_>>();
    unique(steps.iter().flat_map(|step| match step {
        Step::Hold(edits) => edited(edits),
        Step::Skip(_) | Step::Lists(_) | Step::Resume(_) => cluster(""),
        Step::Status(_) => cluster("status"),
        // API servers ask for `get`, as the request is a GET, and since 1.35 for `create` besides.
        Step::Include(..) => ["get", "create"].map(|verb| Right { verb, kind: &POD, part: "exec" }).to_vec(),
        Step::Services(_) => vec![Right { verb: "create", kind: &SERVICE, part: "" }],
        Step::Clear(edits, _) => [edited(edits), cluster("")].concat(),
        Step::Settle | Step::Verify | Step::Await(_) => Vec::new(),
    }))
}

/// What the user may not do of the steps, in words. Where the hub does not answer such questions, nothing.
pub(crate) async fn missing(hub: &Hub, namespace: &str, steps: &[Step], write: &Write) -> Vec<String> {
    let rights = needed(steps);
    let reviews = rights.iter().map(|right| async {
        let Right { verb, kind: Kind { group, plural, .. }, part } = right;
        let attributes =
            json!({ "namespace": namespace, "verb": verb, "group": group, "resource": plural, "subresource": part });
        let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": REVIEW.kind,
            "spec": { "resourceAttributes": attributes } });
        let write = Write { dry_run: false, ..write.clone() };
        let answer = hub.create(Resource::preferred(&REVIEW), None, &review, &write).await;
        let denied = |answer: &Value| answer.pointer("/status/allowed").and_then(Value::as_bool) == Some(false);
        answer.is_ok_and(|answer| denied(&answer)).then(|| words(*right, namespace))
    });
    join_all(reviews).await.into_iter().flatten().collect()
}

fn words(right: Right, namespace: &str) -> String {
    let Right { verb, kind, part } = right;
    let kind = kind.resource_name();
    let whole = if part.is_empty() { kind } else { format!("{kind}/{part}") };
    let hint = if part == "exec" { " (needed to run fdbcli; without it: --include=never)" } else { "" };
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
