//! How many clusters of a seed fall asleep, and how many wake, at once.
//!
//! A waking cluster counts as an update under way, and KKP stops work on all healthy clusters of the seed when too many
//! are (row 10).

use std::collections::BTreeMap;

use parking_lot::Mutex;
use shared::kkp::phase::Phase;
use shared::power::Power;

/// Which clusters hold a slot.
#[derive(Debug)]
pub struct Slots {
    sleeps: usize,
    wakes: usize,
    held: Mutex<BTreeMap<String, Power>>,
}

impl Slots {
    /// As many slots for clusters that fall asleep, and for those that wake.
    pub fn new(sleeps: usize, wakes: usize) -> Self {
        Self { sleeps, wakes, held: Mutex::default() }
    }

    /// Whether the cluster may go on. What has begun holds its slot, after a restart as well; what begins takes one if
    /// there is one.
    ///
    /// A wake needs none once the control plane is up, and what is overdue needs none.
    pub fn take(&self, name: &str, phase: Option<Phase>, is_overdue: bool, desired: Power) -> bool {
        let mut held = self.held.lock();
        let Some(begun) = begun(phase) else {
            let most = if desired == Power::Hibernating { self.sleeps } else { self.wakes };
            let others = held.iter().filter(|(other, kind)| **kind == desired && *other != name).count();
            if others < most {
                held.insert(name.to_owned(), desired);
            }
            return others < most;
        };
        let holds = match phase {
            Some(Phase::StartingControlPlane | Phase::WaitingForApi) => true,
            Some(Phase::DrainTimedOut) => false,
            _ => begun == Power::Hibernating,
        };
        if holds && !is_overdue {
            held.insert(name.to_owned(), begun);
        } else {
            held.remove(name);
        }
        true
    }

    /// The cluster needs no slot any more.
    pub fn free(&self, name: &str) {
        self.held.lock().remove(name);
    }
}

/// What is under way in a phase.
fn begun(phase: Option<Phase>) -> Option<Power> {
    match phase? {
        Phase::Preflight | Phase::Dehydrated => None,
        phase if phase.is_of_wake() => Some(Power::Running),
        _ => Some(Power::Hibernating),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_wake_and_some_fall_asleep_at_once_and_what_has_begun_goes_on() {
        let slots = Slots::new(10, 5);
        let (asleep, awake) = (Power::Hibernating, Power::Running);
        let granted = |phase, desired| {
            (0..20).filter(|number| slots.take(&format!("{desired:?}-{number}"), phase, false, desired)).count()
        };
        assert_eq!(granted(Some(Phase::Dehydrated), awake), 5);
        assert_eq!(granted(None, asleep), 10);
        assert!(slots.take("Running-0", Some(Phase::Dehydrated), false, awake), "it holds one");
        assert!(!slots.take("late", Some(Phase::Dehydrated), false, awake));
        assert!(slots.take("resumed", Some(Phase::WaitingForApi), false, awake), "it had begun before a restart");
        assert!(slots.take("Running-0", Some(Phase::WaitingForNodes), false, awake), "its control plane is up");
        assert!(slots.take("resumed", Some(Phase::WaitingForApi), true, awake), "it is overdue");
        assert!(slots.take("Hibernating-0", Some(Phase::DrainTimedOut), false, asleep), "it waits for its user");
        assert!(slots.take("Hibernating-1", Some(Phase::Draining), true, asleep), "it is overdue");
        assert!(slots.take("fresh-0", None, false, asleep) && slots.take("fresh-1", None, false, asleep));
        assert!(slots.take("late", Some(Phase::Dehydrated), false, awake));
        assert!(!slots.take("later", Some(Phase::Dehydrated), false, awake));
        slots.free("late");
        assert!(slots.take("later", Some(Phase::Dehydrated), false, awake));
        assert!(!slots.take("another", None, false, asleep));
    }
}
