//! `status`: what sleeps, what is awake, what is going on.

mod fdb;
mod follow;
mod pools;
mod printer;
mod rollouts;
mod schedule;
mod table;
mod upgrades;
mod watch;

use futures::future::join_all;
use hub::error::HubError;
use hub::{HubClient, Resource, name_of};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use shared::kinds::{Kind, Kinds, Record, Shows, TargetKind};
use shared::text::name_some;

use self::printer::Printer;
use crate::cli::{HubArgs, StatusArgs, StatusOutput};
use crate::connect::connect;
use crate::error::{Exit, Failure, Problem, ResolveError, UsageError};
use crate::output::{self, nothing_found};
use crate::read::companion::Beside;
use crate::read::untouched;
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
        if hub_args.all_namespaces && !names.is_empty() && row.kind.is_namespaced() {
            return Err(UsageError::NameInAllNamespaces.into());
        }
        return match row.shows {
            Shows::ClusterPool => pools::run(&names, args, hub_args).await,
            Shows::FoundationDb => fdb::run(&names, args, hub_args).await,
            Shows::Rollout => rollouts::run(&names, args, hub_args).await,
            Shows::Upgrade => upgrades::run(&names, args, hub_args).await,
        };
    }
    let selection = parse(kinds, &args.targets, Flags { lists: true, ..Flags::new(hub_args, false) })?;
    let hub = connect(hub_args)?;
    let namespace = selection.scope(&hub, hub_args);
    let (mut targets, mut exits) = (Vec::new(), Vec::new());
    let resolver = Resolver::new(&hub, namespace);
    for found in resolver.resolve(&selection).await {
        match found {
            Ok(target) => targets.push(target),
            Err(failure) => exits.push(output::failed(&failure)),
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
            Err(error) => exits.push(output::failed(&Failure::new(target.full_name(), error.into()))),
        }
    }
    if let Some(text) = unread(&targets) {
        output::warning(&text);
    }
    let printer = Printer::new(args, hub_args, kinds.wide_columns(&selected(&selection, &targets)), &records);
    printer.all(&records);
    if args.output.is_table() {
        for notice in &notices {
            output::warning(notice);
        }
        if let Some(name) = selection.whole().filter(|_| records.iter().any(|record| record.desired == "Hibernating")) {
            untouched::note(&hub, name).await;
        }
    }
    let exit = ended(args, records.is_empty(), exits, selection.namespace(namespace));
    if args.watch {
        watch::follow(&hub, namespace, &resolver, &selection, &targets, &records, &printer).await?;
    }
    Ok(exit)
}

/// The exit code. A person reads that there is nothing.
fn ended(args: &StatusArgs, is_empty: bool, exits: Vec<Exit>, namespace: Option<&str>) -> Exit {
    if is_empty && exits.is_empty() && args.output.is_table() {
        output::note(&nothing_found(namespace));
    }
    Exit::of(exits)
}

/// The objects of a kind that is only shown: those that were named, or all. Those that cannot be read are printed and
/// counted.
async fn objects(
    hub: &HubClient,
    kind: &'static Kind,
    names: &[String],
    hub_args: &HubArgs,
) -> Result<(Vec<Value>, Vec<Exit>), Problem> {
    let (mut objects, mut exits) = (Vec::new(), Vec::new());
    for (name, found) in found(hub, kind, names, hub_args).await? {
        match found {
            Ok(object) => objects.push(object),
            Err(problem) => exits.push(output::failed(&Failure::new(kind.full_name(&name), problem))),
        }
    }
    Ok((objects, exits))
}

/// The same, each with its name.
async fn found(
    hub: &HubClient,
    kind: &'static Kind,
    names: &[String],
    hub_args: &HubArgs,
) -> Result<Vec<(String, Result<Value, Problem>)>, Problem> {
    let resource = Resource::preferred(kind);
    if names.is_empty() {
        let labels = hub_args.selector.as_deref().unwrap_or_default();
        let listed = hub.list(resource, searched(hub, hub_args), "", labels).await?.items;
        return Ok(listed.into_iter().map(|object| (name_of(&object).to_owned(), Ok(object))).collect());
    }
    let found = join_all(names.iter().map(|name| hub.get(resource, &hub.namespace, name))).await;
    let missing = |name: &String, error| missing(error, kind.full_name(name), hub);
    Ok(names
        .iter()
        .zip(found)
        .map(|(name, found)| (name.clone(), found.map_err(|error| missing(name, error))))
        .collect())
}

/// The namespace to search, none for all.
fn searched<'a>(hub: &'a HubClient, hub_args: &HubArgs) -> Option<&'a str> {
    (!hub_args.all_namespaces).then_some(hub.namespace.as_str())
}

/// One that is not there is said not to be in its namespace, as any target.
fn missing(error: HubError, what: String, hub: &HubClient) -> Problem {
    match error {
        HubError::NoObject { .. } => {
            ResolveError::NotFound { what, namespace: Some(hub.namespace.clone()), hint: String::new() }.into()
        }
        error => error.into(),
    }
}

/// Prints lines whose parts are sanitized already.
fn show(lines: &[String]) {
    for line in lines {
        output::colored(line);
    }
}

/// Prints a list in a format for scripts. Returns whether a table is to be printed instead.
fn is_table<T: Serialize>(args: &StatusArgs, list: &str, kind: &Kind, records: &[T], name: fn(&T) -> &str) -> bool {
    match args.output {
        StatusOutput::Json => output::text(&output::json(&output::list(list, &records))),
        StatusOutput::Yaml => output::text(&output::yaml(&output::list(list, &records))),
        StatusOutput::Name => records.iter().for_each(|record| output::line(&kind.full_name(name(record)))),
        StatusOutput::Table | StatusOutput::Wide => return true,
    }
    false
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
