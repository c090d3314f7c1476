//! What the page and a report of savings cost with ten thousand targets; the page beside `kubectl get --watch` in the same run.
//!
//! Run with `make bench-page`. Prints a table; asserts nothing.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use shared::annotation::keys;
use shared::hive::api::ClusterDeployment;
use testbed::bench::meter::count;
use testbed::bench::table::Table;
use testbed::browser::Browser;
use testbed::page::{Messages, Served};
use testbed::{ClusterOptions, Options, Timings, World, ensure_that, eventually, paths, process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::{Instant, sleep, timeout};

const TARGETS: usize = 10_000;
/// Changes that are timed, and those of one second.
const TIMED: usize = 100;
const BURST: usize = 1_000;
const LONG: Duration = Duration::from_mins(5);
/// Time from the navigation to the first rows.
const USABLE: &str = "return await new Promise((done) => { const look = () => document.querySelector('#rows tbody tr') \
                      ? done(performance.now()) : setTimeout(look, 5); look(); })";
/// Collects the tasks of more than 50 ms.
const TASKS: &str = "globalThis.tasks = []; new PerformanceObserver((list) => tasks.push(...list.getEntries().map((one) => \
                     one.duration))).observe({ type: 'longtask' })";

#[tokio::main]
async fn main() -> Result<()> {
    let mut table = Table::against("kubectl");
    let options = Options { clusters: 0, timings: Timings::fast(), ..Options::default() };
    let world = World::up(options).await?;
    let model = world.cluster("model", ClusterOptions::of_size(1)).await?;
    model.wait_for_power_state("Running", LONG).await?;
    model.copies("fake", TARGETS, &json!({ "hive.openshift.io/fake-cluster": "true" }), None).await?;
    let clusters: Api<ClusterDeployment> = Api::namespaced(world.hub().await?, model.namespace());
    savings(&world, &mut table).await?;

    let (mut page, code) = Served::start(&world, &["-n", model.namespace()]).await?;
    let token = page.token(&code).await?;
    let mut bytes = 0;
    for path in ["/", "/page.css", "/page.js"] {
        bytes += page.client.get(format!("{}{path}", page.base)).send().await?.bytes().await?.len();
    }
    table.add("page", "HTML, CSS and JS, KB", None, Some(60.0), count(bytes) / 1_000.0);
    eventually(LONG, "the list", async || {
        ensure_that(page.text(&token, "/fleet", &json!({})).await?, |html| html.contains("of 10001"))
    })
    .await?;
    for _ in 0..3 {
        let begun = Instant::now();
        page.text(&token, "/fleet", &json!({ "sort": "SINCE" })).await?;
        table.add("page", "a page of 200, sorted, ms", None, Some(150.0), begun.elapsed().as_secs_f64() * 1e3);
    }

    let name = "fake-0";
    let id = format!("clusterdeployment.hive.openshift.io/{}/{name}", model.namespace());
    let mut live = page.live(&token, &[&id]).await?;
    let (ours, theirs) = changes(&world, &clusters, name, &mut live).await?;
    table.add("page", "a change to its cell, p99, ms", Some(theirs), Some(300.0), ours);

    let browser = if Browser::is_there()? { Some(Browser::start(&[]).await?) } else { None };
    if let Some(browser) = &browser {
        let code = page.enter().await?;
        browser.goto(&format!("{}/#code={code}", page.base)).await?;
        let usable = browser.run(USABLE).await?.as_f64().context("a time")?;
        table.add("Chromium", "usable, ms", None, Some(1_000.0), usable);
        browser.run(TASKS).await?;
    }
    let reason = |at: usize| json!({ "metadata": { "annotations": { keys::REASON: format!("burst {at}") } } });
    let begun = Instant::now();
    let write = async |at: usize| {
        let name = format!("fake-{}", at % 50);
        clusters.patch(&name, &PatchParams::default(), &Patch::Merge(reason(at))).await.map(drop)
    };
    stream::iter(0..BURST).map(write).buffer_unordered(16).try_collect::<()>().await?;
    clusters.patch(name, &PatchParams::default(), &Patch::Merge(reason(BURST))).await?;
    let wrote = begun.elapsed().as_secs_f64();
    let mut messages = 0;
    while !live.next().await?.to_string().contains(&format!("burst {BURST}")) {
        messages += 1;
    }
    table.add("page", "changes written in a second", None, None, count(BURST) / wrote);
    table.add(
        "page",
        "messages in a second then",
        None,
        Some(10.0),
        f64::from(messages) / begun.elapsed().as_secs_f64(),
    );

    if let Some(browser) = browser {
        browser.shows(&format!("burst {BURST}")).await?;
        let longest = browser.run("return Math.max(0, ...tasks)").await?.as_f64().context("a time")?;
        table.add("Chromium", "longest task of the main thread, ms", None, Some(100.0), longest);
        browser.close().await?;
    }
    sleep(Duration::from_secs(20)).await;
    let pid = page.child.id().context("a process")?.try_into()?;
    let before = process::cpu(pid)?;
    sleep(Duration::from_mins(1)).await;
    let spent = process::cpu(pid)? - before;
    table.add("page", "CPU at rest, percent of a core", None, Some(0.2), spent / 60.0 * 100.0);
    let [peak, rss, _] = process::memory(pid)?;
    table.add("page", "RSS, MB", None, Some(120.0), rss);
    table.add("page", "RSS peak, MB", None, Some(120.0), peak);
    table.print();
    table.save()
}

/// Runs a program, and prints its peak memory in KiB in place of what it prints.
const PEAK: &str = "import resource, subprocess, sys\n\
                    subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)\n\
                    print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)";

async fn savings(world: &World, table: &mut Table) -> Result<()> {
    for _ in 0..3 {
        let mut command = world.command("python3");
        command.args(["-c", PEAK]).arg(paths::program(keys::PLUGIN)?).args(["savings", "-A"]);
        let ran = world.run(command).await?;
        let peak: f64 = ran.clone().ok()?.trim().parse().context("its peak memory")?;
        table.add("savings -A", "seconds", None, Some(3.0), ran.duration.as_secs_f64());
        table.add("savings -A", "RSS peak, MB", None, Some(150.0), peak / 1024.0);
    }
    Ok(())
}

/// How long a change takes to the tab, and to `kubectl get --watch`: the 99th percentiles, in ms.
async fn changes(world: &World, api: &Api<ClusterDeployment>, name: &str, live: &mut Messages) -> Result<(f64, f64)> {
    let mut kubectl = world.command("kubectl");
    let path = "jsonpath={.metadata.annotations.hibernate\\.sh/reason}{\"\\n\"}";
    let namespace = api.namespace().unwrap_or_default();
    kubectl.args(["get", "clusterdeployment", name, "-n", namespace, "--watch", "-o", path]).stdout(Stdio::piped());
    let mut watch = kubectl.spawn()?;
    let mut lines = BufReader::new(watch.stdout.take().context("stdout")?).lines();
    sleep(Duration::from_secs(3)).await;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for at in 0..TIMED {
        let reason = format!("change {at}");
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { keys::REASON: &reason } } }));
        let begun = Instant::now();
        api.patch(name, &PatchParams::default(), &patch).await?;
        let tab = async {
            while !live.next().await?.to_string().contains(&reason) {}
            anyhow::Ok(begun.elapsed())
        };
        let peer = async {
            while !lines.next_line().await?.context("kubectl has ended")?.contains(&reason) {}
            anyhow::Ok(begun.elapsed())
        };
        let (tab, peer) = timeout(LONG, async { tokio::try_join!(tab, peer) }).await??;
        ours.push(tab.as_secs_f64() * 1e3);
        theirs.push(peer.as_secs_f64() * 1e3);
        sleep(Duration::from_millis(rand::random_range(50..300))).await;
    }
    watch.kill().await?;
    let [ours, theirs] = [ours, theirs].map(|mut all| {
        all.sort_by(f64::total_cmp);
        all[TIMED - 2]
    });
    Ok((ours, theirs))
}
