//! A world leaves nothing behind, whatever ends it.
#![allow(clippy::unwrap_used, clippy::panic)] // a helper of a test is part of the test

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use testbed::{Options, launch, process};

/// These tests start private worlds. More than one at a time would only wait for the CPU.
static TURN: Mutex<()> = Mutex::new(());

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("world")
    }
}

/// Whatever a failed test leaves.
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = launch::down(&self.path());
    }
}

/// A world that ends with a process.
fn options(state: PathBuf, while_pid: u32) -> Options {
    let while_pid = Some(while_pid.cast_signed());
    Options { state: Some(state), clusters: 0, while_pid, ..Options::without_programs() }
}

fn running(dir: &Path) -> Vec<process::Record> {
    process::records(&dir.join("pids")).into_iter().filter(process::Record::is_alive).collect()
}

fn ended(processes: &[process::Record]) -> bool {
    let begun = Instant::now();
    while processes.iter().any(process::Record::is_alive) {
        if begun.elapsed() > Duration::from_secs(30) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

#[test]
fn down_after_the_supervisor_was_killed() {
    let _turn = TURN.lock();
    let folder = Folder::new();
    let (dir, _) = launch::up(&options(folder.path(), std::process::id()), &mut |_| {}).unwrap();
    let processes = running(&dir);
    let supervisor = processes.iter().find(|process| process.name == "supervisor").unwrap();
    supervisor.signal(process::Signal::SIGKILL);
    assert!(ended(std::slice::from_ref(supervisor)));
    assert!(running(&dir).len() >= 5, "the others live on");
    launch::down(&dir).unwrap();
    assert!(ended(&processes));
}

#[test]
fn a_world_ends_with_the_process_it_belongs_to() {
    let _turn = TURN.lock();
    let folder = Folder::new();
    let mut owner = Command::new("sleep").arg("600").spawn().unwrap();
    let (dir, _) = launch::up(&options(folder.path(), owner.id()), &mut |_| {}).unwrap();
    let processes = running(&dir);
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(ended(&processes), "still running after 30 s: {:?}", running(&dir));
}

#[test]
fn a_folder_of_something_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let thesis = folder.path().join("thesis.txt");
    std::fs::write(&thesis, "").unwrap();
    let refused = launch::up(&options(folder.path().to_owned(), std::process::id()), &mut |_| {}).unwrap_err();
    assert!(refused.to_string().contains("not a testbed's folder") && thesis.is_file(), "{refused:#}");
}
