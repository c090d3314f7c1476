//! Reads the command line, runs the command, and turns its end into an exit code.

use std::process::ExitCode;

use shared::kinds::Kinds;

use crate::cli::recover::{FdbCli, FdbCommand, Recover, RecoverArgs};
use crate::cli::{self, Cli, Command, HubArgs};
use crate::cmd::{self, completion, install_alias, recover};
use crate::connect::has_warned;
use crate::error::{Exit, Problem};
use crate::output;

/// The program, for these kinds.
pub fn run(kinds: Kinds) -> ExitCode {
    // Only fails if a provider is installed already, and this is the first line of the program.
    let _ = hub::provider().install_default();
    let words = std::env::args_os().collect::<Vec<_>>();
    let invocation = if install_alias::is_alias(words.first()) {
        cli::read::<FdbCli>(words).map(|cli| Invocation::Fdb(Box::new(cli)))
    } else {
        cli::read::<Cli>(completion::as_question(words)).map(|cli| Invocation::Own(Box::new(cli)))
    };
    let invocation = match invocation {
        Ok(invocation) => invocation,
        Err(error) => {
            let printed = error.print();
            if error.use_stderr() {
                return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Exit::Usage as u8));
            }
            output::record(printed);
            return ExitCode::from(printed_out(Exit::Done, false) as u8);
        }
    };
    // One thread: everything waits for the network, and threads would only take time to start.
    let exit = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let exit = runtime.block_on(async {
                match &invocation {
                    Invocation::Own(cli) => cmd::run(kinds, cli).await,
                    Invocation::Fdb(cli) => {
                        let FdbCommand::ProcessGroups(args) = &cli.command;
                        recover::run_as_fdb(args, &cli.hub).await
                    }
                }
            });
            // The page's credential plugin may still run.
            runtime.shutdown_background();
            exit
        }
        Err(source) => Err(Problem::Io { action: "start".to_owned(), source }),
    };
    let exit = exit.unwrap_or_else(|problem| {
        output::error(&problem.to_string());
        problem.exit()
    });
    ExitCode::from(printed_out(warned(exit, &invocation), invocation.changes()) as u8)
}

/// The exit code under `--warnings-as-errors`. What was changed has been changed all the same.
fn warned(exit: Exit, invocation: &Invocation) -> Exit {
    if exit != Exit::Done || !invocation.hub().warnings_as_errors || !has_warned() {
        return exit;
    }
    let done = if invocation.changes() { "; the request itself succeeded" } else { "" };
    output::error(&format!("the API server returned a warning, and --warnings-as-errors is set{done}"));
    Exit::Error
}

/// The exit code, given that what was printed may not have arrived. What was changed has been changed all the same.
fn printed_out(exit: Exit, changes: bool) -> Exit {
    let Some(error) = output::failure() else { return exit };
    let done = if changes && exit == Exit::Done { "; the request itself succeeded" } else { "" };
    output::error(&format!("cannot write to standard output: {error}{done}"));
    if exit == Exit::Done { Exit::Error } else { exit }
}

/// A command line, by the name under which the program was started.
enum Invocation {
    Own(Box<Cli>),
    Fdb(Box<FdbCli>),
}

impl Invocation {
    fn hub(&self) -> &HubArgs {
        match self {
            Self::Own(cli) => &cli.hub,
            Self::Fdb(cli) => &cli.hub,
        }
    }

    /// Whether it is more than a question.
    fn changes(&self) -> bool {
        match self {
            Self::Own(cli) => match &cli.command {
                None => cli.sleep.act.write.changes(),
                Some(Command::Dehydrate(args)) => args.act.write.changes(),
                Some(Command::Resume(args)) => args.act.write.changes(),
                Some(Command::Recover(RecoverArgs { what: Recover::ProcessGroups(args) })) => {
                    args.groups.write.changes()
                }
                Some(Command::Rollout(args)) => args.verb.changes(),
                Some(Command::Schedule(args)) => args.verb.changes(),
                _ => false,
            },
            Self::Fdb(cli) => {
                let FdbCommand::ProcessGroups(args) = &cli.command;
                args.groups.write.changes()
            }
        }
    }
}
