//! Fills in the facts that a decision asks for.

use std::time::Duration;

use jiff::Timestamp;
use shared::cloud::{CloudError, CloudErrorKind, Priority};
use shared::hive::api::{ClusterDeployment, ClusterMetadata, Desired};
use shared::hive::conditions::{HIBERNATING, READY};
use shared::hive::decide::{Facts, Machines, Need, Served, Settings, Sync, needs};

use super::drivers::{PLATFORMS, platform};
use super::memory::Memory;
use super::{Context, spokes};
use crate::metrics::CloudCall;

/// What is known before anything is looked at.
pub fn begin<'a>(settings: Settings, cluster: &'a ClusterDeployment, sync: Sync, memory: &Memory) -> Facts<'a> {
    Facts {
        cluster,
        served: Served::platform(cluster.spec.platform.name(), PLATFORMS),
        sync,
        machines: None,
        tried: memory.tried.clone(),
        failed_looks: memory.failed_looks,
        spoke: None,
        asked_for: None,
        upgrade: None,
        settings,
        now: Timestamp::now(),
    }
}

/// Whether the look is only to make sure: the cluster is where it should be, nobody has changed anything about it, and no time
/// that a user has set has come.
pub fn is_idle(facts: &Facts<'_>, memory: &Memory) -> bool {
    let makes_sure = matches!(needs(facts), Some(Need::Machines { .. }));
    makes_sure && priority(facts.cluster) == Priority::Idle && !memory.has_changed(facts.cluster)
}

/// Looks at everything that the decision needs.
pub async fn complete(context: &Context, facts: &mut Facts<'_>, memory: &mut Memory) {
    let cluster = facts.cluster;
    while let Some(need) = needs(facts) {
        match need {
            Need::Machines { max_age } => facts.machines = Some(machines(context, cluster, memory, max_age).await),
            Need::Spoke => facts.spoke = Some(Box::pin(spokes::look(context, cluster, memory)).await),
            Need::Upgrade => facts.upgrade = Some(Box::pin(spokes::upgrade(context, cluster)).await),
        }
        facts.now = Timestamp::now();
    }
    facts.asked_for = memory.spoke.as_ref().map(|connection| connection.opened.elapsed());
}

async fn machines(
    context: &Context,
    cluster: &ClusterDeployment,
    memory: &mut Memory,
    max_age: Duration,
) -> Result<Machines, CloudError> {
    if let Some(machines) = memory.machines(max_age) {
        return Ok(machines);
    }
    let result = list(context, cluster).await;
    let label = CloudCall {
        cloud: platform(cluster),
        call: "list",
        result: result.as_ref().map_or_else(|error| error.kind.into(), |_| "ok"),
    };
    context.metrics.called(&label);
    match &result {
        Ok(machines) => {
            memory.listed();
            memory.saw_machines(machines);
        }
        Err(error) => {
            memory.failed_looks = memory.failed_looks.saturating_add(1);
            // Where nobody waits, the next look is soon enough to read the Secret again.
            let waited_for = priority(cluster) != Priority::Idle;
            memory.doubt(error, || context.drivers.doubt(cluster).filter(|_| waited_for));
        }
    }
    result
}

async fn list(context: &Context, cluster: &ClusterDeployment) -> Result<Machines, CloudError> {
    let infra_id = &metadata(cluster)?.infra_id;
    let driver = Box::pin(context.drivers.of(cluster)).await?;
    Ok(Machines::new(driver.selector(infra_id), driver.list(infra_id, priority(cluster)).await?))
}

/// Who is waited for goes first: a cluster that is where it should be is looked at when nobody else has to be.
fn priority(cluster: &ClusterDeployment) -> Priority {
    let (there, on_the_way) = match cluster.desired() {
        Desired::Hibernating => (HIBERNATING, Priority::Sleeping),
        Desired::Running => (READY, Priority::Waking),
    };
    let is_there = cluster.condition(there).is_some_and(|condition| condition.status == "True");
    if is_there { Priority::Idle } else { on_the_way }
}

/// What an installed cluster must say of itself. The schema asks for the fields, but allows them to be empty.
pub fn metadata(cluster: &ClusterDeployment) -> Result<&ClusterMetadata, CloudError> {
    let missing = |field: &str| CloudError {
        kind: CloudErrorKind::Invalid,
        message: format!(
            "spec.clusterMetadata{field} is missing, so the cluster's machines cannot be told from others"
        ),
    };
    let metadata = cluster.spec.cluster_metadata.as_ref().ok_or_else(|| missing(""))?;
    if metadata.infra_id.is_empty() { Err(missing(".infraID")) } else { Ok(metadata) }
}

#[cfg(test)]
mod tests {
    use shared::hive::api::{ClusterDeploymentSpec, ClusterDeploymentStatus, Condition};
    use shared::keys;

    use super::*;

    /// Told to sleep, with this status of H.
    fn cluster(hibernating: &str) -> ClusterDeployment {
        let spec = ClusterDeploymentSpec {
            installed: true,
            power_state: Some("Hibernating".to_owned()),
            ..ClusterDeploymentSpec::default()
        };
        let condition =
            Condition { type_: HIBERNATING.to_owned(), status: hibernating.to_owned(), ..Condition::default() };
        let mut cluster = ClusterDeployment::new("demo", spec);
        cluster.status = Some(ClusterDeploymentStatus { conditions: vec![condition], ..Default::default() });
        cluster
    }

    #[test]
    fn a_look_is_idle_if_nobody_waits_for_what_comes_of_it() {
        let (asleep, falling_asleep) = (cluster("True"), cluster("False"));
        let annotated = |key: &str, value: &str| {
            let mut cluster = asleep.clone();
            cluster.metadata.annotations = Some([(key.to_owned(), value.to_owned())].into());
            cluster
        };
        let (to_wake, touched) = (annotated(keys::WAKE_AT, "2020-01-01T00:00:00Z"), annotated("example.org/a", "b"));
        let mut seen = Memory::of(&asleep);
        seen.rest(&asleep, Sync::Applied, Duration::ZERO);
        for (case, cluster, memory, idle) in [
            ("for the first time", &asleep, &Memory::default(), true),
            ("once more", &asleep, &seen, true),
            ("not there yet", &falling_asleep, &Memory::default(), false),
            ("its time has come", &to_wake, &Memory::default(), false),
            ("somebody has changed it", &touched, &seen, false),
        ] {
            let mut facts = begin(Settings::default(), cluster, Sync::Applied, memory);
            facts.served = Served::ByUs;
            assert_eq!(is_idle(&facts, memory), idle, "{case}");
        }
    }
}
