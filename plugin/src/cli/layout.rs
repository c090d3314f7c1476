//! The layout of the help of every command.

use clap::Command;

/// About, examples and usage, then what there is.
const TEMPLATE: &str = "{about-with-newline}\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// How many examples fit a screen beside the flags.
const FIRST: usize = 3;

/// The command with its help in order. `-h` fits a screen: it has the first examples, and leaves out flags under a heading of their
/// own; `--help` has everything.
pub(super) fn arranged(mut command: Command) -> Command {
    if let Some(examples) = command.get_before_help().map(ToString::to_string) {
        let first: Vec<&str> = examples.split("\n\n").take(FIRST).collect();
        command = command.before_help(first.join("\n\n")).before_long_help(&examples);
    }
    let command = command.mut_args(|arg| {
        let hide = arg.is_hide_short_help_set() || arg.get_help_heading().is_some();
        arg.hide_short_help(hide)
    });
    command.help_template(TEMPLATE).mut_subcommands(arranged)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::{Cli, filled, recover::FdbCli};

    #[test]
    fn definitions_are_sound() {
        for command in [Cli::command(), FdbCli::command()] {
            arranged(command).debug_assert();
        }
    }

    /// Every `-h` and `--help` of a program, rendered for a terminal of this width.
    fn helps(command: &Command, width: usize, texts: &mut Vec<String>) {
        let mut sized = command.clone().term_width(width);
        texts.extend([sized.render_help().to_string(), sized.render_long_help().to_string()]);
        for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
            helps(command, width, texts);
        }
    }

    #[test]
    fn help_fills_the_terminal() {
        for width in [80, 100] {
            let mut texts = Vec::new();
            for mut command in [Cli::command(), FdbCli::command()].map(arranged) {
                command.build();
                helps(&command, width, &mut texts);
            }
            assert!(texts.len() > 20);
            let faults: Vec<String> = texts.iter().flat_map(|text| filled::faults(text, width)).collect();
            assert!(faults.is_empty(), "at {width} columns:\n{}", faults.join("\n"));
        }
    }
}
