//! A cluster goes away while it is looked at. In a world of its own, because the controller's metrics are looked at.

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
async fn it_is_neither_counted_nor_queued_any_more() -> Result<()> {
    let options =
        Options { clusters: 0, without: vec![Program::Webhook], timings: Timings::fast(), ..Options::default() };
    let world = World::up(options).await?;
    let page = world.now().await?.controller.context("a controller")?.metrics;
    let cluster = world.cluster("gone", ClusterOptions::of_size(3)).await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    ensure!(sum(&page, "hibernate_targets{").await? > 0.5);
    let slow = Fault { action: Some("StopInstances".to_owned()), delay: 4.0, ..Fault::default() };
    world.ec2().inject(&slow).await?;
    cluster.sleep().await?;
    tokio::time::sleep(Duration::from_secs(1)).await; // by now the look waits for EC2
    cluster.remove().await?;
    testbed::eventually(SOON, "no target", async || {
        let targets = sum(&page, "hibernate_targets{").await?;
        ensure!(targets < 0.5, "{targets} targets");
        Ok(())
    })
    .await?;
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let left = (sum(&page, "hibernate_targets{").await?, sum(&page, "hibernate_queue_depth{").await?);
        ensure!(left < (0.5, 0.5), "{left:?}");
    }
    Ok(())
}
