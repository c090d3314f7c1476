//! What the operator of the webhook decides, for every kind that is judged.

use shared::admission::{Denial, Exempt, Object};
use shared::fdb::admission as fdb;
use shared::hive::admission as hive;
use shared::hive::exempt;
use shared::kkp::admission as kkp;
use shared::rollout::admission as rollout;
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
        let deleters = kkp::DELETERS.iter().copied().map(str::to_owned).collect();
        Self::new(exempt::identities(), hive::Settings::default().served_platforms, fdb::Settings::default(), deleters)
    }
}

impl Settings {
    /// Settings from the flags. A user who is exempt by name may also write the claims of rollouts, and end the pause
    /// of a sleeping KKP Cluster.
    pub fn new(exempt: Exempt, served_platforms: Vec<String>, fdb: fdb::Settings, kkp_deleters: Vec<String>) -> Self {
        let hive = hive::Settings { served_platforms, exempt_users: exempt.users.clone() };
        let kkp = kkp::Settings { exempt_users: exempt.users.clone(), deleters: kkp_deleters };
        Self { exempt, hive, fdb, kkp }
    }
}

/// Who is exempt from a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exempts {
    /// No user.
    None,
    /// Users on the list.
    Users,
    /// Users on the list, and members of the groups on the list.
    UsersAndGroups,
}

/// A kind whose objects are judged: which of the settings are about it.
pub trait Judged: Object {
    /// Who is exempt from this denial.
    fn exempts(_denial: &Denial) -> Exempts {
        Exempts::UsersAndGroups
    }

    /// Its part of the settings.
    fn settings(all: &Settings) -> &Self::Settings;
}

impl Judged for hive::Cluster {
    fn exempts(denial: &Denial) -> Exempts {
        if hive::binds_groups(denial) { Exempts::Users } else { Exempts::UsersAndGroups }
    }

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
    fn exempts(_: &Denial) -> Exempts {
        Exempts::Users
    }

    fn settings(all: &Settings) -> &kkp::Settings {
        &all.kkp
    }
}

impl Judged for rollout::Rollout {
    fn exempts(_: &Denial) -> Exempts {
        Exempts::None
    }

    fn settings(_: &Settings) -> &() {
        &()
    }
}

impl Judged for workload::Workload {
    fn settings(_: &Settings) -> &() {
        &()
    }
}
