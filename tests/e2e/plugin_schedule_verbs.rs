//! `kubectl hibernate schedule`: each verb as a user types it, on the real API server with the real webhook and policy.

use anyhow::{Result, ensure};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use shared::hive::api::ClusterDeployment;
use shared::schedule::api::{ExceptionPower, PowerSchedule};
use testbed::World;
use testbed::check::webhook_only;

use crate::hive_common::create;
use crate::plugin_common::{Shell, in_namespace};

/// Runs the plugin by words that may hold spaces.
async fn run(shell: &Shell, words: &[&str]) -> Result<testbed::Ran> {
    shell.world.plugin(&[words, &["-n", &shell.ns]].concat()).await
}

#[tokio::test]
async fn a_schedule_is_created_shown_explained_skipped_applied_and_suspended() -> Result<()> {
    in_namespace(World::shared_with(webhook_only()).await?, async |shell| {
        let clusters: Api<ClusterDeployment> = Api::namespaced(shell.client.clone(), &shell.ns);
        create(&clusters, "demo", "gcp", &json!({ "spec": { "hibernateAfter": "2h" } })).await?;
        let schedules: Api<PowerSchedule> = Api::namespaced(shell.client.clone(), &shell.ns);
        let awake = ["--awake", "Mon-Fri 07:30-18:00", "--zone", "Europe/Berlin", "--all"];
        let office = [&["schedule", "create", "office"][..], &awake, &["-y"]].concat();

        let wrong = run(
            &shell,
            &["schedule", "create", "office", "--awake", "Mon-Fri 7:30-18", "--zone", "Europe/Berlin", "--all", "-y"],
        )
        .await?;
        ensure!(wrong.code == 2 && wrong.stderr.contains("07:30"), "{wrong:?}");
        let wrong = run(
            &shell,
            &[
                "schedule",
                "create",
                "office",
                "--awake",
                "Mon-Fri 07:30-18:00",
                "--zone",
                "Europe/Berln",
                "--all",
                "-y",
            ],
        )
        .await?;
        ensure!(wrong.code == 2 && wrong.stderr.contains("Europe/Berlin"), "{wrong:?}");
        ensure!(schedules.get_opt("office").await?.is_none(), "nothing was created");

        let manifest = run(&shell, &[&office[..], &["--dry-run=client", "-o", "yaml"]].concat()).await?.ok()?;
        ensure!(manifest.contains("kind: PowerSchedule") && manifest.contains("timeZone: Europe/Berlin"), "{manifest}");
        let made = run(&shell, &office).await?;
        ensure!(made.code == 0 && made.stderr.contains("hibernateAfter"), "warns of S5: {made:?}");
        let again = run(&shell, &office).await?;
        ensure!(again.code != 0 && again.stderr.contains("office"), "{again:?}");

        let table = shell.ok("status schedules").await?;
        ensure!(table.contains("office") && table.contains("Europe/Berlin"), "{table}");
        let table = shell.ok("status cd/demo").await?;
        ensure!(table.contains("SCHEDULE") && table.contains("   office   "), "{table}");
        let governed = &shell.status("cd/demo").await?["schedule"];
        ensure!(*governed == json!({
            "type": "powerschedule.hibernate.sh", "namespace": shell.ns, "name": "office", "suspended": false, "next": [],
        }), "{governed}");
        let whole = shell.ok("status schedule/office").await?;
        ensure!(whole.contains("Europe/Berlin"), "{whole}");
        let next = shell.json("schedule next office --days 14 -o json").await?;
        let text = next.to_string();
        ensure!(
            text.contains("Awake") && text.contains("Sleep") && text.contains("awake Mon-Fri 07:30-18:00"),
            "{text}"
        );
        let explained = shell.ok("schedule explain cd/demo").await?;
        ensure!(explained.contains("office"), "{explained}");

        shell.ok("schedule apply office").await?;
        ensure!(schedules.get("office").await?.spec.0.apply_at.is_some(), "applyAt");
        shell.ok("schedule skip office").await?;
        let skipped = schedules.get("office").await?.spec.0.exceptions;
        ensure!(skipped.len() == 1 && skipped[0].power == ExceptionPower::Unchanged, "{skipped:?}");
        let refused = shell.run("schedule apply office").await?;
        ensure!(refused.code == 3 && refused.stderr.contains("asks for no state now"), "{refused:?}");
        shell.ok("schedule suspend office").await?;
        ensure!(schedules.get("office").await?.spec.0.suspend, "suspended");
        let explained = shell.ok("schedule explain cd/demo").await?;
        ensure!(explained.contains("suspended"), "{explained}");
        shell.ok("schedule resume office").await?;
        ensure!(!schedules.get("office").await?.spec.0.suspend, "at work");

        // A cluster is not a schedule, and a schedule is not put to sleep.
        let refused = shell.run("schedule/office").await?;
        ensure!(refused.code != 0 && refused.stderr.contains("schedule apply"), "{refused:?}");
        let missing = shell.run("schedule apply nothing").await?;
        ensure!(missing.code == 1 && missing.stderr.contains("nothing"), "{missing:?}");
        let bad = json!({ "spec": { "timeZone": "x" } });
        ensure!(schedules.patch("office", &PatchParams::default(), &Patch::Merge(bad)).await.is_err(), "S3");
        Ok(())
    })
    .await
}
