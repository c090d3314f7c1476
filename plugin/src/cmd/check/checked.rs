//! What a check of an installation comes to.

use hub::error::HubError;
use serde_json::Value;

use super::facts::Facts;
use super::finding::CheckResult;

/// A result; none where there is nothing to check; or why the hub did not answer.
pub(super) type Checked<'a> = Result<Option<CheckResult>, &'a HubError>;

/// A result that there always is.
#[expect(clippy::unnecessary_wraps, reason = "the form of a check")]
pub(super) fn done<'a>(result: CheckResult) -> Checked<'a> {
    Ok(Some(result))
}

/// A failure that another application of the manifests fixes.
pub(super) fn reinstall<'a>(facts: &Facts, detail: &str) -> Checked<'a> {
    let command = facts.install("");
    let advice = if command.is_empty() { ": apply your manifests again" } else { "" };
    done(CheckResult::failed(format!("{detail}{advice}"), command))
}

/// `kubectl rollout restart` of one of our Deployments.
pub(super) fn restart(facts: &Facts, name: &str) -> String {
    format!("kubectl rollout restart deployment/{name} -n {}", facts.namespace)
}

/// Whether the service that the rules name is gone: none of our Pods runs, and what could be said of them is moot.
pub(super) fn is_abandoned(facts: &Facts) -> bool {
    let service = |rules: &Value| rules.pointer("/webhooks/0/clientConfig/service").is_some();
    let named = facts.rules.iter().any(|rules| matches!(rules, Ok(Some(rules)) if service(rules)));
    named && matches!(facts.service, Ok(None))
}
