//! What sleep has avoided, as the command `savings` reports it.

use askama::Template;
use jiff::Timestamp;
use serde::Deserialize;
use shared::duration::hours;
use shared::savings::period::Period;
use shared::savings::report::{self, By, Reported, Row};
use shared::text::sanitize;
use view::savings::{prices, reported};

use crate::Site;

/// Days of a report, unless it is of a month.
const DAYS: u8 = 30;
/// Rows that are shown.
const MAX_ROWS: usize = 500;

/// Which report.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReportRequest {
    /// `target`, `namespace`, `platform` or `type`.
    by: String,
    /// Such as `2026-11`; empty for the last 30 days.
    month: String,
}

#[derive(Template)]
#[template(path = "savings.html")]
struct Fragment<'a> {
    by: &'a str,
    month: &'a str,
    period: String,
    currency: String,
    rows: Vec<Line>,
    more: usize,
    error: String,
    command: String,
}

/// A row of the table.
struct Line {
    name: String,
    asleep: String,
    share: u64,
    unknown: String,
    machines: String,
    avoided: String,
    priced: String,
    could: String,
    notes: String,
    is_total: bool,
}

impl Line {
    fn of(row: &Row, is_total: bool) -> Self {
        let percent = |share: Option<u64>| share.map(|share| format!("{share}%")).unwrap_or_default();
        let could = row.could_sleep_seconds;
        Self {
            name: sanitize(&row.name),
            asleep: hours(row.asleep_seconds),
            share: row.share().unwrap_or_default().min(100),
            unknown: hours(row.unknown_seconds),
            machines: hours(row.machines()),
            avoided: row.avoided_list_cost.clone().unwrap_or_default(),
            priced: percent(row.priced()),
            could: if could > 0 { hours(could) } else { String::new() },
            notes: sanitize(&row.notes.join(", ")),
            is_total,
        }
    }
}

/// The fragment.
///
/// # Errors
/// When the period is none, or the fragment cannot be rendered.
pub async fn html(site: &Site, request: &ReportRequest, now: Timestamp) -> Result<String, String> {
    let by = match request.by.as_str() {
        "namespace" => By::Namespace,
        "platform" => By::Platform,
        "type" => By::Type,
        _ => By::Target,
    };
    let period = if request.month.is_empty() {
        Period::last_days(DAYS, now)
    } else {
        let month = request.month.parse();
        Period::Month(month.map_err(|why| format!("{}: {why}", sanitize(&request.month)))?)
    };
    let (prices, error) =
        prices(&site.hub()).await.map_or_else(|why| (None, sanitize(&why)), |prices| (prices, String::new()));
    let targets: Vec<Reported> = {
        let objects = site.cache.objects();
        objects.targets().filter_map(|target| reported(target, site.everywhere(), now)).collect()
    };
    let (rows, total) = report::rows(&targets, &by, period, prices.as_ref(), now);
    let mut words = vec!["savings".to_owned(), "--output=csv".to_owned()];
    words.extend(site.selection.iter().cloned());
    if request.by != "target" && !request.by.is_empty() {
        words.push(format!("--by={}", request.by));
    }
    if !request.month.is_empty() {
        words.push(format!("--month={}", request.month));
    }
    let lines = rows.iter().take(MAX_ROWS).map(|row| Line::of(row, false));
    let fragment = Fragment {
        by: if request.by.is_empty() { "target" } else { &request.by },
        month: &request.month,
        period: period.to_string(),
        currency: prices.map(|prices| prices.currency).unwrap_or_default(),
        more: rows.len().saturating_sub(MAX_ROWS),
        rows: lines.chain((rows.len() > 1).then(|| Line::of(&total, true))).collect(),
        error,
        command: site.program.line(&words),
    };
    fragment.render().map_err(|error| error.to_string())
}
