//! What the double saw: calls to the cloud, how Pods ended, and what must never happen.

use serde::{Deserialize, Serialize};

/// Everything that was seen of one user cluster. Times are seconds since 1970.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Log {
    /// What the parts of the double did.
    pub calls: Vec<Call>,
    /// What must never happen, in order.
    pub violations: Vec<Violation>,
    /// How Pods of the user cluster ended.
    pub pods: Vec<PodEnd>,
    /// Each count that the `StatefulSet` etcd had.
    pub etcd: Vec<Count>,
}

/// Something that a part of the double did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// When.
    pub at: f64,
    /// Which part: `kkp`, `cloud`, `machine-controller`, `osm`, `restore`.
    pub by: String,
    /// What.
    pub text: String,
}

/// Something that must never happen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Violation {
    /// When.
    pub at: f64,
    /// Which rule.
    pub rule: Rule,
    /// What broke it.
    pub text: String,
}

/// What must never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rule {
    /// etcd between 0 and all of its members (row 48).
    EtcdAtPart,
    /// A pause while a Machine exists: its instance stays (row 58).
    PausedWithMachine,
    /// machine-controller is taken away while a Machine exists (row 58).
    ScaledDownWithMachine,
    /// A Pod's instance stopped before the Pod had ended (row 55).
    PodKilled,
    /// A second write of a `MachineDeployment`'s annotations before its Nodes are Ready (row 53).
    SecondAnnotation,
}

/// How a Pod of the user cluster ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodEnd {
    /// `namespace/name`.
    pub pod: String,
    /// Its Node.
    pub node: String,
    /// Whether a `DaemonSet` owns it: a drain leaves it where it is.
    pub of_daemon_set: bool,
    /// Its grace period, in seconds.
    pub grace: i64,
    /// When it was deleted, if it was.
    pub deleted_at: Option<f64>,
    /// When it ended.
    pub at: f64,
    /// How.
    pub how: How,
}

/// How a Pod ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// By itself, in its grace period.
    Graceful,
    /// Its grace period was over.
    GraceOver,
    /// Its instance stopped under it.
    InstanceStopped,
}

/// A count and when it was seen first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Count {
    /// When.
    pub at: f64,
    /// `spec.replicas`.
    pub replicas: i64,
}

impl Log {
    pub(crate) fn call(&mut self, at: f64, by: &str, text: impl Into<String>) {
        let text = text.into();
        tracing::info!(by, "{text}");
        self.calls.push(Call { at, by: by.to_owned(), text });
    }

    pub(crate) fn violation(&mut self, at: f64, rule: Rule, text: impl Into<String>) {
        let text = text.into();
        tracing::warn!(?rule, "{text}");
        self.violations.push(Violation { at, rule, text });
    }

    /// Notes a count of etcd's, and whether it is one that etcd must never have.
    pub(crate) fn etcd_at(&mut self, at: f64, replicas: i64, members: i64) {
        if self.etcd.last().is_some_and(|last| last.replicas == replicas) {
            return;
        }
        self.etcd.push(Count { at, replicas });
        if replicas > 0 && replicas < members {
            self.violation(at, Rule::EtcdAtPart, format!("etcd at {replicas} of {members}"));
        }
    }
}
