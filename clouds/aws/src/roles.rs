//! Which roles the clusters of a namespace may have assumed: the flag `--aws-role`.

use std::str::FromStr;

use shared::text::sanitize_to;

/// Longest ARN that is repeated, in characters. AWS allows more.
const MAX_SHOWN_ARN: usize = 256;

/// Parts of an ARN between colons.
const ARN_PARTS: usize = 6;

/// Roles that clusters of one namespace may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedRole {
    namespace: String,
    pattern: String,
}

impl FromStr for AllowedRole {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let right = "write NAMESPACE=ARN-PATTERN, such as team-a=arn:aws:iam::123456789012:role/hibernate-*; * stands for any \
                     characters but a colon, so that the pattern has the six parts of an ARN";
        let (namespace, pattern) = text.split_once('=').ok_or(right)?;
        let is_name = !namespace.is_empty()
            && namespace.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        let is_arn = pattern.starts_with("arn:") && pattern.split(':').count() == ARN_PARTS;
        let allowed = || Self { namespace: namespace.to_owned(), pattern: pattern.to_owned() };
        (is_name && is_arn).then(allowed).ok_or(right)
    }
}

/// Whether a role may be assumed for a cluster of this namespace. Without any rule every role may.
///
/// # Errors
/// The end of a sentence that begins with where the role was named.
pub(crate) fn check(allowed: &[AllowedRole], namespace: &str, arn: &str) -> Result<(), String> {
    let permits = |rule: &AllowedRole| rule.namespace == namespace && matches(&rule.pattern, arn);
    if allowed.is_empty() || allowed.iter().any(permits) {
        return Ok(());
    }
    let arn = sanitize_to(arn, MAX_SHOWN_ARN);
    Err(format!(
        "is {arn}, which clusters in namespace {namespace} may not assume: name a role that is allowed there, or start the controller with \
         --aws-role {namespace}={arn}"
    ))
}

/// Whether a text is of a pattern in which `*` stands for any characters but a colon.
fn matches(pattern: &str, text: &str) -> bool {
    let (patterns, parts) = (pattern.split(':'), text.split(':'));
    patterns.clone().count() == parts.clone().count() && patterns.zip(parts).all(|(one, part)| part_matches(one, part))
}

/// The same within one part: what stands between two `*` is found one after the other, each as early as it can be.
fn part_matches(pattern: &str, part: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == part };
    let (between, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(rest) = part.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else { return false };
    between.split('*').try_fold(rest, |rest, word| Some(rest.split_once(word)?.1)).is_some()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_flag_names_a_namespace_and_a_pattern() {
        for text in ["team-a=arn:aws:iam::123456789012:role/hibernate-*", "a=arn:*:iam::*:role/*"] {
            text.parse::<AllowedRole>().unwrap();
        }
        for text in [
            "",
            "team-a",
            "team-a=",
            "team-a=*",
            "=arn:aws:iam::1:role/x",
            "*=arn:aws:iam::1:role/x",
            "Team=arn:aws:iam::1:role/x",
            "team-a=role/x",
            "team-a=arn:aws:iam::1",
            "team-a=arn:aws:iam::1:role/x:y",
            "arn:aws:iam::1:role/x",
        ] {
            let error = text.parse::<AllowedRole>().unwrap_err();
            let example = error.split_once("such as ").unwrap().1.split(';').next().unwrap();
            assert!(example.parse::<AllowedRole>().is_ok(), "{text}: {error}");
        }
    }

    #[test]
    fn a_star_stands_for_any_characters_of_one_part() {
        let role = |name: &str| format!("arn:aws:iam::123456789012:role/{name}");
        for (pattern, arn, expected) in [
            (role("x"), role("x"), true),
            (role("x"), role("xy"), false),
            (role("x*"), role("x"), true),
            (role("x*"), role("x/path/y"), true),
            (role("*y"), role("x"), false),
            (role("a*b*c"), role("abc"), true),
            (role("a*b*c"), role("a-c-b-c"), true),
            (role("a*b*c"), role("a-c-b"), false),
            (role("a*a"), role("a"), false),
            (role("*ab*"), role("aab"), true),
            ("arn:aws:iam::*:role/hive".to_owned(), role("hive"), true),
            ("arn:aws:iam::*:role/hive".to_owned(), "arn:aws:iam::evil:role/x:role/hive".to_owned(), false),
            ("arn:aws:iam::*:role/*".to_owned(), "arn:aws:iam::1:user/x".to_owned(), false),
            (role("*"), role("ROLE").to_uppercase(), false),
            (role("*"), "arn:aws:iam::123456789012".to_owned(), false),
        ] {
            assert_eq!(matches(&pattern, &arn), expected, "{pattern} {arn}");
        }
    }

    #[test]
    fn without_rules_every_role_is_assumed_and_with_one_no_other() {
        let (arn, other) = ("arn:aws:iam::1:role/hibernate-a", "arn:aws:iam::2:role/hibernate-a");
        let rules: Vec<AllowedRole> =
            ["a=arn:aws:iam::1:role/hibernate-*", "a=arn:aws:iam::3:role/x"].map(|rule| rule.parse().unwrap()).into();
        assert_eq!((check(&[], "a", arn), check(&[], "b", other)), (Ok(()), Ok(())));
        assert_eq!(check(&rules, "a", arn), Ok(()));
        for (namespace, arn) in [("a", other), ("b", arn), ("ab", arn), ("a", ""), ("", arn)] {
            let error = check(&rules, namespace, arn).unwrap_err();
            assert!(error.contains(&format!("--aws-role {namespace}={arn}")), "{error}");
        }
        // The flag that it names, beside the others.
        let error = check(&rules, "b", other).unwrap_err();
        let flag = error.split_once("--aws-role ").unwrap().1.parse().unwrap();
        assert_eq!(check(&[rules[0].clone(), flag], "b", other), Ok(()), "{error}");
        let long = check(&rules, "a", &format!("arn:\u{1b}{}", "x".repeat(5_000))).unwrap_err();
        assert!(long.len() < 1_000 && !long.contains('\u{1b}'), "{long}");
    }

    proptest! {
        /// As a slow and plain matcher has it.
        #[test]
        fn agrees_with_the_plain_definition(pattern in "[ab*:]{0,8}", text in "[ab:]{0,10}") {
            fn plain(pattern: &[u8], text: &[u8]) -> bool {
                match (pattern.split_first(), text.split_first()) {
                    (None, None) => true,
                    (Some((b'*', rest)), next) => {
                        plain(rest, text) || next.is_some_and(|(c, after)| *c != b':' && plain(pattern, after))
                    }
                    (Some((one, rest)), Some((other, after))) => one == other && plain(rest, after),
                    _ => false,
                }
            }
            prop_assert_eq!(matches(&pattern, &text), plain(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
