//! Processes that a world has started, identified by process ID and start time.
//!
//! Each has a record in the world's folder, so that `testbed down` can end it after a crash of the supervisor, and will
//! not end another process that got the same process ID later.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::signal;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

pub use nix::sys::signal::Signal;

/// Which processes end before which: clients before servers, and API servers before etcd, because one whose etcd is
/// gone ignores SIGTERM for more than a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rank {
    /// Owns all others; restarts nothing, so it may go first.
    Supervisor,
    /// Programs of ours.
    Program,
    /// Controller managers.
    Manager,
    /// API servers and the EC2 simulator.
    Server,
    /// etcd.
    Store,
}

/// One started process, as its file in `DIR/pids` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its name in the world, such as `hub-apiserver`.
    pub name: String,
    /// Process ID.
    pub pid: i32,
    /// When it started, in clock ticks since the machine did: field 22 of `/proc/PID/stat`.
    pub start_time: u64,
    /// When it has to end.
    pub rank: Rank,
}

impl Record {
    /// Describes a process that runs now.
    ///
    /// # Errors
    /// When it has ended already, or there is no `/proc`.
    pub fn of(name: &str, pid: u32, rank: Rank) -> Result<Self> {
        let pid = i32::try_from(pid).context("process ID out of range")?;
        let (start_time, _) =
            observation(pid).with_context(|| format!("{name} (pid {pid}) ended at once, or /proc is not there"))?;
        Ok(Self { name: name.to_owned(), pid, start_time, rank })
    }

    /// Whether this very process still runs. One that has ended but was not yet waited for does not.
    pub fn is_alive(&self) -> bool {
        matches!(observation(self.pid), Some((start, state)) if start == self.start_time && !matches!(state, 'Z' | 'X'))
    }

    /// Resident memory in MiB, 0 if it has ended.
    pub fn memory_mib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
    }

    /// Sends a signal, if it still runs.
    pub fn signal(&self, what: Signal) {
        if self.is_alive()
            && let Err(error) = signal::kill(Pid::from_raw(self.pid), what)
        {
            tracing::warn!(process = self.name, %what, %error, "signal not sent");
        }
    }

    /// Writes the record into the world's folder.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, pids: &Path) -> Result<()> {
        fs::create_dir_all(pids).with_context(|| format!("create {}", pids.display()))?;
        let path = pids.join(format!("{}.json", self.name));
        fs::write(&path, serde_json::to_vec(self)?).with_context(|| format!("write {}", path.display()))
    }

    /// Removes the record.
    pub fn forget(&self, pids: &Path) {
        let _ = fs::remove_file(pids.join(format!("{}.json", self.name)));
    }
}

/// Every record in a world's folder. Files that cannot be read are passed over: a crash may have cut one short.
pub fn records(pids: &Path) -> Vec<Record> {
    let mut found: Vec<Record> = fs::read_dir(pids)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| serde_json::from_slice(&fs::read(entry.path()).ok()?).ok())
        .collect();
    found.sort_by(|a, b| (a.rank, &a.name).cmp(&(b.rank, &b.name)));
    found
}

/// Memory of a process in MB: all of it at its peak, all of it now, and what is its own.
///
/// # Errors
/// When it does not run.
pub fn memory(pid: i32) -> Result<[f64; 3]> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("read its status")?;
    let field = |name: &str| -> Result<f64> {
        let line = status.lines().find(|line| line.starts_with(name)).with_context(|| format!("no {name}"))?;
        let kilobytes: f64 = line.split_whitespace().nth(1).context("no number")?.parse()?;
        Ok(kilobytes / 1024.0)
    };
    Ok([field("VmHWM:")?, field("VmRSS:")?, field("RssAnon:")?])
}

/// Seconds of CPU that a process has used.
///
/// # Errors
/// When it does not run.
pub fn cpu(pid: i32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("read its stat")?;
    // Times in ticks of 10 ms are fields 14 and 15; the name before them may have blanks.
    let fields = stat.rsplit_once(") ").context("no name")?.1.split(' ').skip(11).take(2);
    let ticks: f64 = fields.map(|ticks| ticks.parse().unwrap_or(0.0)).sum();
    Ok(ticks / 100.0)
}

/// Ends processes rank by rank: SIGTERM, and SIGKILL for those that are still there after `grace`; servers and stores
/// by SIGKILL at once. SIGCONT goes along, because a frozen process does not see SIGTERM. Blocks until all are gone.
pub fn end(mut processes: Vec<Record>, grace: Duration) {
    processes.sort_by_key(|process| process.rank);
    for group in processes.chunk_by(|a, b| a.rank == b.rank) {
        // An API server that is asked to end waits for its clients, and what it serves is thrown away.
        let asks = group.first().is_some_and(|process| process.rank < Rank::Server);
        for process in group.iter().filter(|_| asks) {
            process.signal(Signal::SIGTERM);
            process.signal(Signal::SIGCONT);
        }
        if !asks || !gone(group, grace) {
            for process in group {
                process.signal(Signal::SIGKILL);
            }
            gone(group, Duration::from_secs(10));
        }
    }
}

fn gone(group: &[Record], within: Duration) -> bool {
    let start = Instant::now();
    while group.iter().any(Record::is_alive) {
        if start.elapsed() > within {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Start time and state of a process.
fn observation(pid: i32) -> Option<(u64, char)> {
    let stat = fs::read_to_string(PathBuf::from(format!("/proc/{pid}/stat"))).ok()?;
    // The second field is the name in parentheses, which may itself hold spaces and parentheses.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((fields.nth(18)?.parse().ok()?, state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_its_own_process_and_no_stranger_with_the_same_id() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = Record::of("sleep", child.id(), Rank::Program).unwrap();
        let stranger = Record { start_time: own.start_time + 1, ..own.clone() };
        assert!(own.is_alive() && own.memory_mib() < 100);
        assert!(!stranger.is_alive());
        stranger.signal(Signal::SIGKILL);
        assert!(own.is_alive());
        own.signal(Signal::SIGSTOP);
        end(vec![own.clone()], Duration::from_secs(5));
        assert!(!own.is_alive());
        child.wait().unwrap();
    }
}
