//! Schedules and clocks: the hour that a clock change skips and the one that comes twice, and a clock that is set back.

use anyhow::Result;
use jiff::ToSpan as _;
use jiff::civil::time;
use serde_json::json;
use testbed::Program;
use testbed::supervisor::programs::Start;

use crate::rollout_common::{Fleet, SOON};
use crate::schedule_common::{Days, QUIET, clock_changes, ended, night};

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_change_moves_an_edge_of_the_hour_that_is_skipped_and_repeats_none() -> Result<()> {
    let [forward, back] = clock_changes()?;
    let days = Days::of(forward).await?;
    // It works at the time of the API server, which trusts its certificate for weeks: only the controller's clock is months
    // ahead.
    days.world.start(&Start::new(Program::Webhook)).await?;
    days.go(-1, time(12, 0, 0, 0))?;
    days.start_controller().await?;
    let fleet = Fleet::of(&days.world, "change", &["one"]).await?;
    let one = fleet.get("one");
    let (api, uid) = night(&days, one, &json!([{ "from": "02:30", "to": "04:30" }])).await?;
    one.wait_for_power_state("Hibernating", SOON).await?;
    let later = forward.until((jiff::Unit::Day, back))?.get_days();
    // 02:30 does not exist in spring; in autumn it comes twice, and the first one counts.
    for (day, wake) in [(0, time(3, 30, 0, 0)), (i64::from(later), time(2, 30, 0, 0))] {
        let (wake, sleep) = (days.at(day, wake)?, days.at(day, time(4, 30, 0, 0))?);
        days.go_to(wake - 2.seconds())?;
        ended(&api, "night", wake, "Succeeded").await?;
        one.wait_for_power_state("Running", SOON).await?;
        days.go_to(wake + 1.hour() - 2.seconds())?;
        tokio::time::sleep(QUIET).await;
        assert_eq!(days.rollouts_of_edge(&uid, wake).await?, 1);
        days.go_to(sleep - 2.seconds())?;
        ended(&api, "night", sleep, "Succeeded").await?;
        one.wait_for_power_state("Hibernating", SOON).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_back_and_forth_repeats_no_edge_and_undoes_nothing() -> Result<()> {
    let days = Days::new().await?;
    days.start_controller().await?;
    let fleet = Fleet::of(&days.world, "back", &["left", "woken"]).await?;
    let [left, woken] = ["left", "woken"].map(|name| fleet.get(name));
    let (api, uid) = night(&days, left, &json!([{ "from": "08:00", "to": "18:00" }])).await?;
    // Each cluster has a namespace of its own.
    let (other, _) = night(&days, woken, &json!([{ "from": "08:00", "to": "18:00" }])).await?;
    let evening = days.at(0, time(18, 0, 0, 0))?;
    days.go(0, time(17, 59, 58, 0))?;
    for (api, cluster) in [(&api, left), (&other, woken)] {
        cluster.wait_for_power_state("Hibernating", SOON).await?;
        ended(api, "night", evening, "Succeeded").await?;
    }
    days.go(0, time(19, 0, 0, 0))?;
    woken.wake().await?;
    woken.wait_for_power_state("Running", SOON).await?;
    for hour in [16, 18] {
        days.go(0, time(hour, 0, 0, 0))?;
        tokio::time::sleep(QUIET).await;
        assert_eq!(left.power_state().await?, "Hibernating", "{hour}:00");
        assert_eq!(woken.power_state().await?, "Running", "{hour}:00");
    }
    assert_eq!(days.rollouts_of_edge(&uid, evening).await?, 1);
    // The days go on.
    days.go(1, time(7, 59, 58, 0))?;
    left.wait_for_power_state("Running", SOON).await?;
    days.go(1, time(17, 59, 58, 0))?;
    for cluster in [left, woken] {
        cluster.wait_for_power_state("Hibernating", SOON).await?;
    }
    Ok(())
}
