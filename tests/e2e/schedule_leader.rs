//! Two controllers, of which the leader is killed or frozen at the edge of a schedule.

use std::time::Duration;

use anyhow::Result;
use jiff::civil::time;
use serde_json::json;
use testbed::supervisor::programs::Start;

use crate::alone::controller_leader::leader;
use crate::rollout_common::{Fleet, SOON, controller};
use crate::schedule_common::{Days, QUIET, ended, night};

/// One of two controllers.
pub(crate) fn replica(identity: &str) -> Start {
    Start { identity: Some(identity.to_owned()), ..controller() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_changes_at_the_edge_makes_one_rollout_and_undoes_no_change_of_a_person() -> Result<()> {
    let days = Days::new().await?;
    for identity in ["a", "b"] {
        days.start(replica(identity)).await?;
    }
    let fleet = Fleet::of(&days.world, "leader", &["one"]).await?;
    let one = fleet.get("one");
    let (schedules, uid) = night(&days, one, &json!([{ "from": "08:00", "to": "18:00" }])).await?;

    let edges = [
        (0, 18, "Hibernating", "kill"),
        (1, 8, "Running", "freeze"),
        (1, 18, "Hibernating", "freeze"),
        (2, 8, "Running", "kill"),
    ];
    for (day, hour, state, signal) in edges {
        let (edge, first) = (days.at(day, time(hour, 0, 0, 0))?, format!("controller-{}", leader(&days.world).await?));
        days.go(day, time(hour - 1, 59, 59, 0))?;
        tokio::time::sleep(Duration::from_millis(rand::random_range(500..1_500))).await;
        days.world.signal(&first, signal).await?;
        one.wait_for_power_state(state, SOON).await?;
        ended(&schedules, "night", edge, "Succeeded").await?;
        if signal == "kill" {
            days.start(replica(first.trim_start_matches("controller-"))).await?;
        } else {
            days.world.signal(&first, "thaw").await?;
        }
        tokio::time::sleep(QUIET).await;
        assert_eq!(days.rollouts_of_edge(&uid, edge).await?, 1, "{edge}");
        assert_eq!(one.power_state().await?, state, "{edge}");
    }

    // Both miss an edge, after which a person wants something else.
    for identity in ["a", "b"] {
        days.world.signal(&format!("controller-{identity}"), "freeze").await?;
    }
    days.go(2, time(18, 10, 0, 0))?;
    one.patch(&json!({ "spec": { "powerState": "Hibernating" } })).await?;
    days.go(2, time(18, 20, 0, 0))?;
    one.wake().await?;
    days.go(2, time(18, 30, 0, 0))?;
    for identity in ["a", "b"] {
        days.world.signal(&format!("controller-{identity}"), "thaw").await?;
    }
    let edge = days.at(2, time(18, 0, 0, 0))?;
    ended(&schedules, "night", edge, "Finished").await?;
    tokio::time::sleep(QUIET).await;
    assert_eq!(one.power_state().await?, "Running");
    Ok(())
}
