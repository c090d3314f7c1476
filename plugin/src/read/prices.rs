//! List prices: of a file, or of a `ConfigMap` beside the controller.

use std::io;
use std::path::Path;

use hub::HubClient;
use shared::savings::prices::{MAX_BYTES, Prices};

use crate::error::Problem;
use crate::output;

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
    Ok(view::savings::prices(hub).await.unwrap_or_else(|why| {
        output::warning(&why);
        None
    }))
}
