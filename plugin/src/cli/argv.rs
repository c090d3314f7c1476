//! kubectl's spellings that clap does not accept: `--all=true`, `-y=false`, `-v 6`, `-v6`.
//!
//! They are rewritten before clap reads them. Clap itself can accept `--all=true` (`num_args(0..=1)` with a default value), but
//! then every switch shows `[=<BOOL>]` in its help, `--hold-awake=false` still counts as given where flags require or exclude each
//! other, and `-v 6` and `-v6` stay wrong. No maintained crate does this for clap.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

/// The arguments in clap's spelling.
pub(crate) fn normalized(root: &Command, words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words = words.into_iter();
    let mut reader = Reader { root, command: root, named: false, read: words.next().into_iter().collect() };
    let mut next = Next::Any;
    for word in words {
        next = match (next, word.to_str()) {
            (Next::Rest, _) => reader.keep(word, Next::Rest),
            (Next::Value, _) | (_, None) => reader.keep(word, Next::Any),
            (Next::Level, Some(text)) if is_level(text) => reader.append(&format!("={text}")),
            (_, Some(text)) => reader.word(text),
        };
    }
    reader.read
}

/// What the next word can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Any,
    /// The value of the flag before.
    Value,
    /// The level of `-v`, if it is a number.
    Level,
    /// Nothing that is for this parser, to the end.
    Rest,
}

struct Reader<'a> {
    root: &'a Command,
    /// The command whose flags come now.
    command: &'a Command,
    /// Whether a target was named: no command comes behind it.
    named: bool,
    read: Vec<OsString>,
}

impl<'a> Reader<'a> {
    fn keep(&mut self, word: impl Into<OsString>, next: Next) -> Next {
        self.read.push(word.into());
        next
    }

    fn append(&mut self, text: &str) -> Next {
        if let Some(last) = self.read.last_mut() {
            last.push(text);
        }
        Next::Any
    }

    fn word(&mut self, text: &str) -> Next {
        if text == "--" {
            return self.keep(text, Next::Rest);
        }
        if let Some(flag) = text.strip_prefix("--") {
            return self.long(text, flag);
        }
        match text.strip_prefix('-') {
            Some(letters) if !letters.is_empty() => self.short(text, letters),
            _ => self.positional(text),
        }
    }

    fn long(&mut self, text: &str, flag: &str) -> Next {
        let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
        match (self.arg(|arg| arg.get_long() == Some(name)), value) {
            (None, _) => self.keep(text, Next::Any),
            (Some(arg), None) => self.keep(text, behind(arg)),
            (Some(arg), Some(value)) => self.valued(arg, text, &format!("--{name}"), value),
        }
    }

    /// `-y`, `-Ay`, `-y=false`, `-v6`, `-nshop`: letters are switches up to one that takes a value.
    fn short(&mut self, text: &str, letters: &str) -> Next {
        for (at, letter) in letters.char_indices() {
            let (before, rest) = (&letters[..at], &letters[at + letter.len_utf8()..]);
            let Some(arg) = self.arg(|arg| arg.get_short() == Some(letter)) else { break };
            if let Some(value) = rest.strip_prefix('=') {
                if !before.is_empty() {
                    self.read.push(format!("-{before}").into());
                }
                return self.valued(arg, &format!("-{letter}{rest}"), &format!("-{letter}"), value);
            }
            if is_verbosity(arg) && is_level(rest) {
                return self.keep(format!("-{before}{letter}={rest}"), Next::Any);
            }
            if rest.is_empty() {
                return self.keep(text, behind(arg));
            }
            if arg.get_action().takes_values() && !arg.is_require_equals_set() {
                break;
            }
        }
        self.keep(text, Next::Any)
    }

    /// `flag=value`: switches are there or not, other flags keep their value.
    fn valued(&mut self, arg: &Arg, text: &str, flag: &str, value: &str) -> Next {
        match truth(value) {
            Some(on) if matches!(arg.get_action(), ArgAction::SetTrue) => {
                self.forget(arg);
                if on { self.keep(flag, Next::Any) } else { Next::Any }
            }
            Some(on) if is_boolean(arg) => self.keep(format!("{flag}={on}"), Next::Any),
            _ => self.keep(text, Next::Any),
        }
    }

    /// The last one counts, as in kubectl.
    fn forget(&mut self, arg: &Arg) {
        let long = arg.get_long().map(|name| format!("--{name}"));
        let short = arg.get_short().map(|letter| format!("-{letter}"));
        self.read.retain(|word| ![&long, &short].into_iter().flatten().any(|flag| word == flag.as_str()));
    }

    fn positional(&mut self, text: &str) -> Next {
        self.read.push(text.into());
        match self.command.find_subcommand(text) {
            Some(command) if !self.named => {
                self.command = command;
                // What is being completed is not ours to rewrite.
                if command.get_name() == "__complete" { Next::Rest } else { Next::Any }
            }
            _ => {
                self.named = true;
                Next::Any
            }
        }
    }

    fn arg(&self, is_meant: impl Fn(&Arg) -> bool) -> Option<&'a Arg> {
        let global = self.root.get_arguments().filter(|arg| arg.is_global_set());
        self.command.get_arguments().chain(global).find(|&arg| is_meant(arg))
    }
}

/// What a flag without `=` makes of the word behind it.
fn behind(arg: &Arg) -> Next {
    if is_verbosity(arg) {
        Next::Level
    } else if arg.get_action().takes_values() && !arg.is_require_equals_set() {
        Next::Value
    } else {
        Next::Any
    }
}

fn is_verbosity(arg: &Arg) -> bool {
    arg.get_long() == Some("v")
}

fn is_level(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_boolean(arg: &Arg) -> bool {
    arg.get_possible_values().iter().any(|value| value.get_name() == "true")
}

/// The booleans of Go's flags.
fn truth(value: &str) -> Option<bool> {
    match value {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::{Cli, Command as Chosen, recover::FdbCli};

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
            ("demo -y=true -A=false", "demo -y"),
            ("-Ay=false -l a=b", "-A -l a=b"),
            ("-Ay -l=a=b", "-Ay -l=a=b"),
            ("demo --yes --yes=false", "demo"),
            ("demo -y --yes=false", "demo"),
            ("demo --yes=perhaps", "demo --yes=perhaps"),
            ("status --watch=true --no-headers=false", "status --watch"),
            ("demo --watch=true", "demo --watch=true"),
            ("-n status demo --wait=true", "-n status demo --wait"),
            ("--reason --yes=true demo", "--reason --yes=true demo"),
            ("demo -- --yes=true", "demo -- --yes=true"),
            ("__complete demo --yes=true", "__complete demo --yes=true"),
            ("resume demo --hold-awake=false", "resume demo"),
            ("recover process-groups x --wait=F --yes=t", "recover process-groups x --wait=false --yes"),
            ("demo -v 6", "demo -v=6"),
            ("-v 6 demo", "-v=6 demo"),
            ("--v 8 demo", "--v=8 demo"),
            ("-v6 demo", "-v=6 demo"),
            ("-Av6 --all", "-Av=6 --all"),
            ("-v=1 demo --v=0", "-v=1 demo --v=0"),
            ("-v demo", "-v demo"),
            ("-n6 demo", "-n6 demo"),
            ("-n v6 demo 6", "-n v6 demo 6"),
            ("demo --dry-run=server", "demo --dry-run=server"),
        ] {
            assert_eq!(rewritten(&Cli::command(), line), expected, "{line}");
        }
        for (line, expected) in [
            ("process-groups x -w=0 --version-check=T", "process-groups x -w=false --version-check=true"),
            ("process-groups x -w -y=true", "process-groups x -w -y"),
        ] {
            assert_eq!(rewritten(&FdbCli::command(), line), expected, "{line}");
        }
    }

    #[test]
    fn they_are_read_as_they_are_meant() {
        let read = |line: &str| Cli::read(std::iter::once("x").chain(line.split_whitespace()).map(Into::into));
        let cli = read("--all=true --wait=false -y=true --all-namespaces=true -v 7").unwrap();
        assert!(cli.sleep.act.all && cli.sleep.act.yes && cli.hub.all_namespaces && !cli.sleep.act.wait);
        assert_eq!((cli.hub.verbosity, cli.sleep.act.targets.len()), (7, 0));
        let Some(Chosen::Status(status)) = read("status --watch=true -n x -A=false").unwrap().command else { panic!() };
        assert!(status.watch);
        assert_eq!(read("demo --wait=perhaps").unwrap_err().exit_code(), 2);
    }
}
