//! Which `InstallPlan`s are approved (section 9.4).

use super::super::enforce::{approve, subscriptions};
use super::*;
use crate::cgu::templates::Subscription;
use crate::cgu::view::ViewRequest;
use crate::cgu::view::tests::{ANSWERED, view};

fn upgrade() -> ClusterGroupUpgrade {
    let object = json!({
        "metadata": { "name": "cgu", "namespace": "ns", "uid": "abcdef" },
        "spec": { "remediationStrategy": { "maxConcurrency": 1 } },
    });
    serde_json::from_value(object).unwrap()
}

fn subscription(name: &str, namespace: &str) -> Subscription {
    Subscription {
        kind: "Subscription".to_owned(),
        name: name.to_owned(),
        api_version: "operators.coreos.com/v1alpha1".to_owned(),
        namespace: namespace.to_owned(),
    }
}

/// The acts: `view NAME of RESOURCE NAMESPACE/NAME`, or `approve NAMESPACE/NAME`.
fn acts_for(all: &[Subscription], views: &[(&str, View)]) -> Vec<String> {
    let views = views.iter().map(|(name, view)| (("spoke1".to_owned(), (*name).to_owned()), view.clone())).collect();
    let acts = approve(&upgrade(), "spoke1", all, &views, &mut BTreeMap::new());
    let text = |act: Act| match act {
        Act::View(ViewRequest { name, scope, .. }) => {
            format!("view {name} of {} {}/{}", scope.resource, scope.namespace, scope.name)
        }
        Act::Approve(Approval { name, namespace, .. }) => format!("approve {namespace}/{name}"),
        other => format!("{other:?}"),
    };
    acts.into_iter().map(text).collect()
}

/// Whoever may write the status writes it.
#[test]
fn what_a_status_holds_is_few_subscriptions() {
    let long = |number: usize| {
        let [name, namespace] = [253, 63].map(|length| format!("{number:x>length$}"));
        subscription(&name, &namespace)
    };
    let most: Vec<Subscription> = (0..100).map(long).collect();
    assert_eq!(subscriptions(&serde_json::to_string(&most).unwrap()), most);
    assert_eq!(subscriptions(&format!("[{}{{}}]", "{},".repeat(349_000))), [], "1 MiB");
    assert_eq!(subscriptions(&json!([{ "kind": "x".repeat(254) }]).to_string()), []);
    let alike = vec![subscription("a", "o"); 300];
    assert_eq!(acts_for(&alike, &[]).len(), 2, "one view of each name");
}

#[test]
fn a_plan_is_read_before_it_is_approved() {
    let scope = |resource: &str, namespace: &str, name: &str| json!({ "resource": resource, "name": name, "namespace": namespace });
    let of_subscription = |name: &str, plan: &str| {
        let result = json!({ "status": { "state": "UpgradePending", "installplan": { "name": plan } } });
        view(&scope("Subscription.operators.coreos.com", "o", name), ANSWERED, &result)
    };
    let of_plan = |namespace: &str, name: &str| {
        let spec = json!({ "approval": "Manual", "approved": false, "clusterServiceVersionNames": ["a.v1"] });
        let result = json!({ "metadata": { "resourceVersion": "7" }, "spec": spec });
        view(&scope("InstallPlan", namespace, name), ANSWERED, &result)
    };
    let view_a = "cgu-ns-subscription-a-abcde";
    let view_b = "cgu-ns-subscription-b-abcde";
    let (a, b) = (subscription("a", "o"), subscription("b", "o"));
    let first = format!("view {view_a} of Subscription.operators.coreos.com o/a");
    assert_eq!(acts_for(std::slice::from_ref(&a), &[]), [first]);
    let one = [(view_a, of_subscription("a", "plan"))];
    assert_eq!(acts_for(std::slice::from_ref(&a), &one), ["view plan of InstallPlan o/plan"]);
    let two = [one[0].clone(), ("plan", of_plan("o", "plan"))];
    assert_eq!(acts_for(std::slice::from_ref(&a), &two), ["approve o/plan"]);
    let other = subscription("a", "elsewhere");
    assert_eq!(
        acts_for(std::slice::from_ref(&other), &two),
        [format!("view {view_a} of Subscription.operators.coreos.com elsewhere/a")],
        "a view that asks for another object is changed"
    );
    let same = [a.clone(), other.clone()];
    let renamed = "view cgu-ns-subscription-a-elsewhere-abcde of Subscription.operators.coreos.com elsewhere/a";
    assert_eq!(acts_for(&same, &two), [renamed, "approve o/plan"], "one name in two namespaces");
    let reserved = [(view_a, of_subscription("a", "view-precache-job"))];
    assert_eq!(acts_for(std::slice::from_ref(&a), &reserved), [""; 0], "a name of TALM's own views");
    let taken = [(view_a, of_subscription("a", view_a))];
    assert_eq!(acts_for(std::slice::from_ref(&a), &taken), [""; 0], "the name of another view");
    let shared = [two[0].clone(), two[1].clone(), (view_b, of_subscription("b", "plan"))];
    assert_eq!(acts_for(&[a.clone(), b], &shared), ["approve o/plan"], "one plan of two Subscriptions");
    let elsewhere = [one[0].clone(), ("plan", of_plan("elsewhere", "plan"))];
    assert_eq!(acts_for(std::slice::from_ref(&a), &elsewhere), ["view plan of InstallPlan o/plan"]);
    let mut theirs = of_plan("elsewhere", "plan");
    theirs.upgrade.name = "other".to_owned();
    assert_eq!(
        acts_for(std::slice::from_ref(&a), &[one[0].clone(), ("plan", theirs.clone())]),
        [""; 0],
        "another upgrade's"
    );
    theirs.scope.namespace = "o".to_owned();
    assert_eq!(acts_for(&[a], &[one[0].clone(), ("plan", theirs)]), ["approve o/plan"], "what it shows counts");
}
