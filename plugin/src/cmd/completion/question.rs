//! What is being completed, by clap's definition of the command line.

use std::collections::BTreeSet;

use clap::{Arg, ArgAction, Command, ValueHint};
use shared::kinds::{CLUSTER_SCHEDULE, FOUNDATIONDB_CLUSTER, Kind, Kinds, POWER_ROLLOUT, SCHEDULE};
use shared::schedule::zone;
use view::resolve::NAMESPACE;

use crate::cli::COMMANDS;
use crate::cli::argv::{Reader, Word};

/// What is being completed.
#[derive(Debug)]
pub(super) enum Question {
    /// One of these words, if there are any.
    Words(Vec<String>),
    /// A file.
    File,
    /// A context of the kubeconfig.
    Context,
    /// The name of an object of this kind, with this text before it.
    Name(&'static Kind, String),
    /// The name of a schedule of either kind.
    Schedule,
    /// A suspended process group.
    Group,
    /// A target, or one of these commands.
    Target(Vec<String>),
}

const NOTHING: Question = Question::Words(Vec::new());

/// What `last` can become behind the words `before`, and the part of it that is completed: the `w` of `--output=w`.
pub(super) fn question<'t>(kinds: Kinds, root: &Command, before: &[String], last: &'t str) -> (Question, &'t str) {
    let mut reader = Reader::new(root);
    let words = before.iter().map(String::as_str);
    let names: Vec<&str> = words.filter(|word| matches!(reader.read(word), Word::Name)).collect();
    if let Some((flag, value)) = last.split_once('=').filter(|_| last.starts_with('-')) {
        reader.read(flag);
        return (reader.open.map_or(NOTHING, |arg| value_of(kinds, arg, &names, value)), value);
    }
    let command = reader.command;
    let positional = || {
        let repeats = |arg: &&Arg| matches!(arg.get_action(), ArgAction::Append);
        let mut rest = command.get_positionals().skip(names.len());
        rest.next().or_else(|| command.get_positionals().last().filter(repeats))
    };
    let question = match reader.open.filter(|arg| !arg.is_require_equals_set()) {
        Some(arg) => value_of(kinds, arg, &names, last),
        None if last.starts_with('-') => Question::Words(flags(&reader)),
        None if command.is_subcommand_required_set() => {
            Question::Words(command.get_subcommands().map(|command| command.get_name().to_owned()).collect())
        }
        None => match positional().map_or(NOTHING, |arg| value_of(kinds, arg, &names, last)) {
            Question::Target(_) if names.is_empty() && command.has_subcommands() => Question::Target(COMMANDS.to_vec()),
            question => question,
        },
    };
    (question, last)
}

/// What a flag or a positional can be.
fn value_of(kinds: Kinds, arg: &Arg, names: &[&str], last: &str) -> Question {
    match arg.get_id().as_str() {
        "context" => Question::Context,
        "namespace" | "calendar_namespace" => Question::Name(&NAMESPACE, String::new()),
        "fdb_cluster" => Question::Name(&FOUNDATIONDB_CLUSTER.kind, String::new()),
        "groups" => Question::Group,
        "name" => named(&[&POWER_ROLLOUT.kind], last),
        "schedule" if last.contains('/') => named(&[&SCHEDULE.kind, &CLUSTER_SCHEDULE.kind], last),
        "schedule" => Question::Schedule,
        "zone" => Question::Words(zone::names().map(str::to_owned).collect()),
        "targets" => target(kinds, names, last),
        _ if arg.get_value_hint() == ValueHint::AnyPath => Question::File,
        _ => {
            let values = arg.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
            Question::Words(values.map(|value| value.get_name().to_owned()).collect())
        }
    }
}

/// A name of the first of these kinds, or of the one that stands before it.
fn named(kinds: &[&'static Kind], last: &str) -> Question {
    let Some((word, _)) = last.split_once('/') else {
        return kinds.first().map_or(NOTHING, |kind| Question::Name(kind, String::new()));
    };
    let kind = kinds.iter().find(|kind| kind.is_named(word));
    kind.map_or(NOTHING, |kind| Question::Name(kind, format!("{word}/")))
}

/// `deploy/web`, `deploy web`: behind a type are names of it.
fn target(kinds: Kinds, names: &[&str], last: &str) -> Question {
    if let Some((word, _)) = last.split_once('/') {
        return kind_named(kinds, word).map_or(NOTHING, |kind| Question::Name(kind, format!("{word}/")));
    }
    let kind = names.last().and_then(|word| kind_named(kinds, word));
    kind.map_or(Question::Target(Vec::new()), |kind| Question::Name(kind, String::new()))
}

/// The kind that a word names. Names are completed for kinds that are only shown too.
fn kind_named(kinds: Kinds, word: &str) -> Option<&'static Kind> {
    let target = kinds.named(word).first().map(|row| &row.kind);
    let shown = || kinds.shown_named(word).map(|row| &row.kind);
    target.or_else(shown).or_else(|| NAMESPACE.is_named(word).then_some(&NAMESPACE))
}

fn flags(reader: &Reader<'_>) -> Vec<String> {
    let shown = reader.arguments().filter(|arg| !arg.is_hide_set());
    let flags: BTreeSet<String> = shown.filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect();
    flags.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use shared::kinds::KINDS;

    use super::*;
    use crate::cli::Cli;

    fn question_of(line: &str) -> (String, String) {
        let mut words: Vec<String> = line.split(' ').map(Into::into).collect();
        let last = words.pop().unwrap();
        let (question, part) = question(KINDS, &Cli::command(), &words, &last);
        let question = match question {
            Question::Words(words) if words.len() > 9 => "flags".to_owned(),
            Question::Words(words) => words.join(" "),
            Question::File => "file".to_owned(),
            Question::Context => "context".to_owned(),
            Question::Name(kind, _) => kind.kind.to_owned(),
            Question::Group => "group".to_owned(),
            Question::Schedule => "schedule".to_owned(),
            Question::Target(commands) if commands.is_empty() => "target".to_owned(),
            Question::Target(_) => "target or command".to_owned(),
        };
        (question, part.to_owned())
    }

    #[test]
    fn it_is_clear_what_is_being_completed() {
        for (line, expected) in [
            ("", "target or command"),
            ("de", "target or command"),
            ("resume ", "target"),
            ("deploy/w", "Deployment"),
            ("cj/r", "CronJob"),
            ("ns/s", "Namespace"),
            ("resume ns ", "Namespace"),
            ("deploy web ", "target"),
            ("deploy ", "Deployment"),
            ("demo -n ", "Namespace"),
            ("demo -An ", "Namespace"),
            ("demo --context x", "context"),
            ("status -o ", "table wide json yaml name"),
            ("status -n shop -o ", "table wide json yaml name"),
            ("plan -o ", "table json yaml"),
            ("version -o ", "json yaml"),
            ("demo -o ", "name json yaml"),
            ("resume status -o ", "name json yaml"),
            ("demo --dry-run ", "target"),
            ("demo --dry-run deploy ", "Deployment"),
            ("-n ", "Namespace"),
            ("--context ", "context"),
            ("-n shop ", "target or command"),
            ("-n shop deploy/", "Deployment"),
            ("deploy -n shop ", "Deployment"),
            ("deploy -A ", "Deployment"),
            ("deploy -n=shop ", "Deployment"),
            ("resume deploy --reason sts ", "Deployment"),
            ("-n deploy ", "target or command"),
            ("demo --reason -n ", "target"),
            ("-n shop recover ", "process-groups"),
            ("recover -n shop process-groups ", "group"),
            ("demo --reason ", ""),
            ("demo --kubeconfig ", "file"),
            ("demo --client-key ", "file"),
            ("demo --cache-dir ", "file"),
            ("demo --password deploy ", "target"),
            ("deploy --profile cpu ", "Deployment"),
            ("demo --wa", "flags"),
            ("pod/x", ""),
            ("recover ", "process-groups"),
            ("recover process-groups ", "group"),
            ("recover process-groups --wait ", "group"),
            ("recover process-groups -c ", "FoundationDBCluster"),
            ("recover process-groups --fdb-cluster=sample storage-1 ", "group"),
            ("recover process-groups --include ", "auto never"),
            ("recover process-groups --al", "flags"),
            ("status fdb/s", "FoundationDBCluster"),
            ("rollout ", "pause resume accept retry abort undo"),
            ("rollout pause ", "PowerRollout"),
            ("rollout -n shop undo ", "PowerRollout"),
            ("rollout undo pr/n", "PowerRollout"),
            ("rollout undo cd/n", ""),
            ("rollout undo night ", ""),
            ("rollout undo --wa", "flags"),
            ("status rollout/n", "PowerRollout"),
            ("status rollouts ", "PowerRollout"),
            ("demo --canary ", ""),
            ("schedule ", "create next explain skip apply suspend resume"),
            ("schedule create ", ""),
            ("schedule create night ", "target"),
            ("schedule create night --zone Eur", "flags"),
            ("schedule create night --kind ", "clusterdeployment cluster workloads virtualmachine shoot"),
            ("schedule create night demo cd/", "ClusterDeployment"),
            ("schedule next ", "schedule"),
            ("schedule next night ", ""),
            ("schedule next --calendar-namespace ", "Namespace"),
            ("schedule explain deploy ", "Deployment"),
            ("schedule skip cpsch/n", "ClusterPowerSchedule"),
            ("schedule apply schedule/n", "PowerSchedule"),
            ("schedule resume cd/n", ""),
            ("status schedules ", "PowerSchedule"),
            ("version ", ""),
            ("install-alias ", "file"),
            ("completion ", "kubectl bash zsh fish powershell"),
        ] {
            assert_eq!(
                question_of(line),
                (expected.to_owned(), line.split(' ').next_back().unwrap().to_owned()),
                "{line:?}"
            );
        }
    }

    #[test]
    fn a_value_is_completed_behind_its_equals_sign() {
        for (line, expected, part) in [
            ("demo --dry-run=se", "none client server", "se"),
            ("status --output=w", "table wide json yaml name", "w"),
            ("demo -n=sh", "Namespace", "sh"),
            ("recover process-groups --wait=", "true false", ""),
            ("demo --yes=", "", ""),
            ("demo --nope=x", "", "x"),
        ] {
            assert_eq!(question_of(line), (expected.to_owned(), part.to_owned()), "{line:?}");
        }
    }

    #[test]
    fn flags_are_those_of_the_command() {
        let root = Cli::command();
        let of = |words: &[&str]| {
            let mut reader = Reader::new(&root);
            for word in words {
                reader.read(word);
            }
            flags(&reader)
        };
        let has = |words: &[&str], flag: &str| of(words).iter().any(|one| one == flag);
        assert!(has(&["resume"], "--wait") && !has(&["status"], "--wait"));
        assert!(has(&["status"], "--client-key") && !has(&["status"], "--cache-dir"));
        assert!(has(&["rollout", "undo"], "--wait") && !has(&["rollout", "pause"], "--wait"));
        let once = of(&[]);
        assert_eq!(once.iter().collect::<BTreeSet<_>>().len(), once.len());
    }
}
