//! The client of a user. One that a credential plugin has logged in is replaced before the login ends, and when the hub
//! refuses it: kube keeps the first login, and kubectl runs the plugin again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::client::ClientBuilder;
use kube::{Client, Config};
use tower::BoxError;
use tower::util::MapErrLayer;

use crate::credential::{Login, has_ended, log_in};
use crate::error::HubError;
use crate::login::{self, Plugin};
use crate::middleware::HubLayer;

/// A login that the hub refuses earlier than this is not renewed: the plugin would print the same.
const REST: Duration = Duration::from_secs(5);

/// What makes clients, and the one of now.
pub struct Session {
    config: Config,
    url: Arc<str>,
    layer: HubLayer,
    now: Mutex<LoggedIn>,
}

/// A client and its login.
struct LoggedIn {
    client: Client,
    /// When a credential plugin logged it in; none if none did.
    at: Option<Instant>,
    /// Whether the hub has refused it since.
    is_refused: bool,
    /// When it could not be renewed last.
    failed_at: Option<Instant>,
}

impl Session {
    /// Runs the plugin of a user who has one. Nothing is sent.
    ///
    /// # Errors
    /// When there can be no such client.
    pub fn new(config: Config, url: Arc<str>, layer: HubLayer) -> Result<Self, HubError> {
        let now = Mutex::new(logged_in(config.clone(), &url, &layer)?);
        Ok(Self { config, url, layer, now })
    }

    /// Sends a request, and once more with a new login if the hub refuses this one (401).
    ///
    /// # Errors
    /// As [`Session::new`] for a new login, and as `send`.
    pub async fn send<T, F>(&self, send: impl Fn(Client) -> F) -> Result<T, HubError>
    where
        F: Future<Output = Result<T, HubError>>,
    {
        let (client, at) = self.client()?;
        match send(client).await {
            Err(HubError::Unauthorized { .. }) if self.renews(at) => {}
            result => return result,
        }
        let (client, _) = self.client()?;
        send(client).await
    }

    /// The client, and when it was logged in. Runs the plugin once more if the login has ended or was refused, while
    /// all requests wait: one login is for all of them. What is under way goes on with the client that it has.
    fn client(&self) -> Result<(Client, Option<Instant>), HubError> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = now.is_refused || now.client.valid_until().is_some_and(has_ended);
        // A plugin that fails is not run for each request: the hub answers what it thinks of the login of before.
        if is_over && now.failed_at.is_none_or(|at| at.elapsed() >= REST) {
            let renewed = logged_in(self.config.clone(), &self.url, &self.layer);
            now.failed_at = renewed.is_err().then(Instant::now);
            *now = renewed?;
        }
        Ok((now.client.clone(), now.at))
    }

    /// Whether another login follows the one of that time, which the hub has refused, or has followed it already.
    fn renews(&self, refused: Option<Instant>) -> bool {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = now.at else { return false };
        if refused != Some(at) {
            return true;
        }
        now.is_refused = at.elapsed() >= REST;
        now.is_refused
    }
}

fn logged_in(mut config: Config, url: &Arc<str>, layer: &HubLayer) -> Result<LoggedIn, HubError> {
    let failed = |cause| HubError::Login { url: Arc::clone(url), cause };
    let login = log_in(&mut config.auth_info).map_err(failed)?;
    let at = login.as_ref().map(|_| Instant::now());
    let Login { token, end } = login.unwrap_or_default();
    let plugin = Plugin::of(&config.auth_info).unwrap_or_default();
    let client = ClientBuilder::try_from(config)
        .map_err(|source| no_client(Arc::clone(url), source, &plugin))?
        .with_layer(&MapErrLayer::new(move |error: BoxError| login::discreet(error, &plugin)))
        .with_layer(&layer.with_token(token))
        .build();
    Ok(LoggedIn { client: client.with_valid_until(end), at, is_refused: false, failed_at: None })
}

/// Why there is no client. To set one up is where kube runs a credential plugin first.
fn no_client(url: Arc<str>, source: kube::Error, plugin: &Plugin) -> HubError {
    match source {
        kube::Error::Auth(error) => {
            let cause = login::cause(&error, plugin).unwrap_or_else(|| error.to_string());
            HubError::Login { url, cause }
        }
        source => HubError::Client { url, source },
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::Path;

    use futures::future::join;
    use jiff::{SignedDuration, Timestamp};
    use serde_json::{Value, json};

    use super::*;
    use crate::credential::tests::{credential, runs, user};

    /// A pair that nobody trusts.
    fn pair() -> Value {
        let made = rcgen::generate_simple_self_signed(["user".to_owned()]).unwrap();
        json!({ "clientCertificateData": made.cert.pem(), "clientKeyData": made.signing_key.serialize_pem() })
    }

    /// Of a user whose plugin prints this; none has no plugin.
    fn session(folder: &Path, status: Option<&Value>) -> Session {
        let _ = crate::provider().install_default();
        let url = "https://127.0.0.1:1";
        let mut config = Config::new(url.parse().unwrap());
        if let Some(status) = status {
            config.auth_info = user(folder, &credential(status));
        }
        Session::new(config, url.into(), HubLayer::new(Arc::new(|_| {}), None, None)).unwrap()
    }

    fn wait_for<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    #[test]
    fn a_plugin_runs_once_and_again_when_its_login_has_ended() {
        for mut status in [pair(), json!({ "token": "t" })] {
            for (seconds, expected) in [(None, 1), (Some(3_600), 1), (Some(5), 3)] {
                let folder = tempfile::TempDir::new().unwrap();
                let end = seconds.map(|seconds| (Timestamp::now() + SignedDuration::from_secs(seconds)).to_string());
                status["expirationTimestamp"] = json!(end);
                wait_for(async {
                    let session = session(folder.path(), Some(&status));
                    for _ in 0..2 {
                        session.send(|_| async { Ok(()) }).await.unwrap();
                    }
                });
                assert_eq!(runs(folder.path()), expected, "{seconds:?} {status}");
            }
        }
    }

    /// The age of the login, how many answers are a 401, what the plugin prints; then what is sent for two requests at
    /// once and a third one after them, and how often the plugin has run.
    #[test]
    fn a_login_that_the_hub_refuses_is_renewed_once_for_all_requests_and_not_in_a_hurry() {
        for (case, age, refused, plugin, sent, ran) in [
            ("accepted", REST, 0, Some(json!({ "token": "t" })), 3, 1),
            ("a token has ended", REST, 2, Some(json!({ "token": "t" })), 5, 2),
            ("a certificate has ended", REST, 2, Some(pair()), 5, 2),
            ("always refused", REST, 9, Some(json!({ "token": "t" })), 5, 2),
            ("of just now", Duration::ZERO, 9, Some(json!({ "token": "t" })), 3, 1),
            ("without a plugin", REST, 9, None, 3, 0),
        ] {
            let (folder, sends) = (tempfile::TempDir::new().unwrap(), Cell::new(0));
            let send = |_: Client| {
                sends.set(sends.get() + 1);
                let fails = sends.get() <= refused;
                async move {
                    tokio::task::yield_now().await;
                    if fails { Err(HubError::Unauthorized { url: "https://hub".into() }) } else { Ok(()) }
                }
            };
            let last = wait_for(async {
                let session = session(folder.path(), plugin.as_ref());
                {
                    let mut now = session.now.lock().unwrap();
                    now.at = now.at.and_then(|at| at.checked_sub(age));
                }
                let _ = join(session.send(&send), session.send(&send)).await;
                session.send(&send).await
            });
            assert_eq!((sends.get(), runs(folder.path())), (sent, ran), "{case}");
            assert_eq!(last.is_ok(), refused < 9, "{case}");
        }
    }
}
