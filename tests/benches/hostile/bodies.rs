//! Sixteen bodies of 6.9 MB at once, of labels and of groups.

use anyhow::Result;
use futures::future::join_all;
use hyper::StatusCode;
use testbed::bench::table::Table;
use testbed::{Options, World};

use crate::peak;
use crate::reviews::{Reviewer, Webhook, review};

const BODIES: usize = 16;

pub async fn large_bodies(table: &mut Table) -> Result<()> {
    for (what, body) in [("labels", review(87_000, 1)), ("groups", review(1, 400_000))] {
        let world = World::up(Options::default()).await?;
        let webhook = Webhook::of(&world).await?;
        let clients: Vec<Reviewer> = (0..BODIES).map(|_| webhook.client()).collect::<Result<_>>()?;
        let megabytes = u32::try_from(body.len() / 100_000).map(f64::from)? / 10.0;
        let (mut judged, mut busy, mut slowest) = (0_u32, 0_u32, 0.0_f64);
        for answer in join_all(clients.iter().map(|client| client.post(body.clone()))).await {
            let (status, took) = answer?;
            judged += u32::from(status == StatusCode::OK);
            busy += u32::from(status == StatusCode::SERVICE_UNAVAILABLE);
            slowest = slowest.max(took.as_secs_f64());
        }
        let name = format!("bodies {what}");
        table.add(&name, "MB a body", None, None, megabytes);
        table.add(&name, "judged, of 16", None, None, f64::from(judged));
        table.add(&name, "told to try again (503), of 16", None, None, f64::from(busy));
        table.add(&name, "slowest answer, s", None, Some(2.0), slowest);
        table.add(&name, "webhook's peak of memory, MB", None, Some(128.0), peak(&world, "webhook").await?);
    }
    Ok(())
}
