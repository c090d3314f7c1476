//! The controller ends, or stalls for longer than its lease, right after each write of a rollout, and the next leader
//! goes on from what was written. In a world of its own.
//!
//! Writes are seen from outside: claims and records on the targets, versions of the rollout. Each is held up for
//! [`APART`] on its way, so that two of them are never closer together than that, and the fault falls between them.
//! Every second write is met, first the odd ones.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt;
use shared::rollout::status::RolloutPhase;
use testbed::proxy::faults::{Effect, Rule};
use testbed::supervisor::programs::Start;
use testbed::{Program, World};

use crate::rollout_common::{Fleet, SOON, restarted};

const NAMES: [&str; 2] = ["a", "b"];
const APART: Duration = Duration::from_millis(250);
/// Longer than the lease of [`controller`].
const STALL: Duration = Duration::from_secs(3);

fn controller() -> Start {
    Start::new(Program::Controller).leased(["2s", "1s", "250ms"])
}

/// SIGKILL after every other fault of a rollout, SIGSTOP and SIGCONT after the rest.
async fn fault(world: &World, kills: bool) -> Result<()> {
    if kills {
        world.signal("controller", "kill").await?;
        world.start(&controller()).await?;
    } else {
        world.signal("controller", "freeze").await?;
        tokio::time::sleep(STALL).await;
        world.signal("controller", "thaw").await?;
    }
    Ok(())
}

/// One rollout, with a fault after its `first` write and after every second one from there. The writes after which
/// there was one.
async fn pass(world: &World, fleet: &Fleet<'_>, sleeps: bool, first: usize) -> Result<BTreeSet<usize>> {
    let (action, call) = if sleeps { ("Hibernate", "StopInstances") } else { ("Resume", "StartInstances") };
    world.ec2().reset_calls().await?;
    let rollout = fleet.rollout(action, serde_json::json!({ "maxConcurrency": 1 })).await?;
    let (begun, mut versions, mut met, mut next) = (Instant::now(), BTreeSet::new(), BTreeSet::new(), first);
    loop {
        let found = rollout.get().await?;
        versions.insert(found.resource_version());
        // The first version is what the test has written.
        let mut writes = versions.len() - 1;
        for name in NAMES {
            let mark = fleet.mark(name).await?.filter(|mark| Some(&mark.uid) == found.metadata.uid.as_ref());
            writes += mark.map_or(0, |mark| 1 + usize::from(mark.ended.is_some()));
        }
        if writes >= next {
            fault(world, met.len() % 2 == 0).await?;
            met.insert(writes);
            next = writes + 2;
        } else if found.status.and_then(|status| status.phase) == Some(RolloutPhase::Succeeded) {
            break;
        }
        ensure!(begun.elapsed() < 3 * SOON, "{action} from {first}: not over after {writes} writes");
        tokio::time::sleep(APART / 4).await;
    }
    fleet.each_was_started_once(call).await.with_context(|| format!("{action} from {first}: faults after {met:?}"))?;
    eprintln!("{action} from {first}: {:?}, faults after {met:?}", begun.elapsed());
    rollout.delete().await?;
    Ok(met)
}

#[tokio::test]
async fn killed_or_frozen_after_any_write_it_starts_no_target_twice() -> Result<()> {
    let world = restarted().await?;
    world.start(&controller()).await?;
    let fleet = Fleet::of(&world, "points", &NAMES).await?;
    let millis = u64::try_from(APART.as_millis())?;
    for path in ["/apis/hive.openshift.io/v1/namespaces/", "/apis/hibernate.sh/"] {
        world.inject("hub", &Rule::new(Effect::Delay { millis }).method("PATCH").path(path)).await?;
    }
    let (mut asleep, mut awake) = (BTreeSet::new(), BTreeSet::new());
    for first in [1, 2] {
        asleep.extend(pass(&world, &fleet, true, first).await?);
        awake.extend(pass(&world, &fleet, false, first).await?);
    }
    // Two claims, two records, what the status says of the start and of the end; a busy machine misses some.
    ensure!(asleep.len() >= 6 && awake.len() >= 6, "faults after {asleep:?} and {awake:?}");
    Ok(())
}
