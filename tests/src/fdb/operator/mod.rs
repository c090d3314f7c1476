//! The double of the operator: one reconciler for one cluster, with controller-runtime's queue and the operator's
//! sub-steps in their order.

pub mod api;
mod choose;
mod coordinate;
mod create;
mod exclude;
mod objects;
pub mod pass;
mod removal;
mod status;
mod store;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use kube::Client;
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::pass::Cx;
use self::store::Store;
use super::database;
use super::machines::{Key, Machines};
use crate::supervisor::clock::Clock;

/// Longest that an error waits: controller-runtime's 1000 s.
const LONGEST: Duration = Duration::from_secs(1_000);

/// Reconciles one cluster until its database is removed. What goes wrong is retried, as the operator does.
///
/// # Errors
/// When there is no such database any more.
pub(crate) async fn run(client: &Client, machines: Arc<Machines>, of: Key) -> Result<()> {
    let (sender, mut wakes) = mpsc::unbounded_channel();
    let store = Store::start(client, &of.0, &of.1, &sender);
    while !store.is_complete() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut cx = Cx { store, machines, of, pass: 0 };
    let (mut failures, mut timer) = (0, None);
    loop {
        let why = next(&mut wakes, &mut timer).await;
        cx.pass += 1;
        let began = Clock::now();
        let (result, again) = match pass::run(&cx).await {
            Ok(ended) => {
                failures = 0;
                ended
            }
            Err(error) => {
                let after = Duration::from_millis(5).saturating_mul(1 << failures.min(20)).min(LONGEST);
                failures += 1;
                (format!("{error:#}"), Some(after))
            }
        };
        tracing::info!(pass = cx.pass, ?why, ?again, "{result}");
        let new = again.map(|after| Instant::now() + after);
        // A queue keeps the earliest of several times for the same cluster.
        timer = match (timer, new) {
            (Some(old), Some(new)) => Some(Instant::min(old, new)),
            (old, new) => old.or(new),
        };
        let again = again.map(|after| after.as_secs_f64());
        let pass = database::Pass { number: cx.pass, began, ended: Clock::now(), why, result, again };
        cx.machines.entry(&cx.of, |entry| entry.log.passes.push(pass))?;
    }
}

/// Waits for the timer or a wake-up, and takes all wake-ups that are queued.
async fn next(wakes: &mut mpsc::UnboundedReceiver<String>, timer: &mut Option<Instant>) -> Vec<String> {
    let mut why = Vec::new();
    let sleep = async {
        match *timer {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        Some(wake) = wakes.recv() => why.push(wake),
        () = sleep => {}
    }
    while let Ok(wake) = wakes.try_recv() {
        why.push(wake);
    }
    if timer.is_some_and(|at| at <= Instant::now()) {
        *timer = None;
        why.push("timer".to_owned());
    }
    why.truncate(20);
    why
}
