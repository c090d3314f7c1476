//! `kubectl hibernate schedule`: each verb as a user types it, on the real API server with the real webhook and policy.

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use shared::hive::api::ClusterDeployment;
use shared::schedule::api::{ExceptionPower, PowerSchedule};
use testbed::World;
use testbed::check::webhook_only;

use crate::hive_common::create;
use crate::plugin_common::{Case, Shell, in_namespace};

/// Runs the plugin by words that may hold spaces.
async fn run(shell: &Shell, words: &[&str]) -> Result<testbed::Ran> {
    shell.world.plugin(&[words, &["-n", &shell.ns]].concat()).await
}

#[tokio::test]
async fn a_schedule_is_created_shown_explained_skipped_applied_and_suspended() -> Result<()> {
    in_namespace(World::shared_with(webhook_only()).await?, async |shell| {
        let clusters: Api<ClusterDeployment> = Api::namespaced(shell.client.clone(), &shell.ns);
        create(&clusters, "demo", "gcp", &json!({ "spec": { "hibernateAfter": "2h" } })).await?;
        create(&clusters, "web", "gcp", &json!({})).await?;
        let schedules: Api<PowerSchedule> = Api::namespaced(shell.client.clone(), &shell.ns);
        let office_with = |awake: &'static str, zone: &'static str| {
            ["schedule", "create", "office", "--awake", awake, "--zone", zone, "--all", "-y"]
        };
        for (awake, zone, says) in [
            ("Mon-Fri 7:30-18", "Europe/Berlin", "07:30"),
            ("Mon-Fri 07:30-18:00", "Europe/Berln", "Europe/Berlin"),
        ] {
            run(&shell, &office_with(awake, zone)).await?.says(2, &[says])?;
        }
        let office_of = |most: &'static str| {
            [&office_with("Mon-Fri 07:30-18:00", "Europe/Berlin")[..], &["--max-targets", most]].concat()
        };
        let few = run(&shell, &[&office_of("1")[..], &["--dry-run=server"]].concat()).await?;
        few.says(0, &["Warning: the schedule selects 2 targets", "more than 1 (", "--max-targets 2"])?;
        let office = office_of("2");
        ensure!(schedules.get_opt("office").await?.is_none(), "nothing was created");

        let manifest = run(&shell, &[&office[..], &["--dry-run=client", "-o", "yaml"]].concat()).await?.ok()?;
        ensure!(manifest.contains("kind: PowerSchedule") && manifest.contains("timeZone: Europe/Berlin"), "{manifest}");
        run(&shell, &office).await?.says(0, &["hibernateAfter"]).context("warns of S5")?;
        let again = run(&shell, &office).await?;
        ensure!(again.code != 0 && again.stderr.contains("office"), "{again:?}");

        let tables: [Case<'_>; 3] = [
            ("status schedules", 0, &["office", "Europe/Berlin"]),
            ("status cd/demo", 0, &["SCHEDULE", "   office   "]),
            ("status schedule/office", 0, &["Europe/Berlin"]),
        ];
        shell.each(&tables).await?;
        let governed = &shell.status("cd/demo").await?["schedule"];
        ensure!(*governed == json!({
            "type": "powerschedule.hibernate.sh", "namespace": shell.ns, "name": "office", "suspended": false, "next": [],
        }), "{governed}");
        let next = shell.json("schedule next office --days 14 -o json").await?;
        let text = next.to_string();
        ensure!(
            text.contains("Awake") && text.contains("Sleep") && text.contains("awake Mon-Fri 07:30-18:00"),
            "{text}"
        );
        shell.each(&[("schedule explain cd/demo", 0, &["office"])]).await?;

        shell.ok("schedule apply office").await?;
        ensure!(schedules.get("office").await?.spec.0.apply_at.is_some(), "applyAt");
        shell.ok("schedule skip office").await?;
        let skipped = schedules.get("office").await?.spec.0.exceptions;
        ensure!(skipped.len() == 1 && skipped[0].power == ExceptionPower::Unchanged, "{skipped:?}");
        shell.each(&[("schedule apply office", 3, &["asks for no state now"])]).await?;
        shell.ok("schedule suspend office").await?;
        ensure!(schedules.get("office").await?.spec.0.suspend, "suspended");
        shell.each(&[("schedule explain cd/demo", 0, &["suspended"])]).await?;
        shell.ok("schedule resume office").await?;
        ensure!(!schedules.get("office").await?.spec.0.suspend, "at work");

        // A cluster is not a schedule, and a schedule is not put to sleep.
        let refused = shell.run("schedule/office").await?;
        ensure!(refused.code != 0 && refused.stderr.contains("schedule apply"), "{refused:?}");
        shell.each(&[("schedule apply nothing", 1, &["nothing"])]).await?;
        let bad = json!({ "spec": { "timeZone": "x" } });
        ensure!(schedules.patch("office", &PatchParams::default(), &Patch::Merge(bad)).await.is_err(), "S3");
        Ok(())
    })
    .await
}
