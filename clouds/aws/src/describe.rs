//! The machines of many clusters by one `DescribeInstances`.
//!
//! EC2's filter `tag-key` takes 200 keys, but it ignores the tag's value: this module assigns each machine to its
//! cluster.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_ec2::types::{DeviceType, Filter, Instance as Ec2Instance, InstanceLifecycleType};
use cloud_common::ListBatcher;
use jiff::Timestamp;
use shared::cloud::{CloudError, Instance, InstanceState, Priority, Spot};

use crate::account::{Account, MAX_FILTER_VALUES};
use crate::call::instance_state;
use crate::errors::stable;

/// Key of the tag that says whose an instance is, before the cluster's infraID.
const KEY: &str = "kubernetes.io/cluster/";
/// Value of that tag on what belongs to the cluster; `shared` is what it only uses.
const TAG_VALUE: &str = "owned";

/// Why a machine is not put to sleep.
const INSTANCE_STORE: &str =
    "its root device is an instance store, and EC2 stops only instances with an EBS root volume";
const ONE_TIME: &str =
    "it is a one-time spot instance of the control plane: EC2 stops none, and a wake could not bring it back";

/// The machines of several clusters, by infraID. A cluster that is missing has none.
type MachinesByCluster = HashMap<String, Vec<Instance>>;

/// Lists the clusters of one account.
pub(crate) struct Lists(ListBatcher<String, Arc<MachinesByCluster>>);

impl Lists {
    pub(crate) fn new(account: Arc<Account>) -> Self {
        Self(ListBatcher::new(MAX_FILTER_VALUES, Duration::ZERO, move |wanted, priority| {
            let account = account.clone();
            Box::pin(async move { find(&account, &wanted, priority).await.map(Arc::new) })
        }))
    }

    /// The machines of one cluster, listed together with those of others who ask at the same time.
    pub(crate) async fn list(&self, infra_id: &str, priority: Priority) -> Result<Vec<Instance>, CloudError> {
        // A name that no installer generates gets its own call: if EC2 rejects it, no other cluster is affected.
        let found = self.0.list(infra_id.to_owned(), !is_common(infra_id), priority).await?;
        Ok(found.get(infra_id).cloned().unwrap_or_default())
    }
}

fn is_common(infra_id: &str) -> bool {
    infra_id.len() <= 100 && infra_id.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
}

async fn find(
    account: &Account,
    wanted: &BTreeSet<String>,
    priority: Priority,
) -> Result<MachinesByCluster, CloudError> {
    let (mut found, mut spots) = (MachinesByCluster::new(), Vec::new());
    let each = |instance: &Ec2Instance| {
        hand_out(instance, wanted, &mut found);
        let request = instance.spot_instance_request_id().filter(|request| !request.is_empty());
        if let (Some(id), Some(request), true) =
            (instance.instance_id(), request, is_spot(instance) && !is_over(instance))
        {
            spots.push((id.to_owned(), request.to_owned()));
        }
    };
    account.instances(filter(wanted), priority, each).await?;
    account.learn_spots(spots, priority).await;
    for machine in found.values_mut().flatten().filter(|machine| machine.spot.is_some()) {
        machine.spot = Some(account.spot(&machine.id));
        if machine.control_plane && machine.is_one_time_spot() {
            machine.obstacle = Some(ONE_TIME.to_owned());
        }
    }
    Ok(found)
}

fn filter(wanted: &BTreeSet<String>) -> Filter {
    let mut wanted = wanted.iter();
    match (wanted.next(), wanted.next()) {
        (Some(infra_id), None) => Filter::builder().name(format!("tag:{KEY}{infra_id}")).values(TAG_VALUE).build(),
        (first, second) => {
            let keys = first.into_iter().chain(second).chain(wanted).map(|infra_id| format!("{KEY}{infra_id}"));
            Filter::builder().name("tag-key").set_values(Some(keys.collect())).build()
        }
    }
}

/// An instance to every cluster whose tag on it says `owned`.
fn hand_out(instance: &Ec2Instance, wanted: &BTreeSet<String>, found: &mut MachinesByCluster) {
    for infra_id in owners(instance).filter(|infra_id| wanted.contains(*infra_id)) {
        if let Some(machine) = machine(instance, infra_id) {
            let machine = Instance { spot: is_spot(instance).then_some(Spot::Unknown), ..machine };
            found.entry(infra_id.to_owned()).or_default().push(machine);
        }
    }
}

fn owners(instance: &Ec2Instance) -> impl Iterator<Item = &str> {
    let tags = instance.tags().iter().filter(|tag| tag.value() == Some(TAG_VALUE));
    tags.filter_map(|tag| tag.key()?.strip_prefix(KEY))
}

fn machine(found: &Ec2Instance, infra_id: &str) -> Option<Instance> {
    let word = found.state().and_then(|state| state.name());
    let state = word.map_or(InstanceState::Unknown, instance_state);
    let why = found.state_reason().and_then(|why| why.message());
    let instance = Instance::new(found.instance_id()?, state)
        .of_type(found.instance_type().map_or("", |machine_type| machine_type.as_str()));
    let instance = match (state, word) {
        (InstanceState::Unknown, word) => instance.in_words(word.map_or("no-state", |word| word.as_str())),
        _ => instance,
    };
    Some(Instance {
        node_names: found.private_dns_name().filter(|name| !name.is_empty()).map(str::to_owned).into_iter().collect(),
        launched_at: found.launch_time().and_then(|at| Timestamp::from_second(at.secs()).ok()),
        stop_reason: why.filter(|why| state == InstanceState::Stopped && !why.is_empty()).map(stable),
        control_plane: is_control_plane(found, infra_id),
        obstacle: (found.root_device_type() == Some(&DeviceType::InstanceStore)).then(|| INSTANCE_STORE.to_owned()),
        ..instance
    })
}

/// By the name that OpenShift's installer gives, or the tags of the cluster API.
fn is_control_plane(instance: &Ec2Instance, infra_id: &str) -> bool {
    instance.tags().iter().any(|tag| match (tag.key().unwrap_or_default(), tag.value().unwrap_or_default()) {
        ("Name", name) => Instance::is_master(infra_id, name),
        ("sigs.k8s.io/cluster-api-provider-aws/role", role) => role == "control-plane",
        (key, _) => key == "node-role.kubernetes.io/control-plane",
    })
}

fn is_spot(instance: &Ec2Instance) -> bool {
    instance.instance_lifecycle() == Some(&InstanceLifecycleType::Spot)
}

fn is_over(instance: &Ec2Instance) -> bool {
    let now = instance.state().and_then(|now| now.name()).map(instance_state);
    matches!(now, None | Some(InstanceState::ShuttingDown | InstanceState::Terminated | InstanceState::Unknown))
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::types::{InstanceState as Ec2State, InstanceStateName, StateReason, Tag};

    use super::*;

    fn tagged(id: &str, tags: &[(&str, &str)]) -> Ec2Instance {
        let tag = |(key, value): &(&str, &str)| Tag::builder().key(*key).value(*value).build();
        Ec2Instance::builder()
            .instance_id(id)
            .state(Ec2State::builder().name(InstanceStateName::Running).build())
            .set_tags(Some(tags.iter().map(tag).collect()))
            .build()
    }

    #[test]
    fn one_cluster_is_asked_for_as_it_always_was_and_many_by_their_keys() {
        let one = filter(&["demo-x7k2p".to_owned()].into());
        assert_eq!(
            (one.name(), one.values()),
            (Some("tag:kubernetes.io/cluster/demo-x7k2p"), &["owned".to_owned()][..])
        );
        let two = filter(&["a", "b"].map(str::to_owned).into());
        let keys = ["kubernetes.io/cluster/a".to_owned(), "kubernetes.io/cluster/b".to_owned()];
        assert_eq!((two.name(), two.values()), (Some("tag-key"), &keys[..]));
    }

    #[test]
    fn an_instance_belongs_to_whom_its_tags_say_and_to_nobody_else() {
        let a = "kubernetes.io/cluster/a";
        for (case, tags, owned_by) in [
            ("owned", &[(a, "owned")][..], &["a"][..]),
            ("shared is not owned", &[(a, "shared")], &[]),
            ("another's", &[("kubernetes.io/cluster/ab", "owned")], &[]),
            ("beginning alike", &[("kubernetes.io/cluster/", "owned"), ("kubernetes.io/cluster/a/b", "owned")], &[]),
            ("two owners", &[(a, "owned"), ("kubernetes.io/cluster/b", "owned")], &["a", "b"]),
            ("one of two", &[(a, "shared"), ("kubernetes.io/cluster/b", "owned")], &["b"]),
        ] {
            let instance = tagged("i-1", tags);
            let wanted = BTreeSet::from(["a", "b"]);
            let found: Vec<_> = owners(&instance).filter(|owner| wanted.contains(owner)).collect();
            assert_eq!(found, owned_by, "{case}");
        }
    }

    #[test]
    fn a_machine_in_a_state_that_did_not_exist_when_this_was_written_does_not_seem_to_be_gone() {
        let odd = |state| {
            let instance = Ec2Instance::builder().instance_id("i-1").set_state(state).build();
            machine(&instance, "demo-x").map(|machine| (machine.state, machine.to_string()))
        };
        let name = |name: &str| Ec2State::builder().name(InstanceStateName::from(name)).build();
        let unknown = |text: &str| Some((InstanceState::Unknown, text.to_owned()));
        assert_eq!(odd(Some(name("hibernated"))), unknown("i-1 (hibernated)"));
        assert_eq!(odd(None), unknown("i-1 (no-state)"));
        assert_eq!(odd(Some(name("stopped"))), Some((InstanceState::Stopped, "i-1".to_owned())));
    }

    #[test]
    fn a_stopped_machine_comes_with_ec2s_reason() {
        let stop_reason = |state: &str, why: &str| {
            let state = Ec2State::builder().name(InstanceStateName::from(state)).build();
            let why = StateReason::builder().code("Client.InternalError").message(why).build();
            let instance = Ec2Instance::builder().instance_id("i-1").state(state).state_reason(why).build();
            machine(&instance, "demo-x").and_then(|machine| machine.stop_reason)
        };
        let words = "Client.InternalError: Client error on launch";
        assert_eq!(stop_reason("stopped", words).as_deref(), Some(words));
        assert_eq!(stop_reason("stopped", "line\n\u{1b}[31mred").as_deref(), Some("line  [31mred"), "sanitized");
        assert_eq!((stop_reason("pending", "pending"), stop_reason("stopped", "")), (None, None));
    }

    #[test]
    fn a_machine_that_ec2_cannot_stop_is_not_put_to_sleep() {
        let of = |kind| Ec2Instance::builder().instance_id("i-1").root_device_type(kind).build();
        let why = |kind| machine(&of(kind), "demo-x").unwrap().obstacle;
        assert_eq!((why(DeviceType::InstanceStore), why(DeviceType::Ebs)), (Some(INSTANCE_STORE.to_owned()), None));
    }

    #[test]
    fn the_control_plane_is_known_by_name_or_tag() {
        for (tag, expected) in [
            (("Name", "demo-x-master-0"), true),
            (("Name", "demo-x-worker-us-east-1a-abcde"), false),
            (("Name", "other-master-0"), false),
            (("Name", "demo-x-worker-master-0"), false),
            (("node-role.kubernetes.io/control-plane", ""), true),
            (("sigs.k8s.io/cluster-api-provider-aws/role", "control-plane"), true),
            (("sigs.k8s.io/cluster-api-provider-aws/role", "node"), false),
        ] {
            assert_eq!(machine(&tagged("i-1", &[tag]), "demo-x").unwrap().control_plane, expected, "{tag:?}");
        }
    }

    #[test]
    fn odd_names_go_alone() {
        assert!(is_common("demo-x7k2p"));
        for odd in ["*", "a?", "a\\b", "ü", &"a".repeat(101)] {
            assert!(!is_common(odd), "{odd}");
        }
    }
}
