//! An edge of a thousand schedules of one cluster each, and a person's rollout that starts in the middle of it.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use shared::rollout::api::PowerRollout;
use testbed::bench::meter::count;
use testbed::bench::table::Table;

use crate::fleet::{FakeFleet, Written, sleep_soon};

const CLUSTERS: usize = 1_000;

/// Measures both.
pub async fn run(table: &mut Table) -> Result<()> {
    let fleet = FakeFleet::new(CLUSTERS).await?;
    // To create a thousand takes longer than a minute.
    let (first, _) = sleep_soon()?;
    let edge = first + Duration::from_mins(3);
    let times = json!({ "events": [{ "cron": edge.strftime("%M %H * * *").to_string(), "power": "Sleep" }] });
    let one = |number: usize| {
        let targets = json!({ "names": [{ "name": format!("fake-{number}") }] });
        (format!("schedule-{number}"), targets, times.clone())
    };
    fleet.schedules((0..CLUSTERS).map(one)).await?;
    let asleep = Written::follow(&fleet.world, "Hibernating").await?;
    asleep.until(CLUSTERS / 10, edge).await?;
    let (api, asked): (Api<PowerRollout>, _) = (Api::all(fleet.world.hub().await?), Timestamp::now());
    let names = json!([{ "namespace": fleet.namespace, "name": "model" }]);
    let solo = json!({
        "metadata": { "name": "solo" },
        "spec": { "action": "Hibernate", "targets": { "names": names }, "maxTargets": 1, "notAfter": "2126-01-01T00:00:00Z" },
    });
    api.create(&PostParams::default(), &serde_json::from_value(solo)?).await?;
    let waited = asleep.until_one("model", asked).await?;
    let (_, last) = asleep.until(CLUSTERS + 1, edge).await?;
    table.add("singles", "seconds to the last of 1,000 writes", None, Some(60.0), last);
    table.add("singles", "rollouts", None, Some(count(CLUSTERS)), count(fleet.rollouts().await?.len()));
    table.add("singles", "seconds that a person's rollout waits", None, Some(2.0), waited);
    Ok(())
}
