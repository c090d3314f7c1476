//! `testbed fdb`: databases of the FoundationDB double.

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use serde_json::{Map, Value};
use testbed::FdbOptions;
use testbed::fdb::options::{Runner, Settings, UpdateMode};
use testbed::fdb::{OPERATOR, operator};

use crate::cli_state::State;

#[derive(Subcommand)]
pub(crate) enum FdbCommand {
    /// Make a FoundationDBCluster with its operator, and wait until it is reconciled
    Add {
        #[command(flatten)]
        state: State,
        /// Its name, and its namespace's unless --namespace says otherwise
        name: String,
        #[command(flatten)]
        new: New,
    },
    /// Remove one with everything that it has
    Rm {
        #[command(flatten)]
        place: Place,
    },
    /// Show database, volumes and exclusions as JSON; with --log the requests to the database and the operator's
    /// actions instead
    Show {
        #[command(flatten)]
        place: Place,
        /// The log instead
        #[arg(long)]
        log: bool,
    },
    /// Change settings of a database and its operator: testbed fdb set demo demo available=false wrong=true
    Set {
        #[command(flatten)]
        place: Place,
        /// Changes; values are JSON or plain text
        #[arg(value_name = "KEY=VALUE", required = true)]
        changes: Vec<String>,
    },
    /// Run the operator of one FoundationDBCluster (internal)
    #[command(hide = true)]
    Operator {
        #[command(flatten)]
        place: Place,
    },
}

#[derive(Args)]
pub(crate) struct Place {
    #[command(flatten)]
    state: State,
    /// Namespace of the FoundationDBCluster
    namespace: String,
    /// Its name
    name: String,
}

#[derive(Args)]
pub(crate) struct New {
    /// Namespace, if it has another name
    #[arg(long)]
    namespace: Option<String>,
    /// Process groups of class storage
    #[arg(long, default_value_t = 3)]
    storage: usize,
    /// Process groups of class log
    #[arg(long, default_value_t = 3)]
    log: usize,
    /// Nodes, each a zone of its own
    #[arg(long, default_value_t = 3)]
    zones: usize,
    /// Source of the process addresses: pod or service
    #[arg(long, default_value = "pod")]
    public_ip_source: String,
    /// All, Zone, `ProcessGroup` or None
    #[arg(long, default_value = "Zone")]
    removal_mode: String,
    /// Seconds between removals, before --speed [default: 60]
    #[arg(long)]
    wait_between: Option<i64>,
    /// How the operator writes the status
    #[arg(long, value_enum, default_value = "update")]
    update_mode: UpdateMode,
    /// The operator's waits are divided by this
    #[arg(long, default_value_t = 20.0)]
    speed: f64,
    /// Annotations on the FoundationDBCluster
    #[arg(long = "annotation", value_name = "KEY=VALUE")]
    annotations: Vec<String>,
}

impl New {
    fn options(self, name: &str) -> Result<FdbOptions> {
        let annotations = self.annotations.iter().map(|pair| {
            let (key, value) = pair.split_once('=').context("write --annotation KEY=VALUE")?;
            Ok((key.to_owned(), value.to_owned()))
        });
        Ok(FdbOptions {
            namespace: Some(self.namespace.unwrap_or_else(|| name.to_owned())),
            storage: self.storage,
            log: self.log,
            zones: self.zones,
            public_ip_source: self.public_ip_source,
            removal_mode: self.removal_mode,
            wait_between: self.wait_between,
            annotations: annotations.collect::<Result<_>>()?,
            runner: Runner::Program,
            settings: Settings { speed: self.speed, update_mode: self.update_mode, ..Settings::fast() },
            ..FdbOptions::default()
        })
    }
}

impl FdbCommand {
    /// Does it.
    pub(crate) async fn run(self) -> Result<()> {
        match self {
            Self::Add { state, name, new } => {
                let cluster = state.open()?.fdb(&name, new.options(&name)?).await?;
                cluster.wait_reconciled(Duration::from_mins(2)).await?;
                println!("{}", serde_json::to_string(cluster.info())?);
                Ok(())
            }
            Self::Rm { place } => place.open().await?.remove_all().await,
            Self::Show { place, log } => {
                let cluster = place.open().await?;
                let text = if log {
                    serde_json::to_string_pretty(&cluster.log().await?)?
                } else {
                    serde_json::to_string_pretty(&cluster.database().await?)?
                };
                println!("{text}");
                Ok(())
            }
            Self::Set { place, changes } => {
                let change: Map<String, Value> = changes.iter().map(|change| pair(change)).collect::<Result<_>>()?;
                let settings = place.open().await?.turn(&Value::Object(change)).await?;
                println!("{}", serde_json::to_string_pretty(&settings)?);
                Ok(())
            }
            Self::Operator { place } => {
                tracing_subscriber::fmt().with_env_filter("info,kube_client=off").with_ansi(false).init();
                let world = place.state.open()?;
                let cluster = place.open().await?;
                let client = world.hub_as(OPERATOR).await?;
                operator::run(client, world.supervisor().clone(), cluster.info().clone()).await
            }
        }
    }
}

impl Place {
    async fn open(&self) -> Result<testbed::FdbCluster> {
        self.state.open()?.existing_fdb(&self.namespace, &self.name).await
    }
}

/// A `KEY=VALUE`; the value is JSON or plain text.
pub(crate) fn pair(change: &str) -> Result<(String, Value)> {
    let (key, value) = change.split_once('=').context("write KEY=VALUE")?;
    Ok((key.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into())))
}
