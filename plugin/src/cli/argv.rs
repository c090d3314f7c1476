//! What the words of a command line are, by clap's definition of it.
//!
//! kubectl's spellings that clap does not accept (`--all=true`, `-y=false`, `-v 6`, `-v6`) are rewritten before it
//! parses. Clap can accept `--all=true` (`num_args(0..=1)` and a default), but then every switch shows `[=<BOOL>]` in
//! its help, and `--hold-awake=false` still counts as given where flags require or are mutually exclusive. A level of `-v`
//! that stands apart can be missing, and then clap would take the name of a target for it.

use std::ffi::{OsStr, OsString};

use clap::builder::{BoolishValueParser, TypedValueParser as _};
use clap::{Arg, ArgAction, Command};

/// The arguments in clap's spelling, flags by their long names.
pub(crate) fn normalized(root: &Command, words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words = words.into_iter();
    let mut read: Vec<OsString> = words.by_ref().take(1).collect();
    let mut reader = Reader::new(root);
    for word in words.by_ref() {
        if word == "--" {
            read.push(word);
            break;
        }
        // What is not UTF-8 can only be a value or a name.
        match reader.read(word.to_str().unwrap_or_default()) {
            Word::Flags(flags) if !flags.is_empty() => {
                for (arg, value) in flags {
                    put(&mut read, root, arg, value);
                }
            }
            Word::Value(arg) if arg.is_require_equals_set() => {
                read.pop();
                put(&mut read, root, arg, word.to_str());
            }
            _ => read.push(word.clone()),
        }
    }
    read.extend(words);
    read
}

/// Adds a flag. A switch is there or not, and the last one counts as in kubectl; other flags keep their value.
fn put(read: &mut Vec<OsString>, root: &Command, arg: &Arg, value: Option<&str>) {
    let flag = format!("--{}", arg.get_long().unwrap_or_default());
    let switch = match arg.get_action() {
        ArgAction::SetTrue => BoolishValueParser::new().parse_ref(root, None, OsStr::new(value.unwrap_or("true"))).ok(),
        _ => None,
    };
    match (switch, value) {
        (Some(on), _) => {
            read.retain(|word| word != flag.as_str());
            read.extend(on.then(|| OsString::from(flag)));
        }
        (None, Some(value)) => read.push(format!("{flag}={value}").into()),
        (None, None) => read.push(flag.into()),
    }
}

/// Reads words one by one.
pub(crate) struct Reader<'a> {
    root: &'a Command,
    /// The command to which the words so far lead.
    pub(crate) command: &'a Command,
    /// The flag before, if it takes a value and has none yet.
    pub(crate) open: Option<&'a Arg>,
    /// Whether the word before is a name: behind one, clap takes a command's name for a name, too.
    named: bool,
}

/// What a word is.
pub(crate) enum Word<'a, 't> {
    /// Flags, and the values that the word itself gives them; none if they are not known.
    Flags(Vec<(&'a Arg, Option<&'t str>)>),
    /// The value of the flag before.
    Value(&'a Arg),
    /// A command.
    Command,
    /// Anything else.
    Name,
}

impl<'a> Reader<'a> {
    /// Before the first word.
    pub(crate) fn new(root: &'a Command) -> Self {
        Self { root, command: root, open: None, named: false }
    }

    /// The flags and positionals of the command.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &'a Arg> {
        let global = self.root.get_arguments().filter(|arg| arg.is_global_set());
        self.command.get_arguments().chain(global)
    }

    /// Reads one word.
    pub(crate) fn read<'t>(&mut self, text: &'t str) -> Word<'a, 't> {
        if let Some(arg) = self.open.take()
            && (!arg.is_require_equals_set() || is_level(arg, text))
        {
            return Word::Value(arg);
        }
        if text.starts_with('-') {
            let flags = self.flags(text);
            let last = flags.last().filter(|(arg, value)| value.is_none() && arg.get_action().takes_values());
            self.open = last.map(|(arg, _)| *arg);
            self.named = false;
            return Word::Flags(flags);
        }
        if let Some(command) = self.command.find_subcommand(text).filter(|_| !self.named) {
            self.command = command;
            Word::Command
        } else {
            self.named = true;
            Word::Name
        }
    }

    /// `--yes=false`, `-y`, `-Ay`, `-y=false`, `-v6`, `-nshop`: letters are switches up to one that takes a value.
    fn flags<'t>(&self, text: &'t str) -> Vec<(&'a Arg, Option<&'t str>)> {
        if let Some(flag) = text.strip_prefix("--") {
            let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
            let arg = self.arguments().find(|arg| arg.get_long() == Some(name));
            return arg.map(|arg| (arg, value)).into_iter().collect();
        }
        let mut flags = Vec::new();
        let mut letters = text.strip_prefix('-').unwrap_or_default().chars();
        while let Some(letter) = letters.next() {
            let Some(arg) = self.arguments().find(|arg| arg.get_short() == Some(letter)) else { return Vec::new() };
            let rest = letters.as_str();
            let takes_rest = is_level(arg, rest) || (arg.get_action().takes_values() && !arg.is_require_equals_set());
            let value = rest.strip_prefix('=').or((takes_rest && !rest.is_empty()).then_some(rest));
            flags.push((arg, value));
            if value.is_some() {
                break;
            }
        }
        flags
    }
}

/// Whether this is a level of `-v`.
fn is_level(arg: &Arg, text: &str) -> bool {
    arg.get_long() == Some("v") && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::recover::FdbCli;
    use crate::cli::{self, Cli, Command as Chosen};

    fn rewritten(root: &Command, line: &str) -> String {
        let words = std::iter::once("x").chain(line.split_whitespace()).map(Into::into);
        let words = normalized(root, words).into_iter().skip(1).map(|word| word.into_string().unwrap());
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn kubectls_spellings_become_the_parsers() {
        for (line, expected) in [
            ("demo --wait --all", "demo --wait --all"),
            ("--all=true --wait=false --yes=1", "--all --yes"),
            ("demo --yes=T --all=TRUE --wait=f", "demo --yes --all"),
            ("demo --insecure-skip-tls-verify=true", "demo --insecure-skip-tls-verify"),
            ("demo -y=true -A=false", "demo --yes"),
            ("-Ay=false -l a=b", "--all-namespaces --selector a=b"),
            ("-Ay -l=a=b", "--all-namespaces --yes --selector=a=b"),
            ("demo --yes --yes=false", "demo"),
            ("demo -y --yes=false", "demo"),
            ("demo --yes=false -y -y", "demo --yes"),
            ("demo --yes=perhaps", "demo --yes=perhaps"),
            ("status --watch=true --no-headers=false", "status --watch"),
            ("demo --watch=true", "demo --watch=true"),
            ("-n status demo --wait=true", "--namespace status demo --wait"),
            ("--reason --yes=true demo", "--reason --yes=true demo"),
            ("demo -- --yes=true", "demo -- --yes=true"),
            ("__complete -- demo -A=true", "__complete -- demo -A=true"),
            ("resume demo --hold-awake=false", "resume demo"),
            ("recover process-groups x --wait=F --yes=t", "recover process-groups x --wait=F --yes"),
            ("demo -v 6", "demo --v=6"),
            ("-v 6 demo", "--v=6 demo"),
            ("--v 8 demo", "--v=8 demo"),
            ("-v6 demo", "--v=6 demo"),
            ("-Av6 --all", "--all-namespaces --v=6 --all"),
            ("-v=1 demo --v=0", "--v=1 demo --v=0"),
            ("-v demo", "--v demo"),
            ("-n6 demo", "--namespace=6 demo"),
            ("-n v6 demo 6", "--namespace v6 demo 6"),
            ("deploy status -y=true --wait=false", "deploy status --yes"),
            ("demo --dry-run=server", "demo --dry-run=server"),
            ("demo --dry-run 6", "demo --dry-run 6"),
            ("-Ah demo -", "-Ah demo -"),
        ] {
            assert_eq!(rewritten(&Cli::command(), line), expected, "{line}");
        }
        for (line, expected) in [
            ("process-groups x -w=0 --version-check=T", "process-groups x --wait=0 --version-check=T"),
            ("process-groups x -w -y=true", "process-groups x --wait --yes"),
        ] {
            assert_eq!(rewritten(&FdbCli::command(), line), expected, "{line}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn what_is_not_utf_8_is_kept() {
        use std::os::unix::ffi::OsStringExt as _;

        let path = || OsString::from_vec(b"--kubeconfig=/tmp/\xff".to_vec());
        for words in [vec!["x".into(), path()], vec!["x".into(), "--kubeconfig".into(), path(), "--yes".into()]] {
            assert_eq!(normalized(&Cli::command(), words.clone()), words);
        }
    }

    /// By which it is rewritten.
    #[test]
    fn every_flag_has_a_long_name() {
        fn check(command: &Command) {
            for flag in command.get_arguments().filter(|arg| !arg.is_positional()) {
                assert!(flag.get_long().is_some(), "{}: {}", command.get_name(), flag.get_id());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
        check(&FdbCli::command());
    }

    #[test]
    fn they_are_read_as_they_are_meant() {
        let read = |line: &str| cli::read::<Cli>(std::iter::once("x").chain(line.split_whitespace()).map(Into::into));
        let cli = read("--all=true --wait=false -y=true --all-namespaces=true -v 7").unwrap();
        assert!(cli.sleep.act.all && cli.sleep.act.yes && cli.hub.all_namespaces && !cli.sleep.act.wait);
        assert_eq!((cli.hub.verbosity, cli.sleep.act.targets.len()), (7, 0));
        let Some(Chosen::Status(status)) = read("status --watch=true -n x -A=false").unwrap().command else { panic!() };
        assert!(status.watch);
        assert_eq!(read("demo --wait=perhaps").unwrap_err().exit_code(), 2);
    }
}
