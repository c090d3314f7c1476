//! List prices: of a file, or of a `ConfigMap` beside the controller.

use std::io;
use std::path::Path;

use hub::error::HubError;
use hub::{HubClient, Resource};
use serde_json::Value;
use shared::annotation::keys;
use shared::savings::prices::{MAX_BYTES, Prices};

use super::CONFIG_MAPS;
use crate::error::Problem;
use crate::output;

/// The `ConfigMap` with prices.
const CONFIG_MAP: &str = "hibernate-prices";
/// Its key.
const KEY: &str = "prices.csv";

/// The prices of a file.
///
/// # Errors
/// When the file cannot be read. The second result has what is wrong with its lines.
pub(crate) fn of_file(path: &Path) -> Result<Result<Prices, Vec<String>>, Problem> {
    let text = super::file(path, MAX_BYTES);
    Ok(Prices::read(&text.map_err(Problem::io(format!("read prices from {}", path.display())))?))
}

/// The prices of a file, or else of the hub; none if it has none. Prices of the hub that cannot be used are warned of.
///
/// # Errors
/// When the file cannot be read, or a line of it is wrong.
pub(crate) async fn prices(hub: &HubClient, file: Option<&Path>) -> Result<Option<Prices>, Problem> {
    if let Some(path) = file {
        let prices = of_file(path)?.map_err(|errors| io::Error::new(io::ErrorKind::InvalidData, errors.join("; ")));
        return Ok(Some(prices.map_err(Problem::io(format!("use prices of {}", path.display())))?));
    }
    let found = match hub.get(Resource::preferred(&CONFIG_MAPS), keys::NAMESPACE, CONFIG_MAP).await {
        Ok(found) => found,
        Err(HubError::NoObject { .. }) => return Ok(None),
        Err(error) => {
            output::warning(&format!("no prices are used: {error}"));
            return Ok(None);
        }
    };
    let prices = match found["data"].get(KEY).and_then(Value::as_str) {
        Some(text) => Prices::read(text).map_err(|errors| errors.join("; ")),
        None => Err(format!("it has no key {KEY}: add it")),
    };
    let warn = |why: String| {
        output::warning(&format!("no prices are used: ConfigMap {}/{CONFIG_MAP}: {why}", keys::NAMESPACE));
    };
    Ok(prices.map_err(warn).ok())
}
