//! The commands, one file or folder each.

mod check;
pub(crate) mod completion;
mod control_plane;
pub(crate) mod install_alias;
mod kinds;
pub(crate) mod path_entry;
mod plan;
mod power;
mod power_plan;
pub(crate) mod recover;
mod rewrite;
mod rollout;
mod savings;
mod schedule;
mod status;
mod ui;

use serde_json::json;
use shared::kinds::Kinds;
use shared::power::Power;

use self::power::Accepted;
use crate::cli::recover::{Recover, RecoverArgs};
use crate::cli::{Cli, Command, KindsArgs, VersionArgs, VersionOutput};
use crate::error::{Exit, Problem};
use crate::output;
use crate::read::kinds_file;

/// Runs the command.
///
/// # Errors
/// When nothing could be tried at all. Failures of single targets are printed and counted.
pub(crate) async fn run(own: Kinds, cli: &Cli) -> Result<Exit, Problem> {
    let (kinds, file) = match &cli.command {
        Some(
            Command::Check(_)
            | Command::Recover(_)
            | Command::InstallAlias(_)
            | Command::Version(_)
            | Command::Completion(_)
            | Command::Kinds(KindsArgs { check: Some(_), .. }),
        ) => (own, None),
        // A wake must pass, whatever stands in that file.
        Some(Command::Resume(_)) if cli.hub.kinds.is_none() => kinds_file::named(own, None).unwrap_or_else(|error| {
            output::warning(&error.to_string());
            (own, None)
        }),
        Some(Command::Complete { .. }) => kinds_file::extend(own, cli.hub.kinds.as_deref()).unwrap_or((own, None)),
        _ => kinds_file::named(own, cli.hub.kinds.as_deref())?,
    };
    match &cli.command {
        None => power::run(kinds, Power::Hibernating, &cli.sleep.act, (&cli.sleep).into(), &cli.hub).await,
        Some(Command::Dehydrate(args)) => power::run(kinds, Power::Hibernating, &args.act, args.into(), &cli.hub).await,
        Some(Command::Resume(args)) => {
            args.check()?;
            power::run(kinds, Power::Running, &args.act, Accepted::default(), &cli.hub).await
        }
        Some(Command::Plan(args)) => plan::run(kinds, args, &cli.hub).await,
        Some(Command::Kinds(args)) => kinds::run(own, (kinds, file.as_deref()), args, &cli.hub).await,
        Some(Command::Check(args)) => check::run(kinds, args, &cli.hub).await,
        Some(Command::Status(args)) => status::run(kinds, args, &cli.hub).await,
        Some(Command::Savings(args)) => savings::run(kinds, args, &cli.hub).await,
        Some(Command::Ui(args)) => ui::run(kinds, args, &cli.hub).await,
        Some(Command::Rollout(args)) => rollout::run(kinds, args, &cli.hub).await,
        Some(Command::Schedule(args)) => schedule::run(kinds, args, &cli.hub).await,
        Some(Command::Recover(RecoverArgs { what: Recover::ProcessGroups(args) })) => {
            recover::run(args, &cli.hub).await
        }
        Some(Command::InstallAlias(args)) => install_alias::install(args).map(|()| Exit::Done),
        Some(Command::Version(args)) => {
            version(args);
            Ok(Exit::Done)
        }
        Some(Command::Completion(args)) => completion::install(args).map(|()| Exit::Done),
        Some(Command::Complete { words }) => {
            completion::answer(kinds, words).await;
            Ok(Exit::Done)
        }
    }
}

/// Prints the version of this program. Asks no server.
fn version(args: &VersionArgs) {
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    let all = json!({ "clientVersion": { "gitVersion": version, "platform": platform } });
    match args.output {
        None => output::line(&format!("kubectl-hibernate {version} ({platform})")),
        Some(format) => output::structured(&all, format == VersionOutput::Json),
    }
}

#[cfg(test)]
mod tests;
