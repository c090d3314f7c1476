//! `--wait` follows a rollout to its end. The test writes the status that a controller would write; every end and its
//! exit code are rows of `plugin/src/wait/rollout.rs`.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use shared::rollout::api::PowerRollout;
use testbed::eventually;

use super::{name, observed, rollouts_because, with_fleet};
use crate::hive_common::SOON;
use crate::plugin_common::Shell;

fn status(phase: &str, counts: &Value) -> Value {
    json!({ "phase": phase, "message": "so", "total": 3, "counts": counts })
}

/// What is written in turn, the exit code, and a part of the last message. `null` deletes the rollout.
fn ends() -> Vec<(Vec<Value>, i32, &'static str)> {
    let all =
        json!({ "Succeeded": 2, "AlreadyInState": 1, "Failed": 0, "Deferred": 0, "Pending": 0, "Progressing": 0 });
    vec![
        (
            vec![
                status("Paused", &json!({ "Pending": 2, "Progressing": 1 })),
                status("Progressing", &json!({ "Deferred": 1, "Failed": 1 })),
                status("Succeeded", &all),
            ],
            0,
            "Succeeded: so (3 targets: 2 Succeeded, 1 AlreadyInState)",
        ),
        (vec![status("Finished", &json!({ "Succeeded": 2, "Refused": 1 }))], 3, "1 Refused"),
        (vec![Value::Null], 1, "it does not exist any more"),
    ]
}

#[tokio::test]
async fn a_wait_ends_with_its_rollout() -> Result<()> {
    with_fleet(async |Shell { world, client, ns }| {
        for (at, (statuses, code, part)) in ends().into_iter().enumerate() {
            let reason = format!("{ns} {at}");
            let args = ["--all", "-n", ns, "--max-concurrency", "2", "--wait", "--reason", &reason];
            let play = async {
                let found = eventually(SOON, "the rollout", async || {
                    rollouts_because(client, &reason).await?.into_iter().next().context("none")
                });
                let rollout = name(&found.await?);
                for status in statuses {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    if status.is_null() {
                        let all: Api<PowerRollout> = Api::all(client.clone());
                        all.delete(&rollout, &DeleteParams::default()).await?;
                    } else {
                        observed(client, &rollout, status).await?;
                    }
                }
                anyhow::Ok(())
            };
            let (ran, played) = tokio::join!(world.plugin(&args), play);
            played?;
            let ran = ran?;
            let all = format!("{}{}", ran.stdout, ran.stderr);
            ensure!(ran.code == code && all.contains(part), "{at}: {} instead of {code}: {all}", ran.code);
        }
        Ok(())
    })
    .await
}
