//! The program as scripts meet it where no hub is needed: usage, exit codes, and what goes wrong before the first answer.

#![allow(clippy::expect_used, reason = "a helper of a test fails as a test does")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    thread,
};

use assert_cmd::Command;
use tempfile::TempDir;

/// The program in an environment without kubeconfig, proxies or colours.
fn program(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-hibernate"));
    command.env_clear().env("HOME", home).env("COLUMNS", "120");
    command
}

struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

fn run_with(home: &Path, environment: &[(&str, &str)], line: &str) -> Ran {
    let output = program(home)
        .envs(environment.iter().copied())
        .args(line.split_whitespace())
        .output()
        .expect("the program starts");
    Ran {
        code: output.status.code().expect("an exit code"),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

fn run(line: &str) -> Ran {
    let home = TempDir::new().expect("a folder");
    run_with(home.path(), &[], line)
}

fn kubeconfig(home: &TempDir, server: &str) -> PathBuf {
    let path = home.path().join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: c, user: u, namespace: shop}}}}]\n\
         clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n"
    );
    fs::write(&path, text).expect("a kubeconfig");
    path
}

/// A server that gives every request the same answer.
fn server(status: &'static str, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream, status, body));
        }
    });
    url
}

fn answer(mut stream: TcpStream, status: &str, body: &str) {
    let mut request = [0; 8192];
    while stream.read(&mut request).is_ok_and(|read| read > 0) {
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        if stream.write_all((head + body).as_bytes()).is_err() {
            return;
        }
    }
}

#[test]
fn wrong_usage_is_exit_code_2_and_says_what_is_right() {
    for (line, part) in [
        ("", "name at least one target"),
        ("resume", "name at least one target"),
        ("demo status", r#""status" is a command"#),
        ("pod/x", "types are clusterdeployments.hive.openshift.io (cd), deployments.apps (deploy)"),
        ("deploy", r#""deploy" is a type"#),
        ("demo -A", "-A cannot find a target by name"),
        ("-l a=b --all", "exclude each other"),
        ("Demo", "is not a name"),
        ("demo --nope", "unexpected argument"),
        ("demo -n a -A", "cannot be used with"),
        ("demo --timeout soon", "is not a duration"),
        ("demo --request-timeout=-1s", "is not positive"),
        ("demo --dry-run=perhaps", "possible values"),
        ("--reason x resume demo", "stands before `resume`"),
        ("status demo -o csv", "possible values"),
    ] {
        let ran = run(line);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains(part), "{line}: {}", ran.stderr);
    }
}

#[test]
fn a_missing_or_broken_kubeconfig_is_named() {
    let home = TempDir::new().expect("a folder");
    let broken = home.path().join("broken");
    fs::write(&broken, "clusters: [}").expect("a file");
    let broken = broken.to_str().expect("UTF-8");
    let good = kubeconfig(&home, "http://127.0.0.1:9");
    let good = good.to_str().expect("UTF-8");
    let missing = home.path().join("missing").display().to_string();
    for (environment, line, parts) in [
        (vec![], "demo".to_owned(), ["no kubeconfig: looked at", "/.kube/config"]),
        (vec![("KUBECONFIG", missing.as_str())], "demo".to_owned(), ["no kubeconfig", "--server"]),
        (vec![("KUBECONFIG", broken)], "demo".to_owned(), ["cannot read kubeconfig", "/broken"]),
        (vec![], format!("demo --kubeconfig {missing}"), ["cannot read kubeconfig", "/missing"]),
        (vec![], format!("demo --kubeconfig {good} --context x"), [r#"context "x" does not exist"#, "(contexts: c)"]),
        (vec![], format!("demo --kubeconfig {good} --cluster x"), [r#"cluster "x" does not exist"#, "(clusters: c)"]),
        (vec![], format!("demo --kubeconfig {good} --user x"), [r#"user "x" does not exist"#, "(users: u)"]),
        (vec![], format!("demo --kubeconfig {good} --as-group x"), ["--as-group", "need --as"]),
    ] {
        let ran = run_with(home.path(), &environment, &line);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{line}: {}", ran.stderr);
        assert!(parts.iter().all(|part| ran.stderr.contains(part)), "{line}: {}", ran.stderr);
    }
}

#[test]
fn an_unreachable_hub_is_named_once_however_many_targets() {
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address").port()
    };
    let home = TempDir::new().expect("a folder");
    let kubeconfig = kubeconfig(&home, &format!("http://127.0.0.1:{port}"));
    let environment = [("KUBECONFIG", kubeconfig.to_str().expect("UTF-8"))];
    for line in ["cd/demo cd/other deploy/web", "demo", "status", "--all"] {
        let ran = run_with(home.path(), &environment, line);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{line}: {}", ran.stderr);
        let expected = format!("error: cannot reach the hub http://127.0.0.1:{port}: Connection refused");
        assert_eq!(ran.stderr.matches(&expected).count(), 1, "{line}: {}", ran.stderr);
    }
}

#[test]
fn a_hub_that_does_not_answer_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", silent.local_addr().expect("an address"));
    let ran = run(&format!("cd/demo --server {url} --request-timeout 300ms"));
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains(&format!("the hub {url} did not answer in time")), "{}", ran.stderr);
    drop(silent);
}

#[test]
fn something_that_is_no_hub_is_not_believed() {
    let html = server("200 OK", "<html>hello</html>");
    let ran = run(&format!("cd/demo --server {html}"));
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("cannot get clusterdeployment.hive.openshift.io/demo"), "{}", ran.stderr);
    let gateway = server("502 Bad Gateway", "upstream is gone");
    let ran = run(&format!("cd/demo --server {gateway}"));
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("the hub answered 502: upstream is gone"), "{}", ran.stderr);
}

#[test]
fn version_and_completion_need_no_hub() {
    let ran = run("version");
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(ran.stdout.starts_with(concat!("kubectl-hibernate v", env!("CARGO_PKG_VERSION"))), "{}", ran.stdout);
    let ran = run("version -o json");
    assert!(ran.stdout.contains(r#""gitVersion": "v"#), "{}", ran.stdout);
    assert_eq!(run("completion").stdout, "#!/bin/sh\nexec kubectl-hibernate __complete \"$@\"\n");
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let ran = run(&format!("completion {shell}"));
        assert_eq!(ran.code, 0);
        assert!(ran.stdout.contains("kubectl-hibernate"), "{shell}");
    }
}

#[test]
fn completion_answers_kubectl_even_without_a_hub() {
    for (words, expected) in [
        (vec!["__complete", "res"], "resume\n:4\n"),
        (vec!["__complete", "md"], "md/\n:6\n"),
        (vec!["__complete", "demo", "--dry-run", "se"], "server\n:4\n"),
        (vec!["__complete", "resume", "--wa"], "--wait\n:4\n"),
        (vec!["__complete", "demo", "--kubeconfig", ""], ":0\n"),
        (vec!["__complete", "demo", "-n", ""], ":4\n"),
        (vec!["__complete"], "completion\ninstall-alias\nplan\nrecover\nresume\nstatus\nversion\nwake\n"),
    ] {
        let home = TempDir::new().expect("a folder");
        let output = program(home.path()).args(&words).output().expect("the program starts");
        let stdout = String::from_utf8(output.stdout).expect("UTF-8");
        let complete = match words.len() {
            1 => {
                let mut lines: Vec<&str> = stdout.lines().filter(|line| !line.contains(['/', ':'])).collect();
                lines.sort_unstable();
                lines.join("\n") + "\n"
            }
            _ => stdout,
        };
        assert_eq!(complete, expected, "{words:?}");
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), [].as_slice()));
    }
}

#[test]
fn a_closed_pipe_is_no_crash() {
    let home = TempDir::new().expect("a folder");
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_kubectl-hibernate"))
        .arg("version")
        .env("HOME", home.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

/// `--help` of every command, as it is documented. Update with `INSTA_UPDATE=always` and read the difference.
#[test]
fn help_is_as_documented() {
    let commands = ["", "resume", "plan", "status", "recover process-groups", "install-alias", "version", "completion"];
    for command in commands {
        let ran = run(&format!("{command} --help"));
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{command}");
        assert!(ran.stdout.contains("Examples:"), "{command}");
        let name = if command.is_empty() { "help" } else { &format!("help_{}", command.replace([' ', '-'], "_")) };
        insta::assert_snapshot!(name, ran.stdout);
    }
}
