//! The rules for `ClusterDeployments` by kubectl on a real API server: how a stamp, a denial and a warning reach the
//! user, what a request too large does, and what is left without the webhook. Each rule has its rows in
//! `shared::hive::admission`; `policy_twin` compares them with the webhook on thousands of writes.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::hive::api::ClusterDeployment;
use testbed::check::Says::{Denies, Nothing, Warns};
use testbed::check::{installed, webhook_only};
use testbed::supervisor::programs::Start;
use testbed::world::run::Ran;
use testbed::{Program, World, eventually, with_temp_ns};

use crate::match_writes::merge;

const SOON: Duration = Duration::from_mins(1);
const HIVE: &str = "system:serviceaccount:hive:hive-controllers";

/// Objects in one namespace, and alice who changes them.
struct Bench {
    world: World,
    api: Api<ClusterDeployment>,
    namespace: String,
}

impl Bench {
    fn new(world: &World, client: Client, namespace: String) -> Self {
        Self { world: world.clone(), api: Api::namespaced(client, &namespace), namespace }
    }

    /// An installed, sound cluster with a patch over it.
    async fn cluster(&self, name: &str, patch: &Value) -> Result<()> {
        let mut cluster = installed(name, "aws");
        merge(&mut cluster, patch);
        self.api.create(&PostParams::default(), &serde_json::from_value(cluster)?).await?;
        Ok(())
    }

    async fn kubectl(&self, user: &[&str], args: &[&str]) -> Result<Ran> {
        self.world.kubectl(&[&["-n", &self.namespace], user, args].concat()).await
    }

    async fn patch_as(&self, user: &[&str], name: &str, patch: &Value) -> Result<Ran> {
        let patch = patch.to_string();
        self.kubectl(user, &["patch", "cd", name, "--type", "merge", "-p", &patch]).await
    }

    /// `kubectl patch cd NAME` by alice.
    async fn patch(&self, name: &str, patch: &Value) -> Result<Ran> {
        self.patch_as(&["--as", "alice"], name, patch).await
    }

    async fn sleep(&self, name: &str) -> Result<Ran> {
        self.patch(name, &json!({ "spec": { "powerState": "Hibernating" } })).await
    }

    async fn annotation(&self, name: &str, key: &str) -> Result<Option<String>> {
        Ok(self.api.get(name).await?.metadata.annotations.unwrap_or_default().remove(key))
    }

    async fn state(&self, name: &str) -> Result<String> {
        Ok(self.api.get(name).await?.spec.power_state.unwrap_or_default())
    }
}

fn annotated(key: &str, value: impl Into<Value>) -> Value {
    json!({ "metadata": { "annotations": { key: value.into() } } })
}

#[tokio::test]
async fn a_change_of_state_is_stamped_with_who_and_when() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::new(&world, client, namespace);
        bench.cluster("demo", &json!({})).await?;
        let patch = json!({
            "metadata": { "annotations": { keys::REQUESTED_BY: "mallory", keys::REQUESTED_AT: "2020-01-01T00:00:00Z", keys::REASON: "weekend" } },
            "spec": { "powerState": "Hibernating" },
        });
        Nothing.check(&bench.patch("demo", &patch).await?)?;
        assert_eq!(bench.annotation("demo", keys::REQUESTED_BY).await?.as_deref(), Some("alice"));
        assert_eq!(bench.annotation("demo", keys::REASON).await?.as_deref(), Some("weekend"));
        let at: jiff::Timestamp = bench.annotation("demo", keys::REQUESTED_AT).await?.context("stamp")?.parse()?;
        assert!(jiff::Timestamp::now().duration_since(at).as_secs() < 60);

        let bob = ["--as", "bob", "--as-group", "system:masters"];
        Nothing.check(&bench.patch_as(&bob, "demo", &json!({ "spec": { "powerState": "Running" } })).await?)?;
        assert_eq!(bench.annotation("demo", keys::REQUESTED_BY).await?.as_deref(), Some("bob"));
        assert_eq!(bench.annotation("demo", keys::REASON).await?, None, "the reason of the sleep is no reason for the wake");

        let hold = json!({ keys::HOLD_AWAKE_UNTIL: "2126-01-01T00:00:00Z", keys::HOLD_AWAKE_BY: "mallory" });
        Nothing.check(&bench.patch("demo", &json!({ "metadata": { "annotations": hold } })).await?)?;
        assert_eq!(bench.annotation("demo", keys::HOLD_AWAKE_BY).await?.as_deref(), Some("alice"));
        Denies("held awake until 2126-01-01T00:00:00Z by alice").check(&bench.sleep("demo").await?)?;
        Nothing.check(&bench.patch("demo", &annotated(keys::HOLD_AWAKE_UNTIL, Value::Null)).await?)?;
        assert_eq!(bench.annotation("demo", keys::HOLD_AWAKE_BY).await?, None, "the name goes with the hold");
        Ok(())
    })
    .await
}

/// `kubectl replace`, and Argo CD with Replace=true: the file has no stamps.
#[tokio::test]
async fn a_file_without_stamps_replaces_a_sleeping_cluster_and_the_stamps_stay() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::new(&world, client, namespace);
        bench.cluster("demo", &json!({})).await?;
        Nothing.check(&bench.sleep("demo").await?)?;
        let stamp = async || {
            let by = bench.annotation("demo", keys::REQUESTED_BY).await?;
            anyhow::Ok((by, bench.annotation("demo", keys::REQUESTED_AT).await?))
        };
        let before = stamp().await?;
        assert_eq!(before.0.as_deref(), Some("alice"));
        let mut file = installed("demo", "aws");
        merge(
            &mut file,
            &json!({ "metadata": { "labels": { "app": "demo" } }, "spec": { "powerState": "Hibernating" } }),
        );
        let replace = async |file: &Value| {
            let folder = tempfile::tempdir()?;
            let path = folder.path().join("file.json");
            std::fs::write(&path, file.to_string())?;
            let path = path.display().to_string();
            bench.kubectl(&["--as", "argo", "--as-group", "system:masters"], &["replace", "-f", &path]).await
        };
        Nothing.check(&replace(&file).await?)?;
        assert_eq!(stamp().await?, before);
        assert_eq!(bench.api.get("demo").await?.metadata.labels.unwrap_or_default()["app"], "demo");
        merge(&mut file, &annotated(keys::REQUESTED_BY, "mallory"));
        Denies("cannot be edited: the webhook sets it from the request that changes powerState")
            .check(&replace(&file).await?)?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_denial_and_a_warning_reach_the_user_on_every_way_in() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::new(&world, client, namespace);
        bench.cluster("demo", &json!({ "spec": { "installed": false } })).await?;
        Warns("the cluster is not installed yet").check(&bench.sleep("demo").await?)?;
        for (patch, says) in [
            (
                annotated(keys::REQUESTED_BY, "mallory"),
                Denies("cannot be edited: the webhook sets it from the request that changes powerState"),
            ),
            (
                annotated(keys::PROTECTED, "yes"),
                Denies("metadata.annotations[hibernate.sh/protected]: found \"yes\", must be"),
            ),
            (
                annotated(keys::WAKE_AT, "2026-01-02T00:00:00Z"),
                Warns("hibernate.sh/wake-at 2026-01-02T00:00:00Z has passed: it is dropped"),
            ),
            (
                json!({ "spec": { "hibernateAfter": "5m" } }),
                Warns("spec.hibernateAfter 5m0s is shorter than 10 minutes"),
            ),
        ] {
            says.check(&bench.patch("demo", &patch).await?)?;
        }
        assert_eq!(bench.annotation("demo", keys::WAKE_AT).await?, None);

        bench.cluster("born-asleep", &json!({ "spec": { "powerState": "Hibernating" } })).await?;
        assert!(bench.annotation("born-asleep", keys::REQUESTED_BY).await?.is_some_and(|by| !by.is_empty()));
        let mut protected = annotated(keys::PROTECTED, "true");
        bench.cluster("protected", &protected).await?;
        merge(&mut protected, &json!({ "spec": { "powerState": "Hibernating" } }));
        let error = bench.cluster("born-protected", &protected).await.unwrap_err();
        let Some(kube::Error::Api(status)) = error.downcast_ref() else {
            panic!("{error:?} is no answer of the API server")
        };
        assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"));
        let causes = status.details.as_ref().map(|details| details.causes.clone()).unwrap_or_default();
        assert_eq!(causes[0].field, "metadata.annotations[hibernate.sh/protected]");

        // Hive's own accounts are warned instead.
        let hive = ["--as", HIVE, "--as-group", "system:serviceaccounts:hive"];
        let ran = bench.patch_as(&hive, "protected", &json!({ "spec": { "powerState": "Hibernating" } })).await?;
        Warns("metadata.annotations[hibernate.sh/protected]: the cluster is protected from sleep").check(&ran)?;
        assert_eq!(bench.annotation("protected", keys::REQUESTED_BY).await?.as_deref(), Some(HIVE));

        // V3: not to be had without the API server.
        bench.cluster("leaving", &json!({ "metadata": { "finalizers": ["example.com/wait"] } })).await?;
        bench.api.delete("leaving", &DeleteParams::default()).await?;
        let ran = bench.sleep("leaving").await?;
        Nothing.check(&bench.patch("leaving", &json!({ "metadata": { "finalizers": null } })).await?)?;
        Denies("metadata.deletionTimestamp: the cluster is being deleted and cannot be put to sleep").check(&ran)
    })
    .await
}

/// The schema has no limit on these fields. What is too long is denied by its name, and hides no forgery beside it.
#[tokio::test]
async fn a_field_that_cannot_be_read_is_denied_and_hides_nothing() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::new(&world, client, namespace);
        let long = "1h".repeat(2_500);
        let forged = json!({ keys::REQUESTED_BY: "mallory", keys::ROLLOUT: "{}" });
        bench.cluster("demo", &json!({})).await?;
        let hidden = json!({ "metadata": { "annotations": forged }, "spec": { "hibernateAfter": long } });
        let ran = bench.patch("demo", &hidden).await?;
        for says in [
            "spec.hibernateAfter: found \"1h1h",
            "(5002 bytes), which cannot be read: must be a text of at most 4 KiB",
            "metadata.annotations[hibernate.sh/requested-by]: cannot be edited",
            "metadata.annotations[hibernate.sh/rollout]: cannot be edited",
        ] {
            Denies(says).check(&ran)?;
        }
        let pool = json!({ "poolName": long, "namespace": "pools" });
        bench.cluster("stored", &json!({ "spec": { "clusterPoolRef": pool } })).await.unwrap_err();
        // Hive's own accounts are warned. What they store blocks nothing but sleep.
        let hive = ["--as", HIVE, "--as-group", "system:serviceaccounts:hive"];
        let ran = bench.patch_as(&hive, "demo", &json!({ "spec": { "hibernateAfter": long } })).await?;
        Warns("spec.hibernateAfter: found").check(&ran)?;
        Nothing.check(&bench.patch("demo", &annotated(keys::PROTECTED, "false")).await?)?;
        Nothing.check(&bench.patch("demo", &json!({ "metadata": { "finalizers": ["example.com/wait"] } })).await?)?;
        Nothing.check(&bench.patch("demo", &json!({ "metadata": { "finalizers": null } })).await?)?;
        Denies("spec.hibernateAfter: found").check(&bench.sleep("demo").await?)?;
        Nothing.check(&bench.patch("demo", &json!({ "spec": { "hibernateAfter": null } })).await?)?;
        Nothing.check(&bench.sleep("demo").await?)?;
        // At any length that the API server takes, the conditions that match the write stay within its budget.
        let longest = Patch::Merge(json!({ "spec": { "hibernateAfter": "1h".repeat(300_000) } }));
        match bench.api.patch("demo", &PatchParams::default(), &longest).await {
            Err(kube::Error::Api(status)) => ensure!(status.message.contains("(600002 bytes)"), "{}", status.message),
            other => panic!("{other:?} is no refusal"),
        }
        // A wake passes, with the true stamp and without the forged claim.
        let wake = json!({
            "metadata": { "annotations": forged },
            "spec": { "powerState": "Running", "hibernateAfter": long, "clusterMetadata": { "infraID": long } },
        });
        Warns("spec.hibernateAfter: found").check(&bench.patch("demo", &wake).await?)?;
        assert_eq!(bench.annotation("demo", keys::REQUESTED_BY).await?.as_deref(), Some("alice"));
        assert_eq!(bench.annotation("demo", keys::ROLLOUT).await?, None);
        Ok(())
    })
    .await
}

/// One after the other, in a world of its own, because it stops what all others need.
#[tokio::test]
async fn without_the_webhook_only_sleep_is_refused() -> Result<()> {
    let world = World::up(webhook_only()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::new(&world, client.clone(), namespace);
        bench.cluster("asleep", &json!({})).await?;
        bench.cluster("awake", &json!({})).await?;
        Nothing.check(&bench.sleep("asleep").await?)?;

        // V12: the mutating webhook alone is out of order.
        let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        configurations.delete(keys::WEBHOOK, &DeleteParams::default()).await?;
        eventually(SOON, "refusal of an unstamped sleep", async || {
            Denies("the audit stamp is missing because the mutating webhook did not run")
                .check(&bench.sleep("awake").await?)
        })
        .await?;

        world.signal("webhook", "stop").await?;
        Denies("failed calling webhook \"into-sleep.hibernate.sh\"").check(&bench.sleep("awake").await?)?;
        Nothing.check(&bench.kubectl(&["--as", "alice"], &["label", "cd", "awake", "team=a"]).await?)?;
        Nothing.check(
            &bench.kubectl(&["--as", "alice"], &["annotate", "cd", "awake", "hibernate.sh/reason=x", "team=a"]).await?,
        )?;
        Nothing.check(&bench.patch("awake", &json!({ "spec": { "hibernateAfter": "8h" } })).await?)?;
        Nothing.check(&bench.patch("asleep", &json!({ "spec": { "powerState": "Running" } })).await?)?;
        assert_eq!((bench.state("asleep").await?.as_str(), bench.state("awake").await?.as_str()), ("Running", ""));

        world.start(&Start::new(Program::Webhook)).await?;
        eventually(SOON, "sleep once the webhook is back", async || Nothing.check(&bench.sleep("awake").await?))
            .await?;
        assert_eq!(bench.annotation("awake", keys::REQUESTED_BY).await?.as_deref(), Some("alice"));
        Ok(())
    })
    .await
}
