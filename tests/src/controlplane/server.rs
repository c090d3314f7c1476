//! Command lines of the control plane's programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Client;
use tokio::process::Command;
use tokio::time;

use crate::controlplane::assets::Assets;
use crate::kubeconfig::{self, Access, write_private};
use crate::pki::{self, Authority};
use crate::ports;
use crate::process::Rank;
use crate::supervisor::children::Children;

/// Longest time that a server of a world may take to come up. It needs three seconds, but on a busy machine that can be
/// a minute.
pub(crate) const READY: Duration = Duration::from_mins(3);

/// A user that an API server knows by a static token.
#[derive(Clone, Debug)]
pub struct User {
    /// User name.
    pub name: &'static str,
    /// Group, besides system:authenticated.
    pub group: &'static str,
    /// Bearer token.
    pub token: String,
}

impl User {
    /// A user with a fresh token.
    pub fn new(name: &'static str, group: &'static str) -> Self {
        Self { name, group, token: secret() }
    }

    /// As a token file has it.
    fn line(&self) -> String {
        format!("{},{},{},\"{}\"\n", self.token, self.name, self.name, self.group)
    }
}

/// A random secret: 256 bits, hexadecimal.
pub fn secret() -> String {
    format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>())
}

/// Folder of etcd's data in that of a world.
pub const STORE: &str = "etcd";

/// Starts etcd and answers its client URL. It does not sync to disk: a world does not outlive its machine.
///
/// # Errors
/// When the process does not start.
pub fn start_etcd(children: &Children, assets: &Assets, dir: &Path) -> Result<String> {
    let (clients, peers) =
        (format!("http://127.0.0.1:{}", ports::free()?), format!("http://127.0.0.1:{}", ports::free()?));
    let mut command = Command::new(&assets.etcd);
    command
        .arg("--data-dir")
        .arg(dir.join(STORE))
        .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
        .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
        .args(["--initial-cluster", &format!("default={peers}")])
        .args(["--unsafe-no-fsync", "--log-level", "warn"]);
    children.spawn("etcd", Rank::Store, command)?;
    Ok(clients)
}

/// One API server with its controller manager.
pub struct Cluster {
    /// `hub`, `spoke-0`, ...
    pub name: String,
    /// `https://127.0.0.1:PORT`
    pub url: String,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The administrator's token.
    pub admin_token: String,
    folder: PathBuf,
}

/// What differs between API servers.
pub struct Plan<'a> {
    /// `hub`, `spoke-0`, ...
    pub name: &'a str,
    /// etcd's client URL.
    pub etcd: &'a str,
    /// Everybody with a static token; the first is the administrator.
    pub users: &'a [User],
    /// Default namespace of the administrator's kubeconfig.
    pub namespace: &'a str,
    /// Where to write an audit log, if at all.
    pub audit: Option<&'a Path>,
}

impl Cluster {
    /// Starts an API server. It is not ready yet: see [`Cluster::ready`].
    ///
    /// # Errors
    /// When its files cannot be written or the process does not start.
    pub fn start(
        children: &Children,
        assets: &Assets,
        dir: &Path,
        authority: &Authority,
        plan: &Plan<'_>,
    ) -> Result<Self> {
        let folder = dir.join(plan.name);
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        let port = ports::free()?;
        let url = format!("https://127.0.0.1:{port}");
        let (identity, to_webhooks) = (authority.server("kube-apiserver")?, authority.client("kube-apiserver")?);
        let tokens: Vec<String> = plan.users.iter().map(User::line).collect();
        let (signing_key, public_key) = pki::signing_key()?;
        for (name, text) in [
            ("ca.crt", authority.certificate()),
            ("ca.key", authority.key()),
            ("tls.crt", identity.certificate),
            ("tls.key", identity.key),
            ("webhooks.crt", to_webhooks.certificate),
            ("webhooks.key", to_webhooks.key),
            ("webhooks.kubeconfig", WEBHOOKS.to_owned()),
            ("admission.yaml", admission(&folder)?),
            ("sa.key", signing_key),
            ("sa.pub", public_key),
            ("tokens.csv", tokens.concat()),
        ] {
            write_private(&folder.join(name), &text)?;
        }
        let admin = plan.users.first().context("an API server needs an administrator")?;
        let kubeconfig = folder.join("kubeconfig");
        Access {
            cluster: plan.name,
            server: &url,
            authority: &authority.certificate(),
            user: admin.name,
            token: &admin.token,
            namespace: plan.namespace,
        }
        .write(&kubeconfig)?;
        let mut command = Command::new(&assets.api_server);
        command
            .current_dir(&folder)
            .args(["--etcd-servers", plan.etcd, "--etcd-prefix", &format!("/{}", plan.name)])
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", &format!("--secure-port={port}")])
            .args(["--tls-cert-file=tls.crt", "--tls-private-key-file=tls.key", "--client-ca-file=ca.crt"])
            .args(["--token-auth-file=tokens.csv", "--authorization-mode=Node,RBAC", "--allow-privileged=true"])
            .args(["--service-account-issuer", &format!("https://{}.testbed.local", plan.name)])
            .args(["--service-account-signing-key-file=sa.key", "--service-account-key-file=sa.pub"])
            .args(["--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none"])
            .args([
                "--admission-control-config-file=admission.yaml",
                "--profiling=false",
                "--shutdown-send-retry-after=false",
                // Its queues cost more than what a world asks for.
                "--enable-priority-and-fairness=false",
            ])
            // Worlds side by side compete for the CPU: 12 % less of it, for 120 MB more.
            .env("GOGC", "400");
        if let Some(log) = plan.audit {
            fs::write(folder.join("audit.yaml"), AUDIT_POLICY).context("write the audit policy")?;
            command.args(["--audit-policy-file=audit.yaml", "--audit-log-maxsize=1000", "--audit-log-path"]).arg(log);
        }
        children.spawn(&format!("{}-apiserver", plan.name), Rank::Server, command)?;
        Ok(Self { name: plan.name.to_owned(), url, kubeconfig, admin_token: admin.token.clone(), folder })
    }

    /// A client of its administrator.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn client(&self) -> Result<Client> {
        kubeconfig::client_from(&self.kubeconfig).await
    }

    /// Waits until it says so of itself.
    ///
    /// # Errors
    /// When it has ended, or is not ready in time.
    pub async fn ready(&self, children: &Children) -> Result<()> {
        let client = self.client().await?;
        let name = format!("{}-apiserver", self.name);
        let deadline = time::Instant::now() + READY;
        loop {
            let request = http::Request::get("/readyz").body(Vec::new())?;
            match client.request_text(request).await {
                Ok(text) if text == "ok" => return Ok(()),
                answer => {
                    children.still_alive(&name)?;
                    if time::Instant::now() > deadline {
                        let last = answer.unwrap_or_else(|error| error.to_string());
                        anyhow::bail!("{name} is not ready after {READY:?}: {last}");
                    }
                }
            }
            time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Starts the controller manager with the controllers that a test can notice.
    ///
    /// # Errors
    /// When the process does not start.
    pub fn start_manager(&self, children: &Children, assets: &Assets, controllers: &[&str]) -> Result<()> {
        let mut command = Command::new(&assets.controller_manager);
        command
            .current_dir(&self.folder)
            .args(["--kubeconfig=kubeconfig", "--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=0"])
            .args(["--cluster-signing-cert-file=ca.crt", "--cluster-signing-key-file=ca.key", "--root-ca-file=ca.crt"])
            .args(["--service-account-private-key-file=sa.key", "--controllers", &controllers.join(",")])
            .args(["--node-monitor-grace-period=50s"]);
        children.spawn(&format!("{}-controller-manager", self.name), Rank::Manager, command).map(drop)
    }
}

/// Controllers of the hub: namespaces that can be deleted, workloads that follow their replica counts, volumes that
/// stay as long as a Pod uses them.
pub const HUB_CONTROLLERS: &[&str] = &[
    "namespace-controller",
    "garbage-collector-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "clusterrole-aggregation-controller",
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "persistentvolumeclaim-protection-controller",
];

/// Controllers of a spoke: silent Nodes become Unknown, certificate requests are signed once approved.
pub const SPOKE_CONTROLLERS: &[&str] = &[
    "namespace-controller",
    "garbage-collector-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "node-lifecycle-controller",
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-signing-controller",
    "certificatesigningrequest-cleaner-controller",
];

/// Whom an API server is to a webhook that asks: the same to all, because a test's webhooks are at ports that no one
/// knows yet.
const WEBHOOKS: &str = "\
apiVersion: v1
kind: Config
users:
- name: '*'
  user:
    client-certificate: webhooks.crt
    client-key: webhooks.key
";

fn admission(folder: &Path) -> Result<String> {
    let kubeconfig = fs::canonicalize(folder)?.join("webhooks.kubeconfig");
    let plugin = |name: &str| {
        format!(
            "- name: {name}
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: {}
",
            kubeconfig.display()
        )
    };
    let plugins = ["ValidatingAdmissionWebhook", "MutatingAdmissionWebhook"].map(plugin).concat();
    Ok(format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n{plugins}"))
}

/// One line per answered request, without bodies.
const AUDIT_POLICY: &str =
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n";
