//! Who may write schedules, and who creates their rollouts: on the real API server, with the real webhook.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::schedule::api::{ClusterPowerSchedule, PowerSchedule};
use testbed::check::webhook_only;
use testbed::{World, eventually, kubeconfig, with_temp_ns};

use crate::match_writes::merge;
use crate::rollout_admission::{denied, rights};

const SOON: Duration = Duration::from_mins(1);

/// What one user does.
struct Person {
    own: Api<DynamicObject>,
    everywhere: Api<DynamicObject>,
    rollouts: Api<DynamicObject>,
}

impl Person {
    async fn new(world: &World, name: &str, namespace: &str) -> Result<Self> {
        let client = if name == "admin" {
            world.hub().await?
        } else {
            kubeconfig::client_as(&world.file().hub.kubeconfig, name, &[]).await?
        };
        let rollouts = ApiResource::erase::<shared::rollout::api::PowerRollout>(&());
        Ok(Self {
            own: Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<PowerSchedule>(&())),
            everywhere: Api::all_with(client.clone(), &ApiResource::erase::<ClusterPowerSchedule>(&())),
            rollouts: Api::all_with(client, &rollouts),
        })
    }
}

/// A schedule with these fields, as a manifest.
fn schedule(kind: &str, name: &str, fields: &Value) -> Result<DynamicObject> {
    let mut object = json!({
        "apiVersion": "hibernate.sh/v1alpha1", "kind": kind,
        "metadata": { "name": name, "annotations": { keys::REQUESTED_BY: "mallory" } },
        "spec": { "timeZone": "Europe/Berlin", "targets": { "all": true }, "awake": [{ "days": ["Mon-Fri"], "from": "07:30", "to": "18:00" }] },
    });
    merge(&mut object, &json!({ "spec": fields }));
    Ok(serde_json::from_value(object)?)
}

async fn create(api: &Api<DynamicObject>, object: &DynamicObject) -> kube::Result<DynamicObject> {
    api.create(&PostParams::default(), object).await
}

async fn patch(api: &Api<DynamicObject>, name: &str, patch: &Value) -> kube::Result<DynamicObject> {
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

fn by(object: &DynamicObject) -> Option<&str> {
    object.metadata.annotations.as_ref()?.get(keys::REQUESTED_BY).map(String::as_str)
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_who_may_not_patch_the_targets_writes_no_schedule_for_them_and_s2_the_stamp_says_who_wrote_it() -> Result<()>
{
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, mine| {
        let (ann, mallory) = (format!("ann-{mine}"), format!("mallory-{mine}"));
        rights(&client, &ann, std::slice::from_ref(&mine)).await?;
        rights(&client, &mallory, &[]).await?;
        let (ann_may, mallory_may) =
            (Person::new(&world, &ann, &mine).await?, Person::new(&world, &mallory, &mine).await?);
        let admin = Person::new(&world, "admin", &mine).await?;
        let own = schedule("PowerSchedule", "night", &json!({}))?;
        let made = eventually(SOON, "rights", async || Ok(create(&ann_may.own, &own).await?)).await?;
        ensure!(by(&made) == Some(ann.as_str()), "a forged stamp is overwritten: {:?}", by(&made));
        let refused = "you may not patch clusterdeployments.hive.openshift.io (S1)";
        let other = schedule("PowerSchedule", "other", &json!({}))?;
        eventually(SOON, "rights", async || denied(create(&mallory_may.own, &other).await, refused)).await?;
        let everywhere = schedule("ClusterPowerSchedule", &mine, &json!({}))?;
        for person in [&ann_may, &mallory_may] {
            denied(create(&person.everywhere, &everywhere).await, refused)?;
        }
        let workloads = schedule("PowerSchedule", "workloads", &json!({ "targets": { "kind": "Workloads" } }))?;
        denied(create(&ann_may.own, &workloads).await, "you may not patch deployments.apps (S1)")?;
        // To suspend is everybody's who may write schedules; to go on, and to change anything, is not.
        let suspended = patch(&mallory_may.own, "night", &json!({ "spec": { "suspend": true } })).await?;
        ensure!(by(&suspended) == Some(ann.as_str()), "{:?}", by(&suspended));
        for fields in [json!({ "suspend": false }), json!({ "lead": "20m" }), json!({ "suspend": true, "priority": 7 })]
        {
            denied(patch(&mallory_may.own, "night", &json!({ "spec": fields })).await, refused)?;
        }
        let forged = json!({ "metadata": { "annotations": { keys::REQUESTED_BY: mallory } } });
        denied(patch(&mallory_may.own, "night", &forged).await, "must be as before")?;
        let changed = patch(&admin.own, "night", &json!({ "spec": { "suspend": false } })).await?;
        ensure!(by(&changed) == Some("admin"), "{:?}", by(&changed));
        mallory_may.own.delete("night", &DeleteParams::default()).await.context("delete")?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_what_cannot_be_is_refused_with_what_would_be_right() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |_, mine| {
        let admin = Person::new(&world, "admin", &mine).await?;
        let days = json!([{ "from": "2026-12-24", "to": "2026-12-23", "power": "Sleep" }]);
        let hourly = json!([{ "cron": "*/5 * * * *", "power": "Sleep" }]);
        for (fields, says) in [
            (json!({ "timeZone": "Europe/Berln" }), "spec.timeZone: found \"Europe/Berln\", must be the IANA name"),
            (json!({ "awake": [{ "from": "00:00", "to": "24:00" }] }), "that leave no time to sleep"),
            (json!({ "awake": null, "events": hourly }), "found 288 times a day, must be 24 at most"),
            (json!({ "exceptions": days }), "spec.exceptions[0]: found 2026-12-24 to 2026-12-23"),
            (
                json!({ "applyAt": "2026-11-01T00:00:00Z" }),
                "spec.applyAt: found 2026-11-01T00:00:00Z, must be about now",
            ),
            (json!({ "events": [{ "cron": "0 8 * * *", "power": "Awake" }] }), "set exactly one: awake or events"),
            (json!({ "targets": { "kind": "Cluster" } }), "Unsupported value: \"Cluster\""),
            (json!({ "targets": { "all": false } }), "set exactly one: names, selectors, or all: true"),
            (
                json!({ "targets": { "all": false, "names": [{ "name": "x", "namespace": "y" }] } }),
                "leave the namespaces of names out",
            ),
            (
                json!({ "targets": { "all": false, "namespaceSelector": { "matchLabels": { "a": "b" } } } }),
                "create a ClusterPowerSchedule",
            ),
            (json!({ "targets": { "kind": "Workloads", "all": false, "names": [{ "name": "x" }] } }), "set all: true"),
        ] {
            let schedule = schedule("PowerSchedule", &mine, &fields)?;
            denied(create(&admin.own, &schedule).await, says).with_context(|| fields.to_string())?;
        }
        let everywhere = schedule("ClusterPowerSchedule", &mine, &json!({ "timeZone": "x" }))?;
        denied(create(&admin.everywhere, &everywhere).await, "spec.timeZone: found \"x\"")?;
        // A reinstated object may be unreadable: it can still be suspended.
        create(&admin.own, &schedule("PowerSchedule", "night", &json!({}))?).await?;
        patch(&admin.own, "night", &json!({ "spec": { "suspend": true } })).await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn r4_only_the_controller_creates_the_rollout_of_a_schedule_and_r2_it_carries_the_person() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |_, mine| {
        let (admin, controller) = (
            Person::new(&world, "admin", &mine).await?,
            Person::new(&world, shared::hive::exempt::USERS[0], &mine).await?,
        );
        let rollout = |by: &Value, annotations: &Value| -> Result<DynamicObject> {
            Ok(serde_json::from_value(json!({
                "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerRollout",
                "metadata": { "name": mine, "annotations": annotations },
                "spec": {
                    "action": "Hibernate", "maxTargets": 1, "notAfter": "2126-01-01T02:00:00Z", "scheduledBy": by,
                    "targets": { "selector": { "matchLabels": { "none": mine } } },
                },
            }))?)
        };
        let of = json!({ "kind": "PowerSchedule", "namespace": mine, "name": "night", "uid": "u" });
        let person = json!({ keys::REQUESTED_BY: "ann" });
        denied(
            create(&admin.rollouts, &rollout(&of, &person)?).await,
            "only the controller creates the rollouts of schedules",
        )?;
        denied(create(&controller.rollouts, &rollout(&of, &json!({}))?).await, keys::REQUESTED_BY)?;
        // Without a schedule the controller is a user like any other.
        let own = create(&controller.rollouts, &rollout(&Value::Null, &person)?).await?;
        ensure!(by(&own) == Some(shared::hive::exempt::USERS[0]), "{:?}", by(&own));
        admin.rollouts.delete(&mine, &DeleteParams::default()).await?;
        let made = create(&controller.rollouts, &rollout(&of, &person)?).await?;
        ensure!(by(&made) == Some("ann"), "{:?}", by(&made));
        denied(
            patch(&admin.rollouts, &mine, &json!({ "spec": { "scheduledBy": null } })).await,
            "asOf and scheduledBy are immutable",
        )?;
        admin.rollouts.delete(&mine, &DeleteParams::default()).await?;
        Ok(())
    })
    .await
}
