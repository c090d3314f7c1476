//! KKP: dehydrates and hydrates user clusters from their seed. [`decide`] says what is to be done; the rest reads,
//! writes and reports.
//!
//! Only Clusters are watched. The namespace of a cluster's control plane and the user cluster itself are read while an
//! operation is under way, by polling: KKP's own controllers write there, and a wake must not trust what a paused KKP
//! reports (rows 6 and 7 of docs/reference/kkp.md, as all rows here).

mod act;
mod machinery;
mod observe;
mod patches;
mod preflight;
mod report;
mod seed;
mod slots;
mod store;
#[cfg(test)]
mod tests;
mod user;

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use shared::finding::Finding;
use shared::kkp::api::{Cluster, Condition, Request};
use shared::kkp::decide::{self, Plan, Report};
use shared::kkp::keys;
use shared::kkp::pause::is_paused_by_us;
use shared::kkp::phase::{Limits, Phase};
use shared::power::Power;
use shared::savings;
use shared::text::sanitize_chain;
use tokio::time::Instant;

use self::machinery::{Seen, numbers};
use self::seed::Seed;
use self::slots::Slots;
use self::store::Stored;
use self::user::Cached;
use crate::fleet::Member;
use crate::runtime::{Acted, Class, Done, Handle, Key, Observed, Reconciled, Settings, System, Target};
use crate::spoke::Network;

/// The system.
pub struct Kkp {
    handle: Handle<Cluster>,
    /// How user clusters are reached.
    network: Network,
    slots: Slots,
    settings: KkpSettings,
}

impl Kkp {
    /// Serves the Clusters of this seed.
    pub fn new(handle: Handle<Cluster>, network: Network, settings: KkpSettings) -> Self {
        Self { handle, network, slots: Slots::new(settings.sleeps, settings.wakes), settings }
    }
}

/// What the operator of a seed decides.
#[derive(Clone, Debug)]
pub struct KkpSettings {
    /// How long the phases may take.
    pub limits: Limits,
    /// Clusters that fall asleep at once.
    pub sleeps: usize,
    /// Clusters that wake at once.
    pub wakes: usize,
    /// The `worker-name` of the KKP that serves the clusters; empty as in production.
    pub worker_name: String,
}

/// What is remembered of a cluster between two reconciles.
#[derive(Default)]
pub struct TargetState {
    /// Whether its record was read in this term of leadership.
    read: bool,
    /// KKP's answer to the last try to end the pause.
    unpause_refused: Option<String>,
    /// When the user cluster was last read for a preflight.
    checked_at: Option<Instant>,
    /// A request for a preflight, and the answer that is not written yet.
    answer: Option<(String, Condition)>,
    /// How long every count of its control plane was observed at 0 in a sleep.
    seen: savings::ledger::Seen,
    /// The client of the user cluster, and the version of the Secret that it was made of.
    user: Option<Cached>,
}

impl TargetState {
    /// The answer to this request, if it is known and not written yet. It stays until it is written, also where a later
    /// read fails; that to another request is dropped.
    fn answer_to(&mut self, request: Option<&str>) -> Option<Condition> {
        self.answer.take_if(|(of, _)| request != Some(of.as_str()));
        self.answer.as_ref().map(|(_, answer)| answer.clone())
    }
}

/// What was seen of a cluster.
pub struct Observation<'a> {
    cluster: &'a Cluster,
    request: Request,
    record: Option<Stored>,
    findings: Option<Vec<Finding>>,
    /// The answer to a requested preflight.
    answer: Option<Condition>,
    /// When a request that came too soon after the last one is due.
    preflight_in: Option<Duration>,
    /// When the first certificate of the control plane expires, in the phase that records it.
    certificates_expire: Option<Timestamp>,
    seed: Seed,
    user: Seen,
    unpause_refused: Option<String>,
    /// The Cluster as our last write returned it.
    written: Option<Box<Cluster>>,
    may_begin: bool,
    now: Timestamp,
}

impl System for Kkp {
    type Object = Cluster;
    type State = TargetState;
    type Facts<'a> = Observation<'a>;
    type Plan = Plan;

    const NAME: &'static str = "kkp";
    const ACTION: &'static str = "Dehydration";
    const SETTINGS: Settings = Settings { concurrency: 32, ..Settings::SLOW };

    async fn observe<'a>(
        &self,
        cluster: &'a Cluster,
        target: &mut Target<Self>,
    ) -> Reconciled<Observed<Observation<'a>>> {
        let on_cluster = Request::of(|key| cluster.annotation(key));
        let is_wanted = on_cluster.is_some_and(|request| request.desired == Power::Hibernating);
        // A record may be left of which the Cluster shows nothing: the controller ended before it wrote the condition.
        let has_condition = cluster.condition(keys::DEHYDRATED).is_some();
        let has_condition = has_condition || cluster.lacks().is_some();
        let is_concerned =
            is_wanted || has_condition || is_paused_by_us(cluster, None) || preflight::requested(cluster).is_some();
        if target.state.read && !is_concerned {
            self.slots.free(&cluster.name_any());
            return Ok(Observed::Rest(None));
        }
        observe::observe(self, cluster, on_cluster, &mut target.state).await
    }

    fn decide(&self, seen: &Observation<'_>) -> Plan {
        let facts = decide::Facts {
            cluster: seen.cluster,
            request: seen.request,
            forced: seen.cluster.annotation(keys::FORCE) == Some("true"),
            record: seen.record.as_ref().and_then(Stored::readable),
            unread: seen.record.as_ref().and_then(|stored| stored.record.as_ref().err()).copied(),
            preflight: seen.findings.as_deref(),
            control_plane: &seen.seed.workloads,
            numbers: numbers(&seen.user),
            cron_jobs: &seen.seed.cron_jobs,
            user: seen.user.as_ref().map(|user| &user.machinery).map_err(String::as_str),
            may_begin: seen.may_begin,
            unpause_refused: seen.unpause_refused.as_deref(),
            now: seen.now,
            limits: self.settings.limits,
        };
        Plan { at_rest: decide::is_at_rest(&facts), ..decide::decide(&facts) }
    }

    async fn act(
        &self,
        observation: &mut Self::Facts<'_>,
        plan: &mut Plan,
        target: &mut Target<Self>,
    ) -> Reconciled<Acted> {
        let Err(error) = act::run(self, observation, plan, target).await else { return Ok(Acted::Nothing) };
        if let (Class::Failed | Class::Refused, Some(report)) = (error.class(), &mut plan.report) {
            report.message = format!("{}; retried after an error: {}", report.message, sanitize_chain(&error));
            plan.ends = false;
            let written = observation.record.as_ref().and_then(Stored::readable);
            plan.record.take_if(|record| written != Some(record));
            if plan.record.is_none() {
                // No phase has begun, and none is over: the condition stays in the one that it names.
                let stays = decide::phase(observation.cluster).unwrap_or(Phase::Preflight);
                if report.state.phase != Some(stays) || report.reason != stays.to_string() {
                    *report = Report::of(stays, std::mem::take(&mut report.message));
                }
                report.dehydrated = observation.cluster.is_true(keys::DEHYDRATED);
            }
            report::report(self, observation, plan, target).await?;
        }
        Err(error)
    }

    async fn report(&self, seen: &mut Self::Facts<'_>, plan: &mut Plan, target: &mut Target<Self>) -> Reconciled<Done> {
        report::report(self, seen, plan, target).await
    }

    fn forget(&self, key: &Key) {
        self.slots.free(&key.1);
        self.handle.hub.metrics.forget(key);
    }
}

/// A rollout needs nothing of a Cluster besides its row: the preflight and the drain of a sleep are this system's.
impl Member for Cluster {}
