//! A cluster is deleted, or its desired state changes, during a reconcile. In a world of their own, because they read
//! the controller's metrics and slow down EC2 for all clusters.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testbed::ec2::Fault;
use testbed::json_http::JsonHttp;
use testbed::{ClusterOptions, Options, Program, Timings, World};

const SOON: Duration = Duration::from_mins(1);

/// Sum of all samples of a metric.
async fn sum(page: &str, metric: &str) -> Result<f64> {
    let text = JsonHttp::page(page).await?;
    let samples = text.lines().filter(|line| line.starts_with(metric));
    samples.map(|line| Ok(line.rsplit(' ').next().context("a value")?.parse::<f64>()?)).sum()
}

#[tokio::test]
async fn what_has_changed_during_a_reconcile_is_not_done_any_more() -> Result<()> {
    let options =
        Options { clusters: 0, without: vec![Program::Webhook], timings: Timings::fast(), ..Options::default() };
    let world = World::up(options).await?;
    woken_before_it_was_stopped(&world).await.context("a cluster that is woken before it was stopped")?;
    deleted_before_it_was_stopped(&world).await.context("a cluster that is deleted before it was stopped")
}

/// It is neither counted nor queued any more.
async fn deleted_before_it_was_stopped(world: &World) -> Result<()> {
    let page = world.now().await?.controller.context("a controller")?.metrics;
    let cluster = world.cluster("gone", ClusterOptions::of_size(3)).await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    ensure!(sum(&page, "hibernate_targets{").await? > 0.5);
    let slow = Fault { action: Some("StopInstances".to_owned()), delay: 4.0, ..Fault::default() };
    world.ec2().inject(&slow).await?;
    cluster.sleep().await?;
    tokio::time::sleep(Duration::from_secs(1)).await; // by now the reconcile waits for EC2
    cluster.remove().await?;
    testbed::eventually(SOON, "no target", async || {
        testbed::ensure_that(sum(&page, "hibernate_targets{").await?, |targets| *targets < 0.5)
    })
    .await?;
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let left = (sum(&page, "hibernate_targets{").await?, sum(&page, "hibernate_queue_depth{").await?);
        ensure!(left < (0.5, 0.5), "{left:?}");
    }
    Ok(())
}

/// Whoever wakes a cluster while the controller still waits for an answer that it needs to stop it, finds it running.
async fn woken_before_it_was_stopped(world: &World) -> Result<()> {
    let cluster = world.cluster("minds", ClusterOptions::of_size(3)).await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    let slow = Fault { action: Some("DescribeInstances".to_owned()), delay: 4.0, ..Fault::default() };
    let slow = world.ec2().inject(&slow).await?;
    cluster.sleep().await?;
    testbed::eventually(SOON, "look that waits for EC2", async || {
        let hits = world.ec2().faults().await?.iter().find(|fault| fault.id == slow.id).map(|fault| fault.hits);
        ensure!(hits.is_some_and(|hits| hits > 0), "{hits:?}");
        Ok(())
    })
    .await?;
    cluster.wake().await?;
    tokio::time::sleep(Duration::from_secs(10)).await; // both reconciles have their answer
    world.ec2().heal(None).await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    let moved = world.ec2().calls().await?.into_iter().filter(|call| call.action != "DescribeInstances");
    let moved: Vec<_> = moved.collect();
    ensure!(moved.is_empty(), "{moved:?}");
    cluster.remove().await
}
