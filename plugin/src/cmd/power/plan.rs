//! What is to be written to each target.

use futures::{StreamExt, stream};
use hub::HubClient;
use shared::kinds::{Briefing, Change, Confirmation, Intent};
use view::CONCURRENCY;
use view::target::Target;

use crate::error::Failure;

/// A target that was selected; what cannot be found is a failure in its place.
pub(super) type Found = Result<Planned, Failure>;

/// A target and what is to be written to it.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) target: Target,
    pub(super) change: Result<Change, Failure>,
    /// What the controller found before a sleep that is to be confirmed, or why it was not asked or has not answered.
    pub(super) preflight: Option<Result<Briefing, String>>,
}

impl Planned {
    pub(super) fn new(target: Target, intent: &Intent<'_>) -> Self {
        let change = target.row.change(&target.object, intent);
        let change = change.map_err(|error| Failure::new(target.full_name(), error.into()));
        Self { target, change, preflight: None }
    }

    /// Whether a sleep, a wake or what goes with it is to be written.
    pub(super) fn changes(&self) -> bool {
        matches!(self.change, Ok(Change::Patch { .. }))
    }

    /// How the sleep of the target is confirmed, if one is about to be requested that needs it.
    pub(super) fn confirmation(&self) -> Option<&'static dyn Confirmation> {
        self.target.confirmation(self.change.as_ref().ok()?)
    }

    /// The same of the target as it is now: another client may have written it since.
    pub(super) async fn again(self, hub: &HubClient, intent: &Intent<'_>) -> Self {
        match self.target.read_again(hub).await {
            Ok(target) => Self { preflight: self.preflight, ..Self::new(target, intent) },
            Err(error) => Self { change: Err(Failure::new(self.target.full_name(), error.into())), ..self },
        }
    }
}

/// All of them as they are now.
pub(super) async fn again(hub: &HubClient, intent: &Intent<'_>, planned: Vec<Found>) -> Vec<Found> {
    stream::iter(planned).map(async |one| Ok(one?.again(hub, intent).await)).buffered(CONCURRENCY).collect().await
}
