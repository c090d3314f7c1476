//! The task of a webhook whose certificate another program writes to two files, such as a mounted Secret of
//! cert-manager.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::managed::StartError;
use super::options::Timing;
use super::parse;
use super::serving::Serving;

/// How soon to read files again that do not form a pair: a kubelet may be swapping them.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Hash of both files' content. The kubelet swaps links, so times and inodes of the files are not reliable.
type Fingerprint = [u8; 32];

struct Task {
    certificate: PathBuf,
    key: PathBuf,
    serving: Arc<Serving>,
    served: Option<Fingerprint>,
}

/// Serves the pair in the files, and returns the task that reloads it.
pub(super) async fn run(
    certificate: PathBuf,
    key: PathBuf,
    timing: Timing,
    serving: Arc<Serving>,
) -> Result<impl Future<Output = ()> + Send + use<>, StartError> {
    let mut task = Task { certificate, key, serving, served: None };
    task.load().await?;
    Ok(task.run(timing.check))
}

impl Task {
    async fn run(mut self, check: Duration) {
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

    /// Serves what is in the files, if it is something new and a pair.
    async fn load(&mut self) -> Result<(), StartError> {
        let (certificate, key) = (read(&self.certificate).await?, read(&self.key).await?);
        let found = fingerprint(&certificate, &key);
        if self.served == Some(found) {
            return Ok(());
        }
        let pair = parse::pair(&certificate, &key).map_err(|source| StartError::Pair {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            source,
        })?;
        self.serving.serve(pair);
        self.served = Some(found);
        Ok(())
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, StartError> {
    tokio::fs::read(path).await.map_err(|source| StartError::Read { path: path.to_owned(), source })
}

fn fingerprint(certificate: &[u8], key: &[u8]) -> Fingerprint {
    let mut hash = Sha256::new();
    // Both lengths are in it, so that no text can wander from one file to the other unseen.
    hash.update((certificate.len() as u64).to_be_bytes());
    hash.update(certificate);
    hash.update(key);
    hash.finalize().into()
}
