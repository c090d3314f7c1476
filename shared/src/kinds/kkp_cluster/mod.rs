//! KKP's `Cluster`: intent is an annotation, because KKP drops fields that it does not know (rows 24 and 25 of
//! docs/reference/kkp.md). State is in our condition and in the record: KKP itself shows a sleeping cluster as Running
//! and healthy, and its heartbeats stand still (rows 6 and 7).

mod companion;
mod confirmation;
mod intent;
mod progress;
mod state;
mod view;

use std::time::Duration;

use serde::Deserialize;

use self::companion::RecordConfigMap;
use self::confirmation::Dehydration;
use self::state::{certificates, more, warnings};
use super::kind::Kind;
use super::lifecycle::{Change, HubFacts, HubFindings, Intent, Lifecycle, Progress, TargetError};
use super::record::Record;
use super::row::{ASLEEP, ByDefault, Column, Deadlines, Elsewhere, PLATFORM, Plan, REGION, Reader, TargetKind};
use super::view::View;
use crate::admission::Settings;
use crate::kkp::api::{Cluster, NAMESPACE_PREFIX};
use crate::kkp::keys;
use crate::power::Power;

/// The row.
pub static KKP_CLUSTER: TargetKind = TargetKind {
    by_default: ByDefault::InStatus,
    has_force: true,
    plan: Some(&Plan { preflight: Some(&Dehydration), rules: None, sync: None, is_upgraded: false }),
    writes: "annotation hibernate.sh/power-state: \"Hibernating\"",
    asleep: "dehydrated",
    awake: "running",
    columns: &[
        PLATFORM,
        REGION,
        Column { header: "DISPLAY-NAME", cell: |record, _| more(record, "displayName") },
        Column { header: "VERSION", cell: |record, _| more(record, "version") },
        Column { header: "MACHINES", cell: |record, _| more(record, "scaledDownMachines") },
        Column { header: "VOLUMES", cell: |record, _| state::remaining(record, "volumes") },
        Column { header: "LOAD-BALANCERS", cell: |record, _| state::remaining(record, "loadBalancers") },
        Column { header: "CERTIFICATES", cell: certificates },
        Column { header: "PAUSED-BY", cell: |record, _| more(record, "pausedBy") },
        ASLEEP,
    ],
    warnings,
    companion: Some(&RecordConfigMap),
    elsewhere: Some(Elsewhere {
        hint: "KKP's user clusters live on their seed: use the seed's kubeconfig",
        namesakes: "clusters of Cluster API and of Open Cluster Management are not put to sleep by this program",
        index: Kind::namespaced("kubermatic.k8c.io", &["v1"], "Seed", "seeds"),
        role: "a KKP master",
        display_name: |cluster| cluster.pointer("/spec/humanReadableName")?.as_str(),
    }),
    control_plane: Some(NAMESPACE_PREFIX),
    // The limits of all phases add up to more: what is slower is worth a person's look.
    in_rollouts: Some(Deadlines { sleep: Duration::from_mins(45), wake: Duration::from_mins(45) }),
    stage: 5,
    ..TargetKind::plain(
        Kind::cluster_scoped("kubermatic.k8c.io", &["v1"], "Cluster", "clusters").with_short(&["cluster"]),
        Reader::Code(|object| Ok(Box::new(Cluster::deserialize(object)?))),
    )
};

/// What the request on the object asks for.
fn desired(cluster: &Cluster) -> Power {
    cluster.annotation(keys::POWER_STATE).and_then(|state| state.parse().ok()).unwrap_or_default()
}

impl Lifecycle for Cluster {
    fn view(&self, rules: Option<&Settings>) -> View {
        view::of(self, rules)
    }

    fn change(&self, intent: &Intent<'_>) -> Result<Change, TargetError> {
        Ok(intent::change(self, intent))
    }

    /// None: the controller's preflight judges the rules, too.
    fn findings(&self, _: HubFacts<'_>) -> HubFindings {
        HubFindings::default()
    }

    fn progress(&self, action: Power) -> Progress {
        progress::of(self, desired(self), action)
    }

    fn describe(&self, record: Record) -> Record {
        state::describe(self, record)
    }
}

#[cfg(test)]
pub(crate) mod tests;
