//! Writes the status of a rollout, its counters at most once a second, and Events about its phases.

use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::events::EventType;
use serde_json::json;
use shared::rollout::api::PowerRollout;
use shared::rollout::status::{PowerRolloutStatus, RolloutPhase};
use tokio::time::Instant;
use tracing::info;

use super::{Rollouts, STATUS_INTERVAL, TargetState};
use crate::runtime::hub::key_of;
use crate::runtime::{ReconcileError, Reconciled};

/// Writes the status if it differs. The rollout as it was written, or how long the write has to wait.
pub async fn write(
    rollouts: &Rollouts,
    rollout: &PowerRollout,
    status: PowerRolloutStatus,
    state: &mut TargetState,
) -> Reconciled<(Option<PowerRollout>, Option<Duration>)> {
    rollouts.handle.hub.metrics.rollouts.count(&key_of(rollout), &status);
    if rollout.status.as_ref() == Some(&status) {
        return Ok((None, None));
    }
    let before = rollout.status.as_ref().and_then(|status| status.phase);
    let later = delay(state.written.map(|at| at.elapsed()), before != status.phase);
    if later.is_some() {
        return Ok((None, later));
    }
    let patch = json!([
        { "op": "test", "path": "/metadata/resourceVersion", "value": rollout.resource_version() },
        { "op": "add", "path": "/status", "value": status },
    ]);
    let written = rollouts.handle.hub.patch_status(rollout, patch).await.map_err(ReconcileError::status)?;
    state.written = Some(Instant::now());
    if let Some(phase) = status.phase.filter(|phase| Some(*phase) != before) {
        let note = status.message.unwrap_or_default();
        info!(rollout = rollout.name_any(), %phase, message = note, "phase");
        announce(rollouts, rollout, phase, &note).await;
    }
    Ok((Some(written), None))
}

/// How long the write has to wait. A new phase is written at once: people and schedules act on it.
fn delay(since_write: Option<Duration>, is_new_phase: bool) -> Option<Duration> {
    let left = STATUS_INTERVAL.saturating_sub(since_write.filter(|_| !is_new_phase)?);
    Some(left).filter(|left| !left.is_zero())
}

async fn announce(rollouts: &Rollouts, rollout: &PowerRollout, phase: RolloutPhase, note: &str) {
    let type_ = match phase {
        RolloutPhase::Halted | RolloutPhase::Finished => EventType::Warning,
        _ => EventType::Normal,
    };
    let reason = phase.to_string();
    let note = if note.is_empty() { reason.as_str() } else { note };
    rollouts.handle.publish(rollout, type_, &reason, note).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_wait_for_a_second_and_a_new_phase_for_nothing() {
        let millis = Duration::from_millis;
        for (since_write, is_new_phase, expected) in [
            (None, false, None),
            (None, true, None),
            (Some(millis(300)), false, Some(millis(700))),
            (Some(millis(300)), true, None),
            (Some(millis(0)), true, None),
            (Some(millis(1000)), false, None),
        ] {
            assert_eq!(delay(since_write, is_new_phase), expected, "{since_write:?} {is_new_phase}");
        }
    }
}
