//! The user cluster's kube-controller-manager: a real process that lives while its Deployment on the seed is ready.

use anyhow::Result;
use tokio::process::Command;

use crate::kkp::registry::UserCluster;
use crate::process::{Rank, Signal};

/// Its controllers; the world runs others of every spoke, such as garbage collection and Node lifecycle.
const CONTROLLERS: &str = "deployment-controller,replicaset-controller,statefulset-controller,daemonset-controller,disruption-controller,\
                           pod-garbage-collector-controller,persistentvolumeclaim-protection-controller,persistentvolume-protection-controller";

/// Starts or kills it.
pub(super) async fn tick(cluster: &UserCluster) -> Result<()> {
    for (deployment, webhook) in &cluster.webhooks {
        webhook.set_open(cluster.runs(deployment));
    }
    let name = format!("kkp-{}-controller-manager", cluster.info.id);
    let runs = cluster.manager.children.record(&name).is_some();
    let should = cluster.answers() && cluster.runs("controller-manager");
    if should && !runs {
        let mut command = Command::new(&cluster.manager.executable);
        command
            .current_dir(&cluster.manager.folder)
            .args(["--kubeconfig=kubeconfig", "--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=0"])
            .args(["--controllers", CONTROLLERS]);
        cluster.manager.children.spawn(&name, Rank::Manager, command)?;
    } else if !should && runs {
        cluster.manager.children.signal(&name, Signal::SIGKILL).await?;
    }
    Ok(())
}
