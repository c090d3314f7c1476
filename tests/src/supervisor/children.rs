//! The supervisor's child processes: started with a log and a record, watched, ended.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use tokio::process::Command;
use tokio::sync::watch;

use crate::process::{self, Rank, Record, Signal};

/// All children of one supervisor.
#[derive(Clone)]
pub struct Children {
    pids: PathBuf,
    logs: PathBuf,
    running: Arc<Mutex<BTreeMap<String, Child>>>,
}

#[derive(Clone)]
struct Child {
    record: Record,
    recipe: Recipe,
    exit: watch::Receiver<Option<ExitStatus>>,
}

/// What it takes to start a process once more, on the same ports and data.
#[derive(Clone)]
struct Recipe {
    program: OsString,
    args: Vec<OsString>,
    variables: Vec<(OsString, Option<OsString>)>,
    folder: Option<PathBuf>,
}

impl Recipe {
    fn of(command: &Command) -> Self {
        let command = command.as_std();
        Self {
            program: command.get_program().to_owned(),
            args: command.get_args().map(ToOwned::to_owned).collect(),
            variables: command
                .get_envs()
                .map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)))
                .collect(),
            folder: command.get_current_dir().map(Path::to_owned),
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        for (name, value) in &self.variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command
    }
}

impl Children {
    /// None yet; records go to `pids`, output to `logs`.
    ///
    /// # Errors
    /// When the folders cannot be made.
    pub fn new(pids: &Path, logs: &Path) -> Result<Self> {
        for folder in [pids, logs] {
            fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        }
        Ok(Self { pids: pids.to_owned(), logs: logs.to_owned(), running: Arc::default() })
    }

    /// Where a child's output goes.
    pub fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    /// Starts a process. A name can be used again once its process has ended.
    ///
    /// # Errors
    /// When a process of this name runs, or this one cannot be started.
    pub fn spawn(&self, name: &str, rank: Rank, command: Command) -> Result<Record> {
        self.spawn_with(name, rank, command, Stdio::null())
    }

    /// Starts a process with this standard input. It has none when it is started again.
    ///
    /// # Errors
    /// As [`Children::spawn`].
    pub fn spawn_with(&self, name: &str, rank: Rank, mut command: Command, input: Stdio) -> Result<Record> {
        if self.record(name).is_some() {
            bail!("{name} runs already");
        }
        let log = self.append(name)?;
        let recipe = Recipe::of(&command);
        command
            .stdin(input)
            .stdout(log.try_clone().context("share a log between two outputs")?)
            .stderr(log)
            // Not in the terminal's foreground group: Ctrl-C there is for the one who typed it.
            .process_group(0);
        let mut process = command.spawn().with_context(|| format!("start {name}: {}", recipe.program.display()))?;
        let pid = process.id().with_context(|| format!("{name} has ended at once"))?;
        let record = Record::of(name, pid, rank)?;
        record.save(&self.pids)?;
        let (ended, exit) = watch::channel(None);
        self.lock().insert(name.to_owned(), Child { record: record.clone(), recipe, exit });
        let (pids, own) = (self.pids.clone(), record.clone());
        tokio::spawn(async move {
            let status = process.wait().await.ok();
            own.forget(&pids);
            tracing::info!(process = own.name, pid = own.pid, status = status.map(|s| s.to_string()), "ended");
            let _ = ended.send(status.or(Some(ExitStatus::default())));
        });
        tracing::info!(process = name, pid, "started");
        Ok(record)
    }

    /// The record of a process that runs.
    pub fn record(&self, name: &str) -> Option<Record> {
        let running = self.lock();
        running.get(name).filter(|child| child.exit.borrow().is_none()).map(|child| child.record.clone())
    }

    /// Everything that runs.
    pub fn records(&self) -> Vec<Record> {
        self.lock().values().filter(|child| child.exit.borrow().is_none()).map(|child| child.record.clone()).collect()
    }

    /// Refuses to wait any longer for a process that has ended.
    ///
    /// # Errors
    /// When it has ended; the last lines of its log are part of the error.
    pub fn still_alive(&self, name: &str) -> Result<()> {
        match self.record(name) {
            Some(_) => Ok(()),
            None => Err(anyhow!(
                "{name} has ended. Its last lines, from {}:\n{}",
                self.log(name).display(),
                self.tail(name, 15)
            )),
        }
    }

    /// Sends a signal and, if it is one that ends a process, waits until it has.
    ///
    /// # Errors
    /// When no such process runs, or it does not end within 30 seconds.
    pub async fn signal(&self, name: &str, what: Signal) -> Result<()> {
        let child = self.lock().get(name).cloned();
        let mut child =
            child.filter(|child| child.exit.borrow().is_none()).with_context(|| format!("{name} does not run"))?;
        child.record.signal(what);
        if matches!(what, Signal::SIGTERM | Signal::SIGKILL) {
            let ended = child.exit.wait_for(Option::is_some);
            tokio::time::timeout(Duration::from_secs(30), ended)
                .await
                .with_context(|| format!("{name} does not end"))??;
        }
        Ok(())
    }

    /// Starts a process again as it was started, with the same ports and data. One that still runs is killed first.
    ///
    /// # Errors
    /// When there never was such a process, or it does not start.
    pub async fn restart(&self, name: &str) -> Result<Record> {
        let child = self.lock().get(name).cloned().with_context(|| format!("there is no {name}"))?;
        if self.record(name).is_some() {
            self.signal(name, Signal::SIGKILL).await?;
        }
        self.spawn(name, child.record.rank, child.recipe.command())
    }

    /// Ends all of them, rank by rank.
    pub async fn end(&self) {
        let records = self.records();
        let ended = tokio::task::spawn_blocking(move || process::end(records, Duration::from_secs(4)));
        if let Err(error) = ended.await {
            tracing::error!(%error, "ending the children");
        }
    }

    fn append(&self, name: &str) -> Result<File> {
        let path = self.log(name);
        OpenOptions::new().create(true).append(true).open(&path).with_context(|| format!("open {}", path.display()))
    }

    fn tail(&self, name: &str, lines: usize) -> String {
        let text = fs::read_to_string(self.log(name)).unwrap_or_default();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Child>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
