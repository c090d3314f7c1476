//! `status rollouts` and `status rollout/NAME`: how far a rollout is, and what its targets do.

use futures::future::join_all;
use jiff::Timestamp;
use serde_json::Value;
use shared::target::{Kind, POWER_ROLLOUT};

use super::follow::{self, Shown};
use super::rollout_view::{HEAD, Record, full, line};
use crate::api::watch::Place;
use crate::api::{Hub, Resource, name_of};
use crate::cli::{HubArgs, StatusArgs};
use crate::cmd::rollout;
use crate::error::{Exit, Problem};

/// Runs the command for rollouts.
///
/// # Errors
/// When nothing can be asked at all. Failures of single rollouts are printed and counted.
pub(crate) async fn run(names: &[String], args: &StatusArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let hub = Hub::connect(hub_args).await?;
    let labels = hub_args.selector.as_deref().unwrap_or_default();
    let found: Vec<(String, Result<Value, Problem>)> = if names.is_empty() {
        let listed = hub.list(Resource::preferred(&POWER_ROLLOUT.kind), None, "", labels).await?.items;
        listed.into_iter().map(|object| (name_of(&object).to_owned(), Ok(object))).collect()
    } else {
        names.iter().cloned().zip(join_all(names.iter().map(|name| rollout::get(&hub, name))).await).collect()
    };
    follow::run::<Record>(&hub, (None, names), found, args, hub_args).await
}

impl Shown for Record {
    const LIST: &'static str = "RolloutStatusList";
    const HEAD: &'static [&'static str] = HEAD;

    fn kind() -> &'static Kind {
        &POWER_ROLLOUT.kind
    }

    fn read(object: Value) -> Result<Self, Problem> {
        Ok(Self::new(serde_json::from_value(object).map_err(Problem::unreadable)?))
    }

    fn place(&self) -> Place {
        (String::new(), self.name.clone())
    }

    fn documented(&self) -> Value {
        Self::documented(self)
    }

    fn line(&self, now: Timestamp) -> Vec<String> {
        line(self, now)
    }

    fn full(&self, now: Timestamp, colors: bool) -> Vec<String> {
        full(self, now, colors)
    }

    fn gone(self) -> Self {
        Self::gone(self)
    }
}
