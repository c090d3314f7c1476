//! A cluster's gate: its API server answers while a majority of its control plane is up, and is off otherwise.

use std::sync::Arc;

use anyhow::Result;
use rustls::ServerConfig;
use tokio::sync::watch;

use super::LABEL;
use crate::ec2::Instance;
use crate::ec2::client::Snapshot;
use crate::proxy::{LabeledLists, Proxy, Settings, Upstream};
use crate::supervisor::clock::Clock;

/// Makes a closed gate in front of a spoke's API server.
///
/// # Errors
/// When no port is free.
pub fn start(infra_id: &str, upstream: Upstream, tls: Arc<ServerConfig>) -> Result<Proxy> {
    Proxy::start(Settings {
        upstream,
        tls: Some(tls),
        lists: Some(LabeledLists { key: LABEL.to_owned(), value: infra_id.to_owned() }),
        open: false,
    })
}

/// Opens and closes the gate as instances come and go. Runs until it is aborted.
pub async fn guard(gate: Arc<Proxy>, infra_id: String, snapshots: watch::Receiver<Arc<Snapshot>>, clock: Clock) {
    loop {
        let open = {
            let snapshot = snapshots.borrow().clone();
            majority_is_up(&snapshot.of(&infra_id), Clock::now(), clock.timings().boot_delay.as_secs_f64())
        };
        gate.set_open(open);
        clock.tick().await;
    }
}

/// Whether more than half of the control plane has been running for longer than it takes to boot.
fn majority_is_up(instances: &[&Instance], now: f64, boot: f64) -> bool {
    let masters: Vec<_> =
        instances.iter().filter(|instance| instance.is_master() && instance.state != "terminated").collect();
    let up = masters.iter().filter(|instance| instance.running_for(now).is_some_and(|seconds| seconds >= boot)).count();
    up * 2 > masters.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(role: &str, state: &str, since: f64) -> Instance {
        Instance {
            id: "i-0".to_owned(),
            account: String::new(),
            region: String::new(),
            zone: String::new(),
            state: state.to_owned(),
            since,
            launch_time: String::new(),
            private_dns: String::new(),
            private_ip: String::new(),
            lifecycle: None,
            provider_id: None,
            tags: [(Instance::ROLE.to_owned(), role.to_owned())].into(),
        }
    }

    #[test]
    fn two_of_three_masters_make_an_api_server() {
        let up = instance("master", "running", 0.0);
        let booting = instance("master", "running", 98.0);
        let down = instance("master", "stopped", 0.0);
        let worker = instance("worker", "running", 0.0);
        let gone = instance("master", "terminated", 0.0);
        for (instances, open) in [
            (vec![&up, &up, &up], true),
            (vec![&up, &up, &down], true),
            (vec![&up, &booting, &down], false),
            (vec![&up, &down, &down, &worker, &worker], false),
            (vec![&up, &gone], true),
            (vec![&worker], false),
            (vec![], false),
        ] {
            assert_eq!(majority_is_up(&instances, 100.0, 3.0), open, "{instances:?}");
        }
    }
}
