//! The plugin and user clusters of KKP on a real API server, the seed. The test plays the controller: it answers
//! preflights and writes the condition. KKP's webhooks are played by webhooks of the same name.

mod user;
mod webhook;

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::json;
use shared::annotation::{format, keys as common};
use shared::finding::{Finding, Severity};
use shared::kkp::keys;
use shared::kkp::phase::Phase;
use testbed::{ensure_that, eventually};

use self::user::User;
use self::webhook::Webhook;
use crate::terminal::at_a_terminal;

const SOON: Duration = Duration::from_mins(2);

fn finding(severity: Severity, code: &str) -> Finding {
    Finding::new(severity, code, format!("{code} is so"))
}

#[tokio::test]
async fn a_person_reads_what_a_dehydration_does_and_confirms_it() -> Result<()> {
    let user = User::new("asked").await?;
    let target = user.target();
    let warned = [finding(Severity::Warn, "LoadBalancers")];
    let args = [target.as_str(), "--reason", "weekend"];

    let declined = user.answering(&warned, at_a_terminal(&user.world, &args, "n\n")).await?;
    declined.refuses(1, &[])?;
    assert_eq!(user.annotation(keys::POWER_STATE).await?, None);

    let confirmed = user.answering(&warned, at_a_terminal(&user.world, &args, "y\n")).await?;
    let parts = [
        "About to hibernate 1 target:",
        "7 Pods are deleted, with the grace period. PodDisruptionBudgets are not honored.",
        "5 Machines are deleted. A wake creates 5, by MachineDeployment: kube-system/a (3), kube-system/b (2).",
        "3 volumes and 2 load balancers remain and are still billed.",
        "Quota in use: cpu 8.",
        "KKP cannot be upgraded to a release that no longer offers version 1.34.1",
        "warning: LoadBalancers: LoadBalancers is so",
        "Continue? [y/N]",
    ];
    confirmed.says(0, &parts)?;
    let name = format!("cluster.kubermatic.k8c.io/{}", user.id);
    assert_eq!(confirmed.stdout, format!("{name} dehydration requested\n"));
    assert_eq!(user.annotation(keys::POWER_STATE).await?.as_deref(), Some("Hibernating"));
    assert_eq!(user.annotation(common::REASON).await?.as_deref(), Some("weekend"));

    let again = user.run("IT").await?.ok()?;
    assert_eq!(again, format!("{name} unchanged\n"), "what is not changed is not confirmed");
    Ok(())
}

#[tokio::test]
async fn phases_are_followed_and_shown_down_and_up() -> Result<()> {
    let user = User::new("followed").await?;
    let intent = async |state: &str| {
        eventually(SOON, "intent", async || {
            ensure_that(user.annotation(keys::POWER_STATE).await?, |found| found.as_deref() == Some(state))
        })
        .await
    };
    let down = async {
        intent("Hibernating").await?;
        for (phase, message) in [
            (Phase::Draining, "waiting for Pods to end: shop/web"),
            (Phase::ScalingDownMachines, "waiting for Machines to go: a-1"),
            (Phase::Dehydrated, "asleep since now. 5 machines come back with a wake"),
        ] {
            tokio::time::sleep(Duration::from_millis(500)).await;
            user.record_of_sleep().await?;
            user.phase(Some((phase, message))).await?;
        }
        anyhow::Ok(())
    };
    let both = async { tokio::try_join!(user.run("dehydrate IT --yes --wait --timeout 2m"), down) };
    let (ran, ()) = user.answering(&[], Box::pin(both)).await?;
    let parts = ["7 Pods are deleted", "Draining: waiting for Pods to end: shop/web", "ScalingDownMachines: waiting"];
    ran.says(0, &parts)?;
    assert!(ran.stdout.contains("dehydration requested\n") && ran.stdout.contains("dehydrated after "), "{ran:?}");

    // Row 6: KKP says Running and healthy all the time.
    user.annotate(json!({ keys::CERTIFICATES_EXPIRE_AT: format::seconds(Timestamp::now()) })).await?;
    let shown = user.json().await?;
    assert_eq!((&shown["desired"], &shown["observed"]), (&json!("Hibernating"), &json!("Dehydrated")));
    assert_eq!(shown["remaining"], json!({ "volumes": 3, "loadBalancers": 2 }));
    assert_eq!(shown["scaledDownMachines"], 5);
    for line in ["status", "status clusters -o wide", &format!("status cluster -l test={}", user.id)] {
        let table = user.run(line).await?;
        table.says(0, &["the first certificate of its control plane has expired"])?;
        assert!(table.stdout.contains(&user.id) && table.stdout.contains("Dehydrated"), "{}", table.stdout);
    }
    let wide = user.run("status IT -o wide").await?.ok()?;
    for part in ["DISPLAY-NAME", "MACHINES   VOLUMES   LOAD-BALANCERS", "expired"] {
        assert!(wide.contains(part), "{part}: {wide}");
    }

    let up = async {
        intent("Running").await?;
        user.phase(Some((Phase::WaitingForNodes, "1 of 5 Nodes are ready"))).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        user.phase(None).await
    };
    let (ran, ()) = tokio::try_join!(user.run("hydrate IT --wait --timeout 2m"), up)?;
    ran.says(0, &["WaitingForNodes: 1 of 5 Nodes are ready"])?;
    assert!(ran.stdout.contains("hydration requested\n") && ran.stdout.contains("running after "), "{}", ran.stdout);
    Ok(())
}

#[tokio::test]
async fn a_refusal_ends_before_any_intent_is_written() -> Result<()> {
    let user = User::new("refused").await?;
    let target = user.target();
    let bare = [finding(Severity::Forceable, "BarePods")];
    let grave = [finding(Severity::Block, "NotRunning"), finding(Severity::Forceable, "BarePods")];
    for (findings, line, part) in [
        (&bare[..], "IT --yes", "(--force accepts this):\n  BarePods: BarePods is so"),
        (&grave, "IT --yes", "no hibernation was requested:\n  NotRunning: NotRunning is so\n  BarePods"),
        (&grave, "IT --yes --force", "no hibernation was requested:\n  NotRunning: NotRunning is so\n"),
    ] {
        user.answering(findings, user.run(line)).await?.refuses(3, &[part])?;
    }
    let at_terminal = user.answering(&bare, at_a_terminal(&user.world, &[&target], "y\n")).await?;
    assert_eq!(at_terminal.code, 3, "without a question: {}", at_terminal.stderr);
    assert!(!at_terminal.stderr.contains("[y/N]"), "{}", at_terminal.stderr);
    assert_eq!(user.annotation(keys::POWER_STATE).await?, None);

    let plan = user.answering(&grave, user.run("plan IT --fresh")).await?;
    assert_eq!(plan.code, 3, "{}", plan.stderr);
    for part in ["something blocks", "NotRunning", "(--force accepts this)", "3 volumes and 2 load balancers remain"] {
        assert!(plan.stdout.contains(part), "{part}: {}", plan.stdout);
    }

    user.run("IT").await?.refuses(2, &["stdin is not a terminal, so pass --yes"])?;

    let forced = user.answering(&bare, user.run("IT --yes --force")).await?.ok()?;
    assert!(forced.ends_with("dehydration requested, with force\n"), "{forced}");
    assert_eq!(user.annotation(keys::FORCE).await?.as_deref(), Some("true"));
    user.run("resume IT").await?.ok()?;
    user.answering(&[], user.run("IT --yes")).await?.ok()?;
    assert_eq!(user.annotation(keys::FORCE).await?, None, "a request without a force withdraws it");
    Ok(())
}

#[tokio::test]
async fn without_a_controller_only_yes_goes_on() -> Result<()> {
    let (asked, scripted) = (User::new("silent").await?, User::new("scripted").await?);
    let one = asked.target();
    let args = [one.as_str()];
    let (asked_ran, scripted_ran) =
        tokio::try_join!(at_a_terminal(&asked.world, &args, "y\n"), scripted.run("IT --yes"))?;
    let silence = "hibernate-controller may not run with --kkp here, or this is a KKP master";
    asked_ran.says(4, &[silence, "no sleep was requested"])?;
    assert_eq!(asked.annotation(keys::POWER_STATE).await?, None);
    scripted_ran.says(0, &["Warning", silence])?;
    assert_eq!(scripted.annotation(keys::POWER_STATE).await?.as_deref(), Some("Hibernating"));
    Ok(())
}

/// Row 27.
#[tokio::test]
async fn where_kkp_refuses_every_write_the_record_takes_the_request() -> Result<()> {
    let user = User::new("unwritable").await?;
    user.annotate(json!({ keys::POWER_STATE: "Hibernating", keys::POWER_STATE_AT: format::seconds(Timestamp::now()) }))
        .await?;
    user.phase(Some((Phase::Dehydrated, "asleep since now"))).await?;
    let down = Webhook::new(&user.world, "clusters.kubermatic.io", &user.id, None).await?;

    let lacks = [
        "failed calling webhook",
        "hibernate-record in namespace cluster-",
        "does not exist, so nothing can take the request instead",
    ];
    user.run("resume IT").await?.says(1, &lacks)?;
    let status = user.run("status IT").await?;
    assert!(status.stderr.contains("its record does not exist, although it is in phase Dehydrated"), "{status:?}");

    for (text, part) in [("{}", "it is malformed"), ("{\"v\":2}", "it has version 2, and this release reads version 1")]
    {
        user.record(text).await?;
        user.run("resume IT").await?.says(1, &[part])?;
        assert!(user.run("status IT").await?.stderr.contains(part));
        assert_eq!(user.record_annotation(keys::POWER_STATE).await?, None, "nothing is half-changed");
    }

    user.record_of_sleep().await?;
    user.run("resume IT --dry-run=server").await?.ok()?;
    assert_eq!(user.record_annotation(keys::POWER_STATE).await?, None, "a dry run");
    let woken = user.run("resume IT --reason needed").await?;
    woken.says(0, &["the Cluster cannot be updated; the request was written to "])?;
    assert!(woken.stdout.ends_with("hydration requested\n"), "{}", woken.stdout);
    assert_eq!(user.record_annotation(keys::POWER_STATE).await?.as_deref(), Some("Running"));
    assert_eq!(user.annotation(keys::POWER_STATE).await?.as_deref(), Some("Hibernating"));
    let shown = user.json().await?;
    let newest = (&json!("Running"), &json!("needed"));
    assert_eq!((&shown["desired"], &shown["reason"]), newest, "the newest request counts");
    let again = user.run("resume IT").await?;
    assert!(again.stdout.ends_with("unchanged\n"), "{} {}", again.stdout, again.stderr);

    // A sleep must change the Cluster: it is refused with KKP's answer.
    let refusal = ["failed calling webhook", "the Cluster cannot be updated, and ConfigMap"];
    user.run("IT --yes").await?.refuses(1, &refusal)?;
    assert_eq!(user.record_annotation(keys::POWER_STATE).await?.as_deref(), Some("Running"));
    down.remove().await?;

    user.run("IT --yes").await?.says(0, &["no preflight while an operation is under way (Dehydrated)"])?;
    assert_eq!(user.json().await?["desired"], "Hibernating", "the Cluster's request is newer again");
    Ok(())
}

/// Row 27: a datacenter that left the Seed is a denial, of anything; ours is of this request.
#[tokio::test]
async fn a_denial_by_our_webhook_is_final_and_one_by_kkps_is_not() -> Result<()> {
    let user = User::new("denied").await?;
    user.annotate(json!({ keys::POWER_STATE: "Hibernating" })).await?;
    user.phase(Some((Phase::Dehydrated, "asleep since now"))).await?;
    user.record_of_sleep().await?;
    for (name, code, on_record) in
        [("into-sleep.hibernate.sh", 3, None), ("clusters.kubermatic.io", 0, Some("Running"))]
    {
        let webhook = Webhook::new(&user.world, name, &user.id, Some("spec.cloud.dc: invalid datacenter name")).await?;
        user.run("resume IT").await?.says(code, &["invalid datacenter name"])?;
        assert_eq!(user.record_annotation(keys::POWER_STATE).await?.as_deref(), on_record, "{name}");
        webhook.remove().await?;
    }

    // Of a sleep, KKP's answer is the last word.
    let awake = User::new("stuck").await?;
    let webhook = Webhook::new(&awake.world, "clusters.kubermatic.io", &awake.id, Some("invalid datacenter")).await?;
    let ran = awake.run("IT --yes").await?;
    ran.refuses(3, &["refused by admission webhook \"clusters.kubermatic.io\": invalid datacenter"])?;
    assert!(!ran.stderr.contains("hibernate-record"), "{}", ran.stderr);
    webhook.remove().await
}

#[tokio::test]
async fn what_cannot_be_found_or_seen_is_explained() -> Result<()> {
    let user = User::new("known").await?;
    let nowhere = "cluster.kubermatic.k8c.io/nowhere not found; KKP's user clusters live on their seed: use the \
                   seed's kubeconfig";
    user.run("cluster/nowhere --yes").await?.says(1, &[nowhere, "seeds known here: eu"])?;
    let hint = format!("is the display name of cluster.kubermatic.k8c.io/{}: use its ID", user.id);
    user.run(&format!("status cluster/shop-of-{}", user.id)).await?.says(1, &[&hint])?;

    let whole = user.run(&format!("ns/cluster-{} --yes", user.id)).await?;
    whole.says(3, &[&format!("name {} instead", user.target())])?;
    let instead = whole.stderr.split(": name ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    user.run(&format!("{instead} --dry-run=client")).await?.ok()?;

    let kubeconfig = user.world.kubeconfig_of("bob")?.display().to_string();
    user.run(&format!("IT --yes --kubeconfig {kubeconfig}")).await?.says(1, &["forbidden", "clusters"])?;

    for (line, part) in [
        ("cluster.cluster.x-k8s.io/x", "unknown type"),
        ("cd/x --force", "not found"),
        ("cluster --all --for 14h", "--for and --until need a controller"),
    ] {
        let ran = user.run(line).await?;
        assert!(ran.code != 0 && ran.stderr.contains(part), "{line}: {}", ran.stderr);
    }
    let dry = user.run(&format!("cluster -l test={} --dry-run -o yaml", user.id)).await?.ok()?;
    assert!(dry.contains("hibernate.sh/power-state: Hibernating"), "no question for a dry run: {dry}");
    let completed = user.run("__complete status cluster/").await?.ok()?;
    assert!(completed.contains(&user.target()), "{completed}");
    let completed = user.run(&format!("__complete {}", &user.id[..3])).await?.ok()?;
    assert!(completed.contains(&user.id), "a name without a type: {completed}");
    Ok(())
}
