//! The instances of one cluster, as one list found them.

use super::{Instance, InstanceState};

/// The instances of a cluster, in the order of their IDs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// How they were selected, for the message when there are none.
    pub selector: String,
    /// All of them but the terminated.
    pub instances: Vec<Instance>,
    /// How many one-time spot instances are terminated. The cloud lists them for about an hour.
    pub lost_spot: usize,
}

impl Inventory {
    /// Sorts what a driver listed and leaves out what no longer exists.
    #[must_use]
    pub fn new(selector: String, mut instances: Vec<Instance>) -> Self {
        let terminated = |i: &Instance| i.state == InstanceState::Terminated;
        let lost_spot = instances.iter().filter(|i| terminated(i) && i.is_one_time_spot()).count();
        instances.retain(|i| !terminated(i));
        instances.sort_by(|a, b| a.id.cmp(&b.id));
        Self { selector, instances, lost_spot }
    }

    /// IDs of the instances in one of `states` that are of this kind.
    #[must_use]
    pub fn ids(&self, states: &[InstanceState], of_kind: impl Fn(&Instance) -> bool) -> Vec<String> {
        let found = self.instances.iter().filter(|i| states.contains(&i.state) && of_kind(i));
        found.map(|i| i.id.clone()).collect()
    }

    /// IDs of the instances in one of `states`.
    #[must_use]
    pub fn in_state(&self, states: &[InstanceState]) -> Vec<&str> {
        self.instances.iter().filter(|i| states.contains(&i.state)).map(|i| i.id.as_str()).collect()
    }

    /// IDs of the instances that are in none of `states`.
    #[must_use]
    pub fn not_in_state(&self, states: &[InstanceState]) -> Vec<&str> {
        self.instances.iter().filter(|i| !states.contains(&i.state)).map(|i| i.id.as_str()).collect()
    }

    /// Takes over the states that a start or stop answered.
    pub fn moved(&mut self, moved: &[(String, InstanceState)]) {
        for instance in &mut self.instances {
            if let Some((_, state)) = moved.iter().find(|(id, _)| *id == instance.id) {
                instance.state = *state;
            }
        }
    }

    /// Whether there are instances and all of them are in `state`.
    #[must_use]
    pub fn all(&self, state: InstanceState) -> bool {
        !self.instances.is_empty() && self.instances.iter().all(|i| i.state == state)
    }

    /// Whether there are instances of a kind, and all of them are in this state.
    #[must_use]
    pub fn all_of(&self, state: InstanceState, kind: impl Fn(&Instance) -> bool) -> bool {
        let mut some = self.instances.iter().filter(|i| kind(i)).peekable();
        some.peek().is_some() && some.all(|i| i.state == state)
    }
}
