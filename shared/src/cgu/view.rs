//! `ManagedClusterView`s: how an object on a cluster is read through the hub (sections 9.4 and 9.5).
//!
//! The result of a view is the cluster's text: what is kept of it is bounded, and becomes JSON only as values.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;

use super::api::Reference;
use super::wire::{AnyText, ResultStatus, Scope, UPGRADE, UPGRADE_NAMESPACE, ViewObject, ViewResult, ViewStatus};

/// Longest name of an object, and of a version of one.
const MAX_NAME: usize = 253;
/// Most `ClusterServiceVersion`s of an `InstallPlan`: one that has more is not approved.
const MAX_VERSIONS: usize = 100;
/// `InstallPlan`s are asked for without their group, as TALM does.
pub const INSTALL_PLAN: &str = "InstallPlan";
/// Jobs are asked for by their plural.
pub const JOB: &str = "jobs";

/// Views by cluster and name.
pub type Views = BTreeMap<(String, String), View>;

/// A view that is missing, or asks for another object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewRequest {
    /// The cluster.
    pub cluster: String,
    /// Name of the view.
    pub name: String,
    /// The name before it was made short and unique.
    pub desired: String,
    /// What it asks for.
    pub scope: Scope,
    /// The name is an upgrade's: a view that has it, without the labels of one, is TALM's.
    pub adopts: bool,
}

/// What is kept of a `ManagedClusterView`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Its upgrade, by its labels.
    pub upgrade: Reference,
    /// When it was created.
    pub created: Timestamp,
    /// What it asks for.
    pub scope: Scope,
    /// Whether the cluster has the object.
    pub presence: Presence,
    /// What its result calls for.
    pub answer: Answer,
}

/// Whether a cluster has an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The cluster has not answered.
    Unknown,
    /// It has.
    Present,
    /// It has not.
    Absent,
    /// The cluster cannot tell.
    Failed,
}

/// What the result of a view calls for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// There is none yet, or it calls for nothing.
    Nothing,
    /// The Subscription waits for this `InstallPlan`.
    Pending(String),
    /// The `InstallPlan` waits for approval.
    Unapproved(InstallPlan),
    /// Where the Job is.
    Job(Job),
}

/// What an approval needs of an `InstallPlan`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallPlan {
    /// The version that is approved: a later one is not.
    pub resource_version: String,
    /// What it installs.
    pub versions: Vec<String>,
}

/// Where a Job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// It runs.
    Active,
    /// It has succeeded.
    Succeeded,
    /// Its time was over.
    DeadlineExceeded,
    /// It has failed.
    BackoffLimitExceeded,
}

impl View {
    /// Reads a view; `None` for one that is no upgrade's.
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

/// Whether a cluster's text can name an object of ours on the hub.
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
