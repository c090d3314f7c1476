//! Commands of the plugin: a dialog shows one, and what it prints.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde::Serialize;
use shared::text::quoted;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// How long a command may take.
const LIMIT: Duration = Duration::from_mins(5);
/// Bytes of each of its outputs that are read.
const MAX_OUTPUT: u64 = 128 * 1024;
/// Exit code of a command that took too long.
const TIMED_OUT: i32 = 4;
/// Commands that run at once.
const CONCURRENCY: usize = 4;
/// The flag of a command that changes nothing. What a person runs is the command without it.
pub const DRY_RUN: &str = "--dry-run=server";

/// The plugin, as this user runs it.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
    /// Which hub and as whom; each with whether it is a secret.
    flags: Vec<(String, bool)>,
    slots: Semaphore,
}

/// The result of a command.
#[derive(Clone, Debug, Serialize)]
pub struct CommandResult {
    /// The command line, without a dry run.
    command: String,
    /// Its exit code: 0 done, 1 error, 2 usage, 3 refused, 4 timed out.
    code: i32,
    /// Standard output, then standard error.
    output: String,
}

impl Program {
    /// An executable, and the flags that say which hub and as whom, each with whether it is a secret.
    pub fn new(path: PathBuf, flags: Vec<(String, bool)>) -> Self {
        Self { path, flags, slots: Semaphore::new(CONCURRENCY) }
    }

    /// The command line for a shell, without secrets.
    pub fn line(&self, words: &[String]) -> String {
        let shown = |word: &String| match word.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => format!("{flag}={}", quoted(value)),
            _ => quoted(word),
        };
        let flags = self.flags.iter().filter(|(_, is_secret)| !is_secret).map(|(flag, _)| flag);
        let words = words.iter().filter(|word| *word != DRY_RUN).chain(flags).map(shown);
        ["kubectl".to_owned(), "hibernate".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
    }

    /// Runs it to its end. A command whose result is dropped ends.
    pub async fn run(&self, words: &[String]) -> CommandResult {
        let _slot = self.slots.acquire().await;
        let (code, output) = timeout(LIMIT, self.output(words))
            .await
            .unwrap_or_else(|_| Ok((TIMED_OUT, format!("not done after {} minutes", LIMIT.as_secs() / 60))))
            .unwrap_or_else(|error| (1, format!("cannot run {}: {error}", self.path.display())));
        CommandResult { command: self.line(words), code, output }
    }

    async fn output(&self, words: &[String]) -> std::io::Result<(i32, String)> {
        let mut command = Command::new(&self.path);
        let flags = self.flags.iter().map(|(flag, _)| flag);
        command.args(words).args(flags).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn()?;
        let (out, error) = (child.stdout.take(), child.stderr.take());
        let (status, out, error) = tokio::join!(child.wait(), read(out), read(error));
        Ok((status?.code().unwrap_or(1), out + &error))
    }
}

/// The begin of an output; the rest is read and dropped, so that the command goes on.
async fn read(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut pipe) = pipe else { return String::new() };
    let mut bytes = Vec::new();
    let _ = (&mut pipe).take(MAX_OUTPUT).read_to_end(&mut bytes).await;
    let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_a_person_types_it_without_secrets_and_dry_run() {
        let flags = [("--context=staging", false), ("--token=t", true)].map(|(flag, secret)| (flag.to_owned(), secret));
        let program = Program::new(PathBuf::from("x"), flags.into());
        let words = ["cd/demo", "--reason=a --dry-run=server b", DRY_RUN, "--yes"].map(str::to_owned);
        let line = "kubectl hibernate cd/demo --reason='a --dry-run=server b' --yes --context=staging";
        assert_eq!(program.line(&words), line);
    }
}
