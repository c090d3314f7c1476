//! Operations whose record is missing or unusable: it is rebuilt from the copies on the objects.

use super::facts::Facts;
use super::plan::{Plan, Report, Warning};
use super::sleep::CORRECTIONS;
use super::standing::{hold, was_missed};
use crate::kkp::data::RECORD_MISSING;
use crate::kkp::keys;
use crate::kkp::phase::Phase;
use crate::kkp::record::Record;

/// Without a record, it is rebuilt from the copies on the objects, those of the `MachineDeployments` once their API
/// answers. Without a condition that says so, the cluster is no further asleep than its pause says: it can wake, and
/// nothing more is stopped.
pub(super) fn orphaned(facts: &Facts<'_>, record: Option<Record>, phase: Phase) -> Plan {
    let Some(record) = record else { return rebuild(facts, phase, None) };
    facts.enters(&Record { corrections: CORRECTIONS, correcting: false, ..record }, phase)
}

/// Rebuilds it. `useless`: what is said of the record that there is. Counts that were raised meanwhile stay, as the
/// advice promises.
pub(super) fn rebuild(facts: &Facts<'_>, phase: Phase, useless: Option<Report>) -> Plan {
    let record = record_from_copies(facts);
    if !record.control_plane.keys().any(|workload| workload.name == "etcd") {
        return Plan::held(useless.map_or_else(|| missing(facts, phase), without_copy));
    }
    let was = useless.map_or_else(|| "missing".to_owned(), |report| format!("unusable ({})", report.reason));
    let note = format!("ConfigMap hibernate-record was {was} and is rebuilt from the copies on the objects");
    let warning = Some(Warning { reason: "RecordRebuilt", note });
    // The advice was followed: what was raised by hand is neither stopped nor paused again, and the end of the pause is
    // a wake.
    let is_by_hand = was_missed(facts.cluster) && matches!(phase, Phase::Pausing | Phase::ScalingDownControlPlane);
    let phase = if is_by_hand { Phase::Dehydrated } else { phase };
    Plan { warning, ..facts.enters(&record, phase) }
}

fn missing(facts: &Facts<'_>, phase: Phase) -> Report {
    let problem = format!(
        "it is missing, and etcd carries no copy of its count: restore the record, or scale the control plane by hand, etcd first, and then {}",
        keys::TO_UNPAUSE
    );
    Report { dehydrated: true, ..hold(facts.cluster, Some(phase), RECORD_MISSING, &problem) }
}

/// The advice about a record that is of no use, and why the wake waits.
fn without_copy(report: Report) -> Report {
    let message = format!(
        "{}. But etcd carries no copy of its count: the wake waits until the record is corrected, or etcd is scaled by hand",
        report.message
    );
    Report { message, ..report }
}

fn record_from_copies(facts: &Facts<'_>) -> Record {
    let counts = facts.control_plane.iter().map(|one| (one.workload.clone(), one.count()));
    let control_plane = counts.filter(|(_, count)| *count > 0).collect();
    let cron_jobs = facts.cron_jobs.iter().filter(|job| job.ours).map(|job| job.name.clone()).collect();
    let begun = Record::begin(facts.cluster.uid(), facts.now);
    Record { control_plane, cron_jobs, corrections: CORRECTIONS, rebuilt: true, ..begun }
}
