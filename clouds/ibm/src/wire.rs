//! The parts of the VPC API's answers that are used.

use std::collections::BTreeSet;

use cloud_stopstart::{Machine, Reason};
use serde::Deserialize;
use shared::cloud::{CloudErrorKind, InstanceState};
use shared::text::sanitize_to;

#[derive(Deserialize)]
pub(crate) struct Region {
    pub(crate) endpoint: String,
}

/// One page of a list.
#[derive(Deserialize)]
pub(crate) struct Page {
    #[serde(default)]
    pub(crate) instances: Vec<ListedInstance>,
    pub(crate) next: Option<Link>,
}

#[derive(Deserialize)]
pub(crate) struct Link {
    pub(crate) href: String,
}

#[derive(Deserialize)]
pub(crate) struct ListedInstance {
    id: String,
    pub(crate) name: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    status_reasons: Vec<StatusReason>,
    startable: Option<bool>,
    #[serde(default)]
    profile: Profile,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Profile {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StatusReason {
    code: String,
    message: String,
}

/// Every state that IBM lists.
pub(crate) fn state(status: &str) -> InstanceState {
    match status {
        "pending" | "starting" | "restarting" => InstanceState::Pending,
        "running" => InstanceState::Running,
        "stopping" => InstanceState::Stopping,
        "stopped" => InstanceState::Stopped,
        "deleting" => InstanceState::ShuttingDown,
        _ => InstanceState::Unknown,
    }
}

/// The infraID of a cluster whose control plane has a machine of this name: `INFRAID-master-0`, or
/// `INFRAID-master-abcde-0` after a replacement. Installers end it with five characters of their own: a name that only
/// looks like a master's, such as `demo-x7k2p-worker-master-0`, makes no cluster.
fn of_master(name: &str) -> Option<&str> {
    let (infra_id, rest) = name.rsplit_once("-master-")?;
    let number = rest.rsplit('-').next()?;
    let is_number = number.len() <= 2 && number.bytes().all(|b| b.is_ascii_digit());
    let (_, suffix) = infra_id.rsplit_once('-')?;
    (is_number && suffix.len() == 5).then_some(infra_id)
}

/// The infraID that owns an instance: IBM's lists have no tags, and an infraID may begin with another one. It is of the longest infraID
/// that its name begins with, of those that are asked for and those whose control planes are listed.
pub(crate) fn owner<'a>(name: &str, infra_ids: &BTreeSet<&'a str>) -> Option<&'a str> {
    let mut starts = name.rmatch_indices('-').map(|(end, _)| &name[..end]);
    starts.find_map(|start| infra_ids.get(start).copied())
}

/// Every infraID that may own an instance.
pub(crate) fn infra_ids<'a>(wanted: &'a BTreeSet<String>, listed: &[&'a ListedInstance]) -> BTreeSet<&'a str> {
    let masters = listed.iter().filter_map(|instance| of_master(&instance.name));
    wanted.iter().map(String::as_str).chain(masters).collect()
}

impl ListedInstance {
    /// Code and message of the first reason of these, sanitized.
    fn reason(&self, is_of: impl Fn(&str) -> bool) -> Option<(String, String)> {
        let reason = self.status_reasons.iter().find(|reason| is_of(&reason.code))?;
        Some((sanitize_to(&reason.code, 60), sanitize_to(&reason.message, 200)))
    }

    pub(crate) fn machine(&self) -> Machine {
        let state = state(&self.status);
        let given_up = self.reason(|code| code.starts_with("cannot_start"));
        let given_up = given_up.map(|(code, message)| Reason::given_up(code.ends_with("_capacity"), code, message));
        let why = self.reason(|_| true).map(|(code, message)| format!("{code}: {message}"));
        let blocked = (self.startable == Some(false)).then(|| {
            let says = why.clone().unwrap_or_else(|| "IBM Cloud reports startable=false without a reason".to_owned());
            Reason::new(CloudErrorKind::Refused, "not_startable", says)
        });
        let mut machine = Machine { given_up, blocked, ..Machine::new(&self.name, &self.id, state, &self.status) };
        machine.instance.node_names.push(self.id.clone());
        machine.instance.stop_reason = why.filter(|_| state == InstanceState::Stopped);
        machine.of_type(&self.profile.name)
    }
}

/// Errors of IBM that are about one machine alone: the region has no capacity, or the account no quota.
pub(crate) fn machine_error_kind(code: &str, _message: &str) -> Option<CloudErrorKind> {
    let is_full = code.ends_with("_capacity") || code.contains("over_quota") || code.contains("quota_exceeded");
    is_full.then_some(CloudErrorKind::Capacity)
}
