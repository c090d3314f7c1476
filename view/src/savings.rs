//! What sleep has avoided: the targets of a report, and the list prices of a hub.

use hub::error::HubError;
use hub::{HubClient, Resource};
use jiff::Timestamp;
use serde_json::Value;
use shared::kinds::Kind;
use shared::savings::prices::Prices;
use shared::savings::report::Reported;

use super::target::TargetState;
use super::{installed, times};

/// Text that a hub keeps.
pub static CONFIG_MAPS: Kind = Kind::namespaced("", &["v1"], "ConfigMap", "configmaps");
/// The `ConfigMap` with prices.
const CONFIG_MAP: &str = "hibernate-prices";
/// Its key.
const KEY: &str = "prices.csv";

/// A target of a report; none of a kind without a ledger.
pub fn reported(TargetState { record, .. }: &TargetState, everywhere: bool, now: Timestamp) -> Option<Reported> {
    let name = match record.namespace.as_str() {
        namespace if everywhere && !namespace.is_empty() => format!("{namespace}/{}", record.name),
        _ => record.name.clone(),
    };
    let history = record.sleep_history.clone()?;
    let schedule = record.schedule.as_ref().map(|_| times::name(record));
    Some(Reported { key: record.key(), name, history, schedule, held: times::hold(record, now) })
}

/// The list prices of a hub; none if it has none.
///
/// # Errors
/// Why those that it has are not used.
pub async fn prices(hub: &HubClient) -> Result<Option<Prices>, String> {
    let unread = |error: HubError| format!("no prices are used: {error}");
    let namespace = installed::namespace(hub).await.map_err(unread)?;
    let found = match hub.get(Resource::preferred(&CONFIG_MAPS), &namespace, CONFIG_MAP).await {
        Ok(found) => found,
        Err(HubError::NoObject { .. }) => return Ok(None),
        Err(error) => return Err(unread(error)),
    };
    let prices = match found["data"].get(KEY).and_then(Value::as_str) {
        Some(text) => Prices::read(text).map_err(|errors| errors.join("; ")),
        None => Err(format!("it has no key {KEY}: add it")),
    };
    let fail = |why: String| format!("no prices are used: ConfigMap {namespace}/{CONFIG_MAP}: {why}");
    prices.map(Some).map_err(fail)
}
