//! `kinds`: what can be put to sleep and what is written for that, and whether the rows of a file fit a hub.

use std::path::Path;

use hub::error::HubError;
use hub::{HubClient, Resource};
use serde::Serialize;
use shared::kinds::row::{Reader, TargetKind};
use shared::kinds::{Kind, Kinds, schema};

use crate::cli::{HubArgs, KindsArgs, ReportOutput};
use crate::connect::connect;
use crate::error::{Exit, Problem};
use crate::output;
use crate::read::{DEFINITIONS, kinds_file};

/// A row of the table, as `-o json` documents it.
#[derive(Debug, Serialize)]
struct KindRow {
    /// `deployments.apps`.
    resource: String,
    /// Other words for it.
    names: Vec<&'static str>,
    /// What a sleep writes.
    writes: Vec<String>,
    /// Whether `ns/NAME` takes it.
    in_namespace: bool,
    /// In which order, 1 to 5.
    stage: u8,
    /// The user's file; none for the kinds of this program.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

/// Runs the command. `own`: the kinds of this program, `kinds`: those and the ones of the user's file.
///
/// # Errors
/// When a file cannot be read, or the hub does not answer.
pub(crate) async fn run(
    own: Kinds,
    (kinds, file): (Kinds, Option<&Path>),
    args: &KindsArgs,
    hub: &HubArgs,
) -> Result<Exit, Problem> {
    if let Some(path) = &args.check {
        let (checked, _) = kinds_file::extend(own, Some(path))?;
        return check(&connect(hub)?, &checked.targets[own.targets.len()..]).await;
    }
    let rows: Vec<KindRow> = kinds
        .targets
        .iter()
        .enumerate()
        .map(|(at, kind)| {
            let file = file.filter(|_| at >= own.targets.len());
            KindRow::new(kind, file.map(|path| path.display().to_string()))
        })
        .collect();
    match args.output {
        ReportOutput::Table => table(rows),
        format => output::structured(&output::list("KindList", &rows), format == ReportOutput::Json),
    }
    Ok(Exit::Done)
}

impl KindRow {
    fn new(row: &TargetKind, file: Option<String>) -> Self {
        let Kind { short, aliases, .. } = row.kind;
        let writes = match row.reader {
            Reader::Row(sleep) => sleep.switches.iter().map(ToString::to_string).collect(),
            Reader::Code(_) => vec![row.writes.to_owned()],
        };
        let names = short.iter().chain(aliases).copied().collect();
        Self {
            resource: row.kind.resource_name(),
            names,
            writes,
            in_namespace: row.in_namespace,
            stage: row.stage,
            file,
        }
    }
}

fn table(rows: Vec<KindRow>) {
    let rows = rows.into_iter().map(|row| {
        let stage = if row.in_namespace { row.stage.to_string() } else { String::new() };
        let from = row.file.unwrap_or_else(|| "built in".to_owned());
        vec![row.resource, row.names.join(","), row.writes.join(", "), stage, from]
    });
    let lines = output::table(&["RESOURCE", "NAMES", "A SLEEP WRITES", "STAGE IN NS", "FROM"], rows);
    for line in &lines {
        output::line(line);
    }
}

/// Prints for each row whether the hub's definition has what it reads and writes.
async fn check(hub: &HubClient, rows: &[&TargetKind]) -> Result<Exit, Problem> {
    let mut exit = Exit::Done;
    for row in rows {
        let name = row.kind.resource_name();
        let misfits = match hub.get(Resource::preferred(&DEFINITIONS), "", &name).await {
            Ok(definition) => schema::misfits(row, &definition),
            Err(HubError::NoObject { .. }) => vec!["the hub has no such definition".to_owned()],
            Err(error) => return Err(error.into()),
        };
        if misfits.is_empty() {
            output::line(&format!("{name} fits"));
        }
        for text in misfits {
            output::error(&format!("{name}: {text}"));
            exit = Exit::Error;
        }
    }
    Ok(exit)
}
