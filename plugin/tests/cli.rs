//! The program as scripts meet it where no hub is needed: usage, exit codes, and what goes wrong before the first
//! answer.

#![allow(clippy::expect_used, reason = "a helper of a test fails as a test does")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::{fs, thread};

use assert_cmd::Command;
use tempfile::TempDir;

/// The program in an environment without kubeconfig, proxies or colors.
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
        (
            "pod/x",
            "types are clusterdeployments.hive.openshift.io (cd), clusters.kubermatic.k8c.io (cluster), deployments.apps",
        ),
        ("deploy", r#""deploy" is a type"#),
        ("demo -A", "-A cannot find a target by name"),
        ("-l a=b --all", "are mutually exclusive"),
        ("Demo", "is not a name"),
        ("demo --nope", "unexpected argument"),
        ("demo -n a -A", "cannot be used with"),
        ("demo --timeout soon", "is not a duration"),
        ("demo --request-timeout=-1s", "is not positive"),
        ("demo --dry-run=perhaps", "possible values"),
        ("--reason x resume demo", "must follow `resume`"),
        ("status demo -o csv", "possible values"),
        ("demo -n Shop", "invalid value 'Shop' for '--namespace <NAME>'"),
        ("demo --wait=perhaps", "unexpected value 'perhaps' for '--wait'"),
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
        (vec![], "demo".to_owned(), ["no kubeconfig found; searched", "/.kube/config"]),
        (vec![("KUBECONFIG", missing.as_str())], "demo".to_owned(), ["no kubeconfig found; searched", "/missing;"]),
        (
            vec![("KUBECONFIG", missing.as_str()), ("KUBERNETES_SERVICE_HOST", "10.0.0.1")],
            "demo --context x".to_owned(),
            ["no kubeconfig found; searched", "/missing;"],
        ),
        (
            vec![],
            "demo --server ftp://hub".to_owned(),
            [r#"cannot use server "ftp://hub" of --server"#, "write https://"],
        ),
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

/// Each way out that an error names leads to the hub, which is not there.
#[test]
fn a_page_that_cannot_be_served_is_one_line() {
    let home = TempDir::new().expect("a folder");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let good = kubeconfig(&home, "http://127.0.0.1:9").display().to_string();
    for (line, code, part) in [
        (format!("ui --kubeconfig {good} --port {port}"), 1, format!("cannot listen on 127.0.0.1:{port}: ")),
        ("ui".to_owned(), 1, "no kubeconfig found; searched".to_owned()),
        (format!("ui --kubeconfig {good} demo"), 2, "`ui` takes a TYPE, not the name \"demo\"".to_owned()),
        (format!("ui --kubeconfig {good} --port 70000"), 2, "invalid value '70000'".to_owned()),
    ] {
        let ran = run_with(home.path(), &[], &line);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains(&part), "{line}: {}", ran.stderr);
        assert!(code == 2 || ran.stderr.lines().count() == 1, "{line}: {}", ran.stderr);
    }
}

#[test]
fn what_an_error_of_the_kubeconfig_advises_works() {
    let home = TempDir::new().expect("a folder");
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let good = kubeconfig(&home, &format!("http://127.0.0.1:{port}"));
    let without = home.path().join("without");
    let text = fs::read_to_string(&good).expect("a kubeconfig").replace("current-context: c\n", "");
    fs::write(&without, text).expect("a file");
    let (good, without) = (good.display().to_string(), without.display().to_string());
    let (server, config) = (format!("--server http://127.0.0.1:{port}"), format!("--kubeconfig {good}"));
    for (line, advice, followed) in [
        (
            "demo".to_owned(),
            "pass --kubeconfig, set KUBECONFIG, or pass --server and --token",
            vec![config.clone(), format!("KUBECONFIG={good}"), format!("{server} --token t")],
        ),
        (
            format!("demo --kubeconfig {without}"),
            "or pass --context (contexts: c)",
            vec![format!("--kubeconfig {without} --context c")],
        ),
        (
            "demo --server ftp://hub".to_owned(),
            "write https://HOST:PORT",
            vec![format!("--server https://127.0.0.1:{port}")],
        ),
        (format!("demo {config} --context x"), "(contexts: c)", vec![format!("{config} --context c")]),
        (
            format!("demo {config} --as-group x"),
            "--as-group, --as-uid and --as-user-extra need --as",
            vec![format!("{config} --as alice --as-group x --as-uid 1 --as-user-extra a=b")],
        ),
    ] {
        let refused = run_with(home.path(), &[], &line);
        assert!(refused.code == 1 && refused.stderr.contains(advice), "{line}: {}", refused.stderr);
        for flags in followed {
            let (environment, flags) = match flags.strip_prefix("KUBECONFIG=") {
                Some(path) => (vec![("KUBECONFIG", path)], ""),
                None => (vec![], flags.as_str()),
            };
            let ran = run_with(home.path(), &environment, &format!("demo {flags}"));
            assert!(ran.stderr.contains("cannot reach the hub http"), "{line}, then {flags}: {}", ran.stderr);
        }
    }
}

/// What a shell would take apart or drop: empty words, and words with line ends.
#[test]
fn empty_and_malformed_values_get_their_own_errors() {
    let html = server("200 OK", "<html>hello</html>");
    let unsafe_selector = "-l is empty and would select everything; use --all instead";
    for (words, code, part) in [
        (vec!["-l", ""], 2, unsafe_selector),
        (vec!["resume", "-l", " "], 2, unsafe_selector),
        (vec!["deploy", "-l", "", "--yes"], 2, unsafe_selector),
        (vec!["status", "-l", ""], 1, "cannot list clusterdeployments"),
        (vec!["cd/demo", "-n", ""], 1, "cannot get clusterdeployment.hive.openshift.io/demo"),
        (vec!["cd/demo", "--token", "abc\n"], 1, "cannot get clusterdeployment.hive.openshift.io/demo"),
        (vec!["cd/demo", "--token", "a\nb"], 1, "cannot use the token of --token: it has control characters"),
    ] {
        let home = TempDir::new().expect("a folder");
        let output = program(home.path()).args(&words).args(["--server", &html]).output().expect("the program starts");
        let stderr = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(code), "{words:?}: {stderr}");
        assert!(stderr.contains(part), "{words:?}: {stderr}");
    }
}

#[test]
fn a_server_without_a_scheme_is_an_error() {
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address").port()
    };
    for (flags, scheme) in [("", "http"), ("--insecure-skip-tls-verify=true", "https")] {
        let ran = run(&format!("cd/demo --server 127.0.0.1:{port} {flags}"));
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        let expected = format!("cannot reach the hub {scheme}://127.0.0.1:{port}: Connection refused");
        assert!(ran.stderr.contains(&expected), "{}", ran.stderr);
    }
}

#[cfg(unix)]
#[test]
fn a_credential_plugin_is_named_without_what_it_says() {
    let home = TempDir::new().expect("a folder");
    for (exec, part) in [
        (
            "command: no-such-plugin, installHint: 'get it from the shop'",
            r#"the credential plugin "no-such-plugin" of the kubeconfig cannot be run: No such file or directory"#,
        ),
        ("command: no-such-plugin, installHint: 'get it from the shop'", ". get it from the shop"),
        (
            "command: sh, args: ['-c', 'echo s3cret; exit 7'], env: [{name: PASSWORD, value: s3cret}]",
            r#"the credential plugin "sh" of the kubeconfig failed: exit status: 7"#,
        ),
        (
            "command: sh, args: ['-c', 'echo \"{s3cret\"']",
            r#"the credential plugin "sh" of the kubeconfig did not print a valid ExecCredential"#,
        ),
    ] {
        let path = kubeconfig(&home, "http://127.0.0.1:9");
        let text = fs::read_to_string(&path).expect("a kubeconfig");
        let user = format!("exec: {{apiVersion: client.authentication.k8s.io/v1, {exec}}}");
        fs::write(&path, text.replace("token: t", &user)).expect("a kubeconfig");
        let path = path.to_str().expect("UTF-8");
        let ran = run_with(home.path(), &[("PATH", "/usr/bin:/bin")], &format!("demo --kubeconfig {path}"));
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{exec}: {}", ran.stderr);
        assert!(ran.stderr.contains(part) && !ran.stderr.contains("s3cret"), "{exec}: {}", ran.stderr);
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

/// What the environment says of proxies matters to hubs that are reached through one, and no password is shown.
#[test]
fn a_wrong_proxy_breaks_only_hubs_that_it_concerns() {
    let home = TempDir::new().expect("a folder");
    let proxies = [("HTTPS_PROXY", "http://bob:s3 cret@proxy.test:3128"), ("NO_PROXY", "127.0.0.1,hub.test,")];
    for server in ["http://127.0.0.1:1", "https://127.0.0.1:1", "http://other.invalid:1", "https://hub.test:1"] {
        let ran = run_with(home.path(), &proxies, &format!("status demo --request-timeout 5s --server {server}"));
        assert_eq!(ran.code, 1);
        assert!(!ran.stderr.contains("cannot use"), "{server}: {}", ran.stderr);
    }
    for (proxy, part) in
        [("http://bob:s3 cret@proxy.test:3128", "invalid"), ("ftp://bob:s3cret@proxy.test:3128", "http://")]
    {
        let ran = run_with(home.path(), &[("HTTPS_PROXY", proxy)], "status demo --server https://other.test:1");
        assert_eq!(ran.code, 1);
        assert!(
            ran.stderr.contains("://proxy.test:3128\" of HTTPS_PROXY: ") && ran.stderr.contains(part),
            "{}",
            ran.stderr
        );
        assert!(!ran.stderr.contains("bob") && !ran.stderr.contains("cret"), "{}", ran.stderr);
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
fn a_response_of_no_kubernetes_is_rejected() {
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
        (vec!["__complete", "hyd"], "hydrate\n:4\n"),
        (vec!["__complete", "clus"], "cluster/\n:6\n"),
        (vec!["__complete", "dehydrate", "--forc"], "--force\n:4\n"),
        (vec!["__complete", "hydrate", "--forc"], ":4\n"),
        (vec!["__complete", "demo", "--dry-run=se"], "server\n:4\n"),
        (vec!["__complete", "demo", "--dry-run", "se"], ":6\n"),
        (vec!["__complete", "recover", ""], "process-groups\n:4\n"),
        (vec!["__complete", "rollout", "re"], "resume\nretry\n:4\n"),
        (vec!["__complete", "rollout", "resume", "night", ""], ":4\n"),
        (vec!["__complete", "schedule", "su"], "suspend\n:4\n"),
        (vec!["__complete", "schedule", "create", "x", "--zone", "Europe/Berl"], "Europe/Berlin\n:4\n"),
        (vec!["__complete", "completion", "f"], "fish\n:4\n"),
        (vec!["__complete", "resume", "--wa"], "--wait\n--warnings-as-errors\n:4\n"),
        (vec!["__complete", "demo", "--kubeconfig", ""], ":0\n"),
        (vec!["__complete", "demo", "-n", ""], ":4\n"),
        (vec!["__complete", "-n", ""], ":4\n"),
        (vec!["__complete", "--context", ""], ":4\n"),
        (vec!["__complete", "-n", "shop", "res"], "resume\n:4\n"),
        (vec!["__complete", "deploy", "-n", "shop", ""], ":4\n"),
        (vec!["__complete", "--help"], ":4\n"),
        (vec!["__complete", "status", "-o", ""], "table\nwide\njson\nyaml\nname\n:4\n"),
        (vec!["__complete", "demo", "-o", ""], "name\njson\nyaml\n:4\n"),
        (
            vec!["__complete"],
            "check\ncompletion\ndehydrate\nhydrate\ninstall-alias\nkinds\nplan\nrecover\nresume\nrollout\nsavings\nschedule\nstatus\nui\nversion\nwake\n",
        ),
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

/// A full disk is no success, also where everything else went well.
#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_printed_is_an_error() {
    let hub = server(
        "200 OK",
        r#"{"apiVersion":"hive.openshift.io/v1","kind":"ClusterDeployment","metadata":{"name":"demo","namespace":"x","resourceVersion":"1"},"spec":{"baseDomain":"d","clusterName":"demo","platform":{},"installed":true}}"#,
    );
    let no_space = "error: cannot write to standard output: No space left on device (os error 28)";
    for (words, code, end) in [
        (vec!["version"], 1, ""),
        (vec!["version", "-o", "json"], 1, ""),
        (vec!["--help"], 1, ""),
        (vec!["completion"], 1, ""),
        (vec!["status", "cd/demo", "--server", &hub], 1, ""),
        (vec!["cd/demo", "--server", &hub], 1, "; the request itself succeeded"),
    ] {
        let home = TempDir::new().expect("a folder");
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_kubectl-hibernate"))
            .args(&words)
            .env_clear()
            .env("HOME", home.path())
            .stdout(full)
            .output()
            .expect("the program starts");
        let stderr = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(code), "{words:?}: {stderr}");
        assert!(stderr.ends_with(&format!("{no_space}{end}\n")), "{words:?}: {stderr}");
    }
}

#[test]
fn a_selector_that_cannot_be_read_is_wrong_usage() {
    let hub = server(
        "400 Bad Request",
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"unable to parse requirement: found '!', expected: identifier","reason":"BadRequest","code":400}"#,
    );
    for line in ["-l !!", "status -l !!", "plan -l !!", "status pools -l !!"] {
        let ran = run(&format!("{line} --server {hub}"));
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{line}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("-l is not a label selector: unable to parse requirement"),
            "{line}: {}",
            ran.stderr
        );
    }
}

#[test]
fn a_closed_pipe_exits_0() {
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

/// `status --watch | head` is over when `head` is.
#[test]
fn status_watch_exits_when_the_pipe_closes() {
    let hub = server("200 OK", r#"{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":"1"},"items":[]}"#);
    let home = TempDir::new().expect("a folder");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_kubectl-hibernate"))
        .args(["status", "--watch", "--server", &hub])
        .env_clear()
        .env("HOME", home.path())
        .stdout(writer)
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("the program starts");
    for _ in 0..200 {
        if let Some(status) = child.try_wait().expect("its exit status is readable") {
            assert_eq!(status.code(), Some(0));
            return;
        }
        thread::sleep(std::time::Duration::from_millis(50));
    }
    child.kill().expect("it ends");
    panic!("it still watches after the pipe closed");
}

#[test]
fn a_warning_of_the_hub_is_an_error_if_that_is_asked_for() {
    let empty = r#"{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":"1"},"items":[]}"#;
    let hub = server("200 OK\r\nwarning: 299 - \"careful\"", empty);
    let calm = server("200 OK", empty);
    let error = "error: the API server returned a warning, and --warnings-as-errors is set\n";
    for (hub, flag, code) in [
        (&hub, "", 0),
        (&hub, "--warnings-as-errors=false", 0),
        (&hub, "--warnings-as-errors", 1),
        (&calm, "--warnings-as-errors", 0),
    ] {
        let ran = run(&format!("status cd --server {hub} {flag}"));
        assert_eq!((ran.code, ran.stderr.contains(error)), (code, code == 1), "{flag}: {}", ran.stderr);
    }
}

/// Every command of both programs, from what their own help lists.
#[cfg(unix)]
#[test]
fn helps_begin_with_examples_and_the_short_ones_fit_a_screen() {
    let home = TempDir::new().expect("a folder");
    let own = PathBuf::from(env!("CARGO_BIN_EXE_kubectl-hibernate"));
    let alias = home.path().join("kubectl-fdb-recover");
    std::os::unix::fs::symlink(&own, &alias).expect("a link");
    let help = |program: &Path, words: &[String], flag: &str, columns: &str| {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", home.path()).env("COLUMNS", columns).args(words).arg(flag);
        let output = command.output().expect("the program starts");
        assert_eq!(output.status.code(), Some(0), "{words:?} {flag}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let mut commands = vec![(own, Vec::new()), (alias, Vec::new())];
    let mut seen = 0;
    while let Some((program, words)) = commands.pop() {
        seen += 1;
        for (flag, columns) in [("-h", "80"), ("-h", "120"), ("--help", "80"), ("--help", "120")] {
            let text = help(&program, &words, flag, columns);
            let begin =
                |part: &str| text.find(part).unwrap_or_else(|| panic!("{words:?} {flag}: no {part:?} in {text}"));
            let parts = ["\nExamples:\n", "\nUsage: ", "\nOptions:\n"].map(begin);
            assert!(parts.is_sorted(), "{words:?} {flag}: {text}");
            let lines = text.lines().count();
            assert!(lines <= 40 || flag == "--help", "{words:?} {flag}: {lines} lines at {columns} columns: {text}");
            assert_eq!(text.contains("--kubeconfig"), flag == "--help", "{words:?} {flag}: {text}");
        }
        let short = help(&program, &words, "-h", "120");
        let listed =
            short.split("\nCommands:\n").nth(1).unwrap_or_default().lines().take_while(|line| !line.is_empty());
        for name in listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty()))
        {
            commands.push((program.clone(), [&words[..], &[name.to_owned()]].concat()));
        }
    }
    assert!(seen > 18, "{seen} commands");
}

/// krew keeps a program in a store, by version, and a link to it on PATH. What this program puts beside the link works after
/// an upgrade, when the version that wrote it is gone, and can be removed again.
#[cfg(unix)]
#[test]
fn what_is_installed_beside_krews_link_survives_an_upgrade() {
    let root = TempDir::new().expect("a folder");
    let [bin, store] = ["bin", "store"].map(|folder| root.path().join(folder));
    fs::create_dir_all(&bin).expect("a folder");
    let entry = bin.join("kubectl-hibernate");
    let upgrade = |version: &str| {
        let folder = store.join(version);
        fs::create_dir_all(&folder).expect("a folder");
        fs::copy(env!("CARGO_BIN_EXE_kubectl-hibernate"), folder.join("kubectl-hibernate")).expect("a copy");
        let _ = fs::remove_file(&entry);
        std::os::unix::fs::symlink(folder.join("kubectl-hibernate"), &entry).expect("a link");
    };
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let ran = |program: &Path, args: &[&str]| {
        let mut command = Command::new(program);
        let output = command.env_clear().env("HOME", root.path()).env("PATH", &path).args(args).output();
        let output = output.expect("the program starts");
        assert!(output.status.success() && output.stderr.is_empty(), "{program:?} {args:?}: {output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let [alias, script] = ["kubectl-fdb-recover", "kubectl_complete-hibernate"].map(|name| bin.join(name));
    upgrade("v1");
    // kubectl starts a plugin by its whole path.
    for (command, place) in [(["install-alias"].as_slice(), &alias), (&["completion", "--install"], &script)] {
        assert_eq!(ran(&entry, command), format!("{} written\n", place.display()));
        assert_eq!(ran(&entry, command), format!("{} unchanged\n", place.display()));
    }
    upgrade("v2");
    fs::remove_dir_all(store.join("v1")).expect("v1");
    assert!(ran(&alias, &["process-groups", "--help"]).contains("kubectl fdb recover process-groups"));
    assert!(ran(&script, &["res"]).starts_with("resume"));
    ran(&entry, &["install-alias", "--remove"]);
    ran(&entry, &["completion", "--remove"]);
    let left: Vec<_> =
        fs::read_dir(&bin).expect("a folder").map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(left, ["kubectl-hibernate"]);
    assert_eq!(fs::read_dir(store.join("v2")).expect("a folder").count(), 1);
}

/// `--help` of these commands matches the snapshots. Update with `INSTA_UPDATE=always` and review the diff.
#[test]
fn help_is_as_documented() {
    let commands = [
        "",
        "dehydrate",
        "resume",
        "plan",
        "check",
        "kinds",
        "status",
        "recover process-groups",
        "install-alias",
        "version",
        "completion",
    ];
    for command in commands {
        let ran = run(&format!("{command} --help"));
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{command}");
        assert!(ran.stdout.contains("Examples:"), "{command}");
        let name = if command.is_empty() { "help" } else { &format!("help_{}", command.replace([' ', '-'], "_")) };
        insta::assert_snapshot!(name, ran.stdout);
    }
}
