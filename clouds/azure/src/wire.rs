//! The parts of Azure's answers that are used.

use cloud_http::Words;
use cloud_stopstart::{Machine, Progress, Reason};
use serde::Deserialize;
use serde::de::IgnoredAny;
use shared::cloud::{CloudErrorKind, InstanceState};
use shared::read::lenient;

/// One page of a list.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Page {
    pub(crate) value: Vec<ListedInstance>,
    pub(crate) next_link: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct ListedInstance {
    id: String,
    pub(crate) name: String,
    #[serde(default)]
    properties: Properties,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Properties {
    instance_view: View,
    storage_profile: Storage,
    hardware_profile: Hardware,
}

/// What a machine is made of.
pub(crate) struct Model {
    /// Whether its OS disk is ephemeral.
    pub(crate) is_ephemeral: bool,
    pub(crate) size: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Hardware {
    vm_size: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Storage {
    os_disk: OsDisk,
}

/// A disk; only an ephemeral one has these settings.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct OsDisk {
    diff_disk_settings: Option<IgnoredAny>,
}

/// What a machine is doing.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct View {
    #[serde(default)]
    statuses: Vec<Status>,
}

#[derive(Clone, Debug, Deserialize)]
struct Status {
    #[serde(default)]
    code: String,
}

impl View {
    fn word(&self, kind: &str) -> Option<&str> {
        let of_kind = |code: &'_ str| code.len() > kind.len() && code[..kind.len()].eq_ignore_ascii_case(kind);
        let code =
            self.statuses.iter().map(|status| status.code.as_str()).find(|code| code.is_ascii() && of_kind(code));
        code.map(|code| &code[kind.len()..])
    }

    /// Whether it has a power state. In rare cases Azure leaves it out.
    pub(crate) fn has_power(&self) -> bool {
        self.word("PowerState/").is_some()
            || matches!(self.state().0, InstanceState::Pending | InstanceState::ShuttingDown)
    }

    /// The state, and Azure's word for it.
    pub(crate) fn state(&self) -> (InstanceState, &str) {
        let (power, provisioning) = (self.word("PowerState/"), self.word("ProvisioningState/"));
        match (power, provisioning) {
            (_, Some(word)) if word.eq_ignore_ascii_case("deleting") => (InstanceState::ShuttingDown, word),
            (None, Some(word)) if word.eq_ignore_ascii_case("creating") => (InstanceState::Pending, word),
            (Some(word), _) => (state(word), word),
            (None, _) => (InstanceState::Unknown, "no-power-state"),
        }
    }
}

/// Every power state that Azure lists.
fn state(word: &str) -> InstanceState {
    match word.to_ascii_lowercase().as_str() {
        "creating" | "starting" => InstanceState::Pending,
        "running" => InstanceState::Running,
        "stopping" | "deallocating" => InstanceState::Stopping,
        "stopped" => InstanceState::Halted,
        "deallocated" => InstanceState::Stopped,
        _ => InstanceState::Unknown,
    }
}

impl ListedInstance {
    /// The resource group, as Azure spells it today.
    pub(crate) fn group(&self) -> Option<&str> {
        let mut segments = self.id.split('/').skip_while(|segment| !segment.eq_ignore_ascii_case("resourceGroups"));
        segments.nth(1).filter(|group| !group.is_empty())
    }

    /// Resource group and name in lowercase: case does not count.
    pub(crate) fn key(&self) -> Option<(String, String)> {
        Some((self.group()?.to_lowercase(), self.name.to_lowercase()))
    }

    pub(crate) fn model(&self) -> Model {
        let is_ephemeral = self.properties.storage_profile.os_disk.diff_disk_settings.is_some();
        Model { is_ephemeral, size: self.properties.hardware_profile.vm_size.clone() }
    }

    pub(crate) fn view(&self) -> &View {
        &self.properties.instance_view
    }

    pub(crate) fn machine(&self, group: &str, view: &View) -> Machine {
        let (state, word) = view.state();
        Machine::new(&self.name, group, state, word)
    }
}

/// Errors of Azure that are about one machine alone.
pub(crate) fn machine_error_kind(code: &str, message: &str) -> Option<CloudErrorKind> {
    match code {
        _ if is_full(code, message) => Some(CloudErrorKind::Capacity),
        "ScopeLocked" => Some(CloudErrorKind::Refused),
        _ => None,
    }
}

/// An operation that Azure has given up.
pub(crate) fn given_up(code: String, message: String) -> Progress {
    Progress::GivenUp(Reason::given_up(is_full(&code, &message), code, message))
}

/// Whether Azure has no machines of this size, or the subscription no quota.
fn is_full(code: &str, message: &str) -> bool {
    let full = [
        "AllocationFailed",
        "OverconstrainedAllocationRequest",
        "OverconstrainedZonalAllocationRequest",
        "QuotaExceeded",
        "SkuNotAvailable",
        "ZonalAllocationFailed",
    ];
    full.contains(&code) || code == "OperationNotAllowed" && message.to_ascii_lowercase().contains("quota")
}

/// An operation, by the answer to its link, which may be the machine itself.
#[derive(Deserialize)]
pub(crate) struct Operation {
    #[serde(default, deserialize_with = "lenient")]
    status: Option<String>,
    #[serde(default)]
    error: Words,
}

impl Operation {
    pub(crate) fn progress(&self) -> Progress {
        match self.status.as_deref() {
            None | Some("Succeeded") => Progress::Done,
            Some("Failed" | "Canceled") => given_up(self.error.code.clone(), self.error.message.clone()),
            Some(_) => Progress::InProgress,
        }
    }
}
