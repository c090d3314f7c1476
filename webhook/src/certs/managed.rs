//! The certificate task of a webhook that is its own authority: it watches, decides by the table of
//! [`super::material`], writes and publishes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::select_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, Client, ResourceExt as _};

use super::bundle::{self, Published};
use super::material::{IssueError, Material, Step, Wanted};
use super::options::Managed;
use super::parse::{self, PairError};
use super::secret::{self, SecretError};
use super::serving::Serving;

/// Pause before the next reconcile while work is left, and between two attempts of a replica to write the Secret.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// How long one reconcile may take, with all its API calls.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(15);

/// Why certificates could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration does not make a client.
    #[error("cannot create a client for the certificate's Secret")]
    Client(#[source] kube::Error),
    /// A CA must outlive the leaves of the one before.
    #[error(
        "invalid lifetimes: a serving certificate ({leaf:?}) may last at most a third of its CA's lifetime \
         ({authority:?})"
    )]
    Lifetimes {
        /// Lifetime of a CA.
        authority: Duration,
        /// Lifetime of a leaf.
        leaf: Duration,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file with the CA of clients is of no use.
    #[error("cannot use {} as the CA of clients: {why}", path.display())]
    ClientCa {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The files are no pair.
    #[error("cannot use {} with {}", certificate.display(), key.display())]
    Pair {
        /// File with the chain.
        certificate: PathBuf,
        /// File with the key.
        key: PathBuf,
        /// What is wrong with them.
        source: PairError,
    },
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
enum ReconcileError {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Issue(#[from] IssueError),
    #[error("cannot read Secret {namespace}/{name}")]
    Read { namespace: String, name: String, source: kube::Error },
    #[error("cannot write the caBundle of {kind} {name}")]
    Publish { kind: &'static str, name: String, source: kube::Error },
    #[error("cannot watch {what} {name}")]
    Watch { what: &'static str, name: String, source: watcher::Error },
    #[error("the certificate reconcile took longer than {RECONCILE_TIMEOUT:?}")]
    Deadline(#[from] tokio::time::error::Elapsed),
}

/// Result of a reconcile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// All is as it should be.
    Settled,
    /// Something is to be done later, or another replica has done it.
    Pending,
}

struct Task {
    secrets: Api<Secret>,
    configurations: [(&'static str, Api<DynamicObject>); 2],
    managed: Managed,
    wanted: Wanted,
    serving: Arc<Serving>,
    /// Whether the Secret was read at all.
    is_read: bool,
    /// The Secret as it was seen last, if it was there.
    secret: Option<Secret>,
    /// When a write of it was attempted last.
    attempted: Option<Instant>,
}

/// Checks the settings and makes the task.
pub(super) fn run(
    config: kube::Config,
    managed: Managed,
    serving: Arc<Serving>,
) -> Result<impl Future<Output = ()> + Send + use<>, StartError> {
    let super::Timing { authority, leaf, .. } = managed.timing;
    if leaf > authority / 3 {
        return Err(StartError::Lifetimes { authority, leaf });
    }
    let client = Client::try_from(config).map_err(StartError::Client)?;
    let task = Task {
        secrets: Api::namespaced(client.clone(), &managed.namespace),
        configurations: bundle::configurations(&client),
        wanted: Wanted { names: managed.names(), timing: managed.timing },
        managed,
        serving,
        is_read: false,
        secret: None,
        attempted: None,
    };
    Ok(task.run())
}

impl Task {
    async fn run(mut self) {
        let Managed { secret, configuration, timing, .. } = self.managed.clone();
        let mut secrets = watch_object(self.secrets.clone(), &secret).default_backoff().boxed();
        let mut configurations = select_all(self.configurations.clone().map(|(kind, api)| {
            watch_object(api, &configuration).default_backoff().map(move |event| (kind, event)).boxed()
        }));
        let mut wait = timing.check;
        loop {
            // The timer is short and what it leads to reads the wall clock, because a monotonic clock stands still
            // while its host is suspended.
            let seen = tokio::select! {
                Some(event) = secrets.next() => self.see_secret(event),
                Some((kind, event)) = configurations.next() => self.see_configuration(kind, event),
                () = tokio::time::sleep(wait) => Ok(()),
            };
            let passed = match seen {
                Ok(()) => {
                    tokio::time::timeout(RECONCILE_TIMEOUT, self.pass()).await.unwrap_or_else(|late| Err(late.into()))
                }
                Err(error) => Err(error),
            };
            wait = match passed {
                Ok(Pass::Settled) => {
                    self.serving.recovered();
                    timing.check
                }
                Ok(Pass::Pending) => self.pause(),
                Err(error) => {
                    self.serving.failed(&error);
                    self.pause()
                }
            };
        }
    }

    fn pause(&self) -> Duration {
        RETRY_INTERVAL.min(self.managed.timing.check)
    }

    fn see_secret(&mut self, event: watcher::Result<Option<Secret>>) -> Result<(), ReconcileError> {
        let name = self.managed.secret.clone();
        self.secret = event.map_err(|source| ReconcileError::Watch { what: "Secret", name, source })?;
        self.is_read = true;
        Ok(())
    }

    fn see_configuration(
        &self,
        kind: &'static str,
        event: watcher::Result<Option<DynamicObject>>,
    ) -> Result<(), ReconcileError> {
        let name = self.managed.configuration.clone();
        let configuration = event.map_err(|source| ReconcileError::Watch { what: kind, name, source })?;
        self.serving.published(kind, configuration.as_ref().map(Published::of));
        Ok(())
    }

    /// Checks everything once, and writes the Secret at most once. The write comes back through the watch.
    async fn pass(&mut self) -> Result<Pass, ReconcileError> {
        if !self.is_read {
            return Ok(Pass::Pending);
        }
        let content = self.secret.as_ref().map(secret::content).transpose()?.flatten();
        let pair = content.as_ref().map(|content| parse::pair(content.chain.as_bytes(), content.key.as_bytes()));
        if let Some(Ok(pair)) = pair {
            self.serving.serve(pair); // whatever has to be done about it, it is better than nothing
        }
        let now = Timestamp::now();
        let material = content.and_then(Material::read);
        match &material {
            None => self.write(&Step::Begin, None, now).await,
            Some(material) => match material.step(&self.wanted, now) {
                Step::Nothing => self.publish(material.bundle()).await,
                step => self.write(&step, Some(material), now).await,
            },
        }
    }

    /// Of several replicas one succeeds: the others have another version than the API server.
    async fn write(
        &mut self,
        step: &Step,
        material: Option<&Material>,
        now: Timestamp,
    ) -> Result<Pass, ReconcileError> {
        // Replicas with different settings, as during a rollout of the Deployment, replace each other's leaf as often
        // as they may.
        if self.attempted.is_some_and(|at| at.elapsed() < self.pause()) {
            return Ok(Pass::Pending);
        }
        self.attempted = Some(Instant::now());
        let content = match material {
            Some(material) => material.after(step, &self.wanted, now)?,
            None => self.wanted.begin(now)?,
        };
        let Managed { namespace, secret, .. } = &self.managed;
        if secret::write(&self.secrets, namespace, secret, self.secret.as_ref(), &content).await? {
            tracing::info!(%namespace, %secret, ?step, "certificate Secret written");
        }
        Ok(Pass::Pending)
    }

    async fn publish(&mut self, bundle: &str) -> Result<Pass, ReconcileError> {
        for (kind, api) in self.configurations.clone() {
            if self.publish_in(kind, &api, bundle).await? == Pass::Pending {
                return Ok(Pass::Pending);
            }
        }
        Ok(Pass::Settled)
    }

    /// No bundle is put back that another replica has replaced: the Secret is read after the configuration was
    /// observed, and only that version of the configuration is written.
    async fn publish_in(
        &mut self,
        kind: &'static str,
        api: &Api<DynamicObject>,
        bundle: &str,
    ) -> Result<Pass, ReconcileError> {
        // Without a configuration there is nothing to own; its creation wakes us. Until then, readiness says so.
        let Some(mut published) = self.serving.seen(kind) else {
            return Ok(Pass::Settled);
        };
        let name = self.managed.configuration.clone();
        let error = |source| ReconcileError::Publish { kind, name: name.clone(), source };
        if !published.holds(bundle) {
            if !self.is_current().await? {
                return Ok(Pass::Pending);
            }
            let written = bundle::publish((kind, api), &name, &published, bundle).await.map_err(error)?;
            let Some(written) = written else { return Ok(Pass::Pending) };
            tracing::info!(kind, %name, "caBundle written");
            published = written;
        }
        // Readiness needs the bundle, not its ownership.
        self.serving.published(kind, Some(published.clone()));
        let Some(disowned) = bundle::disown(api, &name, published).await.map_err(error)? else {
            return Ok(Pass::Pending);
        };
        self.serving.published(kind, Some(disowned));
        Ok(Pass::Settled)
    }

    /// Whether the Secret still is the one that was observed. If not, the watch lags: what was read instead counts from
    /// here on.
    async fn is_current(&mut self) -> Result<bool, ReconcileError> {
        let Managed { namespace, secret, .. } = &self.managed;
        let error = |source| ReconcileError::Read { namespace: namespace.clone(), name: secret.clone(), source };
        let current = self.secrets.get_opt(secret).await.map_err(error)?;
        let version = |secret: Option<&Secret>| secret?.resource_version();
        let is_same = version(current.as_ref()) == version(self.secret.as_ref());
        self.secret = current;
        Ok(is_same)
    }
}
