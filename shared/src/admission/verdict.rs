//! What a rule says, what all rules of a kind say together, and what a mutating rule wants changed.

use std::fmt;

/// Longest warning in characters that the API server passes on uncut.
pub const LONGEST_WARNING: usize = 256;

/// What one rule says about a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Allow,
    /// It may be done, but the user should know this.
    Warn(String),
    /// It must not be done.
    Deny(Denial),
}

impl Verdict {
    /// A warning.
    pub fn warn(text: impl Into<String>) -> Self {
        Self::Warn(text.into())
    }

    /// A denial: what kind of fault, in which field, and what was found and would be right.
    pub fn deny(fault: Fault, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Deny(Denial { fault, field: field.into(), message: message.into() })
    }

    /// The same where it applies, and nothing elsewhere.
    pub fn when(self, applies: bool) -> Self {
        if applies { self } else { Self::Allow }
    }
}

/// Why a change is refused: one cause of `status.details.causes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// What kind of fault it is.
    pub fault: Fault,
    /// The field at fault, in JSONPath-like notation: `metadata.annotations[hibernate.sh/protected]`.
    pub field: String,
    /// What was found and what would be right. Readable without the field.
    pub message: String,
}

impl Denial {
    /// Reads one cause of a refusal: `reason`, `field` and `message` of a `metav1.StatusCause`. `None` if no rule of
    /// ours writes such causes.
    pub fn from_cause(reason: &str, field: &str, message: &str) -> Option<Self> {
        let fault = reason.parse().ok().filter(|_| !field.is_empty())?;
        Some(Self { fault, field: field.to_owned(), message: message.to_owned() })
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// The kinds of fault that `metav1.StatusCause` distinguishes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::EnumIter, strum::EnumString, strum::IntoStaticStr,
)]
pub enum Fault {
    /// The value is malformed or out of range.
    #[strum(serialize = "FieldValueInvalid")]
    Invalid,
    /// The value is none of those that exist.
    #[strum(serialize = "FieldValueNotSupported")]
    NotSupported,
    /// The value is missing.
    #[strum(serialize = "FieldValueRequired")]
    Required,
    /// Policy: well-formed, but not allowed, not here or not now.
    #[strum(serialize = "FieldValueForbidden")]
    Forbidden,
}

impl Fault {
    /// `reason` of a `metav1.StatusCause`.
    pub fn cause(self) -> &'static str {
        self.into()
    }

    /// HTTP code of a denial with this fault: 403 for policy, 422 for values that are wrong in themselves.
    pub fn code(self) -> u16 {
        if self == Self::Forbidden { 403 } else { 422 }
    }

    /// `reason` of the `metav1.Status` that belongs to the code.
    pub fn reason(self) -> &'static str {
        if self == Self::Forbidden { "Forbidden" } else { "Invalid" }
    }
}

/// What a rule said, with the row of the table that it stands in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding<T> {
    /// Row of the kind's table of rules.
    pub row: &'static str,
    /// What was said.
    pub detail: T,
}

/// What all rules of a kind say about a change together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evaluation {
    /// Why the change is refused; empty if it is not.
    pub denials: Vec<Finding<Denial>>,
    /// What the user should know, whether it is refused or not.
    pub warnings: Vec<Finding<String>>,
    /// What would have been denials but for who asks: for the audit log.
    pub exempted: Vec<Finding<Denial>>,
}

impl Evaluation {
    /// Whether the change may be done.
    pub fn allows(&self) -> bool {
        self.denials.is_empty()
    }

    /// Turns denials into warnings: what is asked for must never be blocked.
    pub fn softened(mut self) -> Self {
        for Finding { row, detail } in self.denials.drain(..) {
            self.warnings.push(Finding { row, detail: detail.to_string() });
        }
        self
    }

    /// Turns the denials from which whoever asks is exempt into warnings, and remembers them.
    pub fn exempted(mut self, exempt: impl Fn(&Denial) -> bool) -> Self {
        let (exempted, binding): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.denials).into_iter().partition(|finding| exempt(&finding.detail));
        self.exempted.extend_from_slice(&exempted);
        self.denials = exempted;
        Self { denials: binding, ..self.softened() }
    }

    /// The fault that decides about code and reason of the answer: policy before form.
    pub fn most_severe(&self) -> Option<Fault> {
        self.denials.iter().map(|denial| denial.detail.fault).max()
    }
}

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

    /// Leaves an annotation as it is.
    pub fn without(mut self, key: &str) -> Self {
        self.annotations.retain(|edit| edit.key != key);
        self
    }

    /// Tells the user something.
    pub fn warn(mut self, text: impl Into<String>) -> Self {
        self.warnings.push(text.into());
        self
    }
}

/// Cuts a text to what the API server passes on, at a character, with an ellipsis.
pub fn shortened(mut text: String) -> String {
    if text.chars().count() > LONGEST_WARNING
        && let Some((cut, _)) = text.char_indices().nth(LONGEST_WARNING - 1)
    {
        text.truncate(cut);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator;

    use super::*;

    fn denied(fault: Fault) -> Evaluation {
        Evaluation {
            denials: vec![Finding {
                row: "V0",
                detail: Denial { fault, field: "spec.x".to_owned(), message: "found 1".to_owned() },
            }],
            ..Evaluation::default()
        }
    }

    #[test]
    fn a_denial_is_read_back_from_its_cause() {
        for fault in Fault::iter() {
            let detail = Denial { fault, field: "spec.x".to_owned(), message: "found 1: no".to_owned() };
            assert_eq!(Denial::from_cause(fault.cause(), &detail.field, &detail.message), Some(detail));
        }
        assert_eq!(Denial::from_cause("FieldManagerConflict", "spec.x", "no"), None);
        assert_eq!(Denial::from_cause("FieldValueInvalid", "", "no"), None);
    }

    #[test]
    fn policy_decides_the_code_when_several_rules_deny() {
        let mut evaluation = denied(Fault::Required);
        assert_eq!(evaluation.most_severe().map(Fault::code), Some(422));
        evaluation.denials.extend(denied(Fault::Forbidden).denials);
        evaluation.denials.extend(denied(Fault::Invalid).denials);
        assert_eq!(evaluation.most_severe().map(Fault::code), Some(403));
        assert_eq!(Evaluation::default().most_severe(), None);
    }

    #[test]
    fn what_is_exempted_is_warned_of_and_remembered() {
        let evaluation = denied(Fault::Forbidden).exempted(|_| true);
        assert!(evaluation.allows());
        assert_eq!(evaluation.warnings[0].detail, "spec.x: found 1");
        assert_eq!(evaluation.exempted[0].row, "V0");
        assert!(denied(Fault::Forbidden).softened().exempted.is_empty());
        let mut evaluation = denied(Fault::Forbidden);
        evaluation.denials.extend(denied(Fault::Invalid).denials);
        let evaluation = evaluation.exempted(|denial| denial.fault == Fault::Forbidden);
        assert_eq!((evaluation.most_severe(), evaluation.warnings.len()), (Some(Fault::Invalid), 1));
        assert_eq!(evaluation.exempted[0].detail.fault, Fault::Forbidden);
    }

    #[test]
    fn warnings_are_cut_at_a_character() {
        let text = shortened("ü".repeat(300));
        assert_eq!(text.chars().count(), LONGEST_WARNING);
        assert!(text.ends_with('…'));
        assert_eq!(shortened("ü".repeat(256)), "ü".repeat(256));
    }
}
