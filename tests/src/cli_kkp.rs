//! `testbed kkp`: user clusters of the KKP double.

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Map, Value};
use testbed::kkp::options::Settings;
use testbed::kkp::server::Act;
use testbed::{KkpCluster, KkpOptions};

use crate::cli_fdb::pair;
use crate::cli_state::State;

#[derive(Subcommand)]
pub(crate) enum KkpCommand {
    /// Make a user cluster on a free spoke: five machines, three volumes, two load balancers
    Add {
        #[command(flatten)]
        state: State,
        /// Name of its Cluster
        id: String,
        /// One machine, and nothing that runs on it
        #[arg(long)]
        small: bool,
        /// The waits of all that is played are divided by this
        #[arg(long, default_value_t = 20.0)]
        speed: f64,
        /// spec.cloud.providerName
        #[arg(long, default_value = "aws")]
        provider: String,
    },
    /// Show etcd and cloud as JSON; with --log what was seen instead
    Show {
        #[command(flatten)]
        place: Place,
        /// The log instead
        #[arg(long)]
        log: bool,
    },
    /// Change settings of a user cluster: testbed kkp set abc apiSilent=true
    Set {
        #[command(flatten)]
        place: Place,
        /// Changes; values are JSON or plain text
        #[arg(value_name = "KEY=VALUE", required = true)]
        changes: Vec<String>,
    },
    /// Change settings of KKP itself: testbed kkp seed 'datacenters=[]' webhooksDown=true
    Seed {
        #[command(flatten)]
        state: State,
        /// Changes; values are JSON or plain text
        #[arg(value_name = "KEY=VALUE", required = true)]
        changes: Vec<String>,
    },
    /// Write certificates and kubeconfigs that are valid for so many days
    Expire {
        #[command(flatten)]
        place: Place,
        /// Days from now; fewer than 0: they have expired
        #[arg(allow_negative_numbers = true)]
        days: i64,
    },
}

#[derive(Args)]
pub(crate) struct Place {
    #[command(flatten)]
    state: State,
    /// Name of its Cluster
    id: String,
}

impl Place {
    async fn open(&self) -> Result<KkpCluster> {
        self.state.open()?.existing_kkp(&self.id).await
    }
}

fn changes(pairs: &[String]) -> Result<Value> {
    let all: Map<String, Value> = pairs.iter().map(|change| pair(change)).collect::<Result<_>>()?;
    Ok(Value::Object(all))
}

impl KkpCommand {
    /// Does it.
    pub(crate) async fn run(self) -> Result<()> {
        let text = match self {
            Self::Add { state, id, small, speed, provider } => {
                let options = if small { KkpOptions::small() } else { KkpOptions::default() };
                let settings = Settings { speed, ..Settings::fast() };
                let cluster = state.open()?.kkp(&id, KkpOptions { provider, settings, ..options }).await?;
                serde_json::to_string(cluster.info())?
            }
            Self::Show { place, log: true } => serde_json::to_string_pretty(&place.open().await?.log().await?)?,
            Self::Show { place, log: false } => serde_json::to_string_pretty(&place.open().await?.inspect().await?)?,
            Self::Set { place, changes: pairs } => {
                serde_json::to_string_pretty(&place.open().await?.turn(&changes(&pairs)?).await?)?
            }
            Self::Seed { state, changes: pairs } => {
                serde_json::to_string_pretty(&state.open()?.turn_kkp(&changes(&pairs)?).await?)?
            }
            Self::Expire { place, days } => {
                place.open().await?.act(&Act::ExpireCertificates(days)).await?;
                return Ok(());
            }
        };
        println!("{text}");
        Ok(())
    }
}
