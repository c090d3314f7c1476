//! `rollout VERB NAME`: what each writes, also while others write; and what `status` shows.

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use jiff::SignedDuration;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use shared::rollout::api::PowerRollout;
use testbed::{World, with_temp_ns};

use super::{from_now, get, halt, is_about, name, observed, rollout, rollouts_because, world};

async fn expect(world: &World, verb: &str, target: &str, code: i32, part: &str) -> Result<()> {
    let ran = world.plugin(&["rollout", verb, target]).await?;
    let all = format!("{}{}", ran.stdout, ran.stderr);
    ensure!(ran.code == code && all.contains(part), "{verb} {target}: {} {all}", ran.code);
    Ok(())
}

#[tokio::test]
async fn verbs_write_one_field_and_say_what_they_did() -> Result<()> {
    let world = world().await?;
    let hub = world.hub().await?;
    let night = name(&rollout(&hub, json!({})).await?);
    let spec = async |field: &str| anyhow::Ok(json!(get(&hub, &night).await?.spec)[field].clone());
    expect(&world, "pause", &night, 0, &format!("powerrollout.hibernate.sh/{night} paused\n")).await?;
    ensure!(spec("paused").await? == true, "paused");
    expect(&world, "resume", &format!("pr/{night}"), 0, " resumed\n").await?;
    expect(&world, "accept", &night, 3, "cannot accept failures: it has not halted (no status yet)").await?;

    observed(&hub, &night, json!({ "phase": "Paused", "awaitsApproval": "canary" })).await?;
    expect(&world, "resume", &night, 0, " approved after group canary\n").await?;
    ensure!(spec("groups").await?[0]["pauseAfter"] == false, "the group goes on");

    let counts = json!({ "Failed": 1, "TimeOut": 1 });
    let halted = json!({ "phase": "Halted", "halt": halt(), "awaitsApproval": null, "counts": counts });
    observed(&hub, &night, halted).await?;
    expect(&world, "resume", &night, 3, "it has halted: use `accept`, `retry` or `abort`").await?;
    let rehearsed = world.plugin(&["rollout", "accept", &night, "--dry-run", "-o", "json"]).await?.json()?;
    ensure!(rehearsed["spec"]["acceptFailures"] == 1, "{rehearsed}");
    let server = world.plugin(&["rollout", "accept", &night, "--dry-run=server"]).await?.ok()?;
    ensure!(server.ends_with(" failures accepted (server dry run)\n"), "{server}");
    ensure!(spec("acceptFailures").await? == 0, "dry runs keep nothing");
    expect(&world, "accept", &night, 0, " failures accepted\n").await?;
    expect(&world, "retry", &night, 0, " retries 2 failed\n").await?;
    ensure!(spec("acceptFailures").await? == 1 && spec("retryFailed").await? == 1, "counted");
    expect(&world, "abort", &night, 0, " aborted\n").await?;
    expect(&world, "abort", &night, 0, " unchanged\n").await?;

    expect(&world, "pause", &night[..night.len() - 1], 1, &format!("did you mean {night}?")).await?;
    let names = world.plugin(&["__complete", "rollout", "pause", &night[..8]]).await?.ok()?;
    ensure!(names.lines().any(|line| line == night), "{names}");
    Ok(())
}

#[tokio::test]
async fn no_count_is_lost_while_others_write() -> Result<()> {
    let world = world().await?;
    let hub = world.hub().await?;
    let night = name(&rollout(&hub, json!({})).await?);
    observed(&hub, &night, json!({ "phase": "Halted", "halt": halt(), "counts": { "Failed": 1 } })).await?;
    let others = async {
        let all: Api<PowerRollout> = Api::all(hub.clone());
        for at in 0..20 {
            let patch = json!({ "status": { "message": format!("look {at}") } });
            all.patch_status(&night, &PatchParams::default(), &Patch::Merge(patch)).await?;
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    let verbs = try_join_all(["accept", "retry", "accept", "retry"].map(|verb| {
        let (world, night) = (world.clone(), night.clone());
        async move { world.plugin(&["rollout", verb, &night]).await?.ok() }
    }));
    let (written, done) = tokio::join!(others, verbs);
    written?;
    ensure!(done?.len() == 4, "each is done");
    let spec = get(&hub, &night).await?.spec;
    ensure!((spec.accept_failures, spec.retry_failed) == (2, 2), "{spec:?}");
    Ok(())
}

#[tokio::test]
async fn an_undo_aborts_and_restores() -> Result<()> {
    let world = world().await?;
    with_temp_ns(&world, async |hub, ns| {
        let undone = rollout(&hub, json!({ "maxConcurrency": "5%", "maxTargets": 7 })).await?;
        let night = name(&undone);
        observed(&hub, &night, json!({ "phase": "Progressing", "total": 5 })).await?;
        let dry = world.plugin(&["rollout", "undo", &night, "--dry-run", "-o", "yaml", "--reason", &ns]).await?.ok()?;
        ensure!(dry.contains("action: Restore") && !get(&hub, &night).await?.spec.abort, "{dry}");
        // An abort is for good.
        let refused = world.plugin(&["rollout", "undo", &night, "--reason", &"x".repeat(600)]).await?;
        ensure!(refused.code != 0 && refused.stderr.contains("reason"), "{}", refused.stderr);
        ensure!(!get(&hub, &night).await?.spec.abort, "the hub refuses the other rollout");
        let ran = world.plugin(&["rollout", "undo", &night, "--reason", &ns]).await?;
        ran.says(0, &["its targets (5)"])?;
        let [first, second] = ran.stdout.lines().collect::<Vec<_>>()[..] else { anyhow::bail!("{}", ran.stdout) };
        ensure!(first == format!("powerrollout.hibernate.sh/{night} aborted"), "{first}");
        let created = second.strip_suffix(" created").and_then(|what| what.split_once('/')).context("created")?.1;
        ensure!(created.starts_with("restore-20"), "{second}");
        ensure!(get(&hub, &night).await?.spec.abort, "it is aborted");
        let spec = get(&hub, created).await?.spec;
        ensure!(is_about(from_now(spec.not_after.0), SignedDuration::from_hours(2)), "{spec:?}");
        let mut found = json!(spec);
        found.as_object_mut().context("spec")?.remove("notAfter");
        let expected = json!({
            "action": "Restore", "restoreOf": { "name": night, "uid": undone.metadata.uid }, "maxTargets": 7,
            "targets": json!(undone.spec.targets), "maxConcurrency": "5%", "paused": false, "abort": false, "acceptFailures": 0,
            "retryFailed": 0, "reason": ns,
        });
        ensure!(found == expected, "{found:#}");
        let again = world.plugin(&["rollout", "undo", &night, "--reason", &ns, "--not-after", "2036-01-01T00:00:00Z"]).await?.ok()?;
        ensure!(again.lines().count() == 1, "it is aborted already: {again}");
        ensure!(rollouts_because(&hub, &ns).await?.len() == 2, "two of them");
        let missing = world.plugin(&["rollout", "undo", "missing"]).await?;
        missing.says(1, &["missing not found"])?;
        let past = world.plugin(&["rollout", "undo", &night, "--not-after", "2026-01-01T00:00:00Z"]).await?;
        ensure!(past.code == 2, "{}", past.stderr);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn status_shows_what_a_controller_wrote() -> Result<()> {
    let world = world().await?;
    let hub = world.hub().await?;
    let night = name(&rollout(&hub, json!({})).await?);
    let one = format!("rollout/{night}");
    let unseen = world.plugin(&["status", &one]).await?.ok()?;
    ensure!(unseen.contains("no controller has seen it yet"), "{unseen}");
    let status = json!({
        "phase": "Halted", "message": "2 failures\u{1b}[2J in group canary", "total": 3, "startedAt": "2026-11-24T17:51:00Z",
        "groups": [{ "name": "canary", "total": 2 }, { "name": "", "total": 1 }], "counts": { "Failed": 2, "Pending": 1 },
        "targets": [{ "namespace": "x", "name": "a", "state": "Failed", "reason": "credentials" }], "halt": halt(),
    });
    observed(&hub, &night, status).await?;
    let text = world.plugin(&["status", &one]).await?.ok()?;
    for part in [
        &format!("powerrollout.hibernate.sh/{night}"),
        "Halted",
        "3 targets: 1 Pending, 2 Failed",
        "(remaining)   1",
        "credentials",
        "2 failures [2J in group canary",
        &format!("kubectl hibernate rollout accept|retry|abort {night}"),
        "and 2 more",
    ] {
        ensure!(text.contains(part), "{part} is missing: {text}");
    }
    let list = world.plugin(&["status", &one, "-o", "json"]).await?.json()?;
    let item = &list["items"][0];
    ensure!(
        list["kind"] == "RolloutStatusList" && item["phase"] == "Halted" && item["counts"]["Failed"] == 2,
        "{list}"
    );
    let all = world.plugin(&["status", "rollouts"]).await?.ok()?;
    ensure!(
        all.starts_with("NAME ") && all.lines().any(|line| line.starts_with(&night) && line.contains("Halted")),
        "{all}"
    );
    let name = world.plugin(&["status", &one, "-o", "name"]).await?.ok()?;
    ensure!(name == format!("powerrollout.hibernate.sh/{night}\n"), "{name}");
    let missing = world.plugin(&["status", "rollout/missing"]).await?;
    missing.says(1, &["not found"])?;

    let mut command = world.command(testbed::paths::program(shared::annotation::keys::PLUGIN)?);
    command.args(["status", &one, "--watch", "-o", "json"]).stdout(std::process::Stdio::piped()).kill_on_drop(true);
    let mut watching = command.spawn()?;
    let mut lines =
        tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(watching.stdout.take().context("stdout")?));
    let mut phases = Vec::new();
    let reading = async {
        while let Some(line) = lines.next_line().await? {
            if let Some(phase) = line.trim().strip_prefix("\"phase\": ") {
                phases.push(phase.trim_matches(['"', ',']).to_owned());
                if phases.len() == 1 {
                    observed(&hub, &night, json!({ "phase": "Succeeded" })).await?;
                } else {
                    break;
                }
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(crate::hive_common::SOON, reading).await.context("a change is shown")??;
    ensure!(phases == ["Halted", "Succeeded"], "{phases:?}");
    Ok(())
}
