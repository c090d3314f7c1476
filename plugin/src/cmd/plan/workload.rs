//! The outlook of a workload: what it refuses itself, what the hub answers to a dry run, and what may scale it again.

use hub::HubClient;
use jiff::Timestamp;
use serde_json::Value;
use shared::finding::{Finding, Severity};
use shared::kinds::{Change, Intent};
use shared::power::Power;

use super::outlook::Outlook;
use super::verdict;
use crate::error::Problem;
use crate::read::reverts;
use crate::select::target::Target;

/// Code of what the change itself warns of.
const WARNED: &str = "Change";

/// Plans one workload: its sleep, or its wake if it sleeps. All of it is read now, so that there is nothing to refresh.
///
/// # Errors
/// When the object does not match its schema.
pub(crate) async fn outlook(
    hub: &HubClient,
    manager: &str,
    target: Target,
    autoscalers: &[Value],
) -> Result<Outlook, Problem> {
    let record = target.record()?;
    let action = if record.desired == "Hibernating" { Power::Running } else { Power::Hibernating };
    let intent = Intent { power: action, reason: None, end: None, now: Timestamp::now(), queried: true, force: false };
    let own = match target.row.change(&target.object, &intent) {
        Err(error) => vec![Finding::new(Severity::Block, verdict::REFUSED, error.to_string())],
        Ok(Change::Patch { warnings, .. }) => warnings.iter().map(|text| Finding::warn(WARNED, text)).collect(),
        Ok(_) => Vec::new(),
    };
    let verdict = verdict::ask(hub, manager, &target, None).await;
    let rules: Vec<Finding> = own.into_iter().chain(reverts::of(&target, autoscalers)).collect();
    Ok(Outlook {
        desired: record.desired,
        observed: record.observed,
        hub: verdict::weigh(rules, verdict.as_ref()),
        controller: Vec::new(),
        found_at: None,
        end: None,
        unanswered: None,
        target,
    })
}
