//! Two thousand idle connections to the controller's plain port.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt as _};
use shared::annotation::keys;
use testbed::bench::table::Table;
use testbed::json_http::JsonHttp;
use testbed::{Options, World, ensure_that, eventually};
use tokio::net::TcpStream;

use crate::p99;

const CONNECTIONS: usize = 2_000;
const PROBES: usize = 100;

pub async fn idle_connections(table: &mut Table) -> Result<()> {
    let world = World::up(Options::default()).await?;
    let controller = world.now().await?.controller.context("a controller")?;
    let base = controller.metrics.trim_end_matches("/metrics").to_owned();
    let leases: Api<Lease> = Api::namespaced(world.hub().await?, keys::NAMESPACE);
    for (what, connections) in [("ports", 0), ("ports 2000", CONNECTIONS)] {
        let mut held = Vec::new();
        for _ in 0..connections {
            held.push(TcpStream::connect(base.trim_start_matches("http://")).await?);
        }
        let mut took = Vec::new();
        for _ in 0..PROBES {
            let begin = Instant::now();
            JsonHttp::new(&base).text(http::Method::GET, "/healthz", None::<&()>).await?;
            took.push(begin.elapsed().as_secs_f64() * 1_000.0);
        }
        let slowest = took.iter().copied().fold(0.0, f64::max);
        let (begin, before) = (Instant::now(), leases.get(keys::CONTROLLER).await?.resource_version());
        eventually(Duration::from_mins(1), "a renewed Lease", async || {
            ensure_that(leases.get(keys::CONTROLLER).await?.resource_version(), |now| *now != before)
        })
        .await?;
        let limit = (connections > 0).then_some(100.0);
        table.add(what, "/healthz, slowest, ms", None, limit, slowest);
        table.add(what, "/healthz, 99 of 100 within ms", None, limit, p99(took));
        table.add(
            what,
            "Lease renewed within s",
            None,
            (connections > 0).then_some(10.0),
            begin.elapsed().as_secs_f64(),
        );
    }
    Ok(())
}
