//! `check`: whether the installation on a hub works, whether there can be one, and what its removal would lose. Only
//! reads, and sends dry runs.

mod certificate;
mod facts;
mod installed;
mod pre;
mod secrets;
mod systems;
#[cfg(test)]
mod tests;
mod uninstall;

use std::io::stdout;

use hub::error::HubError;
use serde::Serialize;
use shared::kinds::Kinds;
use shared::text::and_more;

use crate::cli::{CheckArgs, HubArgs, ReportOutput};
use crate::connect::connect;
use crate::error::{Exit, Problem};
use crate::output::{self, Color, Columns};

/// How many commands of one finding the table shows.
const MAX_COMMANDS: usize = 10;

/// What one check found, as `-o json` documents it.
#[derive(Debug, Serialize)]
struct Finding {
    /// Stays the same in later versions.
    name: &'static str,
    #[serde(flatten)]
    result: CheckResult,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct CheckResult {
    status: Status,
    /// What was found.
    detail: String,
    /// What fixes it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    commands: Vec<String>,
}

/// What a check comes to: none where there is nothing to check, or why the hub did not answer.
type CheckOutcome<'a> = Result<Option<CheckResult>, &'a HubError>;

/// A result that there always is.
#[expect(clippy::unnecessary_wraps, reason = "the form of a check")]
fn done<'a>(result: CheckResult) -> CheckOutcome<'a> {
    Ok(Some(result))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Status {
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
    fn ok(detail: impl Into<String>) -> Self {
        Self { status: Status::Ok, detail: detail.into(), commands: Vec::new() }
    }

    /// Works, but needs attention.
    fn warning(detail: impl Into<String>, command: impl Into<String>) -> Self {
        Self { status: Status::Warning, ..Self::failed(detail, command) }
    }

    /// Does not work. No command if it is empty.
    fn failed(detail: impl Into<String>, command: impl Into<String>) -> Self {
        let commands = vec![command.into()].into_iter().filter(|command| !command.is_empty()).collect();
        Self { status: Status::Failed, detail: detail.into(), commands }
    }

    /// Why the hub did not answer: a missing right is the user's, anything else a failure.
    fn unread(error: &HubError) -> Self {
        let status = if matches!(error, HubError::Forbidden { .. }) { Status::NotChecked } else { Status::Failed };
        Self { status, detail: error.to_string(), commands: Vec::new() }
    }
}

impl Finding {
    fn new(name: &'static str, result: CheckResult) -> Self {
        Self { name, result }
    }

    fn is_failure(&self) -> bool {
        self.result.status == Status::Failed
    }
}

/// Runs the command.
///
/// # Errors
/// When the hub does not answer at all. What only one finding needs becomes that finding.
pub(crate) async fn run(kinds: Kinds, args: &CheckArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let hub = connect(hub_args)?;
    let groups = hub.groups().await?;
    let findings = match (args.pre, args.before_uninstall) {
        (true, _) => pre::findings(&hub, hub_args.connection.namespace.as_deref()).await,
        (_, true) => Box::pin(uninstall::findings(&hub, &groups)).await,
        _ => installed::findings(&Box::pin(facts::Facts::read(kinds, &hub, groups)).await),
    };
    match args.output {
        ReportOutput::Table => table(&findings).iter().for_each(|line| output::colored(line)),
        format => output::structured(&output::list("FindingList", &findings), format == ReportOutput::Json),
    }
    Ok(if findings.iter().any(Finding::is_failure) { Exit::Error } else { Exit::Done })
}

/// The findings, each with its commands below.
fn table(findings: &[Finding]) -> Vec<String> {
    let (mut rows, mut colors) = (Vec::new(), Vec::new());
    let colored = output::colors(&stdout());
    for Finding { name, result } in findings {
        let (status, color) = result.status.text();
        rows.push([status, name, &result.detail].map(str::to_owned).to_vec());
        let more = and_more(result.commands.len().saturating_sub(MAX_COMMANDS));
        let below = result.commands.iter().take(MAX_COMMANDS).cloned().chain(more);
        rows.extend(below.map(|text| vec![String::new(), String::new(), text]));
        colors.push(colored.then_some((0, color)));
        colors.resize(rows.len(), None);
    }
    let columns = Columns::new(&rows);
    rows.iter().zip(colors).map(|(row, color)| columns.line(row, color)).collect()
}
