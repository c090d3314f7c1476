//! Completion: the answers to kubectl's questions.
//!
//! kubectl runs `kubectl_complete-hibernate WORDS...` and reads one candidate per line, and `:N` as the last line,
//! where N are cobra's bits: 2 for no space after the candidate, 4 for no file names.

mod install;
mod question;

use std::ffi::OsString;
use std::path::Path;

use clap::{ArgMatches, CommandFactory, FromArgMatches};
use kube::config::Kubeconfig;
use shared::fdb::recover::check::suspended;
use shared::kinds::{CLUSTER_SCHEDULE, Kind, Kinds, SCHEDULE};

use self::install::SCRIPT_NAME;
pub(crate) use self::install::install;
use self::question::{Question, question};
use crate::cli::argv::normalized;
use crate::cli::{Cli, HubArgs};
use crate::connect::connect;
use crate::output;
use crate::read::fdb::{DatabaseSnapshot, clusters};

const NO_SPACE: u8 = 2;
const NO_FILES: u8 = 4;

/// A link of that name to this program does what the script does: it asks for completion. The words that follow are
/// those of another command line, and none of them is a flag of ours.
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
    let hub = typed.as_ref().and_then(|typed| HubArgs::from_arg_matches(typed).ok()).unwrap_or_default();
    let (question, last) = question(kinds, &Cli::command(), before, last);
    let (candidates, directive) = match question {
        Question::Words(words) => (words, NO_FILES),
        Question::File => (Vec::new(), 0),
        Question::Context => (contexts(&hub), NO_FILES),
        Question::Name(kind, prefix) => (names(&hub, [kind], &prefix).await, NO_FILES),
        Question::Schedule => (names(&hub, [&SCHEDULE.kind, &CLUSTER_SCHEDULE.kind], "").await, NO_FILES),
        Question::Group => (groups(&hub, typed.as_ref().and_then(fdb_cluster)).await, NO_FILES),
        Question::Target(commands) => targets(kinds, &hub, commands, last).await,
    };
    for candidate in candidates.iter().filter(|candidate| candidate.starts_with(last)) {
        output::line(candidate);
    }
    output::line(&format!(":{directive}"));
}

/// What has been typed so far, as far as it makes sense.
fn typed(words: &[String]) -> Option<ArgMatches> {
    let line = std::iter::once("kubectl-hibernate").chain(words.iter().map(String::as_str));
    let line = normalized(&Cli::command(), line.map(OsString::from));
    Cli::command().ignore_errors(true).try_get_matches_from(line).ok()
}

/// The cluster whose process groups are meant.
fn fdb_cluster(typed: &ArgMatches) -> Option<&str> {
    let groups = typed.subcommand_matches("recover")?.subcommand_matches("process-groups")?;
    groups.get_one::<String>("fdb_cluster").map(String::as_str)
}

/// These commands, names of clusters, and types with a slash.
async fn targets(kinds: Kinds, hub: &HubArgs, mut candidates: Vec<String>, last: &str) -> (Vec<String>, u8) {
    candidates.extend(names(hub, kinds.shown_by_default().into_iter().map(|row| &row.kind), "").await);
    let kind_words = kinds.targets.iter().filter_map(|row| Some(format!("{}/", row.kind.short.first()?)));
    let only_types = !last.is_empty() && !candidates.iter().any(|candidate| candidate.starts_with(last));
    candidates.extend(kind_words.chain(["ns/".to_owned()]));
    candidates.dedup();
    (candidates, if only_types { NO_SPACE | NO_FILES } else { NO_FILES })
}

/// Names of the objects of these kinds, all asked for at once, with this text before each.
async fn names(hub: &HubArgs, kinds: impl IntoIterator<Item = &'static Kind>, prefix: &str) -> Vec<String> {
    let Ok(hub) = connect(hub) else { return Vec::new() };
    view::names(&hub, kinds).await.into_iter().map(|name| format!("{prefix}{name}")).collect()
}

/// IDs of the suspended process groups of a cluster; without one, the names that the Pods of all suspended groups had.
async fn groups(args: &HubArgs, cluster: Option<&str>) -> Vec<String> {
    let Ok(hub) = connect(args) else { return Vec::new() };
    let namespace = hub.namespace.clone();
    if let Some(name) = cluster {
        let Ok(observation) = DatabaseSnapshot::new(&hub, &namespace, name).await else { return Vec::new() };
        return suspended(&observation.facts()).into_iter().map(|group| group.process_group_id.clone()).collect();
    }
    let mut pods = Vec::new();
    for object in clusters(&hub, Some(&namespace)).await.unwrap_or_default() {
        let Ok(observation) = DatabaseSnapshot::around(&hub, &namespace, object).await else { continue };
        pods.extend(
            suspended(&observation.facts()).into_iter().filter_map(|group| observation.cluster.pod_name(group)),
        );
    }
    pods
}

fn contexts(args: &HubArgs) -> Vec<String> {
    let kubeconfig = match &args.connection.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let contexts = kubeconfig.map(|kubeconfig| kubeconfig.contexts).unwrap_or_default();
    contexts.into_iter().map(|context| context.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let read = |line: &str| typed(&line.split_whitespace().map(Into::into).collect::<Vec<_>>()).unwrap();
        for line in [
            "status -n shop --nonsense",
            "rollout pause -n shop",
            "-n shop recover",
            "demo --wait=false -v 6 -nshop --context",
        ] {
            assert_eq!(
                HubArgs::from_arg_matches(&read(line)).unwrap().connection.namespace.as_deref(),
                Some("shop"),
                "{line}"
            );
        }
        for (line, cluster) in [
            ("recover process-groups -c sample storage-1", Some("sample")),
            ("-n shop recover process-group --fdb-cluster=sample", Some("sample")),
            ("recover process-groups -c", None),
            ("recover", None),
            ("demo", None),
        ] {
            assert_eq!(fdb_cluster(&read(line)), cluster, "{line}");
        }
    }
}
