//! Running programs inside a world: kubectl, our plugin.

use std::env;
use std::ffi::OsStr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::process::Command;

use super::World;
use crate::paths;

/// Longest time that a program may run.
const LIMIT: Duration = Duration::from_mins(3);

/// What a program did.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Exit code; -1 if a signal ended it.
    pub code: i32,
    /// How long it took.
    pub duration: Duration,
}

impl Ran {
    /// Standard output of a program that succeeded.
    ///
    /// # Errors
    /// When it did not; its output is part of the error.
    pub fn ok(self) -> Result<String> {
        anyhow::ensure!(self.code == 0, "exit code {}\nstdout: {}\nstderr: {}", self.code, self.stdout, self.stderr);
        Ok(self.stdout)
    }
}

impl World {
    /// Variables that make kubectl, our plugin and AWS clients find this world.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let file = self.file();
        vec![
            ("KUBECONFIG", file.hub.kubeconfig.display().to_string()),
            // Ports are used again by other worlds, whose API servers serve other kinds.
            ("KUBECACHEDIR", self.dir().join("kube-cache").display().to_string()),
            ("HIBERNATE_WORLD", self.dir().display().to_string()),
            ("AWS_ENDPOINT_URL", file.ec2.endpoint.clone()),
            ("AWS_ACCESS_KEY_ID", file.ec2.access_key_id.clone()),
            ("AWS_SECRET_ACCESS_KEY", file.ec2.secret_access_key.clone()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
    }

    /// Folders of our programs, for `PATH`.
    pub fn program_path(&self) -> String {
        let folders = paths::program_folders();
        env::join_paths(folders.iter().filter(|folder| folder.is_dir()))
            .map(|path| path.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// A program that is to run in this world, as the hub's administrator.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let path = env::var_os("PATH").unwrap_or_default();
        command
            .envs(self.environment())
            .env("PATH", format!("{}:{}", self.program_path(), path.to_string_lossy()))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs a program to its end.
    ///
    /// # Errors
    /// When it does not start or takes longer than three minutes.
    pub async fn run(&self, mut command: Command) -> Result<Ran> {
        let what = format!("{:?}", command.as_std());
        let begun = Instant::now();
        let output = tokio::time::timeout(LIMIT, command.output())
            .await
            .with_context(|| format!("{what} takes longer than {LIMIT:?}"))?;
        let output = output.with_context(|| format!("run {what}"))?;
        Ok(Ran {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            code: output.status.code().unwrap_or(-1),
            duration: begun.elapsed(),
        })
    }

    /// Runs kubectl as the hub's administrator; `--as alice` makes it another user.
    ///
    /// # Errors
    /// When it does not start. A failing kubectl is no error: check [`Ran::code`].
    pub async fn kubectl(&self, args: &[&str]) -> Result<Ran> {
        let mut command = self.command("kubectl");
        command.args(args);
        self.run(command).await
    }

    /// Runs our plugin, without kubectl in between.
    ///
    /// # Errors
    /// When it is not built.
    pub async fn plugin(&self, args: &[&str]) -> Result<Ran> {
        let mut command = self.command(paths::program(shared::annotation::keys::PLUGIN)?);
        command.args(args);
        self.run(command).await
    }
}
