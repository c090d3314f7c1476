//! Which Machines of a waking cluster are replaced: spot machines whose instances went with the sleep
//! (docs/reference/hive.md, section 2.1). And which ones stay, and have to name the new instance in place of theirs.
//!
//! Hive goes by when a Machine was last written to, at every look, and so replaces healthy ones. Here a Machine is
//! replaced only during a wake, only if it is older than the wake, and only if the cloud does not have its instance any
//! more.

use crate::cloud::{Instance, InstanceState, Inventory, ProviderIds};
use crate::spoke::fields::INTERRUPTIBLE;
use crate::spoke::kinds::Machine;
use jiff::Timestamp;

/// Annotation: a Machine that is deleted is not drained first. There is no kubelet left that could do it.
pub const EXCLUDE_NODE_DRAINING: &str = "machine.openshift.io/exclude-node-draining";

/// The Machines to be deleted, so that their `MachineSet`s make new ones.
///
/// `resume_started` is when this wake began; `existing` are the cluster's instances, listed since then.
pub fn to_replace<'a>(machines: &'a [Machine], existing: &Inventory, resume_started: Timestamp) -> Vec<&'a Machine> {
    // A list that found nothing at all proves nothing.
    if existing.instances.is_empty() || !existing.profile.terminates_spot {
        return Vec::new();
    }
    let gone = [InstanceState::ShuttingDown, InstanceState::Terminated];
    let alive: Vec<&Instance> = existing.instances.iter().filter(|i| !gone.contains(&i.state)).collect();
    let ids = existing.profile.provider_ids;
    machines.iter().filter(|machine| is_lost(machine, ids, &alive, resume_started)).collect()
}

fn is_lost(machine: &Machine, ids: ProviderIds, alive: &[&Instance], resume_started: Timestamp) -> bool {
    let is_old = machine.metadata.creation_timestamp.is_some_and(|created| created < resume_started);
    if !machine.metadata.labels.contains_key(INTERRUPTIBLE) || machine.metadata.deletion_timestamp.is_some() || !is_old
    {
        return false;
    }
    match machine.spec.provider_id.as_deref().and_then(|id| ids.instance(id)) {
        Some(id) => !alive.iter().any(|instance| instance.is_node(&machine.metadata.name, Some(id))),
        // One that never got an instance is still being made, unless that has failed for good.
        None => machine.status.phase.as_deref() == Some("Failed"),
    }
}

/// What a Machine has to say of the new instance that has its name.
#[derive(Clone, Copy, Debug)]
pub struct Rename<'a> {
    /// The Machine.
    pub machine: &'a Machine,
    /// Its `spec.providerID`.
    pub provider_id: &'a str,
    /// Whether it says so already.
    pub is_named: bool,
    /// Whether the machine API has given it up because the instance that it named is gone: nothing but a write of its
    /// status brings it back.
    pub is_failed: bool,
}

/// What the machine API says of a Machine whose instance is gone.
const GONE: &str = "find created instance";

/// The Machines that do not name the instance of their name. One that names none is still being made: with a name that
/// is taken away, the machine API would make another instance.
pub fn to_rename<'a>(machines: &'a [Machine], existing: &'a Inventory) -> Vec<Rename<'a>> {
    let ids = existing.profile.provider_ids;
    let rename = |machine: &'a Machine| {
        let names = |instance: &&Instance| instance.id == machine.metadata.name;
        let provider_id = existing.instances.iter().find(names)?.provider_id.as_deref()?;
        let named = machine.spec.provider_id.as_deref().filter(|id| ids.instance(id).is_some())?;
        let error = machine.status.error_message.as_deref().unwrap_or_default();
        let is_failed = machine.status.phase.as_deref() == Some("Failed") && error.contains(GONE);
        let is_named = ids.instance(named) == ids.instance(provider_id);
        let is_kept = machine.metadata.deletion_timestamp.is_none() && (is_failed || !is_named);
        is_kept.then_some(Rename { machine, provider_id, is_named, is_failed })
    };
    machines.iter().filter_map(rename).collect()
}

#[cfg(test)]
mod tests {
    use crate::cloud::{Instance, Listing, Profile, Spot};
    use crate::spoke::fields::KnownKeys;

    use super::*;

    const AWS: ProviderIds = ProviderIds { prefix: "aws:///", id_prefix: "i-" };
    const RESUMED: i64 = 1_800_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(RESUMED + seconds).unwrap()
    }

    /// A spot Machine made long before the wake.
    fn machine(instance: Option<&str>, phase: Option<&str>) -> Machine {
        let mut machine = Machine::default();
        machine.spec.provider_id = instance.map(|id| format!("aws:///us-east-1a/{id}"));
        machine.metadata.labels = KnownKeys::from_iter([(INTERRUPTIBLE, String::new())]);
        machine.metadata.creation_timestamp = Some(at(-100_000));
        machine.status.phase = phase.map(str::to_owned);
        machine
    }

    fn with(mut machine: Machine, change: fn(&mut Machine)) -> Machine {
        change(&mut machine);
        machine
    }

    fn instances(states: &[(&str, InstanceState)]) -> Inventory {
        let instance =
            |(id, state): &(&str, InstanceState)| Instance { spot: Some(Spot::OneTime), ..Instance::new(*id, *state) };
        let listing = Listing { instances: states.iter().map(instance).collect(), ..Listing::default() };
        Inventory::new(Profile { provider_ids: AWS, terminates_spot: true, ..Profile::default() }, listing)
    }

    /// Hive's `TestReplacePreemptibleMachines`, and what it gets wrong.
    #[test]
    fn only_what_lost_its_instance_is_replaced() {
        use InstanceState::{Running, ShuttingDown, Terminated};
        let on_demand = with(machine(Some("i-gone"), Some("Running")), |m| m.metadata.labels = KnownKeys::default());
        let being_deleted =
            with(machine(Some("i-gone"), Some("Running")), |m| m.metadata.deletion_timestamp = Some(at(1)));
        let new = |m: &mut Machine| m.metadata.creation_timestamp = Some(at(5));
        let there =
            &[("i-master", Running), ("i-spot", Running), ("i-dead", Terminated), ("i-dying", ShuttingDown)][..];
        for (case, machines, existing, replaced) in [
            ("no machines", vec![], there, 0),
            ("all on-demand", vec![on_demand], there, 0),
            (
                "all running spot, updated after hibernation: the instances are there",
                vec![machine(Some("i-spot"), Some("Running"))],
                there,
                0,
            ),
            (
                "all running spot, updated before hibernation: the instances are gone",
                vec![machine(Some("i-dead"), Some("Running")), machine(Some("i-gone"), Some("Running"))],
                there,
                2,
            ),
            (
                "some failed spot",
                vec![
                    machine(Some("i-spot"), Some("Running")),
                    machine(Some("i-dead"), Some("Failed")),
                    machine(None, Some("Failed")),
                ],
                there,
                2,
            ),
            ("called failed, but its instance runs", vec![machine(Some("i-spot"), Some("Failed"))], there, 0),
            ("its instance is going", vec![machine(Some("i-dying"), Some("Running"))], there, 1),
            ("still being made", vec![machine(None, Some("Provisioning")), machine(None, None)], there, 0),
            ("being deleted", vec![being_deleted], there, 0),
            (
                "made during this wake, whatever became of it",
                vec![with(machine(Some("i-gone"), Some("Running")), new), with(machine(None, Some("Failed")), new)],
                there,
                0,
            ),
            ("nothing was found", vec![machine(Some("i-gone"), Some("Running"))], &[], 0),
            (
                "another cloud's",
                vec![with(machine(None, Some("Running")), |m| m.spec.provider_id = Some("gce://p/z/i-gone".into()))],
                there,
                0,
            ),
        ] {
            assert_eq!(to_replace(&machines, &instances(existing), at(0)).len(), replaced, "{case}");
        }
    }

    /// Clouds whose spot machines can be stopped and started have the same label, and some name machines by name.
    #[test]
    fn a_machine_is_replaced_only_where_a_sleep_terminates_spot_instances() {
        let named = Instance {
            node_names: vec!["demo-worker-spot-abcde".to_owned()],
            ..Instance::new("demo-worker-spot-abcde", InstanceState::Running)
        };
        let inventory = |terminates_spot| {
            let profile = Profile { provider_ids: AWS, terminates_spot, ..Profile::default() };
            Inventory::new(profile, Listing { instances: vec![named.clone()], ..Listing::default() })
        };
        let gone = machine(Some("i-gone"), Some("Running"));
        assert!(to_replace(std::slice::from_ref(&gone), &inventory(false), at(0)).is_empty());
        assert_eq!(to_replace(std::slice::from_ref(&gone), &inventory(true), at(0)).len(), 1);
        let of_named = with(gone, |m| m.metadata.name = "demo-worker-spot-abcde".into());
        assert!(to_replace(&[of_named], &inventory(true), at(0)).is_empty(), "its instance goes by its name");
    }

    #[test]
    fn reads_a_machine_as_openshift_writes_it() {
        let machine: Machine = serde_json::from_value(serde_json::json!({
            "apiVersion": "machine.openshift.io/v1beta1",
            "kind": "Machine",
            "metadata": {
                "name": "demo-x7k2p-worker-spot-abcde",
                "creationTimestamp": "2026-11-01T10:00:00Z",
                "labels": {"machine.openshift.io/interruptible-instance": ""},
            },
            "spec": {"providerID": "aws:///us-east-1a/i-0123456789abcdef0", "providerSpec": {"value": {}}, "lifecycleHooks": {}},
            "status": {"phase": "Running", "lastUpdated": "2026-11-02T10:00:00Z", "addresses": []},
        }))
        .unwrap();
        assert_eq!(machine.spec.provider_id.as_deref().and_then(|id| AWS.instance(id)), Some("i-0123456789abcdef0"));
        assert_eq!(to_replace(&[machine], &instances(&[("i-1", InstanceState::Running)]), at(0)).len(), 1);
    }

    #[test]
    fn a_machine_has_to_name_the_instance_of_its_name() {
        let profile =
            Profile { provider_ids: ProviderIds { prefix: "openstack://", id_prefix: "" }, ..Profile::default() };
        let instance =
            Instance { provider_id: Some("openstack:///new".into()), ..Instance::new("m", InstanceState::Running) };
        let recorded = Instance::new("asleep", InstanceState::Stopped);
        let listing = Listing { instances: vec![instance, recorded], ..Listing::default() };
        let existing = Inventory::new(profile, listing);
        let machine = |name: &str, id: Option<&str>, phase: &str, error: &str| {
            let mut machine = machine(None, Some(phase));
            machine.metadata.name = name.into();
            machine.spec.provider_id = id.map(Into::into);
            machine.status.error_message = Some(error.into());
            machine
        };
        let gone = "Can't find created instance.";
        for (case, machine, expected) in [
            ("old server", machine("m", Some("openstack:///old"), "Running", ""), Some((false, false))),
            ("old server, given up", machine("m", Some("openstack:///old"), "Failed", gone), Some((false, true))),
            ("named, and still given up", machine("m", Some("openstack:///new"), "Failed", gone), Some((true, true))),
            ("as it should be", machine("m", Some("openstack:///new"), "Running", ""), None),
            ("with a region", machine("m", Some("openstack://R1/new"), "Running", ""), None),
            ("failed for another reason", machine("m", Some("openstack:///new"), "Failed", "no quota"), None),
            ("still being made", machine("m", None, "Provisioning", ""), None),
            ("of another platform", machine("m", Some("aws:///us-east-1a/i-1"), "Running", ""), None),
            ("of no instance", machine("other", Some("openstack:///old"), "Running", ""), None),
            ("not made yet", machine("asleep", Some("openstack:///old"), "Running", ""), None),
        ] {
            let machines = [machine];
            let found = to_rename(&machines, &existing);
            let found = found.first().map(|rename| (rename.is_named, rename.is_failed));
            assert_eq!(found, expected, "{case}");
        }
    }
}
