//! The page of `kubectl hibernate ui`, as a browser talks to it.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use reqwest::{Client, RequestBuilder, Response};
use serde_json::{Value, json};
use shared::annotation::keys;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::paths;
use crate::world::World;

/// How long the program may take to print a link.
const START: Duration = Duration::from_secs(20);

/// A page that is served. It ends with this object.
pub struct Served {
    pub child: Child,
    keyboard: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    /// `http://127.0.0.1:PORT`.
    pub base: String,
    pub client: Client,
}

impl Served {
    /// Starts it, and returns its first code.
    ///
    /// # Errors
    /// When it does not start, or prints no link.
    pub async fn start(world: &World, args: &[&str]) -> Result<(Self, String)> {
        let mut command = world.command(paths::program(keys::PLUGIN)?);
        command.args(["ui", "--no-open"]).args(args);
        Self::of(command).await
    }

    /// Serves the page with this command.
    ///
    /// # Errors
    /// When it does not start, or prints no link.
    pub async fn of(mut command: Command) -> Result<(Self, String)> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let keyboard = child.stdin.take().context("stdin")?;
        let mut lines = BufReader::new(child.stdout.take().context("stdout")?).lines();
        let (base, code) = link(&mut lines).await?;
        let client = Client::builder().no_proxy().build()?;
        Ok((Self { child, keyboard, lines, base, client }, code))
    }

    /// Presses Enter, and returns the code of the new link.
    ///
    /// # Errors
    /// When it has ended.
    pub async fn enter(&mut self) -> Result<String> {
        self.keyboard.write_all(b"\n").await?;
        self.keyboard.flush().await?;
        Ok(link(&mut self.lines).await?.1)
    }

    /// A request as the page sends it.
    pub fn request(&self, path: &str, body: &Value) -> RequestBuilder {
        let request = self.client.post(format!("{}{path}", self.base)).json(body);
        request.header("origin", &self.base).header("sec-fetch-site", "same-origin")
    }

    /// Exchanges a code for a token.
    ///
    /// # Errors
    /// When it refuses the code.
    pub async fn token(&self, code: &str) -> Result<String> {
        let answer = self.request("/session", &json!({ "code": code })).send().await?;
        ensure!(answer.status() == StatusCode::OK, "{answer:?}");
        let answer: Value = answer.json().await?;
        Ok(answer["token"].as_str().context("a token")?.to_owned())
    }

    /// What the page answers to a tab.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn ask(&self, token: &str, path: &str, body: &Value) -> Result<Response> {
        Ok(self.request(path, body).bearer_auth(token).send().await?)
    }

    /// Opens the live stream of these rows.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn live(&self, token: &str, ids: &[&str]) -> Result<Messages> {
        let live = self.ask(token, "/live", &json!({ "ids": ids })).await?;
        Ok(Messages { live, text: String::new() })
    }

    /// The text of a good answer.
    ///
    /// # Errors
    /// When it refuses.
    pub async fn text(&self, token: &str, path: &str, body: &Value) -> Result<String> {
        let answer = self.ask(token, path, body).await?;
        let status = answer.status();
        let text = answer.text().await?;
        ensure!(status == StatusCode::OK, "{status}: {text}");
        Ok(text)
    }
}

/// The live stream of a tab.
pub struct Messages {
    live: Response,
    text: String,
}

impl Messages {
    /// The next message.
    ///
    /// # Errors
    /// When the stream has ended.
    pub async fn next(&mut self) -> Result<Value> {
        loop {
            if let Some(end) = self.text.find('\n') {
                let line: String = self.text.drain(..=end).collect();
                return Ok(serde_json::from_str(&line)?);
            }
            let chunk = self.live.chunk().await?.context("the stream has ended")?;
            self.text += &String::from_utf8_lossy(&chunk);
        }
    }

    /// The first message that matches.
    ///
    /// # Errors
    /// When none is in time. The error has the last message.
    pub async fn until(&mut self, limit: Duration, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let mut last = Value::Null;
        let found = timeout(limit, async {
            loop {
                last = self.next().await?;
                if wanted(&last) {
                    return anyhow::Ok(());
                }
            }
        });
        let found = found.await.unwrap_or_else(|_| Err(anyhow::anyhow!("not in time")));
        found.with_context(|| format!("{what}: {last}")).map(|()| last)
    }
}

async fn link(lines: &mut Lines<BufReader<ChildStdout>>) -> Result<(String, String)> {
    let line = timeout(START, lines.next_line()).await.context("no link")??.context("the program has ended")?;
    let (base, code) = line.split_once("/#code=").with_context(|| format!("no link: {line}"))?;
    Ok((base.to_owned(), code.to_owned()))
}
