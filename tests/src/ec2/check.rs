//! What must hold of the calls that reached EC2, whatever went wrong on the way.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use super::Call;

/// The calls without those that were made again, word for word, because the answer of the first was lost: the SDK sends
/// a call again when it hears nothing, and EC2 finds nothing left to do.
pub fn without_repeats(calls: Vec<Call>) -> Vec<Call> {
    let mut kept: Vec<Call> = Vec::new();
    for call in calls {
        let again = |before: &Call| before.action == call.action && before.moved == call.instances;
        if !call.moved.is_empty() || call.instances.is_empty() || !kept.iter().any(again) {
            kept.push(call);
        }
    }
    kept
}

/// Of the calls during one sleep or one wake: nothing was moved the wrong way, each of `count` instances was moved
/// exactly once, and no call that went through named one that was there already, or was moving.
///
/// # Errors
/// When one of these does not hold, with the calls to blame.
pub fn moved_once(calls: &[Call], asleep: bool, count: usize) -> Result<()> {
    let (right, wrong) = if asleep { ("StopInstances", "StartInstances") } else { ("StartInstances", "StopInstances") };
    let strays: Vec<_> = calls.iter().filter(|call| call.action == wrong).collect();
    ensure!(strays.is_empty(), "{wrong} while {right} was wanted: {strays:?}");
    let mut asked: BTreeMap<&str, usize> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.action == right && call.error.is_none()) {
        ensure!(call.instances == call.moved, "not every instance of the call needed it: {call:?}");
        for id in &call.instances {
            *asked.entry(id).or_default() += 1;
        }
    }
    ensure!(asked.len() == count && asked.values().all(|times| *times == 1), "{count} instances once each: {asked:?}");
    Ok(())
}
