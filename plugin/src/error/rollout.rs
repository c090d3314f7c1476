//! Why a rollout is not created or not changed, and which exit code that is.

use shared::rollout::selector::SelectorError;

use super::Exit;

/// What can go wrong with a rollout.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RolloutError {
    #[error(
        "{flag} creates a PowerRollout, which takes {kinds}, of one kind at a time, not {found}: omit the options for a rollout, \
         or name objects of one of these kinds"
    )]
    OtherKind { flag: &'static str, kinds: String, found: String },
    #[error("{flag} and --force are mutually exclusive: a PowerRollout forces no sleep that the preflight refuses")]
    Force { flag: &'static str },
    #[error("{found} names are given: a rollout takes at most {max}; use -l SELECTOR or --all")]
    TooManyNames { found: usize, max: usize },
    #[error("--canary is given {found} times: a rollout takes at most {max}; use a label selector")]
    TooManyCanaries { found: usize, max: usize },
    #[error(
        "--canary {text:?} is neither NAME nor NAMESPACE/NAME; a label selector has an operator, or is written label:KEY"
    )]
    NotACanary { text: String },
    #[error("--canary {text:?} is not a label selector: {source}")]
    CanarySelector { text: String, source: SelectorError },
    #[error("-l is not a label selector that a rollout can hold: {0}")]
    Selector(SelectorError),
    #[error("--canary {}: not among the {targets} targets, nothing was created", .canaries.join(", "))]
    NoCanaries { canaries: Vec<String>, targets: usize },
    #[error("--canary {name:?} names several targets: {}; write NAMESPACE/NAME", .candidates.join(", "))]
    Ambiguous { name: String, candidates: Vec<String> },
    #[error("--canary {text:?} adds no target: all of it is in the canary groups before")]
    Repeated { text: String },
    #[error(
        "nothing was created: the hub does not have the type powerrollouts.hibernate.sh; install hibernate-controller's manifests, or omit \
         the options for a rollout"
    )]
    NoDefinition,
    #[error("nothing was created: {0}; start hibernate-controller, or create the rollout with --paused")]
    NoController(String),
    #[error("nothing was created: {0}, or create the rollout with --paused")]
    Rival(String),
    #[error("{name:?} is not the name of a rollout: write NAME, rollout/NAME, powerrollout/NAME or pr/NAME")]
    NotARollout { name: String },
    #[error("{what} cannot {verb}: {why}")]
    Verb { what: String, verb: &'static str, why: String },
}

impl RolloutError {
    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::NoDefinition | Self::NoController(_) | Self::Rival(_) | Self::Verb { .. } => Exit::Refused,
            Self::NoCanaries { .. } | Self::Ambiguous { .. } => Exit::Error,
            _ => Exit::Usage,
        }
    }
}
