//! The commands, one file or folder each.

pub(crate) mod completion;
pub(crate) mod install_alias;
mod plan;
mod power;
pub(crate) mod recover;
mod rollout;
mod status;
mod version;

use shared::power::Power;
use shared::target::Kinds;

use crate::cli::recover::{Recover, RecoverArgs};
use crate::cli::{ActArgs, Cli, Command, HubArgs, SleepArgs};
use crate::error::{Exit, Problem};

/// Runs the command.
///
/// # Errors
/// When nothing could be tried at all. Failures of single targets are printed and counted.
pub(crate) async fn run(kinds: Kinds, cli: &Cli) -> Result<Exit, Problem> {
    match &cli.command {
        None => sleep(kinds, &cli.sleep, &cli.hub).await,
        Some(Command::Dehydrate(args)) => sleep(kinds, args, &cli.hub).await,
        Some(Command::Resume(args)) => {
            args.check()?;
            change(kinds, Power::Running, &args.act, false, &cli.hub).await
        }
        Some(Command::Plan(args)) => plan::run(kinds, args, &cli.hub).await,
        Some(Command::Status(args)) => status::run(kinds, args, &cli.hub).await,
        Some(Command::Rollout(args)) => rollout::run(args, &cli.hub).await,
        Some(Command::Recover(RecoverArgs { what: Recover::ProcessGroups(args) })) => {
            recover::run(args, &cli.hub).await
        }
        Some(Command::InstallAlias(args)) => install_alias::install(args).map(|()| Exit::Done),
        Some(Command::Version(args)) => {
            version::run(args);
            Ok(Exit::Done)
        }
        Some(Command::Completion(args)) => completion::install(args).map(|()| Exit::Done),
        Some(Command::Complete { words }) => {
            completion::answer(kinds, words).await;
            Ok(Exit::Done)
        }
    }
}

async fn sleep(kinds: Kinds, args: &SleepArgs, hub: &HubArgs) -> Result<Exit, Problem> {
    change(kinds, Power::Hibernating, &args.act, args.force, hub).await
}

/// Changes targets at once, or by a rollout if a flag of one is given.
async fn change(kinds: Kinds, action: Power, args: &ActArgs, force: bool, hub: &HubArgs) -> Result<Exit, Problem> {
    if args.rollout.given().is_empty() {
        power::run(kinds, action, args, force, hub).await
    } else {
        rollout::create::run(kinds, action, args, force, hub).await
    }
}

#[cfg(test)]
mod tests;
