//! A small cluster-scoped kind that only tests know: those of the table and those of the plugin.
//!
//! It is always compiled, and linked into no program: a feature for tests would compile this crate, and all that depend
//! on it, once more.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::lifecycle::Lifecycle;
use super::row::{Reader, STOP_START};
use super::view::View;
use super::{Change, Column, Intent, Kind, Progress, Record, TargetError, TargetKind};
use crate::admission::Settings;
use crate::power::Power;

/// Intent, as for every kind without a field of its own.
pub const POWER: &str = "hibernate.sh/power-state";

/// The row.
pub static SANDBOX: TargetKind = TargetKind {
    plan: None,
    writes: "annotation hibernate.sh/power-state",
    asleep: "paused",
    awake: "running",
    columns: &[Column {
        header: "SEATS",
        cell: |record, _| record.more.get("seats").map(Value::to_string).unwrap_or_default(),
    }],
    in_rollouts: Some(STOP_START),
    stage: 5,
    ..TargetKind::plain(
        Kind::cluster_scoped("test.hibernate.sh", &["v1"], "Sandbox", "sandboxes").with_short(&["sbx"]),
        Reader::Code(|object| Ok(Box::new(Sandbox(object)))),
    )
};

#[derive(Debug)]
struct Sandbox<'a>(&'a Value);

impl Sandbox<'_> {
    fn wanted(&self) -> Power {
        let state = self.0["metadata"]["annotations"][POWER].as_str().and_then(|state| state.parse().ok());
        state.unwrap_or_default()
    }

    fn phase(&self) -> &str {
        self.0["status"]["phase"].as_str().unwrap_or_default()
    }
}

impl Lifecycle for Sandbox<'_> {
    fn view(&self, _: Option<&Settings>) -> View {
        let mut view = View::of_value(self.0, self.wanted());
        view.observed.power = match self.phase() {
            "Paused" => Some((Power::Hibernating, Timestamp::UNIX_EPOCH)),
            "Running" => Some((Power::Running, Timestamp::UNIX_EPOCH)),
            _ => None,
        };
        self.phase().clone_into(&mut view.observed.state);
        view
    }

    fn change(&self, intent: &Intent<'_>) -> Result<Change, TargetError> {
        let message = match intent.power {
            Power::Hibernating => "hibernation requested",
            Power::Running => "resume requested",
        };
        if self.wanted() == intent.power {
            return Ok(Change::None { message: "unchanged".to_owned(), will_reach: true });
        }
        let patch = json!({ "metadata": { "annotations": { POWER: intent.power } } });
        Ok(Change::Patch { patch, message: message.to_owned(), warnings: Vec::new() })
    }

    fn progress(&self, action: Power) -> Progress {
        match (action, self.wanted(), self.phase()) {
            (Power::Hibernating, Power::Running, _) => Progress::Failed("it is to run again".to_owned()),
            (Power::Running, Power::Hibernating, _) => Progress::Failed("it is to sleep again".to_owned()),
            (Power::Hibernating, _, "Paused") | (Power::Running, _, "Running") => Progress::Reached,
            (_, _, phase) => Progress::InProgress(format!("phase {phase}")),
        }
    }

    fn describe(&self, mut record: Record) -> Record {
        record.more.insert("seats", self.0["spec"]["seats"].as_u64().unwrap_or_default().into());
        record
    }
}
