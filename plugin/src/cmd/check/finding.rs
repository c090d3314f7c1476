//! What one check found, and how it is printed.

use std::io::stdout;

use hub::error::HubError;
use serde::Serialize;
use shared::text::and_more;

use crate::output::{self, Color};

/// How many commands of one finding people see.
const MOST: usize = 10;

/// What one check found, as `-o json` documents it.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    /// Stays the same in later versions.
    name: &'static str,
    #[serde(flatten)]
    result: CheckResult,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct CheckResult {
    pub(super) status: Status,
    /// What was found.
    pub(super) detail: String,
    /// What fixes it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) commands: Vec<String>,
}

/// What a check comes to: none where there is nothing to check, or why the hub did not answer.
pub(super) type CheckOutcome<'a> = Result<Option<CheckResult>, &'a HubError>;

/// A result that there always is.
#[expect(clippy::unnecessary_wraps, reason = "the form of a check")]
pub(super) fn done<'a>(result: CheckResult) -> CheckOutcome<'a> {
    Ok(Some(result))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Status {
    Ok,
    Warning,
    Failed,
    NotChecked,
}

impl Status {
    fn text(self) -> (&'static str, Color) {
        match self {
            Self::Ok => ("ok", Color::Green),
            Self::Warning => ("warning", Color::Yellow),
            Self::Failed => ("failed", Color::Red),
            Self::NotChecked => ("not checked", Color::Blue),
        }
    }
}

impl CheckResult {
    pub(super) fn ok(detail: impl Into<String>) -> Self {
        Self { status: Status::Ok, detail: detail.into(), commands: Vec::new() }
    }

    /// Works, but needs attention.
    pub(super) fn warning(detail: impl Into<String>, command: impl Into<String>) -> Self {
        Self { status: Status::Warning, ..Self::failed(detail, command) }
    }

    /// Does not work. No command if it is empty.
    pub(super) fn failed(detail: impl Into<String>, command: impl Into<String>) -> Self {
        let commands = vec![command.into()].into_iter().filter(|command| !command.is_empty()).collect();
        Self { status: Status::Failed, detail: detail.into(), commands }
    }

    /// Why the hub did not answer: a missing right is the user's, anything else a failure.
    pub(super) fn unread(error: &HubError) -> Self {
        let status = if matches!(error, HubError::Forbidden { .. }) { Status::NotChecked } else { Status::Failed };
        Self { status, detail: error.to_string(), commands: Vec::new() }
    }
}

impl Finding {
    pub(super) fn new(name: &'static str, result: CheckResult) -> Self {
        Self { name, result }
    }

    pub(super) fn is_failure(&self) -> bool {
        self.result.status == Status::Failed
    }
}

/// The findings, each with its commands below.
pub(super) fn table(findings: &[Finding]) -> Vec<String> {
    let mut rows = Vec::new();
    for Finding { name, result } in findings {
        rows.push([result.status.text().0, name, &result.detail].map(str::to_owned).to_vec());
        let more = and_more(result.commands.len().saturating_sub(MOST));
        let below = result.commands.iter().take(MOST).cloned().chain(more);
        rows.extend(below.map(|text| vec![String::new(), String::new(), text]));
    }
    let mut statuses = findings.iter().map(|finding| finding.result.status.text());
    let color = output::colors(&stdout());
    let paint = |line: String| {
        if line.starts_with(' ') {
            return line;
        }
        let Some((word, paint)) = statuses.next() else { return line };
        line.replacen(word, &paint.paint(word, color), 1)
    };
    output::aligned(&rows).into_iter().map(paint).collect()
}
