//! Starts targets and ends claims: one write each, on the object as it was read.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, Stream, StreamExt as _};
use jiff::Timestamp;
use kube::Resource;
use kube::runtime::events::EventType;
use serde_json::Value;
use shared::annotation::format;
use shared::annotation::mark::{Mark, Outcome as Ending};
use shared::duration::after;
use shared::power::Power;
use shared::rollout::api::PowerRollout;
use shared::rollout::start::{end_patch, start_patch};
use shared::spoke::SpokeError;
use shared::text::{sanitize_chain, sanitize_to};
use tokio::time::Instant;
use tracing::{info, warn};

use super::checks::Checks;
use super::observation::Observation;
use super::{Rollouts, TargetState};
use crate::fleet::{Identity, Item, MAX_REASON, Verdict};
use crate::runtime::hub::key_of;
use crate::runtime::{Class, ReconcileError, Reconciled, System, WriteError, clock};

/// Writes under way at once.
const CONCURRENT: usize = 32;
/// Targets that one reconcile starts. The next one follows at once, with the rollout as it is then.
const STARTS: usize = 128;
/// How long the start of a target fails before the target is deferred: others must not wait for it forever.
const PATIENCE: Duration = Duration::from_mins(1);
/// What is marked while the spoke of a target is checked.
const CHECK: &str = "rollout-check";

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
    let ended =
        stream::iter(ended).map(async |(index, item, mark)| (index, end(rollouts, rollout, &item, &mark).await));
    let mut outcomes: Vec<(usize, Outcome)> = ended.buffer_unordered(CONCURRENT).collect().await;
    let begun = begin_checks(rollouts, rollout, &mut state.checks, sleeps);
    let ends = outcomes.len();
    let wanted = ends + rest.len() + begun.len();
    let started = stream::iter(rest).map(|start| (start, Ok(None))).chain(answers(&mut state.checks, begun));
    let started = started.map(async |((index, item, mark), verdict)| {
        let outcome = match verdict {
            Ok(None) => start(rollouts, rollout, &item, &mark).await,
            Ok(Some(why)) => Outcome::Deferred(why),
            Err(error) => Outcome::Failed(ReconcileError::spoke("check a target")(error)),
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
    let is_its_own = error.cause::<SpokeError>().is_some() || state.wrote.is_some_and(|wrote| wrote > *first);
    is_its_own && now - *first >= PATIENCE
}

/// A target that is to be started: its index, itself and its claim.
type Start = (usize, Arc<Item>, Mark);

fn needs_check(item: &Item, claim: &Mark) -> bool {
    claim.wanted == Power::Hibernating && item.view.observed.has_spoke
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
        let (hub, network, panics) = (rollouts.handle.hub.clone(), rollouts.network.clone(), rollouts.handle.panics());
        let check = async move {
            let (name, (_, uid)) = (item.full_name(), item.identity());
            let uid = Some(uid.as_str()).filter(|uid| !uid.is_empty());
            let mark = hub.marks.begin(CHECK, &item.view.identity.namespace, uid, &name).map_err(|left| {
                let why = "the controller's process ended while it was checked before";
                SpokeError::Failed(format!("{why}: it is checked again after {} s", left.pause.as_secs()))
            })?;
            let verdict = panics.contain("the check of a spoke", &name, item.objection(&hub, &network)).await;
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
    let Some(target) = item.lifecycle() else { return Outcome::Skipped };
    // A pause, an abort or the end of the hours may have come meanwhile.
    let now = clock::now();
    if is_outdated(rollouts, rollout) || now >= rollout.spec.not_after.0 {
        return Outcome::Skipped;
    }
    match unstamped_change(rollouts, rollout, item).await {
        Ok(None) => {}
        Ok(Some(by)) => {
            return Outcome::Deferred(format!("field manager {by} has changed it since this rollout was due"));
        }
        // It may be a person's own.
        Err(error) => return Outcome::Failed(error),
    }
    // The deadline runs from the write, and not from the plan.
    let claim = Mark { since: format::seconds(now), ..claim.clone() };
    match write(rollouts, rollout, item, start_patch(rollout, target, &item.view, &claim, now)).await {
        Outcome::Refused(why) => Outcome::Deferred(why),
        outcome => {
            if matches!(outcome, Outcome::Written(_)) {
                info!(rollout = claim.name, cluster = item.full_name(), wanted = %claim.wanted, "target started");
            }
            outcome
        }
    }
}

/// Who has set what says how an object runs since the rollout was due, of a kind whose requests no webhook stamps: only
/// field managers show a person's own.
async fn unstamped_change(rollouts: &Rollouts, rollout: &PowerRollout, item: &Item) -> Reconciled<Option<String>> {
    let row = rollouts.kind(rollout).and_then(|kind| kind.row.sleep_row());
    let started = rollout.status.as_ref().and_then(|status| status.started_at.as_ref());
    let Some((row, due)) = row.zip(rollout.spec.as_of.as_ref().or(started)) else { return Ok(None) };
    // Field managers have whole seconds: what was written in that second may have been there before.
    let since = after(due.0, Duration::from_secs(1));
    let writer = item.writer(&rollouts.handle.hub, since, |member| row.spec_members().any(|of| of == member)).await;
    writer.map_err(ReconcileError::read("the field managers of a target"))
}

/// Ends a claim: it becomes the record.
async fn end(rollouts: &Rollouts, rollout: &PowerRollout, item: &Item, record: &Mark) -> Outcome {
    let outcome = write(rollouts, rollout, item, end_patch(record)).await;
    if let (Outcome::Written(_), Some(ended)) = (&outcome, &record.ended) {
        info!(rollout = record.name, cluster = item.full_name(), result = %ended.result, reason = ended.reason, "target ended");
        if ended.result == Ending::Overridden {
            announce_override(rollouts, item, record).await;
        }
    }
    outcome
}

/// Names in an Event who changed a target back while a rollout was at work on it: a tool that applies the power state from a
/// repository does so each time.
async fn announce_override(rollouts: &Rollouts, item: &Item, record: &Mark) {
    let hub = &rollouts.handle.hub;
    // Field managers have whole seconds.
    let since = format::time(&record.since).unwrap_or(Timestamp::MIN);
    let by = item.writer(hub, since, |_| true).await.ok().flatten();
    let by = by.map_or_else(|| "another client".to_owned(), |by| format!("field manager {by}"));
    let note = format!(
        "rollout {} requested {}, and {by} has changed that since: the rollout leaves this target as it is",
        record.name, record.wanted
    );
    hub.events.publish(&item.reference(), EventType::Warning, (Rollouts::ACTION, "Overridden"), &note).await;
}

async fn write(rollouts: &Rollouts, rollout: &PowerRollout, item: &Item, patch: Value) -> Outcome {
    match item.patch(&rollouts.handle.hub, patch).await {
        Ok(Some(written)) => {
            if let Some(kind) = rollouts.kind(rollout) {
                kind.fleet.keep(written.clone());
            }
            Outcome::Written(written)
        }
        Ok(None) | Err(WriteError::Conflict(_) | WriteError::Gone(_)) => Outcome::Skipped,
        Err(error) => match refusal(&error) {
            Some(detail) => {
                let name = item.full_name();
                if let Some(left_out) = rollouts.handle.hub.warnings.due("rollout", &name) {
                    warn!(cluster = name, detail, left_out, "the API server refuses a write");
                }
                Outcome::Refused(sanitize_to(&format!("the API server refuses the write: {detail}"), MAX_REASON))
            }
            None => Outcome::Failed(ReconcileError::of_other("Target", "write a target")(error)),
        },
    }
}

/// The API server's words, if it will refuse this write again: a webhook, a policy, a schema, missing rights.
fn refusal(error: &WriteError) -> Option<String> {
    error.refusal().or_else(|| {
        let WriteError::Failed(source) = error else { return None };
        let kube::Error::Api(status) = &**source else { return None };
        refuses(status.code).then(|| sanitize_to(&status.message, MAX_REASON))
    })
}

/// Whether this code answers the write itself. Webhooks deny with any code; the others pass with time. What a 404 and a
/// 409 mean, [`WriteError`] says.
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

#[cfg(test)]
mod tests;
