//! The list of targets: filtered, sorted, in pages, and as it changes.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use askama::Template;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use shared::kinds::{Column, Record, row};
use shared::text::sanitize;
use view::columns::{self, Tone, tone};
use view::target::TargetState;

use crate::cache::{Objects, id};

/// Rows of a page.
pub const PAGE: usize = 200;
/// Values that a filter offers.
const MAX_OPTIONS: usize = 500;
/// Longest filter, in bytes.
const MAX_FILTER: usize = 256;

/// The columns. The first one is the row's header.
static COLUMNS: [&Column; 12] = [
    &columns::NAME,
    &columns::TYPE,
    &columns::NAMESPACE,
    &columns::FIRST[1],
    &columns::FIRST[2],
    &columns::STEP,
    &columns::FIRST[3],
    &columns::FIRST[4],
    &columns::TIMES[0],
    &columns::TIMES[1],
    &columns::TIMES[2],
    &row::ASLEEP,
];

/// What a tab shows.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Filter {
    /// A part of the name, the type, the namespace, a reason or a person.
    text: String,
    /// The observed state.
    state: String,
    namespace: String,
    /// `KEY` or `KEY=VALUE`.
    label: String,
    /// The header of the column to sort by.
    sort: String,
    descending: bool,
    /// From 0 on.
    page: usize,
}

/// A cell: its text, of a moment the moment, and whether it is the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    #[serde(skip)]
    is_state: bool,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    id: String,
    /// `failed`, `awake`, `asleep`, `moving`, or nothing.
    tone: &'static str,
    cells: Vec<Cell>,
}

/// The fragment.
#[derive(Template)]
#[template(path = "fleet.html")]
struct Fragment<'a> {
    filter: &'a Filter,
    states: Vec<String>,
    namespaces: Vec<String>,
    heads: Vec<Head>,
    rows: Vec<Row>,
    first: usize,
    last: usize,
    total: usize,
    all: usize,
    page: usize,
    pages: usize,
    revision: u64,
    is_listed: bool,
    read_only: bool,
}

struct Head {
    text: &'static str,
    /// Of `aria-sort`.
    order: &'static str,
}

impl Row {
    /// The row of a target.
    pub fn of(target: &TargetState, now: Timestamp) -> Self {
        let record = &target.record;
        let cell = |column: &&Column| Cell {
            text: sanitize(&(column.cell)(record, now)),
            at: record.since.filter(|_| column.header == columns::SINCE).map(|at| at.to_string()),
            is_state: column.header == columns::STATE,
        };
        let tone = match tone(record) {
            Some(Tone::Failed) => "failed",
            Some(Tone::Awake) => "awake",
            Some(Tone::Asleep) => "asleep",
            Some(Tone::Moving) => "moving",
            None => "",
        };
        Self { id: id(&record.key()), tone, cells: COLUMNS.iter().map(cell).collect() }
    }

    /// The row of an object that does not exist any more.
    pub fn gone(id: &str) -> Self {
        Self { id: id.to_owned(), tone: "gone", cells: Vec::new() }
    }
}

impl Filter {
    fn matches(&self, target: &TargetState, text: &str) -> bool {
        let record = &target.record;
        let is = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        let label = match self.label.split_once('=') {
            _ if self.label.is_empty() => true,
            Some((key, value)) => target.labels.get(key).is_some_and(|found| found == value),
            None => target.labels.contains_key(&self.label),
        };
        label && is(&self.state, &record.observed) && is(&self.namespace, &record.namespace) && contains(record, text)
    }

    /// What the list is sorted by: numbers by their value, and what changed last first.
    fn key(&self, target: &TargetState, now: Timestamp) -> (i64, String) {
        let record = &target.record;
        match COLUMNS.iter().find(|column| column.header == self.sort) {
            None => (0, String::new()),
            Some(column) if column.header == columns::SINCE => {
                (record.since.map_or(i64::MAX, |since| -since.as_second()), String::new())
            }
            Some(column) => (0, natural(&(column.cell)(record, now))),
        }
    }

    /// The fragment of this page.
    ///
    /// # Errors
    /// When a filter is too long.
    pub fn html(&self, objects: &Objects, read_only: bool, now: Timestamp) -> Result<String, String> {
        if let Some(long) = [&self.text, &self.label].into_iter().find(|text| text.len() > MAX_FILTER) {
            return Err(format!("found a filter of {} bytes, must be at most {MAX_FILTER}", long.len()));
        }
        let text = self.text.to_lowercase();
        let mut found: Vec<&TargetState> = objects.targets().filter(|target| self.matches(target, &text)).collect();
        if !self.sort.is_empty() {
            found.sort_by_cached_key(|target| self.key(target, now));
        }
        if self.descending {
            found.reverse();
        }
        let pages = found.len().div_ceil(PAGE).max(1);
        let page = self.page.min(pages - 1);
        let first = page * PAGE;
        let rows: Vec<Row> = found.iter().skip(first).take(PAGE).map(|target| Row::of(target, now)).collect();
        let head = |column: &&Column| Head {
            text: column.header,
            order: match (column.header == self.sort, self.descending) {
                (false, _) => "none",
                (true, false) => "ascending",
                (true, true) => "descending",
            },
        };
        let fragment = Fragment {
            filter: self,
            states: values(objects, &self.state, |record| &record.observed),
            namespaces: values(objects, &self.namespace, |record| &record.namespace),
            heads: COLUMNS.iter().map(head).collect(),
            last: first + rows.len(),
            first,
            rows,
            total: found.len(),
            all: objects.targets().count(),
            page,
            pages,
            revision: objects.revision,
            is_listed: objects.is_listed,
            read_only,
        };
        fragment.render().map_err(|error| error.to_string())
    }
}

/// The different values of a field and the chosen one, sorted.
fn values(objects: &Objects, chosen: &str, field: impl Fn(&Record) -> &String) -> Vec<String> {
    let mut all: BTreeSet<&str> = objects.targets().map(|target| field(&target.record).as_str()).collect();
    all.insert(chosen);
    all.into_iter().filter(|text| !text.is_empty()).take(MAX_OPTIONS).map(sanitize).collect()
}

/// Whether a part of the record has this text, which is in lower case.
fn contains(record: &Record, text: &str) -> bool {
    let others = [&record.reason, &record.requested_by].into_iter().flatten();
    let mut all = [&record.name, &record.namespace, &record.kind].into_iter().chain(others);
    text.is_empty() || all.any(|one| one.to_lowercase().contains(text))
}

/// A text whose numbers have leading zeros, so that `20h` comes before `100h`.
fn natural(text: &str) -> String {
    let (mut sorted, mut digits) = (String::new(), String::new());
    for c in text.chars().chain(['\0']) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        if !digits.is_empty() {
            let _ = write!(sorted, "{digits:0>12}");
            digits.clear();
        }
        sorted.push(c);
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_sorted_by_their_value() {
        let mut all = ["100h (9%)", "20h (10%)", "", "20h (9%)"];
        all.sort_by_key(|text| natural(text));
        assert_eq!(all, ["", "20h (9%)", "20h (10%)", "100h (9%)"]);
    }
}
