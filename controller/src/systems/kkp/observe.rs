//! Reads what a decision about a cluster needs, and no more: each phase asks for its own part.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use shared::annotation::format;
use shared::kkp::api::{Cluster, Desired, Request};
use shared::kkp::keys;
use shared::kkp::phase::{Limits, Phase};
use shared::kkp::preflight::{self, Facts, findings};
use shared::kkp::record::Record;
use shared::text::sanitize;
use tokio::time::Instant;

use super::machinery::Seen;
use super::seed::{self, Seed};
use super::{Kkp, KkpError, Observation, TargetState, patches, store, user};
use crate::runtime::hub::as_controller;
use crate::runtime::{Observed, System, clock};

/// Reads it.
pub async fn observe<'a>(
    kkp: &Kkp,
    cluster: &'a Cluster,
    on_cluster: Option<Request>,
    state: &mut TargetState,
) -> Result<Observed<Observation<'a>>, KkpError> {
    let record = store::read(kkp, cluster).await?;
    state.read = true;
    let stored = record.as_ref().ok().and_then(Option::as_ref);
    let phase = stored.map(|stored| stored.record.phase);
    let request = Request::newest(on_cluster, stored.and_then(|stored| stored.request));
    let name = cluster.name_any();
    let begins = phase.is_none() && record.is_ok() && request.desired == Desired::Hibernating;
    let has_condition = cluster.condition(keys::DEHYDRATED).is_some();
    if phase.is_none() && record.is_ok() && !begins && !has_condition {
        kkp.slots.free(&name);
        return Ok(Observed::Rest(None));
    }
    let changes = begins || phase.is_some_and(|phase| phase.is_of_sleep() == (request.desired == Desired::Running));
    let rests = phase == Some(Phase::Dehydrated) && !changes;
    let needs_slot = !(rests || phase.is_none() && !begins);
    let may_begin = !needs_slot || {
        let is_overdue = stored.is_some_and(|stored| is_overdue(&kkp.limits, &stored.record));
        kkp.slots.take(&name, phase, is_overdue, request.desired)
    };
    let seed = if phase.is_some() || begins { seed::list(kkp, cluster).await? } else { Seed::default() };
    let quiet = quiet(state, &seed);
    let mut user = if begins && may_begin || phase.is_some_and(needs_user) {
        user::ask(kkp, cluster, state, begins).await
    } else {
        Seen::NotAsked
    };
    if let Seen::Asked(asked) = &mut user {
        asked.machinery.unready = seed.unready();
    }
    let findings = if begins && may_begin { Some(preflight_of(kkp, cluster, &user).await) } else { None };
    Ok(Observed::Facts(Observation {
        cluster,
        request,
        record,
        findings,
        seed,
        quiet,
        user,
        unpause_refused: state.unpause_refused.clone(),
        written: None,
        may_begin,
        now: clock::now(),
        limits: kkp.limits,
    }))
}

/// Whether the recorded phase has exceeded its limit.
fn is_overdue(limits: &Limits, record: &Record) -> bool {
    let entered = format::time(&record.entered);
    let in_phase = entered.and_then(|entered| Duration::try_from(clock::now() - entered).ok());
    limits.of(record.phase).is_some_and(|limit| in_phase.is_some_and(|in_phase| in_phase > limit))
}

/// Whether a phase reads or changes the user cluster.
fn needs_user(phase: Phase) -> bool {
    !matches!(
        phase,
        Phase::MachinesScaledDown | Phase::ScalingDownControlPlane | Phase::Dehydrated | Phase::StartingControlPlane
    )
}

/// How long every workload but etcd was at 0: in each reconcile since, or it begins anew (row 5).
fn quiet(state: &mut TargetState, seed: &Seed) -> Duration {
    if !seed.is_quiet() || seed.workloads.is_empty() {
        state.quiet_since = None;
        return Duration::ZERO;
    }
    state.quiet_since.get_or_insert_with(Instant::now).elapsed()
}

/// What stands in the way of a sleep, with KKP's answer to a dry run of the pause (row 28).
async fn preflight_of(kkp: &Kkp, cluster: &Cluster, user: &Seen) -> Vec<preflight::Finding> {
    let api: Api<Cluster> = Api::all(kkp.hub().client.clone());
    let dry_run = PatchParams { dry_run: true, ..as_controller() };
    let answer = api.patch(&cluster.name_any(), &dry_run, &Patch::Merge(patches::pause(cluster))).await;
    let refusal = answer.err().map(|error| match error {
        kube::Error::Api(status) => sanitize(&status.message),
        other => sanitize(&other),
    });
    let pause = refusal.as_deref().map_or(Ok(()), Err);
    findings(&Facts { cluster, worker_name: "", recorded: None, pause, user: user.for_preflight() })
}
