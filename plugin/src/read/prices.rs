//! List prices: of a file, or of a `ConfigMap` beside the controller.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use hub::error::HubError;
use hub::{HubClient, Resource};
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
/// When the file cannot be read. What is wrong with its lines is in the second result.
pub(crate) fn of_file(path: &Path) -> Result<Result<Prices, Vec<String>>, Problem> {
    let mut text = String::new();
    let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let read = File::open(path).and_then(|file| file.take(most).read_to_string(&mut text));
    read.map_err(Problem::io(format!("read prices from {}", path.display())))?;
    Ok(Prices::read(&text))
}

/// The prices of a file, or else of the hub; none if it has none. A `ConfigMap` that cannot be read is warned of.
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
        Err(HubError::NoObject { .. } | HubError::Forbidden { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let text = found.pointer(&format!("/data/{KEY}")).and_then(serde_json::Value::as_str).unwrap_or_default();
    Ok(match Prices::read(text) {
        Ok(prices) => Some(prices),
        Err(errors) => {
            let place = format!("ConfigMap {}/{CONFIG_MAP}, key {KEY}", keys::NAMESPACE);
            output::warning(&format!("no prices are used: {place}: {}", errors.join("; ")));
            None
        }
    })
}
