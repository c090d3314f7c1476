//! What others than the user do about a change of a `ClusterDeployment`: its pool, `hibernateAfter`, and a controller
//! that may not be there.

use jiff::Timestamp;
use serde_json::Value;

use crate::annotation::format;
use crate::hive::api::ClusterDeployment;
use crate::hive::conditions::PROGRESS;
use crate::hive::pool::deciding;
use crate::hive::preflight::PREFLIGHT;
use crate::kinds::lifecycle::{Advice, Intent};
use crate::power::Power;

/// A patch that leaves the power state as it is can be undone only where it is a hold that nobody may keep.
pub(super) fn of(cluster: &ClusterDeployment, intent: &Intent<'_>, patch: &Value) -> Advice {
    let unattended = unattended(cluster, intent.power, intent.end);
    let is_unheld = intent.power == Power::Running && unattended.is_some();
    let is_undone = is_unheld || patch.pointer("/spec/powerState").is_some();
    let pool = deciding(cluster).filter(|_| is_undone);
    let clock = by_clock(cluster, intent.power, intent.end).filter(|_| is_undone && pool.is_none());
    Advice { unattended, undone: clock, pool: pool.map(|pool| (pool.namespace.clone(), pool.pool_name.clone())) }
}

/// Of an end time if only Hive's own controller runs, which supports none.
fn unattended(cluster: &ClusterDeployment, action: Power, end: Option<Timestamp>) -> Option<String> {
    let end = format::seconds(end.filter(|_| !is_attended(cluster))?);
    let missing = match action {
        Power::Hibernating => format!("it does not wake at {end}"),
        Power::Running => format!("only the admission webhook, if installed, enforces the hold until {end}"),
    };
    Some(format!("no sign that hibernate-controller manages it: without the controller, {missing}"))
}

/// Whether our controller has ever written to it: these conditions are its own.
fn is_attended(cluster: &ClusterDeployment) -> bool {
    [PROGRESS, PREFLIGHT].iter().any(|ours| cluster.condition(ours).is_some())
}

/// What `hibernateAfter` does about a wake. Hive's own controller ignores holds.
fn by_clock(cluster: &ClusterDeployment, action: Power, hold: Option<Timestamp>) -> Option<String> {
    let held = hold.is_some() && is_attended(cluster);
    let after = cluster.spec.hibernate_after.as_deref().filter(|_| action == Power::Running && !held)?;
    Some(format!(
        "spec.hibernateAfter puts it to sleep again {after} after it is running; raise or remove it if that is too soon"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster(name: &str, spec: &Value) -> ClusterDeployment {
        let mut object = json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
            "metadata": { "name": name, "namespace": name, "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "baseDomain": "d", "clusterName": name, "platform": {} },
        });
        object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_wake_that_ends_by_itself_is_warned_of() {
        let timed = cluster("a", &json!({ "hibernateAfter": "8h" }));
        assert!(by_clock(&timed, Power::Running, None).unwrap().contains("again 8h after"));
        assert_eq!(by_clock(&timed, Power::Hibernating, None), None);
        let hold = Some(Timestamp::UNIX_EPOCH);
        assert!(by_clock(&timed, Power::Running, hold).is_some(), "nobody heeds the hold");
        assert_eq!(by_clock(&attended(timed, PREFLIGHT), Power::Running, hold), None, "a hold was given");
        assert_eq!(by_clock(&cluster("a", &json!({})), Power::Running, None), None);
    }

    fn attended(mut cluster: ClusterDeployment, type_: &str) -> ClusterDeployment {
        let condition = serde_json::from_value(json!({ "type": type_, "status": "True" })).unwrap();
        cluster.status.get_or_insert_default().conditions.push(condition);
        cluster
    }

    #[test]
    fn an_end_that_nobody_may_act_on_is_warned_of() {
        let end = Some("2026-11-22T08:00:00Z".parse().unwrap());
        let plain = cluster("a", &json!({}));
        assert!(
            unattended(&plain, Power::Hibernating, end).unwrap().ends_with("it does not wake at 2026-11-22T08:00:00Z")
        );
        assert!(
            unattended(&plain, Power::Running, end).unwrap().ends_with("enforces the hold until 2026-11-22T08:00:00Z")
        );
        assert_eq!(unattended(&plain, Power::Hibernating, None), None);
        let hives = attended(plain.clone(), "Hibernating");
        assert!(unattended(&hives, Power::Hibernating, end).is_some(), "Hive writes that one too");
        for ours in [PROGRESS, PREFLIGHT] {
            assert_eq!(unattended(&attended(plain.clone(), ours), Power::Hibernating, end), None);
        }
    }
}
