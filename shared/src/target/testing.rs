//! A small cluster-scoped kind that only tests know: those of the table and those of the plugin.
//!
//! It is always compiled, and linked into no program: a feature for tests would compile this crate, and all that depend
//! on it, once more.

use serde_json::{Value, json};

use super::lifecycle::Lifecycle;
use super::{ByDefault, Change, Column, Intent, Kind, PowerAction, Progress, Record, TargetError, TargetKind};

/// Intent, as for every kind without a field of its own.
pub const POWER: &str = "hibernate.sh/power-state";

/// The row.
pub static SANDBOX: TargetKind = TargetKind {
    kind: Kind::cluster_scoped("test.hibernate.sh", &["v1"], "Sandbox", "sandboxes").with_short(&["sbx"]),
    by_default: ByDefault::Never,
    has_schedule: false,
    has_force: false,
    has_plan: false,
    advice: None,
    asleep: "paused",
    awake: "running",
    columns: &[Column {
        header: "SEATS",
        cell: |record, _| record.more.get("seats").map(Value::to_string).unwrap_or_default(),
    }],
    warnings: |_, _| Vec::new(),
    confirmation: None,
    companion: None,
    elsewhere: None,
    lifecycle: &Sandbox,
};

#[derive(Debug)]
struct Sandbox;

fn wanted(object: &Value) -> &str {
    object["metadata"]["annotations"][POWER].as_str().unwrap_or("Running")
}

fn phase(object: &Value) -> &str {
    object["status"]["phase"].as_str().unwrap_or_default()
}

impl Lifecycle for Sandbox {
    fn change(&self, object: &Value, intent: &Intent<'_>) -> Result<Change, TargetError> {
        let (state, message) = match intent.action {
            PowerAction::Hibernate => ("Hibernating", "hibernation requested"),
            PowerAction::Resume => ("Running", "resume requested"),
        };
        if wanted(object) == state {
            return Ok(Change::None { message: "unchanged".to_owned(), follows: true });
        }
        let patch = json!({ "metadata": { "annotations": { POWER: state } } });
        Ok(Change::Patch { patch, message: message.to_owned(), warnings: Vec::new() })
    }

    fn progress(&self, object: &Value, action: PowerAction) -> Result<Progress, TargetError> {
        Ok(match (action, wanted(object), phase(object)) {
            (PowerAction::Hibernate, "Running", _) => Progress::Lost("it is to run again".to_owned()),
            (PowerAction::Resume, "Hibernating", _) => Progress::Lost("it is to sleep again".to_owned()),
            (PowerAction::Hibernate, _, "Paused") | (PowerAction::Resume, _, "Running") => Progress::Reached,
            (_, _, phase) => Progress::Going(format!("phase {phase}")),
        })
    }

    fn describe(&self, object: &Value, mut record: Record) -> Result<Record, TargetError> {
        wanted(object).clone_into(&mut record.desired);
        phase(object).clone_into(&mut record.observed);
        record.more.insert("seats", object["spec"]["seats"].as_u64().unwrap_or_default().into());
        Ok(record)
    }
}
