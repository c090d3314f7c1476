//! Reads what a decision about a cluster needs, and no more: each phase asks for its own part.

use std::time::Duration;

use kube::ResourceExt;
use shared::annotation::format;
use shared::kkp::api::{Cluster, Request};
use shared::kkp::decide::{self, Standing, effective, kept_awake, standing};
use shared::kkp::keys;
use shared::kkp::phase::Phase;
use shared::kkp::record::Record;
use shared::power::Power;
use tokio::time::Instant;

use super::seed::{self, Seed};
use super::user::Part;
use super::{Kkp, Observation, TargetState, preflight, store, user};
use crate::runtime::{Observed, Reconciled, clock};

/// Reads it.
pub async fn observe<'a>(
    kkp: &Kkp,
    cluster: &'a Cluster,
    on_cluster: Option<Request>,
    state: &mut TargetState,
) -> Reconciled<Observed<Observation<'a>>> {
    let record = store::read(kkp, cluster).await?;
    state.read = true;
    let stored = record.as_ref();
    let standing = standing(cluster, stored.map(|stored| stored.record.as_ref().map_err(|error| *error)));
    let in_force = if let Standing::InForce(record) = &standing { Some(&**record) } else { None };
    let phase = in_force.map(|record| record.phase);
    let request = Request::newest(
        on_cluster,
        stored.and_then(|stored| Request::of(|key| stored.request.get(key).map(String::as_str))),
    );
    let name = cluster.name_any();
    let is_new = matches!(standing, Standing::Absent | Standing::Void);
    let wants = is_new && effective(cluster, None, request, clock::now()) == Power::Hibernating;
    let begins = wants && kept_awake(cluster, clock::now()).is_none();
    // The condition opens the preflight first.
    let is_open = decide::phase(cluster) == Some(Phase::Preflight);
    let request_id = preflight::requested(cluster);
    let kept = state.answer_to(request_id);
    let preflight_in = request_id.filter(|_| kept.is_none()).map(|_| preflight::left(state.checked_at));
    let requested = request_id.filter(|_| begins && is_open || preflight_in == Some(Duration::ZERO));
    let has_condition = cluster.condition(keys::DEHYDRATED).is_some();
    let lacks = cluster.lacks().is_some();
    let is_at_rest = matches!(standing, Standing::Absent) && !wants && !has_condition && !lacks;
    if is_at_rest && requested.is_none() && kept.is_none() {
        kkp.slots.free(&name);
        return Ok(Observed::Rest(preflight_in));
    }
    let desired = effective(cluster, in_force, request, clock::now());
    let is_overdue = in_force
        .is_some_and(|record| kkp.settings.limits.exceeded(record.phase, record.in_phase(clock::now())).is_some());
    let changes = begins || phase.is_some_and(|phase| phase.is_of_sleep() == (desired == Power::Running));
    let rests = phase == Some(Phase::Dehydrated) && !changes;
    let needs_slot = !(rests || phase.is_none() && !begins);
    if rests {
        kkp.slots.free(&name);
    }
    let may_begin = !needs_slot || kkp.slots.take(&name, phase, is_overdue, desired);
    let is_begun = begins && may_begin && is_open;
    // The copies of the counts are what is left of a record, also of one that is of no use.
    let is_rebuilt = matches!(standing, Standing::Orphaned(..) | Standing::Held(_, Some(_)));
    let is_read = is_begun || requested.is_some() || may_begin && phase.is_some() || is_rebuilt || lacks;
    let seed = if is_read { seed::list(kkp, cluster).await? } else { Seed::default() };
    let is_checked = is_begun || requested.is_some();
    if is_checked {
        state.checked_at = Some(Instant::now());
    }
    let mut user = if is_checked || is_read && phase.is_some_and(|phase| needs_user(phase, &seed)) {
        user::ask(kkp, cluster, state, &part(is_checked, in_force)).await
    } else {
        Err("this phase reads nothing of the user cluster".to_owned())
    };
    if let Ok(user) = &mut user {
        user.machinery.unready = seed.unready();
        let waits = phase == Some(Phase::WaitingForMachineController) && !is_overdue;
        if waits && user.machinery.unready.is_none() {
            user.machinery.unready = user::missing_tokens(user).await;
        }
    }
    let findings = if is_checked { Some(preflight::findings(kkp, cluster, phase, &seed, &user).await) } else { None };
    let found = findings.as_deref().unwrap_or_default();
    let answer = kept.or_else(|| Some(preflight::answer(cluster, requested?, found, &user)));
    state.answer = request_id.map(str::to_owned).zip(answer.clone());
    let certificates_expire =
        if phase == Some(Phase::Pausing) { seed::certificates_expire(kkp, cluster).await } else { None };
    Ok(Observed::Facts(Observation {
        cluster,
        request,
        record,
        findings,
        answer,
        preflight_in: preflight_in.filter(|left| !left.is_zero()),
        certificates_expire,
        seed,
        user,
        unpause_refused: state.unpause_refused.clone(),
        written: None,
        may_begin,
        now: clock::now(),
    }))
}

/// Whether a phase reads or changes the user cluster.
fn needs_user(phase: Phase, seed: &Seed) -> bool {
    match phase {
        Phase::Dehydrated | Phase::StartingControlPlane => false,
        Phase::ScalingDownControlPlane => seed.has_apiserver(),
        _ => true,
    }
}

/// What a phase reads of the user cluster.
fn part(preflight: bool, record: Option<&Record>) -> Part {
    let phase = record.map(|record| record.phase);
    let refused_since =
        record.filter(|record| record.phase == Phase::WaitingForNodes).and_then(|record| format::time(&record.entered));
    let drains = phase.is_some_and(|phase| !phase.is_of_wake());
    Part { preflight, pods: preflight || drains, refused_since }
}
