//! What fdbcli 7.3 says: the commands that people and programs use on the way to a removed process group.

use serde::Serialize;

use super::database::Database;

/// What a program has written, and its exit code.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Output {
    pub stdout: String,
    pub stderr: String,
    pub code: i32,
}

/// A command line, taken apart.
pub struct Call {
    /// The commands of `--exec`, in order.
    pub commands: Vec<String>,
    /// `--timeout`, seconds; 0 is none.
    pub timeout: f64,
}

impl Call {
    /// Takes the command line of a container apart.
    pub fn parse(line: &[String]) -> Result<Self, Output> {
        let (program, arguments) = line.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
        if program != "fdbcli" {
            return Err(failed(127, &format!("exec: \"{program}\": executable file not found in $PATH\n")));
        }
        let mut call = Self { commands: Vec::new(), timeout: 0.0 };
        for pair in arguments.chunks(2) {
            match pair {
                [name, value] if name == "--exec" => {
                    let commands = value.split(';').map(|command| command.trim().to_owned());
                    call.commands.extend(commands.filter(|command| !command.is_empty()));
                }
                [name, value] if name == "--timeout" => call.timeout = value.parse().unwrap_or_default(),
                other => return Err(failed(1, &format!("ERROR: unknown option: `{}'\n", other[0]))),
            }
        }
        Ok(call)
    }
}

/// What fdbcli says when `--timeout` is over. It changes nothing.
pub fn timed_out() -> Output {
    failed(1, "Specified timeout reached -- exiting...\n")
}

fn failed(code: i32, text: &str) -> Output {
    Output { stderr: text.to_owned(), code, ..Output::default() }
}

/// Runs the commands, up to the first that fails.
pub fn run(database: &mut Database, call: &Call, now: f64) -> Output {
    let (mut output, mut session) = (Output::default(), Session::default());
    for command in &call.commands {
        let words: Vec<&str> = command.split_whitespace().collect();
        let result = match words.as_slice() {
            ["include", targets @ ..] => include(database, targets, now),
            ["writemode", state @ ("on" | "off")] => {
                session.writes = *state == "on";
                Ok("")
            }
            ["option", "on", "ACCESS_SYSTEM_KEYS"] => {
                session.system_keys = true;
                Ok("Option enabled for all transactions\n")
            }
            ["clear", key] => session.clear(database, key.trim_matches('"')),
            _ => Err(format!("ERROR: Unknown command `{command}'. Try `help'?\n")),
        };
        match result {
            Ok(text) => output.stdout += text,
            Err(text) => {
                output.stdout += &text;
                output.code = 1;
                break;
            }
        }
    }
    output
}

/// What the commands of one call have switched on.
#[derive(Default)]
struct Session {
    writes: bool,
    system_keys: bool,
}

type Answer = Result<&'static str, String>;

impl Session {
    /// Clears a key, if it is there or not.
    fn clear(&self, database: &mut Database, key: &str) -> Answer {
        if !self.writes {
            return Err("ERROR: writemode must be enabled to set or clear keys in the database.\n".to_owned());
        }
        if key.starts_with(r"\xff") && !self.system_keys {
            return Err("ERROR: Key outside legal range (2004)\n".to_owned());
        }
        database.keys.remove(key);
        Ok("Committed (1)\n")
    }
}

/// Addresses and localities.
fn include(database: &mut Database, words: &[&str], now: f64) -> Answer {
    let mut targets = Vec::new();
    for word in words {
        let address = word.strip_suffix(":4500").unwrap_or(word);
        let is_locality = word.starts_with("locality_") && word.contains(':');
        if !is_locality && address.parse::<std::net::IpAddr>().is_err() {
            return Err(format!("ERROR: '{word}' is neither a valid network endpoint address nor a locality\n"));
        }
        targets.push(address.to_owned());
    }
    database.include(&targets, now);
    Ok("")
}
