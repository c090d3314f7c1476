//! Whatever clusters do: every cluster of the plan ends, and a batch starts after the one before has ended.

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 6] = ["spoke1", "spoke2", "spoke3", "spoke4", "spoke5", "spoke6"];
const POLICIES: [&str; 2] = ["policy1", "policy2"];

/// What happens to clusters between two steps: a cluster, a policy, whether it complies then, and seconds.
type Change = (usize, usize, bool, i64);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_cluster_ends_and_batches_follow_each_other(
        open in proptest::collection::vec(any::<(bool, bool)>(), 6),
        canaries in proptest::sample::subsequence(NAMES.to_vec(), 0..3),
        (size, timeout, aborts) in (0_i64..4, 1_i64..30, any::<bool>()),
        changes in proptest::collection::vec((0..6_usize, 0..2_usize, prop::bool::weighted(0.8), 0..90_i64), 0..60),
    ) {
        let of = |wanted: bool, index: usize| -> Vec<&str> {
            let is_open = |at: usize| if index == 0 { open[at].0 } else { open[at].1 };
            (0..6).filter(|at| is_open(*at) == wanted).map(|at| NAMES[at]).collect()
        };
        let (a, b, c, d) = (of(true, 0), of(false, 0), of(true, 1), of(false, 1));
        let spec = json!({
            "clusters": NAMES, "batchTimeoutAction": if aborts { "Abort" } else { "Continue" },
            "remediationStrategy": { "maxConcurrency": size, "timeout": timeout, "canaries": canaries },
        });
        let mut hub = Hub::new(spec, &[(POLICIES[0], &a, &b), (POLICIES[1], &c, &d)]);
        let mut last = 0;
        let mut watch = |hub: &mut Hub| -> Result<(), TestCaseError> {
            for _ in 0..100 {
                let before = hub.upgrade.status.clone().unwrap_or_default();
                let is_over = before.condition(SUCCEEDED).is_some();
                if !hub.step() {
                    return Ok(());
                }
                let status = hub.status().clone();
                let batch = status.status.current_batch;
                if !is_over && batch != last && batch != 0 {
                    prop_assert_eq!(batch, last + 1, "one after the other");
                    let ended: BTreeSet<&String> = status.clusters.iter().map(|one| &one.name).collect();
                    let earlier = status.remediation_plan.iter().take(usize::try_from(last).unwrap()).flatten();
                    for name in earlier {
                        prop_assert!(ended.contains(name), "{} has not ended before batch {}", name, batch);
                    }
                    last = batch;
                }
                // Who is enforced is in the current batch, or was in an earlier one.
                let begun: BTreeSet<&String> =
                    status.remediation_plan.iter().take(usize::try_from(batch.max(last)).unwrap()).flatten().collect();
                for selected in hub.placements.values().flatten() {
                    prop_assert!(begun.contains(selected), "{} is enforced before its turn", selected);
                }
            }
            Err(TestCaseError::fail("it does not settle"))
        };
        watch(&mut hub)?;
        let changes: Vec<Change> = changes;
        for (cluster, index, complies, seconds) in changes {
            hub.set(NAMES[cluster], POLICIES[index], if complies { Compliance::Compliant } else { Compliance::NonCompliant });
            hub.now += SignedDuration::from_secs(seconds);
            watch(&mut hub)?;
        }
        for _ in 0..20 {
            let Some(next) = hub.plan().requeue_at else { break };
            hub.now = hub.now.max(next);
            watch(&mut hub)?;
        }
        let status = hub.status();
        prop_assert!(status.condition(SUCCEEDED).is_some() && status.status.completed_at.is_some(), "{status:#?}");
        prop_assert!(hub.placements.is_empty());
        let mut names: Vec<&String> = status.clusters.iter().map(|one| &one.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        prop_assert_eq!(names.len(), count, "each cluster is recorded once");
        if hub.condition(SUCCEEDED) == "True/Completed" {
            prop_assert_eq!(count, 6, "everybody is complete");
        }
        let unique: BTreeSet<&String> = hub.events.iter().filter(|event| event.contains("spoke")).collect();
        prop_assert_eq!(unique.len(), hub.events.iter().filter(|event| event.contains("spoke")).count(), "Events of clusters come once");
    }

    /// A controller that is killed between two writes, at any of them, leaves nothing that the next one does not mend.
    #[test]
    fn a_crash_after_any_act_changes_nothing(
        open in proptest::collection::vec(any::<(bool, bool)>(), 6),
        (size, timeout) in (0_i64..4, 1_i64..30),
        changes in proptest::collection::vec((0..6_usize, 0..2_usize, prop::bool::weighted(0.8), 0..90_i64), 0..30),
        crashes in proptest::collection::vec(0..8_usize, 1..60),
    ) {
        let of = |index: usize| -> Vec<&str> {
            (0..6).filter(|at| if index == 0 { open[*at].0 } else { open[*at].1 }).map(|at| NAMES[at]).collect()
        };
        let (a, b) = (of(0), of(1));
        let spec = json!({
            "clusters": NAMES, "remediationStrategy": { "maxConcurrency": size, "timeout": timeout, "canaries": ["spoke2"] },
        });
        let mut hub = Hub::new(spec, &[(POLICIES[0], &a, &[]), (POLICIES[1], &b, &[])]);
        let mut crashed = hub.clone();
        let mut crashes = crashes.into_iter().cycle();
        let changes = changes.into_iter().map(Some).chain(std::iter::repeat_n(None, 20));
        for change in changes {
            for one in [&mut hub, &mut crashed] {
                if let Some((cluster, index, complies, seconds)) = change {
                    let compliance = if complies { Compliance::Compliant } else { Compliance::NonCompliant };
                    one.set(NAMES[cluster], POLICIES[index], compliance);
                    one.later(seconds);
                } else if let Some(next) = one.plan().requeue_at {
                    one.now = one.now.max(next);
                }
            }
            hub.settle();
            for _ in 0..100 {
                let acts = crashes.next().unwrap_or_default();
                for act in crashed.plan().acts.iter().take(acts) {
                    crashed.act(act);
                }
                if !crashed.step() {
                    break;
                }
            }
            prop_assert_eq!(hub.upgrade.status.as_ref(), crashed.upgrade.status.as_ref());
            prop_assert_eq!((&hub.placements, &hub.known.clusters), (&crashed.placements, &crashed.known.clusters));
            prop_assert_eq!(&hub.events, &crashed.events);
        }
    }
}
