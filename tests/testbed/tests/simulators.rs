//! The vendors' own SDKs accept the simulators of GCP, Azure and IBM Cloud, which `clouds/gcp`, `clouds/azure` and
//! `clouds/ibm` are tested on.
#![allow(clippy::unwrap_used, clippy::panic)] // a helper of a test is part of the test

use std::path::Path;

use testbed::{Options, Program, World};

#[tokio::test]
async fn the_vendors_sdks_accept_the_simulators() {
    let python = tokio::task::spawn_blocking(testbed::controlplane::assets::sdks).await.unwrap().unwrap();
    let without = vec![Program::Controller, Program::Webhook];
    let world = World::up(Options { clusters: 0, without, ..Options::default() }).await.unwrap();
    let urls = serde_json::to_string(&world.file().simulators).unwrap();
    let output = tokio::process::Command::new(python)
        .args(["-W", "ignore", "-B", "-m", "unittest", "test_simulators"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("clouds"))
        .env_remove("PYTHONPATH")
        .env("SIMULATORS", urls)
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("Ran 10 tests"), "{text}");
}
