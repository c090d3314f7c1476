//! `ClusterGroupUpgrades` on real API servers. Governance and the spokes are the double of `testbed::governance`;
//! "section n" is of docs/reference/talm.md.

mod kuttl;
mod takeover;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use shared::cgu::api::{ClusterGroupUpgrade, ClusterGroupUpgradeStatus};
use testbed::governance::{Delays, Governance, Knobs};
use testbed::supervisor::programs::Start;
use testbed::{Options, Program, World, apply, ensure_that, eventually, foreign};

use crate::kkp_common::upstream_folder;

const SOON: Duration = Duration::from_mins(1);
const NAMESPACE: &str = "policies";

/// A hub with six clusters, and two policies for the first four. The fourth complies.
struct Hub {
    world: World,
    client: Client,
    governance: Governance,
    upgrades: Api<ClusterGroupUpgrade>,
}

fn controller() -> Start {
    let mut start = Start::new(Program::Controller).leased(["3s", "2s", "500ms"]);
    start.args.extend(["--cgu", "--cgu-talm-namespace", "default"].map(str::to_owned));
    start
}

fn policy_kind() -> ApiResource {
    let kind = GroupVersionKind::gvk("policy.open-cluster-management.io", "v1", "Policy");
    ApiResource::from_gvk_with_plural(&kind, "policies")
}

/// A hub with the definitions of governance and upgrades.
async fn hub() -> Result<(World, Client)> {
    let world = World::up(Options::bare_hub()).await?;
    let client = world.hub().await?;
    match (upstream_folder("talm"), upstream_folder("ocm")) {
        (Some(talm), Some(ocm)) => {
            for folder in [talm, ocm] {
                let folder = folder.to_str().context("a path in UTF-8")?;
                world.kubectl(&["apply", "--server-side", "-f", folder]).await?.ok()?;
            }
        }
        _ => apply::all(&client, &[manifests::cgu_definitions(), foreign::of_governance()].concat()).await?,
    }
    apply::all(&client, &manifests::upgrades()).await?;
    Ok((world, client))
}

impl Hub {
    async fn new() -> Result<Self> {
        let (world, client) = hub().await?;
        let arrow = Duration::from_millis(50);
        let delays = Delays {
            decide: arrow,
            propagate: arrow,
            comply: 4 * arrow,
            report: arrow,
            work: arrow,
            collect: 20 * arrow,
        };
        let compliant = ["p1", "p2"].map(|policy| ("spoke4".to_owned(), policy.to_owned())).into();
        let governance = Governance::start(client.clone(), Knobs { delays, compliant, ..Knobs::default() }).await?;
        for number in 1..=6 {
            governance.cluster(&format!("spoke{number}"), &BTreeMap::new()).await?;
        }
        let all = ["spoke1", "spoke2", "spoke3", "spoke4"];
        let object = |api: &str, kind: &str, namespace: &str| json!({ "apiVersion": api, "kind": kind, "metadata": { "name": "ptp", "namespace": namespace } });
        governance.policy((NAMESPACE, "p1"), 2, &all, &object("v1", "ConfigMap", "default")).await?;
        let subscription = object("operators.coreos.com/v1alpha1", "Subscription", "openshift-ptp");
        governance.policy((NAMESPACE, "p2"), 1, &all, &subscription).await?;
        let policies: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &policy_kind());
        eventually(SOON, "reports of every cluster", async || {
            for policy in ["p1", "p2"] {
                let found = policies.get(policy).await?.data["status"]["status"].clone();
                let reports = found.as_array().into_iter().flatten().filter(|one| one["compliant"].is_string());
                ensure!(reports.count() == 4, "{policy}: {found}");
            }
            Ok(())
        })
        .await?;
        let upgrades = Api::namespaced(client.clone(), "default");
        Ok(Self { world, client, governance, upgrades })
    }

    async fn create(&self, name: &str, mut spec: Value) -> Result<()> {
        if spec["managedPolicies"].is_null() {
            spec["managedPolicies"] = json!(["p1", "p2"]);
        }
        spec["actions"] = json!({
            "beforeEnable": { "addClusterLabels": { "ztp-running": "" } },
            "afterCompletion": { "addClusterLabels": { "ztp-done": "" }, "removeClusterLabels": ["ztp-running"] },
        });
        let upgrade = json!({
            "apiVersion": "ran.openshift.io/v1alpha1", "kind": "ClusterGroupUpgrade",
            "metadata": { "name": name, "namespace": "default" }, "spec": spec,
        });
        self.upgrades.create(&PostParams::default(), &serde_json::from_value(upgrade)?).await?;
        Ok(())
    }

    /// A policy with a catalog, whose images these clusters can pull.
    async fn images(&self, clusters: &[&str]) -> Result<()> {
        let catalog = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
            "metadata": { "name": "mirror", "namespace": "openshift-marketplace" }, "spec": { "image": "mirror.test/index:v1" },
        });
        self.governance.policy((NAMESPACE, "catalog"), 1, clusters, &catalog).await?;
        for cluster in clusters {
            // Else it gets its first upgrade.
            self.world.kubectl(&["label", "managedcluster", cluster, "ztp-done="]).await?.ok()?;
            self.governance.available(cluster).await?;
        }
        let config = json!({
            "apiVersion": "ran.openshift.io/v1alpha1", "kind": "PreCachingConfig",
            "metadata": { "name": "images", "namespace": "default" },
            "spec": {
                "overrides": { "operatorsPackagesAndChannels": ["ptp:stable"] }, "spaceRequired": "10 GiB",
                "additionalImages": ["mirror.test/extra@sha256:1"],
            },
        });
        apply::all(&self.client, &[config]).await
    }

    async fn status(&self, name: &str) -> Result<ClusterGroupUpgradeStatus> {
        Ok(self.upgrades.get(name).await?.status.unwrap_or_default())
    }

    /// Waits until a condition has this status and reason.
    async fn until(&self, name: &str, type_: &str, wanted: (&str, &str)) -> Result<ClusterGroupUpgradeStatus> {
        eventually(SOON, &format!("{type_} {wanted:?} of {name}"), async || {
            let status = self.status(name).await?;
            let found = status.condition(type_).map(|found| (found.status.clone(), found.reason.clone()));
            let is_wanted = found.as_ref().is_some_and(|(status, reason)| (&**status, &**reason) == wanted);
            ensure!(is_wanted, "{:#}", json!(status));
            Ok(status)
        })
        .await
    }

    async fn labels(&self, cluster: &str) -> Result<Vec<String>> {
        let kind = GroupVersionKind::gvk("cluster.open-cluster-management.io", "v1", "ManagedCluster");
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind));
        let found = api.get(cluster).await?;
        Ok(found.labels().keys().filter(|key| key.starts_with("ztp-")).cloned().collect())
    }

    /// A cluster reports that it complies with a policy.
    async fn report(&self, cluster: &str, child: &str) -> Result<()> {
        let children: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), cluster, &policy_kind());
        let compliant = Patch::Merge(json!({ "status": { "compliant": "Compliant" } }));
        children.patch_status(child, &PatchParams::default(), &compliant).await?;
        Ok(())
    }

    /// Names of what upgrades have created.
    async fn objects(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for (group, version, kind) in [
            ("cluster", "v1beta1", "Placement"),
            ("policy", "v1", "PlacementBinding"),
            ("view", "v1beta1", "ManagedClusterView"),
            ("action", "v1beta1", "ManagedClusterAction"),
        ] {
            let group = format!("{group}.open-cluster-management.io");
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(&group, version, kind));
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
            let ours = ListParams::default().labels("openshift-cluster-group-upgrades/clusterGroupUpgrade");
            names.extend(api.list(&ours).await?.into_iter().map(|object| object.name_any()));
        }
        Ok(names)
    }

    /// Actions of the Events about an upgrade, sorted.
    async fn events(&self, name: &str) -> Result<Vec<String>> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let is_about = |event: &Event| event.regarding.as_ref().and_then(|one| one.name.as_deref()) == Some(name);
        let found = events.list(&ListParams::default()).await?.items;
        for event in found.iter().filter(|event| event.reason.as_deref() == Some("CguStarted")) {
            // As programs find TALM's.
            assert_eq!(event.reporting_controller.as_deref(), Some("ClusterGroupUpgrade"));
            let is_of_a_cluster = event.action.as_deref() == Some("RemediationInClusterStarted");
            assert_eq!(event.related.is_some(), is_of_a_cluster, "{event:?}");
        }
        let mut actions: Vec<String> = found.into_iter().filter(is_about).filter_map(|event| event.action).collect();
        actions.sort();
        Ok(actions)
    }
}

/// Names with their states, sorted.
fn records(status: &ClusterGroupUpgradeStatus) -> Vec<String> {
    let mut records: Vec<String> = status.clusters.iter().map(|one| format!("{} {}", one.name, one.state)).collect();
    records.sort();
    records
}

/// The golden trace of section 5.1, a blocked upgrade behind it, and a controller that is killed again and again.
#[tokio::test(flavor = "multi_thread")]
async fn upgrades_run_in_batches_and_one_after_the_other() -> Result<()> {
    let hub = Hub::new().await?;
    hub.world.start(&controller()).await?;
    let clusters = json!(["spoke1", "spoke2", "spoke3", "spoke4"]);
    let strategy = json!({ "maxConcurrency": 2, "canaries": ["spoke3"] });
    hub.create("a", json!({ "clusters": clusters, "enable": false, "remediationStrategy": strategy })).await?;
    let status = hub.until("a", "Progressing", ("False", "NotEnabled")).await?;
    assert_eq!(status.remediation_plan, [vec!["spoke3"], vec!["spoke1", "spoke2"]]);
    assert_eq!((hub.objects().await?.len(), status.placements.len()), (4, 2));
    assert_eq!(hub.labels("spoke4").await?, [""; 0]);
    let blocked = json!({
        "clusters": ["spoke1"], "blockingCRs": [{ "name": "a", "namespace": "default" }],
        "remediationStrategy": { "maxConcurrency": 1 },
    });
    hub.create("b", blocked).await?;
    hub.until("b", "Progressing", ("False", "IncompleteBlockingCR")).await?;

    let enable = Patch::Merge(json!({ "spec": { "enable": true } }));
    hub.upgrades.patch("a", &PatchParams::default(), &enable).await?;
    // The next one waits for the Lease to run out, and then works for a moment.
    for pause in [350, 3_600, 3_600] {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        hub.world.signal("controller", "kill").await?;
        hub.world.start(&controller()).await?;
    }
    let status = hub.until("a", "Succeeded", ("True", "Completed")).await?;
    assert_eq!(records(&status), ["spoke1 complete", "spoke2 complete", "spoke3 complete", "spoke4 complete"]);
    // Child policies go back to inform only now: b starts meanwhile, and drops no policy for that (9.1).
    let after = hub.until("b", "Succeeded", ("True", "Completed")).await?;
    assert_eq!(after.managed_policies_compliant_before_upgrade, ["p1", "p2"]);
    for cluster in ["spoke1", "spoke2", "spoke3", "spoke4"] {
        assert_eq!(hub.labels(cluster).await?, ["ztp-done"], "{cluster}");
    }
    eventually(SOON, "no objects", async || {
        ensure!(hub.objects().await?.is_empty(), "{:?}", hub.objects().await?);
        ensure!(hub.status("a").await?.status.completed_at.is_some());
        Ok(())
    })
    .await?;
    let shown = hub.world.plugin(&["status", "cgu/a", "-n", "default"]).await?.ok()?;
    ensure!(shown.contains("UpgradeCompleted") && shown.contains("4 clusters: 4 complete"), "{shown}");
    let listed = hub.world.plugin(&["status", "cgus", "-A", "-o", "name"]).await?.ok()?;
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let events = hub.events("a").await?;
    for action in ["RemediationInClusterCompleted", "RemediationInClusterStarted"] {
        ensure!(events.iter().filter(|one| *one == action).count() <= 3, "{events:?}");
    }
    Ok(())
}

/// Two of four clusters sleep, one of which has reported that it complies: neither gets a label until it runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_sleeps_completes_nothing() -> Result<()> {
    let hub = Hub::new().await?;
    let mut objects = Vec::new();
    for name in ["spoke1", "spoke4"] {
        let spec = json!({
            "baseDomain": "test", "clusterName": name, "installed": true, "platform": { "gcp": { "region": "europe-west1" } }, "powerState": "Hibernating",
        });
        objects.push(json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
            "metadata": { "name": name, "namespace": name }, "spec": spec,
        }));
    }
    apply::all(&hub.client, &objects).await?;
    hub.governance.turn(|knobs| knobs.asleep = ["spoke1".to_owned(), "spoke4".to_owned()].into());
    let mut start = controller();
    start.args.extend(["--cgu-settle", "1s"].map(str::to_owned));
    hub.world.start(&start).await?;
    let clusters = json!(["spoke1", "spoke2", "spoke3", "spoke4"]);
    hub.create("mixed", json!({ "clusters": clusters, "remediationStrategy": { "maxConcurrency": 4, "timeout": 1 } }))
        .await?;
    let end = async || {
        let status = hub.status("mixed").await?;
        ensure!(status.condition("Succeeded").is_some(), "{:#}", json!(status));
        Ok(status)
    };
    let status = eventually(3 * SOON, "the time-out", end).await?;
    assert_eq!(records(&status), ["spoke1 timedout", "spoke2 complete", "spoke3 complete", "spoke4 timedout"]);
    assert_eq!(hub.labels("spoke4").await?, ["ztp-running"], "it has reported that it complies");
    ensure!(hub.events("mixed").await?.iter().filter(|one| *one == "RemediationInBatchStarted").count() == 2);

    // They wake, and are up to date: the upgrade completes late.
    let clusters =
        |name: &str| -> Api<shared::hive::api::ClusterDeployment> { Api::namespaced(hub.client.clone(), name) };
    for name in ["spoke1", "spoke4"] {
        let running = Patch::Merge(json!({ "spec": { "powerState": "Running" } }));
        clusters(name).patch(name, &PatchParams::default(), &running).await?;
        let status = Patch::Merge(json!({ "status": {
            "powerState": "Running",
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Running", "message": "",
                "lastProbeTime": "2026-11-26T00:00:00Z", "lastTransitionTime": "2026-11-26T00:00:00Z",
            }, {
                "type": "Hibernating", "status": "False", "reason": "ResumingOrRunning", "message": "",
                "lastProbeTime": "2026-11-26T00:00:00Z", "lastTransitionTime": "2026-11-26T00:00:00Z",
            }],
        } }));
        clusters(name).patch_status(name, &PatchParams::default(), &status).await?;
    }
    hub.governance.turn(|knobs| knobs.asleep.clear());
    for child in ["policies.p1", "policies.p2"] {
        hub.report("spoke1", child).await?;
    }
    let status = hub.until("mixed", "Succeeded", ("True", "Completed")).await?;
    assert_eq!(records(&status), ["spoke1 complete", "spoke2 complete", "spoke3 complete", "spoke4 complete"]);
    assert_eq!(hub.labels("spoke4").await?, ["ztp-done"]);
    Ok(())
}

/// While TALM renews its Lease nothing is written, not even for clusters that join.
#[tokio::test(flavor = "multi_thread")]
async fn talm_goes_first() -> Result<()> {
    let hub = Hub::new().await?;
    let image_based = "imagebasedgroupupgrades.lcm.openshift.io";
    hub.world.kubectl(&["delete", "crd", image_based, "--ignore-not-found"]).await?.ok()?;
    hub.world.start(&controller()).await?;
    let leases: Api<Lease> = Api::namespaced(hub.client.clone(), "default");
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "9a2365a3.openshift.io" },
        "spec": { "holderIdentity": "talm", "renewTime": "2026-11-26T00:00:00.000000Z" },
    });
    leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    hub.create("theirs", json!({ "clusters": ["spoke3"], "remediationStrategy": { "maxConcurrency": 1 } })).await?;
    eventually(SOON, "the Event", async || {
        ensure_that(hub.events("theirs").await?, |events| *events == ["ClusterGroupUpgrade"])
    })
    .await?;
    ensure!(hub.upgrades.get("theirs").await?.finalizers().is_empty(), "nothing is written");
    // Two clusters join: one complies with its policies, the other has none.
    for cluster in ["spoke4", "spoke5"] {
        hub.governance.available(cluster).await?;
    }
    let none = Patch::Merge(json!({ "spec": { "holderIdentity": "" } }));
    leases.patch("9a2365a3.openshift.io", &PatchParams::default(), &none).await?;
    hub.until("theirs", "Succeeded", ("True", "Completed")).await?;
    let first: Api<ClusterGroupUpgrade> = Api::namespaced(hub.client.clone(), "ztp-install");
    for (cluster, policies) in [("spoke4", &["p2", "p1"][..]), ("spoke5", &[])] {
        eventually(SOON, "the first upgrade", async || {
            ensure_that(hub.labels(cluster).await?, |labels| *labels == ["ztp-done"])
        })
        .await?;
        assert_eq!(first.get(cluster).await?.spec.managed_policies, policies, "by wave");
    }

    // A kind that is not served is installed while the controller runs.
    apply::all(&hub.client, &[foreign::of_image_based_upgrades()]).await?;
    hub.world.kubectl(&["wait", "--for=condition=Established", &format!("crd/{image_based}")]).await?.ok()?;
    let upgrade = json!({
        "apiVersion": "lcm.openshift.io/v1alpha1", "kind": "ImageBasedGroupUpgrade",
        "metadata": { "name": "image", "namespace": "default" }, "spec": {},
    });
    apply::all(&hub.client, &[upgrade]).await?;
    eventually(SOON, "the Event", async || {
        ensure_that(hub.events("image").await?, |events| *events == ["ClusterGroupUpgrade"])
    })
    .await?;
    the_examples_of_the_documentation_apply(&hub).await
}

/// Images are pulled before the upgrade starts (section 9.5), under a controller that is killed meanwhile. A cluster
/// whose Job fails is left out, and what it has of the pull goes with the upgrade.
#[tokio::test(flavor = "multi_thread")]
async fn images_are_pulled_before_the_start() -> Result<()> {
    let hub = Hub::new().await?;
    hub.images(&["spoke1", "spoke2"]).await?;
    hub.governance.turn(|knobs| knobs.stuck.extend([("spoke2".to_owned(), "pre-cache".to_owned())]));
    let mut start = controller();
    start.args.extend(["--cgu-precache-image", "mirror.test/precache:1"].map(str::to_owned));
    hub.world.start(&start).await?;
    let spec = json!({
        "clusters": ["spoke1", "spoke2"], "managedPolicies": ["catalog", "p1"], "enable": false, "preCaching": true,
        "preCachingConfigRef": { "name": "images" }, "remediationStrategy": { "maxConcurrency": 2 },
    });
    hub.create("pull", spec).await?;
    tokio::time::sleep(Duration::from_millis(400)).await;
    hub.world.signal("controller", "kill").await?;
    hub.world.start(&start).await?;
    let status = hub.until("pull", "PrecachingSuceeded", ("True", "PartiallyDone")).await?;
    let states = status.precaching.context("a pull")?.status;
    assert_eq!(json!(states), json!({ "spoke1": "Succeeded", "spoke2": "UnrecoverableError" }));

    let of = |cluster: &str| -> BTreeMap<String, Value> {
        let objects = hub.governance.turn(|knobs| knobs.objects.clone());
        objects.into_iter().filter(|((of, _), _)| of == cluster).map(|((_, path), object)| (path, object)).collect()
    };
    let left = of("spoke2");
    let map = &left["configmap/openshift-talo-pre-cache/pre-cache-spec"]["data"];
    assert_eq!(
        (&map["operators.indexes"], &map["operators.packagesAndChannels"], &map["spaceRequired"]),
        (&json!("mirror.test/index:v1"), &json!("ptp:stable"), &json!("10"))
    );
    assert_eq!(map["additionalImages"], "mirror.test/extra@sha256:1");
    let job = &left["job/openshift-talo-pre-cache/pre-cache"]["spec"];
    assert_eq!(job["template"]["spec"]["containers"][0]["image"], "mirror.test/precache:1");
    assert_eq!(job["activeDeadlineSeconds"], 240 * 60);
    eventually(SOON, "nothing is left of a pull that has succeeded", async || {
        ensure!(of("spoke1").is_empty(), "{:?}", of("spoke1").keys());
        Ok(())
    })
    .await?;

    let enable = Patch::Merge(json!({ "spec": { "enable": true } }));
    hub.upgrades.patch("pull", &PatchParams::default(), &enable).await?;
    let status = hub.until("pull", "Succeeded", ("True", "Completed")).await?;
    assert_eq!(
        (records(&status), status.remediation_plan),
        (vec!["spoke1 complete".to_owned()], vec![vec!["spoke1".to_owned()]])
    );
    hub.upgrades.delete("pull", &DeleteParams::default()).await?;
    eventually(SOON, "nothing is left", async || {
        ensure!(of("spoke2").is_empty(), "{:?}", of("spoke2").keys());
        ensure!(hub.upgrades.get_opt("pull").await?.is_none());
        let objects = hub.objects().await?;
        ensure!(objects.iter().all(|name| name.ends_with("-delete")), "{objects:?}");
        Ok(())
    })
    .await
}

async fn the_examples_of_the_documentation_apply(hub: &Hub) -> Result<()> {
    hub.world.kubectl(&["create", "namespace", "ztp-group"]).await?.ok()?;
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/cgu");
    let files: Vec<_> = std::fs::read_dir(&folder)?.collect::<std::io::Result<_>>()?;
    ensure!(files.len() >= 2, "{files:?}");
    for file in files {
        let path = file.path();
        let path = path.to_str().context("a path in UTF-8")?;
        let detail =
            hub.world.kubectl(&["create", "--dry-run=server", "-f", path]).await?.ok().context(path.to_owned())?;
        ensure!(detail.contains("created (server dry run)"), "{path}: {detail}");
    }
    Ok(())
}
