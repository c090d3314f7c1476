//! The command line of `testbed`.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand};
use serde_json::{Map, Value};
use testbed::proxy::faults::Rule;
use testbed::supervisor::control::Status;
use testbed::supervisor::programs::Start;
use testbed::supervisor::{self, files};
use testbed::world_file::WorldFile;
use testbed::{ClusterOptions, Options, launch, process};

use crate::cli_state::State;

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
    Up {
        #[command(flatten)]
        options: Box<Options>,
        /// Print the world's file instead of a summary
        #[arg(long)]
        json: bool,
    },
    /// Print export lines for a shell: eval "$(testbed env)"
    Env(State),
    /// Show running processes and instances
    Status {
        #[command(flatten)]
        state: State,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Stop all processes of the world
    Down(State),
    /// Add or remove clusters
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Databases of the FoundationDB double
    #[command(subcommand)]
    Fdb(crate::cli_fdb::FdbCommand),
    /// User clusters of the KKP double
    #[command(subcommand)]
    Kkp(crate::cli_kkp::KkpCommand),
    /// Start a program of ours: `webhook` or `controller`
    Start {
        #[command(flatten)]
        state: State,
        /// Which program
        #[arg(value_enum)]
        program: testbed::Program,
        /// Identity, to run several; the process is named PROGRAM-IDENTITY
        #[arg(long)]
        identity: Option<String>,
        /// Connect it to the hub through the fault proxy
        #[arg(long)]
        hub_proxy: bool,
        /// Do not wait until it is ready
        #[arg(long)]
        no_wait: bool,
        /// Run it as in a container of OpenShift's restricted-v2: any UID, no home, read-only file systems
        #[arg(long)]
        restricted: bool,
        /// More arguments for it
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// End a process with SIGTERM
    Stop(Process),
    /// End a process with SIGKILL
    Kill(Process),
    /// Kill a process if it runs, and start it again on the same ports and data
    Restart(Process),
    /// Freeze a process with SIGSTOP
    Freeze(Process),
    /// Thaw a frozen process with SIGCONT
    Thaw(Process),
    /// Show or change timings: testbed timings ec2Stop=20s
    Timings {
        #[command(flatten)]
        state: State,
        /// Changes
        #[arg(value_name = "KEY=DURATION")]
        changes: Vec<String>,
    },
    /// Inject a fault into a proxy: testbed fault hub '{"path": "/apis", "count": 3, "effect": {"status": {"code":
    /// 503}}}'
    Fault {
        #[command(flatten)]
        state: State,
        /// `hub`, or a cluster's infraID for its gate
        proxy: String,
        /// A rule as JSON
        rule: String,
    },
    /// Remove all faults of a proxy
    Heal {
        #[command(flatten)]
        state: State,
        /// `hub`, or a cluster's infraID for its gate
        proxy: String,
    },
    /// Run the supervisor of a world (internal)
    #[command(hide = true)]
    Run(State),
}

#[derive(Args)]
struct Process {
    #[command(flatten)]
    state: State,
    /// Name of the process, as `testbed status` shows it
    name: String,
}

#[derive(Subcommand)]
enum ClusterCommand {
    /// Make a cluster
    Add {
        #[command(flatten)]
        state: State,
        /// Its name, and its namespace's
        name: String,
        /// Namespace, if it is another
        #[arg(long)]
        namespace: Option<String>,
        /// Number of its instances
        #[arg(long, default_value_t = 6)]
        instances: usize,
        /// AWS region
        #[arg(long, default_value = "us-east-1")]
        region: String,
        /// Give it an AWS account and key of its own
        #[arg(long)]
        own_account: bool,
        /// Begin asleep
        #[arg(long)]
        asleep: bool,
        /// Make its kubelets lose their certificates while it sleeps
        #[arg(long)]
        certificates: bool,
    },
    /// Remove a cluster with everything that it has
    Rm {
        #[command(flatten)]
        state: State,
        /// Its name
        name: String,
        /// Its namespace, if that has another name
        #[arg(long)]
        namespace: Option<String>,
    },
}

/// Runs the program.
pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("testbed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Up { options, json } => up(&options, json),
        Command::Down(state) => {
            let dir = state.dir();
            let ended = launch::down(&dir)?;
            eprintln!("testbed: {ended} processes ended; logs are in {}", dir.join(files::LOGS).display());
            Ok(())
        }
        Command::Env(state) => {
            let world = state.open()?;
            for (name, value) in world.environment() {
                println!("export {name}='{value}'");
            }
            println!("export PATH='{}'\"${{PATH:+:$PATH}}\"", world.program_path());
            Ok(())
        }
        Command::Run(state) => {
            // kube logs each failed call as an error; while a world comes up, and while its clusters sleep, calls do
            // fail.
            tracing_subscriber::fmt().with_env_filter("info,kube_client=off").with_ansi(false).init();
            runtime()?.block_on(supervisor::run(&state.dir()))
        }
        Command::Fdb(command) => runtime()?.block_on(command.run()),
        Command::Kkp(command) => runtime()?.block_on(command.run()),
        other => runtime()?.block_on(steer(other)),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")
}

fn up(options: &Options, json: bool) -> Result<()> {
    let (dir, file) = launch::up(options, &mut |line| eprintln!("testbed: {line}"))?;
    if json {
        println!("{}", serde_json::to_string(&file)?);
    } else {
        summary(&dir, &file);
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

/// Everything that goes through a running world's own interface.
async fn steer(command: Command) -> Result<()> {
    match command {
        Command::Status { state, json } => status(&state, json).await,
        Command::Cluster(ClusterCommand::Add {
            state,
            name,
            namespace,
            instances,
            region,
            own_account,
            asleep,
            certificates,
        }) => {
            let mut options =
                ClusterOptions { namespace, region, own_account, certificates, ..ClusterOptions::of_size(instances) };
            if asleep {
                options = options.asleep();
            }
            let info = state.open()?.add_cluster(&name, &options).await?;
            println!("{}", serde_json::to_string(&info)?);
            Ok(())
        }
        Command::Cluster(ClusterCommand::Rm { state, name, namespace }) => {
            state.open()?.remove_cluster(namespace.as_deref().unwrap_or(&name), &name).await
        }
        Command::Start { state, program, identity, hub_proxy, no_wait, restricted, args } => {
            let hub_proxy = hub_proxy.then_some(true);
            let start = Start { identity, args, hub_proxy, no_wait, restricted, ..Start::new(program) };
            let address = state.open()?.start(&start).await?;
            println!("{}", serde_json::to_string(&address)?);
            Ok(())
        }
        Command::Stop(process) => process.state.open()?.signal(&process.name, "stop").await,
        Command::Kill(process) => process.state.open()?.signal(&process.name, "kill").await,
        Command::Freeze(process) => process.state.open()?.signal(&process.name, "freeze").await,
        Command::Restart(process) => process.state.open()?.signal(&process.name, "restart").await,
        Command::Thaw(process) => process.state.open()?.signal(&process.name, "thaw").await,
        Command::Timings { state, changes } => {
            let change: Map<String, Value> = changes
                .iter()
                .map(|change| {
                    change
                        .split_once('=')
                        .map(|(key, value)| (key.to_owned(), value.into()))
                        .context("write KEY=DURATION")
                })
                .collect::<Result<_>>()?;
            println!("{}", serde_json::to_string_pretty(&state.open()?.change_timings(&Value::Object(change)).await?)?);
            Ok(())
        }
        Command::Fault { state, proxy, rule } => {
            let rule: Rule = serde_json::from_str(&rule).context("read the rule")?;
            println!("{}", serde_json::to_string(&state.open()?.inject(&proxy, &rule).await?)?);
            Ok(())
        }
        Command::Heal { state, proxy } => state.open()?.heal(&proxy, None).await,
        // Handled by `run`.
        Command::Up { .. }
        | Command::Down(_)
        | Command::Env(_)
        | Command::Run(_)
        | Command::Fdb(_)
        | Command::Kkp(_) => Ok(()),
    }
}

async fn status(state: &State, json: bool) -> Result<()> {
    let dir = state.dir();
    let Ok(world) = state.open() else {
        let left = process::records(&dir.join(files::PIDS)).into_iter().filter(process::Record::is_alive).count();
        anyhow::bail!(
            "no world is up in {}{}",
            dir.display(),
            if left == 0 {
                String::new()
            } else {
                format!(", but {left} of its processes are: `testbed down` ends them")
            }
        );
    };
    let status: Status = world.status().await?;
    if json {
        println!("{}", serde_json::to_string(&status)?);
        return Ok(());
    }
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
