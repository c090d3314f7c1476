//! What errors of usage advise is done, and the commands that messages name are commands of this program.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::{fs, iter};

use clap::error::ErrorKind;
use shared::kinds::KINDS;

use super::wait_for;
use crate::cli::recover::FdbCli;
use crate::cli::time::TimeError;
use crate::cli::{self, Cli};
use crate::cmd::run;
use crate::error::{Exit, FdbError, Problem, RolloutError, ScheduleError, UsageError};

/// The error of a command line, if it does not even get to the hub. There is none.
fn usage(line: &str) -> Option<Problem> {
    let _ = hub::provider().install_default();
    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let kubeconfig = tempfile::NamedTempFile::new().unwrap();
    fs::write(kubeconfig.path(), "kind: Config\n").unwrap();
    let (server, kubeconfig) = (format!("http://{nowhere}"), kubeconfig.path().to_str().unwrap());
    let words = line.split_whitespace().map(|word| if word == "''" { "" } else { word });
    let hub = ["--server", &server, "--kubeconfig", kubeconfig];
    let words = iter::once("kubectl-hibernate").chain(words).chain(hub).map(Into::into);
    let cli = cli::read::<Cli>(words).unwrap_or_else(|error| panic!("{line}: {error}"));
    wait_for(run(KINDS, &cli)).err().filter(|problem| problem.exit() == Exit::Usage)
}

/// Lines that do what an error advises; none if it advises nothing, or only a hub shows it (then a test in tests/e2e
/// does).
fn followed(problem: &Problem) -> &'static [&'static str] {
    match problem {
        Problem::Usage(error) => of_targets(error),
        Problem::Time(error) => of_times(error),
        Problem::Fdb(error) => of_groups(error),
        Problem::Rollout(error) => of_rollouts(error),
        Problem::Schedule(error) => of_schedules(error),
        other => panic!("no error of usage: {other}"),
    }
}

fn of_targets(error: &UsageError) -> &'static [&'static str] {
    match error {
        UsageError::Nothing => &["demo", "-l a=b", "--all"],
        UsageError::Command(_) => &["status demo", "cd/status"],
        // The types that it lists are tried one by one.
        UsageError::UnknownType { .. } => &["cd/x"],
        UsageError::NotAType { .. } | UsageError::NameWithSelector(_) => &["cd --all", "cd -l a=b"],
        UsageError::TypeWithoutNames(_) => &["deploy web", "deploy -l a=b", "deploy --all"],
        UsageError::Mixed(..) => &["deploy/web sts/db", "deploy web db"],
        UsageError::NamespaceAlone(_) => &["ns/shop"],
        UsageError::NothingOwned => &["ns/shop --include-owned", "deploy/web"],
        UsageError::NotAName(_) => &["demo-1.a"],
        UsageError::NameInAllNamespaces => &["demo -n shop", "-l a=b -A", "status demo -n shop", "status -l a=b -A"],
        UsageError::OnlyShown(_) => {
            &["status fdb/sample", "status pool/small", "status rollout/night", "status schedule/night", "cd/a"]
        }
        UsageError::EmptySelector => &["--all"],
        UsageError::Slash { .. }
        | UsageError::SelectorAndAll
        | UsageError::NothingToPlan(_)
        | UsageError::NothingToForce(_)
        | UsageError::NoLedger(_)
        | UsageError::NameInsteadOfType(_)
        | UsageError::NeedsYes(_) => &[],
    }
}

fn of_times(error: &TimeError) -> &'static [&'static str] {
    match error {
        TimeError::Order { .. } => &["demo --not-before 2036-01-01T00:00 --not-after 2036-01-02T00:00"],
        TimeError::Ended { .. } => &["demo --paused --not-before 2036-01-01T00:00 --until 2036-01-02T00:00"],
        TimeError::NothingHeld => &["resume demo --hold-awake --for 4h", "resume demo --hold-awake --until 08:00"],
        // The forms of a time are tried where they are read.
        TimeError::NotATime { .. } | TimeError::Past { .. } | TimeError::TooFar(_) | TimeError::NoController(_) => &[],
    }
}

fn of_groups(error: &FdbError) -> &'static [&'static str] {
    match error {
        FdbError::Nothing => &[
            "recover process-groups -c a storage-1",
            "recover process-groups a-storage-1",
            "recover process-groups -c a --all-suspended",
            "recover process-groups -c a --process-class log",
            "recover process-groups -c a --match-labels x=y",
        ],
        FdbError::NeedsCluster(_) => &["recover process-groups -c a --all-suspended"],
        FdbError::NotALabel(_) | FdbError::Selector => &["recover process-groups -c a --match-labels x=y"],
        FdbError::ClusterInAllNamespaces => {
            &["recover process-groups -n x -c a storage-1", "recover process-groups -A a-storage-1"]
        }
        FdbError::NamesAndFilter(_)
        | FdbError::Filters
        | FdbError::NoneAndSome
        | FdbError::IdWithoutCluster(_)
        | FdbError::SeveralClusters { .. }
        | FdbError::NotOneCluster(_)
        | FdbError::NoClusterOfPod { .. }
        | FdbError::NoMatch { .. }
        | FdbError::NoCluster { .. }
        | FdbError::Refused { .. }
        | FdbError::Rights { .. }
        | FdbError::Unrecoverable { .. }
        | FdbError::RecoveryReverted { .. }
        | FdbError::Outdated { .. }
        | FdbError::Deleted { .. }
        | FdbError::SkipReset { .. }
        | FdbError::NotIncluded { .. }
        | FdbError::Interrupted
        | FdbError::Aborted
        | FdbError::Foreign { .. } => &[],
        #[cfg(not(unix))]
        FdbError::NoLinks { .. } => &[],
    }
}

fn of_rollouts(error: &RolloutError) -> &'static [&'static str] {
    match error {
        RolloutError::OtherKind { .. } => &["deploy/web", "cd/demo --paused"],
        RolloutError::TooManyNames { .. } => &["-l a=b --paused", "--all --paused"],
        RolloutError::TooManyCanaries { .. } => &["--all --canary a=b"],
        RolloutError::NotACanary { .. } => {
            &["--all --canary web", "--all --canary shop/web", "--all --canary label:web"]
        }
        RolloutError::CanarySelector { .. } => &["--all --canary label:web"],
        RolloutError::NotARollout { .. } => &[
            "rollout pause night",
            "rollout pause rollout/night",
            "rollout pause powerrollout/night",
            "rollout pause pr/night",
        ],
        RolloutError::Force { .. }
        | RolloutError::Selector(_)
        | RolloutError::NoCanaries { .. }
        | RolloutError::Ambiguous { .. }
        | RolloutError::Repeated { .. }
        | RolloutError::NoDefinition
        | RolloutError::NoController(_)
        | RolloutError::Rival(_)
        | RolloutError::Verb { .. } => &[],
    }
}

fn of_schedules(error: &ScheduleError) -> &'static [&'static str] {
    match error {
        ScheduleError::NotAWindow { .. } => &["schedule create x --zone UTC --all --awake 07:30-18:00"],
        ScheduleError::NotASchedule { .. } => {
            &["schedule apply night", "schedule apply schedule/night", "schedule apply cpsch/night"]
        }
        ScheduleError::ClusterWide { .. } => &["schedule create x --zone UTC --all --awake 07:30-18:00 --cluster-wide"],
        ScheduleError::AllWorkloads => &[
            "schedule create x --zone UTC --awake 07:30-18:00 --kind workloads --all",
            "schedule create x --zone UTC --awake 07:30-18:00 --kind workloads --all --cluster-wide",
        ],
        ScheduleError::OtherKind { .. } => &[
            "schedule create x cd/demo --zone UTC --awake 07:30-18:00",
            "schedule create x cluster/abc --kind cluster --cluster-wide --zone UTC --awake 07:30-18:00",
        ],
        ScheduleError::NotWorkloads { .. } | ScheduleError::NoOperator { .. } => &[
            "schedule create x --zone UTC --awake 07:30-18:00 --kind workloads --all --operator-kinds notebooks.kubeflow.org",
        ],
        ScheduleError::NoNamespace => {
            &["schedule create x demo --cluster-wide -n shop --zone UTC --awake 07:30-18:00 --dry-run=client"]
        }
        ScheduleError::NotOneTarget => &["schedule explain cd/demo"],
        ScheduleError::Faults(_)
        | ScheduleError::Unscheduled { .. }
        | ScheduleError::Timetable(_)
        | ScheduleError::Refused { .. } => &[],
    }
}

/// The flags that a message names.
fn flags(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split_whitespace().map(|word| word.trim_matches(|c: char| c.is_ascii_punctuation() && c != '-'));
    words.filter(|word| word.starts_with('-') && word.len() > 1 && *word != "--help")
}

#[test]
fn a_line_that_follows_the_advice_gets_to_the_hub() {
    let many: Vec<String> = (0..1_001).map(|at| format!("c{at}")).collect();
    let (names, canaries) = (format!("cd {} --paused", many.join(" ")), "--canary a ".repeat(21) + "--all");
    for line in [
        "",
        "demo status",
        "pod/x",
        "pods --all",
        "deploy",
        "cd/demo --all",
        "deploy web sts/db",
        "ns/shop ns/bank",
        "deploy/web --include-owned",
        "Demo",
        "cd/a/b",
        "demo -A",
        "status demo -A",
        "fdb/sample",
        "pool/small",
        "rollout/night",
        "-l ''",
        "-l a=b --all",
        "demo --not-before 2036-01-02T00:00 --not-after 2036-01-01T00:00",
        "demo --paused --not-before 2036-01-02T00:00 --until 2036-01-01T00:00",
        "resume demo --for 4h",
        "recover process-groups",
        "recover process-groups --all-suspended",
        "recover process-groups -c a --match-labels x",
        "recover process-groups -c a -l x=y",
        "recover process-groups -A -c a storage-1",
        "recover process-groups -c a storage-1 --process-class log",
        "recover process-groups -c a --process-class log --all-suspended --match-labels x=y",
        "recover process-groups -c a x --replacement none --replacement y",
        "deploy/web --paused",
        "demo --paused --force",
        names.as_str(),
        canaries.as_str(),
        "--all --canary Web",
        "--all --canary label:",
        "rollout pause cd/night",
        "schedule/night",
        "schedule create x --zone UTC --all --awake Mon",
        "schedule create x --zone UTC --all --awake 7:30-18:00",
        "schedule create x --zone UTC --all --awake 07:30-18:00 -A",
        "schedule create x --zone UTC --awake 07:30-18:00 --kind workloads --all --operator-kinds pods",
        "schedule create x --zone UTC --awake 07:30-18:00 --all --operator-kinds notebooks.kubeflow.org",
        "schedule create x web --zone UTC --awake 07:30-18:00 --kind workloads",
        "schedule create x deploy/web --zone UTC --awake 07:30-18:00",
        "schedule create x demo --cluster-wide --zone UTC --awake 07:30-18:00 --dry-run=client",
        "schedule create X --zone UTC --all --awake 07:30-18:00",
        "schedule create x --zone UTC --awake 07:30-18:00",
        "schedule apply cd/night",
        "schedule explain ns/shop",
    ] {
        let problem = usage(line).unwrap_or_else(|| panic!("{line:.40} is accepted"));
        let (message, lines) = (problem.to_string(), followed(&problem));
        for followed in lines {
            assert!(usage(followed).is_none(), "{line:.40}: {message}: {followed}");
        }
        for flag in flags(&message) {
            let is_in = |line: &str| line.split_whitespace().any(|word| word == flag);
            assert!(
                is_in(line) || lines.iter().any(|line| is_in(line)),
                "{line:.40}: nobody follows {flag}: {message}"
            );
        }
        if let Some((_, types)) = message.split_once("; types are ") {
            for word in types.split([',', ' ', '(', ')']).filter(|word| !word.is_empty()) {
                assert!(usage(&format!("{word}/x")).is_none(), "{word}");
            }
        }
    }
}

#[test]
fn a_value_that_an_error_names_is_taken() {
    for (line, wrong) in [
        ("demo --for", "soon"),
        ("demo --for", "0s"),
        ("demo --timeout", "soon"),
        ("demo --request-timeout", "soon"),
        ("demo --deadline", "soon"),
        ("demo --deadline", "+5m"),
        ("demo --max-failures", "x"),
        ("demo --max-concurrency", "0"),
        ("recover process-groups -c a x --settle", "soon"),
    ] {
        let read = |value: &str| {
            let words = iter::once("kubectl-hibernate").chain(line.split_whitespace()).chain([value]);
            cli::read::<Cli>(words.map(Into::into)).map(drop)
        };
        let message = read(wrong).unwrap_err().to_string();
        let (_, examples) = message.split_once("such as ").unwrap_or_else(|| panic!("no example: {message}"));
        let examples = examples.split([',', ';', '\n']).next().unwrap().split(" or ");
        let shares =
            message.split_whitespace().map(|word| word.trim_end_matches('.')).filter(|word| word.ends_with('%'));
        for value in examples.chain(shares) {
            assert!(read(value).is_ok(), "{line} {value}: {message}");
        }
    }
}

/// Every source file of a folder, and every text that one includes.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "txt") {
            found.push(path);
        }
    }
}

/// A source file, or an included text in the form of a literal.
fn source(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let is_included = file.extension().is_some_and(|extension| extension == "txt");
    if is_included { text.replace('\\', r"\\").replace('"', "\\\"") } else { text }
}

/// The names of this program, each with the space before its arguments.
const PROGRAMS: [&str; 2] = ["kubectl hibernate ", "kubectl fdb recover "];

/// The commands in the texts of a source file, to where a sentence goes on. Each with its program.
fn commands(source: &str) -> Vec<(&'static str, String)> {
    let code: Vec<&str> = source.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    // A line of an example that goes on, one of a text that does, and quotes within a text.
    let code = code.join("\n").replace("\\\\\n", " ");
    let code = code.split("\\\n").map(str::trim_start).collect::<String>().replace("\\\"", "'");
    let mut found = Vec::new();
    for program in PROGRAMS {
        for (at, _) in code.match_indices(program) {
            let rest = &code[at + program.len()..];
            let command = rest.split(['`', '"', ';', ',', '(', ')', '\n', '\\']).next().unwrap();
            let command =
                [" or ", " then ", " > "].into_iter().fold(command, |rest, end| rest.split(end).next().unwrap());
            found.push((program, command.to_owned()));
        }
    }
    found
}

/// A command for each alternative, with something in place of what only the program fills in.
fn written_out(command: &str) -> Vec<String> {
    let mut command = command.to_owned();
    while let Some((begin, end)) = command.find('{').zip(command.find('}')) {
        command.replace_range(begin..=end, "x");
    }
    let Some(choice) = command.split_whitespace().find(|word| word.len() > 1 && word.contains('|')) else {
        return vec![command];
    };
    choice.split('|').map(|word| command.replacen(choice, word, 1)).collect()
}

#[test]
fn every_command_in_a_message_is_one_of_this_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for member in ["plugin", "shared", "controller", "webhook", "manifests", "clouds/aws"] {
        sources(&root.join(member).join("src"), &mut files);
    }
    let mut count = 0;
    for file in files {
        for (program, command) in commands(&source(&file)) {
            // The verbs are filled in: a test beside them has all.
            if command.trim().is_empty() || command.starts_with("rollout {") {
                continue;
            }
            for line in written_out(&command) {
                let words = iter::once(program.trim_end()).chain(line.split_whitespace()).map(Into::into);
                let read = if program == PROGRAMS[0] {
                    cli::read::<Cli>(words).map(drop)
                } else {
                    cli::read::<FdbCli>(words).map(drop)
                };
                // The form of a command may leave names out.
                let is_read =
                    read.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::MissingRequiredArgument);
                assert!(is_read, "{}: {program}{line}: {}", file.display(), read.unwrap_err());
                count += 1;
            }
        }
    }
    assert!(count > 60, "only {count} are found");
}
