//! The checks of an installation, each over facts that were read.

use hub::error::HubError;
use serde::Deserialize;
use serde_json::Value;
use shared::admission::policy::Deny;
use shared::annotation::keys;
use shared::kinds::Kinds;
use shared::object::{items, name_of, named, text};
use shared::rollout::admission::{POLICY, policy};
use shared::schedule::admission::policy as schedule_policy;
use shared::schedule::zone::RELEASE;
use shared::text::list;

use super::facts::{CONFINED, Facts, OUR_DEFINITIONS, alone, kustomize, of_name};
use super::{CheckOutcome, CheckResult, Finding, Status, done};
use super::{certificate, secrets, systems};
use crate::read::held;

/// This program's version, which is that of the manifests beside it.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The policy of the overlay policy-only.
pub(super) const POLICY_ONLY: &str = "clusterdeployments.hibernate.sh";

/// The check that reads nothing of the hub.
pub(super) const TIME_ZONES: &str = "time-zones";

/// A check: pure.
type Check = fn(&Facts) -> CheckOutcome<'_>;

/// Every check, in the order of the output.
pub(super) const CHECKS: [(&str, Check); 13] = [
    ("versions", versions),
    ("webhook-rules", rules),
    ("webhook-pods", pods),
    ("webhook-ca-bundle", certificate::ca_bundle),
    ("webhook-certificate", certificate::lifetime),
    ("webhook-answers", answers),
    ("policies", policies),
    ("secrets", secrets::secrets),
    ("controller-lease", controller_lease),
    (TIME_ZONES, time_zones),
    ("hive", systems::hive),
    ("kkp", systems::kkp),
    ("talm", systems::talm),
];

/// Runs all of them.
pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let absent = |found: &Result<Option<Value>, _>| matches!(found, Ok(None));
    // An uninstallation keeps the definitions.
    let has_programs = !matches!(&facts.deployments, Ok(found) if found.is_empty());
    if facts.rules.iter().all(absent) && (facts.definitions.iter().all(absent) || !has_programs) {
        let policies = facts.policies.iter().flatten().flatten();
        if policies.into_iter().any(|policy| name_of(policy) == POLICY_ONLY) {
            return vec![Finding::new("policies", CheckResult::ok("policies alone, without webhook and controller"))];
        }
        let detail = "kubectl-hibernate is not installed on the hub";
        return vec![Finding::new("installed", CheckResult::failed(detail, kustomize("")))];
    }
    let run = |(name, check): (&'static str, Check)| {
        let result = check(facts).unwrap_or_else(|error| Some(CheckResult::unread(error)))?;
        Some(Finding::new(name, result))
    };
    CHECKS.into_iter().filter_map(run).collect()
}

fn versions(facts: &Facts) -> CheckOutcome<'_> {
    let deployments = facts.deployments.as_ref()?;
    let mut definitions = Vec::new();
    for (definition, (name, what)) in facts.definitions.iter().zip(OUR_DEFINITIONS) {
        let Some(definition) = definition.as_ref()? else {
            return facts.reinstall(&format!("CustomResourceDefinition {name} is missing: there are no {what}"));
        };
        definitions.push(definition);
    }
    let objects = deployments.iter().chain(definitions);
    let version = |object| match text(object, "/metadata/labels/app.kubernetes.io~1version") {
        "" => "unlabeled".to_owned(),
        version => format!("v{version}"),
    };
    let found: Vec<(String, String)> = objects.map(|one| (name_of(one).to_owned(), version(one))).collect();
    let all = list(found.iter().map(|(name, version)| format!("{name} is {version}")));
    let Some((_, hub)) = found.first().filter(|(_, first)| found.iter().all(|(_, version)| version == first)) else {
        return facts.reinstall(&format!("versions differ: {all}"));
    };
    if *hub == format!("v{VERSION}") {
        return done(CheckResult::ok(format!("v{VERSION} here and on the hub")));
    }
    let numbers = |version: &str| version.split('.').map(|part| part.parse().unwrap_or(0)).collect::<Vec<u64>>();
    let is_newer = numbers(hub.trim_start_matches('v')) > numbers(VERSION);
    let command = if is_newer { "kubectl krew upgrade hibernate".to_owned() } else { facts.install("") };
    done(CheckResult::warning(format!("the plugin is v{VERSION}, the hub has {hub}"), command))
}

/// The writes that an entry under Fail is asked about.
fn blocked(entry: &Value) -> Option<String> {
    let names = |rule: &Value, field: &str| items(rule, field).filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
    let rules =
        items(entry, "/rules").map(|rule| format!("{} of {}", names(rule, "/operations"), names(rule, "/resources")));
    let is_fail = text(entry, "/failurePolicy") == "Fail";
    is_fail.then(|| format!("{} ({})", rules.collect::<Vec<_>>().join(", "), text(entry, "/name")))
}

fn rules(facts: &Facts) -> CheckOutcome<'_> {
    facts.service.as_ref()?;
    let [validating, mutating] = &facts.rules;
    let found = [validating.as_ref()?, mutating.as_ref()?];
    let all: Vec<&Value> = found.into_iter().flatten().flat_map(|rules| items(rules, "/webhooks")).collect();
    let blocked: Vec<String> = all.iter().copied().filter_map(blocked).collect();
    let name = keys::WEBHOOK;
    if facts.is_abandoned() {
        let volumes = all.iter().any(|rule| text(rule, "/name") == "suspend.hibernate.sh");
        let first = if volumes {
            ", or, as the operator then deletes suspended FoundationDB volumes, run `check --before-uninstall` first"
        } else {
            ""
        };
        let detail = format!(
            "Service {name} in namespace {} is gone and its rules are not: the API server refuses {}. To keep the product, install it again{first}",
            facts.namespace,
            list(blocked)
        );
        let delete = format!(
            "kubectl delete validatingwebhookconfiguration,mutatingwebhookconfiguration {name} --ignore-not-found"
        );
        return done(CheckResult::failed(detail, delete));
    }
    if found.iter().any(|rules| rules.is_none()) {
        let detail = format!(
            "ValidatingWebhookConfiguration or MutatingWebhookConfiguration {name} is missing: requests are not checked"
        );
        return facts.reinstall(&detail);
    }
    done(CheckResult::ok(format!("{} rules, {} of them fail closed", all.len(), blocked.len())))
}

fn pods(facts: &Facts) -> CheckOutcome<'_> {
    let (namespace, name) = (&facts.namespace, keys::WEBHOOK);
    let (_, endpoints) = (facts.deployments.as_ref()?, facts.endpoints.as_ref()?);
    if facts.is_abandoned() {
        return Ok(None);
    }
    if facts.deployment(name).is_none() {
        return facts.reinstall(&format!("Deployment {name} in namespace {namespace} is missing"));
    }
    let is_ready = |endpoint: &&Value| endpoint.pointer("/conditions/ready") != Some(&Value::Bool(false));
    let ready = endpoints.iter().flat_map(|slice| items(slice, "/endpoints")).filter(is_ready).count();
    match (facts.replicas(name), ready) {
        (0, _) => {
            let scale = format!("kubectl scale deployment {name} -n {namespace} --replicas=2");
            done(CheckResult::failed(format!("Deployment {name} has 0 replicas"), scale))
        }
        (_, 0) => {
            let describe = format!("kubectl describe pods -n {namespace} -l app.kubernetes.io/name={name}");
            done(CheckResult::failed(format!("no Pod of Service {name} is ready"), describe))
        }
        (replicas, ready) => done(CheckResult::ok(format!("{ready} of {replicas} ready"))),
    }
}

fn answers(facts: &Facts) -> CheckOutcome<'_> {
    match &facts.trial {
        _ if facts.is_abandoned() => Ok(None),
        Err(error @ HubError::Refused { .. }) if error.webhook().is_some_and(|name| name.ends_with(keys::GROUP)) => {
            done(CheckResult::ok("rejected the test request, as expected"))
        }
        Err(error @ HubError::WebhookDown { .. }) => {
            done(CheckResult::failed(error.to_string(), facts.restart(keys::WEBHOOK)))
        }
        Err(HubError::NoKind(_)) => Ok(None), // the versions name it
        // You may not patch clusters where the test request names one (R1).
        Err(error @ HubError::Refused { by, .. }) if by.contains(POLICY) => {
            done(CheckResult { status: Status::NotChecked, ..CheckResult::ok(error.to_string()) })
        }
        Err(error) => Err(error),
        Ok(_) => facts.reinstall("no webhook rejected the test request"),
    }
}

/// The policies without which the controller does nothing, and what it does not do.
fn guards(kinds: Kinds) -> [(Deny, &'static str); 2] {
    [(policy(kinds), "no rollout starts"), (schedule_policy(kinds), "no schedule acts")]
}

fn policies(facts: &Facts) -> CheckOutcome<'_> {
    let (roles, policies, bindings) = (facts.roles.as_ref()?, facts.policies.as_ref()?, facts.bindings.as_ref()?);
    let Some(policies) = policies else {
        let alone: Vec<&str> = alone(roles).collect();
        if !alone.is_empty() {
            let names = alone.join(" ");
            let detail = format!("Kubernetes before 1.30 has no policy that confines ClusterRole {names}");
            return done(CheckResult::failed(detail, format!("kubectl delete clusterrolebinding {names}")));
        }
        let detail = "Kubernetes before 1.30 has no ValidatingAdmissionPolicies: RBAC alone confines the programs, no rollout starts, and no schedule acts";
        return done(CheckResult::warning(detail, ""));
    };
    for (deny, what) in guards(facts.kinds) {
        let guard = named(policies, deny.name).and_then(|object| Deserialize::deserialize(object).ok());
        let bound = named(bindings, deny.name).and_then(|object| Deserialize::deserialize(object).ok());
        if let Some(why) = deny.differs(guard.as_ref(), bound.as_ref()) {
            return facts.reinstall(&format!("{why}: until then {what}"));
        }
    }
    let denies = |binding: &Value| items(binding, "/spec/validationActions").any(|action| action == "Deny");
    let account = format!("system:serviceaccount:{}:", facts.namespace);
    for (role, name, _) in CONFINED.into_iter().filter(|(role, _, _)| of_name(roles, role).next().is_some()) {
        let missing = match (named(policies, name), named(bindings, name)) {
            (None, None) if role == keys::WEBHOOK => {
                let detail = format!("nothing confines ClusterRole {role}: component ca-bundle-only is not installed");
                return done(CheckResult::warning(detail, ""));
            }
            (None, _) => "ValidatingAdmissionPolicy",
            (Some(policy), _) if !policy["spec"]["matchConditions"].to_string().contains(&account) => {
                return facts
                    .reinstall(&format!("policy {name} is not about the accounts of namespace {}", facts.namespace));
            }
            (_, Some(binding)) if denies(binding) => continue,
            _ => "ValidatingAdmissionPolicyBinding (with Deny)",
        };
        let without = match name.strip_prefix("hibernate-claims-") {
            Some(targets) => format!("whoever may update {targets} may write claims of rollouts"),
            None => format!("nothing confines ClusterRole {role}"),
        };
        return facts.reinstall(&format!("{missing} {name} is missing: {without}"));
    }
    done(CheckResult::ok(format!("{} policies, each with its binding", policies.len())))
}

fn controller_lease(facts: &Facts) -> CheckOutcome<'_> {
    let (lease, _) = (facts.lease.as_ref()?, facts.deployments.as_ref()?);
    if facts.is_abandoned() || facts.deployment(keys::CONTROLLER).is_some() && facts.replicas(keys::CONTROLLER) == 0 {
        return Ok(None);
    }
    let (name, namespace) = (keys::CONTROLLER, &facts.namespace);
    if facts.deployment(name).is_none() {
        return facts.reinstall(&format!("Deployment {name} in namespace {namespace} is missing"));
    }
    let what = format!("the Lease {name} in namespace {namespace}");
    let Some(lease) = lease else { return facts.reinstall(&format!("{what} is missing: no controller runs")) };
    match held(lease, facts.now) {
        Ok(()) => done(CheckResult::ok(format!("held by {}", text(lease, "/spec/holderIdentity")))),
        Err(why) => {
            let detail = format!("{what} {why}: no controller runs");
            done(CheckResult::failed(detail, facts.restart(keys::CONTROLLER)))
        }
    }
}

/// Times of schedules are computed here, too: `schedule next` and `create`.
fn time_zones(_: &Facts) -> CheckOutcome<'_> {
    done(CheckResult::ok(format!("release {} of the time zone database in this program", RELEASE.unwrap_or("unknown"))))
}
