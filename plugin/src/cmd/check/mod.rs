//! `check`: whether the installation on a hub works, whether there can be one, and what its removal would lose. Only
//! reads, and sends dry runs.

mod certificate;
mod facts;
mod finding;
mod installed;
mod pre;
mod secrets;
mod systems;
#[cfg(test)]
mod tests;
mod uninstall;

use serde_json::Value;
use shared::kinds::Kinds;
use shared::object::items;

use self::finding::Finding;
use crate::cli::{CheckArgs, HubArgs, ReportOutput};
use crate::connect::connect;
use crate::error::{Exit, Problem};
use crate::output;

/// Runs the command.
///
/// # Errors
/// When the hub does not answer at all. What only one finding needs becomes that finding.
pub(crate) async fn run(kinds: Kinds, args: &CheckArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let hub = connect(hub_args)?;
    let groups = groups(&hub.raw("/apis").await?);
    let findings = match (args.pre, args.before_uninstall) {
        (true, _) => pre::findings(&hub, hub_args.namespace.as_deref()).await,
        (_, true) => uninstall::findings(&hub, &groups).await,
        _ => installed::findings(&Box::pin(facts::Facts::read(kinds, &hub, groups)).await),
    };
    match args.output {
        ReportOutput::Table => finding::table(&findings).iter().for_each(|line| output::colored(line)),
        ReportOutput::Json => output::text(&output::json(&output::list("FindingList", &findings))),
        ReportOutput::Yaml => output::text(&output::yaml(&output::list("FindingList", &findings))),
    }
    Ok(if findings.iter().any(Finding::is_failure) { Exit::Error } else { Exit::Done })
}

/// The API groups that the hub serves.
fn groups(apis: &Value) -> Vec<String> {
    items(apis, "/groups").filter_map(|group| Some(group.get("name")?.as_str()?.to_owned())).collect()
}
