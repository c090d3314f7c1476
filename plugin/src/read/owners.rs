//! What of a namespace is left to its owner.

use shared::kinds::owners::Owners;
use shared::text::name_some;
use view::error::Failure;
use view::target::Target;

use crate::output;

/// How many objects the note names; the rest is counted.
const NAMED: usize = 10;

/// Leaves out what other targets of the namespace control or scale, and names it.
pub(crate) fn without_children(found: Vec<Result<Target, Failure>>) -> Vec<Result<Target, Failure>> {
    let owners = Owners::of(found.iter().flatten().map(|target| (target.row, &target.object)));
    let is_child =
        |one: &Result<Target, Failure>| one.as_ref().is_ok_and(|target| owners.stop(target.row, &target.object));
    let (children, kept): (Vec<_>, Vec<_>) = found.into_iter().partition(is_child);
    if !children.is_empty() {
        let names: Vec<String> = children.iter().flatten().map(Target::full_name).collect();
        output::note(&format!("left to their owners in this namespace: {}", name_some(&names, NAMED)));
    }
    kept
}

/// Why an object of a namespace is not put to sleep with it.
pub(crate) fn refusal(target: &Target) -> Option<String> {
    let why = shared::kinds::owners::refusal(&target.object)?;
    Some(format!("{why}; --include-owned scales {} all the same", target.full_name()))
}
