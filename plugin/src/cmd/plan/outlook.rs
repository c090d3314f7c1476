//! What `plan` shows about one target.

use jiff::Timestamp;
use shared::finding::{Finding, Severity};
use view::target::Target;

use crate::error::Problem;

/// What is known about one target.
#[derive(Debug)]
pub(crate) struct Outlook {
    pub(crate) target: Target,
    pub(crate) desired: String,
    pub(crate) observed: String,
    /// From the objects on the hub.
    pub(crate) hub: Vec<Finding>,
    /// From the controller's last preflight.
    pub(crate) controller: Vec<Finding>,
    /// When that was.
    pub(crate) found_at: Option<Timestamp>,
    /// How long the sleep is to last.
    pub(crate) end: Option<Timestamp>,
    /// Why there is no newer answer although one was asked for.
    pub(crate) unanswered: Option<Problem>,
}

impl Outlook {
    /// The highest severity.
    pub(crate) fn most_severe(&self) -> Severity {
        let all = self.hub.iter().chain(&self.controller);
        all.map(|finding| finding.severity).min().unwrap_or(Severity::Info)
    }
}
