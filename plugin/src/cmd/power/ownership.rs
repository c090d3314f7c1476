//! After a wake, `spec.replicas` or `spec.suspend` belongs to whoever deploys the workload: the plugin gives up the
//! ownership that its write gave it.

use shared::workload::ownership;

use super::ATTEMPTS;
use crate::api::error::HubError;
use crate::api::{Hub, Write};
use crate::cli::{ActArgs, DryRun};
use crate::error::Problem;
use crate::select::target::Target;

/// Gives it up where the plugin has it, also where a wake that was cut short has left it. Returns what to warn of if it
/// could not.
pub(crate) async fn release(hub: &Hub, args: &ActArgs, target: &mut Target, write: &Write) -> Option<String> {
    if args.dry_run != DryRun::None {
        return None;
    }
    let error = released(hub, target, write).await.err()?;
    Some(kept(target, &write.manager, &error))
}

fn kept(target: &Target, manager: &str, error: &Problem) -> String {
    let field = target.sleep_field();
    format!(
        "field manager {manager} still owns spec.{field}, so that a server-side apply of it by others has a conflict; \
         resume it again to release it: {error}"
    )
}

async fn released(hub: &Hub, target: &mut Target, write: &Write) -> Result<(), Problem> {
    for _ in 0..ATTEMPTS {
        let Some(patch) = ownership::release(&target.object, &write.manager) else { return Ok(()) };
        match hub.patch(target.resource, &target.namespace, &target.name, &patch, write).await {
            Ok(object) => {
                target.object = object;
                return Ok(());
            }
            Err(HubError::Conflict { .. }) => *target = target.read_again(hub).await?,
            Err(error) => return Err(error.into()),
        }
    }
    Err(Problem::Contended(ATTEMPTS))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::target::{CRON_JOB, workload};

    use super::*;

    #[test]
    fn a_warning_names_the_field_that_the_kind_sleeps_by() {
        for (row, field) in [
            (&CRON_JOB, "spec.suspend,"),
            (&workload::DEPLOYMENT, "spec.replicas,"),
            (&workload::STATEFUL_SET, "spec.replicas,"),
            (&workload::KKP_MACHINE_DEPLOYMENT, "spec.replicas,"),
        ] {
            let target = Target::new(row, "v1", json!({ "metadata": { "name": "x", "namespace": "shop" } }));
            let text = kept(&target, "kubectl-hibernate", &Problem::Contended(5));
            assert!(text.starts_with(&format!("field manager kubectl-hibernate still owns {field} so that")), "{text}");
        }
    }
}
