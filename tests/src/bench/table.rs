//! The table of results.

use anyhow::{Context as _, Result, bail};
use serde_json::json;

/// The scenarios that the command line names, all of them if it names none.
///
/// # Errors
/// When it names one that there is not.
pub fn asked<'a>(scenarios: &[&'a str]) -> Result<Vec<&'a str>> {
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    if let Some(unknown) = asked.iter().find(|name| !scenarios.contains(&name.as_str())) {
        bail!("no scenario {unknown}: there are {}", scenarios.join(", "));
    }
    Ok(scenarios.iter().copied().filter(|name| asked.is_empty() || asked.iter().any(|asked| asked == name)).collect())
}

/// Rows in the order in which they were measured.
pub struct Table {
    peer: &'static str,
    rows: Vec<Row>,
}

impl Default for Table {
    fn default() -> Self {
        Self::against("Hive")
    }
}

struct Row {
    scenario: String,
    what: &'static str,
    hive: Option<f64>,
    limit: Option<f64>,
    ours: Vec<f64>,
}

impl Table {
    /// Compares with this program.
    pub const fn against(peer: &'static str) -> Self {
        Self { peer, rows: Vec::new() }
    }

    /// Adds a figure; a second one of the same row is its second run.
    pub fn add(&mut self, scenario: &str, what: &'static str, hive: Option<f64>, limit: Option<f64>, ours: f64) {
        match self.rows.iter_mut().find(|row| row.scenario == scenario && row.what == what) {
            Some(row) => row.ours.push(ours),
            None => self.rows.push(Row { scenario: scenario.to_owned(), what, hive, limit, ours: vec![ours] }),
        }
    }

    /// Prints everything so far.
    pub fn print(&self) {
        println!("\n{:<13} {:<44} {:>9} {:>9}   ours (each run)", "scenario", "figure", self.peer, "at most");
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
        for Row { scenario, what, hive, limit, ours } in &self.rows {
            let runs = ours.iter().map(|value| format!("{value:.1}")).collect::<Vec<_>>().join(", ");
            let worst = ours.iter().copied().fold(f64::MIN, f64::max);
            let missed = if limit.is_some_and(|limit| worst > limit) { "   MISSED" } else { "" };
            println!("{scenario:<13} {what:<44} {:>9} {:>9}   {runs}{missed}", number(*hive), number(*limit));
        }
    }

    /// Writes everything as JSON, if that was asked for.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self) -> Result<()> {
        let Some(path) = std::env::var_os("HIBERNATE_BENCH_JSON") else { return Ok(()) };
        let row = |row: &Row| json!({"scenario": row.scenario, "figure": row.what, "hive": row.hive, "limit": row.limit, "ours": row.ours});
        let rows: Vec<_> = self.rows.iter().map(row).collect();
        let text = serde_json::to_string_pretty(&rows)?;
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }
}
