//! Warnings before a sleep of workloads that others may undo.

use shared::finding::Severity;
use shared::target::Advice;

use crate::api::Hub;
use crate::cmd::power::confirm::Planned;
use crate::output;
use crate::read::reverts;
use crate::select::target::Target;

/// Warns of everything that may undo the sleep of the workloads, also of those that sleep already. None of those that
/// are refused.
pub(crate) async fn warn(hub: &Hub, planned: &[Planned]) {
    let of_workload = |(target, plan): &&Planned| target.row.advice == Some(Advice::Reverts) && plan.is_ok();
    let workloads: Vec<&Target> = planned.iter().filter(of_workload).map(|(target, _)| target).collect();
    let namespaces = workloads.iter().map(|target| target.namespace.clone()).collect();
    let autoscalers = reverts::autoscalers(hub, namespaces).await;
    for found in workloads.iter().flat_map(|target| reverts::of(target, &autoscalers)) {
        match found.severity {
            Severity::Info => output::note(&found.sentence),
            _ => output::warning(&found.sentence),
        }
    }
}
