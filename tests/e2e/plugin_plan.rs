//! `plan`: the hub's verdict, and the controller's answer to a preflight request.

use anyhow::{Context as _, Result};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::hive::api::{ClusterDeployment, RECONCILE_PAUSE};
use shared::hive::preflight::PREFLIGHT;
use testbed::check::webhook_only;
use testbed::cluster::{LABEL, version};
use testbed::{ClusterOptions, Options, World, apply, eventually, with_temp_ns};

use crate::hive_common::{SOON, create};

/// `warn UpgradeInProgress`, in the order in which they are printed.
fn words(item: &Value) -> Vec<String> {
    let findings = item["findings"].as_array().into_iter().flatten();
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    findings.map(|finding| format!("{} {}", text(finding, "severity"), text(finding, "code"))).collect()
}

fn message(item: &Value, code: &str) -> String {
    let mut findings = item["findings"].as_array().into_iter().flatten();
    let found = findings.find(|finding| finding["code"] == code);
    found.and_then(|finding| finding["message"].as_str()).unwrap_or_default().to_owned()
}

fn item(stdout: &str) -> Result<Value> {
    let list: Value = serde_json::from_str(stdout).with_context(|| stdout.to_owned())?;
    assert_eq!(list["kind"], "PlanList");
    Ok(list["items"][0].clone())
}

#[tokio::test]
async fn the_hub_alone_tells_what_the_webhook_would_refuse() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, ns| {
        let clusters: Api<ClusterDeployment> = Api::namespaced(client, &ns);
        let change =
            json!({ "metadata": { "annotations": { keys::PROTECTED: "true" } }, "spec": { "hibernateAfter": "8h" } });
        create(&clusters, "demo", "gcp", &change).await?;
        let before = clusters.get("demo").await?;
        let ran = world.plugin(&["plan", "cd/demo", "-n", &ns, "-v"]).await?;
        assert_eq!(ran.code, 3, "{}", ran.stderr);
        assert!(ran.stdout.starts_with("clusterdeployment.hive.openshift.io/demo: something blocks"), "{}", ran.stdout);
        for part in
            ["block", "V6", "the cluster is protected from sleep", "StillBilled", "persistent disks", "use --fresh"]
        {
            assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
        }
        assert!(!ran.stderr.contains("secrets"), "no Secret is read: {}", ran.stderr);
        assert_eq!(clusters.get("demo").await?.metadata.resource_version, before.metadata.resource_version);

        let refused = world.plugin(&["cd/demo", "-n", &ns]).await?;
        assert_eq!(refused.code, 3, "as it was planned: {}", refused.stderr);

        // No controller runs here, so there is no answer.
        let silent = world.plugin(&["plan", "cd/demo", "-n", &ns, "--fresh", "--timeout", "2s"]).await?;
        silent.says(4, &["does it serve the platform gcp?"])?;
        assert!(silent.stdout.contains("V6"), "what is known is shown all the same: {}", silent.stdout);
        let patch = json!({ "metadata": { "annotations": { RECONCILE_PAUSE: "true", keys::PROTECTED: null } } });
        clusters.patch("demo", &PatchParams::default(), &Patch::Merge(patch)).await?;
        let paused = world.plugin(&["plan", "cd/demo", "-n", &ns, "--fresh"]).await?;
        paused.says(1, &["hibernate-controller does not reconcile it"])?;

        world.kubectl(&["create", "deployment", "web", "--image=x", "-n", &ns]).await?.ok()?;
        let workload = world.plugin(&["plan", "deploy/web", "-n", &ns]).await?;
        assert_eq!(workload.code, 0, "{}", workload.stderr);
        assert_eq!(workload.stdout, "deployment.apps/web: nothing blocks the sleep or the wake\n");
        Ok(())
    })
    .await
}

/// What is to be found on the spoke, and taken away from it again.
async fn burden(spoke: &Client, infra_id: &str) -> Result<()> {
    let expires = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(72);
    let webhook = json!({
        "name": "check.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
        "clientConfig": { "service": { "namespace": "policy", "name": "webhook" } },
        "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"] }],
    });
    let namespace = "openshift-kube-apiserver-operator";
    let objects = [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": "aggregator-client-signer", "namespace": namespace,
                "annotations": { "auth.openshift.io/certificate-not-after": shared::annotation::format::seconds(expires) },
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": "policy" }, "webhooks": [webhook],
        }),
    ];
    apply::all(spoke, &objects).await?;
    let key = rcgen::KeyPair::generate()?;
    let request = rcgen::CertificateParams::new(Vec::new())?.serialize_request(&key)?.pem()?;
    let request: CertificateSigningRequest = serde_json::from_value(json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        // Of what clusters share a name space for, a gate lists only what is its own cluster's.
        "metadata": { "name": "undecided", "labels": { LABEL: infra_id } },
        "spec": {
            "request": k8s_openapi::ByteString(request.into_bytes()), "signerName": "example.com/nobody",
            "usages": ["client auth"],
        },
    }))?;
    Api::all(spoke.clone()).create(&PostParams::default(), &request).await?;
    version::set_upgrade(spoke, Some("4.20.9")).await
}

async fn unburden(spoke: &Client) -> Result<()> {
    let now = DeleteParams::default();
    Api::<ValidatingWebhookConfiguration>::all(spoke.clone()).delete("policy", &now).await?;
    Api::<CertificateSigningRequest>::all(spoke.clone()).delete("undecided", &now).await?;
    let secrets: Api<Secret> = Api::namespaced(spoke.clone(), "openshift-kube-apiserver-operator");
    secrets.delete("aggregator-client-signer", &now).await?;
    version::set_upgrade(spoke, None).await
}

#[tokio::test]
async fn the_controller_looks_when_it_is_asked_and_says_what_it_found() -> Result<()> {
    // A rollout of another test would defer targets of a spoke that is being upgraded.
    let world = World::up(Options::shared()).await?;
    let cluster = world.cluster("planned", ClusterOptions::of_size(3)).await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    let (ns, spoke) = (cluster.namespace().to_owned(), world.spoke(cluster.info().spoke).await?);
    assert!(cluster.get().await?.condition(PREFLIGHT).is_none(), "a cluster that has just woken is left in peace");

    let clear = world.plugin(&["plan", "cd/planned", "-n", &ns, "--fresh", "-o", "json"]).await?;
    let found = item(&clear.stdout)?;
    assert_eq!((clear.code, &found["verdict"]), (0, &json!("Clear")), "{} {}", clear.stdout, clear.stderr);
    assert_eq!(message(&found, "Credentials"), "the credentials work: 3 instances found");
    let condition = cluster.get().await?.condition(PREFLIGHT).cloned().context("condition")?;
    assert_eq!((condition.status.as_str(), condition.reason.as_deref()), ("True", Some("Clear")));

    burden(&spoke, &cluster.info().infra_id).await?;
    let old = item(&world.plugin(&["plan", "cd/planned", "-n", &ns, "-o", "json"]).await?.ok()?)?;
    assert_eq!(old["foundAt"], found["foundAt"], "without --fresh it is what was found before");
    let fresh = world.plugin(&["plan", "cd/planned", "-n", &ns, "--fresh", "-o", "json"]).await;
    let long = world.plugin(&["plan", "cd/planned", "-n", &ns, "--for", "100h", "-o", "json"]).await;
    unburden(&spoke).await?;
    let fresh = item(&fresh?.ok()?)?;
    assert_eq!(fresh["verdict"], "Slowed");
    assert_ne!(fresh["foundAt"], found["foundAt"]);
    let slows = ["warn PendingRequests", "warn UpgradeInProgress", "warn WebhooksOnWake"];
    assert_eq!(words(&fresh)[..3], slows, "{fresh}");
    assert!(message(&fresh, "UpgradeInProgress").contains("from 4.20.8 to 4.20.9"), "{fresh}");
    assert!(message(&fresh, "WebhooksOnWake").contains("policy/check.example.com (pods)"), "{fresh}");
    assert!(words(&fresh).contains(&"info CertificateExpires".to_owned()), "{fresh}");
    let long = item(&long?.ok()?)?;
    assert!(words(&long).contains(&"warn CertificateExpires".to_owned()), "it ends within the planned sleep: {long}");

    // Asleep, the spoke cannot be asked: what it said before stays, with its date.
    cluster.sleep().await?;
    cluster.wait_for_power_state("Hibernating", SOON).await?;
    let asleep = world.plugin(&["plan", "cd/planned", "-n", &ns, "--fresh", "-o", "json"]).await?;
    let asleep = item(&asleep.ok()?)?;
    assert!(words(&asleep).contains(&"info AsksForSleep".to_owned()), "{asleep}");
    assert!(message(&asleep, "SpokeNotAwake").contains("its API server was last checked at 2"), "{asleep}");
    assert!(message(&asleep, "CertificateExpires").contains("aggregator-client-signer"), "{asleep}");
    cluster.remove().await
}

#[tokio::test]
async fn a_spoke_that_is_silent_or_credentials_that_are_gone_are_findings() -> Result<()> {
    let world = World::shared().await?;
    let cluster = world.cluster("mute", ClusterOptions::of_size(1)).await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    let ns = cluster.namespace().to_owned();
    world.kubectl(&["delete", "secret", "mute-admin-kubeconfig", "-n", &ns]).await?.ok()?;
    let ran = world.plugin(&["plan", "cd/mute", "-n", &ns, "--fresh", "-o", "json"]).await?;
    let found = item(&ran.stdout)?;
    assert!(message(&found, "SpokeNotAsked").contains("mute-admin-kubeconfig: does not exist"), "{found}");
    assert_eq!(cluster.get().await?.condition(PREFLIGHT).context("condition")?.status, "Unknown");

    world.kubectl(&["delete", "secret", "mute-aws-creds", "-n", &ns]).await?.ok()?;
    eventually(SOON, "a finding about the credentials", async || {
        let ran = world.plugin(&["plan", "cd/mute", "-n", &ns, "--fresh", "-o", "json"]).await?;
        let found = item(&ran.stdout)?;
        anyhow::ensure!(
            ran.code == 3 && message(&found, "Credentials").contains("mute-aws-creds does not exist"),
            "{found}"
        );
        Ok(())
    })
    .await?;
    cluster.remove().await
}
