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
use testbed::{ClusterOptions, Options, World, apply, ensure_that, eventually};

use crate::hive_common::{SOON, create};
use crate::plugin_common::in_namespace;

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

/// What `plan` finds about one target, in JSON, with its exit code.
async fn plan(world: &World, line: &str) -> Result<(i32, Value)> {
    let ran =
        world.plugin(&["plan"].into_iter().chain(line.split(' ')).chain(["-o", "json"]).collect::<Vec<_>>()).await?;
    let list: Value = serde_json::from_str(&ran.stdout).with_context(|| format!("{ran:?}"))?;
    assert_eq!(list["kind"], "PlanList");
    Ok((ran.code, list["items"][0].clone()))
}

#[tokio::test]
async fn the_hub_alone_tells_what_the_webhook_would_refuse() -> Result<()> {
    in_namespace(World::shared_with(webhook_only()).await?, async |shell| {
        let clusters: Api<ClusterDeployment> = Api::namespaced(shell.client.clone(), &shell.ns);
        let protected = json!({ "annotations": { keys::PROTECTED: "true" } });
        create(&clusters, "demo", "gcp", &json!({ "metadata": protected, "spec": { "hibernateAfter": "8h" } })).await?;
        let before = clusters.get("demo").await?;
        let ran = shell.run("plan cd/demo -v").await?;
        assert_eq!(ran.code, 3, "{}", ran.stderr);
        assert!(ran.stdout.starts_with("clusterdeployment.hive.openshift.io/demo: something blocks"), "{}", ran.stdout);
        for part in
            ["block", "V6", "the cluster is protected from sleep", "StillBilled", "persistent disks", "use --fresh"]
        {
            assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
        }
        assert!(!ran.stderr.contains("secrets"), "no Secret is read: {}", ran.stderr);
        assert_eq!(clusters.get("demo").await?.metadata.resource_version, before.metadata.resource_version);
        // As it was planned.
        shell.each(&[("cd/demo", 3, &[])]).await?;

        // No controller runs here, so there is no answer.
        let silent = shell.run("plan cd/demo --fresh --timeout 2s").await?;
        silent.says(4, &["does it serve the platform gcp?"])?;
        assert!(silent.stdout.contains("V6"), "what is known is shown all the same: {}", silent.stdout);
        let patch = json!({ "metadata": { "annotations": { RECONCILE_PAUSE: "true", keys::PROTECTED: null } } });
        clusters.patch("demo", &PatchParams::default(), &Patch::Merge(patch)).await?;
        shell.each(&[("plan cd/demo --fresh", 1, &["hibernate-controller does not reconcile it"])]).await?;

        shell.kubectl("create deployment web --image=x").await?;
        shell.prints("plan deploy/web", "deployment.apps/web: nothing blocks the sleep or the wake\n").await
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

    let line = format!("cd/planned -n {ns}");
    let asked = format!("{line} --fresh");
    let (code, found) = plan(&world, &asked).await?;
    assert_eq!((code, &found["verdict"]), (0, &json!("Clear")), "{found}");
    assert_eq!(message(&found, "Credentials"), "the credentials work: 3 instances found");
    let condition = cluster.get().await?.condition(PREFLIGHT).cloned().context("condition")?;
    assert_eq!((condition.status.as_str(), condition.reason.as_deref()), ("True", Some("Clear")));

    burden(&spoke, &cluster.info().infra_id).await?;
    let (code, old) = plan(&world, &line).await?;
    assert_eq!((code, &old["foundAt"]), (0, &found["foundAt"]), "without --fresh it is what was found before");
    let fresh = plan(&world, &asked).await;
    let long = plan(&world, &format!("{line} --for 100h")).await;
    unburden(&spoke).await?;
    let ((code, fresh), (long_code, long)) = (fresh?, long?);
    assert_eq!((code, long_code), (0, 0), "{fresh} {long}");
    assert_eq!(fresh["verdict"], "Slowed");
    assert_ne!(fresh["foundAt"], found["foundAt"]);
    let slows = ["warn PendingRequests", "warn UpgradeInProgress", "warn WebhooksOnWake"];
    assert_eq!(words(&fresh)[..3], slows, "{fresh}");
    assert!(message(&fresh, "UpgradeInProgress").contains("from 4.20.8 to 4.20.9"), "{fresh}");
    assert!(message(&fresh, "WebhooksOnWake").contains("policy/check.example.com (pods)"), "{fresh}");
    assert!(words(&fresh).contains(&"info CertificateExpires".to_owned()), "{fresh}");
    assert!(words(&long).contains(&"warn CertificateExpires".to_owned()), "it ends within the planned sleep: {long}");

    // Asleep, the spoke cannot be asked: what it said before stays, with its date.
    cluster.sleep().await?;
    cluster.wait_for_power_state("Hibernating", SOON).await?;
    let (code, asleep) = plan(&world, &asked).await?;
    assert_eq!(code, 0, "{asleep}");
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
    let line = format!("cd/mute -n {ns} --fresh");
    let (_, found) = plan(&world, &line).await?;
    assert!(message(&found, "SpokeNotAsked").contains("mute-admin-kubeconfig: does not exist"), "{found}");
    assert_eq!(cluster.get().await?.condition(PREFLIGHT).context("condition")?.status, "Unknown");

    world.kubectl(&["delete", "secret", "mute-aws-creds", "-n", &ns]).await?.ok()?;
    eventually(SOON, "a finding about the credentials", async || {
        ensure_that(plan(&world, &line).await?, |(code, found)| {
            *code == 3 && message(found, "Credentials").contains("mute-aws-creds does not exist")
        })
    })
    .await?;
    cluster.remove().await
}
