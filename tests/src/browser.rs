//! Drives Chromium over `WebDriver`, for tests and benchmarks of the page. It resolves nothing but 127.0.0.1.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::json_http::JsonHttp;
use crate::{eventually, ports};

/// How long the page may take to show something.
const SOON: Duration = Duration::from_mins(1);
/// How often Tab is pressed at most to find something.
const TABS: usize = 60;

/// Keys, as `WebDriver` names them.
const TAB: char = '\u{e004}';
pub const ENTER: char = '\u{e007}';
pub const ESCAPE: char = '\u{e00c}';

/// A browser, and the chromedriver that drives it. The published clients do not fit: one changes how `serde_json` orders
/// keys in the whole workspace, the other is under MPL and brings a dozen old crates.
pub struct Browser {
    http: JsonHttp,
    session: String,
    _process: Child,
}

impl Browser {
    /// Whether there is one. Without it a test is skipped, unless `$HIBERNATE_PAGE` wants it.
    pub fn is_there() -> Result<bool> {
        let is_missing = |program: &&str| std::process::Command::new(program).arg("--version").output().is_err();
        let Some(missing) = ["chromium", "chromedriver"].into_iter().find(is_missing) else { return Ok(true) };
        let what = format!("{missing} is missing: on Debian, apt-get install chromium chromium-driver");
        ensure!(std::env::var_os("HIBERNATE_PAGE").is_none(), what);
        eprintln!("skipped: {what}");
        Ok(false)
    }

    pub async fn start(flags: &[&str]) -> Result<Self> {
        let port = ports::free()?;
        let mut command = Command::new("chromedriver");
        command.arg(format!("--port={port}")).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let process = command.spawn().context("start chromedriver")?;
        let args = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--window-size=1200,900",
        ];
        let args: Vec<&str> = args.iter().chain(flags).copied().collect();
        let wanted = json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": { "args": args } } } });
        let http = JsonHttp::new(&format!("http://127.0.0.1:{port}"));
        let made: Value = eventually(SOON, "a browser", || http.post("/session", &wanted)).await?;
        let session = made["value"]["sessionId"].as_str().context("a session")?.to_owned();
        Ok(Self { http, session, _process: process })
    }

    async fn post(&self, command: &str, body: &Value) -> Result<Value> {
        let mut answer: Value = self.http.post(&format!("/session/{}/{command}", self.session), body).await?;
        Ok(answer["value"].take())
    }

    async fn get(&self, command: &str) -> Result<Value> {
        let mut answer: Value = self.http.get(&format!("/session/{}/{command}", self.session)).await?;
        Ok(answer["value"].take())
    }

    pub async fn goto(&self, url: &str) -> Result<()> {
        self.post("url", &json!({ "url": url })).await.map(drop)
    }

    pub async fn url(&self) -> Result<String> {
        Ok(self.get("url").await?.as_str().unwrap_or_default().to_owned())
    }

    pub async fn resize(&self, width: u32, height: u32) -> Result<()> {
        self.post("window/rect", &json!({ "width": width, "height": height })).await.map(drop)
    }

    /// A picture, as PNG.
    pub async fn picture(&self) -> Result<Vec<u8>> {
        Ok(serde_json::from_value::<ByteString>(self.get("screenshot").await?)?.0)
    }

    /// Ends the browser.
    pub async fn close(self) -> Result<()> {
        self.http.delete(&format!("/session/{}", self.session)).await
    }

    pub async fn press(&self, key: char) -> Result<()> {
        let actions = ["keyDown", "keyUp"].map(|what| json!({ "type": what, "value": key }));
        let keys = json!({ "type": "key", "id": "keys", "actions": actions });
        self.post("actions", &json!({ "actions": [keys] })).await.map(drop)
    }

    pub async fn types(&self, text: &str) -> Result<()> {
        for key in text.chars() {
            self.press(key).await?;
        }
        Ok(())
    }

    pub async fn run(&self, script: &str) -> Result<Value> {
        self.post("execute/sync", &json!({ "script": script, "args": [] })).await
    }

    /// Presses Tab until what has the focus has these words.
    pub async fn tab_to(&self, words: &str) -> Result<()> {
        let mut seen = Vec::new();
        for _ in 0..TABS {
            self.press(TAB).await?;
            let text = self.focus().await?;
            if text.contains(words) {
                return Ok(());
            }
            seen.push(text);
        }
        bail!("no Tab reaches {words:?}: {seen:#?}")
    }

    /// The element with the focus, as its name for a person.
    pub async fn focus(&self) -> Result<String> {
        let script = "const at = document.activeElement; const label = at.labels?.[0]?.textContent; \
                      return [at.tagName, at.name ?? '', at.ariaLabel ?? '', label ?? '', at.textContent.slice(0, 80)].join(' ')";
        Ok(self.run(script).await?.as_str().unwrap_or_default().to_owned())
    }

    /// Goes into the first frame.
    pub async fn enter_frame(&self) -> Result<()> {
        self.post("frame", &json!({ "id": 0 })).await.map(drop)
    }

    /// Puts the focus before everything else, as a person does who begins at the top.
    pub async fn to_the_top(&self) -> Result<()> {
        self.run("document.querySelector('.skip').focus()").await.map(drop)
    }

    pub async fn text(&self) -> Result<String> {
        Ok(self.run("return document.body.innerText").await?.as_str().unwrap_or_default().to_owned())
    }

    pub async fn shows(&self, words: &str) -> Result<()> {
        eventually(SOON, words, async || {
            let text = self.text().await?;
            ensure!(text.contains(words), "{text}");
            Ok(())
        })
        .await
    }

    pub async fn is_enabled(&self, selector: &str) -> Result<()> {
        let script = format!("return !document.querySelector('{selector}').disabled");
        eventually(SOON, selector, async || {
            ensure!(self.run(&script).await? == true, "{}", self.text().await?);
            Ok(())
        })
        .await
    }
}
