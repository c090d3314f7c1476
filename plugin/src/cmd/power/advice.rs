//! Warnings before a change that may not last, or that no controller completes. Worth a line, never a reason to fail.

use std::collections::BTreeMap;

use hub::HubClient;
use shared::finding::Severity;
use shared::kinds::{Advice, Change, Intent};
use shared::power::Power;
use shared::text::name_some;
use view::target::Target;

use super::plan::{Found, Planned};
use super::pools;
use crate::output;
use crate::read::reverts;

/// How many targets a sentence names; the rest is counted.
const NAMED: usize = 10;

/// Warns as the rows and the changes of the targets say.
pub(super) async fn give(hub: &HubClient, intent: &Intent<'_>, planned: &[Found]) {
    let (mut deployed, mut pooled) = (Vec::new(), Vec::new());
    for one in planned.iter().flatten() {
        match one.target.row.advice {
            Some(Advice::Reverts(_)) => deployed.push(one),
            Some(Advice::ClusterPools) => pooled.push(one),
            None => {}
        }
    }
    if intent.power == Power::Hibernating {
        reverts(hub, &deployed).await;
    }
    pools::warn(hub, intent, &pooled).await;
    of_changes(planned);
}

/// What the changes themselves bring along: each sentence once, with all targets that it is about.
fn of_changes(planned: &[Found]) {
    let mut sentences: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for one in planned.iter().flatten() {
        let Ok(Change::Patch { warnings, .. }) = &one.change else { continue };
        for text in warnings {
            sentences.entry(text).or_default().push(one.target.full_name());
        }
    }
    for (text, names) in sentences {
        output::warning(&format!("{}: {text}", name_some(&names, NAMED)));
    }
}

/// Everything that may undo the sleep of the targets, also of those that sleep already. None of those that are refused.
async fn reverts(hub: &HubClient, planned: &[&Planned]) {
    let targets: Vec<&Target> = planned.iter().filter(|one| one.change.is_ok()).map(|one| &one.target).collect();
    let namespaces = targets.iter().map(|target| target.namespace.clone()).collect();
    let autoscalers = reverts::autoscalers(hub, namespaces).await;
    for found in targets.iter().flat_map(|target| reverts::of(target, &autoscalers)) {
        match found.severity {
            Severity::Info => output::note(&found.sentence),
            _ => output::warning(&found.sentence),
        }
    }
}
