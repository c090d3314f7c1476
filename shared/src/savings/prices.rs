//! List prices of the user: CSV with Kubecost's columns, and `Currency`.

use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a file.
pub const MAX_BYTES: usize = 4 << 20;
/// Errors that are named.
const MAX_ERRORS: usize = 20;
/// Parts of a unit of money in which a price is kept: what price lists round to.
const PARTS: u64 = 1_000_000_000;
/// Kubecost's class of machines.
const NODE: &str = "node";

/// Prices of an hour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prices {
    /// As `USD`.
    pub currency: String,
    /// By type and region in lower case; the region is empty for all.
    hourly: BTreeMap<(String, String), u64>,
}

/// An amount of money: parts of the unit, times seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(u128);

/// Type and region of a machine, its price in parts of the unit, and the currency.
type Price = ((String, String), u64, String);

/// The columns that are read, by their places.
struct Columns {
    kind: usize,
    price: usize,
    region: Option<usize>,
    class: Option<usize>,
    currency: Option<usize>,
}

impl Prices {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong, line by line.
    pub fn read(text: &str) -> Result<Self, Vec<String>> {
        if text.len() > MAX_BYTES {
            return Err(vec![format!("it has more than {} MiB", MAX_BYTES >> 20)]);
        }
        let mut reader = csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(text.as_bytes());
        let columns = reader.headers().map_err(|error| error.to_string()).and_then(Columns::of);
        let columns = columns.map_err(|error| vec![format!("line 1: {error}")])?;
        let (mut prices, mut errors, mut currencies) = (Self::default(), Vec::new(), BTreeSet::new());
        for record in reader.records() {
            let line = record.as_ref().ok().and_then(|record| Some(record.position()?.line())).unwrap_or_default();
            match record.map_err(|error| error.to_string()).and_then(|record| columns.row(&record)) {
                Ok(None) => {}
                Ok(Some(((kind, region), price, currency))) => {
                    currencies.insert(currency);
                    if prices.hourly.insert((kind.clone(), region.clone()), price).is_some() {
                        errors.push(format!("line {line}: a second price of {kind} in region {region:?}"));
                    }
                }
                Err(error) => errors.push(format!("line {line}: {error}")),
            }
        }
        if currencies.len() > 1 {
            let all: Vec<&str> = currencies.iter().map(String::as_str).collect();
            errors.push(format!("found prices in {}, must be in one currency", all.join(", ")));
        }
        if prices.hourly.is_empty() && errors.is_empty() {
            errors.push("it has no price of a machine".to_owned());
        }
        if !errors.is_empty() {
            errors.truncate(MAX_ERRORS);
            return Err(errors);
        }
        prices.currency = currencies.pop_first().unwrap_or_default();
        Ok(prices)
    }

    /// How many prices there are.
    pub fn count(&self) -> usize {
        self.hourly.len()
    }

    /// What a machine of this type would have cost, if its price is known.
    pub fn cost(&self, kind: &str, region: &str, seconds: u64) -> Option<Amount> {
        let of = |region: &str| self.hourly.get(&(kind.to_lowercase(), region.to_lowercase()));
        of(region).or_else(|| of("")).map(|price| Amount(u128::from(*price) * u128::from(seconds)))
    }
}

impl Columns {
    fn of(header: &csv::StringRecord) -> Result<Self, String> {
        let place = |name: &str| header.iter().position(|one| one.eq_ignore_ascii_case(name));
        let needed = |name: &str| {
            place(name).ok_or_else(|| format!("found no column {name}; InstanceType and MarketPriceHourly are needed"))
        };
        Ok(Self {
            kind: needed("InstanceType")?,
            price: needed("MarketPriceHourly")?,
            region: place("Region"),
            class: place("AssetClass"),
            currency: place("Currency"),
        })
    }

    /// `None` for what is no machine.
    fn row(&self, record: &csv::StringRecord) -> Result<Option<Price>, String> {
        let field = |at: usize| record.get(at).unwrap_or_default();
        let optional = |at: Option<usize>| at.map_or("", field);
        if !matches!(optional(self.class).to_lowercase().as_str(), "" | NODE) || field(self.kind).is_empty() {
            return Ok(None);
        }
        let text = field(self.price);
        let price =
            hourly(text).ok_or_else(|| format!("MarketPriceHourly: found {text:?}, must be a number such as 0.192"))?;
        let currency = match optional(self.currency) {
            "" => "USD".to_owned(),
            code if code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_alphabetic()) => code.to_uppercase(),
            other => return Err(format!("Currency: found {other:?}, must be a code such as USD")),
        };
        let key = (field(self.kind).to_lowercase(), optional(self.region).to_lowercase());
        Ok(Some((key, price, currency)))
    }
}

/// A price in parts of the unit; more than nine decimals are cut.
fn hourly(text: &str) -> Option<u64> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(rest) || whole.len() > 7 {
        return None;
    }
    let parts: String = rest.chars().chain(std::iter::repeat('0')).take(9).collect();
    Some(whole.parse::<u64>().ok()? * PARTS + parts.parse::<u64>().ok()?)
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hundredth = u128::from(PARTS) * 3_600 / 100;
        let all = (self.0 + hundredth / 2) / hundredth; // rounded
        write!(f, "{}.{:02}", all / 100, all % 100)
    }
}
