//! The checks of an installation, each over facts that were read.

use serde_json::Value;
use shared::annotation::keys;
use shared::rollout::admission::{POLICY, policy};
use shared::text::list;

use super::certificate::{Distrust, bytes, verify};
use super::finding::{CheckResult, Finding};
use super::hub::{Facts, POWER_ROLLOUT_DEFINITION, SECRET, kustomize};
use crate::api::error::HubError;
use crate::api::{name_of, text};
use crate::read::installation::{HIBERNATION, held, is_disabled};

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
        return done(CheckResult::failed(detail, facts.install()));
    };
    let objects = deployments.iter().chain([definition]);
    let version = |object| match text(object, "/metadata/labels/app.kubernetes.io~1version") {
        "" => "of no version".to_owned(),
        version => format!("v{version}"),
    };
    let found: Vec<(String, String)> = objects.map(|one| (name_of(one).to_owned(), version(one))).collect();
    let all = list(found.iter().map(|(name, version)| format!("{name} is {version}")));
    let Some((_, hub)) = found.first().filter(|(_, first)| found.iter().all(|(_, version)| version == first)) else {
        return done(CheckResult::failed(format!("versions differ: {all}"), facts.install()));
    };
    if *hub == format!("v{VERSION}") {
        return done(CheckResult::ok(format!("v{VERSION} here and on the hub")));
    }
    let numbers = |version: &str| version.split('.').map(|part| part.parse().unwrap_or(0)).collect::<Vec<u64>>();
    let is_newer = numbers(hub.trim_start_matches('v')) > numbers(VERSION);
    let command = if is_newer { "kubectl krew upgrade hibernate".to_owned() } else { facts.install() };
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
    let [validating, mutating] = &facts.rules;
    let (Some(validating), Some(mutating)) = (validating.as_ref()?, mutating.as_ref()?) else {
        let detail = format!(
            "ValidatingWebhookConfiguration or MutatingWebhookConfiguration {} is missing: no request is checked",
            keys::WEBHOOK
        );
        return done(CheckResult::failed(detail, facts.install()));
    };
    let all: Vec<&Value> = [validating, mutating].into_iter().flat_map(|rules| items(rules, "/webhooks")).collect();
    let blocked: Vec<String> = all.iter().copied().filter_map(blocked).collect();
    if !is_abandoned(facts) {
        return done(CheckResult::ok(format!("{} rules, {} of them fail closed", all.len(), blocked.len())));
    }
    facts.service.as_ref()?;
    let detail = format!(
        "Service {} in namespace {} is gone and its rules are not: the API server refuses {}",
        keys::WEBHOOK,
        facts.namespace,
        list(blocked)
    );
    let delete =
        format!("kubectl delete validatingwebhookconfiguration,mutatingwebhookconfiguration {}", keys::WEBHOOK);
    done(CheckResult::failed(detail, delete))
}

fn pods(facts: &Facts) -> Checked<'_> {
    let (namespace, name) = (&facts.namespace, keys::WEBHOOK);
    let (_, endpoints) = (facts.deployments.as_ref()?, facts.endpoints.as_ref()?);
    if is_abandoned(facts) {
        return Ok(None);
    }
    if facts.deployment(name).is_none() {
        return done(CheckResult::failed(
            format!("Deployment {name} in namespace {namespace} is missing"),
            facts.install(),
        ));
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
        return done(CheckResult::failed(format!("{secret} is missing"), facts.install()));
    }
    if chain.is_empty() {
        let detail = format!("{secret} is empty: a webhook that runs fills it");
        return done(CheckResult::failed(detail, restart));
    }
    for entry in rules.into_iter().flatten().flat_map(|rules| items(rules, "/webhooks")) {
        let bundle = bytes(entry.pointer("/clientConfig/caBundle"));
        if let Err(Distrust::Other(why)) = verify(&bundle, &chain, &host(entry), facts.now) {
            let name = text(entry, "/name");
            let detail = format!("caBundle of {name} does not fit the certificate in {secret}: {why}");
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
            let detail = format!("the webhook's certificate ends{end}: a webhook that runs renews it earlier");
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
            done(CheckResult::ok("refuses a dry run as it must"))
        }
        Err(error @ HubError::WebhookDown { .. }) => {
            done(CheckResult::failed(error.to_string(), restart(facts, keys::WEBHOOK)))
        }
        Err(HubError::NoKind(_)) => Ok(None), // the versions name it
        Err(error) => Err(error),
        Ok(_) => done(CheckResult::failed("no webhook judged a dry run that it must refuse", facts.install())),
    }
}

fn policies(facts: &Facts) -> Checked<'_> {
    let (roles, policies, bindings) = (facts.roles.as_ref()?, facts.policies.as_ref()?, facts.bindings.as_ref()?);
    let named = |objects: &'_ [Value], name: &str| objects.iter().find(|object| name_of(object) == name).cloned();
    let typed = |object: Option<Value>| object.and_then(|object| serde_json::from_value(object).ok());
    let read = |object: Option<Value>| object.and_then(|object| serde_json::from_value(object).ok());
    if let Some(why) = policy().differs(typed(named(policies, POLICY)).as_ref(), read(named(bindings, POLICY)).as_ref())
    {
        return done(CheckResult::failed(format!("{why}: until then no rollout starts"), facts.install()));
    }
    let denies = |binding: &Value| items(binding, "/spec/validationActions").any(|action| action == "Deny");
    for (role, policy) in CONFINED.into_iter().filter(|(role, _)| named(roles, role).is_some()) {
        let missing = match (named(policies, policy), named(bindings, policy)) {
            (None, _) => "ValidatingAdmissionPolicy",
            (_, Some(binding)) if denies(&binding) => continue,
            _ => "ValidatingAdmissionPolicyBinding (with Deny)",
        };
        let detail = format!("{missing} {policy} is missing: nothing confines ClusterRole {role}");
        return done(CheckResult::failed(detail, facts.install()));
    }
    done(CheckResult::ok(format!("{} policies, each with its binding", policies.len())))
}

fn controller_lease(facts: &Facts) -> Checked<'_> {
    let (lease, _) = (facts.lease.as_ref()?, facts.deployments.as_ref()?);
    if is_abandoned(facts) || facts.deployment(keys::CONTROLLER).is_some() && facts.replicas(keys::CONTROLLER) == 0 {
        return Ok(None);
    }
    let what = format!("the Lease {} in namespace {}", keys::CONTROLLER, facts.namespace);
    let Some(lease) = lease else {
        return done(CheckResult::failed(format!("{what} is missing: no controller runs"), facts.install()));
    };
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
    let result = match (is_disabled(config), facts.replicas(keys::CONTROLLER) > 0, served) {
        (false, true, _) => {
            CheckResult::failed("Hive's own hibernation controller and hibernate-controller both run", disable(config))
        }
        (true, false, _) => CheckResult::failed(
            "Hive's own hibernation controller is off and hibernate-controller does not run: no cluster sleeps or wakes",
            kustomize("overlays/cut-over"),
        ),
        (true, true, None) => CheckResult::failed(
            "Hive's own hibernation controller is off, and the webhook still accepts the platforms that only Hive serves",
            kustomize("overlays/cut-over"),
        ),
        (false, false, Some(_)) => CheckResult::warning(
            "Hive's own hibernation controller runs, and the webhook refuses platforms that Hive serves",
            kustomize("overlays/webhook-only"),
        ),
        (true, true, Some(served)) => CheckResult::ok(format!("hibernate-controller serves {served}")),
        (false, false, None) => {
            CheckResult::ok("Hive's own hibernation controller runs, hibernate-controller does not")
        }
    };
    done(result)
}

/// The command that switches Hive's own controller off, beside those that are off already.
pub(super) fn disable(config: &Value) -> String {
    let disabled = items(config, "/spec/disabledControllers").cloned();
    let disabled: Vec<Value> = disabled.chain([HIBERNATION.into()]).collect();
    let patch = serde_json::json!({ "spec": { "disabledControllers": disabled } });
    format!("kubectl patch hiveconfig hive --type=merge -p {}", shared::text::quoted(&patch.to_string()))
}

fn kkp(facts: &Facts) -> Checked<'_> {
    facts.deployments.as_ref()?;
    let is_served = facts.groups.iter().any(|group| group == "kubermatic.k8c.io");
    let has_rule = |rules: &Value| items(rules, "/webhooks").any(|entry| text(entry, "/name").contains("kkp"));
    match (is_served, facts.argument(keys::CONTROLLER, "--kkp").is_some()) {
        _ if is_abandoned(facts) => Ok(None),
        (false, _) => Ok(None),
        (true, true) if facts.rules.iter().flatten().flatten().any(has_rule) => {
            done(CheckResult::ok("the controller serves KKP's Clusters, the webhook guards them"))
        }
        (true, _) => done(CheckResult::warning(
            "the hub has KKP's Clusters, and the installation is without the component kkp: none of them sleeps",
            kustomize("overlays/kkp"),
        )),
    }
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
                "spec": { "replicas": replicas, "template": { "spec": { "containers": [{ "args": args }] } } },
            })
        };
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
            roles: Ok(Vec::new()),
            policies: Ok(Vec::new()),
            bindings: Ok(Vec::new()),
            service: Ok(None),
            endpoints: Ok(Vec::new()),
            secret: Ok(None),
            lease: Ok(None),
            talm: Ok(None),
            hive: Ok(None),
            trial: Ok(Value::Null),
        }
    }

    #[test]
    fn one_controller_hibernates_the_clusters_of_a_hub() {
        let (all, ours) = (json!([]), json!(["--served-platforms=aws,openstack"]));
        for (off, replicas, webhook, expected, overlay) in [
            (false, 2, &all, Failed, "kubectl patch hiveconfig hive"),
            (false, 2, &ours, Failed, "kubectl patch hiveconfig hive"),
            (true, 0, &all, Failed, "manifests/overlays/cut-over"),
            (true, 0, &ours, Failed, "manifests/overlays/cut-over"),
            (true, 2, &all, Failed, "manifests/overlays/cut-over"),
            (true, 2, &ours, Fine, ""),
            (false, 0, &ours, Warning, "manifests/overlays/webhook-only"),
            (false, 0, &all, Fine, ""),
        ] {
            let mut facts = facts(&json!(replicas), webhook);
            let disabled = if off { json!([HIBERNATION]) } else { json!(["clusterpool"]) };
            facts.hive = Ok(Some(json!({ "spec": { "disabledControllers": disabled } })));
            let found = hive(&facts).unwrap().unwrap();
            assert_eq!(found.status, expected, "{off} {replicas} {webhook}");
            assert!(found.commands.iter().all(|command| command.contains(overlay)), "{found:?}");
        }
        assert_eq!(hive(&facts(&json!(2), &all)).unwrap(), None, "a hub without Hive");
    }

    #[test]
    fn what_runs_is_installed_again_as_it_is() {
        let (kkp, ours) = (json!(["--kkp"]), json!(["--served-platforms=aws"]));
        let mut of_helm = facts(&json!(2), &json!([]));
        for deployment in of_helm.deployments.as_mut().unwrap() {
            deployment["metadata"]["annotations"] =
                json!({ "meta.helm.sh/release-name": "sleep", "meta.helm.sh/release-namespace": "ops" });
        }
        let mut seed = facts(&json!(2), &json!([]));
        seed.deployments.as_mut().unwrap()[0]["spec"]["template"]["spec"]["containers"][0]["args"] = kkp;
        for (facts, expected) in [
            (facts(&json!(2), &json!([])), "kubectl apply -k manifests/"),
            (facts(&json!(2), &ours), "kubectl apply -k manifests/overlays/cut-over"),
            (facts(&json!(0), &json!([])), "kubectl apply -k manifests/overlays/webhook-only"),
            (seed, "kubectl apply -k manifests/overlays/kkp"),
            (of_helm, "helm upgrade sleep charts/hibernate --namespace ops --reuse-values"),
        ] {
            assert_eq!(facts.install(), expected);
        }
    }

    #[test]
    fn every_missing_right_is_one_finding_and_no_failure() {
        let forbidden =
            || HubError::Forbidden { object: "o".to_owned(), message: "User \"bob\" cannot get".to_owned() };
        let mut facts = facts(&json!(2), &json!([]));
        facts.rules = [Err(forbidden()), Err(forbidden())];
        (facts.definition, facts.roles, facts.secret) = (Err(forbidden()), Err(forbidden()), Err(forbidden()));
        (facts.deployments, facts.lease, facts.trial) = (Err(forbidden()), Err(forbidden()), Err(forbidden()));
        let statuses: Vec<Status> = CHECKS
            .iter()
            .filter_map(|(_, check)| match check(&facts) {
                Ok(result) => result.map(|result| result.status),
                Err(error) => Some(CheckResult::unread(error).status),
            })
            .collect();
        assert!(statuses.iter().all(|status| *status == Status::NotChecked), "{statuses:?}");
        assert_eq!(statuses.len(), 10, "TALM's Lease is read only where upgrades are ours");
    }
}
