//! Helpers that keep tests to what they are about.

use std::fmt::Debug;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::Instant;

use super::World;

/// From one look to the next while something is awaited. Tests side by side wait most of the time, and each look costs
/// CPU.
pub(crate) const PERIOD: Duration = Duration::from_millis(250);

/// Tries again and again until it succeeds.
///
/// # Errors
/// When it has not in time: the last error, and what was waited for.
pub async fn eventually<T, F>(within: Duration, what: &str, probe: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    eventually_every(PERIOD, within, what, probe).await
}

/// The same, so often: for a probe that costs much.
///
/// # Errors
/// As [`eventually`].
pub async fn eventually_every<T, F>(
    period: Duration,
    within: Duration,
    what: &str,
    mut probe: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let deadline = Instant::now() + within;
    loop {
        match probe().await {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() > deadline => {
                return Err(error).with_context(|| format!("no {what} within {within:?}"));
            }
            Err(_) => tokio::time::sleep(period).await,
        }
    }
}

/// What a probe of [`eventually`] has found is as wanted.
///
/// # Errors
/// When it is not: what was found.
pub fn ensure_that<T: Debug>(found: T, is_wanted: impl FnOnce(&T) -> bool) -> Result<()> {
    ensure!(is_wanted(&found), "found {found:?}");
    Ok(())
}

/// Runs a test in a namespace of its own on the hub. When it fails or panics, what is in the namespace is printed
/// first. The namespace is deleted in any case.
///
/// # Errors
/// When the test fails.
pub async fn with_temp_ns<F>(world: &World, test: impl FnOnce(Client, String) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let client = world.hub().await?;
    let name = format!("test-{:08x}", rand::random::<u32>());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = Namespace {
        metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    namespaces.create(&PostParams::default(), &namespace).await.with_context(|| format!("create namespace {name}"))?;
    let result = AssertUnwindSafe(test(client, name.clone())).catch_unwind().await;
    if !matches!(result, Ok(Ok(()))) {
        eprintln!("{}", contents(world, &name).await);
    }
    let _ = namespaces.delete(&name, &DeleteParams::default()).await;
    match result {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

async fn contents(world: &World, namespace: &str) -> String {
    let kinds =
        "clusterdeployments,deployments.apps,statefulsets,machinedeployments.cluster.x-k8s.io,events.events.k8s.io";
    match world.kubectl(&["get", kinds, "-n", namespace, "-o", "yaml"]).await {
        Ok(ran) => format!("--- namespace {namespace} when the test failed:\n{}{}", ran.stdout, ran.stderr),
        Err(error) => format!("--- namespace {namespace} cannot be shown: {error:#}"),
    }
}
