//! The condition on the Cluster, and Events when a phase begins.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::runtime::events::EventType;
use serde_json::{Value, json};
use shared::annotation::format;
use shared::duration::age;
use shared::kkp::api::{Cluster, Condition};
use shared::kkp::data::{Outcome, PREFLIGHT, STATE, State};
use shared::kkp::decide::{self, Plan, Report};
use shared::kkp::keys;
use shared::kkp::ledger::{ledger, sleep_history};
use shared::kkp::phase::Phase;
use shared::record::Format;
use shared::savings::ledger::{self, LEDGER, Ledger};
use shared::text::sanitize_to;
use tracing::info;

use super::store::cluster_not_written;
use super::{Kkp, Observation};
use crate::runtime::hub::key_of;
use crate::runtime::{Done, Reconciled, Target};

/// Bytes of a condition's message.
const MAX_MESSAGE: usize = 2_000;
/// How long a message stays that another one follows in the same state. The watch brings each status back, and the next
/// reconcile begins at once: one text after the other, such as of a tenant's webhook, would keep it going.
const MESSAGE_STAYS: SignedDuration = SignedDuration::from_secs(5);

/// Writes what has changed.
pub async fn report(
    kkp: &Kkp,
    observation: &Observation<'_>,
    plan: &Plan,
    target: &mut Target<Kkp>,
) -> Reconciled<Done> {
    // What an action got back is newer than what was observed.
    let cluster = observation.written.as_deref().unwrap_or(observation.cluster);
    let is_over = plan.record.as_ref().is_some_and(|record| record.phase == Phase::Dehydrated);
    let phase: Option<Phase> = plan.report.as_ref().and_then(|report| report.reason.parse().ok());
    if is_over || phase.is_none_or(|phase| phase == Phase::Preflight) {
        kkp.slots.free(&cluster.name_any());
    }
    let mut changed = plan.record.is_some() || !plan.actions.is_empty() || plan.ends;
    let stays = plan.report.as_ref().and_then(|report| stays(cluster, report, observation.now));
    let asked = plan.report.as_ref().and_then(|report| asked_in(cluster, report, observation.now));
    let mut conditions = about(cluster, plan, observation.now);
    let answer = observation.answer.clone().map(|answer| stamped(cluster, PREFLIGHT, answer, observation.now));
    conditions.extend(answer.map(|answer| (PREFLIGHT, Some(answer))));
    target.state.seen.observe(plan.at_rest, observation.now, decide::REST);
    let (ledger, dropped) = ledger(cluster, plan, target.state.seen, observation.now).unzip();
    conditions.extend(ledger.map(|ledger| (LEDGER, Some(stamped(cluster, LEDGER, entry(&ledger), observation.now)))));
    if let Some(patch) = patch(cluster, conditions) {
        let written = kkp.handle.hub.patch_status(cluster, patch).await.map_err(cluster_not_written())?;
        kkp.handle.hub.metrics.savings.ledger_written(&sleep_history(cluster), &sleep_history(&written));
        target.wrote(&written);
        changed = true;
        if let Some(why) = dropped.flatten() {
            publish(kkp, cluster, EventType::Warning, ledger::DROPPED, &ledger::dropped_note(&why)).await;
        }
        // A phase has begun once the condition names it: until then the next reconcile enters it again.
        match (&plan.record, &plan.warning) {
            (Some(record), _) => announce(kkp, cluster, record.phase, plan).await,
            (None, Some(warning)) => {
                publish(kkp, cluster, EventType::Warning, warning.reason, &warning.note).await;
            }
            (None, None) => {}
        }
    } else if let Some(written) = &observation.written {
        target.wrote(written);
    }
    kkp.handle.hub.metrics.savings.set_machines(&key_of(cluster), &sleep_history(cluster));
    target.state.answer = None;
    Ok(Done { requeue: [plan.requeue, observation.preflight_in, stays, asked].into_iter().flatten().min(), changed })
}

/// Events about a phase that has begun.
async fn announce(kkp: &Kkp, cluster: &Cluster, phase: Phase, plan: &Plan) {
    let kind =
        if matches!(phase, Phase::DrainTimedOut | Phase::AwakePaused) { EventType::Warning } else { EventType::Normal };
    let is_woken = plan.record.as_ref().is_some_and(|record| record.woken.is_some());
    let (reason, note) = if is_woken && phase == Phase::StartingControlPlane {
        ("PauseEndedByOthers", "another client set spec.pause to false: the cluster wakes".to_owned())
    } else {
        (phase.into(), format!("{phase} has begun"))
    };
    publish(kkp, cluster, kind, reason, &note).await;
    if let Some(warning) = &plan.warning {
        publish(kkp, cluster, EventType::Warning, warning.reason, &warning.note).await;
    }
}

async fn publish(kkp: &Kkp, cluster: &Cluster, kind: EventType, reason: &'static str, note: &str) {
    info!(cluster = cluster.name_any(), reason, "{note}");
    kkp.handle.hub.metrics.noticed("kkp", reason);
    kkp.handle.publish(cluster, kind, reason, note).await;
}

/// A condition as it is to be; `None` if there is to be none.
type Wanted = (&'static str, Option<Condition>);

/// The condition about a sleep, and the same for programs. One names the other by its time, so they never differ.
/// Another one says since when the cluster is awake, until the next sleep is past its preflight: it may be withdrawn.
fn about(cluster: &Cluster, plan: &Plan, now: Timestamp) -> Vec<Wanted> {
    let (report, lacks) = (plan.report.as_ref(), plan.lacks.as_deref());
    let words = report.map(|report| words(cluster, report, now));
    let state = report.zip(words.as_ref()).map(|(report, words)| report.state.condition(&words.last_heartbeat_time));
    let state = state.map(|state| stamped(cluster, STATE, state, now));
    let old = cluster.condition(keys::AWAKE);
    let has_begun = report.is_some_and(|report| report.state.phase != Some(Phase::Preflight));
    let has_slept = report.is_none() && cluster.condition(keys::DEHYDRATED).is_some();
    let is_awake = !has_begun && (old.is_some() || has_slept);
    let message = lacks.filter(|lacks| !lacks.is_empty()).map(|lacks| sanitize_to(lacks, MAX_MESSAGE));
    let is_said = is_awake || message.is_some();
    let woken =
        || Condition { status: "True".to_owned(), reason: Some("Awake".to_owned()), message, ..Condition::default() };
    let old = old.filter(|_| lacks.is_none()).cloned();
    let awake = is_said.then(|| old.unwrap_or_else(|| stamped(cluster, keys::AWAKE, woken(), now)));
    vec![(keys::DEHYDRATED, words), (STATE, state), (keys::AWAKE, awake)]
}

/// The condition about a sleep.
fn words(cluster: &Cluster, report: &Report, now: Timestamp) -> Condition {
    if let Some(old) = cluster.condition(keys::DEHYDRATED).filter(|_| stays(cluster, report, now).is_some()) {
        return old.clone();
    }
    let words = stamped(cluster, keys::DEHYDRATED, condition(report), now);
    let is_answer = report.state.outcome == Outcome::Failed && is_asked_since(cluster, &words, now);
    if is_answer { Condition { last_heartbeat_time: format::seconds(now), ..words } } else { words }
}

/// Whether a request came after this was written: the same words are an answer to that by their time alone. A request
/// of a time to come is not answered yet.
fn is_asked_since(cluster: &Cluster, words: &Condition, now: Timestamp) -> bool {
    let requested = cluster.annotation(keys::POWER_STATE_AT).and_then(format::time);
    requested > format::time(&words.last_heartbeat_time) && requested <= format::time(&format::seconds(now))
}

/// How long the message of the condition still stays, although this one differs from it.
fn stays(cluster: &Cluster, report: &Report, now: Timestamp) -> Option<Duration> {
    let (old, wanted) = (cluster.condition(keys::DEHYDRATED)?, condition(report));
    let is_as_before = (&old.status, &old.reason) == (&wanted.status, &wanted.reason);
    let is_as_before = is_as_before && State::of(cluster) == Some(report.state);
    let age = now.duration_since(format::time(&old.last_heartbeat_time)?);
    let is_new = (SignedDuration::ZERO..MESSAGE_STAYS).contains(&age);
    let stays = is_as_before && is_new && old.message.is_some() && old.message != wanted.message;
    stays.then(|| (MESSAGE_STAYS - age).unsigned_abs())
}

/// How long until a request of a time to come, which a failed sleep answers then.
fn asked_in(cluster: &Cluster, report: &Report, now: Timestamp) -> Option<Duration> {
    let at = cluster.annotation(keys::POWER_STATE_AT).and_then(format::time)?;
    (report.state.outcome == Outcome::Failed && at > now).then(|| age(now, at))
}

/// Status, reason and message of the condition about a sleep.
fn condition(report: &Report) -> Condition {
    Condition {
        status: if report.dehydrated { "True" } else { "False" }.to_owned(),
        reason: Some(report.reason.clone()),
        message: Some(sanitize_to(&report.message, MAX_MESSAGE)).filter(|text| !text.is_empty()),
        ..Condition::default()
    }
}

/// Status, reason and message of the condition that holds the ledger.
fn entry(ledger: &Ledger) -> Condition {
    let (reason, message) = (Some(ledger::REASON.to_owned()), Some(ledger.text()));
    Condition { status: "False".to_owned(), reason, message, ..Condition::default() }
}

/// With the times and the version that KKP's schema requires. A condition that says the same stays as it is.
fn stamped(cluster: &Cluster, name: &str, wanted: Condition, now: Timestamp) -> Condition {
    let (old, now) = (cluster.condition(name), format::seconds(now));
    let content = |one: &Condition| (one.status.clone(), one.reason.clone(), one.message.clone());
    if let Some(old) = old.filter(|old| content(old) == content(&wanted)) {
        return old.clone();
    }
    let since = old.filter(|old| old.status == wanted.status).and_then(|old| old.last_transition_time.clone());
    Condition {
        // The KKP that runs is the one that wrote this.
        kubermatic_version: cluster
            .condition("SeedResourcesUpToDate")
            .map_or_else(|| "unknown".to_owned(), |one| one.kubermatic_version.clone()),
        last_transition_time: Some(since.unwrap_or_else(|| now.clone())),
        last_heartbeat_time: now,
        ..wanted
    }
}

/// What makes the conditions so; `None` if they are.
fn patch(cluster: &Cluster, conditions: Vec<Wanted>) -> Option<Value> {
    let changes: Vec<Value> =
        conditions.into_iter().filter_map(|(name, wanted)| change(cluster, name, wanted)).collect();
    if changes.is_empty() {
        return None;
    }
    let version = cluster.metadata.resource_version.as_deref();
    let mut operations = vec![json!({ "op": "test", "path": "/metadata/resourceVersion", "value": version })];
    if cluster.status.is_none() {
        operations.push(json!({ "op": "add", "path": "/status", "value": {} }));
    }
    if cluster.status.as_ref().is_none_or(|status| status.conditions.is_empty()) {
        operations.push(json!({ "op": "add", "path": "/status/conditions", "value": {} }));
    }
    operations.extend(changes);
    Some(json!(operations))
}

/// The operation on one condition, if it differs.
fn change(cluster: &Cluster, name: &str, wanted: Option<Condition>) -> Option<Value> {
    let (old, path) = (cluster.condition(name), format!("/status/conditions/{name}"));
    match wanted {
        None => old.map(|_| json!({ "op": "remove", "path": path })),
        Some(wanted) if old == Some(&wanted) => None,
        Some(wanted) => Some(json!({ "op": "add", "path": path, "value": wanted })),
    }
}

#[cfg(test)]
mod tests {
    use shared::kkp::api::ClusterSpec;

    use super::*;

    const EARLY: &str = "2026-11-22T18:00:00Z";
    const LATE: &str = "2026-11-22T18:05:00Z";

    fn reported(cluster: &Cluster, report: Option<&Report>, now: &str) -> Option<Value> {
        patch(cluster, about(cluster, &Plan { report: report.cloned(), ..Plan::default() }, now.parse().unwrap()))
    }

    /// What the Cluster says of a control plane that lacks this.
    fn lacking(cluster: &Cluster, report: Option<Report>, lacks: Option<&str>) -> Option<String> {
        let plan = Plan { report, lacks: lacks.map(str::to_owned), ..Plan::default() };
        let all = about(cluster, &plan, LATE.parse().unwrap());
        let awake = all.into_iter().find(|(name, _)| *name == keys::AWAKE).unwrap().1?;
        assert_eq!((awake.status.as_str(), awake.reason.as_deref()), ("True", Some("Awake")));
        Some(awake.message.unwrap_or_default())
    }

    /// The condition names it when the wake ends, keeps it between checks, and drops it once all is ready or the next
    /// sleep has begun.
    #[test]
    fn what_a_wake_leaves_unready_is_said_until_it_is_ready() {
        let mut cluster = Cluster::new("abc", ClusterSpec::default());
        let report = || Some(Report::of(Phase::Preflight, "every count is as it was"));
        for lacks in [None, Some("")] {
            assert_eq!((lacking(&cluster, None, lacks), lacking(&cluster, report(), lacks)), (None, None), "no wake");
        }
        let said = Some("etcd (2 of 3)".to_owned());
        assert_eq!(lacking(&cluster, report(), Some("etcd (2 of 3)")), said);
        let conditions = &mut cluster.status.get_or_insert_default().conditions;
        let message = Some("etcd (2 of 3)".to_owned());
        let (status, reason) = ("True".to_owned(), Some("Awake".to_owned()));
        conditions.insert(keys::AWAKE.to_owned(), Condition { status, reason, message, ..Condition::default() });
        for (lacks, expected) in [(None, said.clone()), (Some("etcd (2 of 3)"), said), (Some(""), Some(String::new()))]
        {
            assert_eq!(lacking(&cluster, None, lacks), expected, "{lacks:?}");
        }
        let asked = |lacks| lacking(&cluster, Some(Report::of(Phase::Preflight, "refused")), lacks);
        assert_eq!(
            (asked(None).as_deref(), asked(Some(""))),
            (Some("etcd (2 of 3)"), Some(String::new())),
            "awake so far"
        );
        let begun = Some(Report::of(Phase::Draining, ""));
        assert_eq!(lacking(&cluster, begun, None), None, "the next sleep");
    }

    fn applied(cluster: &Cluster, report: Option<&Report>, now: &str) -> Option<Cluster> {
        let patch: json_patch::Patch = serde_json::from_value(reported(cluster, report, now)?).unwrap();
        let mut object = serde_json::to_value(cluster).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
        Some(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn the_condition_is_written_when_it_changes_and_removed_at_the_end() {
        let mut cluster = Cluster::new("abc", ClusterSpec::default());
        cluster.metadata.resource_version = Some("7".into());
        assert_eq!(reported(&cluster, None, EARLY), None);
        let draining = Report::of(Phase::Draining, "waiting");
        let first = applied(&cluster, Some(&draining), EARLY).unwrap();
        assert_eq!(reported(&first, Some(&draining), LATE), None);
        let second = applied(&first, Some(&Report::of(Phase::Pausing, "\u{1b}[31mred")), LATE).unwrap();
        let words = second.condition(keys::DEHYDRATED).unwrap();
        assert_eq!((words.last_transition_time.as_deref(), words.last_heartbeat_time.as_str()), (Some(EARLY), LATE));
        assert!(!words.message.as_deref().unwrap().contains('\u{1b}'));
        let asleep = applied(&second, Some(&Report::of(Phase::Dehydrated, "")), LATE).unwrap();
        let words = asleep.condition(keys::DEHYDRATED).unwrap();
        assert_eq!((words.status.as_str(), words.last_transition_time.as_deref()), ("True", Some(LATE)));
        let awake = applied(&asleep, None, LATE).unwrap();
        assert_eq!((awake.condition(keys::DEHYDRATED), awake.condition(STATE)), (None, None));
    }

    #[test]
    fn a_message_stays_for_a_while_and_an_answer_to_a_newer_request_has_a_newer_time() {
        let mut cluster = Cluster::new("abc", ClusterSpec::default());
        cluster.metadata.resource_version = Some("7".into());
        let (draining, refused) = (|text: &str| Report::of(Phase::Draining, text), Report::of(Phase::Preflight, "no"));
        let refused = Report { state: State { outcome: Outcome::Failed, ..refused.state }, ..refused };
        let (soon, then) = ("2026-11-22T18:00:04.9Z", "2026-11-22T18:00:05Z");
        cluster = applied(&cluster, Some(&draining("")), EARLY).unwrap();
        cluster = applied(&cluster, Some(&draining("a")), EARLY).unwrap(); // what says nothing is replaced at once
        assert_eq!(reported(&cluster, Some(&draining("b")), soon), None);
        assert_eq!(stays(&cluster, &draining("b"), soon.parse().unwrap()), Some(Duration::from_millis(100)));
        assert!(reported(&cluster, Some(&draining("b")), then).is_some());
        assert!(
            reported(&cluster, Some(&draining("b")), "2026-11-22T17:59:59Z").is_some(),
            "of a clock that was ahead"
        );
        cluster = applied(&cluster, Some(&refused), EARLY).unwrap(); // another phase
        for (requested, now, answered) in [
            ("2026-11-22T18:00:00Z", LATE, false),
            ("2026-11-22T18:00:01Z", LATE, true),
            ("2026-11-22T18:05:00.5Z", LATE, false), // its time is to come
            ("soon", LATE, false),
        ] {
            let at = (keys::POWER_STATE_AT.to_owned(), requested.to_owned());
            cluster.metadata.annotations = Some([at].into());
            let written = applied(&cluster, Some(&refused), now);
            assert_eq!(written.is_some(), answered, "{requested}");
            if let Some(written) = written {
                assert_eq!(State::of(&written), Some(refused.state));
                assert_eq!(reported(&written, Some(&refused), now), None, "it is answered once");
            }
        }
    }

    /// Words that stay the same keep their time, and the state names it.
    #[test]
    fn the_state_goes_with_the_words_in_one_write() {
        let mut cluster = Cluster::new("abc", ClusterSpec::default());
        cluster.metadata.resource_version = Some("7".into());
        for (report, now) in [
            (Report::of(Phase::Preflight, "refused: no"), EARLY),
            (
                Report {
                    state: State { outcome: Outcome::Failed, ..State::entered(Phase::Preflight) },
                    ..Report::of(Phase::Preflight, "refused: no")
                },
                LATE,
            ),
            (Report::of(Phase::Draining, ""), LATE),
        ] {
            cluster = applied(&cluster, Some(&report), now).unwrap();
            assert_eq!(State::of(&cluster), Some(report.state), "{report:?}");
            assert_eq!(reported(&cluster, Some(&report), LATE), None, "{report:?}");
        }
        // One that is gone, such as after an edit of the status, is written again.
        let mut edited = cluster.clone();
        edited.status.as_mut().unwrap().conditions.remove(STATE);
        assert_eq!(
            applied(&edited, Some(&Report::of(Phase::Draining, "")), EARLY)
                .unwrap()
                .condition(STATE)
                .map(|one| &one.message),
            cluster.condition(STATE).map(|one| &one.message)
        );
    }
}
