//! Our programs need nothing that OpenShift's restricted-v2 takes away. In a world of its own.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use shared::annotation::keys;
use testbed::supervisor::programs::Start;
use testbed::{ClusterOptions, Options, Program, Timings, World, paths, restricted};

/// Checks in /proc, from outside its namespaces, that a process is restricted.
fn check_restricted(pid: i32) -> Result<()> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).with_context(|| file.to_owned());
    let uids = read("uid_map")?;
    ensure!(uids.split_whitespace().next() == Some(restricted::UID), "{uids}");
    let status = read("status")?;
    ensure!(status.lines().any(|line| line == "CapEff:\t0000000000000000"), "{status}");
    let mounts = read("mountinfo")?;
    let mounted = mounts.lines().map(|line| line.split(' ').skip(4));
    // Of several mounts in one place the last one counts.
    let places: BTreeMap<_, _> = mounted.filter_map(|mut words| Some((words.next()?, words.next()?))).collect();
    let writable: Vec<_> =
        places.iter().filter(|(place, how)| !place.starts_with("/proc") && !how.starts_with("ro")).collect();
    ensure!(writable.is_empty(), "{writable:?}");
    ensure!(!read("environ")?.split('\0').any(|variable| variable.starts_with("HOME=")));
    Ok(())
}

#[tokio::test]
async fn every_program_runs_under_any_uid_with_a_read_only_root_and_no_home() -> Result<()> {
    let world = World::up(Options {
        clusters: 0,
        without: vec![Program::Controller, Program::Webhook],
        timings: Timings::fast(),
        ..Options::default()
    })
    .await?;
    for program in [Program::Webhook, Program::Controller] {
        world.start(&Start { restricted: true, ..Start::new(program) }).await?;
        let processes = world.status().await?.processes;
        let process = processes.iter().find(|process| process.record.name == program.name()).context(program.name())?;
        check_restricted(process.record.pid).with_context(|| program.name())?;
    }
    let cluster = world.cluster("unprivileged", ClusterOptions::default()).await?;
    cluster.wait_for_power_state("Running", Duration::from_mins(1)).await?;
    let mut plugin = world.command("unshare");
    plugin.args(restricted::UNSHARE).arg(paths::program(keys::PLUGIN)?);
    plugin.args(["unprivileged", "--wait", "--namespace", cluster.namespace()]);
    let detail = world.run(plugin).await?.ok()?;
    ensure!(cluster.power_state().await? == "Hibernating", "{detail}");
    Ok(())
}
