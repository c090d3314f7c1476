//! The patch that puts conditions into a cluster's status and leaves everything else there as it is.

use serde_json::{Value, json};

use super::api::{ClusterDeployment, Condition};
use super::order;

/// The JSON patch for the status subresource that puts `new` in place of the conditions of the same types and sets
/// `status.powerState`, or `None` if there is nothing to put.
///
/// It edits the array of conditions by index and leaves it in Hive's order, so it begins with a test of the
/// resourceVersion: the API server answers 422 if another client wrote in between.
pub fn status(cluster: &ClusterDeployment, new: Vec<Condition>, power_state: Option<&str>) -> Option<Value> {
    if new.is_empty() && power_state.is_none() {
        return None;
    }
    let old = || cluster.status.iter().flat_map(|status| &status.conditions);
    let mut order: Vec<_> = old().map(kind).collect();
    let (mut edits, mut added) = (Vec::new(), Vec::new());
    for new in new {
        if let Some(index) = old().position(|old| old.type_ == new.type_) {
            order[index] = kind(&new);
            edits.push(json!({"op": "replace", "path": format!("/status/conditions/{index}"), "value": new}));
        } else {
            order.push(kind(&new));
            added.push(new);
        }
    }
    let version = &cluster.metadata.resource_version;
    let mut patch = vec![json!({"op": "test", "path": "/metadata/resourceVersion", "value": version})];
    match &cluster.status {
        None => patch.push(json!({"op": "add", "path": "/status", "value": {"conditions": added}})),
        Some(status) if status.conditions.is_empty() => {
            patch.push(json!({"op": "add", "path": "/status/conditions", "value": added}));
        }
        Some(_) => {
            let append = |new| json!({"op": "add", "path": "/status/conditions/-", "value": new});
            patch.extend(edits.into_iter().chain(added.into_iter().map(append)));
        }
    }
    patch.extend(order::moves(&mut order));
    patch.extend(power_state.map(|value| json!({"op": "add", "path": "/status/powerState", "value": value})));
    Some(Value::Array(patch))
}

/// Type and status, by which conditions are put in order.
fn kind(condition: &Condition) -> (String, String) {
    (condition.type_.clone(), condition.status.clone())
}
