//! Whether the user may do all of it: asked before anything is changed, so that nothing is left half-done.

use futures::future::join_all;
use serde_json::{Value, json};
use shared::target::Kind;

use crate::api::{Hub, Resource, Write};
use crate::recover::{Kept, Step};

static REVIEW: Kind =
    Kind::cluster_scoped("authorization.k8s.io", &["v1"], "SelfSubjectAccessReview", "selfsubjectaccessreviews");

/// One thing to be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Right {
    verb: &'static str,
    group: &'static str,
    plural: &'static str,
    part: &'static str,
}

const CLUSTERS: Right =
    Right { verb: "patch", group: "apps.foundationdb.org", plural: "foundationdbclusters", part: "" };
const STATUS: Right = Right { part: "status", ..CLUSTERS };
const CLAIMS: Right = Right { verb: "patch", group: "", plural: "persistentvolumeclaims", part: "" };
const SERVICES: Right = Right { plural: "services", ..CLAIMS };
const CREATE_SERVICES: Right = Right { verb: "create", ..SERVICES };
/// API servers ask for `get`, as the request is a GET, and since 1.35 for `create` besides.
const EXEC: [Right; 2] = [
    Right { verb: "get", group: "", plural: "pods", part: "exec" },
    Right { verb: "create", group: "", plural: "pods", part: "exec" },
];

/// What the steps need.
fn needed(steps: &[Step]) -> Vec<Right> {
    let mut rights = Vec::new();
    for step in steps {
        let edited = |edits: &[crate::recover::Edit]| {
            edits.iter().map(|edit| if edit.kind == Kept::Claim { CLAIMS } else { SERVICES }).collect()
        };
        rights.extend(match step {
            Step::Hold(edits) => edited(edits),
            Step::Skip(_) | Step::Lists(_) | Step::Resume(_) => vec![CLUSTERS],
            Step::Status(_) => vec![STATUS],
            Step::Include(..) => EXEC.to_vec(),
            Step::Services(_) => vec![CREATE_SERVICES],
            Step::Clear(edits, _) => [edited(edits), vec![CLUSTERS]].concat(),
            Step::Settle | Step::Verify | Step::Await(_) => Vec::new(),
        });
    }
    let mut once: Vec<Right> = Vec::new();
    for right in rights {
        if !once.contains(&right) {
            once.push(right);
        }
    }
    once
}

/// What the user may not do of the steps, in words. Where the hub does not answer such questions, nothing.
pub(crate) async fn missing(hub: &Hub, namespace: &str, steps: &[Step], write: &Write) -> Vec<String> {
    let rights = needed(steps);
    let asked = rights.iter().map(|right| async {
        let Right { verb, group, plural, part } = right;
        let attributes =
            json!({ "namespace": namespace, "verb": verb, "group": group, "resource": plural, "subresource": part });
        let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": REVIEW.kind,
            "spec": { "resourceAttributes": attributes } });
        let write = Write { dry_run: false, ..write.clone() };
        let answer = hub.create(Resource::preferred(&REVIEW), None, &review, &write).await;
        let denied = |answer: &Value| answer.pointer("/status/allowed").and_then(Value::as_bool) == Some(false);
        answer.is_ok_and(|answer| denied(&answer)).then(|| words(*right, namespace))
    });
    join_all(asked).await.into_iter().flatten().collect()
}

fn words(right: Right, namespace: &str) -> String {
    let Right { verb, group, plural, part } = right;
    let whole = match (group, part) {
        ("", "") => plural.to_owned(),
        ("", part) => format!("{plural}/{part}"),
        (group, "") => format!("{plural}.{group}"),
        (group, part) => format!("{plural}.{group}/{part}"),
    };
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
        let said: Vec<String> = needed(&steps).into_iter().map(|right| words(right, "db")).collect();
        assert_eq!(
            said,
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
