//! `--wait`: every end of a rollout has its exit code. The test writes the status that a controller would write.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use shared::rollout::api::PowerRollout;
use testbed::{eventually, with_temp_ns};

use super::{fleet, halt, name, observed, rollouts_because, world};

const SOON: Duration = Duration::from_secs(30);

fn status(phase: &str, counts: &Value) -> Value {
    json!({ "phase": phase, "message": "so", "total": 3, "counts": counts })
}

/// What is written in turn, further flags, the exit code, and a part of the last message. `null` deletes the rollout.
fn ends() -> Vec<(Vec<Value>, &'static [&'static str], i32, &'static str)> {
    vec![
        (
            vec![
                status("Planned", &json!({ "Pending": 3 })),
                status("Paused", &json!({ "Pending": 2, "Progressing": 1 })),
                status("Progressing", &json!({ "Deferred": 1, "Failed": 1 })),
                status(
                    "Succeeded",
                    &json!({ "Succeeded": 2, "AlreadyInState": 1, "Failed": 0, "Deferred": 0, "Pending": 0, "Progressing": 0 }),
                ),
            ],
            &[],
            0,
            "Succeeded: so (3 targets: 2 Succeeded, 1 AlreadyInState)",
        ),
        (vec![status("Finished", &json!({ "Succeeded": 2, "Failed": 1 }))], &[], 1, "1 Failed"),
        (vec![status("Finished", &json!({ "Succeeded": 2, "TimeOut": 1 }))], &[], 1, "1 TimeOut"),
        (vec![status("Finished", &json!({ "Overridden": 1, "Refused": 2 }))], &[], 1, "1 Overridden"),
        (vec![status("Finished", &json!({ "Abandoned": 3 }))], &[], 1, "3 Abandoned"),
        (vec![status("Aborted", &json!({ "Succeeded": 3 }))], &[], 1, "Aborted: so"),
        (
            vec![json!({ "phase": "Halted", "halt": halt(), "counts": { "Failed": 1, "Pending": 2 } })],
            &[],
            1,
            "go on with `kubectl hibernate rollout accept hibernate-",
        ),
        (vec![status("Finished", &json!({ "Succeeded": 2, "Refused": 1 }))], &[], 3, "1 Refused"),
        (vec![status("Finished", &json!({ "Succeeded": 2, "Deferred": 1 }))], &[], 4, "1 Deferred"),
        (
            vec![status("Paused", &json!({ "Pending": 3 }))],
            &["--timeout", "3s"],
            4,
            "timed out after 3s: Paused: so (3 targets: 3 Pending)",
        ),
        (vec![], &["--timeout", "2s"], 4, "timed out after 2s: waiting for a controller to reconcile"),
        (vec![Value::Null], &[], 1, "it does not exist any more"),
    ]
}

#[tokio::test]
async fn every_end_has_its_exit_code() -> Result<()> {
    let world = world().await?;
    with_temp_ns(&world, async |client, ns| {
        fleet(&client, &ns).await?;
        let one = async |at: usize, (statuses, flags, code, part): (Vec<Value>, &'static [&'static str], i32, &'static str)| {
            let reason = format!("{ns} {at}");
            let args = ["--all", "-n", &ns, "--max-concurrency", "2", "--wait", "--reason", &reason];
            let args = [&args[..], flags].concat();
            let play = async {
                let found = eventually(SOON, "the rollout", async || {
                    let found = rollouts_because(&client, &reason).await?;
                    found.into_iter().next().ok_or_else(|| anyhow::anyhow!("none"))
                });
                let rollout = name(&found.await?);
                for status in statuses {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    if status.is_null() {
                        let all: Api<PowerRollout> = Api::all(client.clone());
                        all.delete(&rollout, &DeleteParams::default()).await?;
                    } else {
                        observed(&client, &rollout, status).await?;
                    }
                }
                anyhow::Ok(())
            };
            let (ran, played) = tokio::join!(world.plugin(&args), play);
            played?;
            let ran = ran?;
            let all = format!("{}{}", ran.stdout, ran.stderr);
            ensure!(ran.code == code && all.contains(part), "{at}: {} instead of {code}: {all}", ran.code);
            anyhow::Ok(())
        };
        let ends = ends();
        for (at, chunk) in ends.chunks(4).enumerate() {
            try_join_all(chunk.iter().cloned().enumerate().map(|(index, end)| one(at * 4 + index, end))).await?;
        }
        Ok(())
    })
    .await
}
