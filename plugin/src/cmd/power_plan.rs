//! What is to be written to each target, whether by itself or by a rollout.

use futures::{StreamExt, stream};
use hub::{HubClient, Write};
use shared::kinds::confirmation::Preflight;
use shared::kinds::{Briefing, Change, Intent, TargetError};
use shared::power::Power;
use view::CONCURRENCY;
use view::target::Target;

use crate::cli::ActArgs;
use crate::error::{Failure, Problem};
use crate::wait::preflight::{self, Outcome};

/// Why a sleep is not requested that would destroy something nobody was told of.
const WOKEN: &str = "it was woken since it was selected: run the command again, which asks before its sleep";

/// What is asked for, how, and of which hub.
#[derive(Clone, Copy)]
pub(crate) struct PowerRequest<'a> {
    pub(crate) hub: &'a HubClient,
    pub(crate) args: &'a ActArgs,
    pub(crate) intent: &'a Intent<'a>,
    /// The selector of the targets; empty if they are named.
    pub(crate) labels: &'a str,
}

impl PowerRequest<'_> {
    /// Whether anything is put to sleep.
    pub(crate) fn sleeps(&self) -> bool {
        self.intent.power == Power::Hibernating && self.args.write.changes()
    }
}

/// A target that was selected; what cannot be found is a failure in its place.
pub(crate) type PlanResult = Result<TargetPlan, Failure>;

/// What the controller found about a sleep before it is confirmed, or why it was not asked or has not answered.
pub(crate) type Findings = Result<Briefing, String>;

/// A target and what is to be written to it.
#[derive(Debug)]
pub(crate) struct TargetPlan {
    pub(crate) target: Target,
    pub(crate) change: Result<Change, Failure>,
    /// Of a sleep that is to be confirmed.
    pub(crate) briefing: Option<Findings>,
}

impl TargetPlan {
    pub(crate) fn new(target: Target, intent: &Intent<'_>) -> Self {
        let change = target.row.change(&target.object, intent);
        let change = change.map_err(|error| Failure::new(target.full_name(), error.into()));
        Self { target, change, briefing: None }
    }

    /// The same, refused.
    pub(crate) fn refused(self, why: String) -> Self {
        let error = TargetError::Refused(why);
        Self { change: Err(Failure::new(self.target.full_name(), error.into())), ..self }
    }

    /// Whether a sleep, a wake or what goes with it is to be written.
    pub(crate) fn changes(&self) -> bool {
        matches!(self.change, Ok(Change::Patch { .. }))
    }

    /// How the sleep of the target is confirmed, if one is about to be requested that needs it.
    pub(crate) fn confirmation(&self) -> Option<&'static dyn Preflight> {
        self.target.confirmation(self.change.as_ref().ok()?)
    }

    /// The answer of the controller about a sleep that needs a confirmation; none about any other change.
    pub(crate) async fn preflight(&self, request: PowerRequest<'_>) -> Option<Result<Outcome, Problem>> {
        let PowerRequest { hub, args, intent, .. } = request;
        let confirmation = self.confirmation().filter(|_| request.sleeps())?;
        let write = Write::from(&args.write);
        Some(preflight::ask(hub, &self.target, confirmation, intent.now, &write, Some(preflight::LIMIT)).await)
    }

    /// The same of the target as it is now, if it is to be changed: another client may have written it since. What was
    /// not to be changed keeps its outcome: a question has not listed it.
    pub(crate) async fn again(self, request: PowerRequest<'_>) -> Self {
        if !self.changes() {
            return self;
        }
        let needs_confirmation = |plan: &Self| request.sleeps() && plan.confirmation().is_some();
        match self.target.read_again(request.hub, request.labels).await {
            Ok(target) => {
                let was_confirmed = needs_confirmation(&self);
                let plan = Self { briefing: self.briefing, ..Self::new(target, request.intent) };
                if needs_confirmation(&plan) && !was_confirmed {
                    return plan.refused(WOKEN.to_owned());
                }
                plan
            }
            Err(error) => Self { change: Err(Failure::new(self.target.full_name(), error.into())), ..self },
        }
    }
}

/// All of them as they are now.
pub(crate) async fn again(request: PowerRequest<'_>, plans: Vec<PlanResult>) -> Vec<PlanResult> {
    stream::iter(plans).map(async |one| Ok(one?.again(request).await)).buffered(CONCURRENCY).collect().await
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};
    use shared::kinds::KKP_CLUSTER;
    use shared::kinds::testing::{POWER, SANDBOX};

    use super::*;
    use crate::cmd::tests::{Server, wait_for};
    use crate::connect::connect;

    const SANDBOXES: &str = "GET /apis/test.hibernate.sh/v1/sandboxes";

    fn sandbox(uid: &str, power: Power) -> Value {
        json!({ "metadata": { "name": "red", "uid": uid, "annotations": { POWER: power } } })
    }

    /// The plan of a sleep, after `edit`, once it is made again.
    fn again(server: &Server, labels: &str, target: Target, edit: impl Fn(TargetPlan) -> TargetPlan) -> String {
        let cli = server.cli("sbx/red");
        let (power, now) = (Power::Hibernating, Timestamp::UNIX_EPOCH);
        let intent = Intent { power, reason: Some("night"), end: None, now, queried: true, force: false };
        let plan = wait_for(async {
            let hub = connect(&cli.hub).unwrap();
            let request = PowerRequest { hub: &hub, args: &cli.sleep.act, intent: &intent, labels };
            edit(TargetPlan::new(target, &intent)).again(request).await
        });
        match plan.change {
            Ok(Change::Patch { .. }) => "changes".to_owned(),
            Ok(_) => "unchanged".to_owned(),
            Err(failure) => failure.to_string(),
        }
    }

    /// The target as it was planned and whether that was refused, `-l`, whether it still selects the target, and the
    /// target as it is now.
    #[test]
    fn only_what_was_to_change_and_is_still_selected_changes() {
        use Power::{Hibernating, Running};
        let server = Server::start();
        let unselected = "its labels have changed, and -l env=dev does not select it any more";
        let recreated = "it was deleted and created again (another metadata.uid) since it was selected";
        let failed = |why: &str| format!("sandbox.test.hibernate.sh/red: {why}: nothing was written to it");
        for (before, refused, labels, selects, now, expected) in [
            (Running, false, "", true, sandbox("1", Running), "changes".to_owned()),
            (Running, false, "", true, sandbox("1", Hibernating), "unchanged".to_owned()),
            (Running, false, "", true, sandbox("2", Running), failed(recreated)),
            (Running, false, "env=dev", true, sandbox("1", Running), "changes".to_owned()),
            (Running, false, "env=dev", true, sandbox("2", Running), failed(recreated)),
            (Running, false, "env=dev", false, sandbox("1", Running), failed(unselected)),
            (Running, false, "env=dev", false, sandbox("2", Running), failed(recreated)),
            (Hibernating, false, "", true, sandbox("1", Running), "unchanged".to_owned()),
            (Running, true, "", true, sandbox("1", Running), "sandbox.test.hibernate.sh/red: protected".to_owned()),
        ] {
            let items = if selects { vec![now.clone()] } else { Vec::new() };
            server.answers(SANDBOXES, 200, json!({ "metadata": {}, "items": items }));
            server.answers(&format!("{SANDBOXES}/red"), 200, now.clone());
            let edit = |plan: TargetPlan| if refused { plan.refused("protected".to_owned()) } else { plan };
            let target = Target::new(&SANDBOX, "v1", sandbox("1", before));
            assert_eq!(again(&server, labels, target, edit), expected, "{before} {refused} {labels:?} {selects} {now}");
        }
    }

    /// The reason of a sleep is written without a question. The sleep of a cluster that was woken since is not.
    #[test]
    fn no_sleep_that_destroys_something_takes_the_place_of_another_change() {
        let server = Server::start();
        let cluster = |power: &str| {
            let annotations = json!({ shared::kkp::keys::POWER_STATE: power });
            json!({
                "apiVersion": "kubermatic.k8c.io/v1", "kind": "Cluster",
                "metadata": { "name": "abc", "annotations": annotations },
                "spec": { "humanReadableName": "shop", "version": "1.34.1", "cloud": { "dc": "eu", "providerName": "aws" } },
            })
        };
        let get = "GET /apis/kubermatic.k8c.io/v1/clusters/abc";
        for (now, expected) in
            [("Hibernating", "changes".to_owned()), ("Running", format!("cluster.kubermatic.k8c.io/abc: {WOKEN}"))]
        {
            server.answers(get, 200, cluster(now));
            let target = Target::new(&KKP_CLUSTER, "v1", cluster("Hibernating"));
            assert_eq!(again(&server, "", target, |plan| plan), expected, "{now}");
        }
    }
}
