//! Clients that hold connections without using them lock nobody out.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt as _};
use shared::annotation::keys;
use testbed::json_http::JsonHttp;
use testbed::{World, ensure_that, eventually};
use tokio::net::TcpStream;
use tokio::time::timeout;

const SOON: Duration = Duration::from_mins(1);
/// Connections that the attacker opens, and that a port keeps.
const ATTEMPTS: usize = 2_000;
const KEPT: usize = 256;

fn is_closed(connection: &TcpStream) -> bool {
    !matches!(connection.try_read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

#[tokio::test]
async fn two_thousand_idle_connections_keep_no_probe_and_no_lease_waiting() -> Result<()> {
    let world = World::shared().await?;
    let leases: Api<Lease> = Api::namespaced(world.hub().await?, keys::NAMESPACE);
    let renewed = async || anyhow::Ok(leases.get(keys::CONTROLLER).await?.resource_version());
    let state = world.now().await?;
    for program in [state.controller.context("a controller")?, state.webhook.context("a webhook")?] {
        let plain = program.metrics.trim_end_matches("/metrics");
        let address = plain.trim_start_matches("http://");
        let before = renewed().await?;
        let mut held = Vec::new();
        for _ in 0..ATTEMPTS {
            held.push(timeout(Duration::from_secs(5), TcpStream::connect(address)).await??);
        }
        for path in ["/healthz", "/metrics"] {
            let http = JsonHttp::new(plain);
            let answer = timeout(Duration::from_secs(5), http.text(http::Method::GET, path, None::<&()>)).await??;
            ensure!(!answer.is_empty(), "{path}");
        }
        eventually(SOON, "closed connections", async || {
            ensure_that(held.iter().filter(|connection| is_closed(connection)).count(), |closed| {
                *closed >= ATTEMPTS - KEPT
            })
        })
        .await?;
        eventually(SOON, "a renewed Lease", async || ensure_that(renewed().await?, |now| *now != before)).await?;
    }
    Ok(())
}
