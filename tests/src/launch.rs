//! Starting and ending worlds from outside: what `testbed up` and `testbed down` do, and tests with them.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::controlplane::assets;
use crate::options::{Options, Program};
use crate::paths;
use crate::process::{self, Rank, Record, Signal};
use crate::supervisor::{Plan, files};
use crate::world_file::{self, WorldFile};

/// Longest time that a world may take to come up, once everything is built.
const UP: Duration = Duration::from_mins(4);

/// Starts a world in the background and waits until it is ready. `say` gets a line for each thing done.
///
/// # Errors
/// When this is not Linux, something is missing, a world is up in the folder already, or a part does not start.
pub fn up(options: &Options, say: &mut dyn FnMut(&str)) -> Result<(PathBuf, WorldFile)> {
    if !Path::new("/proc/self/stat").is_file() {
        bail!("the testbed needs Linux: it tells its processes from others by /proc");
    }
    let dir = options.state.clone().unwrap_or_else(paths::default_world);
    let dir = std::path::absolute(&dir).with_context(|| format!("find folder {}", dir.display()))?;
    prepare(&dir)?;
    // Here and not in the background, because both may take minutes and say so on our stderr.
    assets::find()?;
    assets::python()?;
    let plan = Plan { options: Options { state: Some(dir.clone()), ..options.clone() }, programs: programs(options)? };
    fs::write(dir.join(files::PLAN), serde_json::to_vec_pretty(&plan)?)
        .with_context(|| format!("write into {}", dir.display()))?;
    let mut supervisor = spawn(&dir)?;
    let record = Record::of("supervisor", supervisor.id(), Rank::Supervisor)?;
    let result = follow(&dir, &record, say);
    if result.is_err() {
        let _ = down(&dir);
        let _ = supervisor.wait();
    }
    result.map(|file| (dir, file))
}

/// Makes the folder fit for a new world: empty but for old logs.
fn prepare(dir: &Path) -> Result<()> {
    if let Some(process) = process::records(&dir.join(files::PIDS)).into_iter().find(Record::is_alive) {
        bail!(
            "a world is up in {} already ({}, pid {}): `testbed down` ends it",
            dir.display(),
            process.name,
            process.pid
        );
    }
    let occupied = fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some());
    if occupied && !dir.join(files::PLAN).is_file() {
        bail!("{} is not empty and not a testbed's folder: name another with --state", dir.display());
    }
    clear(dir, &[])?;
    let logs = dir.join(files::LOGS);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&logs)
        .with_context(|| format!("create {}", logs.display()))?;
    // From now on the folder is recognised as ours, even if building what it needs is interrupted.
    fs::write(dir.join(files::PLAN), "").with_context(|| format!("write into {}", dir.display()))
}

/// Empties a world's folder, but for some entries.
fn clear(dir: &Path, keep: &[&str]) -> Result<()> {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if keep.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        let path = entry.path();
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.with_context(|| format!("remove {}", path.display()))?;
    }
    Ok(())
}

/// Our programs: those that are needed must be there, the others may be started later if they are.
fn programs(options: &Options) -> Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    for program in [Program::Webhook, Program::Controller] {
        match paths::program(program.executable()) {
            Ok(path) => {
                found.insert(program.executable().to_owned(), path);
            }
            Err(error) if options.has(program) => return Err(error),
            Err(_) => {}
        }
    }
    Ok(found)
}

fn spawn(dir: &Path) -> Result<std::process::Child> {
    let path = dir.join(files::LOGS).join("testbed.log");
    let log =
        OpenOptions::new().create(true).append(true).open(&path).with_context(|| format!("open {}", path.display()))?;
    Command::new(paths::program("testbed")?)
        .arg("run")
        .arg("--state")
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("share the log between two outputs")?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .context("start the supervisor")
}

/// Passes on the progress until the world is ready.
fn follow(dir: &Path, supervisor: &Record, say: &mut dyn FnMut(&str)) -> Result<WorldFile> {
    let (begun, mut detail) = (Instant::now(), 0);
    loop {
        let alive = supervisor.is_alive();
        let progress = fs::read_to_string(dir.join(files::PROGRESS)).unwrap_or_default();
        for line in progress.lines().skip(detail) {
            detail += 1;
            say(line);
        }
        if progress.ends_with("  ready\n") {
            return WorldFile::read(dir);
        }
        if let Ok(why) = fs::read_to_string(dir.join(files::FAILED)) {
            bail!("{}", why.trim_end());
        }
        if !alive {
            bail!("the supervisor has ended; see {}", dir.join(files::LOGS).join("testbed.log").display());
        }
        if begun.elapsed() > UP {
            bail!("not ready after {} s; see {}", UP.as_secs(), dir.join(files::LOGS).display());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends everything that a world has started, whether its supervisor still lives or not, and keeps its logs.
/// Answers how many processes there were.
///
/// # Errors
/// When a process cannot be ended.
pub fn down(dir: &Path) -> Result<usize> {
    let pids = dir.join(files::PIDS);
    let before = process::records(&pids).iter().filter(|record| record.is_alive()).count();
    let supervisor = process::records(&pids).into_iter().find(|record| record.rank == Rank::Supervisor);
    if let Some(supervisor) = supervisor.filter(Record::is_alive) {
        supervisor.signal(Signal::SIGTERM);
        supervisor.signal(Signal::SIGCONT);
        let begun = Instant::now();
        while supervisor.is_alive() && begun.elapsed() < Duration::from_secs(40) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    // What is left belonged to a supervisor that died, or that hangs.
    process::end(process::records(&pids), Duration::from_secs(4));
    let left: Vec<String> = process::records(&pids)
        .into_iter()
        .filter(Record::is_alive)
        .map(|r| format!("{} ({})", r.name, r.pid))
        .collect();
    if !left.is_empty() {
        bail!("still running: {}", left.join(", "));
    }
    if dir.join(files::PLAN).is_file() {
        clear(dir, &[files::LOGS, files::PLAN])?;
    }
    Ok(before)
}

/// The folder of a world and its file, if it is up.
///
/// # Errors
/// When none is up there.
pub fn find(dir: &Path) -> Result<WorldFile> {
    let file = WorldFile::read(dir)?;
    let alive = process::records(&dir.join(files::PIDS))
        .into_iter()
        .any(|record| record.rank == Rank::Supervisor && record.is_alive());
    if !alive {
        bail!(
            "the world in {} has lost its supervisor: `testbed down` cleans up ({})",
            dir.display(),
            world_file::NAME
        );
    }
    Ok(file)
}
