//! `objects`, `governance`, `clouds` and `bodies` of one tenant at once, against one webhook and one controller whose data
//! segment is limited.

use std::time::Duration;

use anyhow::{Result, ensure};
use testbed::bench::table::Table;
use testbed::world::copy;
use testbed::{Options, Program, Timings, World};
use tokio::time::sleep;

use crate::clouds::{NAMESPACE, asked, begins, write_hostile};
use crate::objects::{define_governance, start, write_clusters, write_governance};
use crate::reviews::Webhook;
use crate::{bodies, honest, limit, measured, peak};

/// Fewer than alone, for the API server.
const CLUSTERS: usize = 15;
const GOVERNED: usize = 8;
/// A wake waits for a minute for its ClusterSync first.
const ATTACK: Duration = Duration::from_secs(80);

pub async fn all_at_once(table: &mut Table) -> Result<()> {
    let options =
        Options { clusters: 0, without: vec![Program::Controller], timings: Timings::fast(), ..Options::default() };
    let world = World::up(options).await?;
    define_governance(&world).await?;
    copy::namespace(&world.hub().await?, NAMESPACE).await?;
    start(&world).await?;
    let honest = honest(&world).await?;
    let (calm_start, model) = begins(&world, &honest).await?;
    let idle = [measured(&world, "controller").await?, measured(&world, "webhook").await?];
    write_governance(&world, GOVERNED).await?;
    write_clusters(&world, model.clone(), CLUSTERS).await?;
    write_hostile(&world, &model).await?;
    let flood = bodies::attack(&Webhook::of(&world).await?)?;
    sleep(ATTACK).await;
    let (attacked, _) = begins(&world, &honest).await?;
    let before = peak(&world, "controller").await?;
    // A new leader lists them all.
    world.signal("controller", "restart").await?;
    let limited = limit(&world, "controller").await?;
    sleep(ATTACK).await;
    let (restarted, _) = begins(&world, &honest).await?;
    ensure!(world.pid("controller").await? == limited, "the controller was ended and started again");
    ensure!(asked() > 0, "no hostile cloud was asked");
    drop(flood);
    table.add("together", "s until another tenant's sleep reaches EC2, none hostile", None, None, calm_start);
    table.add("together", "the same, all hostile", None, Some(2.0), attacked);
    table.add("together", "the same 80 s after a restart", None, Some(2.0), restarted);
    let names = [
        ("controller", "controller's peak MB, none hostile", "controller's MB over the same without"),
        ("webhook", "webhook's peak MB, none hostile", "webhook's MB over the same without"),
    ];
    for ((program, calm, over), idle) in names.into_iter().zip(idle) {
        table.add("together", calm, None, None, idle);
        let attacked = peak(&world, program).await?;
        let attacked = if program == "controller" { attacked.max(before) } else { attacked };
        table.add("together", over, None, Some(96.0), attacked - idle);
    }
    Ok(())
}
