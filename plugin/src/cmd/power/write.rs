//! Writes what was planned to all targets: to the target, or, where its own system refuses to store the request, to the
//! companion that takes it instead.

use futures::{StreamExt, stream};
use hub::error::HubError;
use hub::middleware::with_warnings;
use hub::{HubClient, Resource, Write, patched};
use serde_json::Value;
use shared::kinds::{Change, Companion, Intent, TargetError};
use shared::power::Power;
use shared::workload::ownership;
use view::CONCURRENCY;
use view::target::{Target, get_companion};

use super::report::{Done, Outcome, Reporter};
use crate::cli::DryRun;
use crate::cmd::power_plan::{PlanResult, PowerRequest, TargetPlan};
use crate::cmd::rewrite::ATTEMPTS;
use crate::error::{Exit, Failure, Problem};

/// How targets are written.
pub(super) struct Writer<'a> {
    hub: &'a HubClient,
    intent: &'a Intent<'a>,
    /// The selector of the targets; empty if they are named.
    labels: &'a str,
    dry_run: DryRun,
    settings: Write,
}

impl<'a> Writer<'a> {
    pub(super) fn new(PowerRequest { hub, args, intent, labels }: PowerRequest<'a>) -> Self {
        Self { hub, intent, labels, dry_run: args.write.dry_run, settings: (&args.write).into() }
    }

    /// Writes to all targets at the same time, and reports them in the order given as soon as they are done.
    pub(super) async fn all(&self, plans: Vec<PlanResult>, reporter: &mut Reporter<'_>) -> (Vec<Done>, Vec<Exit>) {
        let (mut done, mut exits) = (Vec::new(), Vec::new());
        let mut work = stream::iter(plans).map(|one| self.outcome(one)).buffered(CONCURRENCY);
        while let Some(outcome) = work.next().await {
            reporter.report(&outcome);
            match outcome.result {
                Ok(one) => done.push(one),
                Err(failure) => exits.push(failure.problem.exit()),
            }
        }
        (done, exits)
    }

    async fn outcome(&self, plan: PlanResult) -> Outcome {
        let TargetPlan { target, change, .. } = match plan {
            Ok(plan) => plan,
            Err(failure) => return Outcome { of: None, warnings: Vec::new(), result: Err(failure) },
        };
        let (what, namespace) = (target.full_name(), target.namespace.clone());
        let (result, warnings) = match change {
            Ok(change) => with_warnings(self.write(target, change)).await,
            Err(failure) => (Err(*failure.problem), Vec::new()),
        };
        let result = result.map_err(|problem| Failure::new(what.clone(), problem));
        Outcome { of: Some((what, namespace)), warnings, result }
    }

    /// Writes one target, planned again if another client wrote it in between.
    async fn write(&self, mut target: Target, mut change: Change) -> Result<Done, Problem> {
        for _ in 0..ATTEMPTS {
            let (patch, message) = match change {
                Change::Patch { patch, message, .. } => (patch, message),
                Change::None { message, will_reach } => {
                    let done = Done { changed: false, will_reach, ..Done::written(target, message) };
                    return Ok(self.release(done).await);
                }
                Change::RequestCheck { patch, requested, message } => {
                    let done = Done { requested: Some(requested), ..Done::written(target, message) };
                    return Ok(self.ask(&patch, done).await);
                }
            };
            let refusal = match self.apply(&target, &patch).await {
                Ok(object) => {
                    target.object = object;
                    return Ok(self.release(Done::written(target, message)).await);
                }
                Err(HubError::Conflict { .. }) => {
                    target = target.read_again(self.hub, self.labels).await?;
                    change = target.row.change(&target.object, self.intent)?;
                    continue;
                }
                Err(refusal) => refusal,
            };
            if let Some(text) = target.row.outdated(&refusal.to_string()) {
                return Err(TargetError::Refused(text).into());
            }
            let Some(companion) = companion_for(&target, &refusal) else { return Err(refusal.into()) };
            let warnings = vec![self.stand_in(&target, companion, refusal).await?];
            return Ok(Done { warnings, ..Done::written(target, message) });
        }
        Err(Problem::Contended(ATTEMPTS))
    }

    /// Asks the controller to check a target that is in the state asked for. A refusal is only a warning: there was
    /// nothing to do.
    async fn ask(&self, patch: &Value, mut done: Done) -> Done {
        match self.apply(&done.target, patch).await {
            Ok(object) => done.target.object = object,
            Err(error) => {
                let warnings = vec![format!("no check of its machines was requested: {error}")];
                done = Done { message: "unchanged".to_owned(), changed: false, requested: None, warnings, ..done };
            }
        }
        done
    }

    async fn apply(&self, target: &Target, patch: &Value) -> Result<Value, HubError> {
        match self.dry_run {
            DryRun::Client => Ok(patched(&target.object, patch)),
            DryRun::None | DryRun::Server => {
                // An old definition does not have the field of a row. A wake must pass all the same.
                let strict = self.intent.power == Power::Hibernating && target.row.sleep_row().is_some();
                let settings = Write { strict, ..self.settings.clone() };
                self.hub.patch(target.resource, &target.namespace, &target.name, patch, &settings).await
            }
        }
    }

    /// After a wake the field that a sleep sets belongs to whoever deploys the target: gives up the ownership that a
    /// write gave the plugin, also where a wake that was cut short has left it.
    async fn release(&self, mut done: Done) -> Done {
        if self.dry_run == DryRun::None
            && let Some(field) = done.target.row.deployed_field
            && let Err(error) = self.released(&mut done.target).await
        {
            done.warnings.push(kept(field, &self.settings.manager, &error));
        }
        done
    }

    async fn released(&self, target: &mut Target) -> Result<(), Problem> {
        for _ in 0..ATTEMPTS {
            let Some(patch) = ownership::release(&target.object, &self.settings.manager) else { return Ok(()) };
            match self.apply(target, &patch).await {
                Ok(object) => {
                    target.object = object;
                    return Ok(());
                }
                // The wake is written, whatever its labels have become.
                Err(HubError::Conflict { .. }) => *target = target.read_again(self.hub, "").await?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(Problem::Contended(ATTEMPTS))
    }

    /// Writes the request to the companion. Returns what to warn of.
    async fn stand_in(
        &self,
        target: &Target,
        companion: &'static dyn Companion,
        refusal: HubError,
    ) -> Result<String, Problem> {
        let (namespace, name) = companion.place(&target.object);
        let what = format!("{} in namespace {namespace}", companion.kind().full_name(&name));
        for _ in 0..ATTEMPTS {
            let why = match get_companion(self.hub, companion, &target.object).await {
                Ok(Some(found)) => match self.request(target, companion, &found).await {
                    Ok(true) => {
                        return Ok(format!(
                            "the Cluster cannot be updated; the request was written to {what} instead ({refusal})"
                        ));
                    }
                    Ok(false) => continue,
                    Err(error) => error.to_string(),
                },
                Ok(None) => format!("{what} does not exist, so nothing can take the request instead"),
                Err(error) => error.to_string(),
            };
            return Err(Problem::StandIn { refusal: Box::new(refusal), why });
        }
        Err(Problem::Contended(ATTEMPTS))
    }

    /// Whether the request was written; if not, another client wrote the companion in between.
    async fn request(
        &self,
        target: &Target,
        companion: &'static dyn Companion,
        found: &Value,
    ) -> Result<bool, Problem> {
        let mut object = target.object.clone();
        companion.overlay(&mut object, found);
        let patch = companion.request(&object, found, self.intent)?;
        let (namespace, name) = companion.place(&target.object);
        match self.hub.patch(Resource::preferred(companion.kind()), &namespace, &name, &patch, &self.settings).await {
            Ok(_) => Ok(true),
            Err(HubError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The companion that takes a request in place of the target: if the target's own system refused the write, whatever
/// was written. A denial by our webhook, or by a policy, is about the request.
fn companion_for(target: &Target, refusal: &HubError) -> Option<&'static dyn Companion> {
    let (companion, webhook) = target.row.companion.zip(refusal.webhook())?;
    companion.is_webhook_of_system(webhook).then_some(companion)
}

fn kept(field: &str, manager: &str, error: &Problem) -> String {
    format!(
        "field manager {manager} still owns spec.{field}, so that a server-side apply of it by others has a conflict; \
         resume it again to release it: {error}"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::kinds::{CLUSTER_DEPLOYMENT, CRON_JOB, KKP_CLUSTER, workload};

    use super::*;

    #[test]
    fn a_warning_names_the_field_that_the_kind_sleeps_by() {
        for (row, field) in [
            (&CRON_JOB, "spec.suspend,"),
            (&workload::DEPLOYMENT, "spec.replicas,"),
            (&workload::STATEFUL_SET, "spec.replicas,"),
            (&workload::KKP_MACHINE_DEPLOYMENT, "spec.replicas,"),
        ] {
            let text = kept(row.deployed_field.unwrap(), "kubectl-hibernate", &Problem::Contended(5));
            assert!(text.starts_with(&format!("field manager kubectl-hibernate still owns {field} so that")), "{text}");
        }
    }

    /// Row 27 of docs/reference/kkp.md.
    #[test]
    fn only_the_systems_own_webhooks_make_way_for_the_companion() {
        let refused = |by: &str| HubError::Refused {
            object: "x/abc".to_owned(),
            by: by.to_owned(),
            message: "invalid datacenter name".to_owned(),
            denials: Vec::new(),
        };
        let down = |message: &str| HubError::WebhookDown { object: "x/abc".to_owned(), message: message.to_owned() };
        let cluster = Target::new(&KKP_CLUSTER, "v1", json!({ "metadata": { "name": "abc" } }));
        let hive = Target::new(&CLUSTER_DEPLOYMENT, "v1", json!({ "metadata": { "name": "abc" } }));
        for (error, by_system) in [
            (refused("admission webhook \"clusters.kubermatic.io\""), true),
            (
                down("Internal error occurred: failed calling webhook \"clusters.kubermatic.io\": connection refused"),
                true,
            ),
            (refused("admission webhook \"into-sleep.hibernate.sh\""), false),
            (
                down("Internal error occurred: failed calling webhook \"into-sleep.hibernate.sh\": connection refused"),
                false,
            ),
            (refused("policy 'clusters.kubermatic.io'"), false),
            (refused("the schema"), false),
            (HubError::Forbidden { object: "x/abc".to_owned(), message: "clusters.kubermatic.io".to_owned() }, false),
        ] {
            assert_eq!(companion_for(&cluster, &error).is_some(), by_system, "{error}");
            assert!(companion_for(&hive, &error).is_none(), "{error}");
        }
    }
}
