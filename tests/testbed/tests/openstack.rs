//! OpenStack's own services do what the planner of `clouds/recreate` relies on: its cloud in memory does the same.
#![allow(clippy::unwrap_used, clippy::panic)] // a helper of a test is part of the test

use std::path::Path;
use std::process::Command;

#[test]
fn real_nova_does_what_the_cloud_in_memory_does() {
    let clouds = Path::new(env!("CARGO_MANIFEST_DIR")).join("clouds");
    let (python, template) = testbed::controlplane::assets::openstack().unwrap();
    let output = Command::new(python)
        .args(["-W", "ignore", "-B", "-m", "unittest", "test_openstack_world"])
        .current_dir(clouds)
        .env_remove("PYTHONPATH")
        .env("OPENSTACK_TEMPLATE", template)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("Ran 6 tests"), "{text}");
}
