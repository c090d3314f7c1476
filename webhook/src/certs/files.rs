//! The task of a webhook whose certificate another program writes to two files, such as a mounted Secret of
//! cert-manager.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::managed::StartError;
use super::options::Timing;
use super::parse;
use super::serving::Serving;

/// How soon to read files again that do not form a pair: a kubelet may be swapping them.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

struct Task {
    certificate: PathBuf,
    key: PathBuf,
    serving: Arc<Serving>,
}

/// Serves the pair in the files, and returns the task that reloads it.
pub(super) async fn run(
    certificate: PathBuf,
    key: PathBuf,
    timing: Timing,
    serving: Arc<Serving>,
) -> Result<impl Future<Output = ()> + Send + use<>, StartError> {
    let task = Task { certificate, key, serving };
    task.load().await?;
    Ok(task.run(timing.check))
}

impl Task {
    async fn run(self, check: Duration) {
        let mut wait = check;
        loop {
            tokio::time::sleep(wait).await;
            wait = match self.load().await {
                Ok(()) => {
                    self.serving.recovered();
                    check
                }
                // The old pair stays in use. The files are read again soon, in full.
                Err(error) => {
                    self.serving.failed(&error);
                    RETRY_INTERVAL.min(check)
                }
            };
        }
    }

    /// Serves what is in the files, if it is a pair.
    async fn load(&self) -> Result<(), StartError> {
        let (certificate, key) = (read(&self.certificate).await?, read(&self.key).await?);
        let pair = parse::pair(&certificate, &key).map_err(|source| StartError::Pair {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            source,
        })?;
        self.serving.serve(pair);
        Ok(())
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, StartError> {
    tokio::fs::read(path).await.map_err(|source| StartError::Read { path: path.to_owned(), source })
}
