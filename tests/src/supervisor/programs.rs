//! Our own programs: as many of each as wanted, with their real service accounts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use http::Method;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::Api;
use serde::{Deserialize, Serialize};
use shared::hive::api::SERVED_PLATFORMS;
use tokio::process::Command;

use super::{World, hub};
use crate::json_http::JsonHttp;
use crate::kubeconfig::write_private;
use crate::options::Program;
use crate::process::Rank;
use crate::world_file::ProgramAddress;
use crate::{ports, restricted};

/// A program that is to be started.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Start {
    /// Which one.
    pub program: Program,
    /// Its executable, if not that of the product.
    pub executable: Option<PathBuf>,
    /// Tells several apart: names the process `controller-b`, and is the controller's `--identity`.
    pub identity: Option<String>,
    /// More arguments, after ours.
    pub args: Vec<String>,
    /// Whether it talks to the hub through the fault proxy; as `testbed up` said if absent.
    pub hub_proxy: Option<bool>,
    /// Whether it runs as in a container of OpenShift's restricted-v2.
    pub restricted: bool,
    /// A line that its `/etc/hosts` has in addition; not together with `restricted`.
    pub hosts: Option<String>,
    /// More environment variables.
    pub environment: BTreeMap<String, String>,
}

impl Start {
    /// The first one of a program, with nothing special.
    pub fn new(program: Program) -> Self {
        Self { program, ..Self::default() }
    }

    /// With these times of the Lease: how long it lasts, until when it is renewed, how often that is tried.
    pub fn leased(mut self, [lasts, renewed, tried]: [&str; 3]) -> Self {
        let args = ["--lease-duration", lasts, "--renew-deadline", renewed, "--retry-period", tried];
        self.args.extend(args.map(str::to_owned));
        self
    }

    /// Name of the process.
    pub fn name(&self) -> String {
        match &self.identity {
            Some(identity) => format!("{}-{identity}", self.program.name()),
            None => self.program.name().to_owned(),
        }
    }
}

/// Ports of a program. They stay the same when it is started again, so that the webhook keeps its URL.
#[derive(Clone, Copy, Debug)]
struct Ports {
    main: u16,
    plain: u16,
}

/// Where the programs are, and which ports they have.
pub(crate) struct Programs {
    executables: BTreeMap<String, PathBuf>,
    ports: Mutex<BTreeMap<String, Ports>>,
}

impl Programs {
    pub(crate) fn new(executables: BTreeMap<String, PathBuf>) -> Self {
        Self { executables, ports: Mutex::default() }
    }

    pub(crate) fn webhook(&self) -> Option<ProgramAddress> {
        let ports = *self.lock().get(Program::Webhook.name())?;
        Some(ProgramAddress {
            url: Some(format!("https://127.0.0.1:{}", ports.main)),
            metrics: format!("http://127.0.0.1:{}/metrics", ports.plain),
        })
    }

    pub(crate) fn controller(&self) -> Option<ProgramAddress> {
        let ports = *self.lock().get(Program::Controller.name())?;
        Some(ProgramAddress { url: None, metrics: format!("http://127.0.0.1:{}/metrics", ports.plain) })
    }

    fn ports(&self, name: &str) -> Result<Ports> {
        if let Some(ports) = self.lock().get(name) {
            return Ok(*ports);
        }
        let ports = Ports { main: ports::free()?, plain: ports::free()? };
        self.lock().insert(name.to_owned(), ports);
        Ok(ports)
    }

    fn executable(&self, program: Program) -> Result<&PathBuf> {
        let name = program.executable();
        self.executables.get(name).with_context(|| {
            format!("{name} was not found when the world started: run `make build`, then start the world again")
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Ports>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl World {
    /// Starts a program and waits until it is ready.
    pub(crate) async fn start_program(&self, start: &Start) -> Result<ProgramAddress> {
        let name = start.name();
        let executable = match &start.executable {
            Some(path) => path,
            None => self.programs.executable(start.program)?,
        };
        let ports = self.programs.ports(&name)?;
        let url = format!("https://127.0.0.1:{}", ports.main);
        if start.program == Program::Webhook && start.identity.is_none() {
            hub::register_webhook(&self.hub_client, &url).await?;
        }
        let through = if start.hub_proxy.unwrap_or(self.options.hub_proxy && start.program == Program::Controller) {
            "-through-proxy"
        } else {
            ""
        };
        let account = format!("{}{through}", start.program.executable());
        let kubeconfig = self.hub.users.get(&account).with_context(|| format!("no kubeconfig of {account}"))?;
        let unshared = start.restricted || start.hosts.is_some();
        let mut command = Command::new(if unshared { Path::new("unshare") } else { executable });
        if start.restricted {
            command.args(restricted::UNSHARE).arg(executable);
        } else if let Some(line) = &start.hosts {
            command.args(restricted::HOSTS).arg(self.hosts_file(line)?).arg(executable);
        }
        command.arg("--kubeconfig").arg(kubeconfig).args([
            "--namespace",
            shared::annotation::keys::NAMESPACE,
            "--log-format",
            "json",
        ]);
        match start.program {
            Program::Webhook => {
                webhook_arguments(&mut command, ports);
                if self.options.openstack {
                    command.args(["--served-platforms", &SERVED_PLATFORMS.join(",")]); // as after the cut-over
                }
            }
            Program::Controller => {
                self.controller_arguments(&mut command, ports, start.identity.as_deref().unwrap_or("a"));
                // A folder that outlives the process, which nothing has in a read-only container.
                if !start.restricted {
                    command.arg("--state-dir").arg(self.dir.join("state").join(&name));
                }
            }
        }
        // None of the caller's cloud settings is to reach a cloud.
        for (variable, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("AWS_")) {
            command.env_remove(variable);
        }
        // As in the Deployment: an allocator with many arenas keeps what a burst of reconciles has used.
        command.env("MALLOC_ARENA_MAX", "2");
        command.env("AWS_EC2_METADATA_DISABLED", "true").envs(&start.environment).args(&start.args);
        self.children.spawn(&name, Rank::Program, command)?;
        self.program_ready(start, ports).await?;
        let _ = self.publish();
        Ok(ProgramAddress {
            url: (start.program == Program::Webhook).then_some(url),
            metrics: format!("http://127.0.0.1:{}/metrics", ports.plain),
        })
    }

    /// The machine's `/etc/hosts` and one line more.
    fn hosts_file(&self, line: &str) -> Result<PathBuf> {
        let (path, own) = (self.dir.join("hosts"), std::fs::read_to_string("/etc/hosts").unwrap_or_default());
        write_private(&path, &format!("{own}\n{line}\n"))?;
        Ok(path)
    }

    fn controller_arguments(&self, command: &mut Command, ports: Ports, identity: &str) {
        command
            .args(["--identity", identity])
            .args(["--listen", &format!("127.0.0.1:{}", ports.plain)])
            .args(["--aws-endpoint-url", self.ec2.endpoint()])
            .args(self.clouds.arguments())
            .arg("--allow-loopback-spokes")
            .arg("--allow-loopback-clouds")
            .arg("--openstack-allow-http")
            .args(["--cluster-operator-pause", &self.clock.timings().cluster_operator_pause.to_string()]);
    }

    /// A webhook is ready when it says so and every entry that is registered has a caBundle. Of two controllers only
    /// one leads, so a second one is ready when it lives.
    async fn program_ready(&self, start: &Start, ports: Ports) -> Result<()> {
        let name = start.name();
        let plain = JsonHttp::new(&format!("http://127.0.0.1:{}", ports.plain));
        let path = if start.identity.is_some() { "/healthz" } else { "/readyz" };
        let begun = Instant::now();
        loop {
            let answer = plain.text(Method::GET, path, None::<&()>).await;
            let missing = match answer {
                Err(error) => Some(format!("{error:#}")),
                Ok(_) if start.program == Program::Webhook => self.without_bundle().await?,
                Ok(_) => None,
            };
            let Some(missing) = missing else { return Ok(()) };
            self.children.still_alive(&name)?;
            if begun.elapsed() > Duration::from_secs(30) {
                bail!("{name} is not ready after 30 s: {missing}; see {}", self.children.log(&name).display());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The first registered entry that the API server could not verify.
    async fn without_bundle(&self) -> Result<Option<String>> {
        let configuration = shared::annotation::keys::WEBHOOK;
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.hub_client.clone());
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.hub_client.clone());
        let validating = validating.get(configuration).await.context("read the ValidatingWebhookConfiguration")?;
        let mutating = mutating.get(configuration).await.context("read the MutatingWebhookConfiguration")?;
        let validating = validating.webhooks.into_iter().flatten().map(|entry| (entry.name, entry.client_config));
        let mutating = mutating.webhooks.into_iter().flatten().map(|entry| (entry.name, entry.client_config));
        let mut without = validating.chain(mutating).filter(|(_, client)| client.ca_bundle.is_none());
        Ok(without.next().map(|(name, _)| format!("entry {name} has no caBundle")))
    }
}

fn webhook_arguments(command: &mut Command, ports: Ports) {
    command
        .args(["--listen", &format!("127.0.0.1:{}", ports.main)])
        .args(["--listen-plain", &format!("127.0.0.1:{}", ports.plain)])
        .args(["--san", "127.0.0.1"])
        .args(["--shutdown-delay-duration", "0s"]); // no Service leads to it
}
