//! `status`: what sleeps, what is awake, what is going on.

mod fdb;
mod pools;
mod printer;
mod rollout_view;
mod rollouts;
mod schedule;
mod table;
mod watch;

use jiff::Timestamp;
use shared::target::{Kinds, Record, TargetKind, View};
use shared::text::name_some;

use self::printer::Printer;
use crate::api::Hub;
use crate::cli::{HubArgs, StatusArgs, StatusOutput};
use crate::error::{Exit, Failure, Problem, UsageError};
use crate::output::{self, nothing_found};
use crate::read::companion::Beside;
use crate::select::parse::{Flags, Selection, only_shown, parse};
use crate::select::resolve::Resolver;
use crate::select::target::Target;

/// Runs the command.
///
/// # Errors
/// When nothing can be asked at all. Failures of single targets are printed and counted.
pub(crate) async fn run(kinds: Kinds, args: &StatusArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    if let Some((row, names)) = only_shown(kinds, &args.targets)? {
        if let Some(why) = row.not_watched.filter(|_| args.watch) {
            return Err(UsageError::OnlyShown(why.to_owned()).into());
        }
        return match row.view {
            View::ClusterPool => pools::run(&names, args, hub_args).await,
            View::FoundationDb => fdb::run(&names, args, hub_args).await,
            View::Rollout => rollouts::run(&names, args, hub_args).await,
        };
    }
    let flags = Flags {
        selector: hub_args.selector.as_deref(),
        all: false,
        all_namespaces: hub_args.all_namespaces,
        lists: true,
    };
    let selection = parse(kinds, &args.targets, flags)?;
    let hub = Hub::connect(hub_args).await?;
    let namespace = selection.scope(&hub, hub_args);
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
    let (mut records, mut notices): (Vec<Record>, Vec<String>) = (Vec::new(), Vec::new());
    for target in &targets {
        match target.record() {
            Ok(record) if selection.shows(target.row, &record) => {
                notices.extend(warnings(target, &record));
                records.push(record);
            }
            Ok(_) => {}
            Err(error) => fail(&Failure::new(target.full_name(), error.into())),
        }
    }
    if let Some(text) = unread(&targets) {
        output::warning(&text);
    }
    let printer = Printer::new(args, hub_args, kinds.wide_columns(&selected(&selection, &targets)), &records);
    printer.all(&records);
    if matches!(args.output, StatusOutput::Table | StatusOutput::Wide) {
        for notice in &notices {
            output::warning(notice);
        }
    }
    if records.is_empty() && exits.is_empty() && matches!(args.output, StatusOutput::Table | StatusOutput::Wide) {
        output::note(&nothing_found(selection.namespace(namespace)));
    }
    if args.watch {
        watch::follow(&hub, namespace, &resolver, &selection, &targets, &records, &printer).await?;
    }
    Ok(Exit::of(exits))
}

/// What deserves attention of a target.
fn warnings(target: &Target, record: &Record) -> Vec<String> {
    let texts = (target.row.warnings)(record, Timestamp::now());
    texts.into_iter().map(|text| format!("{}: {text}", target.full_name())).collect()
}

/// Why some targets are shown without what lies beside them: said once.
fn unread(targets: &[Target]) -> Option<String> {
    let unread = targets.iter().filter_map(|target| match &target.beside {
        Beside::Unread(why) => Some((target, why)),
        _ => None,
    });
    let why = unread.clone().next()?.1;
    Some(format!("the record of {} is not shown: {why}", name_some(unread.map(|(target, _)| target.full_name()), 1)))
}

/// The kinds whose columns are shown: those that were named, and of others those that were found.
fn selected(selection: &Selection, targets: &[Target]) -> Vec<&'static TargetKind> {
    let found = |row: &TargetKind| targets.iter().any(|target| target.row == row);
    match selection {
        Selection::Query { kinds, typed: true, .. } => kinds.clone(),
        Selection::Query { kinds, .. } => kinds.iter().copied().filter(|row| found(row)).collect(),
        Selection::Named(_) => targets.iter().map(|target| target.row).collect(),
    }
}
