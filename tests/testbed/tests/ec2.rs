//! The EC2 simulator refuses what EC2 refuses: its own tests, with boto3, in the Python environment that the world
//! uses.
#![allow(clippy::unwrap_used, clippy::panic)] // a helper of a test is part of the test

use std::path::Path;
use std::process::Command;

#[test]
fn the_simulator_refuses_what_ec2_refuses() {
    let clouds = Path::new(env!("CARGO_MANIFEST_DIR")).join("clouds");
    let python = testbed::controlplane::assets::python().unwrap();
    let output = Command::new(python)
        .args(["-B", "-m", "unittest", "test_ec2sim"])
        .current_dir(clouds)
        .env_remove("PYTHONPATH")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("Ran 25 tests"), "{text}");
}
