//! Hive's settings, as far as they say whether its own hibernation controller runs.

use serde_json::Value;

use crate::kinds::kind::Kind;

/// Hive's settings.
pub static HIVE_CONFIG: Kind = Kind::cluster_scoped("hive.openshift.io", &["v1"], "HiveConfig", "hiveconfigs");
/// The only `HiveConfig` that Hive reads.
pub const HIVE: &str = "hive";
/// What `spec.disabledControllers` of a `HiveConfig` calls Hive's hibernation controller.
pub const HIBERNATION: &str = "hibernation";

/// Whether Hive's own hibernation controller is switched off.
pub fn is_disabled(config: &Value) -> bool {
    let disabled = config.pointer("/spec/disabledControllers").and_then(Value::as_array);
    disabled.is_some_and(|names| names.iter().any(|name| name == HIBERNATION))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hives_controller_is_disabled_by_its_name() {
        for (spec, disabled) in [
            (json!({}), false),
            (json!({ "disabledControllers": [] }), false),
            (json!({ "disabledControllers": ["clusterpool"] }), false),
            (json!({ "disabledControllers": ["clusterpool", "hibernation"] }), true),
        ] {
            assert_eq!(is_disabled(&json!({ "spec": spec })), disabled, "{spec}");
        }
    }
}
