//! The command line of `testbed`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Parser, Subcommand};
use http::Method;
use serde_json::Value;
use testbed::supervisor::control::Status;
use testbed::supervisor::{self, files};
use testbed::world_file::WorldFile;
use testbed::{Options, World, launch, paths, process};

/// A whole test world on this machine: hub and spoke API servers, EC2, nodes, our webhook and controller.
#[derive(Parser)]
#[command(name = "testbed", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a world in the background; returns when all is ready
    Up(Box<Options>),
    /// Print export lines for a shell: eval "$(testbed env)"
    Env(State),
    /// Show running processes and instances
    Status(State),
    /// Send a request to the supervisor: testbed call POST /programs/controller/kill. Prints the answer
    Call {
        #[command(flatten)]
        state: State,
        /// GET, POST, PATCH or DELETE
        method: Method,
        /// Path: docs/test-world.md lists them
        path: String,
        /// Body as JSON
        body: Option<String>,
    },
    /// Stop all processes of the world
    Down(State),
    /// Run the supervisor of a world (internal)
    #[command(hide = true)]
    Run(State),
}

/// The flag of every subcommand: which world.
#[derive(Args)]
struct State {
    /// Folder of the world [default: kubectl-hibernate-testbed in the folder for temporary files]
    #[arg(long, value_name = "DIR", env = "HIBERNATE_WORLD")]
    state: Option<PathBuf>,
}

impl State {
    fn dir(&self) -> PathBuf {
        self.state.clone().unwrap_or_else(paths::default_world)
    }

    fn open(&self) -> Result<World> {
        World::open(&self.dir())
    }
}

/// Runs the program.
pub(crate) fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("testbed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime");
    match command {
        Command::Up(options) => {
            let (dir, file) = launch::up(&options, &mut |line| eprintln!("testbed: {line}"))?;
            summary(&dir, &file);
        }
        Command::Down(state) => {
            let dir = state.dir();
            let ended = launch::down(&dir)?;
            eprintln!("testbed: {ended} processes ended; logs are in {}", dir.join(files::LOGS).display());
        }
        Command::Env(state) => {
            let world = state.open()?;
            for (name, value) in world.environment() {
                println!("export {name}='{value}'");
            }
            println!("export PATH='{}'\"${{PATH:+:$PATH}}\"", world.program_path());
        }
        Command::Run(state) => {
            // kube logs each failed call as an error; while a world comes up, and while its clusters sleep, calls do
            // fail.
            tracing_subscriber::fmt().with_env_filter("info,kube_client=off").with_ansi(false).init();
            runtime()?.block_on(supervisor::run(&state.dir()))?;
        }
        Command::Status(state) => runtime()?.block_on(status(&state))?,
        Command::Call { state, method, path, body } => {
            let body: Option<Value> =
                body.map(|text| serde_json::from_str(&text)).transpose().context("read the body")?;
            let world = state.open()?;
            println!("{}", runtime()?.block_on(world.supervisor().text(method, &path, body.as_ref()))?);
        }
    }
    Ok(())
}

fn summary(dir: &std::path::Path, file: &WorldFile) {
    println!("hub      {}  (kubeconfig {})", file.hub.url, file.hub.kubeconfig.display());
    println!("ec2      {}", file.ec2.endpoint);
    for cluster in &file.clusters {
        println!("cluster  {}/{} ({}), API at {}", cluster.namespace, cluster.name, cluster.infra_id, cluster.gate);
    }
    println!("folder   {}", dir.display());
    println!("\n  eval \"$(testbed env --state {})\"\n  kubectl get clusterdeployments -A", dir.display());
}

async fn status(state: &State) -> Result<()> {
    let dir = state.dir();
    let Ok(world) = state.open() else {
        let left = process::records(&dir.join(files::PIDS)).into_iter().filter(process::Record::is_alive).count();
        let ends = format!(", but {left} of its processes are: `testbed down` ends them");
        bail!("no world is up in {}{}", dir.display(), if left == 0 { "" } else { ends.as_str() });
    };
    let status: Status = world.status().await?;
    println!("{:<28} {:>8} {:>10}", "PROCESS", "PID", "MEMORY");
    for process in &status.processes {
        println!("{:<28} {:>8} {:>6} MiB", process.record.name, process.record.pid, process.memory);
    }
    println!("\n{:<28} {:<6} INSTANCES", "CLUSTER", "API");
    for cluster in &status.clusters {
        let counts: Vec<String> = cluster.instances.iter().map(|(state, count)| format!("{count} {state}")).collect();
        let name = format!("{}/{}", cluster.info.namespace, cluster.info.name);
        println!("{name:<28} {:<6} {}", if cluster.open { "up" } else { "off" }, counts.join(", "));
    }
    Ok(())
}
