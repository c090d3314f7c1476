//! Completion: the answers to kubectl's questions.
//!
//! kubectl runs `kubectl_complete-hibernate WORDS...` and reads one candidate per line, and `:N` as the last line, where N are
//! cobra's bits: 2 for no space after the candidate, 4 for no file names.

mod groups;
mod install;

use std::{ffi::OsString, path::Path};

use clap::{CommandFactory, FromArgMatches, ValueEnum};
use kube::config::Kubeconfig;
use shared::target::{FOUNDATIONDB_CLUSTER, Kind, Kinds, POWER_ROLLOUT};

use self::install::SCRIPT_NAME;
pub(crate) use self::install::install;
use crate::{
    api::{Hub, Resource},
    cli::{
        ActOutput, COMMANDS, Cli, Command, DryRun, HubArgs, Include, PlanOutput, StatusOutput, VersionOutput,
        rollout::VERBS,
    },
    output,
    select::whole::NAMESPACE,
};

const NO_SPACE: u8 = 2;
const NO_FILES: u8 = 4;

/// A link of that name to this program does what the script does: it asks for completion. The words that follow are those of
/// another command line, and none of them is a flag of ours.
pub(crate) fn as_question(mut words: Vec<OsString>) -> Vec<OsString> {
    let name = words.first().and_then(|word| Path::new(word).file_stem());
    if name.is_some_and(|name| name == SCRIPT_NAME) {
        words.insert(1, "__complete".into());
    }
    if words.get(1).is_some_and(|word| word == "__complete") {
        words.insert(2, "--".into());
    }
    words
}

/// Answers kubectl. After any failure there are no candidates: an error would end up in the user's command line.
pub(crate) async fn answer(kinds: Kinds, words: &[String]) {
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", [].as_slice()),
    };
    let typed = typed(before);
    let (candidates, directive) = match question(kinds, before, last) {
        Question::Value(Flag::Namespace) => (objects(&typed.hub, &NAMESPACE, "").await, NO_FILES),
        Question::Value(Flag::FdbCluster) => (objects(&typed.hub, &FOUNDATIONDB_CLUSTER.kind, "").await, NO_FILES),
        Question::Groups(cluster) => (groups::groups(&typed.hub, cluster).await, NO_FILES),
        Question::Words(words) => (words.iter().map(|&word| word.to_owned()).collect(), NO_FILES),
        Question::Value(Flag::Context) => (contexts(&typed.hub), NO_FILES),
        Question::Value(Flag::Words(values)) => (values, NO_FILES),
        Question::Value(Flag::File) => (Vec::new(), 0),
        Question::Value(Flag::Free) => (Vec::new(), NO_FILES),
        Question::Flags => (flags(typed.command.as_ref(), scan(before).0.get(1).copied()), NO_FILES),
        Question::Names(kind, prefix) => (objects(&typed.hub, kind, &prefix).await, NO_FILES),
        Question::Target => targets(kinds, &typed, last).await,
    };
    for candidate in candidates.iter().filter(|candidate| candidate.starts_with(last)) {
        output::line(candidate);
    }
    output::line(&format!(":{directive}"));
}

/// What is being completed.
enum Question<'a> {
    /// Process groups, of this cluster if it is known.
    Groups(Option<&'a str>),
    /// Fixed words.
    Words(&'static [&'static str]),
    Value(Flag),
    Flags,
    Names(&'static Kind, String),
    Target,
}

/// Flags whose values can be completed.
enum Flag {
    Namespace,
    Context,
    FdbCluster,
    Words(Vec<String>),
    File,
    Free,
}

fn question<'a>(kinds: Kinds, before: &'a [String], last: &str) -> Question<'a> {
    let (words, open) = scan(before);
    if let Some(flag) = open.and_then(|flag_word| flag(flag_word, words.first().copied())) {
        return Question::Value(flag);
    }
    if last.starts_with('-') {
        return Question::Flags;
    }
    if words.first() == Some(&"recover") {
        return match words.get(1) {
            None => Question::Words(&["process-groups"]),
            Some(_) => Question::Groups(value_of(before, &["-c", "--fdb-cluster"])),
        };
    }
    if words.first() == Some(&"rollout") {
        return match (words.len(), last.split_once('/')) {
            (1, _) => Question::Words(VERBS),
            (2, Some((word, _))) if POWER_ROLLOUT.kind.is_named(word) => {
                Question::Names(&POWER_ROLLOUT.kind, format!("{word}/"))
            }
            (2, None) => Question::Names(&POWER_ROLLOUT.kind, String::new()),
            _ => Question::Value(Flag::Free),
        };
    }
    if let Some((word, _)) = last.split_once('/') {
        return match kind_named(kinds, word) {
            Some(kind) => Question::Names(kind, format!("{word}/")),
            None => Question::Value(Flag::Free),
        };
    }
    // `deploy web`: the words after a type are names of it.
    match words.last().and_then(|word| kind_named(kinds, word)) {
        Some(kind) => Question::Names(kind, String::new()),
        None => Question::Target,
    }
}

/// The kind that a word names. Names are completed for kinds that are only shown too.
fn kind_named(kinds: Kinds, word: &str) -> Option<&'static Kind> {
    let target = kinds.named(word).first().map(|row| &row.kind);
    let shown = || kinds.shown_named(word).map(|row| &row.kind);
    target.or_else(shown).or_else(|| NAMESPACE.is_named(word).then_some(&NAMESPACE))
}

/// The words that are neither flags nor values of flags, and the flag that the next word is the value of.
fn scan(before: &[String]) -> (Vec<&str>, Option<&str>) {
    let mut words = Vec::new();
    let mut open: Option<&str> = None;
    for word in before {
        match open.take() {
            // It has its value only behind `=`; what it can be is offered all the same.
            Some("--dry-run") | None if flag(word, None).is_some() => open = Some(word.as_str()),
            Some("--dry-run") | None if !word.starts_with('-') => words.push(word.as_str()),
            _ => {}
        }
    }
    (words, open)
}

/// The word behind one of these flags.
fn value_of<'a>(words: &'a [String], flags: &[&str]) -> Option<&'a str> {
    let joined =
        |word: &'a String| word.split_once('=').filter(|(flag, _)| flags.contains(flag)).map(|(_, value)| value);
    let behind = words.windows(2).find(|pair| flags.contains(&pair[0].as_str())).map(|pair| pair[1].as_str());
    behind.or_else(|| words.iter().find_map(joined))
}

/// What goes behind a flag of this command.
fn flag(word: &str, command: Option<&str>) -> Option<Flag> {
    Some(match word {
        "-c" | "--fdb-cluster" => Flag::FdbCluster,
        "--include" => Flag::Words(values::<Include>().collect()),
        "-n" | "--namespace" => Flag::Namespace,
        "--context" => Flag::Context,
        "-o" | "--output" => Flag::Words(match command {
            Some("status") => values::<StatusOutput>().collect(),
            Some("plan") => values::<PlanOutput>().collect(),
            Some("version") => values::<VersionOutput>().collect(),
            _ => values::<ActOutput>().collect(),
        }),
        "--dry-run" => Flag::Words(values::<DryRun>().collect()),
        "--kubeconfig"
        | "--certificate-authority"
        | "--client-certificate"
        | "--client-key"
        | "--cache-dir"
        | "--kuberc"
        | "--profile-output" => Flag::File,
        "-l"
        | "--selector"
        | "-s"
        | "--server"
        | "--reason"
        | "--timeout"
        | "--token"
        | "--as"
        | "--as-group"
        | "--as-uid"
        | "--as-user-extra"
        | "--username"
        | "--password"
        | "--log-flush-frequency"
        | "--profile"
        | "--vmodule"
        | "--for"
        | "--until"
        | "--cluster"
        | "--user"
        | "--request-timeout"
        | "--tls-server-name"
        | "--field-manager"
        | "--process-class"
        | "--match-labels"
        | "--replacement"
        | "--settle"
        | "--max-concurrency"
        | "--canary"
        | "--max-failures"
        | "--starts-per-minute"
        | "--deadline"
        | "--not-before"
        | "--not-after" => Flag::Free,
        _ => return None,
    })
}

fn values<T: ValueEnum + 'static>() -> impl Iterator<Item = String> {
    T::value_variants().iter().filter_map(|value| Some(value.to_possible_value()?.get_name().to_owned()))
}

/// What has been typed so far, as far as it makes sense.
struct Typed {
    hub: HubArgs,
    command: Option<String>,
    words: usize,
}

fn typed(words: &[String]) -> Typed {
    let line = std::iter::once("kubectl-hibernate").chain(words.iter().map(String::as_str));
    let matches = Cli::command().ignore_errors(true).try_get_matches_from(line).ok();
    let cli = matches.as_ref().and_then(|matches| Cli::from_arg_matches(matches).ok());
    let command = matches.as_ref().and_then(|matches| Some(matches.subcommand_name()?.to_owned()));
    let words = cli.as_ref().map_or(0, |cli| match &cli.command {
        Some(Command::Dehydrate(sleep)) => sleep.act.targets.len(),
        Some(Command::Resume(resume)) => resume.act.targets.len(),
        Some(Command::Plan(plan)) => plan.targets.len(),
        Some(Command::Status(status)) => status.targets.len(),
        _ => cli.sleep.act.targets.len(),
    });
    Typed { hub: cli.map(|cli| cli.hub).unwrap_or_default(), command, words }
}

fn flags(command: Option<&String>, verb: Option<&str>) -> Vec<String> {
    let root = Cli::command();
    let chosen = command.and_then(|name| root.find_subcommand(name)).unwrap_or(&root);
    let chosen = chosen.find_subcommand("process-groups").unwrap_or(chosen);
    let chosen = verb.and_then(|verb| chosen.find_subcommand(verb)).unwrap_or(chosen);
    let global = root.get_arguments().filter(|arg| arg.is_global_set());
    let shown = chosen.get_arguments().chain(global).filter(|arg| !arg.is_hide_set());
    let long = shown.filter_map(|arg| Some(format!("--{}", arg.get_long()?)));
    let mut all: Vec<String> = long.collect();
    all.sort();
    all.dedup();
    all
}

/// Commands (as the first word), names of clusters, and types with a slash.
async fn targets(kinds: Kinds, typed: &Typed, last: &str) -> (Vec<String>, u8) {
    if matches!(typed.command.as_deref(), Some("version" | "completion" | "install-alias")) {
        return (Vec::new(), NO_FILES);
    }
    let mut candidates = Vec::new();
    if typed.command.is_none() && typed.words == 0 {
        candidates.extend(COMMANDS.iter().map(|&command| command.to_owned()));
    }
    for row in kinds.shown_by_default() {
        candidates.extend(objects(&typed.hub, &row.kind, "").await);
    }
    let kind_words = kinds.targets.iter().filter_map(|row| Some(format!("{}/", row.kind.short.first()?)));
    let only_types = !last.is_empty() && !candidates.iter().any(|candidate| candidate.starts_with(last));
    candidates.extend(kind_words.chain(["ns/".to_owned()]));
    candidates.dedup();
    (candidates, if only_types { NO_SPACE | NO_FILES } else { NO_FILES })
}

async fn objects(args: &HubArgs, kind: &'static Kind, prefix: &str) -> Vec<String> {
    let Ok(hub) = Hub::connect(args).await else {
        return Vec::new();
    };
    for version in kind.versions {
        if let Ok(list) = hub.list(Resource { kind, version }, Some(&hub.namespace), "", "").await {
            let names = list.items.iter().filter_map(|object| object.pointer("/metadata/name")?.as_str());
            return names.map(|name| format!("{prefix}{name}")).collect();
        }
    }
    Vec::new()
}

fn contexts(args: &HubArgs) -> Vec<String> {
    let kubeconfig = match &args.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let contexts = kubeconfig.map(|kubeconfig| kubeconfig.contexts).unwrap_or_default();
    contexts.into_iter().map(|context| context.name).collect()
}

#[cfg(test)]
mod tests {
    use shared::target::KINDS;

    use super::*;

    fn asked(line: &str) -> &'static str {
        let mut words: Vec<String> = line.split(' ').map(Into::into).collect();
        let last = words.pop().unwrap();
        match question(KINDS, &words, &last) {
            Question::Value(Flag::Namespace) => "namespace",
            Question::Value(Flag::FdbCluster) => "cluster",
            Question::Groups(Some(_)) => "groups of it",
            Question::Groups(None) => "groups",
            Question::Words(_) => "fixed",
            Question::Value(Flag::Context) => "context",
            Question::Value(Flag::Words(words)) if words.contains(&"wide".to_owned()) => "words of status",
            Question::Value(Flag::Words(_)) => "words",
            Question::Value(Flag::File) => "file",
            Question::Value(Flag::Free) => "free",
            Question::Flags => "flags",
            Question::Names(kind, _) => kind.kind,
            Question::Target => "target",
        }
    }

    #[test]
    fn it_is_clear_what_is_being_completed() {
        for (line, expected) in [
            ("", "target"),
            ("de", "target"),
            ("resume ", "target"),
            ("deploy/w", "Deployment"),
            ("cj/r", "CronJob"),
            ("ns/s", "Namespace"),
            ("resume ns ", "Namespace"),
            ("deploy web ", "target"),
            ("deploy ", "Deployment"),
            ("demo -n ", "namespace"),
            ("demo --context x", "context"),
            ("status -o ", "words of status"),
            ("status -n shop -o ", "words of status"),
            ("demo -o ", "words"),
            ("resume status -o ", "words"),
            ("demo --dry-run ", "words"),
            ("demo --dry-run deploy ", "Deployment"),
            ("-n ", "namespace"),
            ("--context ", "context"),
            ("-n shop ", "target"),
            ("-n shop deploy/", "Deployment"),
            ("deploy -n shop ", "Deployment"),
            ("deploy -A ", "Deployment"),
            ("deploy -n=shop ", "Deployment"),
            ("resume deploy --reason sts ", "Deployment"),
            ("-n deploy ", "target"),
            ("demo --reason -n ", "target"),
            ("-n shop recover ", "fixed"),
            ("recover -n shop process-groups ", "groups"),
            ("demo --reason ", "free"),
            ("demo --kubeconfig ", "file"),
            ("demo --client-key ", "file"),
            ("demo --password deploy ", "target"),
            ("deploy --profile cpu ", "Deployment"),
            ("demo --wa", "flags"),
            ("pod/x", "free"),
            ("recover ", "fixed"),
            ("recover process-groups ", "groups"),
            ("recover process-groups -c ", "cluster"),
            ("recover process-groups -c sample ", "groups of it"),
            ("recover process-groups --fdb-cluster=sample storage-1 ", "groups of it"),
            ("recover process-groups --include ", "words"),
            ("recover process-groups --al", "flags"),
            ("status fdb/s", "FoundationDBCluster"),
            ("rollout ", "fixed"),
            ("rollout pause ", "PowerRollout"),
            ("rollout -n shop undo ", "PowerRollout"),
            ("rollout undo pr/n", "PowerRollout"),
            ("rollout undo cd/n", "free"),
            ("rollout undo night ", "free"),
            ("rollout undo --wa", "flags"),
            ("status rollout/n", "PowerRollout"),
            ("status rollouts ", "PowerRollout"),
            ("demo --canary ", "free"),
        ] {
            assert_eq!(asked(line), expected, "{line:?}");
        }
    }

    #[test]
    fn a_link_named_like_the_script_completes() {
        let words = |words: &[&str]| as_question(words.iter().map(Into::into).collect());
        assert_eq!(words(&["/bin/kubectl_complete-hibernate", "x"])[1..], ["__complete", "--", "x"]);
        assert_eq!(words(&["/bin/kubectl-hibernate", "__complete", "-n", ""])[1..], ["__complete", "--", "-n", ""]);
        assert_eq!(words(&["/bin/kubectl-hibernate", "x"])[1..], ["x"]);
        assert!(words(&[]).is_empty());
    }

    #[test]
    fn what_was_typed_before_is_used_even_if_it_is_not_complete() {
        let line = |line: &str| typed(&line.split_whitespace().map(Into::into).collect::<Vec<_>>());
        let status = line("status -n shop --nonsense");
        assert_eq!(status.hub.namespace.as_deref(), Some("shop"));
        assert_eq!(status.command.as_deref(), Some("status"));
        assert_eq!(line("demo other").words, 2);
        assert!(flags(Some(&"resume".to_owned()), None).contains(&"--wait".to_owned()));
        assert!(!flags(Some(&"status".to_owned()), None).contains(&"--wait".to_owned()));
        let of_status = flags(Some(&"status".to_owned()), None);
        assert!(of_status.contains(&"--client-key".to_owned()) && !of_status.contains(&"--cache-dir".to_owned()));
        let of_verb = |verb| flags(Some(&"rollout".to_owned()), Some(verb)).contains(&"--wait".to_owned());
        assert!(of_verb("undo") && !of_verb("pause"));
    }
}
