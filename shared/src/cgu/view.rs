//! `ManagedClusterView`s, by which the hub reads an object on a cluster (sections 9.4 and 9.5).
//!
//! The cluster writes the result of a view, so it is untrusted: what is kept of it is bounded, and our own objects hold it
//! only as JSON values.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;

use super::api::Reference;
use super::wire::{AnyText, ResultStatus, Scope, UPGRADE, UPGRADE_NAMESPACE, ViewObject, ViewResult, ViewStatus};

/// Limit for the name and the resourceVersion of an object.
const MAX_NAME: usize = 253;
/// An `InstallPlan` with more `ClusterServiceVersion`s is not approved.
const MAX_VERSIONS: usize = 100;
/// Without its group, as TALM requests it.
pub const INSTALL_PLAN: &str = "InstallPlan";
pub const JOB: &str = "jobs";

/// Views by cluster and name.
pub type Views = BTreeMap<(String, String), View>;

/// A view to create, or to change because it requests another object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewRequest {
    pub cluster: String,
    pub name: String,
    /// The name before it was shortened and made unique.
    pub desired: String,
    pub scope: Scope,
    /// Only upgrades use this name: an existing view without labels is TALM's, and is taken over.
    pub adopts: bool,
}

/// The entry of a `ManagedClusterView`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// From its labels.
    pub upgrade: Reference,
    pub created: Timestamp,
    pub scope: Scope,
    pub presence: Presence,
    pub answer: Answer,
}

/// Whether a cluster has an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The cluster has not answered.
    Unknown,
    Present,
    Absent,
    /// The cluster cannot tell.
    Failed,
}

/// What the result of a view says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// There is no result, or nothing to do about it.
    Nothing,
    /// The Subscription waits for this `InstallPlan`.
    Pending(String),
    /// The `InstallPlan` waits for approval.
    Unapproved(InstallPlan),
    Job(Job),
}

/// The parts of an `InstallPlan` that its approval repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallPlan {
    /// A later version is not approved.
    pub resource_version: String,
    /// The `ClusterServiceVersion`s that it installs.
    pub versions: Vec<String>,
}

/// The state of a Job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    Active,
    Succeeded,
    DeadlineExceeded,
    BackoffLimitExceeded,
}

impl View {
    /// `None` if it does not belong to an upgrade.
    pub fn read(object: &ViewObject) -> Option<Self> {
        let labels = object.labels();
        let upgrade = Reference {
            name: labels.get(UPGRADE)?.clone(),
            namespace: labels.get(UPGRADE_NAMESPACE).cloned().unwrap_or_default(),
        };
        let (scope, ViewStatus { conditions, result }) = (object.spec.scope.clone(), &object.status);
        let processing = conditions.iter().flatten().find(|one| one.type_ == "Processing");
        let presence = match (conditions, processing) {
            (None, _) => Presence::Unknown,
            (_, Some(one)) if one.status == "True" => Presence::Present,
            (_, Some(one)) if one.message.ends_with("not found") => Presence::Absent,
            _ => Presence::Failed,
        };
        let has_answered =
            presence == Presence::Present && processing.is_some_and(|one| one.reason == "GetResourceProcessing");
        let answer = match scope.resource.as_str() {
            JOB => job(&result.status),
            INSTALL_PLAN => plan(result),
            _ => pending(&result.status),
        };
        let created = object.creation_timestamp().map_or(Timestamp::UNIX_EPOCH, |at| at.0);
        Some(Self {
            upgrade,
            created,
            scope,
            presence,
            answer: answer.filter(|_| has_answered).unwrap_or(Answer::Nothing),
        })
    }
}

fn pending(status: &ResultStatus) -> Option<Answer> {
    let name = Some(&status.installplan.name).filter(|name| is_name(name))?;
    (status.state == "UpgradePending").then(|| Answer::Pending(name.clone()))
}

fn plan(ViewResult { metadata, spec, .. }: &ViewResult) -> Option<Answer> {
    let versions = &spec.cluster_service_version_names;
    if spec.approval != "Manual" || spec.approved || versions.len() > MAX_VERSIONS {
        return None;
    }
    let resource_version = Some(&metadata.resource_version).filter(|version| is_name(version))?.clone();
    let name = |AnyText(name): &AnyText| Some(name).filter(|name| is_name(name)).cloned();
    Some(Answer::Unapproved(InstallPlan {
        resource_version,
        versions: versions.iter().map(name).collect::<Option<_>>()?,
    }))
}

fn job(status: &ResultStatus) -> Option<Answer> {
    let failure = status.conditions.iter().find(|one| one.type_ == "Failed" && one.status == "True");
    let job = match failure.map(|one| one.reason.as_str()) {
        _ if status.active > 0 => Job::Active,
        _ if status.succeeded > 0 => Job::Succeeded,
        Some("DeadlineExceeded") => Job::DeadlineExceeded,
        Some("BackoffLimitExceeded") => Job::BackoffLimitExceeded,
        _ => return None,
    };
    Some(Answer::Job(job))
}

/// Whether text of a cluster is safe as the name of an object on the hub.
fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_inner = |byte: u8| is_plain(byte) || byte == b'-' || byte == b'.';
    text.len() <= MAX_NAME
        && text.bytes().all(is_inner)
        && text.bytes().next().is_some_and(is_plain)
        && text.bytes().last().is_some_and(is_plain)
        && !text.contains("..")
}

#[cfg(test)]
pub(super) mod tests;
