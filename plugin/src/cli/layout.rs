//! The help of every command: its texts and their layout.

use clap::Command;

/// Texts of the folder `help`, with an empty line in between.
///
/// A paragraph is one line: clap fills it to the width of the terminal. Lines of lists and examples fit into 80
/// columns, because clap would break them anywhere. Of the examples, `-h` has the first three.
macro_rules! help {
    ($first:literal $(, $next:literal)*) => {
        concat!(
            include_str!(concat!("help/", $first, ".txt")) $(, "\n", include_str!(concat!("help/", $next, ".txt")))*
        )
        .trim_ascii_end()
    };
}
pub(super) use help;

/// About, examples and usage, then what there is.
const TEMPLATE: &str = "{about-with-newline}\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// How many examples fit a screen beside the flags.
const FIRST: usize = 3;

/// The command with its help in order. `-h` fits a screen: it has the first examples, and leaves out flags under a
/// heading of their own. `--help` has everything.
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
    use crate::cli::Cli;
    use crate::cli::recover::FdbCli;

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
            let found: Vec<String> = texts.iter().flat_map(|text| faults(text, width)).collect();
            assert!(found.is_empty(), "at {width} columns:\n{}", found.join("\n"));
        }
    }

    /// The lines that are too wide, and those that end within a sentence although the next word would have fitted.
    fn faults(help: &str, width: usize) -> Vec<String> {
        let lines: Vec<&str> = help.lines().collect();
        let wide = lines.iter().filter(|line| line.chars().count() > width).map(|line| format!("too wide: {line}"));
        let broken = lines.windows(2).filter(|pair| is_broken(pair[0], pair[1], width));
        wide.chain(broken.map(|pair| format!("broken early: {} / {}", pair[0], pair[1]))).collect()
    }

    /// Whether the second line goes on with the sentence of the first, and its first word would have fitted there.
    fn is_broken(line: &str, next: &str, width: usize) -> bool {
        let indent = |line: &str| line.chars().take_while(|char| *char == ' ').count();
        let Some(word) = next.split_whitespace().next() else { return false };
        let ends = line.trim_end().ends_with(['.', ':', '!', '?', '|', '\\']);
        let goes_on =
            word.starts_with(|char: char| char.is_lowercase() || char.is_ascii_digit() || "(`\"".contains(char));
        let prose = |line: &str| is_prose(line.trim());
        let fits = line.trim_end().chars().count() + 1 + word.chars().count() <= width;
        indent(line) == indent(next) && !ends && goes_on && prose(line) && prose(next) && fits
    }

    /// Lists have columns, examples have commands, and neither is filled.
    fn is_prose(line: &str) -> bool {
        let command =
            ["#", "kubectl", "source ", "chmod ", "jq ", "\"", "{", "}"].iter().any(|begin| line.starts_with(begin));
        !line.is_empty() && !line.contains("  ") && !command
    }

    #[test]
    fn only_breaks_within_a_sentence_are_faults() {
        for (text, faulty) in [
            ("A sentence that goes\non in the next line.", true),
            ("A sentence.\nAnother one.", false),
            ("A sentence that fills its line to the very\nend.", false),
            ("Examples:\n  # Comment\n  kubectl x", false),
            ("  1  one\n  2  two", false),
            ("  indented and\nnot", false),
            ("one line that is wider than the forty-five columns", true),
        ] {
            assert_eq!(!faults(text, 45).is_empty(), faulty, "{text}");
        }
    }
}
