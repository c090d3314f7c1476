//! Worlds come up beside each other, and leave nothing behind.
#![allow(clippy::unwrap_used, clippy::panic)] // a helper of a test is part of the test

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use testbed::{Options, World, launch, process};
use tokio::sync::Mutex;

/// These tests start private worlds. More than one at a time would only wait for the CPU.
static TURN: Mutex<()> = Mutex::const_new(());

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

fn options(folder: &Folder) -> Options {
    // A test that is killed takes its world along.
    let while_pid = Some(std::process::id().cast_signed());
    Options { state: Some(folder.path()), clusters: 0, while_pid, ..Options::without_programs() }
}

fn testbed(args: &[&str], dir: &Path) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_testbed")).args(args).arg("--state").arg(dir).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), text)
}

fn running(dir: &Path) -> Vec<process::Record> {
    process::records(&dir.join("pids")).into_iter().filter(process::Record::is_alive).collect()
}

#[test]
fn up_status_down() {
    let _turn = TURN.blocking_lock();
    let folder = Folder::new();
    let (dir, own) = (folder.path(), std::process::id().to_string());
    let (ok, text) =
        testbed(&["up", "--without", "controller,webhook", "--clusters", "0", "--json", "--while-pid", &own], &dir);
    assert!(ok, "{text}");
    let line = text.lines().find(|line| line.starts_with('{')).unwrap();
    let world: serde_json::Value = serde_json::from_str(line).unwrap();
    for key in ["hub", "spokes", "ec2", "clusters", "logs", "pids", "control"] {
        assert!(world.get(key).is_some(), "no {key} in {world}");
    }
    let processes = running(&dir);
    let names: Vec<&str> = processes.iter().map(|process| process.name.as_str()).collect();
    for name in [
        "supervisor",
        "etcd",
        "hub-apiserver",
        "spoke-0-apiserver",
        "hub-controller-manager",
        "spoke-0-controller-manager",
    ] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
        assert_eq!(world["pids"][name], processes.iter().find(|process| process.name == name).unwrap().pid);
    }

    // The simulator starts with its first client.
    let is_up = || running(&dir).iter().any(|process| process.name == "ec2sim");
    assert!(!is_up(), "{names:?}");
    let address = world["ec2"]["endpoint"].as_str().unwrap().trim_start_matches("http://");
    let _client = TcpStream::connect(address).unwrap();
    let began = Instant::now();
    while !is_up() {
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", running(&dir));
        std::thread::sleep(Duration::from_millis(20));
    }

    let (ok, text) = testbed(&["up"], &dir);
    assert!(!ok && text.contains("a world is up in"), "{text}");
    let (ok, text) = testbed(&["status"], &dir);
    assert!(ok && text.contains("spoke-0-apiserver"), "{text}");
    let (ok, text) = testbed(&["env"], &dir);
    assert!(ok && text.contains("export KUBECONFIG='"), "{text}");

    let (ok, text) = testbed(&["down"], &dir);
    assert!(ok, "{text}");
    assert!(processes.iter().all(|process| !process.is_alive()), "{:?}", running(&dir));
    assert!(!testbed(&["status"], &dir).0);
    assert!(
        dir.join("logs/hub-apiserver.log").is_file() && !dir.join("world.json").exists() && !dir.join("hub").exists()
    );
    assert!(testbed(&["down"], &dir).0, "down twice is no error");
}

#[test]
fn down_after_the_supervisor_was_killed() {
    let _turn = TURN.blocking_lock();
    let folder = Folder::new();
    let (dir, _) = launch::up(&options(&folder), &mut |_| {}).unwrap();
    let processes = running(&dir);
    let supervisor = processes.iter().find(|process| process.name == "supervisor").unwrap();
    supervisor.signal(process::Signal::SIGKILL);
    while supervisor.is_alive() {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(running(&dir).len() >= 5, "the others live on");
    let (ok, text) = testbed(&["status"], &dir);
    assert!(!ok && text.contains("`testbed down` ends them"), "{text}");
    launch::down(&dir).unwrap();
    assert!(processes.iter().all(|process| !process.is_alive()));
}

#[test]
fn two_worlds_side_by_side() {
    let _turn = TURN.blocking_lock();
    let (one, two) = (Folder::new(), Folder::new());
    let (_, first) = launch::up(&options(&one), &mut |_| {}).unwrap();
    let (_, second) = launch::up(&options(&two), &mut |_| {}).unwrap();
    assert_ne!(first.hub.url, second.hub.url);
    launch::down(&one.path()).unwrap();
    assert!(launch::find(&one.path()).is_err());
    assert!(launch::find(&two.path()).is_ok());
    assert!(running(&two.path()).len() >= 6);
    launch::down(&two.path()).unwrap();
}

#[test]
fn a_folder_of_something_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("thesis.txt"), "").unwrap();
    let (ok, text) = testbed(&["up", "--without", "controller,webhook"], folder.path());
    assert!(!ok && text.contains("not a testbed's folder"), "{text}");
    assert!(folder.path().join("thesis.txt").is_file());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_world_ends_with_its_process_or_its_last_copy() {
    let _turn = TURN.lock().await;
    let folder = Folder::new();
    let world = World::up(options(&folder)).await.unwrap();
    let (copy, dir) = (world.clone(), world.dir().to_owned());
    let processes = running(&dir);
    drop(world);
    assert!(processes.iter().all(process::Record::is_alive));
    tokio::task::spawn_blocking(move || drop(copy)).await.unwrap();
    assert!(processes.iter().all(|process| !process.is_alive()) && !dir.exists());
}

#[test]
fn a_world_ends_with_the_process_it_belongs_to() {
    let _turn = TURN.blocking_lock();
    let folder = Folder::new();
    let mut owner = Command::new("sleep").arg("600").spawn().unwrap();
    let options = Options { while_pid: Some(owner.id().cast_signed()), ..options(&folder) };
    let (dir, _) = launch::up(&options, &mut |_| {}).unwrap();
    let processes = running(&dir);
    owner.kill().unwrap();
    owner.wait().unwrap();
    for _ in 0..300 {
        if processes.iter().all(|process| !process.is_alive()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("still running after 30 s: {:?}", running(&dir));
}
