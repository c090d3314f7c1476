//! Our programs with one kind more: what a kind needs that has a controller of its own and none of ours. A `Workspace`
//! sleeps while `spec.paused` is true. The name of this program says which of them it is.

use std::process::ExitCode;

use controller::{Member, MemberKind};
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use serde::Deserialize;
use serde_json::json;
use shared::admission::Settings;
use shared::kinds::lifecycle::Lifecycle;
use shared::kinds::row::{BY_CHANGE, Reader, STOP_START};
use shared::kinds::view::Observed;
use shared::kinds::{
    ByDefault, CLUSTER_DEPLOYMENT, Change, Intent, KINDS, Kind, Kinds, Progress, TargetError, TargetKind, View,
};
use shared::power::Power;

static WORKSPACE: TargetKind = TargetKind {
    kind: Kind::namespaced("test.hibernate.sh", &["v1"], "Workspace", "workspaces").with_short(&["wsp"]),
    by_default: ByDefault::InStatus,
    has_schedule: false,
    has_force: false,
    plan: Some(&BY_CHANGE),
    deployed_field: None,
    writes: "spec.paused: true",
    rival: None,
    asleep: "paused",
    awake: "running",
    columns: &[],
    warnings: |_, _| Vec::new(),
    companion: None,
    elsewhere: None,
    control_plane: None,
    in_rollouts: Some(STOP_START),
    is_listed: |_| true,
    in_namespace: false,
    stage: 5,
    reader: Reader::Code(|object| Ok(Box::new(Workspace::deserialize(object)?))),
};

shared::hub_kinds! {
    /// What is read of an object.
    Workspace: NamespaceResourceScope = "test.hibernate.sh", "v1", "Workspace", "workspaces"; OBJECT {
        spec: Spec,
        status: Status,
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Spec {
    paused: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    phase: String,
}

impl Workspace {
    fn desired(&self) -> Power {
        if self.spec.paused { Power::Hibernating } else { Power::Running }
    }

    fn observed(&self) -> Option<Power> {
        match self.status.phase.as_str() {
            "Paused" => Some(Power::Hibernating),
            "Active" => Some(Power::Running),
            _ => None,
        }
    }
}

impl Lifecycle for Workspace {
    fn view(&self, _: Option<&Settings>) -> View {
        let view = View::of(&self.metadata, self.desired());
        let power = self.observed().map(|power| (power, Timestamp::UNIX_EPOCH));
        View { observed: Observed { power, state: self.status.phase.clone(), ..Observed::default() }, ..view }
    }

    fn change(&self, intent: &Intent<'_>) -> Result<Change, TargetError> {
        if self.desired() == intent.power {
            return Ok(Change::None { message: "unchanged".to_owned(), will_reach: true });
        }
        let patch = json!({ "spec": { "paused": intent.power == Power::Hibernating } });
        Ok(Change::Patch { patch, message: format!("{} requested", intent.power), warnings: Vec::new() })
    }

    fn progress(&self, action: Power) -> Progress {
        if self.desired() != action {
            return Progress::Failed("another client has changed it".to_owned());
        }
        if self.observed() == Some(action) {
            Progress::Reached
        } else {
            Progress::InProgress(self.status.phase.clone())
        }
    }
}

impl Member for Workspace {}

const WITH_WORKSPACE: Kinds = Kinds { targets: &[&CLUSTER_DEPLOYMENT, &WORKSPACE], ..KINDS };

fn main() -> ExitCode {
    let program = std::env::args().next().unwrap_or_default();
    match program.rsplit('/').next() {
        Some("hibernate-controller") => controller::run(WITH_WORKSPACE, vec![MemberKind::of::<Workspace>(&WORKSPACE)]),
        Some("hibernate-manifests") => manifests::run(WITH_WORKSPACE),
        _ => kubectl_hibernate::run(WITH_WORKSPACE),
    }
}
