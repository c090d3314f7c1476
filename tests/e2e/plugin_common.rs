//! The plugin in a namespace of its own, and tables of command lines.

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use serde_json::{Value, json};
use testbed::{Ran, World, with_temp_ns};

/// A command line but for `-n`, its exit code, and words of its error output; of either output if it succeeds.
pub(crate) type Case<'a> = (&'a str, i32, &'a [&'a str]);

/// A namespace of the hub, for whoever types there.
pub(crate) struct Shell {
    pub(crate) world: World,
    pub(crate) client: Client,
    pub(crate) ns: String,
}

/// Runs a test in a namespace of its own.
pub(crate) async fn in_namespace(world: World, test: impl AsyncFnOnce(Shell) -> Result<()>) -> Result<()> {
    with_temp_ns(&world, |client, ns| test(Shell { world: world.clone(), client, ns })).await
}

impl Shell {
    fn words<'a>(&'a self, line: &'a str) -> Vec<&'a str> {
        line.split(' ').chain(["-n", &self.ns]).collect()
    }

    /// Runs the plugin by a line whose words have no spaces.
    pub(crate) async fn run(&self, line: &str) -> Result<Ran> {
        self.world.plugin(&self.words(line)).await
    }

    /// The same, and it succeeds.
    pub(crate) async fn ok(&self, line: &str) -> Result<String> {
        self.run(line).await?.ok().with_context(|| line.to_owned())
    }

    pub(crate) async fn json(&self, line: &str) -> Result<Value> {
        self.run(line).await?.json().with_context(|| line.to_owned())
    }

    /// The first target of `status`.
    pub(crate) async fn status(&self, target: &str) -> Result<Value> {
        Ok(self.json(&format!("status {target} -o json")).await?["items"][0].clone())
    }

    /// Runs kubectl, which succeeds.
    pub(crate) async fn kubectl(&self, line: &str) -> Result<String> {
        self.world.kubectl(&self.words(line)).await?.ok().with_context(|| line.to_owned())
    }

    /// It succeeds and prints this, and nothing else but warnings.
    pub(crate) async fn prints(&self, line: &str, text: &str) -> Result<()> {
        let found = self.ok(line).await?;
        ensure!(found == text, "{line}: {found:?} instead of {text:?}");
        Ok(())
    }

    /// Runs each line in turn.
    pub(crate) async fn each(&self, cases: &[Case<'_>]) -> Result<()> {
        for (line, code, words) in cases {
            let ran = self.run(line).await?;
            let printed = if *code == 0 { format!("{}{}", ran.stdout, ran.stderr) } else { ran.stderr.clone() };
            let missing: Vec<_> = words.iter().filter(|word| !printed.contains(**word)).collect();
            ensure!(ran.code == *code && missing.is_empty(), "{line}: not {code}, or without {missing:?}: {ran:#?}");
        }
        Ok(())
    }

    /// The same, and none prints a result.
    pub(crate) async fn refused(&self, cases: &[Case<'_>]) -> Result<()> {
        for (line, code, words) in cases {
            self.run(line).await?.refuses(*code, words).with_context(|| (*line).to_owned())?;
        }
        Ok(())
    }
}

/// The template of Pods that never start: no kubelet runs.
pub(crate) fn template() -> Value {
    json!({
        "metadata": { "labels": { "app": "x" } },
        "spec": { "containers": [{ "name": "x", "image": "registry.test/x" }] },
    })
}

/// The spec of a Deployment.
pub(crate) fn pods(replicas: u32) -> Value {
    json!({ "replicas": replicas, "selector": { "matchLabels": { "app": "x" } }, "template": template() })
}

/// The spec of a `StatefulSet`.
pub(crate) fn stateful(replicas: u32) -> Value {
    let mut spec = pods(replicas);
    spec["serviceName"] = json!("x");
    spec
}
