//! A thousand schedules over ten thousand clusters, between two edges.

use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::{Timestamp, ToSpan as _};
use serde_json::{Value, json};
use testbed::bench::meter::count;
use testbed::bench::table::Table;

use crate::fleet::FakeFleet;

const CLUSTERS: usize = 10_000;
const SCHEDULES: usize = 1_000;
/// What belongs to the creation of the schedules has ended by then.
const SETTLES: Duration = Duration::from_mins(1);

/// Counts the requests of the controller, and reads its memory and its processor time.
pub async fn run(table: &mut Table) -> Result<()> {
    let minutes = std::env::var("BENCH_MINUTES").unwrap_or_else(|_| "5".to_owned());
    let minutes: u64 = minutes.parse().context("BENCH_MINUTES")?;
    let fleet = FakeFleet::new(CLUSTERS).await?;
    let began = Timestamp::now();
    let hour = |hours: i64| Ok::<_, jiff::Error>((began + hours.hours()).strftime("%H:%M").to_string());
    // Awake for now: every target is as it is to be.
    let times = json!({ "awake": [{ "from": hour(-2)?, "to": hour(6)? }] });
    let one = |number: usize| {
        let names: Vec<Value> = (0..CLUSTERS / SCHEDULES)
            .map(|at| json!({ "name": format!("fake-{}", number + at * SCHEDULES) }))
            .collect();
        (format!("schedule-{number}"), json!({ "names": names }), times.clone())
    };
    fleet.schedules((0..SCHEDULES).map(one)).await?;
    tokio::time::sleep(SETTLES).await;
    let (before, [_, memory, _], cpu) =
        (fleet.requests().await?, fleet.world.memory("controller").await?, fleet.world.cpu("controller").await?);
    tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
    let (after, [peak, later, _]) = (fleet.requests().await?, fleet.world.memory("controller").await?);
    let seconds = count(usize::try_from(60 * minutes)?);
    let share = (fleet.world.cpu("controller").await? - cpu) / seconds * 100.0;
    let mut total = 0;
    for (word, number) in &after {
        let more = number - before.get(word).copied().unwrap_or_default();
        total += more;
        if more > 0 {
            eprintln!("bench: {more} x {word} in {minutes} minutes");
        }
    }
    table.add("quiet", "requests but Lease and watches", None, Some(0.0), count(total));
    table.add("quiet", "RSS before, MB", None, None, memory);
    table.add("quiet", "RSS after, MB", None, Some(memory * 1.05), later);
    table.add("quiet", "RSS peak, MB", None, None, peak);
    table.add("quiet", "percent of one core", None, None, share);
    Ok(())
}
