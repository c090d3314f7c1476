//! Of several objects that name the same machines only the oldest is acted on.

use proptest::prelude::*;

use super::properties::any_cluster;
use super::*;
use crate::hive::identity::{IDENTITY_TAKEN, Older};

fn taken(cluster: &ClusterDeployment, older: Older) -> Facts<'_> {
    Facts { identity_taken: Some(older), ..facts(cluster) }
}

fn named(mut cluster: ClusterDeployment) -> ClusterDeployment {
    let metadata = crate::hive::api::ClusterMetadata { infra_id: "demo-x7k2p".into(), ..Default::default() };
    cluster.spec.cluster_metadata = Some(metadata);
    cluster.spec.platform.aws =
        Some(crate::hive::api::AwsPlatform { region: "us-east-1".into(), ..Default::default() });
    cluster
}

#[test]
fn a_younger_object_fails_its_transition_and_names_the_older_one_to_who_may_see_it() {
    let (here, elsewhere) = ("the older ClusterDeployment old", "an older ClusterDeployment in another namespace");
    for (cluster, power_state, what) in [
        (asleep(("False", reason::STOPPING)), "FailedToStop", "stop"),
        (asleep(("True", reason::HIBERNATING)), "FailedToStop", "stop"),
        (cluster("Hibernating"), "FailedToStop", "stop"),
        (waking(("False", "WaitingForNodes")), "FailedToStartMachines", "start"),
        (waking(("True", reason::RUNNING)), "FailedToStartMachines", "start"),
        (cluster(""), "FailedToStartMachines", "start"),
    ] {
        for (older, named_as) in [(Older::Here("old".into()), here), (Older::Elsewhere, elsewhere)] {
            let cluster = named(cluster.clone());
            let facts = taken(&cluster, older);
            assert_eq!(needs(&facts), None, "neither the cloud nor the spoke is asked");
            let plan = decide(&facts);
            assert_eq!(
                (plan.actions.as_slice(), plan.replace_spot, plan.watch),
                ([].as_slice(), false, Watch::Nothing)
            );
            let after = patched(&cluster, &plan.status.unwrap().patch(&cluster, at(0)).unwrap());
            assert_eq!(after.power_state(), power_state);
            let type_ = if what == "stop" { HIBERNATING } else { READY };
            let says = format!(
                "Failed to {what} machines: IdentityTaken: {named_as} names the same machines \
                 (aws, us-east-1, demo-x7k2p): only the older one is acted on (more detail may be available in the logs)"
            );
            let condition = after.condition(type_).unwrap();
            assert_eq!((condition.reason.as_deref(), condition.message.as_deref()), (Some(power_state), Some(&*says)));
            assert_eq!(after.condition(PROGRESS).unwrap().reason.as_deref(), Some(IDENTITY_TAKEN));
        }
    }
}

#[test]
fn an_identity_of_any_length_makes_a_short_message() {
    let mut cluster = named(cluster("Hibernating"));
    cluster.spec.cluster_metadata.as_mut().unwrap().infra_id = "\u{1b}[2J".repeat(2_000);
    let message = decide(&taken(&cluster, Older::Elsewhere)).status.unwrap().hibernating.unwrap().message;
    assert!(message.chars().count() < 600 && !message.contains('\u{1b}'), "{message}");
}

#[test]
fn what_is_never_acted_on_says_so_as_before() {
    for (cluster, says) in [
        (annotated(cluster("Hibernating"), RECONCILE_PAUSE, "true"), None),
        (annotated(cluster("Hibernating"), POWERSTATE_PAUSE, "true"), Some("Unknown")),
        (deleted(cluster("Hibernating")), Some("Unknown")),
    ] {
        let plan = decide(&taken(&cluster, Older::Elsewhere));
        assert_eq!(plan.status.and_then(|status| status.power_state), says);
    }
}

#[test]
fn once_the_machines_are_its_own_it_goes_on() {
    let failed = asleep(("False", reason::FAILED_TO_STOP));
    let plan = decide(&facts(&failed).machines_are(&[Running, Running]));
    assert_eq!(plan.actions, [stop(&["i-0", "i-1"])]);
}

proptest! {
    #[test]
    fn a_younger_object_moves_no_machine_and_asks_for_none(cluster in any_cluster(), states in prop::collection::vec(prop::sample::select(vec![Running, Stopped, Pending]), 0..4)) {
        let facts = taken(&cluster, Older::Elsewhere).machines_are(&states);
        let plan = decide(&facts);
        prop_assert!(plan.actions.is_empty() && !plan.replace_spot, "{:?}", plan.actions);
        prop_assert_eq!(needs(&Facts { machines: None, ..facts }), None);
    }
}
