//! One pass over a cluster: the sub-steps in their order, and what ends it.

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;

use super::api::{Cluster, Status};
use super::{Conflict, Surroundings};
use crate::database::{Database, Settings};

/// A sub-step that is not finished, with the operator's own seconds until it is to be tried again.
pub(super) struct Wait {
    pub(super) text: String,
    pub(super) seconds: f64,
}

impl Wait {
    pub(super) fn new(text: impl Into<String>, seconds: f64) -> Self {
        Self { text: text.into(), seconds }
    }
}

pub(super) type Step = Result<Option<Wait>>;

/// How a pass has ended, and after how many seconds it comes again by itself, if at all.
#[derive(Debug)]
pub struct Ended {
    pub result: String,
    pub again: Option<f64>,
}

/// The sub-steps that do something here, in their order. The real operator has some more; its `removeServices` leaves
/// the groups' Services alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubStep {
    /// With `useDNSInClusterFile`, which is the default, Pods of known groups come before everything else.
    AddKnownPods,
    UpdateStatus,
    AddProcessGroups,
    AddServices,
    AddPVCs,
    AddPods,
    GenerateInitialClusterFile,
    ChooseRemovals,
    ExcludeProcesses,
    BounceProcesses,
    RemoveProcessGroups,
    UpdateStatusAgain,
}

impl SubStep {
    pub const ALL: [Self; 12] = [
        Self::AddKnownPods,
        Self::UpdateStatus,
        Self::AddProcessGroups,
        Self::AddServices,
        Self::AddPVCs,
        Self::AddPods,
        Self::GenerateInitialClusterFile,
        Self::ChooseRemovals,
        Self::ExcludeProcesses,
        Self::BounceProcesses,
        Self::RemoveProcessGroups,
        Self::UpdateStatusAgain,
    ];

    /// Whether a pass ends there when it is not finished.
    fn ends_the_pass(self) -> bool {
        matches!(self, Self::GenerateInitialClusterFile | Self::BounceProcesses)
    }
}

/// A pass under way.
pub(super) struct Pass<'a, S> {
    pub(super) cx: &'a S,
    pub(super) cluster: Cluster,
    pub(super) settings: Settings,
    written: Status,
    pub(super) reconciled: bool,
}

/// How often an unreconciled cluster is reconciled, in the operator's seconds.
const UNRECONCILED: f64 = 10.0;
/// How long a lost write waits.
const CONFLICT: f64 = 60.0;
/// How long it waits for the database's status.
const FETCH: f64 = 10.0;

/// One pass.
pub async fn run<S: Surroundings>(cx: &S) -> Result<Ended> {
    let over = |result: &str| Ok(Ended { result: result.to_owned(), again: None });
    let Some(cluster) = cx.cluster()? else { return over("no cluster") };
    if cluster.spec("/skip") == true {
        return over("skipped");
    }
    let (settings, written) = (cx.with_database(|database| database.settings.clone())?, cluster.status.clone());
    let mut pass = Pass { cx, cluster, settings, written, reconciled: false };
    let (result, seconds) = match pass.go().await {
        Err(error) if error.chain().any(<dyn std::error::Error>::is::<Conflict>) => {
            (format!("{error:#}"), Some(CONFLICT))
        }
        Err(error) => return Err(error),
        Ok(Some(wait)) => (wait.text, Some(wait.seconds)),
        Ok(None) if !pass.reconciled => ("cluster was not fully reconciled".to_owned(), Some(UNRECONCILED)),
        Ok(None) => ("Reconciliation complete".to_owned(), None),
    };
    Ok(Ended { result, again: seconds.map(|seconds| seconds / S::SPEED) })
}

impl<S: Surroundings> Pass<'_, S> {
    /// All sub-steps, up to one that ends the pass.
    async fn go(&mut self) -> Step {
        let mut open: Option<Wait> = None;
        for step in SubStep::ALL {
            self.cx.begin(step).await;
            let wait = self.step(step).await.with_context(|| format!("{step:?}"))?;
            if step.ends_the_pass() && wait.is_some() {
                return Ok(wait);
            }
            // The longest counts.
            open = open.into_iter().chain(wait).max_by(|one, other| one.seconds.total_cmp(&other.seconds));
        }
        Ok(open)
    }

    async fn step(&mut self, step: SubStep) -> Step {
        match step {
            SubStep::AddKnownPods | SubStep::AddPods => self.add_pods().await?,
            // A pass that could not read the database's status goes on, and comes again.
            SubStep::UpdateStatus if !(self.fetch().await? || self.fetch().await?) => {
                return Ok(Some(Wait::new("cannot read the database's status", UNRECONCILED)));
            }
            SubStep::UpdateStatus | SubStep::UpdateStatusAgain => self.update_status().await?,
            SubStep::AddProcessGroups => self.add_groups().await?,
            SubStep::AddServices => self.add_services().await?,
            SubStep::AddPVCs => self.add_claims().await?,
            SubStep::GenerateInitialClusterFile => return self.generate_cluster_file().await,
            SubStep::ChooseRemovals => self.choose_removals().await?,
            SubStep::ExcludeProcesses => return self.exclude_processes(),
            SubStep::BounceProcesses => {
                let wait = || Wait::new("processes must be up for 600 seconds to safely bounce", 600.0);
                return Ok(self.settings.bounces.then(wait));
            }
            SubStep::RemoveProcessGroups => return self.remove_groups().await,
        }
        Ok(None)
    }

    /// Writes the status if it has changed.
    pub(super) async fn write_status(&mut self) -> Result<()> {
        if self.cluster.status != self.written {
            self.cx.write_status(&mut self.cluster).await?;
            self.written = self.cluster.status.clone();
        }
        Ok(())
    }

    /// The database as it is now.
    pub(super) fn database(&self) -> Result<Database> {
        self.cx.with_database(|database| database.clone())
    }

    /// Fetches the database's status; false if it does not come.
    async fn fetch(&self) -> Result<bool> {
        let fails = self.cx.with_database(|database| {
            let left = &mut database.settings.failed_fetches;
            let fails = *left > 0;
            *left = left.saturating_sub(1);
            fails
        })?;
        if fails {
            self.cx.sleep(FETCH).await;
        }
        Ok(!fails)
    }

    /// Has the database do something to these targets, and logs it as fdbcli writes it.
    pub(super) fn order(
        &self,
        what: &str,
        targets: &[String],
        order: impl FnOnce(&mut Database, &[String], f64),
    ) -> Result<()> {
        let at = self.seconds();
        self.cx.with_database(|database| {
            ensure!(database.settings.available, "cluster is unavailable");
            order(database, targets, at);
            Ok(())
        })??;
        self.cx.log_command(format!("{what} {}", targets.join(" ")))
    }

    /// RFC 3339 and seconds since 1970.
    pub(super) fn now(&self) -> (String, i64) {
        let now = self.cx.now();
        (now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), now.as_second())
    }

    /// The same with fractions.
    pub(super) fn seconds(&self) -> f64 {
        seconds(self.cx.now())
    }
}

/// Seconds since 1970.
pub fn seconds(at: Timestamp) -> f64 {
    at.as_duration().as_secs_f64()
}
