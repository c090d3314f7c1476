//! A whole namespace: what refuses the change before anything is written, and what is not touched.

use futures::future::join_all;
use serde_json::Value;
use shared::annotation::keys;
use shared::kkp::api::NAMESPACE_PREFIX;
use shared::target::{KKP_CLUSTER, Kind, TargetError};
use shared::text::name_some;

use super::plan::Found;
use crate::api::error::HubError;
use crate::api::{Hub, Resource};
use crate::error::{Exit, Failure, Problem};
use crate::output;
use crate::select::target::Target;
use crate::select::whole::is_control_plane;

static DAEMON_SET: Kind = Kind::namespaced("apps", &["v1"], "DaemonSet", "daemonsets");
static JOB: Kind = Kind::namespaced("batch", &["v1"], "Job", "jobs");

/// How many objects the note names; the rest is counted.
const NAMED: usize = 20;

/// Refuses a namespace of a control plane: of the hub, by its name or because our own programs run there, or of a user
/// cluster of KKP.
///
/// # Errors
/// [`TargetError::Refused`].
pub(super) async fn check(hub: &Hub, name: &str, planned: &[Found]) -> Result<(), Problem> {
    if let Some(id) = name.strip_prefix(NAMESPACE_PREFIX) {
        let found = hub.get(Resource::preferred(&KKP_CLUSTER.kind), "", id).await;
        // What cannot be read is refused, too: etcd must be the last to stop.
        if !matches!(found, Err(HubError::NoKind(_) | HubError::NoObject { .. })) {
            let text =
                format!("namespace/{name} is the control plane of a user cluster of KKP: name cluster/{id} instead");
            return Err(TargetError::Refused(text).into());
        }
    }
    is_of_the_hub(name, planned)
}

fn is_of_the_hub(name: &str, planned: &[Found]) -> Result<(), Problem> {
    if !is_control_plane(name) && !planned.iter().flatten().any(|one| is_ours(&one.target)) {
        return Ok(());
    }
    let text = format!(
        "namespace/{name} belongs to the control plane of the hub and is not changed as a whole: name its workloads, \
         as in deploy/NAME -n {name}"
    );
    Err(TargetError::Refused(text).into())
}

fn is_ours(target: &Target) -> bool {
    target.object.pointer("/metadata/labels/app.kubernetes.io~1part-of").is_some_and(|program| program == keys::PLUGIN)
}

/// Prints why a namespace cannot be put to sleep as a whole. Returns the exit code if anything of it refuses or is not
/// read.
pub(super) fn refused(name: &str, planned: &[Found]) -> Option<Exit> {
    let refusals = refusals(planned);
    if refusals.is_empty() {
        return None;
    }
    let exit = Exit::of(refusals.into_iter().map(output::failed));
    if planned.iter().any(Result::is_ok) {
        output::note(&format!(
            "nothing in namespace {name} was changed; to put the others to sleep, name them, as in deploy/NAME -n {name}"
        ));
    }
    Some(exit)
}

/// What is not read, and then what refuses.
fn refusals(planned: &[Found]) -> Vec<&Failure> {
    let unread = planned.iter().filter_map(|one| one.as_ref().err());
    unread.chain(planned.iter().flatten().filter_map(|one| one.change.as_ref().err())).collect()
}

/// Names what keeps running: `DaemonSet`s, and Jobs under way.
pub(super) async fn note_untouched(hub: &Hub, name: &str) {
    let kinds: [&'static Kind; 2] = [&DAEMON_SET, &JOB];
    let lists = kinds.map(|kind| hub.list(Resource::preferred(kind), Some(name), "", ""));
    let mut untouched: Vec<String> = Vec::new();
    for (kind, list) in kinds.into_iter().zip(join_all(lists).await) {
        match list {
            Ok(list) => untouched.extend(list.items.iter().filter(|object| !is_over(object)).filter_map(|object| {
                let name = object.pointer("/metadata/name")?.as_str()?;
                Some(kind.full_name(name))
            })),
            Err(error) if hub.verbose => output::note(&format!("cannot list {}: {error}", kind.resource_name())),
            Err(_) => {}
        }
    }
    if !untouched.is_empty() {
        output::note(&untouched_text(&untouched));
    }
}

fn untouched_text(names: &[String]) -> String {
    format!("not touched: {}", name_some(names, NAMED))
}

/// Whether a Job has ended or does not run; nothing else has these fields.
fn is_over(object: &Value) -> bool {
    let ended = |condition: &Value| {
        condition["status"] == "True" && (condition["type"] == "Complete" || condition["type"] == "Failed")
    };
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let suspended = object.pointer("/spec/suspend").and_then(Value::as_bool).unwrap_or_default();
    suspended || conditions.is_some_and(|conditions| conditions.iter().any(ended))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::target::Change;
    use shared::target::workload::DEPLOYMENT;

    use super::super::plan::Planned;
    use super::*;

    fn planned(name: &str, labels: &Value, change: Result<Change, Failure>) -> Planned {
        let object = json!({ "metadata": { "name": name, "namespace": "x", "labels": labels } });
        Planned { target: Target::new(&DEPLOYMENT, "v1", object), change, preflight: None }
    }

    fn unchanged() -> Change {
        Change::None { message: String::new(), follows: true }
    }

    #[test]
    fn a_namespace_of_the_control_plane_is_refused_by_name_and_by_what_runs_there() {
        let ours = json!({ "app.kubernetes.io/part-of": "kubectl-hibernate" });
        for (name, labels, exit) in [
            ("shop", json!({}), None),
            ("kube-system", json!({}), Some(Exit::Refused)),
            ("renamed", ours, Some(Exit::Refused)),
        ] {
            let checked = is_of_the_hub(name, &[Ok(planned("web", &labels, Ok(unchanged())))]);
            assert_eq!(checked.err().map(|problem| problem.exit()), exit, "{name}");
        }
    }

    #[test]
    fn one_that_refuses_or_cannot_be_read_refuses_the_whole_namespace() {
        let plan = |change| Ok(planned("web", &json!({}), change));
        let failed = |error: TargetError| plan(Err(Failure::new("deployment.apps/web".to_owned(), error.into())));
        let fine = || plan(Ok(unchanged()));
        let volumes = || failed(TargetError::Refused("whenScaled".to_owned()));
        let broken = || failed(TargetError::Impossible("no count".to_owned()));
        let unread = || {
            let error = HubError::Forbidden { object: "cronjobs.batch".to_owned(), message: "no".to_owned() };
            Failure::new("cronjobs.batch".to_owned(), error.into())
        };
        for (planned, expected) in [
            (vec![fine()], None),
            (vec![fine(), volumes()], Some(Exit::Refused)),
            (vec![broken()], Some(Exit::Error)),
            (vec![Err(unread()), fine()], Some(Exit::Error)),
            (vec![Err(unread()), volumes()], Some(Exit::Error)),
        ] {
            assert_eq!(refused("shop", &planned), expected);
        }
        assert_eq!(refusals(&[volumes()])[0].to_string(), "deployment.apps/web: whenScaled");
    }

    #[test]
    fn only_jobs_under_way_are_named() {
        let condition =
            |type_: &str, status: &str| json!({ "status": { "conditions": [{ "type": type_, "status": status }] } });
        for (object, over) in [
            (json!({}), false),
            (json!({ "status": { "active": 1 } }), false),
            (condition("Complete", "True"), true),
            (condition("Failed", "True"), true),
            (condition("Failed", "False"), false),
            (condition("SuccessCriteriaMet", "True"), false),
            (json!({ "spec": { "suspend": true } }), true),
        ] {
            assert_eq!(is_over(&object), over, "{object}");
        }
        let many: Vec<String> = (0..22).map(|at| format!("job.batch/{at}")).collect();
        assert!(untouched_text(&many).ends_with("job.batch/19 and 2 more"));
    }
}
