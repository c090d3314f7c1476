//! A whole namespace: what refuses the change before anything is written.

use hub::error::HubError;
use hub::{HubClient, Resource};
use shared::kinds::{Kinds, TargetError};
use shared::workload::namespaces::{is_control_plane, is_ours};
use view::target::Target;

use crate::cmd::power_plan::PlanResult;
use crate::error::{Exit, Failure, Problem};
use crate::output;

/// Refuses a namespace of a control plane: of the hub, by its name or because our own programs run there, or of a
/// target.
///
/// # Errors
/// [`TargetError::Refused`].
pub(super) async fn check<E>(
    kinds: Kinds,
    hub: &HubClient,
    name: &str,
    found: &[Result<Target, E>],
) -> Result<(), Problem> {
    for row in kinds.targets {
        let Some(id) = row.control_plane.and_then(|prefix| name.strip_prefix(prefix)) else { continue };
        let found = hub.get(Resource::preferred(&row.kind), "", id).await;
        // What cannot be read is refused, too: etcd must be the last to stop.
        if !matches!(found, Err(HubError::NoKind(_) | HubError::NoObject { .. })) {
            let (target, word) = (row.kind.full_name(id), row.kind.short.first().unwrap_or(&row.kind.plural));
            let text = format!("namespace/{name} is the control plane of {target}: name {word}/{id} instead");
            return Err(TargetError::Refused(text).into());
        }
    }
    is_of_the_hub(name, found)
}

fn is_of_the_hub<E>(name: &str, found: &[Result<Target, E>]) -> Result<(), Problem> {
    if !is_control_plane(name) && !found.iter().flatten().any(|target| is_ours(&target.object)) {
        return Ok(());
    }
    let text = format!(
        "namespace/{name} belongs to the control plane of the hub and is not changed as a whole: name its workloads, \
         as in deploy/NAME -n {name}"
    );
    Err(TargetError::Refused(text).into())
}

/// Prints why a namespace cannot be put to sleep as a whole. Returns the exit code if anything of it refuses or is not
/// read.
pub(super) fn refused(name: &str, plans: &[PlanResult]) -> Option<Exit> {
    let refusals = refusals(plans);
    if refusals.is_empty() {
        return None;
    }
    let exit = Exit::of(refusals.into_iter().map(output::failed));
    if plans.iter().any(Result::is_ok) {
        output::note(&format!(
            "nothing in namespace {name} was changed; to put the others to sleep, name them, as in deploy/NAME -n {name}"
        ));
    }
    Some(exit)
}

/// What is not read, and then what refuses.
fn refusals(plans: &[PlanResult]) -> Vec<&Failure> {
    let unread = plans.iter().filter_map(|one| one.as_ref().err());
    unread.chain(plans.iter().flatten().filter_map(|one| one.change.as_ref().err())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shared::kinds::Change;
    use shared::kinds::workload::DEPLOYMENT;

    use super::*;
    use crate::cmd::power_plan::TargetPlan;

    fn planned(name: &str, labels: &Value, change: Result<Change, Failure>) -> TargetPlan {
        let object = json!({ "metadata": { "name": name, "namespace": "x", "labels": labels } });
        TargetPlan { target: Target::new(&DEPLOYMENT, "v1", object), change, briefing: None }
    }

    fn unchanged() -> Change {
        Change::None { message: String::new(), will_reach: true }
    }

    #[test]
    fn a_namespace_of_the_control_plane_is_refused_by_name_and_by_what_runs_there() {
        let ours = json!({ "app.kubernetes.io/part-of": "kubectl-hibernate" });
        for (name, labels, exit) in [
            ("shop", json!({}), None),
            ("kube-system", json!({}), Some(Exit::Refused)),
            ("renamed", ours, Some(Exit::Refused)),
        ] {
            let target = planned("web", &labels, Ok(unchanged())).target;
            let checked = is_of_the_hub(name, &[Ok::<_, ()>(target)]);
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
}
