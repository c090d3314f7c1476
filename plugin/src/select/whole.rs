//! A whole namespace as the target: `ns/shop`.

use hub::is_namespace;
use view::resolve::NAMESPACE;

use crate::error::UsageError;

/// The namespace that the words name, if they name one: `ns/shop` or `ns shop`.
///
/// # Errors
/// When it is not alone, or its name is none.
pub(super) fn named(words: &[String]) -> Result<Option<String>, UsageError> {
    let slashed = |word: &String| {
        word.split_once('/').filter(|(type_, _)| NAMESPACE.is_named(type_)).map(|(_, name)| name.to_owned())
    };
    let name = match words {
        [word] => slashed(word),
        [type_, name] if NAMESPACE.is_named(type_) => Some(name.clone()),
        [type_, _, _, ..] if NAMESPACE.is_named(type_) => return Err(UsageError::NamespaceAlone(type_.clone())),
        _ => None,
    };
    match name {
        Some(name) if is_namespace(&name) => Ok(Some(name)),
        Some(name) => Err(UsageError::NotAName(name)),
        None => match words.iter().find(|word| slashed(word).is_some()) {
            Some(word) => Err(UsageError::NamespaceAlone(word.clone())),
            None => Ok(None),
        },
    }
}
