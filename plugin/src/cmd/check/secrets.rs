//! Where the controller may read Secrets by their names: everywhere, or in the namespaces that have a `RoleBinding`.

use shared::annotation::keys;
use shared::kinds::CLUSTER_DEPLOYMENT;
use shared::object::named;
use shared::text::{list, quoted};

use super::facts::{Facts, OPENSHIFT, OURS, SECRETS_RIGHT};
use super::{CheckOutcome, CheckResult, Status, done};

const EVERYWHERE: &str = "a right to read every Secret is cluster-admin on OpenShift: bind it per namespace, and install overlays/cut-over-openshift (docs/hive.md, Cut over)";
/// What the right means where it is bound to everywhere, and what lacks it otherwise. An uninstallation finds what the
/// commands create by its label.
pub(super) fn judge(everywhere: bool, unbound: &[String], of: &str) -> CheckResult {
    let bind = |namespace: &String| {
        let (at, account) = (quoted(namespace), quoted(&format!("{of}:{}", keys::CONTROLLER)));
        format!(
            "kubectl create rolebinding {SECRETS_RIGHT} -n {at} --clusterrole={SECRETS_RIGHT} --serviceaccount={account} && kubectl label rolebinding {SECRETS_RIGHT} -n {at} {OURS}"
        )
    };
    let delete = format!("kubectl delete clusterrolebinding {SECRETS_RIGHT} --ignore-not-found");
    let commands = unbound.iter().map(bind).chain(everywhere.then_some(delete)).collect();
    let lacks = format!("no RoleBinding lets the controller read Secrets in these namespaces: {}", list(unbound));
    let (status, detail) = match unbound.len() {
        _ if everywhere => (Status::Warning, EVERYWHERE.to_owned()),
        0 => (Status::Ok, "in each namespace with ClusterDeployments the controller may read Secrets".to_owned()),
        _ => (Status::Failed, lacks),
    };
    CheckResult { status, detail, commands }
}

pub(super) fn secrets(facts: &Facts) -> CheckOutcome<'_> {
    let everywhere = named(facts.role_bindings.as_ref()?, SECRETS_RIGHT).is_some();
    let is_idle = facts.is_abandoned() || facts.replicas(keys::CONTROLLER) == 0;
    if is_idle || !facts.serves(CLUSTER_DEPLOYMENT.kind.group) || (everywhere && !facts.serves(OPENSHIFT)) {
        return Ok(None);
    }
    done(judge(everywhere, facts.unbound.as_ref()?, &facts.namespace))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::facts::missing;
    use super::*;

    #[test]
    fn a_namespace_needs_a_binding_of_this_role_to_this_account() {
        let cluster = |namespace: &str| json!({ "metadata": { "name": "a", "namespace": namespace } });
        let binding = |namespace: &str, role: &str, account: &str, of: &str| {
            json!({
                "metadata": { "name": SECRETS_RIGHT, "namespace": namespace }, "roleRef": { "kind": "ClusterRole", "name": role },
                "subjects": [{ "kind": "User", "name": "bob" }, { "kind": "ServiceAccount", "name": account, "namespace": of }],
            })
        };
        let clusters = ["a", "a", "b", "c", "d", "e"].map(cluster);
        let bindings = [
            binding("b", SECRETS_RIGHT, keys::CONTROLLER, "sleep"),
            binding("c", SECRETS_RIGHT, keys::CONTROLLER, "hibernate-system"),
            binding("d", "view", keys::CONTROLLER, "sleep"),
            binding("e", SECRETS_RIGHT, "default", "sleep"),
            binding("z", SECRETS_RIGHT, keys::CONTROLLER, "sleep"),
        ];
        assert_eq!(missing(&clusters, &bindings, "sleep"), ["a", "c", "d", "e"]);
        assert_eq!(
            judge(false, &["a".to_owned()], "sleep").commands[0],
            "kubectl create rolebinding hibernate-controller-secrets -n a --clusterrole=hibernate-controller-secrets \
             --serviceaccount=sleep:hibernate-controller && kubectl label rolebinding hibernate-controller-secrets -n a \
             app.kubernetes.io/part-of=kubectl-hibernate"
        );
    }
}
