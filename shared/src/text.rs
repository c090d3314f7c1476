//! Untrusted text, from spokes, clouds, annotations and users: it is sanitized before it reaches a condition, an Event, a log
//! line, a metric or a terminal.

use std::error::Error;
use std::fmt::{self, Write};

/// Characters of a sanitized text.
pub const MAX_CHARS: usize = 512;

/// Characters of a word for a shell.
const MAX_WORD_CHARS: usize = 64 * 1024;

/// Sanitizes untrusted text: one line without control or bidi characters, at most [`MAX_CHARS`] characters.
pub fn sanitize(text: &(impl fmt::Display + ?Sized)) -> String {
    sanitize_to(text, MAX_CHARS)
}

/// [`sanitize`] with another limit in characters. Text beyond the limit is never held in memory.
pub fn sanitize_to(text: &(impl fmt::Display + ?Sized), max_chars: usize) -> String {
    let mut bounded = Bounded { text: String::new(), left: max_chars };
    let _ = write!(bounded, "{text}"); // fails once the limit is reached
    let mut text = bounded.text;
    text.truncate(text.trim_end().len());
    text
}

/// An error and its causes, sanitized.
pub fn sanitize_chain(error: &(dyn Error + '_)) -> String {
    sanitize(&Chain(error))
}

/// The first line of an error, sanitized: it may quote untrusted text.
pub fn first_line(error: &(impl fmt::Display + ?Sized)) -> String {
    sanitize(error.to_string().lines().next().unwrap_or_default())
}

/// A word of a command that a person pastes into a shell: sanitized, and quoted where needed.
pub fn quoted(word: &str) -> String {
    let word = sanitize_to(word, MAX_WORD_CHARS);
    shlex::try_quote(&word).map_or_else(|_| "''".to_owned(), std::borrow::Cow::into_owned) // fails at NUL, which is gone
}

/// Whether this character could mislead a terminal or a reader: control characters, line and paragraph separators, marks
/// that change the direction, and invisible ones: Unicode's `Default_Ignorable_Code_Point`, annotation marks, and blanks
/// that are no spaces (U+2800, U+1D159).
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d159}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// `a, b, c and 4 more`: at most `most` names.
pub fn name_some(names: impl IntoIterator<Item: fmt::Display>, most: usize) -> String {
    let mut names = names.into_iter();
    let shown: Vec<String> = names.by_ref().take(most).map(|name| name.to_string()).collect();
    match and_more(names.count()) {
        Some(more) => format!("{} {more}", shown.join(", ")),
        None => shown.join(", "),
    }
}

/// At most five names, for a sentence about one of many things.
pub fn list(names: impl IntoIterator<Item: fmt::Display>) -> String {
    name_some(names, 5)
}

/// `1 instance`, `6 instances`.
pub fn count<N: Copy + fmt::Display + PartialEq + From<u8>>(number: N, what: &str) -> String {
    format!("{number} {what}{}", if number == N::from(1) { "" } else { "s" })
}

/// `and 4 more`; `None` if nothing is left.
pub fn and_more(left: usize) -> Option<String> {
    (left > 0).then(|| format!("and {left} more"))
}

struct Bounded {
    text: String,
    left: usize,
}

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if part.len() <= self.left && part.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            self.left -= part.len();
            self.text.push_str(part);
            return Ok(());
        }
        for c in part.chars() {
            self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
            self.text.push(if is_unsafe(c) { ' ' } else { c });
        }
        Ok(())
    }
}

struct Chain<'a>(&'a (dyn Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        std::iter::successors(self.0.source(), |error| (*error).source()).try_for_each(|cause| write!(f, ": {cause}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_from_outside_is_one_bounded_line() {
        for (text, sanitized) in [
            ("", ""),
            ("a\x1b[31mred\n\u{202e}evil\u{2066}", "a [31mred  evil"),
            ("\u{9b}31m\u{200b}\u{feff}\u{e0041}x\r\n", " 31m   x"),
            ("größer, 大きい, \u{1f40b}", "größer, 大きい, \u{1f40b}"),
        ] {
            assert_eq!(sanitize(text), sanitized, "{text:?}");
        }
        assert_eq!(sanitize(&"ü".repeat(2_000)).chars().count(), MAX_CHARS);
    }

    /// The ranges of `Default_Ignorable_Code_Point` (`DerivedCoreProperties` of Unicode 16), and blanks.
    #[test]
    fn what_shows_nothing_is_unsafe() {
        for (first, last) in [
            (0xad, 0xad),
            (0x34f, 0x34f),
            (0x61c, 0x61c),
            (0x115f, 0x1160),
            (0x17b4, 0x17b5),
            (0x180b, 0x180f),
            (0x200b, 0x200f),
            (0x202a, 0x202e),
            (0x2060, 0x206f),
            (0x2800, 0x2800),
            (0x3164, 0x3164),
            (0xfe00, 0xfe0f),
            (0xfeff, 0xfeff),
            (0xffa0, 0xffa0),
            (0xfff0, 0xfff8),
            (0x1_bca0, 0x1_bca3),
            (0x1_d159, 0x1_d159),
            (0x1_d173, 0x1_d17a),
            (0xe_0000, 0xe_0fff),
        ] {
            for number in first..=last {
                assert!(char::from_u32(number).is_some_and(is_unsafe), "U+{number:04X}");
            }
        }
        assert_eq!(sanitize("a\u{3164}\u{2800}\u{115f}b\u{ffa0}"), "a   b");
        // Letters beside them, an emoji and a space of another width stay.
        assert!(!"\u{115e}\u{1161}\u{2801}\u{3163}\u{3165}\u{1f40b}\u{3000}".chars().any(is_unsafe));
    }

    #[test]
    fn an_endless_text_is_read_up_to_the_limit() {
        struct Endless;
        impl fmt::Display for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                loop {
                    f.write_str("x\n")?;
                }
            }
        }
        let format = || sanitize_to(&Endless, 5);
        assert_eq!(format(), "x x x");
    }

    #[test]
    fn a_list_names_the_first_and_counts_the_rest() {
        for (names, most, named) in [
            (&["a", "b"][..], 2, "a, b"),
            (&["a"], 2, "a"),
            (&[], 2, ""),
            (&["a", "b", "c"], 2, "a, b and 1 more"),
            (&["a", "b", "c", "d"], 1, "a and 3 more"),
        ] {
            assert_eq!(name_some(names, most), named);
        }
        assert_eq!((and_more(0), and_more(7).as_deref()), (None, Some("and 7 more")));
    }

    #[test]
    fn a_chain_names_every_cause() {
        let cause = std::io::Error::other("the\x07cause");
        let error = kube_like::Outer(cause);
        assert_eq!(sanitize_chain(&error), "outer: the cause");
    }

    mod kube_like {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        pub struct Outer(#[source] pub std::io::Error);
    }

    proptest! {
        #[test]
        fn a_shell_reads_a_quoted_word_as_one(word in any::<String>()) {
            prop_assert_eq!(shlex::split(&format!("echo {}", quoted(&word))), Some(vec!["echo".to_owned(), sanitize_to(&word, MAX_WORD_CHARS)]));
        }

        #[test]
        fn nothing_unsafe_passes(text in any::<String>(), max in 0_usize..600) {
            let sanitized = sanitize_to(&text, max);
            prop_assert!(!sanitized.chars().any(is_unsafe));
            prop_assert!(sanitized.chars().count() <= max);
            prop_assert_eq!(&sanitize_to(&sanitized, max), &sanitized);
        }
    }
}
