//! The page in a browser: by keyboard alone, and every view for assistive technology.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::response::Html;
use axum::routing::get;
use kube::Api;
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::hive::api::ClusterDeployment;
use testbed::browser::{Browser, ENTER, ESCAPE};
use testbed::controlplane::assets;
use testbed::page::Served;
use testbed::{ClusterOptions, Options, World};
use tokio::net::TcpListener;

use crate::hive_common::{SOON, create, running};

/// Folder for screenshots of every view; `make screenshots` sets it.
const SCREENSHOTS: &str = "HIBERNATE_SCREENSHOTS";

#[tokio::test(flavor = "multi_thread")]
async fn by_keyboard_alone_a_cluster_is_found_hibernated_watched_and_woken() -> Result<()> {
    if !Browser::is_there()? {
        return Ok(());
    }
    let world = World::shared().await?;
    let cluster = running(&world, "keyed", ClusterOptions::of_size(2)).await?;
    let (page, code) = Served::start(&world, &["-n", cluster.namespace()]).await?;
    let browser = Browser::start(&[]).await?;
    browser.goto(&format!("{}/#code={code}", page.base)).await?;
    browser.shows("1 to 1 of 1").await?;
    ensure!(!browser.url().await?.contains(&code), "the code stays in the address bar");

    // A filter without a match leaves the page alone.
    browser.tab_to("INPUT text").await?;
    browser.types("nothing").await?;
    browser.press(ENTER).await?;
    browser.shows("No target matches").await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let requests = browser
        .run("return performance.getEntriesByType('resource').filter((one) => one.name.endsWith('/fleet')).length")
        .await?;
    ensure!(requests.as_u64() == Some(2), "{requests} requests");
    ensure!(browser.run("return document.querySelector('[name=text]').value").await? == "nothing");
    browser
        .run("document.querySelector('[name=text]').value = ''; document.querySelector('[name=text]').focus()")
        .await?;
    browser.types("keyed").await?;
    browser.press(ENTER).await?;
    browser.tab_to("INPUT target").await?;
    browser.press(' ').await?;
    browser.shows("1 selected").await?;

    // A refusal is the webhook's own.
    cluster.patch(&json!({ "metadata": { "annotations": { keys::PROTECTED: "true" } } })).await?;
    browser.to_the_top().await?;
    browser.tab_to("Hibernate").await?;
    browser.press(ENTER).await?;
    browser.shows("protected").await?;
    browser.press(ESCAPE).await?;
    cluster.patch(&json!({ "metadata": { "annotations": { keys::PROTECTED: null } } })).await?;

    browser.to_the_top().await?;
    browser.tab_to("Hibernate").await?;
    browser.press(ENTER).await?;
    browser.tab_to("INPUT reason").await?;
    browser.types("weekend").await?;
    browser.tab_to("INPUT until").await?;
    browser.types("2126-01-01T00:00:00Z").await?;
    browser.is_enabled("#dialog-do").await?;
    browser.shows("kubectl hibernate clusterdeployment.hive.openshift.io/keyed").await?;
    browser.tab_to("Hibernate: 1").await?;
    browser.press(ENTER).await?;
    cluster.wait_for_power_state("Hibernating", SOON).await?;
    browser.press(ESCAPE).await?;
    // The row changes by itself, and the focus stays where it is.
    browser.run("document.querySelector('input[name=target]').focus()").await?;
    browser.shows("weekend").await?;
    ensure!(browser.focus().await?.contains("INPUT target"), "the focus has moved: {}", browser.focus().await?);
    let annotations = cluster.get().await?.metadata.annotations.unwrap_or_default();
    ensure!(annotations.get(keys::WAKE_AT).is_some_and(|at| at.starts_with("2126")), "{annotations:?}");

    browser.to_the_top().await?;
    browser.tab_to("Resume").await?;
    browser.press(ENTER).await?;
    browser.is_enabled("#dialog-do").await?;
    browser.tab_to("Resume: 1").await?;
    browser.press(ENTER).await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    browser.press(ESCAPE).await?;
    browser.shows("Running").await?;

    let log: Value = browser.run("return performance.getEntriesByType('resource').map((one) => one.name)").await?;
    let elsewhere =
        log.as_array().into_iter().flatten().filter(|url| !url.as_str().is_some_and(|url| url.starts_with(&page.base)));
    ensure!(elsewhere.count() == 0, "{log}");
    browser.close().await?;
    cluster.remove().await
}

/// The script of axe-core, which a Python package carries.
fn axe() -> Result<String> {
    let python = assets::python()?;
    let lib = python.parent().and_then(Path::parent).context("a virtual environment")?.join("lib");
    let of_version =
        fs::read_dir(&lib)?.flatten().map(|entry| entry.path().join("site-packages/axe_playwright_python/axe.min.js"));
    let path = of_version
        .into_iter()
        .find(|path| path.is_file())
        .with_context(|| format!("no axe-core in {}", lib.display()))?;
    Ok(fs::read_to_string(path)?)
}

async fn violations(browser: &Browser, axe: &str) -> Result<Vec<String>> {
    browser.run(axe).await?;
    let script =
        "return await axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] })";
    let found = browser.run(script).await?;
    let found = found["violations"].as_array().context("violations")?;
    Ok(found.iter().map(|one| format!("{}: {}", one["id"], one["nodes"][0]["html"])).collect())
}

async fn picture(browser: &Browser, name: &str) -> Result<()> {
    let Some(folder) = env::var_os(SCREENSHOTS).map(PathBuf::from) else { return Ok(()) };
    fs::create_dir_all(&folder)?;
    Ok(fs::write(folder.join(format!("{name}.png")), browser.picture().await?)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_view_has_a_violation_of_wcag_in_light_or_dark() -> Result<()> {
    if !Browser::is_there()? {
        return Ok(());
    }
    let axe = axe()?;
    let world = World::shared().await?;
    let cluster = running(&world, "seen", ClusterOptions::of_size(2)).await?;
    let namespace = cluster.namespace();
    let words = ["schedule", "create", "night", "--awake", "Mon-Fri 07:30-18:00", "--zone", "Europe/Berlin"];
    let words = [&words[..], &["--lead", "20m", "--all", "-n", namespace]].concat();
    world.plugin(&words).await?.ok()?;
    let (mut page, first) = Served::start(&world, &["-n", namespace]).await?;
    let id = format!("clusterdeployment.hive.openshift.io%2F{namespace}%2F{}", cluster.name());
    let mut code = first;
    for (theme, flags, dark) in [("light", &[][..], false), ("dark", &["--force-dark-mode"][..], true)] {
        let browser = Browser::start(flags).await?;
        browser.goto(&format!("{}/#code={code}", page.base)).await?;
        browser.shows("1 to 1 of 1").await?;
        let is_dark = browser.run("return matchMedia('(prefers-color-scheme: dark)').matches").await?;
        ensure!(is_dark == dark, "{theme}: {is_dark}");
        for (view, hash, words) in [
            ("fleet", "fleet", "1 to 1 of 1"),
            ("calendar", "calendar", "ready at"),
            ("savings", "savings", "List prices"),
            ("activity", "activity", "Held volumes"),
            ("target", &format!("target={id}"), "YAML"),
        ] {
            browser.run(&format!("location.hash = '{hash}'")).await?;
            browser.shows(words).await?;
            if view == "target" {
                browser.shows("kubectl hibernate plan clusterdeployment").await?;
            }
            let found = violations(&browser, &axe).await?;
            ensure!(found.is_empty(), "{view}, {theme}: {found:#?}");
            picture(&browser, &format!("{view}-{theme}")).await?;
            // Nothing is wider than a small screen, or than a large one at 200 %: what is wide scrolls by itself.
            for width in [320, 600] {
                browser.resize(width, 800).await?;
                let wide = browser.run("return [document.documentElement.scrollWidth, innerWidth]").await?;
                ensure!(wide[0].as_u64() <= wide[1].as_u64(), "{view}, {width}: {wide}");
                picture(&browser, &format!("{view}-{theme}-{width}")).await?;
            }
            browser.resize(1200, 900).await?;
        }
        browser.run("document.querySelector('[data-verb=hibernate]').click()").await?;
        browser.is_enabled("#dialog-do").await?;
        let found = violations(&browser, &axe).await?;
        ensure!(found.is_empty(), "dialog, {theme}: {found:#?}");
        picture(&browser, &format!("dialog-{theme}")).await?;
        browser.press(ESCAPE).await?;
        browser.close().await?;
        code = page.enter().await?;
    }
    cluster.remove().await
}

/// The tables of the activity change by themselves, without moving the focus.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_schedule_shows_up_in_an_open_tab() -> Result<()> {
    if !Browser::is_there()? {
        return Ok(());
    }
    let world = World::shared().await?;
    let cluster = running(&world, "active", ClusterOptions::of_size(2)).await?;
    let (page, code) = Served::start(&world, &["-n", cluster.namespace()]).await?;
    let browser = Browser::start(&[]).await?;
    browser.goto(&format!("{}/#code={code}", page.base)).await?;
    browser.shows("1 to 1 of 1").await?;
    browser.run("location.hash = 'activity'").await?;
    browser.shows("Held volumes").await?;
    browser.tab_to("Schedules").await?;
    browser.run("globalThis.focused = document.activeElement").await?;
    let words = ["schedule", "create", "weekends", "--awake", "Mon-Fri 00:00-24:00", "--zone", "UTC", "--all", "-n"];
    world.plugin(&[&words[..], &[cluster.namespace()]].concat()).await?.ok()?;
    browser.shows("weekends").await?;
    ensure!(browser.run("return document.activeElement === focused").await? == true, "the focus has moved");
    browser.close().await?;
    cluster.remove().await
}

/// A page that another program of the same machine serves is foreign.
#[tokio::test(flavor = "multi_thread")]
async fn another_origin_can_neither_frame_nor_call_the_page() -> Result<()> {
    if !Browser::is_there()? {
        return Ok(());
    }
    let world = World::up(Options::bare_hub()).await?;
    let clusters: Api<ClusterDeployment> = Api::namespaced(world.hub().await?, "default");
    create(&clusters, "one", "aws", &json!({})).await?;
    let (page, code) = Served::start(&world, &["-n", "default"]).await?;
    let token = page.token(&code).await?;
    let html = format!("<!doctype html><p>foreign</p><iframe src=\"{}\"></iframe>", page.base);
    let foreign = Router::new().route("/", get(async move || Html(html)));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(axum::serve(listener, foreign).into_future());
    let browser = Browser::start(&[]).await?;
    browser.goto(&format!("http://{address}/")).await?;
    browser.shows("foreign").await?;
    // It reads nothing, and what it sends without reading writes nothing.
    let act = json!({ "verb": "hibernate", "ids": ["clusterdeployment.hive.openshift.io/default/one"] });
    let headers = format!("{{ 'Content-Type': 'application/json', Authorization: 'Bearer {token}' }}");
    let (own, shell, url) = (format!("http://{address}/"), format!("{}/", page.base), format!("{}/act", page.base));
    for (url, options, is_answered) in [
        (&own, "{}".to_owned(), true),
        (&shell, "{}".to_owned(), false),
        (&url, format!("{{ method: 'POST', headers: {headers}, body: '{act}' }}"), false),
        (&url, format!("{{ method: 'POST', mode: 'no-cors', body: '{act}' }}"), false),
    ] {
        let script = format!("return await fetch('{url}', {options}).then(() => true, () => false)");
        ensure!(browser.run(&script).await? == is_answered, "{url} {options}");
    }
    let found = serde_json::to_value(clusters.get("one").await?)?;
    ensure!(found["spec"]["powerState"] != "Hibernating", "{found}");
    browser.enter_frame().await?;
    let (framed, href) = (browser.text().await?, browser.run("return location.href").await?);
    ensure!(!framed.contains("Press Enter") && !href.to_string().contains(&page.base), "{href}: {framed}");
    browser.close().await
}
