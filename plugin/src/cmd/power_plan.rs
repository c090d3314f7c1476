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

/// What is asked for, how, and of which hub.
#[derive(Clone, Copy)]
pub(crate) struct PowerRequest<'a> {
    pub(crate) hub: &'a HubClient,
    pub(crate) args: &'a ActArgs,
    pub(crate) intent: &'a Intent<'a>,
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
        let PowerRequest { hub, args, intent } = request;
        let confirmation = self.confirmation().filter(|_| request.sleeps())?;
        let write = Write::from(&args.write);
        Some(preflight::ask(hub, &self.target, confirmation, intent.now, &write, Some(preflight::LIMIT)).await)
    }

    /// The same of the target as it is now: another client may have written it since.
    pub(crate) async fn again(self, request: PowerRequest<'_>) -> Self {
        match self.target.read_again(request.hub).await {
            Ok(target) => Self { briefing: self.briefing, ..Self::new(target, request.intent) },
            Err(error) => Self { change: Err(Failure::new(self.target.full_name(), error.into())), ..self },
        }
    }
}

/// All of them as they are now.
pub(crate) async fn again(request: PowerRequest<'_>, plans: Vec<PlanResult>) -> Vec<PlanResult> {
    stream::iter(plans).map(async |one| Ok(one?.again(request).await)).buffered(CONCURRENCY).collect().await
}
