//! What the flags create, and what they leave alone.

use anyhow::{Context as _, Result, ensure};
use jiff::SignedDuration;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::hive::api::ClusterDeployment;

use super::{from_now, get, is_about, requests, rollouts_because, with_fleet};
use crate::plugin_common::Shell;
use crate::terminal::at_a_terminal;

/// What the API server adds to every spec.
fn complete(spec: &Value) -> Value {
    let mut all = json!({
        "action": "Hibernate", "maxTargets": 3, "paused": false, "abort": false, "acceptFailures": 0, "retryFailed": 0,
        "targets": { "kind": "ClusterDeployment", "all": false },
    });
    crate::match_writes::merge(&mut all, spec);
    all
}

/// Command lines without the trailing `-o json`, and the expected spec without notAfter.
fn cases(ns: &str) -> Vec<(Vec<String>, Value)> {
    let labels = json!({ "matchLabels": { "fleet": ns } });
    let here = json!({ "matchLabels": { "kubernetes.io/metadata.name": ns } });
    let named = |names: &[&str]| names.iter().map(|name| json!({ "namespace": ns, "name": name })).collect::<Vec<_>>();
    let selector = format!("fleet={ns}");
    let line = |text: &str| text.split('|').map(|word| word.replace("FLEET", &selector).replace("NS", ns)).collect();
    vec![
        (
            line("-l|FLEET|-n|NS|--max-failures|5%"),
            json!({ "maxFailures": "5%", "targets": { "selector": labels, "namespaceSelector": here } }),
        ),
        (
            line("-l|FLEET|-A|--canary|NS/c|--canary|tier=x|--pause-after-canary|--paused"),
            json!({
                "paused": true, "targets": { "selector": labels },
                "groups": [
                    { "name": "canary", "names": named(&["c"]), "pauseAfter": true },
                    { "name": "canary-2", "selector": { "matchLabels": { "tier": "x" } }, "pauseAfter": true },
                ],
            }),
        ),
        (
            line(
                "--all|-n|NS|--canary|b|--not-before|2036-01-01T00:00:00Z|--not-after|2036-01-01T01:00:00Z|--until|2036-01-02T00:00:00Z",
            ),
            json!({
                "notBefore": "2036-01-01T00:00:00Z", "wakeAt": "2036-01-02T00:00:00Z",
                "targets": { "namespaceSelector": here }, "groups": [{ "name": "canary", "names": named(&["b"]), "pauseAfter": false }],
            }),
        ),
        (
            line("resume|-l|FLEET|-A|--max-concurrency|1|--hold-awake|--until|2036-01-02T00:00:00Z"),
            json!({
                "action": "Resume", "maxConcurrency": 1, "holdAwakeUntil": "2036-01-02T00:00:00Z",
                "targets": { "selector": labels },
            }),
        ),
    ]
}

#[tokio::test]
async fn the_created_object_matches_the_flags() -> Result<()> {
    with_fleet(async |Shell { world, client, ns }| {
        for (args, spec) in cases(ns) {
            let reason = format!("{ns} {}", rand::random::<u32>());
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let ran = world.plugin(&[&args[..], &["-o", "json", "--reason", &reason]].concat()).await?;
            ensure!(ran.code == 0, "{args:?}: {}", ran.stderr);
            let printed: Value = serde_json::from_str(&ran.stdout)?;
            let [stored] = &rollouts_because(client, &reason).await?[..] else { anyhow::bail!("{args:?}: not one") };
            let mut found = json!(stored.spec);
            ensure!(printed["spec"] == found && printed["metadata"]["name"] == stored.name_any(), "{printed}");
            let expected = complete(&spec);
            found.as_object_mut().context("spec")?.retain(|key, _| key != "notAfter" && key != "reason");
            ensure!(found == expected, "{args:?}: {found:#}\nexpected {expected:#}");
            let not_after = from_now(stored.spec.not_after.0);
            ensure!(args.contains(&"--not-after") || is_about(not_after, SignedDuration::from_hours(2)), "{not_after}");
            let word = stored.spec.action.to_string().to_lowercase();
            ensure!(stored.name_any().starts_with(&format!("{word}-20")), "{}", stored.name_any());
            let managers: Vec<_> =
                stored.managed_fields().iter().filter_map(|entry| entry.manager.as_deref()).collect();
            ensure!(managers == [keys::PLUGIN], "{managers:?}");
            let count = expected["maxTargets"].as_u64().context("count")?;
            ensure!(ran.stderr.contains(&format!(" {count} targets as rollout ")), "it shows the count: {ran:?}");
        }
        let clusters: Api<ClusterDeployment> = Api::namespaced(client.clone(), ns);
        for name in ["a", "b", "c"] {
            ensure!(clusters.get(name).await?.spec.power_state.is_none(), "the plugin changes no target itself");
        }
        let all = world.plugin(&["--all", "-A", "--paused", "-o", "json"]).await?.json()?;
        ensure!(all["spec"]["targets"] == json!({ "kind": "ClusterDeployment", "all": true }), "{all}");
        let plain = world.plugin(&["a", "-n", ns, "--paused"]).await?.ok()?;
        ensure!(plain.starts_with("powerrollout.hibernate.sh/hibernate-") && plain.ends_with(" created\n"), "{plain}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn dry_runs_store_nothing() -> Result<()> {
    with_fleet(async |Shell { world, client, ns }| {
        let base = ["--all", "-n", ns, "--max-concurrency", "2", "--reason", ns, "-v"];
        for (strategy, suffix, posts) in [("client", " (dry run)", 0), ("server", " (server dry run)", 1)] {
            let flag = format!("--dry-run={strategy}");
            let ran = world.plugin(&[&base[..], &[&flag]].concat()).await?;
            ensure!(ran.code == 0 && ran.stdout.ends_with(&format!(" created{suffix}\n")), "{ran:?}");
            ensure!(requests(&ran).iter().filter(|line| line.starts_with("POST")).count() == posts, "{}", ran.stderr);
            let yaml = world.plugin(&[&base[..], &[&flag, "-o", "yaml"]].concat()).await?.ok()?;
            ensure!(yaml.contains("kind: PowerRollout") && yaml.contains("maxTargets: 3"), "{yaml}");
        }
        let name = world.plugin(&[&base[..], &["--dry-run=server", "-o", "name"]].concat()).await?.ok()?;
        ensure!(name.starts_with("powerrollout.hibernate.sh/hibernate-") && name.lines().count() == 1, "{name}");
        ensure!(rollouts_because(client, ns).await?.is_empty(), "a dry run was stored");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn one_confirmation_shows_the_count_and_the_canaries() -> Result<()> {
    with_fleet(async |Shell { world, client, ns }| {
        let args = ["--all", "-n", ns, "--canary", "a", "--reason", ns];
        let declined = at_a_terminal(world, &args, "n\n").await?;
        let asks = "About to hibernate 3 targets as rollout hibernate-";
        let canary = format!("canary: {ns}/a");
        declined.says(1, &["not confirmed, nothing was changed", asks, &canary, "then the remaining 2"])?;
        ensure!(declined.stderr.matches("Continue?").count() == 1, "{declined:?}");
        ensure!(rollouts_because(client, ns).await?.is_empty(), "declined, and created");
        let confirmed = at_a_terminal(world, &args, "y\n").await?.ok()?;
        ensure!(confirmed.contains(" created"), "{confirmed}");
        let unasked = at_a_terminal(world, &[&args[..], &["--yes"]].concat(), "").await?;
        ensure!(unasked.code == 0 && !unasked.stderr.contains("Continue?"), "{unasked:?}");
        ensure!(rollouts_because(client, ns).await?.len() == 2, "each was created once");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn plan_shows_the_order_and_what_waits() -> Result<()> {
    with_fleet(async |Shell { world, client, ns }| {
        let clusters: Api<ClusterDeployment> = Api::namespaced(client.clone(), ns);
        let protect = json!({ "metadata": { "annotations": { keys::PROTECTED: "true" } } });
        clusters.patch("b", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(protect)).await?;
        let args = ["plan", "--all", "-n", ns, "--canary", "c", "--max-concurrency", "1"];
        let ran = world.plugin(&[&args[..], &["-o", "json"]].concat()).await?;
        let plan: Value = serde_json::from_str(&ran.stdout).with_context(|| ran.stderr.clone())?;
        let items = plan["items"].as_array().context("items")?;
        let order: Vec<(&str, &str)> =
            items.iter().filter_map(|item| Some((item["name"].as_str()?, item["state"].as_str()?))).collect();
        // No webhook answers on this hub, so its rules alone do not refuse.
        ensure!(order.first() == Some(&("c", "Starts")) && order.get(1) == Some(&("a", "Starts")), "{order:?}");
        ensure!(plan["estimatedSeconds"].as_u64() >= Some(12 * 60), "{plan}");
        let table = world.plugin(&args).await?;
        ensure!(
            table.stdout.contains("Rough estimate: ") && table.stdout.contains("aws/eu-central-1/creds"),
            "{table:?}"
        );
        for (args, code, part) in [
            (&["plan", "--all", "-n", ns, "--canary", "no"][..], 1, "--canary no: not among the 3 targets"),
            (&["plan", "deploy/x", "--paused"], 2, "omit the options for a rollout"),
        ] {
            let ran = world.plugin(args).await?;
            ran.says(code, &[part])?;
        }
        ensure!(get(client, "none").await.is_err(), "plan creates nothing");
        Ok(())
    })
    .await
}
