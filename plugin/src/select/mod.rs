//! Targets: how they are named on the command line, and how they are found on the hub.

pub(crate) mod parse;
pub(crate) mod resolve;
pub(crate) mod whole;

/// All of them in their order, each once.
pub(crate) fn unique<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}
