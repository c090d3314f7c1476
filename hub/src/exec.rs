//! Running a command in a container, as `kubectl exec` does.
//!
//! By kube's own WebSocket (`v5.channel.k8s.io`): it goes over the plugin's connection, with the same credentials,
//! proxies and impersonation, and needs no kubectl beside the plugin. It costs three small crates and nothing at
//! start-up.

use std::time::Duration;

use futures::future::OptionFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{AttachParams, AttachedProcess};
use kube::{Api, Client};
use shared::kinds::Kind;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::HubClient;
use crate::answer::{self, Call};
use crate::error::HubError;

/// The kind in which commands run.
pub static POD: Kind = Kind::namespaced("", &["v1"], "Pod", "pods");

/// More output than this is of no use to anybody.
const MOST: u64 = 64 * 1024;

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// What it printed, to stdout and then to stderr.
    pub text: String,
    /// Why it failed, in the API server's words (`command terminated with non-zero exit code: ...`); none if it did
    /// not.
    pub failure: Option<String>,
}

/// Why a command could not be run at all.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error("the command did not end within {0} s")]
    Silent(u64),
    #[error("the connection to the command ended before the command did")]
    Cut,
}

impl HubClient {
    /// Runs a command in a container and waits for its end.
    ///
    /// # Errors
    /// When it could not be run, or its end was not seen within `limit`. A command that fails by itself is no error
    /// here.
    pub async fn exec(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        command: &[String],
        limit: Duration,
    ) -> Result<Output, ExecError> {
        let call = Call { verb: "exec into", kind: &POD, name: pod.to_owned() };
        let params = AttachParams::default().container(container).stdout(true).stderr(true);
        let (url, call, params) = (&self.url, &call, &params);
        let start = move |client: Client| async move {
            let pods: Api<Pod> = Api::namespaced(client, namespace);
            pods.exec(pod, command, params).await.map_err(|source| answer::judge(url, call, source))
        };
        let work = async { collect(self.session.send(start).await?).await };
        tokio::time::timeout(limit, work).await.unwrap_or(Err(ExecError::Silent(limit.as_secs())))
    }
}

async fn collect(mut process: AttachedProcess) -> Result<Output, ExecError> {
    let status = process.take_status();
    let (stdout, stderr) = (process.stdout(), process.stderr());
    // Read both concurrently: the command blocks if either stream is not read.
    let (out, err) = tokio::join!(read(stdout), read(stderr));
    let status = OptionFuture::from(status).await.flatten().ok_or(ExecError::Cut)?;
    let failed = status.status.as_deref() != Some("Success");
    let failure = failed.then(|| status.message.unwrap_or_else(|| "it failed without a reason".to_owned()));
    Ok(Output { text: format!("{out}{err}"), failure })
}

async fn read(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        // What was read before a break is worth showing; the break itself shows in the missing status.
        let _ = (&mut stream).take(MOST).read_to_end(&mut bytes).await;
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
