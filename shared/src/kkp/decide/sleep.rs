//! Into sleep: what each phase does. The first row that applies decides.
//!
//! | # | phase | if | then |
//! |---|---|---|---|
//! | S1 | Preflight | the cluster is kept awake | refuse |
//! | S2 | Preflight | no slot is free | wait |
//! | S3 | Preflight | our condition does not say so yet | say so: the record follows it |
//! | S4 | Preflight | the preflight was not made, or refuses | refuse |
//! | S5 | Preflight | otherwise | record what there is, Draining |
//! | S6 | Draining | the limit is exceeded | `DrainTimedOut` |
//! | S7 | all that need it | the user cluster does not answer | wait |
//! | S8 | Draining, `ScalingDownMachines` | the record lacks something of `MachineDeployments` | record it |
//! | S9 | Draining | volumes are attached, and only Pods of kube-system are left | wait, within the limit for volumes |
//! | S10 | Draining | Pods are left | delete those of the first stage |
//! | S11 | Draining | an autoscaler or a Node is left | stop it, cordon it |
//! | S12 | Draining | otherwise | `ScalingDownMachines` |
//! | S13 | `DrainTimedOut` | the drain is not undone, or the pause is ours | undo both |
//! | S14 | `DrainTimedOut` | undone, and requested again or to run | end |
//! | S15 | `DrainTimedOut` | undone, with `MachineDeployments` on the record | drop them: what users change from here on is theirs |
//! | S16 | `DrainTimedOut` | otherwise | say what was waited for |
//! | S17 | `ScalingDownMachines` | a Node that is not drained is left | Draining |
//! | S18 | `ScalingDownMachines` | no Machine, no Node and nothing to write is left | `MachinesScaledDown` |
//! | S19 | `ScalingDownMachines` | otherwise | counts to 0, cordon, delete orphans |
//! | S20 | `MachinesScaledDown` | the quota of the machines is in use | wait |
//! | S21 | `MachinesScaledDown` | Pods of Nodes that are gone are left | delete them, for a minute |
//! | S22 | `MachinesScaledDown` | otherwise | Pausing |
//! | S23 | Pausing | the preflight is no longer true | wait |
//! | S24 | Pausing | a Machine or a Node exists | `ScalingDownMachines` |
//! | S25 | Pausing | the pause is ours | `ScalingDownControlPlane` |
//! | S26 | Pausing | otherwise | pause |
//! | S27 | `ScalingDownControlPlane` | the record lacks something of the control plane | record it |
//! | S28 | `ScalingDownControlPlane` | a stop deletes volumes | wait |
//! | S29 | `ScalingDownControlPlane` | more than apiserver and etcd is up | scale it down |
//! | S30 | `ScalingDownControlPlane` | apiserver is up, and machine-controller runs | wait |
//! | S31 | `ScalingDownControlPlane` | apiserver is up, and a Machine exists, or KKP applies encryption at rest | wake: `StartingControlPlane` |
//! | S32 | `ScalingDownControlPlane` | apiserver is up | scale it down |
//! | S33 | `ScalingDownControlPlane` | etcd is up, and the rest not quiet for long enough | wait |
//! | S34 | `ScalingDownControlPlane` | etcd is up | scale it down |
//! | S35 | `ScalingDownControlPlane` | a `CronJob` is not suspended | suspend it |
//! | S36 | `ScalingDownControlPlane` | Pods are left | wait |
//! | S37 | `ScalingDownControlPlane` | otherwise | Dehydrated |
//! | S38 | Dehydrated | every count is 0 | rest, and warn of certificates that expire |
//! | S39 | Dehydrated | a count was raised, and corrections are left | `ScalingDownControlPlane` |
//! | S40 | Dehydrated | otherwise | leave it, and warn |

use std::time::Duration;

use jiff::Timestamp;

use super::control_plane::Replicas;
use super::facts::Facts;
use super::plan::{Action, Plan, QUEUE_POLL, QUEUED, Report, Row, Warning, user_is_silent};
use super::preflight::volumes_deleted;
use super::standing::phase;
use super::{drain, stop};
use crate::annotation::format;
use crate::finding::{Finding, Severity};
use crate::kkp::certificates::end_before_a_deletion;
use crate::kkp::data::{Outcome, admits};
use crate::kkp::keys;
use crate::kkp::phase::Phase;
use crate::kkp::record::{Numbers, Record};
use crate::text::list;

/// What the condition says before the first write of a sleep: the record follows it.
const OPENS: &str = "the preflight begins";

/// How often a sleeping cluster is observed.
pub const REST: Duration = Duration::from_mins(1);

/// Requeue delay of a sleep that the preflight refuses. A change of the Cluster is reconciled at once.
const REFUSED_POLL: Duration = Duration::from_mins(2);

/// How long before the first certificate expires the condition warns.
const EXPIRY: jiff::SignedDuration = jiff::SignedDuration::from_hours(14 * 24);

/// How often counts that others raised are corrected in one sleep.
pub(super) const CORRECTIONS: u32 = 3;

/// The rows of a phase on the way to sleep, and of the undoing of a drain.
pub(super) fn rows(phase: Phase) -> &'static [Row] {
    match phase {
        Phase::Draining => &[
            ("S6", drain::takes_too_long),
            ("S7", user_is_silent),
            ("S8", drain::machines_unrecorded),
            ("S9", drain::volumes_attached),
            ("S10", drain::pods_left),
            ("S11", drain::nodes_open),
            ("S12", |facts, record| facts.enters_if_seen(record, Phase::ScalingDownMachines)),
        ],
        Phase::DrainTimedOut => &[
            ("S13", drain::undo_drain),
            ("S7", drain::undo_waits),
            ("S14", drain::requested_again),
            ("S15", drain::forget_machines),
            ("S16", |_, record| Some(drain::has_failed(record))),
        ],
        Phase::ScalingDownMachines => &[
            ("S7", user_is_silent),
            ("S8", drain::machines_unrecorded),
            ("S17", drain::nodes_came),
            ("S18", drain::machines_gone),
            ("S19", drain::scale_down_machines),
        ],
        Phase::MachinesScaledDown => &[
            ("S20", drain::quota_in_use),
            ("S21", drain::lost_pods_left),
            ("S22", |facts, record| Some(facts.enters(record, Phase::Pausing))),
        ],
        Phase::Pausing => &[
            ("S7", user_is_silent),
            ("S23", stop::pause_is_blocked),
            ("S24", stop::machines_returned),
            ("S25", |facts, record| {
                facts.cluster.spec.pause.then(|| facts.enters(record, Phase::ScalingDownControlPlane))
            }),
            ("S26", |facts, _| facts.seen().map(|_| facts.waits("", [Action::Pause]))),
        ],
        Phase::ScalingDownControlPlane => &[
            ("S27", stop::control_plane_unrecorded),
            ("S28", |facts, _| volumes_deleted(facts.control_plane).map(|why| facts.waits(&why, []))),
            ("S29", |facts, _| stop::stop(facts, |one| !one.is_apiserver() && !one.is_etcd())),
            ("S30", stop::machine_controller_runs),
            ("S31", stop::begun_around_the_pause),
            ("S32", |facts, _| stop::stop(facts, Replicas::is_apiserver)),
            ("S33", stop::not_quiet),
            ("S34", |facts, _| stop::stop(facts, Replicas::is_etcd)),
            ("S35", stop::suspend_cron_jobs),
            ("S36", stop::control_plane_runs),
            ("S37", |facts, record| {
                Some(facts.enters(&Record { correcting: false, ..record.clone() }, Phase::Dehydrated))
            }),
        ],
        Phase::Dehydrated => &[("S38", rest), ("S39", correct), ("S40", |facts, _| Some(leave_raised(facts)))],
        _ => &[
            ("S1", |facts, _| facts.kept_awake().map(|why| refused(&why))),
            ("S2", |facts, _| (!facts.may_begin).then(|| facts.waits(QUEUED, []).requeued(QUEUE_POLL))),
            ("S3", opens),
            ("S4", not_admitted),
            ("S5", begin),
        ],
    }
}

/// S3. Nothing is changed yet: the condition comes before the record, and the preflight before both.
fn opens(facts: &Facts<'_>, _: &Record) -> Option<Plan> {
    let is_open = phase(facts.cluster) == Some(Phase::Preflight);
    (!is_open).then(|| Plan::work(Phase::Preflight, OPENS, []).requeued(Duration::ZERO))
}

/// S4
fn not_admitted(facts: &Facts<'_>, _: &Record) -> Option<Plan> {
    match (facts.preflight, facts.user) {
        (Some(findings), Ok(_)) if admits(findings, facts.forced) => None,
        (Some(findings), _) => Some(refused(&refusal(findings, facts.forced))),
        (None, Err(why)) => Some(refused(why)),
        (None, Ok(_)) => Some(refused("not checked yet")),
    }
}

/// S5
fn begin(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let user = facts.seen()?;
    let mut record = stop::note_control_plane(facts, record.clone());
    record = drain::note_machines(&record, user).unwrap_or(record);
    let machines = u32::try_from(user.machines.len()).unwrap_or(u32::MAX);
    record.numbers = Numbers { machines, ..facts.numbers };
    Some(facts.enters(&record, Phase::Draining))
}

fn refusal(findings: &[Finding], forced: bool) -> String {
    let grave: Vec<_> = findings.iter().filter(|finding| finding.severity.refuses(forced)).collect();
    let hint = grave.iter().all(|finding| finding.severity == Severity::Forceable);
    let sentences = grave.iter().map(|finding| finding.sentence.as_str()).collect::<Vec<_>>().join("; ");
    if hint { format!("{sentences}; --force accepts this") } else { sentences }
}

fn refused(why: &str) -> Plan {
    let plan = Plan::work(Phase::Preflight, format!("refused: {why}"), []);
    plan.with(Outcome::Failed).requeued(REFUSED_POLL)
}

/// Whether every count is 0 in a sleep that is complete.
pub fn is_at_rest(facts: &Facts<'_>) -> bool {
    let is_asleep = facts.record.is_some_and(|record| record.phase == Phase::Dehydrated);
    is_asleep && !facts.control_plane.is_empty() && raised(facts).is_empty()
}

/// Names of workloads that others have raised.
fn raised(facts: &Facts<'_>) -> String {
    list(facts.control_plane.iter().filter(|one| one.wanted > 0).map(|one| &one.workload.name))
}

/// S38
fn rest(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let Numbers { volumes, load_balancers, machines } = record.numbers;
    let numbers = if record.rebuilt {
        "Its record was rebuilt: how many machines come back with a wake is not known until then".to_owned()
    } else {
        format!(
            "{machines} machines come back with a wake; {volumes} volumes and {load_balancers} load balancers remain and are still billed"
        )
    };
    let message = format!("asleep since {}. {numbers}", record.entered);
    let note = expiry(facts).filter(|(_, at)| at.duration_since(facts.now) < EXPIRY).map(|(text, _)| {
        format!("the control plane's certificates expire at {text}: wake the cluster before, and KKP renews them")
    });
    let rests = || match note {
        Some(note) => rests(format!("{message}; {note}"), Some(Warning { reason: "CertificatesExpire", note })),
        None => rests(message, None),
    };
    raised(facts).is_empty().then(rests)
}

/// S39. One that was counted, and whose condition was not written, such as after a conflict, is not counted again.
fn correct(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let corrects = record.correcting || record.corrections < CORRECTIONS;
    let corrections = record.corrections.saturating_add(u32::from(!record.correcting));
    let record = Record { corrections, correcting: true, ..record.clone() };
    (corrects && facts.kept_awake().is_none()).then(|| facts.enters(&record, Phase::ScalingDownControlPlane))
}

/// S40
fn leave_raised(facts: &Facts<'_>) -> Plan {
    let why = facts.kept_awake();
    let why = why.unwrap_or_else(|| format!("at most {CORRECTIONS} times in a sleep they are set to 0"));
    let message =
        format!("another client keeps raising replicas of {}, and they are left alone now: {why}", raised(facts));
    rests(message.clone(), Some(Warning { reason: "ReplicasRaised", note: message })).with(Outcome::Pending)
}

fn rests(message: String, warning: Option<Warning>) -> Plan {
    let report = Some(Report::of(Phase::Dehydrated, message));
    Plan { report, warning, requeue: Some(REST), ..Plan::default() }
}

/// When the first certificate of the control plane expires. KKP renews none while the cluster is paused.
fn expiry<'a>(facts: &Facts<'a>) -> Option<(&'a str, Timestamp)> {
    let text = facts.cluster.annotation(keys::CERTIFICATES_EXPIRE_AT)?;
    Some((text, format::time(text)?))
}

/// The warning about a sleeping cluster that is being deleted although its certificates may end before KKP is done: K13
/// let it pass, or was not asked.
pub(super) fn deleted_too_late(facts: &Facts<'_>) -> Option<Warning> {
    let (text, at) = expiry(facts).filter(|_| facts.is_deleted())?;
    let note = format!(
        "the cluster is being deleted, and the first certificate of its control plane expires at {text}: KKP renews none during a deletion, \
         and cannot finish one with an expired certificate"
    );
    end_before_a_deletion(at, facts.now).then_some(Warning { reason: "CertificatesExpire", note })
}
