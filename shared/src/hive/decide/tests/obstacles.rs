//! Machines that cannot be stopped, and those of which the cloud does not say whether they are.

use super::*;
use crate::cloud::InstanceState::{Pending, Unknown};

fn with_obstacle() -> Vec<Instance> {
    let obstacle = Some("it has an ephemeral OS disk".to_owned());
    vec![Instance { obstacle, ..Instance::new("i-0", Running) }, Instance::new("i-1", Running)]
}

#[test]
fn no_machine_is_stopped_while_one_cannot_be() {
    let first = noted(cluster("Hibernating"), ("False", reason::RESUMING_OR_RUNNING), ("True", reason::RUNNING));
    let refused = asleep(("False", reason::FAILED_TO_STOP));
    for cluster in [&first, &refused] {
        let plan = decide(&facts(cluster).listed(with_obstacle()));
        assert_eq!((says(&plan).0, plan.actions.as_slice()), (reason::FAILED_TO_STOP, [].as_slice()));
        assert!(message(&plan).starts_with("Failed to stop machines: i-0: it has an ephemeral OS disk (more"));
        assert_eq!(plan.requeue, Requeue::After(Duration::from_mins(1)));
        let awaited = plan.status.unwrap().progress.unwrap();
        let expected = ("CannotSleep", "i-0: it has an ephemeral OS disk");
        assert_eq!((awaited.reason, awaited.message.as_str()), expected, "not what was awaited before");
    }
    // Other drivers judge each of their own steps. What has begun goes on, and what stops could.
    for lifecycle in [Lifecycle::Recreate, Lifecycle::Shelve] {
        let listing = Listing { instances: with_obstacle(), ..Listing::default() };
        assert_eq!(decide(&facts(&first).found(lifecycle, listing)).actions, [stop(&["i-0", "i-1"])]);
    }
    let stopping = asleep(("False", reason::STOPPING));
    assert_eq!(decide(&facts(&stopping).listed(with_obstacle())).actions, [stop(&["i-0", "i-1"])]);
    let mut stopped = with_obstacle();
    stopped[0].state = Stopped;
    assert_eq!(decide(&facts(&first).listed(stopped)).actions, [stop(&["i-1"])]);
}

#[test]
fn machines_of_unknown_state_are_named_and_hold_no_sleep_up_for_longer_than_five_minutes() {
    let broken = || vec![Instance::new("i-0", Stopped), Instance::new("i-1", Unknown).in_words("failed")];
    let stopping = asleep(("False", "WaitingForMachinesToStop"));
    let since = |seconds: i64| {
        let mut cluster = stopping.clone();
        cluster.status.as_mut().unwrap().conditions.iter_mut().for_each(|condition| {
            (condition.last_probe_time, condition.last_transition_time) =
                (Some(Time(at(-seconds))), Some(Time(at(-seconds))));
        });
        cluster
    };
    let (early, late) = (since(300), since(301));
    assert_eq!(says(&decide(&facts(&early).listed(broken()))).2, "WaitingForMachinesToStop");
    let once = Facts { unknown_for: Duration::from_mins(5), ..facts(&late).listed(broken()) };
    assert_eq!(says(&decide(&once)).2, "WaitingForMachinesToStop", "one list says little");
    let plan = decide(&facts(&late).listed(broken()));
    assert_eq!((says(&plan).2, plan.actions.as_slice()), ("Hibernating", [].as_slice()));
    let left = "the cloud does not say whether these are stopped; each is billed while it runs: i-1 (failed)";
    let progress = plan.status.unwrap().progress.unwrap();
    assert_eq!((progress.status, progress.message), ("False", format!("1 instance stopped; {left}")));
    assert_eq!(plan.notice, Some(Notice::warning("MachineUnusable", left.to_owned())));
    // A sleeping cluster stays one, whatever the cloud forgets to say.
    let done = asleep(("True", reason::HIBERNATING));
    assert_eq!(says(&decide(&facts(&done).listed(broken()))).2, "Hibernating");
    // One that is known to run does not, nor does a cluster of which nothing is known.
    for states in [&[Unknown, Running][..], &[Unknown, Pending], &[Unknown]] {
        assert_ne!(says(&decide(&facts(&late).machines_are(states))).2, "Hibernating", "{states:?}");
    }
}
