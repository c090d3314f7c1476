//! `status`: what sleeps, what is awake, what is going on.

pub(crate) mod fdb;
mod fires;
mod instances;
mod pools;
pub(crate) mod record;
mod schedule;
mod table;
mod watch;

use std::io::stdout;

use jiff::Timestamp;

use crate::{
    api::Hub,
    cli::{HubArgs, StatusArgs, StatusOutput},
    cmd::{
        power::nothing_found,
        status::{
            record::{List, Record},
            table::{Layout, Table, Width},
        },
    },
    error::{Exit, Failure, Problem},
    output,
    read::pool,
    select::{
        Target,
        parse::{Flags, Selection, parse},
        resolve::Resolver,
    },
};

/// Runs the command.
///
/// # Errors
/// When nothing can be asked at all. Failures of single targets are printed and counted.
pub(crate) async fn run(args: &StatusArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    if let Some(names) = pool::asked(&args.targets)? {
        return pools::run(&names, args, hub_args).await;
    }
    if let Some(names) = fdb::asked(&args.targets)? {
        return fdb::run(&names, args, hub_args).await;
    }
    let flags = Flags {
        selector: hub_args.selector.as_deref(),
        all: false,
        all_namespaces: hub_args.all_namespaces,
        lists: true,
    };
    let selection = parse(&args.targets, flags)?;
    let hub = Hub::connect(hub_args).await?;
    let namespace = (!hub_args.all_namespaces).then_some(hub.namespace.as_str());
    let (mut targets, mut exits) = (Vec::new(), Vec::new());
    let mut fail = |failure: &Failure| {
        exits.push(failure.problem.exit());
        output::error(&failure.to_string());
    };
    let resolver = Resolver::new(&hub, namespace);
    for found in resolver.resolve(&selection).await {
        match found {
            Ok(target) => targets.push(target),
            Err(failure) => fail(&failure),
        }
    }
    let mut records = Vec::new();
    for target in &targets {
        match Record::of(target) {
            Ok(record) if is_shown(&selection, target, &record) => records.push(record),
            Ok(_) => {}
            Err(problem) => fail(&Failure::new(target.full_name(), problem)),
        }
    }
    let printer = Printer::new(args, hub_args, &records);
    printer.all(&records);
    if records.is_empty() && exits.is_empty() && matches!(args.output, StatusOutput::Table | StatusOutput::Wide) {
        output::note(&nothing_found(namespace));
    }
    if args.watch {
        watch::follow(&hub, namespace, &resolver, &selection, &targets, &records, &printer).await?;
    }
    Ok(Exit::of(exits))
}

/// Of workloads that nobody named, only those that sleep or have slept are of interest.
fn is_shown(selection: &Selection, target: &Target, record: &Record) -> bool {
    let named = matches!(selection, Selection::Named(_));
    named || target.is_cluster() || record.replicas == Some(0) || record.recorded_replicas.is_some()
}

/// Prints records in the format that was asked for.
struct Printer {
    output: StatusOutput,
    watching: bool,
    headers: bool,
    table: Table,
}

impl Printer {
    fn new(args: &StatusArgs, hub_args: &HubArgs, records: &[Record]) -> Self {
        let scheduled = records.iter().any(|record| !schedule::shown(record, Timestamp::now()).is_empty());
        let width = match args.output {
            StatusOutput::Wide => Width::Wide,
            _ if scheduled => Width::Scheduled,
            _ => Width::Narrow,
        };
        let layout = Layout {
            namespaces: hub_args.all_namespaces,
            width,
            types: records.iter().any(|record| record.kind != records[0].kind),
            colours: output::colours(&stdout()),
        };
        Self {
            output: args.output,
            watching: args.watch,
            headers: !args.no_headers,
            table: Table::new(layout, records, Timestamp::now()),
        }
    }

    /// What is known at the start.
    fn all(&self, records: &[Record]) {
        match self.output {
            StatusOutput::Json if !self.watching => output::text(&output::json(&List::new(records))),
            StatusOutput::Yaml if !self.watching => output::text(&output::yaml(&List::new(records))),
            StatusOutput::Table | StatusOutput::Wide => {
                if self.headers && (!records.is_empty() || self.watching) {
                    output::line(&self.table.head());
                }
                self.each(records);
            }
            _ => self.each(records),
        }
    }

    fn each(&self, records: &[Record]) {
        for record in records {
            self.one(record);
        }
    }

    /// One more record.
    fn one(&self, record: &Record) {
        match self.output {
            StatusOutput::Table | StatusOutput::Wide => output::line(&self.table.line(record, Timestamp::now())),
            StatusOutput::Name => output::line(&format!("{}/{}", record.kind, record.name)),
            StatusOutput::Json => output::text(&output::json(record)),
            StatusOutput::Yaml => output::text(&format!("---\n{}", output::yaml(record))),
        }
    }
}
