//! The operator of one cluster, with controller-runtime's queue: what it does in a pass is in [`fdb_simulator`].

mod hub;
mod store;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use fdb_simulator::operator::{Queue, pass};
use kube::Client;
use tokio::sync::mpsc;

use self::hub::Hub;
use self::store::Store;
use super::database;
use super::machines::{Key, Machines};
use crate::supervisor::clock::Clock;

/// Reconciles one cluster until its database is removed. What goes wrong is retried, as the operator does.
pub(crate) async fn run(client: &Client, machines: Arc<Machines>, of: Key) -> Result<()> {
    let (sender, mut wakes) = mpsc::unbounded_channel();
    let store = Store::start(client, &of.0, &of.1, &sender);
    while !store.is_complete() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut hub = Hub { store, machines, of, pass: 0 };
    let mut queue = Queue::default();
    loop {
        let why = next(&mut wakes, &mut queue).await;
        hub.pass += 1;
        let (began, result) = (Clock::now(), pass::run(&hub).await);
        let ended = Clock::now();
        let pass::Ended { result, again } = queue.put(result, ended);
        tracing::info!(pass = hub.pass, ?why, ?again, "{result}");
        let pass = database::Pass { number: hub.pass, began, ended, why, result, again };
        hub.machines.entry(&hub.of, |entry| entry.log.passes.push(pass))?;
    }
}

/// Waits for the timer or a wake-up, and takes all wake-ups that are queued.
async fn next(wakes: &mut mpsc::UnboundedReceiver<String>, queue: &mut Queue) -> Vec<String> {
    let (mut why, mut is_over) = (Vec::new(), false);
    let sleep = async {
        match queue.due() {
            Some(at) => tokio::time::sleep(Duration::from_secs_f64((at - Clock::now()).max(0.0))).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        Some(wake) = wakes.recv() => why.push(wake),
        () = sleep => is_over = true,
    }
    while let Ok(wake) = wakes.try_recv() {
        why.push(wake);
    }
    let is_due = queue.take(if is_over { f64::INFINITY } else { Clock::now() });
    why.extend(is_due.then(|| "timer".to_owned()));
    why.truncate(20);
    why
}
