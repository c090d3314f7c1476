//! `savings`: what sleep has avoided.

use std::io::{self, IsTerminal, stdout};
use std::path::Path;

use hub::HubClient;
use jiff::Timestamp;
use serde_json::json;
use shared::annotation::format;
use shared::duration::hours;
use shared::kinds::Kinds;
use shared::savings::period::Period;
use shared::savings::prices::{MAX_BYTES, Prices};
use shared::savings::report::{self, By, Reported, Row};
use view::savings::reported;
use view::target::TargetState;
use view::{Item, Listing};

use crate::cli::savings::{SavingsArgs, SavingsOutput};
use crate::cli::{HubArgs, time};
use crate::connect::connect;
use crate::error::{Exit, Problem, UsageError};
use crate::output::{self, nothing_found};
use crate::read;
use crate::select::{Flags, parse};

/// Cells of a bar.
const BAR: u64 = 10;
/// What a list price leaves out.
const NOT_SAVED: &str = "list prices of machines only: you still pay for Reserved Instances, Savings Plans, volumes, addresses and \
                         load balancers";

/// Runs the command.
///
/// # Errors
/// When nothing can be asked at all, or prices cannot be used. Failures of single objects are printed and counted.
pub(crate) async fn run(kinds: Kinds, args: &SavingsArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let flags = Flags { lists: true, ..Flags::new(hub_args, false) };
    let query = parse(kinds, &args.targets, flags)?;
    let hub = connect(hub_args)?;
    let now = time::now().timestamp();
    let Listing { items, failures, .. } = view::list(&hub, &query).await;
    let targets: Vec<&TargetState> = items.iter().filter_map(Item::target).collect();
    let names_others = query.is_typed || !query.names.is_empty();
    if let Some(other) = targets.iter().find(|target| names_others && target.record.sleep_history.is_none()) {
        return Err(UsageError::NoLedger(other.row.kind.full_name(&other.record.name)).into());
    }
    let targets: Vec<Reported> =
        targets.iter().filter_map(|target| reported(target, hub_args.all_namespaces, now)).collect();
    let failures = failures.into_iter().filter(|failure| !failure.is_unseen);
    let exits: Vec<Exit> = failures.map(|failure| output::failed(&failure.into())).collect();
    if let Some(path) = &args.check_prices {
        let checked = check(path, &targets)?;
        return Ok(Exit::of(exits.into_iter().chain((checked != Exit::Done).then_some(checked))));
    }
    let prices = prices(&hub, args.prices.as_deref()).await?;
    let period = args.month.map_or_else(|| Period::last_days(args.since, now), Period::Month);
    let (rows, total) = report::rows(&targets, &args.by, period, prices.as_ref(), now);
    let report = Report { rows, total, prices, period, now };
    match args.output {
        SavingsOutput::Table if report.rows.is_empty() && exits.is_empty() => {
            output::note(&nothing_found(query.searched(&hub)));
        }
        SavingsOutput::Table => {
            report.table(&args.by, stdout().is_terminal()).iter().for_each(|line| output::line(line));
            output::note(&report.footer());
        }
        SavingsOutput::Csv => output::text(&report.csv()),
        format => report.structured(format == SavingsOutput::Json),
    }
    Ok(Exit::of(exits))
}

/// What is printed.
struct Report {
    rows: Vec<Row>,
    total: Row,
    prices: Option<Prices>,
    period: Period,
    now: Timestamp,
}

/// The prices of a file. The second result has what is wrong with its lines.
///
/// # Errors
/// When the file cannot be read.
fn of_file(path: &Path) -> Result<Result<Prices, Vec<String>>, Problem> {
    let text = read::file(path, MAX_BYTES);
    Ok(Prices::read(&text.map_err(Problem::io(format!("read prices from {}", path.display())))?))
}

/// The prices of a file, or else of the hub; none if it has none. Prices of the hub that cannot be used are warned of.
///
/// # Errors
/// When the file cannot be read, or a line of it is wrong.
async fn prices(hub: &HubClient, file: Option<&Path>) -> Result<Option<Prices>, Problem> {
    if let Some(path) = file {
        let prices = of_file(path)?.map_err(|errors| io::Error::new(io::ErrorKind::InvalidData, errors.join("; ")));
        return Ok(Some(prices.map_err(Problem::io(format!("use prices of {}", path.display())))?));
    }
    Ok(view::savings::prices(hub).await.unwrap_or_else(|why| {
        output::warning(&why);
        None
    }))
}

/// Names what is wrong with a file, and the machines of these targets that it has no price for.
fn check(path: &Path, targets: &[Reported]) -> Result<Exit, Problem> {
    let prices = match of_file(path)? {
        Ok(prices) => prices,
        Err(errors) => {
            for error in errors {
                output::error(&format!("{}: {error}", path.display()));
            }
            return Ok(Exit::Error);
        }
    };
    output::line(&format!("{}: {} prices in {}", path.display(), prices.count(), prices.currency));
    let unpriced = report::unpriced(targets, &prices);
    for ((kind, region), machines) in &unpriced {
        let region = if region.is_empty() { "any region" } else { region };
        output::error(&format!("no price of {kind} in {region}: {machines} machines"));
    }
    Ok(if unpriced.is_empty() { Exit::Done } else { Exit::Error })
}

impl Report {
    fn table(&self, by: &By, has_bar: bool) -> Vec<String> {
        type Cell = fn(&Row) -> String;
        let (name, of_clusters) = match by {
            By::Target => ("NAME", true),
            By::Namespace => ("NAMESPACE", true),
            By::Label(_) => ("LABEL", true),
            By::Platform => ("PLATFORM", true),
            By::Type => ("TYPE", false),
        };
        let columns: [(&str, bool, Cell); 11] = [
            (name, true, |row| row.name.clone()),
            ("TARGETS", *by != By::Target && of_clusters, |row| row.targets.to_string()),
            ("ASLEEP", of_clusters, |row| hours(row.asleep_seconds)),
            ("SHARE", of_clusters, |row| percent(row.share())),
            ("", has_bar && of_clusters, bar),
            ("UNKNOWN", of_clusters, |row| hours(row.unknown_seconds)),
            ("MACHINE-HOURS", true, |row| hours(row.machines())),
            ("AVOIDED", self.prices.is_some(), |row| row.avoided_list_cost.clone().unwrap_or_default()),
            ("PRICED", self.prices.is_some(), |row| percent(row.priced())),
            ("COULD-SLEEP", of_clusters, could_sleep),
            ("NOTES", *by == By::Target, |row| row.notes.join(", ")),
        ];
        let shown: Vec<_> = columns.into_iter().filter(|(_, is_shown, _)| *is_shown).collect();
        let total = (self.rows.len() > 1).then_some(&self.total);
        let rows = self.rows.iter().chain(total).map(|row| shown.iter().map(|(_, _, cell)| cell(row)).collect());
        let head: Vec<&str> = shown.iter().map(|(head, _, _)| *head).collect();
        output::table(&head, rows)
    }

    fn footer(&self) -> String {
        let currency = self.prices.as_ref().map(|prices| format!(", amounts in {}", prices.currency));
        format!("{}{}; {NOT_SAVED}", self.period, currency.unwrap_or_default())
    }

    fn structured(&self, is_json: bool) {
        let (from, to) = self.period.span(self.now);
        let mut list = output::list("SavingsList", &self.rows);
        let currency = self.prices.as_ref().map(|prices| &prices.currency);
        for (key, value) in [
            ("from", json!(format::seconds(from))),
            ("to", json!(format::seconds(to))),
            ("currency", json!(currency)),
            ("total", json!(self.total)),
        ] {
            list[key] = value;
        }
        output::structured(&view::known(list), is_json);
    }

    /// One line per row and instance type. FOCUS names the columns; those of this program begin with `x_`.
    fn csv(&self) -> String {
        let (from, to) = self.period.span(self.now);
        let currency = self.prices.as_ref().map_or("", |prices| &prices.currency);
        let mut writer = csv::Writer::from_writer(Vec::new());
        // A vector takes every byte.
        drop(writer.write_record([
            "ChargePeriodStart",
            "ChargePeriodEnd",
            "ResourceId",
            "ResourceName",
            "ProviderName",
            "RegionId",
            "PricingCurrency",
            "x_Namespace",
            "x_Targets",
            "x_AsleepSeconds",
            "x_UnknownSeconds",
            "x_InstanceType",
            "x_MachineSeconds",
            "x_AvoidedListCost",
        ]));
        for row in &self.rows {
            let cost = |kind: &String| row.amounts.get(kind).map(ToString::to_string).unwrap_or_default();
            let types = row.machine_seconds.iter().map(|(kind, seconds)| (kind.as_str(), *seconds, cost(kind)));
            // A row whose machines are not known has one line all the same.
            let none = row.machine_seconds.is_empty().then(|| ("", 0, String::new()));
            for (kind, seconds, cost) in types.chain(none) {
                drop(writer.write_record([
                    &format::seconds(from),
                    &format::seconds(to),
                    &literal(&row.resource),
                    &literal(&row.name),
                    &literal(&row.platform),
                    &literal(&row.region),
                    currency,
                    &literal(&row.namespace),
                    &row.targets.to_string(),
                    &row.asleep_seconds.to_string(),
                    &row.unknown_seconds.to_string(),
                    &literal(kind),
                    &seconds.to_string(),
                    &cost,
                ]));
            }
        }
        String::from_utf8_lossy(&writer.into_inner().unwrap_or_default()).into_owned()
    }
}

fn percent(share: Option<u64>) -> String {
    share.map(|share| format!("{share}%")).unwrap_or_default()
}

fn bar(row: &Row) -> String {
    let filled = row.share().unwrap_or_default() * BAR / 100;
    (0..BAR).map(|at| if at < filled { '█' } else { '░' }).collect()
}

fn could_sleep(row: &Row) -> String {
    if row.could_sleep_seconds > 0 { hours(row.could_sleep_seconds) } else { String::new() }
}

/// A sanitized cell. A spreadsheet takes some texts for formulas.
fn literal(text: &str) -> String {
    let text = output::one_line(text);
    if text.len() > 1 && text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use shared::savings::history::SleepHistory;
    use shared::savings::ledger::{Ledger, MachineGroup, Sleep};

    use super::*;

    const UID: &str = "0b6f2c1e-3f53-4a51-8d6b-0d3f7a1c9e55";
    const PRICES: &str = "InstanceType,Region,AssetClass,MarketPriceHourly\n\
                          m6i.xlarge,us-east-1,node,0.192\nr6i.xlarge,us-east-1,node,0.192\n";

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// A week from Monday to Monday: one cluster sleeps in its nights and its weekend.
    fn report() -> Report {
        let mut ledger = Ledger::new(UID);
        for (from, to) in
            [("02T00", "02T08"), ("02T18", "03T08"), ("03T18", "04T08"), ("04T18", "05T08"), ("05T18", "06T08")]
                .into_iter()
                .chain([("06T18", "09T00")])
        {
            let span = (at(&format!("2026-11-{from}:00:00Z")), at(&format!("2026-11-{to}:00:00Z")));
            let group = |kind: &str| MachineGroup { kind: kind.to_owned(), count: 3, asleep: span };
            ledger.end_sleep(&Sleep { span, asleep: span, machines: vec![group("m6i.xlarge"), group("r6i.xlarge")] });
        }
        let history = |ledger| SleepHistory {
            platform: "aws".to_owned(),
            region: "us-east-1".to_owned(),
            resource: "dev-x7k2p".to_owned(),
            created: at("2026-11-02T00:00:00Z"),
            ledger,
            ..SleepHistory::default()
        };
        let target = |namespace: &str, name: &str, ledger, schedule: Option<&str>| Reported {
            key: (String::new(), namespace.to_owned(), name.to_owned()),
            name: format!("{namespace}/{name}"),
            history: history(ledger),
            schedule: schedule.map(str::to_owned),
            ..Reported::default()
        };
        let all = [target("team", "dev", ledger, Some("nights")), target("prod", "shop", Ledger::default(), None)];
        let (now, period) = (at("2026-11-09T00:00:00Z"), Period::Month("2026-11".parse().unwrap()));
        let prices = Prices::read(PRICES).unwrap();
        let (rows, total) = report::rows(&all, &By::Target, period, Some(&prices), now);
        Report { rows, total, prices: Some(prices), period, now }
    }

    #[test]
    fn the_example_of_the_docs_is_what_the_program_prints() {
        let docs = include_str!("../../../docs/savings.md");
        let shown: Vec<&str> = docs.split("```").nth(1).unwrap().lines().skip(2).collect();
        assert_eq!(report().table(&By::Target, false), shown);
        let text = "118 hours: 708 machine hours, 135.94 USD at list prices, 70 % of the week.";
        assert!(docs.replace('\n', " ").contains(text));
    }

    #[test]
    fn a_terminal_gets_bars_and_a_bill_gets_a_line_per_type() {
        let lines = report().table(&By::Target, true);
        assert!(lines[2].contains("118h     70%     ███████░░░"), "{lines:#?}");
        let text = report().csv();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert_eq!(
            lines[2],
            "2026-11-01T00:00:00Z,2026-11-09T00:00:00Z,dev-x7k2p,team/dev,aws,us-east-1,USD,team,1,424800,0,m6i.xlarge,1274400,67.97"
        );
        assert_eq!((literal("=cmd\u{1b}[2J"), literal("-")), ("'=cmd [2J".to_owned(), "-".to_owned()));
    }
}
