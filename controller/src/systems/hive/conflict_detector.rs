//! Notices another controller at work: H, R or P keep saying what we have not written.
//!
//! Hive's own hibernation controller answers each of our writes with one of its own. Somebody who edits a status by
//! hand does so once; we put it right and go on.

use std::time::Duration;

use shared::hive::api::ClusterDeployment;
use shared::hive::conditions::{HIBERNATING, READY};
use tokio::time::Instant;

use crate::runtime::hash;

/// This many foreign writes ...
const FOREIGN_WRITES_THRESHOLD: usize = 3;
/// ... within this time are another controller's.
const FOREIGN_WRITES_WINDOW: Duration = Duration::from_mins(5);
/// Then the target is left alone for this long. Afterwards the other controller may have been switched off.
const LEFT_ALONE: Duration = Duration::from_mins(10);

/// What it takes to notice one.
#[derive(Debug, Default)]
pub struct ConflictDetector {
    ours: Option<u64>,
    seen: Vec<Instant>,
    alone_until: Option<Instant>,
}

impl ConflictDetector {
    /// Remembers what a write of ours has left.
    pub fn wrote(&mut self, cluster: &ClusterDeployment) {
        self.ours = Some(power_hash(cluster));
    }

    /// A write of ours may or may not have succeeded: the next observed state does not count as a conflict.
    pub fn forget_last_write(&mut self) {
        self.ours = None;
    }

    /// How long to leave the target alone.
    pub fn left_alone(&mut self, cluster: &ClusterDeployment, now: Instant) -> Option<Duration> {
        let found = power_hash(cluster);
        if self.ours.as_ref().is_some_and(|ours| *ours != found) {
            self.seen.retain(|at| now.duration_since(*at) < FOREIGN_WRITES_WINDOW);
            self.seen.push(now);
            self.ours = Some(found);
        }
        if self.seen.len() >= FOREIGN_WRITES_THRESHOLD {
            self.seen.clear();
            self.alone_until = Some(now + LEFT_ALONE);
        }
        let left = self.alone_until?.saturating_duration_since(now);
        if left.is_zero() {
            self.alone_until = None;
            self.ours = None;
        }
        (!left.is_zero()).then_some(left)
    }
}

/// H, R and P in one number: status, reason and message of each condition, and the power state.
pub fn power_hash(cluster: &ClusterDeployment) -> u64 {
    let conditions = [HIBERNATING, READY].map(|type_| cluster.condition(type_));
    hash(&(conditions.map(|found| found.map(|c| (&c.status, &c.reason, &c.message))), cluster.power_state()))
}

#[cfg(test)]
mod tests {
    use shared::hive::api::ClusterDeploymentStatus;

    use super::*;

    fn cluster(power_state: &str) -> ClusterDeployment {
        let status = ClusterDeploymentStatus { power_state: Some(power_state.into()), ..Default::default() };
        ClusterDeployment { status: Some(status), ..ClusterDeployment::default() }
    }

    #[test]
    fn one_edit_by_hand_is_put_right_and_a_second_controller_is_left_alone() {
        let now = Instant::now();
        let mut detector = ConflictDetector::default();
        assert_eq!(
            detector.left_alone(&cluster("Running"), now),
            None,
            "what was there before our first write is nobody's"
        );
        for round in 0..3u64 {
            detector.wrote(&cluster("Hibernating"));
            let at = now + Duration::from_secs(round);
            assert_eq!(detector.left_alone(&cluster("Hibernating"), at), None, "our own write");
            let left = detector.left_alone(&cluster("Running"), at);
            assert_eq!(left, (round == 2).then_some(LEFT_ALONE), "round {round}");
        }
        assert!(detector.left_alone(&cluster("Stopping"), now + Duration::from_mins(1)).is_some());
        assert_eq!(detector.left_alone(&cluster("Running"), now + Duration::from_secs(603)), None, "tried again");
    }

    #[test]
    fn a_write_whose_answer_was_lost_is_ours() {
        let mut detector = ConflictDetector::default();
        let now = Instant::now();
        for _ in 0..5 {
            detector.wrote(&cluster("Stopping"));
            detector.forget_last_write();
            assert_eq!(detector.left_alone(&cluster("Hibernating"), now), None);
        }
    }

    #[test]
    fn edits_by_hand_over_a_day_are_no_controller() {
        let mut detector = ConflictDetector::default();
        for hour in 0..24 {
            let now = Instant::now() + Duration::from_secs(hour * 3600);
            detector.wrote(&cluster("Hibernating"));
            assert_eq!(detector.left_alone(&cluster("Running"), now), None);
        }
    }
}
