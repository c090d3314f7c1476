//! A namespace with what operators run in it: by `ns/NAME` and by a schedule, in order, on the operators' own definitions where
//! those are at hand. No operator runs.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use shared::schedule::api::PowerSchedule;
use testbed::{Options, World, apply, ensure_that, eventually, kubeconfig, with_temp_ns};

use crate::controller_confined::{is_refused, write};
use crate::kkp_common::{SOON, upstream_folder};
use crate::operators::definition;
use crate::plugin_common::{pods, stateful, template};
use crate::schedule_workloads::asks_for;

/// As audit logs name the plugin.
const PLUGIN: &str = "kubectl-hibernate/";
const KINDS: [&str; 4] =
    ["clusters.postgresql.cnpg.io", "poolers.postgresql.cnpg.io", "rollouts.argoproj.io", "scaledobjects.keda.sh"];
/// Each object by its stage: what starts or scales others, what serves, what keeps data, databases.
const STAGES: [&[&str]; 4] = [
    &["cronjob/report", "scaledobjects.keda.sh/scaler"],
    &["deployment/front", "poolers.postgresql.cnpg.io/pool", "rollouts.argoproj.io/shop"],
    &["statefulset/cache"],
    &["clusters.postgresql.cnpg.io/db"],
];

fn owned(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!([{ "apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true }])
}

/// The namespace of the issue: all kinds, a Deployment that a scaler scales, one of a Pooler, and a bare Pod.
async fn create(client: &Client, folder: &Path, ns: &str) -> Result<()> {
    for name in KINDS {
        apply::all(client, &[definition(folder, name)?]).await?;
    }
    let object = |kind: (&str, &str), name: &str, spec: Value| json!({ "apiVersion": kind.0, "kind": kind.1, "metadata": { "name": name, "namespace": ns }, "spec": spec });
    let cnpg = "postgresql.cnpg.io/v1";
    let mut job = template();
    job["spec"]["restartPolicy"] = json!("Never");
    let yearly = json!({ "schedule": "0 0 1 1 *", "jobTemplate": { "spec": { "template": job } } });
    let rollout = json!({
        "replicas": 4, "selector": { "matchLabels": { "app": "a" } }, "strategy": { "canary": {} },
        "template": { "spec": { "containers": [{ "name": "a", "image": "b" }] } },
    });
    let scaler = json!({
        "scaleTargetRef": { "name": "web" }, "triggers": [{ "type": "cpu", "metadata": { "value": "60" } }],
    });
    let pool = json!({ "cluster": { "name": "db" }, "instances": 2, "pgbouncer": { "poolMode": "session" } });
    let objects = [
        object((cnpg, "Cluster"), "db", json!({ "instances": 3, "storage": { "size": "1Gi" } })),
        object((cnpg, "Pooler"), "pool", pool),
        object(("argoproj.io/v1alpha1", "Rollout"), "shop", rollout),
        object(("keda.sh/v1alpha1", "ScaledObject"), "scaler", scaler),
        object(("apps/v1", "Deployment"), "front", pods(2)),
        object(("apps/v1", "Deployment"), "web", pods(3)),
        object(("apps/v1", "StatefulSet"), "cache", stateful(2)),
        object(("batch/v1", "CronJob"), "report", yearly),
        object(("v1", "Pod"), "bare", template()["spec"].clone()),
    ];
    eventually(SOON, "the definitions are served", async || apply::all(client, &objects).await).await?;
    let all: Value = client.request(request(&format!("/apis/{cnpg}/namespaces/{ns}/poolers/pool"))?).await?;
    let uid = all["metadata"]["uid"].as_str().context("a uid")?;
    let mut of_pool = object(("apps/v1", "Deployment"), "pool-rw", pods(2));
    of_pool["metadata"]["ownerReferences"] = owned(cnpg, "Pooler", "pool", uid);
    apply::all(client, &[of_pool]).await
}

fn request(path: &str) -> Result<http::Request<Vec<u8>>> {
    Ok(http::Request::get(path).body(Vec::new())?)
}

/// Every object of a stage, and those that others of the namespace scale.
fn all() -> Vec<&'static str> {
    [&STAGES.concat()[..], &["deployment/web", "deployment/pool-rw"]].concat()
}

/// The spec and the annotations of each object.
async fn state(world: &World, ns: &str, names: &[&str]) -> Result<Value> {
    let mut all = json!({});
    for name in names {
        let found = world.kubectl(&["get", *name, "-n", ns, "-o", "json"]).await?.json()?;
        all[*name] = json!({ "spec": found["spec"], "annotations": found["metadata"]["annotations"] });
    }
    Ok(all)
}

/// The stages that this client has patched, in that order, by the hub's audit log. `from`: how many patches came before.
async fn stages(world: &World, ns: &str, agent: &str, from: usize) -> Result<Vec<usize>> {
    let events = world.audited_of("hub", agent).await?;
    let is_dry = |event: &Value| event["requestURI"].as_str().is_some_and(|path| path.contains("dryRun"));
    let is_write = |event: &&Value| event["verb"] == "patch" && event["objectRef"]["namespace"] == ns && !is_dry(event);
    let stage = |event: &Value| {
        let found = &event["objectRef"];
        let is_this = |name: &&str| {
            let (kind, name) = name.split_once('/').unwrap_or_default();
            let resource = found["resource"].as_str().unwrap_or_default();
            found["name"] == *name && kind.split('.').next().is_some_and(|kind| resource.starts_with(kind))
        };
        STAGES.iter().position(|stage| stage.iter().any(is_this))
    };
    Ok(events.iter().filter(is_write).skip(from).filter_map(stage).collect())
}

fn is_asleep(state: &Value) -> Result<()> {
    for (name, at, expected) in [
        ("cronjob/report", "/spec/suspend", json!(true)),
        ("scaledobjects.keda.sh/scaler", "/annotations/autoscaling.keda.sh~1paused-replicas", json!("0")),
        ("deployment/front", "/spec/replicas", json!(0)),
        ("poolers.postgresql.cnpg.io/pool", "/spec/instances", json!(0)),
        ("rollouts.argoproj.io/shop", "/spec/replicas", json!(0)),
        ("statefulset/cache", "/spec/replicas", json!(0)),
        ("clusters.postgresql.cnpg.io/db", "/annotations/cnpg.io~1hibernation", json!("on")),
        // Their owners scale these.
        ("deployment/web", "/spec/replicas", json!(3)),
        ("deployment/pool-rw", "/spec/replicas", json!(2)),
    ] {
        ensure!(state[name].pointer(at) == Some(&expected), "{name}: {}", state[name]);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_sleeps_in_order_and_wakes_in_reverse() -> Result<()> {
    let Some(folder) = upstream_folder("operators") else { return Ok(()) };
    let world = World::up(Options { audit: true, ..Options::bare_hub() }).await?;
    with_temp_ns(&world, async |client, ns| {
        create(&client, &folder, &ns).await?;
        let before = state(&world, &ns, &all()).await?;
        let whole = format!("ns/{ns}");

        // What an operator without a row scales is refused by name, and nothing is written.
        let mut kibana = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "kibana", "namespace": ns }, "spec": pods(1) });
        kibana["metadata"]["ownerReferences"] = owned("kibana.k8s.elastic.co/v1", "Kibana", "one", "u");
        apply::all(&client, &[kibana]).await?;
        let planned = world.plugin(&["plan", &whole]).await?;
        ensure!(planned.code == 3 && planned.stdout.contains("Kibana.kibana.k8s.elastic.co/one"), "{planned:?}");
        let refused = world.plugin(&[&whole]).await?;
        ensure!(refused.code == 3, "{refused:?}");
        for part in ["deployment.apps/kibana: Kibana.kibana.k8s.elastic.co/one would scale it up again", "--include-owned"] {
            ensure!(refused.stderr.contains(part), "{part}: {refused:?}");
        }
        assert_eq!(state(&world, &ns, &all()).await?, before);
        // As the message says.
        let asleep = world.plugin(&[&whole, "--include-owned"]).await?;
        ensure!(asleep.code == 0, "{asleep:?}");
        for part in ["skipped, because their owners scale them: ", "deployment.apps/web", "deployment.apps/pool-rw", "not touched: pod/bare"] {
            ensure!(asleep.stderr.contains(part), "{part}: {asleep:?}");
        }
        is_asleep(&state(&world, &ns, &all()).await?)?;
        let written = stages(&world, &ns, PLUGIN, 0).await?;
        ensure!(written.is_sorted() && written.len() == 7, "{written:?}");

        world.plugin(&["resume", &whole]).await?.ok()?;
        assert_eq!(state(&world, &ns, &all()).await?, before);
        let woken = stages(&world, &ns, PLUGIN, written.len()).await?;
        // Those with a field that a deployer may own are patched twice: the second time releases it.
        ensure!(woken.is_sorted_by(|one, next| one >= next) && woken.len() >= 7, "{woken:?}");
        Ok(())
    })
    .await
}

/// A role of alice in the namespace: every verb on these groups, or `list` alone.
fn may(ns: &str, groups: &[(&str, &str)]) -> [Value; 2] {
    let group = "rbac.authorization.k8s.io";
    let rule = |(group, verb): &(&str, &str)| json!({ "apiGroups": [group], "resources": ["*"], "verbs": [verb] });
    let rules: Vec<Value> = groups.iter().map(rule).collect();
    let metadata = json!({ "name": "alice", "namespace": ns });
    [
        json!({ "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata, "rules": rules }),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": { "apiGroup": group, "kind": "Role", "name": "alice" },
            "subjects": [{ "apiGroup": group, "kind": "User", "name": "alice" }],
        }),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_rights_on_a_kind_puts_the_rest_to_sleep_and_is_warned() -> Result<()> {
    let Some(folder) = upstream_folder("operators") else { return Ok(()) };
    let world = World::up(Options::bare_hub()).await?;
    with_temp_ns(&world, async |client, ns| {
        create(&client, &folder, &ns).await?;
        world.kubectl(&["delete", "deployment", "pool-rw", "web", "-n", &ns]).await?.ok()?;
        let whole = format!("ns/{ns}");
        let run = async |verb: &[&str]| world.plugin(&[verb, &[&whole, "--as", "alice"]].concat()).await;
        apply::all(&client, &may(&ns, &[("apps", "*"), ("batch", "*"), ("", "*")])).await?;
        let unseen = eventually(SOON, "the rights", async || {
            let ran = run(&[]).await?;
            ensure!(ran.code == 0, "{ran:?}");
            Ok(ran)
        })
        .await?;
        ensure!(unseen.stderr.contains("skipped, because you may not list them: "), "{unseen:?}");
        ensure!(unseen.stderr.contains("clusters.postgresql.cnpg.io"), "{unseen:?}");
        let found = state(&world, &ns, &["deployment/front", "clusters.postgresql.cnpg.io/db"]).await?;
        ensure!(found["deployment/front"]["spec"]["replicas"] == 0, "{found}");
        ensure!(found["clusters.postgresql.cnpg.io/db"]["annotations"].is_null(), "{found}");
        run(&["resume"]).await?.ok()?;

        // What may be listed and not changed is a failure of its own.
        let some = [
            ("apps", "*"),
            ("batch", "*"),
            ("", "*"),
            ("postgresql.cnpg.io", "list"),
            ("argoproj.io", "list"),
            ("keda.sh", "list"),
        ];
        apply::all(&client, &may(&ns, &some)).await?;
        let failed = eventually(SOON, "the rights", async || {
            let ran = run(&[]).await?;
            ensure!(ran.stderr.contains("cluster.postgresql.cnpg.io/db"), "{ran:?}");
            Ok(ran)
        })
        .await?;
        ensure!(failed.code == 1 && failed.stdout.contains("deployment.apps/front"), "{failed:?}");
        Ok(())
    })
    .await
}

/// An operator that gives two sets their count again and again: one follows the database, one an owner of an unknown kind.
async fn fight(client: &Client, ns: &str) -> Result<()> {
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), ns);
    loop {
        let path = format!("/apis/postgresql.cnpg.io/v1/namespaces/{ns}/clusters/db");
        let database: Value = client.request(request(&path)?).await?;
        let sleeps = database["metadata"]["annotations"]["cnpg.io/hibernation"] == "on";
        for (name, replicas) in [("of-db", if sleeps { 0 } else { 3 }), ("of-shop", 3)] {
            let scale = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
            sets.patch(name, &PatchParams::default(), &scale).await?;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_scales_its_sets_again_is_left_to_its_row_or_named() -> Result<()> {
    let Some(folder) = upstream_folder("operators") else { return Ok(()) };
    let world = World::up(Options { audit: true, ..Options::bare_hub() }).await?;
    with_temp_ns(&world, async |client, ns| {
        create(&client, &folder, &ns).await?;
        let path = format!("/apis/postgresql.cnpg.io/v1/namespaces/{ns}/clusters/db");
        let database: Value = client.request(request(&path)?).await?;
        let uid = database["metadata"]["uid"].as_str().context("a uid")?;
        let set = |name: &str, owner: Value| {
            json!({
                "apiVersion": "apps/v1", "kind": "StatefulSet",
                "metadata": { "name": name, "namespace": ns, "ownerReferences": owner }, "spec": stateful(3),
            })
        };
        let of_db = set("of-db", owned("postgresql.cnpg.io/v1", "Cluster", "db", uid));
        apply::all(&client, &[of_db, set("of-shop", owned("example.com/v1", "Shop", "one", "u"))]).await?;
        let sleeps = async {
            let ran = world.plugin(&[&format!("ns/{ns}"), "--yes"]).await?;
            ensure!(ran.code == 0 && ran.stderr.contains("statefulset.apps/of-db"), "{ran:?}");
            ensure!(ran.stderr.contains("Shop/one controls statefulset.apps/of-shop"), "{ran:?}");
            eventually(SOON, "asleep through its owner", async || {
                ensure_that(
                    world.kubectl(&["get", "sts/of-db", "-n", &ns, "-o", "jsonpath={.spec.replicas}"]).await?.ok()?,
                    |found| found == "0",
                )
            })
            .await
        };
        tokio::select! {
            ended = fight(&client, &ns) => ended,
            ended = sleeps => ended,
        }?;
        let writes = world.audited_of("hub", PLUGIN).await?;
        let to = |name: &str| {
            writes.iter().filter(|event| event["verb"] == "patch" && event["objectRef"]["name"] == name).count()
        };
        assert_eq!(to("of-db"), 0);
        ensure!((1..=5).contains(&to("of-shop")), "no write loop: {}", to("of-shop"));
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_includes_the_kinds_that_its_writer_may_patch() -> Result<()> {
    let Some(folder) = upstream_folder("operators") else { return Ok(()) };
    let world = World::up(Options { audit: true, ..Options::hub_only() }).await?;
    with_temp_ns(&world, async |client, ns| {
        create(&client, &folder, &ns).await?;
        apply::all(&client, &manifests::workload_schedules()).await?;
        let before = state(&world, &ns, &all()).await?;
        let mut spec = json!({
            "timeZone": "UTC", "targets": { "kind": "Workloads", "all": true }, "operatorKinds": KINDS,
            "awake": [{ "days": ["Mon-Fri"], "from": "07:30", "to": "18:00" }],
        });
        json_patch::merge(&mut spec, &asks_for("Sleep")?);

        // Who may not patch one of the kinds may not put it to sleep by a schedule.
        let alice = kubeconfig::client_as(&world.file().hub.kubeconfig, "alice", &[]).await?;
        let path = format!("/apis/hibernate.sh/v1alpha1/namespaces/{ns}/powerschedules");
        apply::all(&client, &may(&ns, &[("hibernate.sh", "*"), ("apps", "*"), ("batch", "*")])).await?;
        let schedule = json!({
            "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerSchedule",
            "metadata": { "name": "night", "namespace": ns }, "spec": spec,
        });
        eventually(SOON, "the refusal", async || {
            ensure_that(write(&alice, "POST", &path, &schedule).await, |answer| {
                is_refused(answer, "you may not patch clusters.postgresql.cnpg.io (S1)")
            })
        })
        .await?;

        let schedules: Api<PowerSchedule> = Api::namespaced(client.clone(), &ns);
        schedules.create(&PostParams::default(), &serde_json::from_value(schedule)?).await?;
        eventually(SOON, "asleep", async || is_asleep(&state(&world, &ns, &all()).await?)).await?;
        let status = schedules.get("night").await?.status.context("a status")?;
        ensure!(status.last_edge.as_ref().is_some_and(|edge| edge.outcome.is_some()), "{status:?}");
        let written = stages(&world, &ns, "hibernate-controller/", 0).await?;
        ensure!(written.is_sorted() && written.len() == 7, "{written:?}");

        let awake = json!({ "spec": asks_for("Awake")? });
        schedules.patch("night", &PatchParams::default(), &Patch::Merge(awake)).await?;
        eventually(SOON, "awake", async || ensure_that(state(&world, &ns, &all()).await?, |now| *now == before)).await
    })
    .await
}
