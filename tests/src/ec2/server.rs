//! The simulator's process, in a Python environment of its own.

use std::net::TcpListener;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use std::{fs, thread};

use anyhow::{Context as _, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::Ec2;
use crate::options::Timings;
use crate::process::Rank;
use crate::supervisor::children::Children;
use crate::supervisor::files;

const SOURCES: [(&str, &str); 4] = [
    ("ec2sim.py", include_str!("../../clouds/ec2sim.py")),
    ("ec2model.py", include_str!("../../clouds/ec2model.py")),
    ("ec2access.py", include_str!("../../clouds/ec2access.py")),
    ("ec2limits.py", include_str!("../../clouds/ec2limits.py")),
];

/// A simulator that starts with its first client: many worlds have none, and a start costs a second of CPU time.
pub struct Server {
    /// What steers it, at the address that it has from the beginning.
    pub ec2: Ec2,
    /// Whether it runs.
    pub running: watch::Receiver<bool>,
}

/// Listens for the first client, and then starts the simulator with the listening socket.
///
/// # Errors
/// When there is no port, or its files cannot be written.
pub fn start(children: &Children, python: &Path, dir: &Path, timings: &Timings, key: [&str; 3]) -> Result<Server> {
    let listener = TcpListener::bind("127.0.0.1:0").context("bind the EC2 simulator's port")?;
    let ec2 = Ec2::new(&format!("http://{}", listener.local_addr().context("read the EC2 simulator's port")?));
    let folder = dir.join("ec2");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    for (name, text) in SOURCES {
        fs::write(folder.join(name), text).with_context(|| format!("write {name}"))?;
    }
    let mut command = tokio::process::Command::new(python);
    command
        .arg(folder.join("ec2sim.py"))
        .arg("--inherited")
        .arg("--log")
        .arg(dir.join(files::LOGS).join("ec2-calls.jsonl"))
        .arg("--key")
        .args(key)
        .args(["--start", &timings.ec2_start.as_secs_f64().to_string()])
        .args(["--stop", &timings.ec2_stop.as_secs_f64().to_string()])
        .args(["--terminate", &timings.ec2_terminate.as_secs_f64().to_string()])
        // Nothing of the caller's AWS settings or Python packages is to change the simulator.
        .env_remove("PYTHONPATH")
        .env("AWS_EC2_METADATA_DISABLED", "true");
    let (sender, running) = watch::channel(false);
    let (children, runtime) = (children.clone(), Handle::current());
    // A thread of its own, which ends with the process: no runtime waits for it.
    thread::spawn(move || {
        let first = poll(&mut [PollFd::new(listener.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
        let _inside = runtime.enter();
        let start = || children.spawn_with("ec2sim", Rank::Server, command, Stdio::from(OwnedFd::from(listener)));
        match first.map_err(anyhow::Error::from).and_then(|_| start()) {
            Ok(_) => drop(sender.send(true)),
            Err(error) => tracing::error!("start the EC2 simulator: {error:#}"),
        }
    });
    Ok(Server { ec2, running })
}
