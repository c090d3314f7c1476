//! Checks that a `--help` text is filled to the width of the terminal. It needs nothing but the text, so other programs can
//! include this file with `#[path]`.

/// The lines that are too wide, and those that end within a sentence although the next word would have fitted.
pub(crate) fn faults(help: &str, width: usize) -> Vec<String> {
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
    let goes_on = word.starts_with(|char: char| char.is_lowercase() || char.is_ascii_digit() || "(`\"".contains(char));
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

mod tests {
    use super::*;

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
