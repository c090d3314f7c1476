//! Namespaces that no command changes as a whole: what runs in them runs the hub, or a target.

use hub::error::HubError;
use hub::{HubClient, Resource};
use shared::kinds::Kinds;
use shared::power::Power;
use shared::workload::namespaces::{is_control_plane, is_ours};
use view::target::Target;

/// Why a namespace is not changed as a whole.
pub(super) struct Refusal {
    why: String,
    /// Whether it is a control plane, and not only one for all that can be told.
    is_certain: bool,
}

impl Refusal {
    fn certain(why: String) -> Self {
        Self { why, is_certain: true }
    }

    /// Why it does not get into this state. What cannot be told prevents a sleep, for etcd must be the last to stop, and
    /// no wake.
    pub(super) fn of(&self, power: Power) -> Option<String> {
        (self.is_certain || power == Power::Hibernating).then(|| self.why.clone())
    }
}

/// Why a namespace with these objects is not changed as a whole, if it is a control plane: of the hub, by its name or
/// because our own programs run there, or of a target.
pub(super) async fn refusal<E>(
    kinds: Kinds,
    hub: &HubClient,
    name: &str,
    found: &[Result<Target, E>],
) -> Option<Refusal> {
    if is_control_plane(name) || found.iter().flatten().any(|target| is_ours(&target.object)) {
        return Some(Refusal::certain(format!(
            "namespace/{name} belongs to the control plane of the hub and is not changed as a whole: name its \
             workloads, as in deploy/NAME -n {name}"
        )));
    }
    for row in kinds.targets {
        let Some(id) = row.control_plane.and_then(|prefix| name.strip_prefix(prefix)) else { continue };
        let (target, word) = (row.kind.full_name(id), row.kind.short.first().unwrap_or(&row.kind.plural));
        match hub.get(Resource::preferred(&row.kind), "", id).await {
            Ok(_) => {
                return Some(Refusal::certain(format!(
                    "namespace/{name} is the control plane of {target}: name {word}/{id} instead"
                )));
            }
            Err(HubError::NoKind(_) | HubError::NoObject { .. }) => {}
            // Without rights on the group, a hub that does not serve it answers the same.
            Err(HubError::Forbidden { .. }) if is_unserved(hub, row.kind.group).await => {}
            Err(error) => {
                let why = format!(
                    "whether namespace/{name} is the control plane of {target} is not known ({error}): if it is not, name \
                     its workloads, as in deploy/NAME -n {name}"
                );
                return Some(Refusal { why, is_certain: false });
            }
        }
    }
    None
}

/// Whether the hub is known not to serve an API group. Every user may ask for its groups.
async fn is_unserved(hub: &HubClient, group: &str) -> bool {
    hub.groups().await.is_ok_and(|groups| !groups.iter().any(|name| name == group))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shared::kinds::workload::DEPLOYMENT;
    use shared::kinds::{KINDS, KKP_CLUSTER};

    use super::*;
    use crate::cmd::run;
    use crate::cmd::tests::{Server, wait_for};
    use crate::error::Exit;

    const FEW: Kinds = Kinds { targets: &[&DEPLOYMENT, &KKP_CLUSTER], ..KINDS };

    /// The plan of one that is refused says so, also where nothing runs in it.
    #[test]
    fn a_control_plane_is_refused_by_its_name_and_by_what_runs_there() {
        let server = Server::start();
        server.answers("GET /apis/kubermatic.k8c.io/v1/clusters/abc", 200, json!({ "metadata": { "name": "abc" } }));
        let ours = json!({ "app.kubernetes.io/part-of": "kubectl-hibernate" });
        let web = |labels: &Value| {
            let metadata = json!({ "name": "web", "namespace": "x", "resourceVersion": "1", "labels": labels });
            vec![json!({ "metadata": metadata, "spec": { "replicas": 1 } })]
        };
        let plain = json!({});
        for (name, objects, expected) in [
            ("shop", web(&plain), Exit::Done),
            ("kube-system", web(&plain), Exit::Refused),
            ("kube-system", vec![], Exit::Refused),
            ("renamed", web(&ours), Exit::Refused),
            ("cluster-abc", web(&plain), Exit::Refused),
            ("cluster-abc", vec![], Exit::Refused),
            ("cluster-gone", web(&plain), Exit::Done),
        ] {
            let list = format!("GET /apis/apps/v1/namespaces/{name}/deployments");
            server.answers(&list, 200, json!({ "metadata": {}, "items": objects }));
            let exit = |line: String| wait_for(run(FEW, &server.cli(&line))).unwrap_or_else(|problem| problem.exit());
            assert_eq!(exit(format!("plan ns/{name}")), expected, "{name} {objects:?}");
            if expected == Exit::Refused {
                assert_eq!(exit(format!("ns/{name} --yes")), expected, "{name} {objects:?}");
                assert_eq!(exit(format!("resume ns/{name}")), expected, "{name} {objects:?}");
            }
        }
    }

    /// A user without rights on KKP's kinds gets a 403 also where the hub does not have them.
    #[test]
    fn what_may_be_a_control_plane_does_not_sleep_where_the_hub_has_such_and_wakes() {
        let server = Server::start();
        let message = r#"clusters.kubermatic.k8c.io "tools" is forbidden: User "bob" cannot get resource "clusters""#;
        let refusal =
            json!({ "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": message });
        server.answers("GET /apis/kubermatic.k8c.io/v1/clusters/tools", 403, refusal);
        let metadata = json!({ "name": "web", "namespace": "cluster-tools", "resourceVersion": "1" });
        let web = json!({ "metadata": metadata, "spec": { "replicas": 1 } });
        let list = "GET /apis/apps/v1/namespaces/cluster-tools/deployments";
        server.answers(list, 200, json!({ "metadata": {}, "items": [web] }));
        for (groups, expected) in [
            (json!({ "groups": [{ "name": "apps" }] }), Exit::Done),
            (json!({ "groups": [{ "name": "apps" }, { "name": "kubermatic.k8c.io" }] }), Exit::Refused),
        ] {
            server.answers("GET /apis", 200, groups.clone());
            for (line, expected) in [
                ("plan ns/cluster-tools", expected),
                ("ns/cluster-tools --yes --dry-run=client", expected),
                ("resume ns/cluster-tools", Exit::Done),
            ] {
                let (exit, text) = match wait_for(run(FEW, &server.cli(line))) {
                    Ok(exit) => (exit, None),
                    Err(problem) => (problem.exit(), Some(problem.to_string())),
                };
                assert_eq!(exit, expected, "{line} {groups}");
                let known =
                    "whether namespace/cluster-tools is the control plane of cluster.kubermatic.k8c.io/tools is";
                let says = |text: &String| text.starts_with(known) && text.contains("\"bob\" cannot get");
                assert!(text.as_ref().is_none_or(says), "{line}: {text:?}");
            }
        }
    }
}
