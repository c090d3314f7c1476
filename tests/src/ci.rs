//! `.ci/run` with a test that fails in its suite and passes by itself: in quarantine or not.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIST: &str = "tests/quarantine.txt";

/// `make` as CI calls it: the suite has one failure, and the retest ends as the variable says.
const MAKE: &str = r"#!/bin/sh
case $1 in
    e2e)
        echo '==> e2e, the others, side by side'
        echo 'test faults::flaky ... FAILED <1.0s>'
        echo 'test result: FAILED. 7 passed; 1 failed; 0 ignored'
        exit 1
        ;;
    retest) echo 'test result: ok. 1 passed; 0 failed'; exit $RETEST ;;
esac
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Whether `.ci/run e2e` passes with this list, and its output.
fn run(list: &str, retest: u8) -> (bool, String) {
    let checkout = tempfile::tempdir().unwrap();
    let at = |name: &str| checkout.path().join(name);
    for folder in [".ci", "tests", "bin"] {
        fs::create_dir(at(folder)).unwrap();
    }
    fs::copy(root().join(".ci/run"), at(".ci/run")).unwrap();
    fs::write(at("bin/make"), MAKE).unwrap();
    fs::set_permissions(at("bin/make"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(at(LIST), list).unwrap();
    let path = format!("{}:{}", at("bin").display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .arg(at(".ci/run"))
        .arg("e2e")
        .env("PATH", path)
        .env("RETEST", retest.to_string())
        .env("GIT_CEILING_DIRECTORIES", checkout.path().parent().unwrap())
        .output()
        .unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_flaky_test_fails_the_run_unless_it_is_quarantined() {
    for (list, retest, passes, says) in [
        ("# a comment\n", 0, false, "FLAKY, failed in the suite and passed by themselves: faults::flaky\n"),
        ("faults::flaky_too a cause\n", 0, false, LIST),
        ("# a comment\n\nfaults::flaky a cause\n", 0, true, "QUARANTINED by tests/quarantine.txt"),
        ("faults::flaky a cause\n", 1, false, "once more, by themselves: faults::flaky"),
    ] {
        let (passed, output) = run(list, retest);
        assert!(passed == passes && output.contains(says), "{list:?}: {output}");
    }
}

#[test]
fn each_quarantined_test_exists_and_has_a_cause() {
    let sources: String =
        ["tests/e2e", "tests/testbed/tests"].iter().map(|folder| read(&root().join(folder))).collect();
    let list = fs::read_to_string(root().join(LIST)).unwrap();
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (test, cause) = line.split_once(' ').unwrap_or((line, ""));
        let function = test.rsplit("::").next().unwrap_or_default();
        assert!(!cause.trim().is_empty(), "{LIST}: {test} has no cause");
        assert!(sources.contains(&format!("fn {function}(")), "{LIST}: there is no test {test}");
    }
}

fn read(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { read(&path) } else { fs::read_to_string(&path).unwrap() }).collect()
}
