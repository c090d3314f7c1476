//! What fdbcli 7.3 says: the commands that people and programs use on the way to a removed process group.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::database::{Database, Excluded, LOCALITY};

/// What a program has written, and its exit code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Exit code.
    pub code: i32,
}

/// A command line, taken apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The commands of `--exec`, in order.
    pub commands: Vec<String>,
    /// `--timeout`, seconds; 0 is none.
    pub timeout: f64,
}

impl Call {
    /// Takes the command line of a container apart: `fdbcli ...`, or a shell with `-c 'fdbcli ...'`.
    ///
    /// # Errors
    /// What the container's runtime or fdbcli says to a line that is none: output and exit code.
    pub fn parse(line: &[String]) -> Result<Self, Output> {
        let words: Vec<String> = match line {
            [shell, flag, script, ..] if is_shell(shell) && flag.starts_with('-') && flag.ends_with('c') => {
                split(script)
            }
            _ => line.to_vec(),
        };
        let Some((program, arguments)) = words.split_first() else { return Err(not_found("")) };
        if program.rsplit('/').next() != Some("fdbcli") {
            return Err(not_found(program));
        }
        let mut call = Self { commands: Vec::new(), timeout: 0.0 };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let (name, inline) = argument.split_once('=').map_or((argument.as_str(), None), |(n, v)| (n, Some(v)));
            let mut value = || inline.map(str::to_owned).or_else(|| arguments.next().cloned()).unwrap_or_default();
            match name {
                "--exec" => call.commands.extend(
                    value().split(';').map(|command| command.trim().to_owned()).filter(|command| !command.is_empty()),
                ),
                "--timeout" => call.timeout = value().parse().unwrap_or_default(),
                "-C" | "--cluster_file" | "--log-dir" => drop(value()),
                "--log" | "--no-status" | "--no-hints" => {}
                other => return Err(failed(&format!("ERROR: unknown option: `{other}'\n"))),
            }
        }
        if call.commands.is_empty() {
            return Err(failed("ERROR: a terminal is needed: use --exec\n"));
        }
        Ok(call)
    }

    /// Whether it can be answered while the database does not answer.
    pub fn needs_database(&self) -> bool {
        !self.commands.iter().all(|command| command.starts_with("status"))
    }
}

/// What fdbcli says when `--timeout` is over. It changes nothing.
pub fn timed_out() -> Output {
    Output { stderr: "Specified timeout reached -- exiting...\n".to_owned(), code: 1, ..Output::default() }
}

/// Runs the commands, up to the first that fails.
pub fn run(database: &mut Database, call: &Call, now: f64) -> Output {
    let (mut output, mut session) = (Output::default(), Session::default());
    for command in &call.commands {
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        let (name, arguments) = words.split_first().map_or(("", &[][..]), |(name, rest)| (name.as_str(), rest));
        let result = match name {
            "exclude" if arguments.is_empty() => Ok(list(database)),
            "exclude" => addresses(arguments).map(|targets| exclude(database, &targets, now)),
            "include" => include(database, arguments, now),
            "status" => status(database, arguments, now),
            "writemode" => session.write_mode(arguments),
            "option" => session.option(arguments),
            "clear" => session.clear(database, arguments),
            _ => Err(format!("ERROR: Unknown command `{name}'. Try `help'?\n")),
        };
        match result {
            Ok(text) => output.stdout += &text,
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

impl Session {
    fn write_mode(&mut self, arguments: &[String]) -> Result<String, String> {
        self.writes = match arguments {
            [word] if word == "on" => true,
            [word] if word == "off" => false,
            _ => return Err("usage: writemode <on|off>\n".to_owned()),
        };
        Ok(String::new())
    }

    fn option(&mut self, arguments: &[String]) -> Result<String, String> {
        match arguments {
            [state, name] if name == "ACCESS_SYSTEM_KEYS" && state == "on" => {
                self.system_keys = true;
                Ok("Option enabled for all transactions\n".to_owned())
            }
            [_, name] => {
                Err(format!("ERROR: invalid option '{name}'. Try `help options' for a list of available options.\n"))
            }
            _ => Err("usage: option <STATE> <OPTION> <ARG>\n".to_owned()),
        }
    }

    /// Clears a key, if it is there or not.
    fn clear(&self, database: &mut Database, arguments: &[String]) -> Result<String, String> {
        let [key] = arguments else { return Err("usage: clear <KEY>\n".to_owned()) };
        let key = key.trim_matches('"');
        if !self.writes {
            return Err("ERROR: writemode must be enabled to set or clear keys in the database.\n".to_owned());
        }
        if key.starts_with(r"\xff") && !self.system_keys {
            return Err("ERROR: Key outside legal range (2004)\n".to_owned());
        }
        database.keys.remove(key);
        Ok("Committed (1)\n".to_owned())
    }
}

fn exclude(database: &mut Database, targets: &[String], now: f64) -> String {
    let mut text = "Waiting for state to be removed from all excluded servers. This may take a while.\n\
        (Interrupting this wait with CTRL+C will not cancel the data movement.)\n"
        .to_owned();
    for (target, outcome) in database.exclude(targets, now) {
        let verdict = match outcome {
            Excluded::Safe => "Successfully excluded. It is now safe to remove this process from the cluster.",
            Excluded::Missing => {
                "WARNING: Missing from cluster! Be sure that you excluded the correct processes before removing them from \
                 the cluster!"
            }
        };
        text.extend(["  ", &target, "  ---- ", verdict, "\n"]);
    }
    text
}

fn list(database: &Database) -> String {
    if database.exclusions.is_empty() {
        return "There are currently no servers or localities excluded from the database.\n\
            To learn how to exclude a server, type `help exclude'.\n"
            .to_owned();
    }
    let (localities, servers): (Vec<&String>, Vec<&String>) =
        database.exclusions.iter().partition(|target| target.starts_with(LOCALITY));
    let mut text = format!(
        "There are currently {} servers or localities being excluded from the database:\n",
        database.exclusions.len()
    );
    for target in servers.into_iter().chain(localities) {
        text.extend(["  ", target, "\n"]);
    }
    text + "To find out whether it is safe to remove one or more of these\nservers from the cluster, type `exclude <addresses>'.\n\
        To return one of these servers to the cluster, type `include <addresses>'.\n"
}

fn include(database: &mut Database, arguments: &[String], now: f64) -> Result<String, String> {
    if arguments.is_empty() {
        return Err("usage: include all | [<ADDRESS...>] [locality_dcid:<excludedcid>]\n".to_owned());
    }
    if arguments == ["all"] {
        database.include_all(now);
        return Ok(String::new());
    }
    database.include(&addresses(arguments)?, now);
    Ok(String::new())
}

/// Addresses and localities of a command. `failed` and the like are passed over.
fn addresses(arguments: &[String]) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for word in arguments.iter().filter(|word| !matches!(word.as_str(), "failed" | "no_wait" | "FORCE")) {
        let address = word.strip_suffix(":4500").unwrap_or(word);
        let is_locality = word.starts_with("locality_") && word.contains(':');
        if !is_locality && address.parse::<std::net::IpAddr>().is_err() {
            return Err(format!("ERROR: '{word}' is neither a valid network endpoint address nor a locality\n"));
        }
        found.push(address.to_owned());
    }
    Ok(found)
}

fn status(database: &Database, arguments: &[String], now: f64) -> Result<String, String> {
    match arguments.first().map(String::as_str) {
        Some("json") => Ok(format!("{:#}\n", status_json(database, now))),
        None | Some("minimal") if database.settings.available => Ok("The database is available.\n".to_owned()),
        None | Some("minimal") => Ok("The database is unavailable; type `status' for more information.\n".to_owned()),
        Some(_) => Err("usage: status [minimal|details|json]\n".to_owned()),
    }
}

/// The parts of `status json` that the operator and our plugin read.
pub fn status_json(database: &Database, now: f64) -> Value {
    let available = database.settings.available;
    let processes: serde_json::Map<String, Value> = database
        .processes
        .iter()
        .map(|(group, process)| {
            let value = json!({
                "address": format!("{}:4500", process.address),
                "class_type": process.class,
                "excluded": database.is_excluded(group),
                "locality": {"instance_id": group, "zoneid": process.zone},
                "version": "7.3.69",
            });
            (process.pod.clone(), value)
        })
        .collect();
    json!({
        "client": {
            "coordinators": {"quorum_reachable": available},
            "database_status": {"available": available, "healthy": available && database.settings.fault_tolerant},
        },
        "cluster": {
            "database_available": available,
            "active_generations": 1,
            "fault_tolerance": {"max_zone_failures_without_losing_data": i32::from(database.settings.fault_tolerant)},
            "full_replication": database.settings.fault_tolerant,
            "processes": processes,
            "recovery_state": {
                "name": "fully_recovered",
                "active_generations": 1,
                "seconds_since_last_recovered": database.recovery_age(now),
            },
        },
    })
}

fn is_shell(program: &str) -> bool {
    matches!(program.rsplit('/').next(), Some("sh" | "bash"))
}

/// Words of a shell's script, with quotes of both kinds and backslashes; nothing else of a shell.
fn split(script: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = script.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(letters.next()),
            (None, letter) if letter.is_whitespace() => words.extend(word.take()),
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

fn not_found(program: &str) -> Output {
    Output {
        stderr: format!("exec: \"{program}\": executable file not found in $PATH\n"),
        code: 127,
        ..Output::default()
    }
}

fn failed(text: &str) -> Output {
    Output { stderr: text.to_owned(), code: 1, ..Output::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fdb::database::{Process, key};
    use crate::fdb::options::Settings;

    fn line(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn command_lines_are_taken_apart() {
        let call = Call::parse(&line(&[
            "fdbcli",
            "--timeout",
            "10",
            "--exec",
            "include locality_instance_id:a-1; status minimal",
        ]));
        let commands = line(&["include locality_instance_id:a-1", "status minimal"]);
        assert_eq!(call, Ok(Call { commands, timeout: 10.0 }));
        let shell = Call::parse(&line(&["/bin/bash", "-c", "fdbcli --exec \"exclude 10.0.0.1\" --timeout=3"]));
        assert_eq!(shell, Ok(Call { commands: line(&["exclude 10.0.0.1"]), timeout: 3.0 }));
        assert_eq!(Call::parse(&line(&["ls"])).unwrap_err().code, 127);
        assert_eq!(Call::parse(&line(&["fdbcli"])).unwrap_err().code, 1);
    }

    #[test]
    fn exclusions_come_and_go() {
        let mut database = Database::new(Settings::fast());
        let process = |class: &str| Process {
            class: class.to_owned(),
            address: "10.0.0.1".to_owned(),
            zone: "z".to_owned(),
            pod: "p".to_owned(),
            volume: Some("u".to_owned()),
        };
        database.mount("u", "claim", "storage-1");
        database.report("storage-1", process("storage"));
        let mut say = |text: &str| run(&mut database, &Call { commands: line(&[text]), timeout: 0.0 }, 5.0);
        assert!(say("exclude").stdout.contains("no servers or localities excluded"));
        assert!(say("exclude locality_instance_id:storage-1").stdout.contains("Successfully excluded"));
        assert!(say("exclude locality_instance_id:storage-2").stdout.contains("Missing from cluster"));
        assert!(say("exclude").stdout.contains("There are currently 2 servers"));
        let bad = say("include storage-1");
        assert_eq!((bad.code, bad.stdout.contains("neither a valid network endpoint")), (1, true), "{bad:?}");
        assert_eq!(say("dance").code, 1);
        assert_eq!(database.recovered_at.to_bits(), 5.0_f64.to_bits());
        assert!(database.volumes["u"].drained && database.is_excluded("storage-1"));
        run(&mut database, &Call { commands: line(&["include locality_instance_id:storage-1"]), timeout: 0.0 }, 6.0);
        assert!(!database.volumes["u"].drained && !database.is_excluded("storage-1"));
        assert_eq!(database.recovered_at.to_bits(), 6.0_f64.to_bits());
    }

    #[test]
    fn keys_are_cleared_by_who_may_write_them() {
        let entry = key("pendingForInclusion", "", "storage-1");
        let mut database = Database { keys: [(entry.clone(), 1.0)].into(), ..Database::default() };
        let mut say = |before: &str| {
            let call = Call::parse(&line(&["fdbcli", "--exec", &format!("{before}clear {entry}")])).unwrap();
            run(&mut database, &call, 5.0)
        };
        assert!(say("").stdout.contains("writemode must be enabled"));
        assert!(say("writemode on; ").stdout.contains("Key outside legal range"));
        assert_eq!(say("option on ACCESS_SYSTEM_KEYS; ").code, 1);
        assert_eq!(say("writemode on; option on READ_SYSTEM_KEYS; ").code, 1);
        let cleared = say("writemode on; option on ACCESS_SYSTEM_KEYS; ");
        assert!(cleared.code == 0 && cleared.stdout.ends_with("Committed (1)\n"), "{cleared:?}");
        assert!(database.keys.is_empty());
    }
}
