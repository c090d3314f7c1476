//! Who may let a rollout start targets, whose stamp says so, and who writes its claims: on the real API server, with
//! the real webhook.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::hive::api::ClusterDeployment;
use shared::rollout::api::PowerRollout;
use testbed::check::webhook_only;
use testbed::{World, apply, eventually, kubeconfig, with_temp_ns};

use crate::hive_common::create;
use crate::match_writes::merge;

const SOON: Duration = Duration::from_mins(1);
const HIVE: &str = "system:serviceaccount:hive:hive-controllers";
const CONTROLLER: &str = shared::hive::exempt::USERS[0];
const CLAIM: &str = r#"{"v":1,"by":"night","uid":"u","action":"Hibernate","group":0,"attempt":0,"before":"Running","wanted":"Hibernating","at":"2026-11-24T12:00:00Z"}"#;

/// What one user does.
struct Person {
    client: Client,
    rollouts: Api<PowerRollout>,
}

impl Person {
    async fn new(world: &World, name: &str) -> Result<Self> {
        // Whoever is impersonated has no groups, and the administrator has no rights but those of one.
        let groups: &[&str] = if name == HIVE { &["system:serviceaccounts:hive"] } else { &[] };
        let client = if name == "admin" {
            world.hub().await?
        } else {
            kubeconfig::client_as(&world.file().hub.kubeconfig, name, groups).await?
        };
        Ok(Self { rollouts: Api::all(client.clone()), client })
    }

    async fn create(&self, name: &str, spec: &Value) -> kube::Result<()> {
        self.create_annotated(name, &json!({}), spec).await
    }

    async fn create_annotated(&self, name: &str, annotations: &Value, spec: &Value) -> kube::Result<()> {
        let mut object = json!({
            "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerRollout",
            "metadata": { "name": name, "annotations": annotations },
            "spec": { "action": "Hibernate", "maxTargets": 2_000, "notAfter": "2126-01-01T02:00:00Z" },
        });
        merge(&mut object, &json!({ "spec": spec }));
        // As a manifest, not by way of our own types: they cannot hold what is to be refused.
        let kind = ApiResource::erase::<PowerRollout>(&());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind);
        api.create(&PostParams::default(), &serde_json::from_value(object).map_err(kube::Error::SerdeError)?)
            .await
            .map(drop)
    }

    async fn patch(&self, name: &str, patch: &Value) -> kube::Result<PowerRollout> {
        self.rollouts.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
    }

    async fn set(&self, name: &str, spec: Value) -> kube::Result<PowerRollout> {
        self.patch(name, &json!({ "spec": spec })).await
    }

    fn clusters(&self, namespace: &str) -> Api<ClusterDeployment> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

pub(crate) fn denied<T>(answer: kube::Result<T>, says: &str) -> Result<()> {
    match answer {
        Ok(_) => anyhow::bail!("passed, and should be refused with {says:?}"),
        Err(kube::Error::Api(status)) => ensure!(status.message.contains(says), "wanted {says:?}: {}", status.message),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

fn stamp(rollout: &PowerRollout) -> (Option<&str>, Option<&str>) {
    let annotations = rollout.metadata.annotations.as_ref();
    let get = |key| annotations.and_then(|annotations| annotations.get(key)).map(String::as_str);
    (get(keys::REQUESTED_BY), get(keys::REQUESTED_AT))
}

/// Lets a user write rollouts and schedules everywhere, and patch clusters in some namespaces.
pub(crate) async fn rights(hub: &Client, user: &str, namespaces: &[String]) -> Result<()> {
    let subjects = json!([{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }]);
    let binding = |role: &str, kind: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": { "name": format!("{role}-{user}") },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role }, "subjects": subjects,
        })
    };
    let mut objects = vec![
        binding("hibernate-rollout-editor", "ClusterRoleBinding"),
        binding("hibernate-schedule-editor", "ClusterRoleBinding"),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "test-patch-clusters" },
            "rules": [{ "apiGroups": ["hive.openshift.io"], "resources": ["clusterdeployments"], "verbs": ["patch"] }],
        }),
    ];
    for namespace in namespaces {
        objects.push(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }));
        let mut binding = binding("test-patch-clusters", "RoleBinding");
        binding["metadata"]["namespace"] = json!(namespace);
        objects.push(binding);
    }
    apply::all(hub, &objects).await
}

fn names<'a>(namespaces: impl IntoIterator<Item = &'a String>) -> Value {
    let names: Vec<_> = namespaces
        .into_iter()
        .enumerate()
        .map(|(number, namespace)| json!({ "namespace": namespace, "name": format!("cluster-{number}") }))
        .collect();
    json!({ "targets": { "names": names } })
}

fn selected() -> Value {
    json!({ "targets": { "selector": { "matchLabels": { "env": "none" } } } })
}

fn canary(pause_after: bool) -> Value {
    json!({ "name": "canary", "selector": { "matchLabels": { "role": "canary" } }, "pauseAfter": pause_after })
}

#[tokio::test(flavor = "multi_thread")]
async fn r1_who_may_not_patch_the_targets_lets_none_start() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, mine| {
        let (user, elsewhere) = (format!("planner-{mine}"), "default".to_owned());
        rights(&client, &user, std::slice::from_ref(&mine)).await?;
        let (planner, admin) = (Person::new(&world, &user).await?, Person::new(&world, "admin").await?);
        let [own, other, made] = ["own", "other", "made"].map(|name| format!("{name}-{mine}"));
        eventually(SOON, "rights", async || Ok(planner.create(&own, &names([&mine])).await?)).await?;

        let everywhere = "spec.targets: found a selection from every namespace, must be names of targets unless you may patch";
        for targets in [
            json!({ "all": true }),
            json!({ "selector": { "matchLabels": { "a": "b" } } }),
            json!({ "namespaceSelector": { "matchLabels": { "a": "b" } } }),
        ] {
            denied(planner.create(&other, &json!({ "targets": targets })).await, everywhere)?;
        }
        let there = "spec.targets.names: found namespace default, must be namespaces in which you may patch clusterdeployments.hive.openshift.io or virtualmachines.kubevirt.io or shoots.core.gardener.cloud (R1)";
        denied(planner.create(&other, &names([&mine, &elsewhere, &mine])).await, there)?;
        let mut restore = names([&elsewhere]);
        merge(&mut restore, &json!({ "action": "Restore", "restoreOf": { "name": "a", "uid": "u" } }));
        denied(planner.create(&other, &restore).await, there)?;

        // What stops, always passes; what goes on, or goes another way, does not.
        let mut spec = selected();
        merge(&mut spec, &json!({ "paused": true }));
        admin.create(&made, &spec).await?;
        for more in [
            json!({ "paused": false }),
            json!({ "acceptFailures": 1 }),
            json!({ "retryFailed": 1 }),
            json!({ "maxTargets": 3 }),
            json!({ "notAfter": "2126-01-01T03:00:00Z" }),
            json!({ "maxConcurrency": 3, "abort": true }),
            json!({ "reason": "x" }),
        ] {
            denied(planner.set(&made, more).await, everywhere)?;
        }
        admin.set(&made, json!({ "paused": false })).await?;
        let paused = planner.set(&made, json!({ "paused": true })).await?;
        ensure!(stamp(&paused).0 == Some("admin"), "{:?}", stamp(&paused));
        planner.patch(&made, &json!({ "metadata": { "labels": { "a": "b" } } })).await?;
        planner.set(&made, json!({ "abort": true })).await?;
        planner.set(&own, json!({ "notAfter": "2126-01-01T03:00:00Z" })).await?;
        for name in [&made, &own] {
            planner.rollouts.delete(name, &DeleteParams::default()).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn r1_a_thousand_names_in_twenty_namespaces_stay_within_the_budget_of_cel() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, mine| {
        // The longest names there are.
        let namespaces: Vec<_> = (0..21).map(|number| format!("{mine}-{}-{number:02}", "x".repeat(59 - mine.len()))).collect();
        let (many, user) = (&namespaces[..20], format!("planner-{mine}"));
        rights(&client, &user, many).await?;
        let (planner, admin) = (Person::new(&world, &user).await?, Person::new(&world, "admin").await?);
        let name = format!("many-{mine}");
        let thousand = names(many.iter().cycle().take(1_000));
        eventually(SOON, "rights", async || Ok(planner.create(&name, &thousand).await?)).await?;
        planner.set(&name, json!({ "maxConcurrency": 3 })).await.context("change")?;
        planner.rollouts.delete(&name, &DeleteParams::default()).await?;
        // The last one is no better than the first.
        let mut elsewhere = names(many[..19].iter().cycle().take(999));
        let last = json!({ "namespace": "default", "name": "last" });
        elsewhere["targets"]["names"].as_array_mut().context("names")?.push(last);
        denied(planner.create(&name, &elsewhere).await, "found namespace default, must be namespaces")?;
        let too_many = names(namespaces.iter().cycle().take(1_000));
        let says = "spec.targets.names: found more than 20 namespaces, must be 20 at most: create several rollouts, or select the targets (R1)";
        for person in [&planner, &admin] {
            denied(person.create(&name, &too_many).await, says)?;
        }
        for namespace in &namespaces {
            let all: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
            let _ = all.delete(namespace, &DeleteParams::default()).await;
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn r2_the_stamp_names_who_let_targets_start_last() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    let name = format!("stamped-{:08x}", rand::random::<u32>());
    rights(&world.hub().await?, "alice", &[]).await?;
    let (alice, admin) = (Person::new(&world, "alice").await?, Person::new(&world, "admin").await?);
    let forged = json!({ keys::REQUESTED_BY: "mallory", keys::REQUESTED_AT: "2020-01-01T00:00:00Z" });
    let mut spec = selected();
    merge(&mut spec, &json!({ "groups": [canary(true)] }));
    eventually(SOON, "rights", async || Ok(alice.create_annotated(&name, &forged, &spec).await?)).await?;
    let created = alice.rollouts.get(&name).await?;
    let (by, at) = stamp(&created);
    ensure!(by == Some("alice"), "{by:?}");
    let at: Timestamp = at.context("stamp")?.parse()?;
    ensure!(Timestamp::now().duration_since(at).as_secs() < 60, "{at}");

    let kept = "must be as before: the mutating webhook writes both, and only in these writes: create; paused or abort to false; any";
    let annotated = |value: Value| json!({ "metadata": { "annotations": { keys::REQUESTED_BY: value } } });
    denied(admin.patch(&name, &annotated(json!("mallory"))).await, kept)?;
    let dropped = json!({ "metadata": { "annotations": { keys::REQUESTED_BY: null, keys::REQUESTED_AT: null } } });
    let replaced = admin.patch(&name, &dropped).await?;
    ensure!(stamp(&replaced) == stamp(&created), "put back: {:?}", stamp(&replaced));
    let backdated = json!({ "metadata": { "annotations": { keys::REQUESTED_AT: "2020-01-01T00:00:00Z" } } });
    denied(admin.patch(&name, &backdated).await, "(R2)")?;
    let mut forging = annotated(json!("admin"));
    merge(&mut forging, &json!({ "spec": { "paused": true } }));
    denied(admin.patch(&name, &forging).await, kept)?;

    for (person, spec, by) in [
        (&admin, json!({ "paused": true }), "alice"),
        (&admin, json!({ "paused": false }), "admin"),
        (&alice, json!({ "notAfter": "2126-01-01T03:00:00Z" }), "alice"),
        (&admin, json!({ "maxTargets": 3_000 }), "admin"),
        (&alice, json!({ "maxFailures": "50%" }), "alice"),
        (&admin, json!({ "notBefore": "2125-01-01T00:00:00Z" }), "admin"),
        (&alice, json!({ "maxConcurrency": 5, "paused": false }), "alice"),
        (&admin, json!({ "notBefore": null }), "admin"),
        (&alice, json!({ "acceptFailures": 1 }), "alice"),
        (&admin, json!({ "retryFailed": 2 }), "admin"),
        (&alice, json!({ "groups": [canary(false)] }), "alice"),
        (&admin, json!({ "groups": [canary(true)] }), "admin"),
        (&alice, json!({ "groups": [canary(true)], "maxTargets": 3_000 }), "admin"),
        (&alice, json!({ "retryFailed": 3, "paused": true }), "alice"),
        (&admin, json!({ "abort": true }), "alice"),
    ] {
        let changed = person.set(&name, spec.clone()).await?;
        ensure!(stamp(&changed).0 == Some(by), "{spec}: {:?}", stamp(&changed));
    }
    Ok(alice.rollouts.delete(&name, &DeleteParams::default()).await.map(drop)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn r3_a_rollout_that_is_over_is_not_created() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    let admin = Person::new(&world, "admin").await?;
    let name = format!("late-{:08x}", rand::random::<u32>());
    let spec = |not_after: &str| {
        let mut spec = selected();
        merge(&mut spec, &json!({ "notAfter": not_after }));
        spec
    };
    let says = "spec.notAfter: found \"2026-01-01T00:00:00Z\", which has passed, must be a time after";
    denied(admin.create(&name, &spec("2026-01-01T00:00:00Z")).await, says)?;
    // The definition compares times, and reads none with small letters.
    let says = "Invalid date-time formatted string 2126-01-01t00:00:00z";
    denied(admin.create(&name, &spec("2126-01-01t00:00:00z")).await, says)?;
    // One that is there is shortened at will: it starts nothing more.
    admin.create(&name, &selected()).await?;
    admin.set(&name, json!({ "notAfter": "2026-01-01T00:00:00Z" })).await?;
    Ok(admin.rollouts.delete(&name, &DeleteParams::default()).await.map(drop)?)
}

/// A cluster that is installed, in this state.
async fn cluster(client: &Client, namespace: &str, name: &str, power: &str) -> Result<()> {
    let clusters: Api<ClusterDeployment> = Api::namespaced(client.clone(), namespace);
    create(&clusters, name, "aws", &json!({ "spec": { "powerState": power } })).await.map(drop)
}

fn annotated(annotations: &Value) -> Value {
    json!({ "metadata": { "annotations": annotations } })
}

async fn patch(person: &Person, namespace: &str, name: &str, patch: &Value) -> kube::Result<ClusterDeployment> {
    person.clusters(namespace).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

fn annotation<'a>(cluster: &'a ClusterDeployment, key: &str) -> Option<&'a str> {
    cluster.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_written_by_the_controller_alone_and_carries_the_persons_stamp() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, namespace| {
        cluster(&client, &namespace, "demo", "Running").await?;
        let [alice, hive, controller] = ["alice", HIVE, CONTROLLER].map(|name| Person::new(&world, name));
        let (alice, hive, controller) = (alice.await?, hive.await?, controller.await?);
        let forged = annotated(&json!({ keys::ROLLOUT: CLAIM }));
        let says = "metadata.annotations[hibernate.sh/rollout]: cannot be edited: only the controller writes it";
        for person in [&alice, &hive] {
            denied(patch(person, &namespace, "demo", &forged).await, says)?;
        }
        // One write claims the target and puts it to sleep, for bob.
        let start = json!({
            "metadata": { "annotations": {
                keys::ROLLOUT: CLAIM, keys::REQUESTED_BY: "bob", keys::REQUESTED_AT: "2026-11-24T12:00:00Z", keys::REASON: "night",
            } },
            "spec": { "powerState": "Hibernating" },
        });
        let started = patch(&controller, &namespace, "demo", &start).await?;
        let detail = [keys::ROLLOUT, keys::REQUESTED_BY, keys::REQUESTED_AT, keys::REASON].map(|key| annotation(&started, key));
        ensure!(detail == [Some(CLAIM), Some("bob"), Some("2026-11-24T12:00:00Z"), Some("night")], "{detail:?}");
        for person in [&alice, &hive] {
            denied(patch(person, &namespace, "demo", &annotated(&json!({ keys::ROLLOUT: "mine" }))).await, says)?;
            // One that is dropped, as by a file without it, is put back.
            let dropped = patch(person, &namespace, "demo", &annotated(&json!({ keys::ROLLOUT: null }))).await?;
            ensure!(annotation(&dropped, keys::ROLLOUT) == Some(CLAIM), "{:?}", dropped.metadata.annotations);
        }
        // A wake is never denied: a forged claim is put back.
        let wake = json!({ "metadata": { "annotations": { keys::ROLLOUT: "mine" } }, "spec": { "powerState": "Running" } });
        let woken = patch(&alice, &namespace, "demo", &wake).await?;
        let detail = [keys::ROLLOUT, keys::REQUESTED_BY, keys::REASON].map(|key| annotation(&woken, key));
        ensure!(detail == [Some(CLAIM), Some("alice"), None], "{detail:?}");
        // Without a claim the controller's account is stamped like any other.
        let plain = json!({
            "metadata": { "annotations": { keys::ROLLOUT: null, keys::REQUESTED_BY: "bob" } },
            "spec": { "powerState": "Hibernating" },
        });
        let slept = patch(&controller, &namespace, "demo", &plain).await?;
        ensure!(annotation(&slept, keys::REQUESTED_BY) == Some(CONTROLLER), "{:?}", slept.metadata.annotations);
        Ok(())
    })
    .await
}

/// In a world of its own, because it stops what all others need.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_webhook_a_rollout_can_be_stopped_and_not_started() -> Result<()> {
    let world = World::up(webhook_only()).await?;
    with_temp_ns(&world, async |client, namespace| {
        apply::all(&client, &manifests::policy()).await?;
        cluster(&client, &namespace, "demo", "Running").await?;
        cluster(&client, &namespace, "asleep", "Hibernating").await?;
        let admin = Person::new(&world, "admin").await?;
        let mut paused = selected();
        merge(&mut paused, &json!({ "paused": true }));
        for (name, spec) in [("running", &selected()), ("aborted", &selected()), ("paused", &paused)] {
            admin.create(name, spec).await?;
        }
        let before = admin.rollouts.get("running").await?;
        world.signal("webhook", "stop").await?;

        let down = "failed calling webhook \"rollout-stamp.hibernate.sh\"";
        denied(admin.create("new", &selected()).await, down)?;
        denied(admin.set("paused", json!({ "paused": false })).await, down)?;
        denied(admin.set("running", json!({ "acceptFailures": 1 })).await, down)?;
        denied(admin.set("running", json!({ "retryFailed": 1 })).await, down)?;
        denied(admin.set("running", json!({ "maxTargets": 3_000, "paused": true })).await, down)?;
        let after = admin.set("running", json!({ "paused": true })).await?;
        ensure!(stamp(&after) == stamp(&before) && stamp(&after).0 == Some("admin"), "{:?}", stamp(&after));
        let aborted = admin.set("aborted", json!({ "abort": true })).await?;
        ensure!(stamp(&aborted).0 == Some("admin"), "{:?}", stamp(&aborted));
        admin.rollouts.delete("aborted", &DeleteParams::default()).await?;

        // The twin holds for members of exempt groups, too, and lets every wake pass.
        let alice = Person::new(&world, "alice").await?;
        let hive = Person::new(&world, HIVE).await?;
        let forged = annotated(&json!({ keys::ROLLOUT: CLAIM }));
        for person in [&alice, &hive] {
            // It takes effect shortly after it was created. What it lets through must change nothing.
            let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
            eventually(SOON, "the twin", async || {
                let says = "hibernate.sh/rollout is written by the controller alone, not by hand (V10)";
                denied(person.clusters(&namespace).patch("demo", &dry_run, &Patch::Merge(&forged)).await, says)
            })
            .await?;
        }
        let controller = Person::new(&world, CONTROLLER).await?;
        patch(&controller, &namespace, "demo", &forged).await?;
        let wake =
            json!({ "metadata": { "annotations": { keys::ROLLOUT: "mine" } }, "spec": { "powerState": "Running" } });
        patch(&alice, &namespace, "asleep", &wake).await?;

        // The mutating webhook alone is missing: the policy refuses what is not stamped.
        let configurations: Api<MutatingWebhookConfiguration> = Api::all(client);
        configurations.delete(keys::WEBHOOK, &DeleteParams::default()).await?;
        eventually(SOON, "refusal of an unstamped start", async || {
            let mut forged = annotated(&json!({ keys::REQUESTED_BY: "bob" }));
            merge(&mut forged, &json!({ "spec": { "paused": false } }));
            denied(admin.patch("paused", &forged).await, "found no hibernate.sh/requested-by that is you")
        })
        .await?;
        let mut raised = annotated(&json!({ keys::REQUESTED_BY: "bob" }));
        merge(&mut raised, &json!({ "spec": { "maxTargets": 3_000 } }));
        denied(admin.patch("paused", &raised).await, "found no hibernate.sh/requested-by that is you")
    })
    .await
}
