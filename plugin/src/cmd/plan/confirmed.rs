//! The outlook of a kind whose sleep is confirmed: the controller's preflight is all that is known.

use hub::{HubClient, Write};
use jiff::Timestamp;
use shared::finding::{Finding, Severity};
use shared::kinds::confirmation::{Briefing, Confirmation};

use super::outlook::Outlook;
use crate::cli::PlanArgs;
use crate::error::{Problem, WaitError};
use crate::read::preflight::{self, Outcome};
use crate::select::target::Target;

/// Plans one target, after a fresh preflight if it is requested.
///
/// # Errors
/// When the hub refuses to be asked.
pub(crate) async fn outlook(
    hub: &HubClient,
    args: &PlanArgs,
    target: Target,
    confirmation: &'static dyn Confirmation,
) -> Result<Outlook, Problem> {
    let mut unanswered = None;
    let mut known = confirmation.last(&target.object)?;
    if args.fresh {
        let write = Write { dry_run: false, manager: args.field_manager.clone() };
        let limit = args.timeout.0;
        match preflight::ask(hub, &target, confirmation, Timestamp::now(), &write, limit).await? {
            Outcome::Answered(briefing) => known = Some(briefing),
            Outcome::Silent => {
                let (after, state) = (limit.unwrap_or_default(), confirmation.silence().to_owned());
                unanswered = Some(WaitError::TimedOut { after, state }.into());
            }
            Outcome::Impossible(why) => unanswered = Some(WaitError::Impossible(why).into()),
            Outcome::Refused(error) => return Err(error.into()),
        }
    }
    let record = target.record()?;
    Ok(Outlook {
        desired: record.desired,
        observed: record.observed,
        hub: Vec::new(),
        found_at: known.as_ref().and_then(|known| known.at),
        controller: known.map_or_else(not_checked, findings),
        end: None,
        unanswered,
        target,
    })
}

fn not_checked() -> Vec<Finding> {
    vec![Finding::new(Severity::Info, "NotChecked", "hibernate-controller has made no preflight yet: use --fresh")]
}

/// A refusal that a force accepts blocks as well: the user has to decide.
fn findings(known: Briefing) -> Vec<Finding> {
    let found = known.findings.into_iter().map(|found| match found.severity {
        Severity::Forceable => {
            Finding::new(Severity::Block, &found.code, format!("{} (--force accepts this)", found.sentence))
        }
        _ => found,
    });
    let consequences =
        known.consequences.iter().map(|sentence| Finding::new(Severity::Info, "Consequence", sentence.as_str()));
    found.chain(consequences).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_block_and_consequences_inform() {
        let found = |severity, code| Finding::new(severity, code, "so");
        let known = Briefing {
            consequences: vec!["7 Pods are deleted.".to_owned()],
            findings: vec![
                found(Severity::Block, "NotRunning"),
                found(Severity::Forceable, "BarePods"),
                found(Severity::Warn, "LoadBalancers"),
            ],
            ..Briefing::default()
        };
        let detail: Vec<String> = findings(known)
            .iter()
            .map(|found| format!("{} {}: {}", found.severity, found.code, found.sentence))
            .collect();
        assert_eq!(
            detail,
            [
                "block NotRunning: so",
                "block BarePods: so (--force accepts this)",
                "warn LoadBalancers: so",
                "info Consequence: 7 Pods are deleted.",
            ]
        );
    }
}
