//! The client of a user. One whose certificate ends, which a credential plugin has printed, is replaced in time: kube keeps
//! the first certificate, and kubectl runs the plugin again.

use std::sync::{Arc, Mutex, PoisonError};

use kube::client::ClientBuilder;
use kube::{Client, Config};
use tower::BoxError;
use tower::util::MapErrLayer;

use crate::credential::{Login, has_ended, log_in};
use crate::error::HubError;
use crate::login::{self, Plugin};
use crate::middleware::HubLayer;

/// What makes clients, and the one of now.
pub struct Session {
    config: Config,
    url: Arc<str>,
    layer: HubLayer,
    now: Mutex<Client>,
}

impl Session {
    /// Runs the plugin of a user who has one. Nothing is sent.
    ///
    /// # Errors
    /// When there can be no such client.
    pub fn new(config: Config, url: Arc<str>, layer: HubLayer) -> Result<Self, HubError> {
        let now = Mutex::new(client(config.clone(), &url, &layer)?);
        Ok(Self { config, url, layer, now })
    }

    /// The client. Runs the plugin once more if its certificate has ended, while all requests wait: one login is for all of
    /// them. What is under way goes on with the client that it has.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn client(&self) -> Result<Client, HubError> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.valid_until().is_some_and(has_ended) {
            *now = client(self.config.clone(), &self.url, &self.layer)?;
        }
        Ok(now.clone())
    }
}

fn client(mut config: Config, url: &Arc<str>, layer: &HubLayer) -> Result<Client, HubError> {
    let failed = |cause| HubError::Login { url: Arc::clone(url), cause };
    let Login { token, certificate_end } = log_in(&mut config.auth_info).map_err(failed)?;
    let plugin = Plugin::of(&config.auth_info).unwrap_or_default();
    let client = ClientBuilder::try_from(config)
        .map_err(|source| no_client(Arc::clone(url), source, &plugin))?
        .with_layer(&MapErrLayer::new(move |error: BoxError| login::discreet(error, &plugin)))
        .with_layer(&layer.with_token(token))
        .build();
    Ok(client.with_valid_until(certificate_end))
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

#[cfg(all(test, unix))]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use serde_json::json;

    use super::*;
    use crate::credential::tests::{credential, runs, user};

    /// A pair that nobody trusts.
    const KEY: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgMywd1SLeL38ZRLIV
F2peg/usWInoRqMnq2igoMahtW6hRANCAARIOLObmwUMnAdpGEAdduh6LgLAng1s
LSzbkfheewE4Kl0geO8szVsq3DhIsADEP3S8MSE8lKjnnM9LoISRsGW8";
    const CERTIFICATE: &str = "MIIBbjCCARWgAwIBAgIUeGBldhDkAT5sJeEvygqLYSGngQQwCgYIKoZIzj0EAwIw
DDEKMAgGA1UEAwwBdDAgFw0yNjExMzAyMzA1MjNaGA8yMTI2MTEwNjIzMDUyM1ow
DDEKMAgGA1UEAwwBdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABEg4s5ubBQyc
B2kYQB126HouAsCeDWwtLNuR+F57ATgqXSB47yzNWyrcOEiwAMQ/dLwxITyUqOec
z0ughJGwZbyjUzBRMB0GA1UdDgQWBBTfn5Uy/umcBpaVGFVlhwMFjiMjcTAfBgNV
HSMEGDAWgBTfn5Uy/umcBpaVGFVlhwMFjiMjcTAPBgNVHRMBAf8EBTADAQH/MAoG
CCqGSM49BAMCA0cAMEQCICYVA6pwMQ87ciqEBgibcmzasZlmKBqj7Q3sVhmW5y6M
AiAY20AHG4oep8p9N3IoBsWW5ahfft3Ifzqd8LPu5XxCHQ==";

    fn pem(what: &str, text: &str) -> String {
        format!("-----BEGIN {what}-----\n{text}\n-----END {what}-----\n")
    }

    #[test]
    fn a_plugin_runs_once_and_again_when_its_certificate_has_ended() {
        let _ = crate::provider().install_default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for (seconds, expected) in [(None, 1), (Some(3_600), 1), (Some(5), 3)] {
            let folder = tempfile::TempDir::new().unwrap();
            let end = seconds.map(|seconds| (Timestamp::now() + SignedDuration::from_secs(seconds)).to_string());
            let (certificate, key) = (pem("CERTIFICATE", CERTIFICATE), pem("PRIVATE KEY", KEY));
            let status =
                json!({ "clientCertificateData": certificate, "clientKeyData": key, "expirationTimestamp": end });
            let url = "https://127.0.0.1:1";
            let mut config = Config::new(url.parse().unwrap());
            config.auth_info = user(folder.path(), &credential(&status));
            let layer = HubLayer::new(Arc::new(|_| {}), None, None);
            runtime.block_on(async {
                let session = Session::new(config, url.into(), layer).unwrap();
                for _ in 0..2 {
                    drop(session.client().unwrap());
                }
            });
            assert_eq!(runs(folder.path()), expected, "{seconds:?}");
        }
    }
}
