//! Prints records in the format that was asked for.

use std::io::stdout;

use jiff::Timestamp;
use shared::kinds::{Column, Record, RecordList};

use super::schedule;
use super::table::{Layout, Table, Width};
use crate::cli::{HubArgs, StatusArgs, StatusOutput};
use crate::output;

/// The format, and the table if it is one.
pub(crate) struct Printer {
    output: StatusOutput,
    watching: bool,
    headers: bool,
    table: Table,
}

impl Printer {
    /// For these records at first; `of_kinds` are the columns that kinds add to the wide table.
    pub(crate) fn new(
        args: &StatusArgs,
        hub_args: &HubArgs,
        of_kinds: Vec<&'static Column>,
        records: &[Record],
    ) -> Self {
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
            colors: output::colors(&stdout()),
        };
        Self {
            output: args.output,
            watching: args.watch,
            headers: !args.no_headers,
            table: Table::new(layout, of_kinds, records, Timestamp::now()),
        }
    }

    /// What is known at the start.
    pub(crate) fn all(&self, records: &[Record]) {
        match self.output {
            StatusOutput::Json if !self.watching => output::text(&output::json(&RecordList::new(records))),
            StatusOutput::Yaml if !self.watching => output::text(&output::yaml(&RecordList::new(records))),
            StatusOutput::Table | StatusOutput::Wide => {
                if self.headers && (!records.is_empty() || self.watching) {
                    output::colored(&self.table.head());
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
    pub(crate) fn one(&self, record: &Record) {
        match self.output {
            StatusOutput::Table | StatusOutput::Wide => output::colored(&self.table.line(record, Timestamp::now())),
            StatusOutput::Name => output::line(&format!("{}/{}", record.kind, record.name)),
            StatusOutput::Json => output::text(&output::json(record)),
            StatusOutput::Yaml => output::text(&format!("---\n{}", output::yaml(record))),
        }
    }
}
