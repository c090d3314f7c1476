//! Which targets are at work, in a file that outlives the process: a reconcile that has crashed it is not repeated at
//! once.
//!
//! A mark is one write to the page cache, which survives whatever ends the process. Each target that the next process
//! finds marked is a suspect: it is left alone for longer after each crash, and then reconciled with few others, so that
//! the next crash marks fewer.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

use super::backoff::CRASH_BACKOFF;
use super::clock;
use fair::{FairLimit, FairPermit};

const FILE: &str = "targets-at-work";
/// Bytes of a record: names and UIDs fit, whatever Kubernetes allows.
const RECORD_BYTES: usize = 512;
/// Records of the file. What is at work besides has no mark.
const MAX_RECORDS: usize = 4_096;
/// What has worked for this long, such as the watch of a spoke, has not ended the process that began it.
const PROVEN_AFTER: Duration = Duration::from_mins(10);
/// A suspect that is not reconciled for this long no longer exists on the hub.
const EXPIRES_AFTER: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);
/// The longest pause of a suspect.
const MAX_PAUSE: Duration = Duration::from_secs(CRASH_BACKOFF.most.as_secs() * 3 / 2);
/// When a suspect is tried again while others are at work.
const RETRY_MILLISECONDS: std::ops::Range<u64> = 250..750;

/// The marks of this process; none without a folder.
#[derive(Clone, Default)]
pub struct CrashMarks(Option<Arc<Inner>>);

struct Inner {
    file: File,
    state: Mutex<State>,
    /// Suspects at once: many are marked by a process that was killed for another reason.
    first_crash: Arc<FairLimit>,
    /// And those that were marked again.
    repeated_crash: Arc<FairLimit>,
    has_failed: AtomicBool,
}

#[derive(Default)]
struct State {
    entries: HashMap<String, Entry>,
    /// Places in the file that are free.
    free: Vec<usize>,
}

/// A target that is at work, or a suspect.
struct Entry {
    place: usize,
    /// Markers that have not been dropped.
    markers: usize,
    since: Instant,
    /// When a reconcile of it has come to an end for the first time in this process.
    completed: Option<Instant>,
    /// Whether it was reported that it is left alone.
    reported: bool,
    record: Record,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    /// Processes in a row that have ended while it was at work.
    crashes: u32,
    /// Until when it is left alone, in seconds.
    until: i64,
    name: String,
}

/// A target is at work until this is dropped.
#[derive(Default)]
pub struct WorkMarker(Option<(Arc<Inner>, String, Option<FairPermit>)>);

/// How long a target is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashBackoff {
    pub pause: Duration,
    /// How many processes in a row have ended while it was at work, until that is reported.
    pub unreported: Option<u32>,
}

impl CrashMarks {
    /// Reads what the last process has left in this folder.
    ///
    /// # Errors
    /// When the folder cannot be used, or another process uses it.
    pub fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let path = folder.join(FILE);
        let mut file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        file.try_lock().map_err(io::Error::from)?;
        let mut bytes = Vec::new();
        (&mut file).take((MAX_RECORDS * RECORD_BYTES) as u64).read_to_end(&mut bytes)?;
        let (first_crash, repeated_crash) = (FairLimit::new(64, 16), FairLimit::new(8, 1));
        let (state, has_failed) = (Mutex::default(), AtomicBool::new(false));
        let inner = Inner { file, state, first_crash, repeated_crash, has_failed };
        inner.recover(&bytes);
        Ok(Self(Some(Arc::new(inner))))
    }

    /// Marks a target as at work, unless it is to be left alone. `uid` is that of its object.
    ///
    /// # Errors
    /// When it is left alone.
    pub fn begin(&self, system: &str, tenant: &str, uid: Option<&str>, name: &str) -> Result<WorkMarker, CrashBackoff> {
        let Some(inner) = &self.0 else { return Ok(WorkMarker::default()) };
        let key = format!("{system}/{}", uid.unwrap_or(name));
        let mut state = inner.state.lock();
        let permit = match state.entries.get_mut(&key) {
            Some(entry) if entry.markers == 0 => inner.admit(entry, tenant)?,
            _ => None,
        };
        let State { entries, free } = &mut *state;
        if !entries.contains_key(&key) {
            let Some(place) = free.pop() else { return Ok(WorkMarker::default()) };
            let record = Record { crashes: 0, until: 0, name: name.to_owned() };
            let entry = Entry { place, markers: 0, since: Instant::now(), completed: None, reported: false, record };
            entries.insert(key.clone(), entry);
        }
        let Some(entry) = entries.get_mut(&key) else { return Ok(WorkMarker::default()) };
        entry.markers += 1;
        if entry.markers == 1 {
            entry.since = Instant::now();
        }
        let is_news = entry.record.crashes > 0 && entry.is_proven();
        if is_news {
            entry.record.crashes = 0;
        }
        if entry.markers == 1 || is_news {
            inner.write(entry.place, &entry.record.line(&key, true));
        }
        Ok(WorkMarker(Some((inner.clone(), key, permit))))
    }
}

impl Inner {
    /// Makes suspects of all that were at work.
    fn recover(&self, bytes: &[u8]) {
        let now = clock::now();
        let mut state = self.state.lock();
        let mut found = Vec::new();
        for (place, line) in bytes.chunks(RECORD_BYTES).enumerate() {
            let Some((key, mut record, at_work)) = Record::parse(line) else { continue };
            // A clock that was set back makes no pause longer.
            record.until =
                now.saturating_add(MAX_PAUSE).map_or(record.until, |most| record.until.min(most.as_second()));
            if at_work {
                record.crashes = record.crashes.saturating_add(1);
                let pause = CRASH_BACKOFF.pause(record.crashes - 1).mul_f64(rand::random_range(1.0..1.5));
                record.until = now.saturating_add(pause).map_or(record.until, Timestamp::as_second);
                found.push(format!("{} ({})", record.name, record.crashes));
            } else if Timestamp::from_second(record.until).is_ok_and(|until| now.duration_since(until) > EXPIRES_AFTER)
            {
                self.write(place, "");
                continue;
            }
            self.write(place, &record.line(&key, false));
            let since = Instant::now();
            state.entries.insert(key, Entry { place, markers: 0, since, completed: None, reported: false, record });
        }
        let used: HashSet<usize> = state.entries.values().map(|entry| entry.place).collect();
        state.free = (0..MAX_RECORDS).rev().filter(|place| !used.contains(place)).collect();
        if !found.is_empty() {
            let (count, names) = (found.len(), found.iter().take(10).cloned().collect::<Vec<_>>().join(", "));
            warn!(
                count,
                names, "the last process ended while it worked on these targets: they are left alone for a while"
            );
        }
    }

    /// Whether a suspect may be reconciled now: then its turn, until one reconcile of it has come to an end.
    fn admit(&self, entry: &mut Entry, tenant: &str) -> Result<Option<FairPermit>, CrashBackoff> {
        let left = entry.record.until.saturating_sub(clock::now().as_second());
        if let Some(left) = u64::try_from(left).ok().filter(|left| *left > 0) {
            let pause = Duration::from_secs(left);
            let unreported = (!std::mem::replace(&mut entry.reported, true)).then_some(entry.record.crashes);
            return Err(CrashBackoff { pause, unreported });
        }
        if entry.completed.is_some() {
            return Ok(None);
        }
        let limit = if entry.record.crashes > 1 { &self.repeated_crash } else { &self.first_crash };
        let retry =
            || CrashBackoff { pause: Duration::from_millis(rand::random_range(RETRY_MILLISECONDS)), unreported: None };
        limit.try_acquire(tenant).map(Some).ok_or_else(retry)
    }

    fn end(&self, key: &str) {
        let mut state = self.state.lock();
        let State { entries, free } = &mut *state;
        let Some(entry) = entries.get_mut(key) else { return };
        entry.markers -= 1;
        if entry.markers > 0 {
            return;
        }
        let place = entry.place;
        if entry.record.crashes == 0 || entry.is_proven() {
            entries.remove(key);
            free.push(place);
            self.write(place, "");
        } else {
            // Also after one good reconcile: the target chooses which one ends the process.
            self.write(place, &entry.record.line(key, false));
        }
    }

    /// Writes a record. A file that takes none costs the marks and nothing else.
    fn write(&self, place: usize, text: &str) {
        let line = format!("{text:<width$}\n", width = RECORD_BYTES - 1);
        let written = self.file.write_all_at(line.as_bytes(), (place * RECORD_BYTES) as u64);
        if let Err(error) = written
            && !self.has_failed.swap(true, Ordering::Relaxed)
        {
            warn!(%error, "a target at work is not marked: should it end the process, it is repeated at once");
        }
    }
}

impl Entry {
    /// Whether the process has outlived its work: a mark that lasts, or a first reconcile that came to an end.
    fn is_proven(&self) -> bool {
        let lasts = self.markers > 0 && self.since.elapsed() > PROVEN_AFTER;
        lasts || self.completed.is_some_and(|first| first.elapsed() > PROVEN_AFTER)
    }
}

impl Record {
    fn line(&self, key: &str, at_work: bool) -> String {
        let line = format!("{} {} {} {key} {}", u8::from(at_work), self.crashes, self.until, self.name);
        line.chars().filter(char::is_ascii).take(RECORD_BYTES - 1).collect()
    }

    fn parse(line: &[u8]) -> Option<(String, Self, bool)> {
        let mut words = str::from_utf8(line).ok()?.split_ascii_whitespace();
        let at_work = match words.next()? {
            "0" => false,
            "1" => true,
            _ => return None,
        };
        let (crashes, until) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let (key, name) = (words.next()?.to_owned(), words.next()?.to_owned());
        Some((key, Self { crashes, until, name }, at_work))
    }
}

impl WorkMarker {
    /// The work has come to an end, good or bad, and the process lives.
    pub fn complete(self) {
        if let Some((inner, key, _)) = &self.0
            && let Some(entry) = inner.state.lock().entries.get_mut(key)
        {
            entry.completed.get_or_insert_with(Instant::now);
            // The file has it once no marker is left.
            entry.record.crashes = entry.record.crashes.min(1);
        }
    }
}

impl Drop for WorkMarker {
    fn drop(&mut self) {
        if let Some((inner, key, _)) = &self.0 {
            inner.end(key);
        }
    }
}

#[cfg(test)]
mod tests;
