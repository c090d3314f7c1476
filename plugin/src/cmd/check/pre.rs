//! Before an installation: whether the hub can have one, and what is there of an earlier one.

use std::iter;

use futures::future::join_all;
use hub::HubClient;
use hub::error::HubError;
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::hive::config::{HIVE, HIVE_CONFIG, is_disabled};
use shared::kinds::Kind;
use shared::kinds::workload::DEPLOYMENT;
use shared::object::{name_of, text};
use shared::text::list;
use view::protection::{MUTATING_WEBHOOKS, WEBHOOKS};
use view::resolve::NAMESPACE;

use super::facts::{BINDINGS, OURS, POLICIES, ROLE_BINDINGS, ROLES, kustomize, object, objects, unbound};
use super::installed::POLICY_ONLY;
use super::secrets;
use super::{CheckResult, Finding, Status};
use crate::read::DEFINITIONS;

/// The first minor version of Kubernetes with `ValidatingAdmissionPolicies` by default.
const OLDEST: u64 = 30;
/// Kinds in no namespace that an uninstallation may have left. A definition stays on purpose, with its rollouts.
static LEFT: [&Kind; 6] = [&WEBHOOKS, &MUTATING_WEBHOOKS, &POLICIES, &BINDINGS, &ROLES, &ROLE_BINDINGS];
/// Further kinds of the default installation, in its namespace.
static MORE: [(&str, &str); 9] = [
    ("", "secrets"),
    ("", "serviceaccounts"),
    ("", "services"),
    ("rbac.authorization.k8s.io", "roles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("coordination.k8s.io", "leases"),
    ("networking.k8s.io", "networkpolicies"),
    ("policy", "poddisruptionbudgets"),
    ("apps", "deployments"),
];

/// Runs the checks.
pub(super) async fn findings(hub: &HubClient, namespace: Option<&str>) -> Vec<Finding> {
    let namespace = namespace.unwrap_or(keys::NAMESPACE);
    let (version, rights, leftovers, hive) =
        tokio::join!(version(hub), rights(hub, namespace), leftovers(hub), hive(hub));
    let secrets = unbound(hub, namespace).await;
    let secrets = secrets.map(|all| (!all.is_empty()).then(|| secrets::judge(true, &all, namespace)));
    let found = [("kubernetes", version), ("rights", Ok(Some(rights))), ("leftovers", leftovers), ("hive", hive)];
    let finding = |(name, result): (_, Result<_, HubError>)| {
        Some(Finding::new(name, result.unwrap_or_else(|error| Some(CheckResult::unread(&error)))?))
    };
    found.into_iter().chain([("secrets", secrets)]).filter_map(finding).collect()
}

type Answer = Result<Option<CheckResult>, HubError>;

async fn version(hub: &HubClient) -> Answer {
    let version = hub.raw("/version").await?;
    Ok(Some(judge(text(&version, "/major"), text(&version, "/minor"), text(&version, "/gitVersion"))))
}

/// Clouds append a sign to the minor version.
fn judge(major: &str, minor: &str, whole: &str) -> CheckResult {
    let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
    if major == "1" && digits.parse().is_ok_and(|minor: u64| minor < OLDEST) {
        let detail = format!(
            "the hub runs Kubernetes {whole}, must be 1.{OLDEST} or newer; without policies, and rollouts: overlays/without-ca-bundle-policy, and never the components openstack, cgu, shoots, virtual-machines and workload-schedules, whose rights only a policy confines"
        );
        return CheckResult::failed(detail, "");
    }
    CheckResult::ok(whole)
}

async fn rights(hub: &HubClient, namespace: &str) -> CheckResult {
    let everywhere = LEFT.into_iter().chain([&DEFINITIONS, &NAMESPACE]).map(|kind| (kind.group, kind.plural, ""));
    let here = MORE.into_iter().map(|(group, resource)| (group, resource, namespace));
    let all: Vec<(&str, &str, &str)> = everywhere.chain(here).collect();
    let asked = all.iter().map(async |&(group, resource, namespace)| {
        let attributes = json!({ "verb": "create", "group": group, "resource": resource, "namespace": namespace });
        (resource, hub.is_allowed(&attributes).await)
    });
    let answers = join_all(asked).await;
    let denied: Vec<&str> =
        answers.iter().filter(|(_, allowed)| *allowed == Some(false)).map(|(name, _)| *name).collect();
    if !denied.is_empty() {
        return CheckResult::failed(
            format!("you may not create {}: install as a cluster administrator", list(denied)),
            "",
        );
    }
    if answers.iter().any(|(_, allowed)| allowed.is_none()) {
        let detail = "the API server does not answer what you may create";
        return CheckResult { status: Status::NotChecked, ..CheckResult::ok(detail) };
    }
    CheckResult::ok(format!("you may create all {} kinds of the installation", all.len()))
}

async fn leftovers(hub: &HubClient) -> Answer {
    let found = join_all(LEFT.iter().map(|kind| objects(hub, kind, None, OURS))).await;
    let mut left = Vec::new();
    for (kind, found) in iter::zip(LEFT, found) {
        let found = found?;
        if found.iter().any(|object| name_of(object) != POLICY_ONLY) {
            left.push((kind, format!("{} {}", found.len(), kind.plural)));
        }
    }
    if left.is_empty() {
        return Ok(Some(CheckResult::ok("nothing of an earlier installation")));
    }
    let names = list(left.iter().map(|(_, count)| count));
    let running = objects(hub, &DEPLOYMENT.kind, None, OURS).await?;
    if let Some(namespace) = running.first().map(|deployment| text(deployment, "/metadata/namespace")) {
        let detail =
            format!("kubectl-hibernate is installed in namespace {namespace} already: this will be an upgrade");
        return Ok(Some(CheckResult::warning(detail, "kubectl hibernate check")));
    }
    let kinds: Vec<&str> = left.iter().map(|(kind, _)| kind.plural).collect();
    let detail = format!("an earlier installation has left {names}");
    Ok(Some(CheckResult::failed(detail, format!("kubectl delete {} -l {OURS}", kinds.join(",")))))
}

async fn hive(hub: &HubClient) -> Answer {
    let config: Option<Value> = object(hub, &HIVE_CONFIG, "", HIVE).await?;
    Ok(config.map(|config| {
        if is_disabled(&config) {
            return CheckResult::ok("Hive's own hibernation controller is off");
        }
        let detail =
            "Hive's own hibernation controller runs: begin with the webhook alone, then cut over (docs/hive.md)";
        CheckResult::warning(detail, kustomize("overlays/webhook-only"))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_1_30_are_refused() {
        for (major, minor, expected) in [
            ("1", "29", Status::Failed),
            ("1", "29+", Status::Failed),
            ("1", "30", Status::Ok),
            ("1", "36+", Status::Ok),
            ("2", "0", Status::Ok),
            ("1", "", Status::Ok),
        ] {
            let judged = judge(major, minor, "v");
            assert_eq!(judged.status, expected, "{major}.{minor}");
            assert_eq!(
                judged
                    .detail
                    .contains("never the components openstack, cgu, shoots, virtual-machines and workload-schedules"),
                expected == Status::Failed
            );
        }
    }
}
