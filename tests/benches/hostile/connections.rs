//! One client keeps 256 TLS connections to the webhook, with one request on each now and then.

use anyhow::Result;
use futures::future::try_join_all;
use testbed::bench::table::Table;
use testbed::{Options, World};

use crate::p99;
use crate::reviews::{Webhook, review};

const ATTACKERS: usize = 256;
const REQUESTS: usize = 2_000;
/// A new connection every so many requests.
const EVERY: usize = 20;

pub async fn idle_clients(table: &mut Table) -> Result<()> {
    let world = World::up(Options::default()).await?;
    let webhook = Webhook::of(&world).await?;
    let mut figures = Vec::new();
    for attackers in [0, ATTACKERS, 0, ATTACKERS] {
        let mut held = Vec::new();
        for _ in 0..attackers {
            held.push(webhook.client()?);
        }
        try_join_all(held.iter().map(|attacker| attacker.post(review(1, 1)))).await?;
        let mut took = Vec::new();
        let mut client = webhook.client()?;
        for number in 0..REQUESTS {
            if number % EVERY == 0 {
                client = webhook.client()?;
            }
            took.push(client.post(review(1, 1)).await?.1.as_secs_f64() * 1_000.0);
        }
        figures.push(p99(took));
    }
    for pair in figures.chunks(2) {
        table.add("connections", "99 of 100 within ms, without attackers", None, None, pair[0]);
        table.add("connections", "99 of 100 within ms, 256 idle connections", None, None, pair[1]);
        table.add("connections", "ratio", None, Some(2.0), pair[1] / pair[0]);
    }
    Ok(())
}
