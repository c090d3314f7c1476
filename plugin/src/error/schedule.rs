//! Why a schedule is not created, not read or not changed, and which exit code that is.

use shared::schedule::timetable::Invalid;
use view::calendar::{TimetableError, lines};

use super::Exit;

/// What can go wrong with a schedule.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScheduleError {
    #[error(
        "--awake {text:?} is not a time of the week: write \"Mon-Fri 07:30-18:00\", or \"07:30-18:00\" for every day"
    )]
    NotAWindow { text: String },
    #[error("nothing was created:\n  {}", lines(.0))]
    Faults(Vec<Invalid>),
    #[error("{name:?} is not the name of a schedule: write NAME, schedule/NAME or cpsch/NAME")]
    NotASchedule { name: String },
    #[error("{flag} needs --cluster-wide: the targets of a PowerSchedule are of its own namespace")]
    ClusterWide { flag: &'static str },
    #[error("workloads are selected as a whole: give --all, for other namespaces with --cluster-wide")]
    AllWorkloads,
    #[error("--operator-kinds needs --kind workloads (found --kind {kind})")]
    NotWorkloads { kind: String },
    #[error("--operator-kinds {word:?}: must be one of {known}")]
    NoOperator { word: String, known: String },
    #[error("targets are of one kind, here {kind}: name objects of it, or give another --kind")]
    OtherKind { kind: String },
    #[error("targets of a ClusterPowerSchedule by name need a namespace: give -n NAMESPACE")]
    NoNamespace,
    #[error("name one target, such as cd/demo")]
    NotOneTarget,
    #[error("{what}: no schedule has targets of this type, must be one of {known}")]
    Unscheduled { what: String, known: String },
    #[error(transparent)]
    Timetable(#[from] TimetableError),
    #[error("{what}: {why}")]
    Refused { what: String, why: String },
}

impl ScheduleError {
    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Unscheduled { .. } | Self::Timetable(_) => Exit::Error,
            Self::Refused { .. } => Exit::Refused,
            _ => Exit::Usage,
        }
    }
}
