//! The plugin at a terminal: stdin and stderr are a pseudo-terminal, at whose other end a person answers the question.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::pty::{OpenptyResult, openpty};
use testbed::{Ran, World, paths};

/// Longest time that the plugin may run.
const LIMIT: Duration = Duration::from_mins(2);
/// What a question ends with.
const QUESTION: &str = "[y/N]";

/// Runs the plugin and answers its question, if it asks one. `stderr` is what the terminal showed.
pub async fn at_a_terminal(world: &World, args: &[&str], answer: &str) -> Result<Ran> {
    let OpenptyResult { master, slave } = openpty(None, None).context("make a terminal")?;
    let mut command = world.command(paths::program(shared::annotation::keys::PLUGIN)?);
    command
        .args(args)
        .env("TERM", "dumb")
        .stdin(Stdio::from(slave.try_clone()?))
        .stderr(Stdio::from(slave))
        .stdout(Stdio::piped());
    let begun = Instant::now();
    let child = command.spawn().context("start the plugin")?;
    drop(command); // it holds the terminal open
    let (mut screen, mut keyboard, answer) = (File::from(master.try_clone()?), File::from(master), answer.to_owned());
    let person = tokio::task::spawn_blocking(move || {
        let (mut shown, mut buffer, mut answered) = (String::new(), [0; 4096], false);
        // Once the plugin has ended, Linux answers EIO.
        while let Ok(read @ 1..) = screen.read(&mut buffer) {
            shown += &String::from_utf8_lossy(&buffer[..read]);
            if shown.contains(QUESTION) && !answered {
                let _ = keyboard.write_all(answer.as_bytes());
                answered = true;
            }
        }
        shown
    });
    let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await.context("the plugin takes too long")??;
    Ok(Ran {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: person.await?,
        code: output.status.code().unwrap_or(-1),
        duration: begun.elapsed(),
    })
}
