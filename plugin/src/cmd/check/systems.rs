//! The checks of what an installation serves: Hive, KKP, TALM.

use serde_json::Value;
use shared::annotation::keys;
use shared::hive::api::SERVED_PLATFORMS;
use shared::hive::config::is_disabled;
use shared::kinds::FOUNDATIONDB_CLUSTER;
use shared::object::{items, text};

use super::facts::{Facts, OPENSHIFT};
use super::{CheckOutcome, CheckResult, done};
use crate::read::held;

pub(super) fn hive(facts: &Facts) -> CheckOutcome<'_> {
    facts.deployments.as_ref()?;
    let Some(config) = facts.hive.as_ref()? else { return Ok(None) };
    let served = facts.argument(keys::WEBHOOK, "--served-platforms");
    let cut_over = || {
        let values = format!("servedPlatforms={{{}}},controller.replicas=2", SERVED_PLATFORMS.join("\\,"));
        let overlay = if facts.serves(OPENSHIFT) { "overlays/cut-over-openshift" } else { "overlays/cut-over" };
        facts.install_overlay(overlay, &values)
    };
    let result = match (is_disabled(config), facts.replicas(keys::CONTROLLER) > 0, served) {
        (false, true, _) => CheckResult::failed(
            "Hive's own hibernation controller and hibernate-controller both run: stop ours, or cut over (docs/hive.md)",
            stop(&facts.namespace),
        ),
        (true, false, _) => CheckResult::failed(
            "neither Hive's own hibernation controller nor hibernate-controller runs: no cluster sleeps or wakes (docs/hive.md, Cut over)",
            cut_over(),
        ),
        (true, true, None) => CheckResult::failed(
            "Hive's own hibernation controller is off, and the webhook still accepts platforms that only Hive serves (docs/hive.md, Cut over)",
            cut_over(),
        ),
        (false, false, Some(_)) => CheckResult::warning(
            "Hive's own hibernation controller runs, and the webhook rejects platforms that Hive serves (docs/hive.md, Cut back)",
            facts.install_overlay("overlays/webhook-only", "servedPlatforms=null"),
        ),
        (true, true, Some(served)) => CheckResult::ok(format!("hibernate-controller serves {served}")),
        (false, false, None) => {
            CheckResult::ok("Hive's own hibernation controller runs, hibernate-controller does not")
        }
    };
    done(result)
}

/// The command that stops our controller.
pub(super) fn stop(namespace: &str) -> String {
    format!("kubectl scale deployment {} -n {namespace} --replicas=0", keys::CONTROLLER)
}

pub(super) fn kkp(facts: &Facts) -> CheckOutcome<'_> {
    if facts.is_abandoned() || !facts.has_user_clusters {
        return Ok(None);
    }
    facts.deployments.as_ref()?;
    let has_rule = |rules: &Value| items(rules, "/webhooks").any(|entry| text(entry, "/name").contains("kkp"));
    if facts.argument(keys::CONTROLLER, "--kkp").is_some() && facts.rules.iter().flatten().flatten().any(has_rule) {
        return done(CheckResult::ok("the controller serves KKP's Clusters, the webhook guards them"));
    }
    // The overlay has no guard of FoundationDB's volumes.
    let has_databases = facts.serves(FOUNDATIONDB_CLUSTER.kind.group);
    let command =
        if has_databases { String::new() } else { facts.install_overlay("overlays/kkp", "components.kkp=true") };
    let detail =
        "the hub has KKP's Clusters, and the component kkp is not installed: none of them sleeps (docs/kkp.md)";
    done(CheckResult::warning(detail, command))
}

pub(super) fn talm(facts: &Facts) -> CheckOutcome<'_> {
    let Some(lease) = facts.talm.as_ref()? else { return Ok(None) };
    if held(lease, facts.now).is_err() {
        return done(CheckResult::ok("TALM does not renew its Lease: hibernate-controller runs upgrades"));
    }
    let detail = "TALM renews its Lease: hibernate-controller, which has --cgu, leaves all upgrades to it";
    done(CheckResult::warning(detail, ""))
}
