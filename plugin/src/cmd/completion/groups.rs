//! Completion: the process groups that can be brought back.

use crate::api::Hub;
use crate::cli::HubArgs;
use crate::read::fdb::{DatabaseSnapshot, clusters};
use crate::recover::check::suspended;

/// IDs of the suspended groups of a cluster; without one, the names that the Pods of all suspended groups had. Whatever
/// goes wrong, there are none.
pub(crate) async fn groups(args: &HubArgs, cluster: Option<&str>) -> Vec<String> {
    let Ok(hub) = Hub::connect(args).await else { return Vec::new() };
    let namespace = hub.namespace.clone();
    if let Some(name) = cluster {
        let Ok(look) = DatabaseSnapshot::new(&hub, &namespace, name).await else { return Vec::new() };
        return suspended(&look.facts()).into_iter().map(|group| group.process_group_id.clone()).collect();
    }
    let mut pods = Vec::new();
    for object in clusters(&hub, Some(&namespace), "").await.unwrap_or_default() {
        let Ok(look) = DatabaseSnapshot::around(&hub, &namespace, object).await else { continue };
        pods.extend(suspended(&look.facts()).into_iter().filter_map(|group| look.cluster.pod_name(group)));
    }
    pods
}
