//! Starts targets and ends claims: one write each, on the object as it was read.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, Stream, StreamExt as _};
use jiff::Timestamp;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use shared::annotation::mark::{Mark, Power};
use shared::annotation::{format, keys};
use shared::hive::api::ClusterDeployment;
use shared::rollout::api::{PowerRollout, PowerRolloutSpec};
use shared::spoke::{SpokeError, Upgrade};
use shared::target::{CLUSTER_DEPLOYMENT, Change, Intent, PowerAction};
use shared::text::{sanitize_chain, sanitize_to};
use tokio::time::Instant;
use tracing::{info, warn};

use super::checks::{Checks, Identity, Verdict};
use super::fleet::Item;
use super::{Observation, Rollouts, TargetState};
use crate::runtime::hub::{full_name, key_of};
use crate::runtime::{Class, Hub, ReconcileError, System, WriteError, clock};
use crate::spoke::{self, Network};
use crate::systems::hive::spokes;

/// Writes under way at once.
const CONCURRENT: usize = 32;
/// Targets that one reconcile starts. The next one follows at once, with the rollout as it is then.
const STARTS: usize = 128;
/// How long the start of a target fails before the target is deferred: others must not wait for it forever.
const PATIENCE: Duration = Duration::from_mins(1);
/// What is marked while the spoke of a target is checked.
const CHECK: &str = "rollout-check";
/// Longest reason of a deferral in characters.
const MAX_REASON: usize = 200;

/// What came of one action.
enum Outcome {
    /// The object was written.
    Written(Arc<Item>),
    /// Something else was written first, or the rollout has changed: the next plan decides.
    Skipped,
    /// It cannot start for now.
    Deferred(String),
    /// The API server refuses the write, and would refuse it again.
    Refused(String),
    /// The hub does not answer, or this controller does not lead.
    Failed(ReconcileError),
}

/// Carries out a plan's ends and starts, and notes what came of them.
pub async fn run(
    rollouts: &Rollouts,
    observation: &mut Observation<'_>,
    ends: Vec<(usize, Mark)>,
    starts: Vec<(usize, Mark)>,
    state: &mut TargetState,
) {
    let rollout = observation.rollout;
    let items = &observation.items;
    let item = |index: usize| items.get(index).map(|(item, _)| item.clone());
    let ended = ends.into_iter().filter_map(|(index, mark)| Some((index, item(index)?, mark)));
    let ended: Vec<_> = ended.collect();
    let started = starts.into_iter().take(STARTS).filter_map(|(index, mark)| Some((index, item(index)?, mark)));
    let (sleeps, rest): (Vec<_>, Vec<_>) = started.partition(|(_, item, mark)| needs_check(item, mark));
    let ended = stream::iter(ended).map(async |(index, item, mark)| (index, end(rollouts, &item, &mark).await));
    let mut outcomes: Vec<(usize, Outcome)> = ended.buffer_unordered(CONCURRENT).collect().await;
    let begun = begin_checks(rollouts, rollout, &mut state.checks, sleeps);
    let ends = outcomes.len();
    let wanted = ends + rest.len() + begun.len();
    let started = stream::iter(rest).map(|start| (start, Ok(None))).chain(answers(&mut state.checks, begun));
    let started = started.map(async |((index, item, mark), verdict)| {
        let outcome = match verdict {
            Ok(None) => start(rollouts, rollout, &item, &mark).await,
            Ok(Some(why)) => Outcome::Deferred(why),
            Err(error) => Outcome::Failed(ReconcileError::Spoke("check a target", error)),
        };
        (index, outcome)
    });
    outcomes.extend(started.buffer_unordered(CONCURRENT).collect::<Vec<_>>().await);
    // Other targets take the place of those whose checks are under way.
    observation.left |= outcomes.len() < wanted;
    for (position, (index, outcome)) in outcomes.into_iter().enumerate() {
        let Some((item, _)) = observation.items.get_mut(index) else { continue };
        let target = item.identity();
        match outcome {
            Outcome::Written(written) => {
                state.checked.remove(&target);
                state.failing.remove(&target);
                state.wrote = Some(Instant::now());
                *item = written;
                observation.acted = true;
            }
            // Only a start becomes a deferral: a refused record is written again with the next plan that is due, and
            // not sooner.
            Outcome::Refused(_) => {}
            Outcome::Deferred(why) => {
                state.failing.remove(&target);
                state.checked.insert(target, (why, clock::now()));
                observation.acted = true;
            }
            Outcome::Skipped => observation.left = true,
            Outcome::Failed(error) if position >= ends && is_hopeless(state, &target, &error) => {
                state.checked.insert(target, (sanitize_to(&sanitize_chain(&error), MAX_REASON), clock::now()));
                observation.acted = true;
            }
            Outcome::Failed(error) => observation.failed = Some(error),
        }
    }
    observation.checked.clone_from(&state.checked);
    observation.checking.clone_from(state.checks.under_way());
}

/// Notes that a start failed. Whether it has for so long that the target is deferred. A hub that takes no write of any
/// target is waited for: its canaries must not be passed over.
fn is_hopeless(state: &mut TargetState, target: &Identity, error: &ReconcileError) -> bool {
    if error.class() == Class::NotLeader {
        return false;
    }
    let now = Instant::now();
    let (first, last) = state.failing.entry(target.clone()).or_insert((now, now));
    *last = now;
    let is_its_own = matches!(error, ReconcileError::Spoke(..)) || state.wrote.is_some_and(|wrote| wrote > *first);
    is_its_own && now - *first >= PATIENCE
}

/// A target that is to be started: its index, itself and its claim.
type Start = (usize, Arc<Item>, Mark);

fn needs_check(item: &Item, claim: &Mark) -> bool {
    claim.wanted == Power::Hibernating && item.observed.has_spoke
}

/// Checks the spokes of these targets: those of which an answer is there or will come.
fn begin_checks(
    rollouts: &Rollouts,
    rollout: &PowerRollout,
    checks: &mut Checks,
    starts: Vec<Start>,
) -> HashMap<Identity, Start> {
    let mut begun = HashMap::with_capacity(starts.len());
    for start in starts {
        let (item, target) = (start.1.clone(), start.1.identity());
        let (hub, network, panics) = (rollouts.hub().clone(), rollouts.network.clone(), rollouts.handle.panics());
        let check = async move {
            let name = full_name(&*item.object);
            let (namespace, uid) = (item.observed.namespace.as_str(), item.object.meta().uid.as_deref());
            let mark = hub.marks.begin(CHECK, namespace, uid, &name).map_err(|left| {
                let why = "the controller's process ended while it was checked before";
                SpokeError::Failed(format!("{why}: it is checked again after {} s", left.pause.as_secs()))
            })?;
            let verdict = panics.contain("the check of a spoke", &name, against_sleep(&hub, &network, &item)).await;
            mark.complete();
            verdict.unwrap_or_else(|_| Ok(Some("internal error: the check of its spoke panicked".to_owned())))
        };
        let (handle, key) = (rollouts.handle.clone(), key_of(rollout));
        if checks.begin(&target, &rollouts.turns, check, move || handle.trigger(key)) {
            begun.insert(target, start);
        }
    }
    begun
}

/// The answers to these checks. Those that take longer than others answer a later reconcile, and ask for it.
fn answers(checks: &mut Checks, begun: HashMap<Identity, Start>) -> impl Stream<Item = (Start, Verdict)> {
    stream::unfold((checks, begun), async |(checks, mut begun)| {
        let Some((target, verdict)) = checks.next(&begun).await else {
            checks.end();
            return None;
        };
        let start = begun.remove(&target)?;
        Some(((start, verdict), (checks, begun)))
    })
}

/// Starts a target: intent and claim in one write.
async fn start(rollouts: &Rollouts, rollout: &PowerRollout, item: &Item, claim: &Mark) -> Outcome {
    let Some(cluster) = item.cluster() else { return Outcome::Skipped };
    // A pause, an abort or the end of the hours may have come meanwhile.
    let now = clock::now();
    if is_outdated(rollouts, rollout) || now >= rollout.spec.not_after.0 {
        return Outcome::Skipped;
    }
    // The deadline runs from the write, and not from the plan.
    let claim = Mark { since: format::seconds(now), ..claim.clone() };
    match write(rollouts, cluster, start_patch(rollout, cluster, &claim)).await {
        Outcome::Refused(why) => Outcome::Deferred(why),
        outcome => {
            if matches!(outcome, Outcome::Written(_)) {
                info!(rollout = claim.name, cluster = full_name(cluster), wanted = %claim.wanted, "target started");
            }
            outcome
        }
    }
}

/// The patch of a start: what the plugin would write, the claim, and the person who asked.
fn start_patch(rollout: &PowerRollout, cluster: &ClusterDeployment, claim: &Mark) -> Value {
    let spec = &rollout.spec;
    let undone = spec.restore_of.as_ref().map(|other| other.uid.as_str());
    let earlier = cluster.annotations().get(keys::ROLLOUT).and_then(|text| Mark::parse(text));
    let earlier = earlier.filter(|mark| mark.uid == claim.uid || Some(mark.uid.as_str()) == undone);
    let (claim, end) = scheduled(spec, cluster, claim, earlier.as_ref());
    let action = match claim.wanted {
        Power::Hibernating => PowerAction::Hibernate,
        Power::Running => PowerAction::Resume,
    };
    let intent = Intent { action, reason: spec.reason.as_deref(), end, now: clock::now(), queried: true, force: false };
    let mut patch = match CLUSTER_DEPLOYMENT.change(&json!(cluster), &intent) {
        Ok(Change::Patch { patch, .. }) => patch,
        Ok(Change::None { .. } | Change::Ask { .. }) | Err(_) => json!({}),
    };
    let changes = patch.get("spec").is_some();
    let annotations = &mut patch["metadata"]["annotations"];
    annotations[keys::ROLLOUT] = claim.text().into();
    let held = earlier.as_ref().and_then(Mark::hold);
    if claim.wanted == Power::Hibernating && held.is_some() && held == cluster.moment(keys::HOLD_AWAKE_UNTIL) {
        // The hold of the undone rollout. One that was changed since has deferred the target.
        annotations[keys::HOLD_AWAKE_UNTIL] = Value::Null;
        annotations[keys::HOLD_AWAKE_BY] = Value::Null;
    }
    if changes {
        annotations[keys::REQUESTED_BY] = rollout.annotations().get(keys::REQUESTED_BY).cloned().into();
        annotations[keys::REQUESTED_AT] = claim.since.clone().into();
    }
    patch
}

/// The end of the sleep or of the hold, and the claim with what a Restore needs to know of the schedule. `earlier`: the
/// mark of the undone rollout, or of an earlier attempt.
fn scheduled(
    spec: &PowerRolloutSpec,
    cluster: &ClusterDeployment,
    claim: &Mark,
    earlier: Option<&Mark>,
) -> (Mark, Option<Timestamp>) {
    let removed = earlier.and_then(Mark::removed_wake);
    let (wake_at, held_until) = (spec.wake_at.as_ref().map(|at| at.0), spec.hold_awake_until.as_ref().map(|at| at.0));
    match claim.wanted {
        Power::Hibernating => {
            let end = wake_at.or(removed.filter(|at| *at > clock::now()));
            (Mark { wake_at: removed.map(format::seconds), ..claim.clone() }, end)
        }
        Power::Running => {
            let removed = cluster.moment(keys::WAKE_AT).or(removed).map(format::seconds);
            (Mark { wake_at: removed, held_until: held_until.map(format::seconds), ..claim.clone() }, held_until)
        }
    }
}

/// Ends a claim: it becomes the record.
async fn end(rollouts: &Rollouts, item: &Item, record: &Mark) -> Outcome {
    let Some(cluster) = item.cluster() else { return Outcome::Skipped };
    let outcome = write(rollouts, cluster, end_patch(record)).await;
    if let (Outcome::Written(_), Some(ended)) = (&outcome, &record.ended) {
        info!(rollout = record.name, cluster = full_name(cluster), result = %ended.result, reason = ended.reason, "target ended");
    }
    outcome
}

/// The patch that makes a record of a claim.
pub fn end_patch(record: &Mark) -> Value {
    json!({ "metadata": { "annotations": { keys::ROLLOUT: record.text() } } })
}

async fn write(rollouts: &Rollouts, cluster: &ClusterDeployment, patch: Value) -> Outcome {
    match rollouts.hub().patch(cluster, patch).await {
        Ok(written) => rollouts.fleet.wrote(written).map_or(Outcome::Skipped, Outcome::Written),
        Err(WriteError::Conflict(_) | WriteError::Gone(_)) => Outcome::Skipped,
        Err(error) => match refusal(&error) {
            Some(said) => {
                let name = full_name(cluster);
                if let Some(left_out) = rollouts.hub().warnings.due("rollout", &name) {
                    warn!(cluster = name, said, left_out, "the API server refuses a write");
                }
                Outcome::Refused(sanitize_to(&format!("the API server refuses the write: {said}"), MAX_REASON))
            }
            None => Outcome::Failed(ReconcileError::Target(error)),
        },
    }
}

/// The API server's words, if it will refuse this write again: a webhook, a policy, a schema, missing rights.
fn refusal(error: &WriteError) -> Option<String> {
    error.refusal().or_else(|| match error {
        WriteError::Failed(source) => match &**source {
            kube::Error::Api(status) if refuses(status.code) => Some(sanitize_to(&status.message, MAX_REASON)),
            _ => None,
        },
        _ => None,
    })
}

/// Whether this code answers the write itself. Webhooks deny with any code; the others pass with time.
const fn refuses(code: u16) -> bool {
    matches!(code, 400..500) && !matches!(code, 401 | 404 | 408 | 409 | 410 | 425 | 429)
}

/// Whether the watch has brought another spec of the rollout.
fn is_outdated(rollouts: &Rollouts, rollout: &PowerRollout) -> bool {
    let newest = rollouts.handle.newest(key_of(rollout));
    newest.is_none_or(|newest| {
        let (meta, own) = (newest.meta(), &rollout.metadata);
        meta.uid != own.uid || meta.generation != own.generation || meta.deletion_timestamp.is_some()
    })
}

/// Why a cluster that runs must not go to sleep now, as its spoke says.
async fn against_sleep(hub: &Hub, network: &Network, item: &Item) -> Verdict {
    let Some(cluster) = item.cluster() else { return Ok(None) };
    let client = match spokes::client(hub, network, cluster).await {
        Ok((client, _)) => client,
        // The hub did not give the kubeconfig: that says nothing about the cluster.
        Err(error @ SpokeError::Failed(_)) => return Err(error),
        Err(error) => return Ok(Some(sanitize_to(&sanitize_chain(&error), MAX_REASON))),
    };
    Ok(match spoke::upgrade(&client).await {
        Upgrade::Idle => None,
        Upgrade::Progressing(what) => Some(sanitize_to(&format!("it is being upgraded: {what}"), MAX_REASON)),
        Upgrade::Unknown => Some("its API server does not answer: a sleep could interrupt an upgrade".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_pass_with_time_are_no_refusals() {
        // A webhook that denies without a code answers 400.
        for (codes, expected) in [
            (&[400, 403, 405, 413, 418, 422][..], true),
            (&[200, 401, 404, 408, 409, 410, 429, 500, 503, 504][..], false),
        ] {
            for code in codes {
                assert_eq!(refuses(*code), expected, "{code}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_that_fails_for_a_minute_is_hopeless_unless_no_write_passes() {
        let target = (("n".to_owned(), "a".to_owned()), "uid".to_owned());
        let spoke = ReconcileError::Spoke("check a target", SpokeError::Failed("403".to_owned()));
        let write = ReconcileError::Target(WriteError::Failed(Box::new(kube::Error::LinesCodecMaxLineLengthExceeded)));
        let lost = ReconcileError::Target(WriteError::NotLeader);
        for (error, another_is_written, expected) in
            [(&spoke, false, true), (&write, false, false), (&write, true, true), (&lost, true, false)]
        {
            let mut state = TargetState::default();
            assert!(!is_hopeless(&mut state, &target, error), "{error}: the first failure");
            tokio::time::sleep(Duration::from_secs(59)).await;
            assert!(!is_hopeless(&mut state, &target, error), "{error}: less than a minute");
            state.wrote = another_is_written.then(Instant::now);
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(is_hopeless(&mut state, &target, error), expected, "{error}: {another_is_written}");
        }
    }

    #[test]
    fn a_start_writes_the_intent_what_goes_with_it_and_the_person() {
        let rollout = |action: &str| -> PowerRollout {
            let (wake_at, hold_awake_until) = match action {
                "Hibernate" => (Some("2126-01-02T00:00:00Z"), None),
                "Resume" => (None, Some("2126-01-03T00:00:00Z")),
                _ => (None, None),
            };
            let restore_of = (action == "Restore").then(|| json!({ "name": "day", "uid": "undone" }));
            serde_json::from_value(json!({
                "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerRollout",
                "metadata": { "name": "night", "uid": "u", "annotations": { keys::REQUESTED_BY: "ann" } },
                "spec": {
                    "action": action, "targets": { "all": true }, "maxTargets": 1, "notAfter": "2126-01-01T00:00:00Z",
                    "wakeAt": wake_at, "holdAwakeUntil": hold_awake_until, "reason": "costs", "restoreOf": restore_of,
                },
            }))
            .expect("a rollout")
        };
        let cluster = |power: &str, annotations: Value| -> ClusterDeployment {
            serde_json::from_value(json!({
                "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
                "metadata": { "name": "demo", "namespace": "x", "resourceVersion": "1", "annotations": annotations },
                "spec": { "baseDomain": "d", "clusterName": "demo", "installed": true, "powerState": power, "platform": {} },
            }))
            .expect("a cluster")
        };
        let mark = |uid: &str, wanted: &str, more: Value| {
            let mut mark = json!({
                "v": 1, "name": "night", "uid": uid, "action": "Hibernate", "group": 0, "attempt": 0,
                "before": "Running", "wanted": wanted, "since": "2026-11-24T12:00:00Z",
            });
            json_patch::merge(&mut mark, &more);
            Mark::parse(&mark.to_string()).expect("a claim")
        };
        let (morning, noon) = ("2126-01-02T00:00:00Z", "2126-01-03T00:00:00Z");
        let undone = |uid: &str| mark(uid, "Running", json!({ "heldUntil": noon, "wakeAt": morning })).text();
        for (action, wanted, annotations, expected, kept) in [
            (
                "Hibernate",
                "Hibernating",
                json!({}),
                json!({ keys::WAKE_AT: morning, keys::REASON: "costs" }),
                json!({}),
            ),
            (
                "Resume",
                "Running",
                json!({ keys::WAKE_AT: morning }),
                json!({ keys::WAKE_AT: null, keys::REASON: "costs", keys::HOLD_AWAKE_UNTIL: noon }),
                json!({ "heldUntil": noon, "wakeAt": morning }),
            ),
            // The undone rollout removed a wake-at: it is given back, also by a retry, and not from anybody else's
            // record.
            (
                "Restore",
                "Hibernating",
                json!({ keys::HOLD_AWAKE_UNTIL: noon, keys::ROLLOUT: undone("undone") }),
                json!({ keys::WAKE_AT: morning, keys::HOLD_AWAKE_UNTIL: null, keys::HOLD_AWAKE_BY: null }),
                json!({ "wakeAt": morning }),
            ),
            (
                "Restore",
                "Hibernating",
                json!({ keys::ROLLOUT: undone("u") }),
                json!({ keys::WAKE_AT: morning }),
                json!({ "wakeAt": morning }),
            ),
            (
                "Restore",
                "Hibernating",
                json!({ keys::HOLD_AWAKE_UNTIL: noon, keys::ROLLOUT: undone("other") }),
                json!({}),
                json!({}),
            ),
        ] {
            let before = if wanted == "Hibernating" { "Running" } else { "Hibernating" };
            let patch = start_patch(&rollout(action), &cluster(before, annotations), &mark("u", wanted, json!({})));
            assert_eq!(patch["spec"], json!({ "powerState": wanted }));
            let written = &patch["metadata"]["annotations"];
            for key in [keys::WAKE_AT, keys::HOLD_AWAKE_UNTIL] {
                assert_eq!(written.get(key), expected.get(key), "{action} {key}: {patch}");
            }
            for (key, value) in expected.as_object().expect("annotations") {
                assert_eq!(written.get(key), Some(value), "{action} {key}: {patch}");
            }
            let stamp = (&written[keys::REQUESTED_BY], &written[keys::REQUESTED_AT], &written[keys::ROLLOUT]);
            let claim = mark("u", wanted, kept).text();
            assert_eq!(stamp, (&json!("ann"), &json!("2026-11-24T12:00:00Z"), &json!(claim)));
        }
    }
}
