//! The machines of one cluster, as one list found them.

use super::{CloudEvent, Instance, InstanceState, Lifecycle, Listing, Profile, Refusal};

/// The machines of a cluster, in the order of their IDs, with the [`Profile`] of the driver that listed them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// What the driver says of the platform and of this cluster.
    pub profile: Profile,
    /// All of them but the terminated.
    pub instances: Vec<Instance>,
    /// How many one-time spot instances are terminated. The cloud lists them for about an hour.
    pub lost_spot: usize,
    /// Calls that the cloud accepted and has given up since.
    pub failed: Vec<Refusal>,
    /// Whether the driver has to settle once the cluster is where it should be.
    pub owed: bool,
    /// What its owner should know.
    pub event: Option<CloudEvent>,
}

impl Inventory {
    /// Sorts what a driver listed and leaves out what no longer exists.
    ///
    /// Only a driver that recreates machines has a record that can speak for them: from any other, a machine that the
    /// cloud does not have does not exist.
    pub fn new(profile: Profile, listing: Listing) -> Self {
        let Listing { mut instances, failed, owed, event } = listing;
        let terminated = |i: &Instance| i.state == InstanceState::Terminated;
        let lost_spot = instances.iter().filter(|i| terminated(i) && i.is_one_time_spot()).count();
        let no_record = profile.lifecycle == Lifecycle::StopStart;
        instances.retain(|i| !(terminated(i) || i.recorded && no_record));
        instances.sort_by(|a, b| a.id.cmp(&b.id));
        Self { profile, instances, lost_spot, failed, owed, event }
    }

    /// IDs of the machines of this kind that a stop has to move: those that run, are halted or have a step due. Where
    /// machines move one by one, also those that hang on their way up or whose state is unknown: no other call suffers.
    pub fn to_stop(&self, of_kind: impl Fn(&Instance) -> bool) -> Vec<String> {
        use InstanceState::{Halted, Pending, Running, Stopped, Unknown};
        let by_itself = |state| self.profile.one_by_one && matches!(state, Pending | Unknown);
        let moves = |i: &Instance| matches!(i.state, Running | Halted) || by_itself(i.state);
        self.select(|i| moves(i) || (i.due && i.state != Stopped), of_kind)
    }

    /// The machines that cannot be put to sleep as they are, each with the reason. One that sleeps could be.
    pub fn obstacles(&self) -> impl Iterator<Item = String> {
        let awake = self.instances.iter().filter(|i| i.state != InstanceState::Stopped);
        awake.filter_map(|i| Some(format!("{}: {}", i.id, i.obstacle.as_ref()?)))
    }

    /// IDs of the machines of this kind that a start has to move: those that sleep, are halted or have a step due.
    pub fn to_start(&self, of_kind: impl Fn(&Instance) -> bool) -> Vec<String> {
        use InstanceState::{Halted, Running, Stopped};
        self.select(|i| matches!(i.state, Stopped | Halted) || (i.due && i.state != Running), of_kind)
    }

    /// IDs of the machines of this kind that `moves` names.
    pub fn select(&self, moves: impl Fn(&Instance) -> bool, of_kind: impl Fn(&Instance) -> bool) -> Vec<String> {
        self.instances.iter().filter(|i| moves(i) && of_kind(i)).map(|i| i.id.clone()).collect()
    }

    /// IDs of the instances in one of `states`.
    pub fn in_state(&self, states: &[InstanceState]) -> Vec<&str> {
        self.instances.iter().filter(|i| states.contains(&i.state)).map(|i| i.id.as_str()).collect()
    }

    /// IDs of the instances that are in none of `states`.
    pub fn not_in_state(&self, states: &[InstanceState]) -> Vec<&str> {
        self.instances.iter().filter(|i| !states.contains(&i.state)).map(|i| i.id.as_str()).collect()
    }

    /// The machines that are not in `state`, with the cloud's own words.
    pub fn named_not_in(&self, state: InstanceState) -> Vec<String> {
        self.instances.iter().filter(|i| i.state != state).map(ToString::to_string).collect()
    }

    /// Takes over the states that a start or stop answered.
    pub fn moved(&mut self, moved: &[(String, InstanceState)]) {
        for instance in &mut self.instances {
            if let Some((_, state)) = moved.iter().find(|(id, _)| *id == instance.id) {
                instance.state = *state;
            }
        }
    }

    /// The machines of unknown state, with the cloud's own words.
    pub fn unknown(&self) -> Vec<String> {
        let unknown = self.instances.iter().filter(|i| i.state == InstanceState::Unknown);
        unknown.map(ToString::to_string).collect()
    }

    /// Whether there are instances and all of them are in `state`.
    pub fn all(&self, state: InstanceState) -> bool {
        !self.instances.is_empty() && self.instances.iter().all(|i| i.state == state)
    }

    /// Whether there are instances of a kind, and all of them are in this state.
    pub fn all_of(&self, state: InstanceState, kind: impl Fn(&Instance) -> bool) -> bool {
        let mut some = self.instances.iter().filter(|i| kind(i)).peekable();
        some.peek().is_some() && some.all(|i| i.state == state)
    }
}

#[cfg(test)]
mod tests {
    use super::InstanceState::{Halted, Pending, Running, Stopped, Stopping, Terminated, Unknown};
    use super::*;

    fn inventory(lifecycle: Lifecycle, instances: Vec<Instance>) -> Inventory {
        let listing = Listing { instances, ..Listing::default() };
        Inventory::new(Profile { lifecycle, ..Profile::default() }, listing)
    }

    #[test]
    fn only_a_recreate_driver_has_a_record_that_keeps_a_machine() {
        let kept = || vec![Instance { recorded: true, ..Instance::new("m-0", Stopped) }];
        assert!(inventory(Lifecycle::Recreate, kept()).all(Stopped));
        assert_eq!(inventory(Lifecycle::StopStart, kept()).instances, []);
    }

    #[test]
    fn which_machines_a_stop_and_a_start_move() {
        for (state, due, stops, starts) in [
            (Running, false, true, false),
            (Running, true, true, false),
            (Stopped, false, false, true),
            (Stopped, true, false, true),
            (Halted, false, true, true),
            (Pending, false, false, false),
            (Pending, true, true, true),
            (Stopping, false, false, false),
            (Stopping, true, true, true),
            (Unknown, false, false, false),
            (Terminated, true, false, false),
        ] {
            let mut found = inventory(Lifecycle::Recreate, vec![Instance { due, ..Instance::new("m", state) }]);
            let moves = (found.to_stop(|_| true).len(), found.to_start(|_| true).len());
            assert_eq!(moves, (usize::from(stops), usize::from(starts)), "{state} {due}");
            found.profile.one_by_one = true;
            let stops = stops || matches!(state, Pending | Unknown);
            assert_eq!(found.to_stop(|_| true).len(), usize::from(stops), "{state} {due}, one by one");
        }
    }
}
