//! What the operator of the webhook decides, for every kind that is judged.

use shared::admission::{Exempt, Object};
use shared::fdb::admission as fdb;
use shared::hive::admission as hive;
use shared::hive::exempt;
use shared::kkp::admission as kkp;
use shared::workload::admission as workload;

/// What the flags say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Who is never denied.
    pub exempt: Exempt,
    /// About `ClusterDeployment`s.
    pub hive: hive::Settings,
    /// About `FoundationDBCluster`s.
    pub fdb: fdb::Settings,
    /// About KKP's Clusters.
    pub kkp: kkp::Settings,
}

impl Default for Settings {
    fn default() -> Self {
        Self::new(exempt::identities(), hive::Settings::default(), fdb::Settings::default())
    }
}

impl Settings {
    /// Settings from the flags. A user who is exempt by name may also end the pause of a sleeping KKP Cluster.
    #[must_use]
    pub fn new(exempt: Exempt, hive: hive::Settings, fdb: fdb::Settings) -> Self {
        let kkp = kkp::Settings { exempt_users: exempt.users.clone() };
        Self { exempt, hive, fdb, kkp }
    }
}

/// A kind whose objects are judged: which of the settings are about it.
pub trait Judged: Object {
    /// Whether members of the exempt groups are exempt, too. Users always are.
    const EXEMPTS_GROUPS: bool = true;

    /// Its part of the settings.
    fn settings(all: &Settings) -> &Self::Settings;
}

impl Judged for hive::Cluster {
    fn settings(all: &Settings) -> &hive::Settings {
        &all.hive
    }
}

impl Judged for fdb::Annotated {
    fn settings(all: &Settings) -> &fdb::Settings {
        &all.fdb
    }
}

impl Judged for kkp::Cluster {
    const EXEMPTS_GROUPS: bool = false;

    fn settings(all: &Settings) -> &kkp::Settings {
        &all.kkp
    }
}

impl Judged for workload::Workload {
    fn settings(_: &Settings) -> &() {
        &()
    }
}

impl Judged for workload::Scale {
    fn settings(_: &Settings) -> &() {
        &()
    }
}
