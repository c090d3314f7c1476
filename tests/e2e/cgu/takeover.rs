//! TALM's own controller and ours take over from each other, at whatever point an upgrade is.
//!
//! It takes TALM's program, in `HIBERNATE_TALM`, and upstream's definitions of kinds that TALM watches
//! (docs/test-world.md).

use std::process::Stdio;
use std::time::Instant;

use tokio::process::{Child, Command};

use super::*;

/// Three clusters in turn, the same again after these, one that times out, and one that pulls images.
const UPGRADES: [&str; 4] = ["first", "second", "late", "pull"];
const IMAGE: &str = "mirror.test/precache:1";
/// How long each of them works, in milliseconds: TALM takes two seconds to start.
const TURNS: [(u64, u64); 6] =
    [(300, 2_600), (700, 3_200), (1_500, 2_900), (500, 4_000), (2_200, 3_600), (1_000, 6_000)];

impl Hub {
    /// TALM without its Lease: out of a cluster it takes none.
    fn talm(&self) -> Result<Child> {
        let log = std::fs::File::options().create(true).append(true).open(self.world.dir().join("talm.log"))?;
        let mut command = Command::new(std::env::var_os("HIBERNATE_TALM").context("HIBERNATE_TALM is not set")?);
        command.args(["--skip-tls-profile", "--metrics-bind-address=0", "--health-probe-bind-address=0"]);
        command.env("KUBECONFIG", self.world.kubeconfig_of("admin")?).env("PRECACHE_IMG", IMAGE);
        Ok(command.stdout(Stdio::null()).stderr(log).kill_on_drop(true).spawn()?)
    }

    /// Where each upgrade is, and whether all of them have ended.
    async fn left(&self) -> Result<([String; 4], bool)> {
        let (mut states, mut is_over) = (UPGRADES.map(str::to_owned), true);
        for state in &mut states {
            let status = self.status(state).await?;
            let reason = status.conditions.last().map(|one| one.reason.clone()).unwrap_or_default();
            let (batch, progress) =
                (status.status.current_batch, json!(status.status.current_batch_remediation_progress));
            let pulled = json!(status.precaching.map(|pulled| pulled.status));
            *state = format!("{state}: {reason} {batch} {progress} {pulled}");
            is_over &= status.status.completed_at.is_some();
        }
        Ok((states, is_over))
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs TALM's program: HIBERNATE_TALM=PATH"]
async fn talm_and_we_take_over_from_each_other() -> Result<()> {
    upstream_folder("talm").context("the definitions: set HIBERNATE_UPSTREAM_CRDS")?;
    let hub = Hub::new().await?;
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "ptp", "namespace": "default" } });
    hub.governance.policy((NAMESPACE, "p3"), 3, &["spoke5"], &map).await?;
    hub.governance.turn(|knobs| {
        knobs.delays.comply = Duration::from_millis(1_500);
        knobs.stuck.extend([("spoke5".to_owned(), "p3".to_owned())]);
    });
    hub.images(&["spoke6"]).await?;
    let strategy = json!({ "maxConcurrency": 1, "canaries": ["spoke3"] });
    let blockers = json!([{ "name": "first", "namespace": "default" }]);
    let specs = [
        json!({ "clusters": ["spoke1", "spoke2", "spoke3"], "remediationStrategy": strategy }),
        json!({ "clusters": ["spoke1", "spoke2"], "blockingCRs": blockers, "remediationStrategy": { "maxConcurrency": 2 } }),
        json!({
            "clusters": ["spoke5"], "managedPolicies": ["p3"], "remediationStrategy": { "maxConcurrency": 1, "timeout": 1 },
        }),
        json!({
            "clusters": ["spoke6"], "managedPolicies": ["catalog"], "preCaching": true,
            "preCachingConfigRef": { "name": "images" }, "remediationStrategy": { "maxConcurrency": 1 },
        }),
    ];
    for (name, spec) in UPGRADES.into_iter().zip(specs) {
        hub.create(name, spec).await?;
    }

    let (begun, mut trace, mut steps) = (Instant::now(), vec![hub.left().await?.0], [0, 0]);
    let mut start = controller();
    start.args.extend(["--cgu-precache-image", IMAGE].map(str::to_owned));
    for (ours, theirs) in TURNS.into_iter().cycle() {
        hub.world.start(&start).await?;
        tokio::time::sleep(Duration::from_millis(ours)).await;
        hub.world.signal("controller", "kill").await?;
        let (left, _) = hub.left().await?;
        steps[0] += usize::from(trace.last() != Some(&left));
        trace.push(left);
        let mut talm = hub.talm()?;
        tokio::time::sleep(Duration::from_millis(theirs)).await;
        ensure!(talm.try_wait()?.is_none(), "TALM has ended by itself: see talm.log in {:?}", hub.world.dir());
        talm.kill().await?;
        let (left, is_over) = hub.left().await?;
        steps[1] += usize::from(trace.last() != Some(&left));
        trace.push(left);
        if is_over {
            break;
        }
        ensure!(begun.elapsed() < 5 * SOON, "it does not end: {trace:#?}");
    }
    assert!(
        steps.iter().all(|count| *count >= 3),
        "turns of ours, and of TALM's, that have changed anything: {steps:?} {trace:#?}"
    );
    for (name, ended) in UPGRADES.into_iter().zip(["Completed", "Completed", "TimedOut", "Completed"]) {
        let status = hub.status(name).await?;
        assert_eq!(status.condition("Succeeded").context("an end")?.reason, ended, "{name}: {:#}", json!(status));
    }
    assert_eq!(records(&hub.status("first").await?), ["spoke1 complete", "spoke2 complete", "spoke3 complete"]);
    for cluster in ["spoke1", "spoke2", "spoke3", "spoke6"] {
        assert_eq!(hub.labels(cluster).await?, ["ztp-done"], "{cluster}");
    }
    assert_eq!(records(&hub.status("late").await?), ["spoke5 timedout"]);
    hub.world.start(&start).await?;
    eventually(SOON, "no objects", async || {
        let of_the_pull: Vec<String> =
            hub.governance.turn(|knobs| knobs.objects.keys().map(|(_, path)| path.clone()).collect());
        let objects = hub.objects().await?;
        ensure!(objects.is_empty() && of_the_pull.is_empty(), "{objects:?} {of_the_pull:?}");
        Ok(())
    })
    .await
}
