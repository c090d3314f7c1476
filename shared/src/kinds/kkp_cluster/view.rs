//! What every consumer reads of a Cluster. KKP itself shows a sleeping cluster as Running: our condition says more.

use jiff::Timestamp;

use super::desired;
use super::progress::{Reported, reported};
use super::state::{OTHERS, paused_by};
use crate::admission::{Settings, sleep_denial};
use crate::annotation::format;
use crate::kinds::lifecycle::UNNOTICED;
use crate::kinds::view::{self, MAX_REASON, Observed, Obstacles, StepRecord, View};
use crate::kkp::admission::judge;
use crate::kkp::api::Cluster;
use crate::kkp::data::Outcome;
use crate::kkp::keys;
use crate::kkp::phase::Phase;
use crate::power::Power;
use crate::text::sanitize_to;

/// The row of rules about what passes by itself: a pause, a restore, an update by KKP.
const PASSING: &str = "K4";

/// Reads the object, and what refuses its sleep by these rules.
pub(super) fn of(cluster: &Cluster, rules: Option<&Settings>) -> View {
    let power = desired(cluster);
    let view = View::of(&cluster.metadata, power);
    let reported = reported(cluster);
    let (state, step) = match &reported {
        Some(reported) => (reported.reason, step(reported)),
        None => (cluster.phase(), unfollowed(cluster, power)),
    };
    let (refused, passing) = rules.map(|rules| denied(cluster, power, rules)).unwrap_or_default();
    View {
        observed: Observed {
            power: observed(cluster, reported.as_ref()),
            state: state.to_owned(),
            since: reported.as_ref().and_then(Reported::since),
            step,
            has_spoke: false,
        },
        obstacles: Obstacles {
            refused,
            not_asleep_before: view.obstacles.not_asleep_before.or(passing),
            failed: reported.as_ref().and_then(failed),
            domain: Some(sanitize_to(&cluster.spec.cloud.dc, MAX_REASON)).filter(|dc| !dc.is_empty()),
            ..view.obstacles
        },
        ..view
    }
}

/// The state that it is in. A wake is complete once our condition is gone; [`keys::AWAKE`] says since when.
fn observed(cluster: &Cluster, reported: Option<&Reported<'_>>) -> Option<(Power, Timestamp)> {
    let since = |at: Option<Timestamp>| at.unwrap_or(Timestamp::UNIX_EPOCH);
    match reported {
        Some(reported) if reported.state.outcome == Outcome::Asleep => {
            Some((Power::Hibernating, since(reported.since())))
        }
        Some(_) => None,
        None => {
            let awake = || format::time(cluster.condition(keys::AWAKE)?.last_transition_time.as_deref()?);
            ["Running", "Updating"].contains(&cluster.phase()).then(|| (Power::Running, since(awake())))
        }
    }
}

/// What fails, and since when.
fn failed(reported: &Reported<'_>) -> Option<(String, Timestamp)> {
    let fails = matches!(reported.state.outcome, Outcome::Failed | Outcome::Held)
        || reported.state.phase == Some(Phase::AwakePaused);
    let since = reported.at().unwrap_or(Timestamp::UNIX_EPOCH);
    fails.then(|| (sanitize_to(&reported.sentence(), MAX_REASON), since))
}

/// Until when a sleep has to wait, and why.
type Passing = Option<(Timestamp, String)>;

/// The rule that refuses its sleep, or what a sleep has to wait for.
fn denied(cluster: &Cluster, power: Power, rules: &Settings) -> (Option<String>, Passing) {
    let Some(denial) = (power == Power::Running).then(|| sleep_denial(cluster, rules, judge)).flatten() else {
        return (None, None);
    };
    let why = view::denied(&denial);
    if denial.row == PASSING { (None, Some((Timestamp::MAX, why))) } else { (Some(why), None) }
}

fn step(reported: &Reported<'_>) -> Option<StepRecord> {
    let stands_still = matches!(reported.state.phase, Some(Phase::DrainTimedOut | Phase::AwakePaused));
    let failed = matches!(reported.state.outcome, Outcome::Failed | Outcome::Held) || stands_still;
    let (reason, message) = (reported.reason.to_owned(), reported.message.to_owned());
    (reported.state.outcome != Outcome::Asleep).then_some(StepRecord { reason, message, failed })
}

/// Why no step is under way.
fn unfollowed(cluster: &Cluster, desired: Power) -> Option<StepRecord> {
    let message = if paused_by(cluster, None) == Some(OTHERS) {
        let why = cluster.pause_reason();
        format!("another client has set spec.pause ({why}): KKP does not reconcile it")
    } else if desired == Power::Hibernating {
        UNNOTICED.to_owned()
    } else {
        return None;
    };
    Some(StepRecord::waiting(message))
}
