//! The page of `kubectl hibernate ui`: whom it answers, what it shows, and what it does.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use shared::annotation::keys;
use testbed::page::Served;
use testbed::{ClusterOptions, Options, World, paths};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::hive_common::{SOON, running};

/// Longer than the head of a request may take.
const SLOW: Duration = Duration::from_secs(20);

fn id(namespace: &str, name: &str) -> String {
    format!("clusterdeployment.hive.openshift.io/{namespace}/{name}")
}

/// Raw bytes on a new connection, and what comes back until it is closed.
async fn raw(base: &str, bytes: &[u8]) -> Result<String> {
    let mut stream = TcpStream::connect(base.trim_start_matches("http://")).await?;
    stream.write_all(bytes).await?;
    let mut answer = Vec::new();
    timeout(SLOW, stream.read_to_end(&mut answer)).await.context("the connection stays open")??;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_hosts_origins_and_requests_without_a_token_are_refused() -> Result<()> {
    let world = World::up(Options::bare_hub()).await?;
    let (mut page, code) = Served::start(&world, &["-A"]).await?;
    let base = page.base.clone();
    let host = base.trim_start_matches("http://").to_owned();
    let port = host.rsplit(':').next().context("a port")?.to_owned();

    // Its socket is of 127.0.0.1 alone, and its code is in no argument.
    let pid = page.child.id().context("a process")?;
    let argv = fs::read_to_string(format!("/proc/{pid}/cmdline"))?;
    ensure!(!argv.contains(&code), "{argv:?}");
    ensure!(TcpStream::connect(format!("127.0.0.2:{port}")).await.is_err(), "it listens elsewhere");

    // The shell knows nothing, and no page can frame it.
    let shell = page.client.get(&base).send().await?;
    let policy = shell.headers()["content-security-policy"].to_str()?.to_owned();
    for part in ["default-src 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"] {
        ensure!(policy.contains(part), "{policy}");
    }
    ensure!(shell.headers()["cache-control"] == "no-store" && !shell.headers().contains_key("set-cookie"));
    ensure!(!shell.text().await?.contains(&code));

    let token = page.token(&code).await?;
    let used = page.request("/session", &json!({ "code": code })).send().await?;
    ensure!(used.status() == StatusCode::UNAUTHORIZED && used.text().await?.contains("press Enter"), "used twice");
    let again = page.enter().await?;
    ensure!(again != code && page.token(&again).await? != token);

    let own = ("origin", base.as_str());
    let same = ("sec-fetch-site", "same-origin");
    let evil = format!("evil.example:{port}");
    let (other, bearer) =
        (format!("http://127.0.0.1:{}", port.parse::<u16>()?.wrapping_add(1)), format!("Bearer {token}"));
    let bearer = ("authorization", bearer.as_str());
    for (case, headers, expected) in [
        ("as the page does", vec![own, same, bearer], StatusCode::OK),
        ("a name that was bound to 127.0.0.1", vec![own, same, bearer, ("host", &evil)], StatusCode::FORBIDDEN),
        (
            "a fetch of another page",
            vec![("origin", "https://evil.example"), ("sec-fetch-site", "cross-site"), bearer],
            StatusCode::FORBIDDEN,
        ),
        (
            "a page of another port",
            vec![("origin", &other), ("sec-fetch-site", "same-site"), bearer],
            StatusCode::FORBIDDEN,
        ),
        (
            "a form or a frame",
            vec![("origin", "null"), ("sec-fetch-site", "cross-site"), bearer],
            StatusCode::FORBIDDEN,
        ),
        ("a link", vec![("sec-fetch-site", "none"), bearer], StatusCode::FORBIDDEN),
        ("a program of another user", vec![own, same], StatusCode::UNAUTHORIZED),
        ("a guess", vec![own, same, ("authorization", "Bearer x")], StatusCode::UNAUTHORIZED),
        ("a cookie", vec![own, same, ("cookie", "token=x")], StatusCode::UNAUTHORIZED),
    ] {
        let mut request = page.client.post(format!("{base}/fleet")).json(&json!({}));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let begun = Instant::now();
        let answer = request.send().await?;
        ensure!(answer.status() == expected, "{case}: {answer:?}");
        let is_slow = begun.elapsed() >= Duration::from_millis(500);
        ensure!(expected != StatusCode::UNAUTHORIZED || is_slow, "{case}: a guess is answered slowly");
    }

    for path in
        ["/fleet", "/session", "/..%2f..%2fetc/passwd", "/page.js/../fleet", "//etc/passwd", "/templates/shell.html"]
    {
        let answer =
            raw(&base, format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").as_bytes()).await?;
        ensure!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
    }
    let large = page.ask(&token, "/fleet", &json!({ "text": "x".repeat(10 << 20) })).await;
    ensure!(large.map_or(true, |answer| answer.status() == StatusCode::PAYLOAD_TOO_LARGE), "10 MB");
    let text = page.client.post(format!("{base}/act")).body("{}").header("origin", &base);
    let text = text.header("sec-fetch-site", "same-origin").bearer_auth(&token).send().await?;
    ensure!(text.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE, "a form's type: {text:?}");
    // A head that never ends is cut off, and does not delay other requests.
    let slow = tokio::spawn(async move { raw(&base, b"GET / HTTP/1.1\r\nhost: ").await });
    ensure!(page.text(&token, "/fleet", &json!({})).await?.contains("There are no targets"));
    slow.await??;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tab_shows_the_fleet_live_and_a_dialog_runs_the_command_that_it_shows() -> Result<()> {
    let world = World::shared().await?;
    let reason = "<img src=x onerror=alert(1)> \u{202e}gnp\u{3164}".to_owned() + "x".repeat(2_000).as_str();
    let options = ClusterOptions {
        annotations: [(keys::REASON.to_owned(), reason)].into(),
        labels: [("team".to_owned(), "shop".to_owned())].into(),
        ..ClusterOptions::of_size(2)
    };
    let cluster = running(&world, "paged", options).await?;
    let (page, code) = Served::start(&world, &["cd", "-n", cluster.namespace()]).await?;
    let token = page.token(&code).await?;
    let id = id(cluster.namespace(), cluster.name());
    let fleet = async |filter: Value| page.text(&token, "/fleet", &filter).await;
    let html = testbed::eventually(SOON, "the cluster", async || {
        let html = fleet(json!({})).await?;
        ensure!(html.contains(&id), "{html}");
        Ok(html)
    })
    .await?;
    ensure!(
        html.contains("Running") && !html.contains("<img") && !html.contains('\u{202e}') && html.len() < 20_000,
        "{html}"
    );
    for (filter, is_there) in [
        (json!({ "text": "PAGED" }), true),
        (json!({ "text": "other" }), false),
        (json!({ "label": "team=shop", "state": "Running", "namespace": cluster.namespace() }), true),
        (json!({ "label": "team=other" }), false),
        (json!({ "state": "Hibernating" }), false),
        (json!({ "sort": "SINCE", "descending": true, "page": 7 }), true),
    ] {
        ensure!(fleet(filter.clone()).await?.contains(&id) == is_there, "{filter}");
    }

    let ask =
        async |body: Value| -> Result<Value> { Ok(serde_json::from_str(&page.text(&token, "/act", &body).await?)?) };
    let planned = ask(json!({ "verb": "plan", "ids": [id] })).await?;
    ensure!(
        planned[0]["command"].as_str().is_some_and(|line| line.starts_with("kubectl hibernate plan clusterdeployment")),
        "{planned}"
    );
    // The webhook's own words, before anything is written.
    cluster.patch(&json!({ "metadata": { "annotations": { keys::PROTECTED: "true" } } })).await?;
    let refused = ask(json!({ "verb": "hibernate", "ids": [id], "dryRun": true })).await?;
    ensure!(
        refused[0]["code"] == 3 && refused[0]["output"].as_str().is_some_and(|text| text.contains("protected")),
        "{refused}"
    );
    cluster.patch(&json!({ "metadata": { "annotations": { keys::PROTECTED: null } } })).await?;

    let mut live = page.live(&token, &[&id, "x/y/z"]).await?;
    let is_gone = |message: &Value| message["rows"].to_string().contains(r#""tone":"gone""#);
    live.until(SOON, "a row that is none", is_gone).await?;
    let asked = json!({ "verb": "hibernate", "ids": [id], "reason": "weekend", "until": "2126-01-01T00:00:00Z" });
    let done = ask(asked).await?;
    ensure!(done[0]["code"] == 0, "{done}");
    let is_asleep = |message: &Value| {
        let rows = message["rows"].to_string();
        rows.contains(r#""tone":"asleep""#) && rows.contains("weekend")
    };
    live.until(SOON, "asleep", is_asleep).await?;
    let found = cluster.get().await?;
    let annotations = found.metadata.annotations.unwrap_or_default();
    ensure!(annotations.get(keys::REASON).is_some_and(|text| text == "weekend"), "{annotations:?}");

    // Events and objects of tenants have markup, marks that change the direction, and length.
    let hostile = format!("<script>alert(1)</script> \u{202e}gnp {}", "y".repeat(900));
    let events: Api<Event> = Api::namespaced(world.hub().await?, cluster.namespace());
    let event = json!({
        "metadata": { "name": "hostile" }, "reason": "Hostile", "message": hostile, "type": "Warning",
        "lastTimestamp": "2126-01-01T00:00:00Z",
        "involvedObject": { "kind": "ClusterDeployment", "name": cluster.name(), "namespace": cluster.namespace() },
    });
    events.create(&PostParams::default(), &serde_json::from_value(event)?).await?;
    cluster.patch(&json!({ "metadata": { "annotations": { "example.org/big": "z".repeat(200 << 10) } } })).await?;
    let one = page.text(&token, "/target", &json!({ "id": id })).await?;
    ensure!(one.contains("weekend") && one.contains("clusterName") && one.contains("Hibernating"), "{one}");
    // The timeline mixes Events, requests and upcoming changes.
    for part in
        ["<strong>Hibernating requested</strong> by ", "<strong>Wake</strong> by wake-at", "<strong>Hostile</strong>"]
    {
        ensure!(one.contains(part), "{part}: {one:.9999}");
    }
    ensure!(
        one.contains("&#60;script&#62;alert(1)") && !one.contains("<script") && !one.contains('\u{202e}'),
        "{one:.9999}"
    );
    ensure!(!one.contains(&"y".repeat(600)) && one.len() < 300 << 10, "{}", one.len());
    for view in ["/calendar", "/activity", "/savings"] {
        page.text(&token, view, &json!({})).await?;
    }
    let gone = page.ask(&token, "/target", &json!({ "id": "clusterdeployment.hive.openshift.io/a/b" })).await?;
    ensure!(gone.status() == StatusCode::BAD_REQUEST);
    let done = ask(json!({ "verb": "resume", "ids": [id] })).await?;
    ensure!(done[0]["code"] == 0, "{done}");
    cluster.wait_for_power_state("Running", SOON).await?;

    let (reader, code) = Served::start(&world, &["-n", cluster.namespace(), "--read-only"]).await?;
    let token = reader.token(&code).await?;
    let answer = reader.ask(&token, "/act", &json!({ "verb": "hibernate", "ids": [id] })).await?;
    ensure!(answer.status() == StatusCode::FORBIDDEN, "{answer:?}");
    cluster.remove().await
}

/// A browser opens a file that no other user of the machine can read.
#[tokio::test(flavor = "multi_thread")]
async fn another_user_of_the_machine_cannot_read_the_link() -> Result<()> {
    let other = ["--reuid=65534", "--clear-groups"];
    if !std::process::Command::new("setpriv").args(other).arg("true").status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: this user cannot run a program as another one");
        return Ok(());
    }
    let world = World::up(Options::bare_hub()).await?;
    let (dir, seen) = (tempfile::tempdir()?, world.dir().join("seen"));
    let opener = dir.path().join("xdg-open");
    // The other user can read a file beside it.
    let script = format!(
        "#!/bin/sh\ncontrol=$(dirname \"$1\")/control.$$\n(umask 022; echo readable >\"$control\")\n\
         (cat \"$1\"; setpriv {0} cat \"$control\" \"$1\") >{1}.part 2>&1\nrm \"$control\"\nmv {1}.part {1}\n",
        other.join(" "),
        seen.display()
    );
    fs::write(&opener, script)?;
    fs::set_permissions(&opener, Permissions::from_mode(0o755))?;
    let mut command = world.command(paths::program(keys::PLUGIN)?);
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH")?);
    command.args(["ui"]).env("DISPLAY", ":9").env("PATH", path);
    let (page, _) = Served::of(command).await?;
    let text = testbed::eventually(SOON, "the browser", async || Ok(fs::read_to_string(&seen)?)).await?;
    ensure!(text.contains(&format!("url={}/#code=", page.base)) && text.contains("readable"), "{text}");
    ensure!(text.contains("Permission denied") && text.matches("#code=").count() == 1, "{text}");
    Ok(())
}

/// A job in the background that reads its terminal stops.
#[tokio::test(flavor = "multi_thread")]
async fn in_the_background_of_a_shell_it_goes_on() -> Result<()> {
    let world = World::up(Options::bare_hub()).await?;
    let (program, out) = (paths::program(keys::PLUGIN)?, world.dir().join("ui.log"));
    let job = format!(
        "set -m; {} ui --no-open >{out} & for i in $(seq 600); do grep -q '/#code=' {out} && break; sleep 0.1; done; \
         sleep 2; jobs; kill %1",
        program.display(),
        out = out.display(),
    );
    let mut command = world.command("python3");
    command.args(["-c", "import pty, sys; pty.spawn(sys.argv[1:])", "bash", "-c", &job]);
    let shown = world.run(command).await?.ok()?;
    ensure!(fs::read_to_string(&out)?.contains("/#code=") && shown.contains("Running"), "{shown}");
    ensure!(!shown.contains("Stopped"), "{shown}");
    Ok(())
}
