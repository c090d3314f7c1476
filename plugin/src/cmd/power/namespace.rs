//! A whole namespace: what refuses the change before anything is written.

use crate::cmd::power_plan::PlanResult;
use crate::error::{Exit, Failure};
use crate::output;

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
    use hub::error::HubError;
    use serde_json::json;
    use shared::kinds::workload::DEPLOYMENT;
    use shared::kinds::{Change, TargetError};
    use view::target::Target;

    use super::*;
    use crate::cmd::power_plan::TargetPlan;

    fn planned(change: Result<Change, Failure>) -> TargetPlan {
        let object = json!({ "metadata": { "name": "web", "namespace": "x" } });
        TargetPlan { target: Target::new(&DEPLOYMENT, "v1", object), change, briefing: None }
    }

    fn unchanged() -> Change {
        Change::None { message: String::new(), will_reach: true }
    }

    #[test]
    fn one_that_refuses_or_cannot_be_read_refuses_the_whole_namespace() {
        let plan = |change| Ok(planned(change));
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
