//! `status rollouts` and `status rollout/NAME`: how far a rollout is, and what its targets do.

use std::collections::BTreeMap;
use std::io::{IsTerminal, stdout};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use serde_json::Value;
use shared::target::POWER_ROLLOUT;

use super::rollout_view::{HEAD, Record, full, line};
use super::{ended, show};
use crate::api::watch::{Event, Scope};
use crate::api::{Hub, Resource, name_of};
use crate::cli::{HubArgs, StatusArgs, StatusOutput};
use crate::cmd::rollout;
use crate::error::{Exit, Failure, Problem};
use crate::output;

/// How often ages are drawn anew on a terminal.
const TICK: Duration = Duration::from_secs(10);
/// Puts the cursor into the corner and clears the terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Runs the command for rollouts.
///
/// # Errors
/// When nothing can be asked at all. Failures of single rollouts are printed and counted.
pub(crate) async fn run(names: &[String], args: &StatusArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let hub = Hub::connect(hub_args).await?;
    let labels = hub_args.selector.as_deref().unwrap_or_default();
    let observations: Vec<(String, Result<Value, Problem>)> = if names.is_empty() {
        let listed = hub.list(Resource::preferred(&POWER_ROLLOUT.kind), None, "", labels).await?.items;
        listed.into_iter().map(|object| (name_of(&object).to_owned(), Ok(object))).collect()
    } else {
        names.iter().cloned().zip(join_all(names.iter().map(|name| rollout::get(&hub, name))).await).collect()
    };
    let (mut records, mut exits) = (Vec::new(), Vec::new());
    for (name, observation) in observations {
        match observation.and_then(read) {
            Ok(record) => records.push(record),
            Err(problem) => {
                exits.push(output::failed(&Failure::new(POWER_ROLLOUT.kind.full_name(&name), problem)));
            }
        }
    }
    let printer = Printer { args, single: !names.is_empty(), screen: args.watch && stdout().is_terminal() };
    printer.all(&records);
    let exit = ended(args, records.is_empty(), exits, None);
    if args.watch && exit == Exit::Done {
        watch(&hub, names, labels, &printer, records).await?;
    }
    Ok(exit)
}

fn read(object: Value) -> Result<Record, Problem> {
    Ok(Record::new(serde_json::from_value(object).map_err(Problem::unreadable)?))
}

/// Prints every change. Returns when the output is closed, and on permanent failures.
async fn watch(
    hub: &Hub,
    names: &[String],
    labels: &str,
    printer: &Printer<'_>,
    records: Vec<Record>,
) -> Result<(), Problem> {
    let mut known: BTreeMap<String, Record> = records.into_iter().map(|record| (record.name.clone(), record)).collect();
    let scope = Scope { names, labels, tick: TICK, ..Scope::of(Resource::preferred(&POWER_ROLLOUT.kind)) };
    let mut watcher = hub.watcher(scope);
    while !output::is_unread() {
        let changed = match watcher.next().await? {
            Event::Applied(object) => {
                let record = read(object)?;
                if known.insert(record.name.clone(), record.clone()).as_ref() == Some(&record) {
                    continue;
                }
                Some(record)
            }
            Event::Deleted((_, name)) => match known.remove(&name) {
                Some(record) => Some(record.gone()),
                None => continue,
            },
            Event::Tick => None,
        };
        printer.change(&known, changed.as_ref());
    }
    Ok(())
}

struct Printer<'a> {
    args: &'a StatusArgs,
    /// Whether rollouts were named: each is shown with its targets.
    single: bool,
    /// Whether a change draws everything anew in place.
    screen: bool,
}

impl Printer<'_> {
    fn all(&self, records: &[Record]) {
        let list = || output::list("RolloutStatusList", &records.iter().map(Record::documented).collect::<Vec<_>>());
        match self.args.output {
            StatusOutput::Json if !self.args.watch => output::text(&output::json(&list())),
            StatusOutput::Yaml if !self.args.watch => output::text(&output::yaml(&list())),
            StatusOutput::Table | StatusOutput::Wide => self.tables(records.iter()),
            _ => records.iter().for_each(|record| self.one(record)),
        }
    }

    fn tables<'a>(&self, records: impl Iterator<Item = &'a Record>) {
        let now = Timestamp::now();
        let colors = output::colors(&stdout());
        if self.screen {
            output::colored(CLEAR);
        }
        if self.single {
            for (at, record) in records.enumerate() {
                if at > 0 {
                    output::line("");
                }
                show(&full(record, now, colors));
            }
            return;
        }
        let lines: Vec<Vec<String>> = records.map(|record| line(record, now)).collect();
        let head: &[&str] = if self.args.no_headers || lines.is_empty() { &[] } else { HEAD };
        show(&output::table(head, lines));
    }

    /// A change, given all rollouts as they are now. Without one only the time has passed.
    fn change(&self, known: &BTreeMap<String, Record>, changed: Option<&Record>) {
        match (self.args.output, changed) {
            (StatusOutput::Table | StatusOutput::Wide, _) if self.screen => self.tables(known.values()),
            (_, None) => {}
            (StatusOutput::Table | StatusOutput::Wide, Some(record)) if self.single => {
                output::line("");
                show(&full(record, Timestamp::now(), false));
            }
            (StatusOutput::Table | StatusOutput::Wide, Some(record)) => {
                show(&output::table(&[], [line(record, Timestamp::now())]));
            }
            (_, Some(record)) => self.one(record),
        }
    }

    fn one(&self, record: &Record) {
        match self.args.output {
            StatusOutput::Json => output::text(&output::json(&record.documented())),
            StatusOutput::Yaml => output::text(&format!("---\n{}", output::yaml(&record.documented()))),
            _ => output::line(&POWER_ROLLOUT.kind.full_name(&record.name)),
        }
    }
}
