//! What tests check of a program that has run and of a write that the webhook judges, and the object that they judge.

use std::panic::Location;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::options::{Options, Program};
use crate::world::run::Ran;

/// A hub with our webhook and no controller, so that only the test writes.
pub fn webhook_only() -> Options {
    Options { without: vec![Program::Controller], ..Options::hub_only() }
}

/// An installed, sound `ClusterDeployment` on this platform.
pub fn installed(name: &str, platform: &str) -> Value {
    json!({
        "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment", "metadata": { "name": name },
        "spec": {
            "baseDomain": "example.com", "clusterName": name, "installed": true,
            "platform": { platform: { "region": "europe-west1" } },
            "clusterMetadata": {
                "clusterID": "c", "infraID": format!("{name}-x"), "adminKubeconfigSecretRef": { "name": "kubeconfig" },
            },
        },
    })
}

/// What kubectl prints about a write.
#[derive(Clone, Copy, Debug)]
pub enum Says<'a> {
    /// It passes without a word.
    Nothing,
    /// It passes with this warning.
    Warns(&'a str),
    /// It is refused with these words.
    Denies(&'a str),
}

impl Says<'_> {
    /// # Errors
    /// When kubectl printed something else.
    #[track_caller]
    pub fn check(self, ran: &Ran) -> Result<()> {
        let printed = ran.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        let fits = match self {
            Says::Nothing => ran.code == 0 && printed.is_empty(),
            Says::Warns(text) => ran.code == 0 && printed.contains("Warning:") && printed.contains(text),
            Says::Denies(text) => ran.code == 1 && printed.contains(text),
        };
        ensure!(fits, "{}: wanted {self:?}, got exit code {} and {printed:?}", Location::caller(), ran.code);
        Ok(())
    }
}

impl Ran {
    /// It ended with this exit code, and its error output has these parts.
    ///
    /// # Errors
    /// When it did not, or one is missing.
    #[track_caller]
    pub fn says(&self, code: i32, parts: &[&str]) -> Result<()> {
        let missing: Vec<_> = parts.iter().filter(|part| !self.stderr.contains(**part)).collect();
        let (found, caller) = (self.code, Location::caller());
        ensure!(found == code && missing.is_empty(), "{caller}: exit code {found}, without {missing:?}: {self:#?}");
        Ok(())
    }

    /// The same, and it printed no result.
    ///
    /// # Errors
    /// When it did.
    #[track_caller]
    pub fn refuses(&self, code: i32, parts: &[&str]) -> Result<()> {
        ensure!(self.stdout.is_empty(), "{}: {self:#?}", Location::caller());
        self.says(code, parts)
    }

    /// Standard output of a program that succeeded, as JSON.
    ///
    /// # Errors
    /// When it did not, or the output is something else.
    pub fn json(self) -> Result<Value> {
        let text = self.ok()?;
        serde_json::from_str(&text).context(text)
    }
}
