//! Processes that end one after another, and what the next one does with the marks.

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

    fn start(&self) -> CrashMarks {
        CrashMarks::open(&self.0).unwrap()
    }

    /// The next process, after one that has ended where it stands.
    fn crash(&mut self, marks: CrashMarks) -> CrashMarks {
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

fn begin(marks: &CrashMarks, name: &str) -> Result<WorkMarker, CrashBackoff> {
    marks.begin("hive", "tenant", Some(&format!("uid-of-{name}")), name)
}

async fn begin_when_due(marks: &CrashMarks, name: &str) -> (WorkMarker, Duration) {
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
        assert!(left.pause >= Duration::from_secs(1) && left.unreported == Some(end + 1), "{left:?}");
        assert!(begin(&marks, "bomb").err().unwrap().unreported.is_none(), "reported once");
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
    assert_eq!(begin(&marks, "bomb").err().unwrap().unreported, Some(2), "after one reconcile that ended well");
    begin_when_due(&marks, "bomb").await.0.complete();
    sleep(PROVEN_AFTER + Duration::from_secs(1)).await;
    let bomb = begin(&marks, "bomb").unwrap();
    let marks = folder.crash(marks);
    drop(bomb);
    assert_eq!(begin(&marks, "bomb").err().unwrap().unreported, Some(1), "the process had outlived its work");
}

#[tokio::test(start_paused = true)]
async fn the_time_in_which_a_suspect_is_left_alone_proves_nothing() {
    let mut folder = Folder::new();
    let marks = folder.start();
    let bomb = begin(&marks, "bomb").unwrap();
    let marks = folder.crash(marks);
    drop(bomb);
    sleep(PROVEN_AFTER + Duration::from_secs(1)).await;
    let bomb = begin(&marks, "bomb").unwrap();
    let marks = folder.crash(marks);
    drop(bomb);
    assert_eq!(begin(&marks, "bomb").err().unwrap().unreported, Some(2));
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
    sleep(PROVEN_AFTER + Duration::from_secs(1)).await;
    begin(&marks, "spoke").unwrap().complete();
    let marks = folder.crash(marks);
    drop(watch);
    let left = begin(&marks, "spoke").err().unwrap();
    assert_eq!(left.unreported, Some(1), "counted anew");
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
    assert_eq!(begin(&marks, "bomb").err().unwrap().unreported, Some(2));
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
        assert!(CrashMarks::open(&folder.0).is_err(), "it is in use");
    }
    let record = Record { crashes: 3, until: 17, name: "n".repeat(63 + 1 + 253) };
    let key = format!("reachability/{}", "u".repeat(36));
    let line = record.line(&key, true);
    assert_eq!(Record::parse(format!("{line:<511}\n").as_bytes()), Some((key, record, true)));
}
