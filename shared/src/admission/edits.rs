//! What a mutating rule wants changed: annotations, one by one.

use super::verdict::Denial;

/// One annotation to set or to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Key of the annotation.
    pub key: &'static str,
    /// Its value, or `None` to remove it.
    pub value: Option<String>,
}

/// Everything that a mutating rule wants done to an object. Holds only what differs from the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// Annotations to set or to remove, each key once.
    pub annotations: Vec<Edit>,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// Why the write is refused.
    pub denial: Option<Denial>,
}

impl Edits {
    /// Wants an annotation to have this value, or to be absent; `found` is what the object has.
    pub fn want(mut self, key: &'static str, found: Option<&str>, value: Option<String>) -> Self {
        if found != value.as_deref() {
            self.annotations.push(Edit { key, value });
        }
        self
    }

    /// Tells the user something.
    pub fn warn(mut self, text: impl Into<String>) -> Self {
        self.warnings.push(text.into());
        self
    }
}
