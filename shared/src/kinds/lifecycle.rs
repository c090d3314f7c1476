//! What every kind of target provides: the patch that expresses an intent, its progress, what to show of it.

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

use super::record::Record;
use super::view::View;
use crate::admission::Settings;
use crate::finding::Finding;
use crate::power::Power;

/// Shown while no controller has started to act on a change.
pub const UNNOTICED: &str = "waiting for a controller to reconcile";

/// An action with everything that goes with it.
#[derive(Clone, Copy, Debug)]
pub struct Intent<'a> {
    /// The state that is asked for.
    pub power: Power,
    /// The user's reason.
    pub reason: Option<&'a str>,
    /// When the sleep ends, or until when the target is held awake.
    pub end: Option<Timestamp>,
    /// The current time.
    pub now: Timestamp,
    /// Whether a query selected the target. A target that the user named must be able to follow; one of many may be
    /// left as it is.
    pub queried: bool,
    /// Whether the user accepts what a preflight refuses only without a force.
    pub force: bool,
}

/// What an intent needs written.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Nothing.
    None {
        /// What to tell the user.
        message: String,
        /// Whether the target is, or will be, in the state asked for: if not, there is nothing to wait for.
        will_reach: bool,
    },
    /// Nothing, but the controller can be asked to check the target now.
    RequestCheck {
        /// A JSON merge patch that asks. If it is refused, nothing is lost.
        patch: Value,
        /// The time of the request, by which its answer is recognized.
        requested: Timestamp,
        /// What to tell the user once the patch is written.
        message: String,
    },
    /// A JSON merge patch.
    Patch {
        /// The patch. It carries a `metadata.resourceVersion` where it must only apply to the object that it was made
        /// from.
        patch: Value,
        /// What to tell the user once the patch is written.
        message: String,
        /// What the change goes against, to be told once the patch is written.
        warnings: Vec<String>,
    },
}

/// What others than the user do about a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    /// What does not happen if no controller manages the target.
    pub unattended: Option<String>,
    /// What undoes the change.
    pub undone: Option<String>,
    /// Namespace and name of the `ClusterPool` that may undo it.
    pub pool: Option<(String, String)>,
}

/// A target's progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is in the state asked for.
    Reached,
    /// On its way; the text says what is being waited for.
    InProgress(String),
    /// No controller has started yet.
    Unnoticed,
    /// The controller has not answered the request for a check; the text says what is awaited and what may be amiss.
    Unanswered(String),
    /// It will not get there; the text says why.
    Failed(String),
}

/// Code of a refusal that is none of our rules.
pub const REFUSED: &str = "Refused";
/// Code of what the change itself warns of.
const WARNED: &str = "Change";

/// What `plan` knows of an object besides what was read of it.
#[derive(Clone, Copy, Debug)]
pub struct HubFacts<'a> {
    /// The object.
    pub object: &'a Value,
    /// Whether what it gets from the hub has been applied; `None` if that is unknown.
    pub is_synced: Option<bool>,
    /// The current time.
    pub now: Timestamp,
}

/// What the hub's objects show of a sleep, or of a wake.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HubFindings {
    /// What the rules say of a sleep: an answer of the hub to a dry run may change it.
    pub judged: Vec<Finding>,
    /// The rest.
    pub others: Vec<Finding>,
}

/// Why an object cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The target's own settings forbid the change, as a policy would.
    #[error("{0}")]
    Refused(String),
    /// The change cannot be worked out from the object.
    #[error("{0}")]
    Impossible(String),
    /// The object does not have the form of its kind.
    #[error("cannot read the object that the hub sent: {0}")]
    Unreadable(#[from] serde_json::Error),
}

/// One object, read: how its kind expresses intent and reports state. Pure.
pub trait Lifecycle: fmt::Debug + Send + Sync {
    /// What every consumer reads of it. `rules`: the settings of the rules that may refuse its sleep; none if that is of no
    /// interest, as for `status`.
    fn view(&self, rules: Option<&Settings>) -> View;

    /// What has to be written to it.
    ///
    /// # Errors
    /// When the target refuses the change, or does not say what to write.
    fn change(&self, intent: &Intent<'_>) -> Result<Change, TargetError>;

    /// What others do about a change that this patch makes.
    fn advice(&self, _intent: &Intent<'_>, _patch: &Value) -> Advice {
        Advice::default()
    }

    /// What the hub's objects show before its sleep is requested, or its wake if it sleeps: what the change refuses and
    /// warns of, unless the kind has rules of its own.
    fn findings(&self, facts: HubFacts<'_>) -> HubFindings {
        let power = match self.view(None).desired.power {
            Power::Hibernating => Power::Running,
            Power::Running => Power::Hibernating,
        };
        let intent = Intent { power, reason: None, end: None, now: facts.now, queried: true, force: false };
        let judged = match self.change(&intent) {
            Err(error) => vec![Finding::block(REFUSED, error.to_string())],
            Ok(Change::Patch { warnings, .. }) => warnings.iter().map(|text| Finding::warn(WARNED, text)).collect(),
            Ok(_) => Vec::new(),
        };
        HubFindings { judged, others: Vec::new() }
    }

    /// Its progress.
    fn progress(&self, action: Power) -> Progress;

    /// The progress of a check that was requested at this time by [`Change::RequestCheck`]: reached once the answer and the
    /// state after it are good.
    fn check_progress(&self, _requested: Timestamp) -> Progress {
        self.progress(Power::Running)
    }

    /// Adds to a record, which holds what the view says, what only this kind has.
    fn describe(&self, record: Record) -> Record {
        record
    }
}
