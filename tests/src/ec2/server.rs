//! The simulator's process, in a Python environment of its own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use tokio::time;

use super::Ec2;
use crate::{controlplane::assets, options::Timings, paths, process::Rank, supervisor::children::Children};

const SOURCES: [(&str, &str); 3] = [
    ("ec2sim.py", include_str!("../../clouds/ec2sim.py")),
    ("ec2model.py", include_str!("../../clouds/ec2model.py")),
    ("ec2access.py", include_str!("../../clouds/ec2access.py")),
];
const REQUIREMENTS: &str = include_str!("../../clouds/requirements.txt");

/// The Python interpreter that has what the simulator needs. Made once, about half a minute, and kept in the cache.
///
/// # Errors
/// When Python 3 or its `venv` is missing, or the packages cannot be installed.
pub fn python() -> Result<PathBuf> {
    let folder = paths::cache()?.join("python").join(paths::fingerprint(&[REQUIREMENTS]));
    let (environment, complete) = (folder.join("venv"), folder.join("complete"));
    let interpreter = environment.join("bin/python");
    if complete.is_file() {
        return Ok(interpreter);
    }
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let _lock = assets::lock(&folder)?;
    if complete.is_file() {
        return Ok(interpreter);
    }
    eprintln!("testbed: installing the EC2 simulator's Python packages once, about half a minute and 140 MB");
    let requirements = folder.join("requirements.txt");
    fs::write(&requirements, REQUIREMENTS).context("write requirements.txt")?;
    let mut venv = Command::new("python3");
    run(
        venv.args(["-m", "venv", "--clear"]).arg(&environment),
        "make a Python environment: Python 3.10 or newer with its venv module is needed (on Debian: python3-venv)",
    )?;
    let mut pip = Command::new(&interpreter);
    run(
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "-r"])
            .arg(&requirements),
        "install the EC2 simulator's Python packages",
    )?;
    fs::write(&complete, "").context("mark the Python environment as complete")?;
    Ok(interpreter)
}

fn run(command: &mut Command, what: &str) -> Result<()> {
    let status = command.status().with_context(|| format!("{what}: run {}", command.get_program().display()))?;
    if !status.success() {
        bail!("{what}: {status}; its messages are above");
    }
    Ok(())
}

/// Starts the simulator and waits until it answers.
///
/// # Errors
/// When it does not start.
pub async fn start(children: &Children, interpreter: &Path, dir: &Path, logs: &Path, timings: &Timings) -> Result<Ec2> {
    let folder = dir.join("ec2");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    for (name, text) in SOURCES {
        fs::write(folder.join(name), text).with_context(|| format!("write {name}"))?;
    }
    let port_file = folder.join("port");
    let mut command = tokio::process::Command::new(interpreter);
    command
        .arg(folder.join("ec2sim.py"))
        .arg("--port-file")
        .arg(&port_file)
        .arg("--log")
        .arg(logs.join("ec2-calls.jsonl"))
        .args(["--start", &timings.ec2_start.as_secs_f64().to_string()])
        .args(["--stop", &timings.ec2_stop.as_secs_f64().to_string()])
        .args(["--terminate", &timings.ec2_terminate.as_secs_f64().to_string()])
        // Nothing of the caller's AWS settings or Python packages is to change the simulator.
        .env_remove("PYTHONPATH")
        .env("AWS_EC2_METADATA_DISABLED", "true");
    children.spawn("ec2sim", Rank::Server, command)?;
    for _ in 0..600 {
        if let Ok(port) = fs::read_to_string(&port_file) {
            return Ok(Ec2::new(&format!("http://127.0.0.1:{port}")));
        }
        children.still_alive("ec2sim")?;
        time::sleep(Duration::from_millis(100)).await;
    }
    bail!("the EC2 simulator does not answer within 60 s; see {}", children.log("ec2sim").display())
}
