//! The simulator's process, in a Python environment of its own.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use tokio::time;

use super::Ec2;
use crate::{controlplane::server::READY, options::Timings, process::Rank, supervisor::children::Children};

const SOURCES: [(&str, &str); 4] = [
    ("ec2sim.py", include_str!("../../clouds/ec2sim.py")),
    ("ec2model.py", include_str!("../../clouds/ec2model.py")),
    ("ec2access.py", include_str!("../../clouds/ec2access.py")),
    ("ec2limits.py", include_str!("../../clouds/ec2limits.py")),
];

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
    let begun = Instant::now();
    while begun.elapsed() < READY {
        if let Ok(port) = fs::read_to_string(&port_file) {
            return Ok(Ec2::new(&format!("http://127.0.0.1:{port}")));
        }
        children.still_alive("ec2sim")?;
        time::sleep(Duration::from_millis(100)).await;
    }
    bail!("the EC2 simulator does not answer within {} s; see {}", READY.as_secs(), children.log("ec2sim").display())
}
