//! Every rule for `ClusterDeployments` that the schema lets through, by kubectl against a real API server.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::hive::api::ClusterDeployment;
use testbed::supervisor::programs::Start;
use testbed::world::run::Ran;
use testbed::{Options, Program, World, eventually, with_temp_ns};

/// A hub with our webhook and no controller, so that only the test writes.
fn options() -> Options {
    Options { without: vec![Program::Controller], ..Options::hub_only() }
}

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

    /// An installed, sound cluster with a merge patch over it, and a status over that.
    async fn cluster(&self, name: &str, patch: &Value, status: &Value) -> Result<()> {
        let mut cluster = json!({
            "apiVersion": "hive.openshift.io/v1",
            "kind": "ClusterDeployment",
            "metadata": { "name": name },
            "spec": {
                "baseDomain": "example.com", "clusterName": name, "installed": true,
                "platform": { "aws": { "region": "us-east-1" } },
                "clusterMetadata": {
                    "clusterID": "c", "infraID": "demo-x7k2p", "adminKubeconfigSecretRef": { "name": "demo-admin" },
                },
            },
        });
        merge(&mut cluster, patch);
        let made: ClusterDeployment = serde_json::from_value(cluster)?;
        self.api.create(&PostParams::default(), &made).await.with_context(|| format!("create {name}"))?;
        if !status.is_null() {
            let status = json!({ "status": status });
            self.api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        }
        Ok(())
    }

    async fn kubectl(&self, user: &[&str], args: &[&str]) -> Result<Ran> {
        self.world.kubectl(&[&["-n", &self.namespace], user, args].concat()).await
    }

    /// `kubectl patch cd NAME` by alice.
    async fn patch(&self, name: &str, patch: &Value) -> Result<Ran> {
        let patch = patch.to_string();
        self.kubectl(&["--as", "alice"], &["patch", "cd", name, "--type", "merge", "-p", &patch]).await
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

/// JSON merge patch, RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(members) = patch else {
        if !patch.is_null() {
            *target = patch.clone();
        }
        return;
    };
    for (key, value) in members {
        if value.is_null() {
            target.as_object_mut().and_then(|target| target.remove(key));
        } else if value.is_object() && target[key].is_object() {
            merge(&mut target[key], value);
        } else {
            target[key] = value.clone();
        }
    }
}

/// What kubectl says of a denial, on one line.
fn denied(ran: &Ran, says: &str) -> Result<()> {
    let said = ran.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(ran.code == 1 && said.contains(says), "wanted {says:?}, got exit code {} and {:?}", ran.code, ran.stderr);
    Ok(())
}

/// What kubectl says of a write that went through with a warning, or with none.
fn allowed(ran: &Ran, warning: &str) -> Result<()> {
    let warned =
        if warning.is_empty() { ran.stderr.is_empty() } else { ran.stderr.contains(&format!("Warning: {warning}")) };
    ensure!(ran.code == 0 && warned, "wanted {warning:?}, got exit code {} and {:?}", ran.code, ran.stderr);
    Ok(())
}

fn annotated(key: &str, value: &str) -> Value {
    json!({ "metadata": { "annotations": { key: value } } })
}

#[tokio::test]
async fn a_change_of_state_is_stamped_with_who_and_when() -> Result<()> {
    let world = World::shared_with(options()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::new(&world, client, namespace);
        bench.cluster("demo", &Value::Null, &Value::Null).await?;
        let patch = json!({
            "metadata": { "annotations": { keys::REQUESTED_BY: "mallory", keys::REQUESTED_AT: "2020-01-01T00:00:00Z", keys::REASON: "weekend" } },
            "spec": { "powerState": "Hibernating" },
        });
        allowed(&bench.patch("demo", &patch).await?, "")?;
        assert_eq!(bench.annotation("demo", keys::REQUESTED_BY).await?.as_deref(), Some("alice"));
        assert_eq!(bench.annotation("demo", keys::REASON).await?.as_deref(), Some("weekend"));
        let at: jiff::Timestamp = bench.annotation("demo", keys::REQUESTED_AT).await?.context("stamp")?.parse()?;
        assert!(jiff::Timestamp::now().duration_since(at).as_secs() < 60);

        let wake = json!({ "spec": { "powerState": "Running" } }).to_string();
        let bob = ["--as", "bob", "--as-group", "system:masters"];
        allowed(&bench.kubectl(&bob, &["patch", "cd", "demo", "--type", "merge", "-p", &wake]).await?, "")?;
        assert_eq!(bench.annotation("demo", keys::REQUESTED_BY).await?.as_deref(), Some("bob"));
        assert_eq!(bench.annotation("demo", keys::REASON).await?, None, "the reason of the sleep is no reason for the wake");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_cannot_sleep_is_denied_and_what_should_be_known_is_said() -> Result<()> {
    let world = World::shared_with(options()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::new(&world, client, namespace);
        let recently = (jiff::Timestamp::now() - jiff::SignedDuration::from_hours(1)).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let upgrading = json!({ "clusterVersionStatus": { "conditions": [{ "type": "Progressing", "status": "True" }] } });
        let pool = json!({ "namespace": "pools", "poolName": "small" });
        for (name, patch, status, verdict) in [
            ("v2-not-installed", json!({ "spec": { "installed": false } }), Value::Null, Ok("the cluster is not installed yet")),
            (
                "v4-platform",
                json!({ "spec": { "platform": { "aws": null, "vsphere": { "vCenter": "v" } } } }),
                Value::Null,
                Err("spec.platform: found vsphere, but only clusters on aws, azure, gcp, ibmcloud can be put to sleep"),
            ),
            (
                "v4-azure",
                json!({ "spec": { "platform": { "aws": null, "azure": { "region": "r", "credentialsSecretRef": { "name": "a" } } } } }),
                Value::Null,
                Err("spec.clusterMetadata.platform.azure.resourceGroupName: missing"),
            ),
            ("v5-metadata", json!({ "spec": { "clusterMetadata": null } }), Value::Null, Err("spec.clusterMetadata: missing or empty")),
            (
                "v5-infra-id",
                json!({ "spec": { "clusterMetadata": { "infraID": "" } } }),
                Value::Null,
                Err("spec.clusterMetadata.infraID: missing or empty"),
            ),
            (
                "v5-kubeconfig",
                json!({ "spec": { "clusterMetadata": { "adminKubeconfigSecretRef": { "name": "" } } } }),
                Value::Null,
                Err("spec.clusterMetadata.adminKubeconfigSecretRef.name: missing or empty"),
            ),
            (
                "v6-protected",
                annotated(keys::PROTECTED, "true"),
                Value::Null,
                Err("metadata.annotations[hibernate.sh/protected]: the cluster is protected from sleep"),
            ),
            (
                "v6-held",
                json!({ "metadata": { "annotations": { keys::HOLD_AWAKE_UNTIL: "2126-01-01T00:00:00Z", keys::HOLD_AWAKE_BY: "carol" } } }),
                Value::Null,
                // Not carol, as the creator says: who creates it holds it.
                Err("held awake until 2126-01-01T00:00:00Z by admin"),
            ),
            ("v6-expired", annotated(keys::HOLD_AWAKE_UNTIL, "2026-01-01T00:00:00Z"), Value::Null, Ok("")),
            (
                "v7-paused",
                annotated("hive.openshift.io/powerstate-pause", "true"),
                Value::Null,
                Ok("hive.openshift.io/powerstate-pause is set"),
            ),
            ("v7-young", Value::Null, json!({ "installedTimestamp": recently }), Ok("installed less than 24 h ago")),
            ("v7-pool", json!({ "spec": { "clusterPoolRef": pool } }), Value::Null, Ok("unclaimed cluster of ClusterPool small")),
            ("v7-upgrade", Value::Null, upgrading, Ok("an upgrade is in progress")),
            ("sound", Value::Null, json!({ "installedTimestamp": "2026-01-01T00:00:00Z" }), Ok("")),
        ] {
            bench.cluster(name, &patch, &status).await?;
            let ran = bench.sleep(name).await?;
            match verdict {
                Ok(warning) => allowed(&ran, warning),
                Err(says) => denied(&ran, says),
            }
            .with_context(|| format!("sleep of {name}"))?;
            assert_eq!(bench.state(name).await? == "Hibernating", verdict.is_ok(), "{name}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn v3_what_is_being_deleted_does_not_fall_asleep() -> Result<()> {
    let world = World::shared_with(options()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::new(&world, client, namespace);
        bench.cluster("leaving", &json!({ "metadata": { "finalizers": ["example.com/wait"] } }), &Value::Null).await?;
        bench.api.delete("leaving", &DeleteParams::default()).await?;
        let ran = bench.sleep("leaving").await?;
        let freed = bench.patch("leaving", &json!({ "metadata": { "finalizers": null } })).await?;
        denied(&ran, "metadata.deletionTimestamp: the cluster is being deleted and cannot be put to sleep")?;
        allowed(&freed, "")
    })
    .await
}

#[tokio::test]
async fn v8_v9_values_that_the_schema_takes_and_we_do_not() -> Result<()> {
    let world = World::shared_with(options()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::new(&world, client, namespace);
        bench.cluster("demo", &Value::Null, &Value::Null).await?;
        for (after, verdict) in [
            ("0s", Err("spec.hibernateAfter: found \"0s\" is not positive")),
            ("9999999h", Err("spec.hibernateAfter: found \"9999999h\" is too long")),
            ("5m", Ok("spec.hibernateAfter 5m0s is shorter than 10 minutes")),
            ("8h", Ok("")),
        ] {
            let ran = bench.patch("demo", &json!({ "spec": { "hibernateAfter": after } })).await?;
            verdict.map_or_else(|says| denied(&ran, says), |warning| allowed(&ran, warning))?;
        }
        for (key, wrong, right) in [
            (keys::WAKE_AT, "tomorrow", "2126-01-01T00:00:00Z"),
            (keys::HOLD_AWAKE_UNTIL, "2026-11-22", "2126-11-22T08:00:00+01:00"),
            (keys::PROTECTED, "yes", "false"),
            (keys::REPLICAS, "-1", "3"),
            (keys::PREFLIGHT_REQUESTED_AT, "now", "2026-11-21T18:00:00Z"),
        ] {
            let annotate = async |value: &str| {
                bench
                    .kubectl(&["--as", "alice"], &["annotate", "cd", "demo", "--overwrite", &format!("{key}={value}")])
                    .await
            };
            denied(&annotate(wrong).await?, &format!("metadata.annotations[{key}]: found \"{wrong}\", must be"))?;
            allowed(&annotate(right).await?, "")?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn v9_times_that_have_passed_are_refused_for_everybody_who_changes_an_object() -> Result<()> {
    let world = World::shared_with(options()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::new(&world, client, namespace);
        let past = "2026-01-01T00:00:00Z";
        // A restored object brings along what was to come when it was saved.
        bench.cluster("demo", &annotated(keys::WAKE_AT, past), &Value::Null).await?;
        let bob = ["--as", "bob", "--as-group", "system:masters"];
        for user in [&["--as", "alice"][..], &bob] {
            let annotate = async |key: &str| {
                let edit = format!("{key}=2026-01-02T00:00:00Z");
                bench.kubectl(user, &["annotate", "cd", "demo", "--overwrite", &edit]).await
            };
            let says =
                "metadata.annotations[hibernate.sh/hold-awake-until]: found \"2026-01-02T00:00:00Z\", which has passed";
            denied(&annotate(keys::HOLD_AWAKE_UNTIL).await?, says)?;
            // GitOps writes a scheduled wake again and again.
            let says = "hibernate.sh/wake-at 2026-01-02T00:00:00Z has passed: it is dropped";
            allowed(&annotate(keys::WAKE_AT).await?, says)?;
            assert_eq!(bench.annotation("demo", keys::WAKE_AT).await?, None);
        }
        allowed(&bench.kubectl(&["--as", "alice"], &["annotate", "cd", "demo", "team=a"]).await?, "")
    })
    .await
}

#[tokio::test]
async fn v6_a_file_that_is_older_than_the_protection_does_not_put_to_sleep() -> Result<()> {
    let world = World::shared_with(options()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::new(&world, client, namespace);
        bench.cluster("demo", &annotated(keys::PROTECTED, "true"), &Value::Null).await?;
        let at_once = json!({
            "metadata": { "annotations": { keys::PROTECTED: null } },
            "spec": { "powerState": "Hibernating" },
        });
        let ran = bench.patch("demo", &at_once).await?;
        denied(&ran, "the cluster is protected from sleep: remove the annotation in a separate write first")?;
        allowed(&bench.patch("demo", &annotated(keys::PROTECTED, "false")).await?, "")?;
        allowed(&bench.patch("demo", &at_once).await?, "")?;
        assert_eq!(bench.state("demo").await?, "Hibernating");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_hold_carries_the_name_of_who_set_it() -> Result<()> {
    let world = World::shared_with(options()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::new(&world, client, namespace);
        bench.cluster("demo", &Value::Null, &Value::Null).await?;
        let until = "2126-01-01T00:00:00Z";
        let hold =
            json!({ "metadata": { "annotations": { keys::HOLD_AWAKE_UNTIL: until, keys::HOLD_AWAKE_BY: "mallory" } } });
        allowed(&bench.patch("demo", &hold).await?, "")?;
        assert_eq!(bench.annotation("demo", keys::HOLD_AWAKE_BY).await?.as_deref(), Some("alice"));
        let forged = bench.patch("demo", &annotated(keys::HOLD_AWAKE_BY, "mallory")).await?;
        denied(&forged, "metadata.annotations[hibernate.sh/hold-awake-by]: cannot be edited")?;
        denied(&bench.sleep("demo").await?, "held awake until 2126-01-01T00:00:00Z by alice")?;
        let release = json!({ "metadata": { "annotations": { keys::HOLD_AWAKE_UNTIL: null } } });
        allowed(&bench.patch("demo", &release).await?, "")?;
        assert_eq!(bench.annotation("demo", keys::HOLD_AWAKE_BY).await?, None, "the name goes with the hold");
        allowed(&bench.sleep("demo").await?, "")
    })
    .await
}

#[tokio::test]
async fn v10_stamps_are_not_edited_by_hand() -> Result<()> {
    let world = World::shared_with(options()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::new(&world, client, namespace);
        bench.cluster("demo", &Value::Null, &Value::Null).await?;
        allowed(&bench.sleep("demo").await?, "")?;
        for edit in [
            "hibernate.sh/requested-by=mallory",
            "hibernate.sh/requested-by-",
            "hibernate.sh/requested-at=2020-01-01T00:00:00Z",
        ] {
            let ran = bench.kubectl(&["--as", "alice"], &["annotate", "cd", "demo", "--overwrite", edit]).await?;
            denied(&ran, "cannot be edited: the webhook sets it from the request that changes powerState")?;
        }
        let ran = bench
            .kubectl(&["--as", "alice"], &["annotate", "cd", "demo", "hibernate.sh/reason=holidays", "team=a"])
            .await?;
        allowed(&ran, "")
    })
    .await
}

/// The schema has no limit on these fields. What is too long is denied by its name, and hides no forgery beside it.
#[tokio::test]
async fn a_field_that_cannot_be_read_is_denied_and_hides_nothing() -> Result<()> {
    let world = World::shared_with(options()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::new(&world, client, namespace);
        let long = "1h".repeat(2_500);
        let forged = json!({ keys::REQUESTED_BY: "mallory", keys::ROLLOUT: "{}" });
        bench.cluster("demo", &Value::Null, &Value::Null).await?;
        let hidden = json!({ "metadata": { "annotations": forged }, "spec": { "hibernateAfter": long } });
        let ran = bench.patch("demo", &hidden).await?;
        for says in [
            "spec.hibernateAfter: found \"1h1h",
            "(5002 bytes), which cannot be read: must be a text of at most 4096 bytes",
            "metadata.annotations[hibernate.sh/requested-by]: cannot be edited",
            "metadata.annotations[hibernate.sh/rollout]: cannot be edited",
        ] {
            denied(&ran, says)?;
        }
        let pool = json!({ "poolName": long, "namespace": "pools" });
        bench.cluster("stored", &json!({ "spec": { "clusterPoolRef": pool } }), &Value::Null).await.unwrap_err();
        // Hive's own accounts are warned. What they store blocks nothing but sleep.
        let hive = ["--as", "system:serviceaccount:hive:hive-controllers", "--as-group", "system:serviceaccounts:hive"];
        let write = json!({ "spec": { "hibernateAfter": long } }).to_string();
        let ran = bench.kubectl(&hive, &["patch", "cd", "demo", "--type", "merge", "-p", &write]).await?;
        allowed(&ran, "spec.hibernateAfter: found")?;
        allowed(&bench.patch("demo", &annotated(keys::PROTECTED, "false")).await?, "")?;
        allowed(&bench.patch("demo", &json!({ "metadata": { "finalizers": ["example.com/wait"] } })).await?, "")?;
        allowed(&bench.patch("demo", &json!({ "metadata": { "finalizers": null } })).await?, "")?;
        denied(&bench.sleep("demo").await?, "spec.hibernateAfter: found")?;
        allowed(&bench.patch("demo", &json!({ "spec": { "hibernateAfter": null } })).await?, "")?;
        allowed(&bench.sleep("demo").await?, "")?;
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
        allowed(&bench.patch("demo", &wake).await?, "spec.hibernateAfter: found")?;
        assert_eq!(bench.annotation("demo", keys::REQUESTED_BY).await?.as_deref(), Some("alice"));
        assert_eq!(bench.annotation("demo", keys::ROLLOUT).await?, None);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn v11_waking_is_never_denied() -> Result<()> {
    let world = World::shared_with(options()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::new(&world, client, namespace);
        bench.cluster("demo", &Value::Null, &Value::Null).await?;
        allowed(&bench.sleep("demo").await?, "")?;
        let wake = json!({
            "metadata": { "annotations": { keys::WAKE_AT: "soon", keys::PROTECTED: "true" } },
            "spec": { "powerState": "Running", "hibernateAfter": "0s" },
        });
        let ran = bench.patch("demo", &wake).await?;
        allowed(&ran, "spec.hibernateAfter: found \"0s\" is not positive")?;
        assert_eq!(bench.annotation("demo", keys::WAKE_AT).await?, None, "every wake drops it");
        assert_eq!(bench.state("demo").await?, "Running");
        assert_eq!(bench.annotation("demo", keys::REQUESTED_BY).await?.as_deref(), Some("alice"));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_cluster_that_is_created_asleep_is_stamped_and_judged() -> Result<()> {
    let world = World::shared_with(options()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::new(&world, client, namespace);
        let asleep = json!({ "spec": { "powerState": "Hibernating" } });
        bench.cluster("born-asleep", &asleep, &Value::Null).await?;
        assert!(bench.annotation("born-asleep", keys::REQUESTED_BY).await?.is_some_and(|by| !by.is_empty()));
        let mut protected = asleep.clone();
        merge(&mut protected, &annotated(keys::PROTECTED, "true"));
        let error = bench.cluster("born-protected", &protected, &Value::Null).await.unwrap_err();
        match error.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) => {
                assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"));
                let causes = status.details.as_ref().map(|details| details.causes.clone()).unwrap_or_default();
                assert_eq!(causes[0].field, "metadata.annotations[hibernate.sh/protected]");
            }
            other => panic!("{other:?} is no answer of the API server"),
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn hives_own_controllers_are_warned_instead() -> Result<()> {
    let world = World::shared_with(options()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::new(&world, client, namespace);
        bench.cluster("pooled", &annotated(keys::PROTECTED, "true"), &Value::Null).await?;
        let hive = "system:serviceaccount:hive:hive-controllers";
        let user = ["--as", hive, "--as-group", "system:serviceaccounts:hive"];
        let sleep = json!({ "spec": { "powerState": "Hibernating" } }).to_string();
        let ran = bench.kubectl(&user, &["patch", "cd", "pooled", "--type", "merge", "-p", &sleep]).await?;
        allowed(&ran, "metadata.annotations[hibernate.sh/protected]: the cluster is protected from sleep")?;
        assert_eq!(bench.annotation("pooled", keys::REQUESTED_BY).await?.as_deref(), Some(hive));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_schema_refuses_what_the_rules_never_see() -> Result<()> {
    let world = World::shared_with(options()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::new(&world, client, namespace);
        bench.cluster("demo", &Value::Null, &Value::Null).await?;
        for (patch, says) in [
            (json!({ "spec": { "powerState": "Sleeping" } }), "spec.powerState: Unsupported value: \"Sleeping\""),
            (
                json!({ "spec": { "clusterMetadata": { "infraID": null } } }),
                "spec.clusterMetadata.infraID: Required value",
            ),
            (
                json!({ "spec": { "clusterMetadata": { "adminKubeconfigSecretRef": null } } }),
                "spec.clusterMetadata.adminKubeconfigSecretRef: Required value",
            ),
            (json!({ "spec": { "hibernateAfter": "8" } }), "spec.hibernateAfter: Invalid value: \"8\""),
            (json!({ "spec": { "hibernateAfter": "-8h" } }), "spec.hibernateAfter: Invalid value: \"-8h\""),
            (json!({ "spec": { "hibernateAfter": "" } }), "spec.hibernateAfter: Invalid value: \"\""),
        ] {
            denied(&bench.patch("demo", &patch).await?, says)?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_is_not_judged_says_nothing() -> Result<()> {
    let world = World::shared_with(options()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::new(&world, client, namespace);
        bench.cluster("demo", &annotated(keys::PROTECTED, "true"), &Value::Null).await?;
        let label = bench.kubectl(&["--as", "alice"], &["label", "cd", "demo", "team=a"]).await?;
        allowed(&label, "")?;
        let status = json!({ "status": { "powerState": "Hibernating" } }).to_string();
        let ran = bench
            .kubectl(&[], &["patch", "cd", "demo", "--subresource", "status", "--type", "merge", "-p", &status])
            .await?;
        allowed(&ran, "")?;
        allowed(&bench.kubectl(&["--as", "alice"], &["delete", "cd", "demo"]).await?, "")?;
        Ok(())
    })
    .await
}

/// One after the other, in a world of its own, because it stops what all others need.
#[tokio::test]
async fn without_the_webhook_only_sleep_is_refused() -> Result<()> {
    let world = World::up(options()).await?;
    with_temp_ns(&world, async |client, namespace| {
        let bench = Bench::new(&world, client.clone(), namespace);
        bench.cluster("asleep", &Value::Null, &Value::Null).await?;
        bench.cluster("awake", &Value::Null, &Value::Null).await?;
        allowed(&bench.sleep("asleep").await?, "")?;

        // V12: the mutating webhook alone is out of order.
        let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        configurations.delete(keys::WEBHOOK, &DeleteParams::default()).await?;
        eventually(Duration::from_secs(20), "refusal of an unstamped sleep", async || {
            denied(&bench.sleep("awake").await?, "the audit stamp is missing because the mutating webhook did not run")
        })
        .await?;

        world.signal("webhook", "stop").await?;
        denied(&bench.sleep("awake").await?, "failed calling webhook \"into-sleep.hibernate.sh\"")?;
        allowed(&bench.kubectl(&["--as", "alice"], &["label", "cd", "awake", "team=a"]).await?, "")?;
        allowed(
            &bench.kubectl(&["--as", "alice"], &["annotate", "cd", "awake", "hibernate.sh/reason=x", "team=a"]).await?,
            "",
        )?;
        allowed(&bench.patch("awake", &json!({ "spec": { "hibernateAfter": "8h" } })).await?, "")?;
        allowed(&bench.patch("asleep", &json!({ "spec": { "powerState": "Running" } })).await?, "")?;
        assert_eq!((bench.state("asleep").await?.as_str(), bench.state("awake").await?.as_str()), ("Running", ""));

        world.start(&Start::new(Program::Webhook)).await?;
        eventually(Duration::from_secs(20), "sleep once the webhook is back", async || {
            allowed(&bench.sleep("awake").await?, "")
        })
        .await?;
        assert_eq!(bench.annotation("awake", keys::REQUESTED_BY).await?.as_deref(), Some("alice"));
        Ok(())
    })
    .await
}
