//! Which targets are at work, in a file that outlives the process: a reconcile that has ended it is not repeated at
//! once.
//!
//! A mark is one write to the page cache, which survives whatever ends the process. Each target that the next process
//! finds marked is a suspect: it is left alone for longer after each such end, and then reconciled with few others, so
//! that the next end marks fewer.

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
use fair::{Share, Shares};

const FILE: &str = "targets-at-work";
/// Bytes of a record: names and UIDs fit, whatever Kubernetes allows.
const RECORD: usize = 512;
/// Records of the file. What is at work besides has no mark.
const MOST: usize = 4_096;
/// What has worked for this long, such as the watch of a spoke, has not ended the process that began it.
const PROVEN: Duration = Duration::from_mins(10);
/// A suspect that nobody asks about is gone from the hub.
const FORGOTTEN: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);
/// The longest pause of a suspect.
const LONGEST: Duration = Duration::from_secs(CRASH_BACKOFF.most.as_secs() * 3 / 2);
/// When a suspect is tried again while others are at work.
const TURN: std::ops::Range<u64> = 250..750;

/// The marks of this process. Without a folder there are none.
#[derive(Clone, Default)]
pub struct Marks(Option<Arc<Inner>>);

struct Inner {
    file: File,
    state: Mutex<State>,
    /// Suspects at once: many are marked by a process that was killed for another reason.
    once: Arc<Shares>,
    /// And those that were marked again.
    again: Arc<Shares>,
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
    /// Marks that are held.
    held: usize,
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
    ends: u32,
    /// Until when it is left alone, in seconds.
    until: i64,
    name: String,
}

/// A target is at work until this is dropped.
#[derive(Default)]
pub struct Mark(Option<(Arc<Inner>, String, Option<Share>)>);

/// A target is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftAlone {
    /// For how long.
    pub pause: Duration,
    /// How many processes in a row have ended while it was at work, if nobody was told yet.
    pub news: Option<u32>,
}

impl Marks {
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
        (&mut file).take((MOST * RECORD) as u64).read_to_end(&mut bytes)?;
        let (once, again) = (Shares::new(64, 16), Shares::new(8, 1));
        let inner = Inner { file, state: Mutex::default(), once, again, has_failed: AtomicBool::new(false) };
        inner.recover(&bytes);
        Ok(Self(Some(Arc::new(inner))))
    }

    /// Marks a target as at work, unless it is to be left alone. `uid` is that of its object.
    ///
    /// # Errors
    /// When it is left alone.
    pub fn begin(&self, system: &str, tenant: &str, uid: Option<&str>, name: &str) -> Result<Mark, LeftAlone> {
        let Some(inner) = &self.0 else { return Ok(Mark::default()) };
        let key = format!("{system}/{}", uid.unwrap_or(name));
        let mut state = inner.state.lock();
        let lane = match state.entries.get_mut(&key) {
            Some(entry) if entry.held == 0 => inner.admit(entry, tenant)?,
            _ => None,
        };
        let State { entries, free } = &mut *state;
        if !entries.contains_key(&key) {
            let Some(place) = free.pop() else { return Ok(Mark::default()) };
            let record = Record { ends: 0, until: 0, name: name.to_owned() };
            let entry = Entry { place, held: 0, since: Instant::now(), completed: None, reported: false, record };
            entries.insert(key.clone(), entry);
        }
        let Some(entry) = entries.get_mut(&key) else { return Ok(Mark::default()) };
        entry.held += 1;
        if entry.held == 1 {
            entry.since = Instant::now();
        }
        let is_news = entry.record.ends > 0 && entry.is_proven();
        if is_news {
            entry.record.ends = 0;
        }
        if entry.held == 1 || is_news {
            inner.write(entry.place, &entry.record.line(&key, true));
        }
        Ok(Mark(Some((inner.clone(), key, lane))))
    }
}

impl Inner {
    /// Makes suspects of all that were at work.
    fn recover(&self, bytes: &[u8]) {
        let now = clock::now();
        let mut state = self.state.lock();
        let mut found = Vec::new();
        for (place, line) in bytes.chunks(RECORD).enumerate() {
            let Some((key, mut record, at_work)) = Record::parse(line) else { continue };
            // A clock that was set back makes no pause longer.
            record.until = now.saturating_add(LONGEST).map_or(record.until, |most| record.until.min(most.as_second()));
            if at_work {
                record.ends = record.ends.saturating_add(1);
                let pause = CRASH_BACKOFF.pause(record.ends - 1).mul_f64(rand::random_range(1.0..1.5));
                record.until = now.saturating_add(pause).map_or(record.until, Timestamp::as_second);
                found.push(format!("{} ({})", record.name, record.ends));
            } else if Timestamp::from_second(record.until).is_ok_and(|until| now.duration_since(until) > FORGOTTEN) {
                self.write(place, "");
                continue;
            }
            self.write(place, &record.line(&key, false));
            let since = Instant::now();
            state.entries.insert(key, Entry { place, held: 0, since, completed: None, reported: false, record });
        }
        let used: HashSet<usize> = state.entries.values().map(|entry| entry.place).collect();
        state.free = (0..MOST).rev().filter(|place| !used.contains(place)).collect();
        if !found.is_empty() {
            let (count, names) = (found.len(), found.iter().take(10).cloned().collect::<Vec<_>>().join(", "));
            warn!(
                count,
                names, "the last process ended while it worked on these targets: they are left alone for a while"
            );
        }
    }

    /// Whether a suspect may be reconciled now: then its turn, until one reconcile of it has come to an end.
    fn admit(&self, entry: &mut Entry, tenant: &str) -> Result<Option<Share>, LeftAlone> {
        let left = entry.record.until.saturating_sub(clock::now().as_second());
        if let Some(left) = u64::try_from(left).ok().filter(|left| *left > 0) {
            let pause = Duration::from_secs(left);
            let news = (!std::mem::replace(&mut entry.reported, true)).then_some(entry.record.ends);
            return Err(LeftAlone { pause, news });
        }
        if entry.completed.is_some() {
            return Ok(None);
        }
        let lane = if entry.record.ends > 1 { &self.again } else { &self.once };
        let turn = || LeftAlone { pause: Duration::from_millis(rand::random_range(TURN)), news: None };
        lane.try_acquire(tenant).map(Some).ok_or_else(turn)
    }

    fn end(&self, key: &str) {
        let mut state = self.state.lock();
        let State { entries, free } = &mut *state;
        let Some(entry) = entries.get_mut(key) else { return };
        entry.held -= 1;
        if entry.held > 0 {
            return;
        }
        let place = entry.place;
        if entry.record.ends == 0 || entry.is_proven() {
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
        let line = format!("{text:<width$}\n", width = RECORD - 1);
        let written = self.file.write_all_at(line.as_bytes(), (place * RECORD) as u64);
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
        let lasts = self.held > 0 && self.since.elapsed() > PROVEN;
        lasts || self.completed.is_some_and(|first| first.elapsed() > PROVEN)
    }
}

impl Record {
    fn line(&self, key: &str, at_work: bool) -> String {
        let line = format!("{} {} {} {key} {}", u8::from(at_work), self.ends, self.until, self.name);
        line.chars().filter(char::is_ascii).take(RECORD - 1).collect()
    }

    fn parse(line: &[u8]) -> Option<(String, Self, bool)> {
        let mut words = str::from_utf8(line).ok()?.split_ascii_whitespace();
        let at_work = match words.next()? {
            "0" => false,
            "1" => true,
            _ => return None,
        };
        let (ends, until) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let (key, name) = (words.next()?.to_owned(), words.next()?.to_owned());
        Some((key, Self { ends, until, name }, at_work))
    }
}

impl Mark {
    /// The work has come to an end, good or bad, and the process lives.
    pub fn complete(self) {
        if let Some((inner, key, _)) = &self.0
            && let Some(entry) = inner.state.lock().entries.get_mut(key)
        {
            entry.completed.get_or_insert_with(Instant::now);
            // The file has it once no mark is held.
            entry.record.ends = entry.record.ends.min(1);
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if let Some((inner, key, _)) = &self.0 {
            inner.end(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tokio::time::sleep;

    use super::*;

    /// A folder for one process after another.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("marks-{:016x}", rand::random::<u64>()));
            Self(path)
        }

        fn start(&self) -> Marks {
            Marks::open(&self.0).unwrap()
        }

        /// The next process, after one that has ended where it stands.
        fn crash(&mut self, marks: Marks) -> Marks {
            let next = Self::new();
            fs::create_dir_all(&next.0).unwrap();
            fs::copy(self.0.join(FILE), next.0.join(FILE)).unwrap();
            drop(marks);
            *self = next;
            self.start()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn begin(marks: &Marks, name: &str) -> Result<Mark, LeftAlone> {
        marks.begin("hive", "tenant", Some(&format!("uid-of-{name}")), name)
    }

    async fn begin_when_due(marks: &Marks, name: &str) -> (Mark, Duration) {
        let asked = Instant::now();
        loop {
            match begin(marks, name) {
                Ok(mark) => return (mark, asked.elapsed()),
                Err(left) => sleep(left.pause).await,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_the_process_again_and_again_is_left_alone_ever_longer_and_others_go_on() {
        let mut folder = Folder::new();
        let mut marks = folder.start();
        let mut pauses = Vec::new();
        for end in 0..6 {
            begin(&marks, "good").unwrap().complete();
            let (bomb, pause) = begin_when_due(&marks, "bomb").await;
            pauses.push(pause.as_secs());
            let next = folder.crash(marks);
            drop(bomb);
            marks = next;
            let left = begin(&marks, "bomb").err().unwrap();
            assert!(left.pause >= Duration::from_secs(1) && left.news == Some(end + 1), "{left:?}");
            assert!(begin(&marks, "bomb").err().unwrap().news.is_none(), "reported once");
        }
        assert_eq!(pauses[0], 0);
        for (end, pause) in pauses[1..].iter().enumerate() {
            let least = 2_u64 << end;
            assert!((least - 1..=least * 3 / 2).contains(pause), "{pauses:?}");
        }
        begin_when_due(&marks, "bomb").await.0.complete();
        let bomb = begin(&marks, "bomb").unwrap();
        let marks = folder.crash(marks);
        drop(bomb);
        assert_eq!(begin(&marks, "bomb").err().unwrap().news, Some(2), "after one reconcile that ended well");
        begin_when_due(&marks, "bomb").await.0.complete();
        sleep(PROVEN + Duration::from_secs(1)).await;
        let bomb = begin(&marks, "bomb").unwrap();
        let marks = folder.crash(marks);
        drop(bomb);
        assert_eq!(begin(&marks, "bomb").err().unwrap().news, Some(1), "the process had outlived its work");
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_in_which_a_suspect_is_left_alone_proves_nothing() {
        let mut folder = Folder::new();
        let marks = folder.start();
        let bomb = begin(&marks, "bomb").unwrap();
        let marks = folder.crash(marks);
        drop(bomb);
        sleep(PROVEN + Duration::from_secs(1)).await;
        let bomb = begin(&marks, "bomb").unwrap();
        let marks = folder.crash(marks);
        drop(bomb);
        assert_eq!(begin(&marks, "bomb").err().unwrap().news, Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn the_targets_of_a_killed_process_go_on_soon_and_the_culprit_among_them_is_found() {
        let mut folder = Folder::new();
        let marks = folder.start();
        let names: Vec<String> = (0..200).map(|number| number.to_string()).collect();
        let held: Vec<_> = names.iter().map(|name| begin(&marks, name).unwrap()).collect();
        let marks = folder.crash(marks);
        drop(held);
        assert!(names.iter().all(|name| begin(&marks, name).is_err()), "each is a suspect");
        sleep(Duration::from_secs(4)).await;
        let held: Vec<_> = names.iter().filter_map(|name| begin(&marks, name).ok()).collect();
        assert_eq!(held.len(), 16, "at once");
        let marks = folder.crash(marks);
        drop(held);
        sleep(Duration::from_secs(10)).await;
        let ok = |name: &&String| begin(&marks, name).is_ok();
        assert_eq!(names.iter().filter(ok).count(), 200, "each by itself");
        let held: Vec<_> = names.iter().take(16).filter_map(|name| begin(&marks, name).ok()).collect();
        assert_eq!(held.len(), 1, "of those that were at work both times");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_marks_its_target_for_as_long_as_it_lasts_and_proves_it_by_lasting() {
        let mut folder = Folder::new();
        let marks = folder.start();
        let (pass, watch) = (begin(&marks, "spoke").unwrap(), begin(&marks, "spoke").unwrap());
        pass.complete();
        let marks = folder.crash(marks);
        drop(watch);
        assert!(begin(&marks, "spoke").is_err());
        let (pass, watch) = (begin_when_due(&marks, "spoke").await.0, begin(&marks, "spoke").unwrap());
        pass.complete();
        sleep(PROVEN + Duration::from_secs(1)).await;
        begin(&marks, "spoke").unwrap().complete();
        let marks = folder.crash(marks);
        drop(watch);
        let left = begin(&marks, "spoke").err().unwrap();
        assert_eq!(left.news, Some(1), "counted anew");
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_that_was_asked_for_leaves_no_mark_and_a_suspect_stays_one() {
        let mut folder = Folder::new();
        let marks = folder.start();
        drop(begin(&marks, "a").unwrap());
        let bomb = begin(&marks, "bomb").unwrap();
        let marks = folder.crash(marks);
        drop(bomb);
        assert!(begin(&marks, "a").is_ok());
        let given_up = begin_when_due(&marks, "bomb").await.0;
        drop(given_up);
        let again = begin_when_due(&marks, "bomb").await.0;
        let marks = folder.crash(marks);
        drop(again);
        assert_eq!(begin(&marks, "bomb").err().unwrap().news, Some(2));
    }

    #[test]
    fn a_file_of_anything_is_read_and_a_folder_in_use_is_refused() {
        let folder = Folder::new();
        fs::create_dir_all(&folder.0).unwrap();
        let long = format!("1 1 1 hive/{} {}\n", "u".repeat(200), "n".repeat(2_000));
        for content in
            [&b"\xff\xfe"[..], b"1", b"1 x y z\n", b"1 4294967295 9223372036854775807 hive/a n/a\n", long.as_bytes()]
        {
            fs::write(folder.0.join(FILE), content).unwrap();
            let marks = folder.start();
            assert!(begin(&marks, "a").is_ok());
            assert!(Marks::open(&folder.0).is_err(), "it is in use");
        }
        let record = Record { ends: 3, until: 17, name: "n".repeat(63 + 1 + 253) };
        let key = format!("reachability/{}", "u".repeat(36));
        let line = record.line(&key, true);
        assert_eq!(Record::parse(format!("{line:<511}\n").as_bytes()), Some((key, record, true)));
    }
}
