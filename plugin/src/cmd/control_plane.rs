//! Namespaces that no command changes as a whole: what runs in them runs the hub, or a target.

use hub::error::HubError;
use hub::{HubClient, Resource};
use shared::kinds::Kinds;
use shared::workload::namespaces::{is_control_plane, is_ours};
use view::target::Target;

/// Why a namespace with these objects is not changed as a whole, if it is a control plane: of the hub, by its name or
/// because our own programs run there, or of a target.
pub(super) async fn refusal<E>(
    kinds: Kinds,
    hub: &HubClient,
    name: &str,
    found: &[Result<Target, E>],
) -> Option<String> {
    for row in kinds.targets {
        let Some(id) = row.control_plane.and_then(|prefix| name.strip_prefix(prefix)) else { continue };
        let found = hub.get(Resource::preferred(&row.kind), "", id).await;
        // What cannot be read is refused, too: etcd must be the last to stop.
        if !matches!(found, Err(HubError::NoKind(_) | HubError::NoObject { .. })) {
            let (target, word) = (row.kind.full_name(id), row.kind.short.first().unwrap_or(&row.kind.plural));
            return Some(format!("namespace/{name} is the control plane of {target}: name {word}/{id} instead"));
        }
    }
    let is_of_the_hub = is_control_plane(name) || found.iter().flatten().any(|target| is_ours(&target.object));
    is_of_the_hub.then(|| {
        format!(
            "namespace/{name} belongs to the control plane of the hub and is not changed as a whole: name its \
             workloads, as in deploy/NAME -n {name}"
        )
    })
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
}
