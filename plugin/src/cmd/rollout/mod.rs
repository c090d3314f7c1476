//! Rollouts: created in place of many changes, and controlled by `rollout VERB NAME`.

pub(crate) mod canary;
pub(crate) mod create;
mod guard;
pub(crate) mod options;
mod undo;
mod verbs;

use hub::{HubClient, is_name};
use jiff::Timestamp;
use serde_json::Value;
use shared::kinds::{Kinds, POWER_ROLLOUT, Rival};
use shared::rollout::api::PowerRollout;
use view::Row;

use self::create::{full_name, report};
use self::verbs::{Change, step};
use super::rewrite::rewrite;
use crate::cli::rollout::{RolloutArgs, Verb, VerbArgs};
use crate::cli::{DryRun, HubArgs};
use crate::connect::connect;
use crate::error::{Exit, Problem, RolloutError};
use crate::wait::rollout::typed;

/// Runs `rollout VERB NAME`.
///
/// # Errors
/// When the rollout is not changed.
pub(crate) async fn run(kinds: Kinds, args: &RolloutArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let (change, verb) = match &args.verb {
        Verb::Undo(args) => return undo::run(kinds, args, hub_args).await,
        Verb::Pause(args) => (Change::Pause, args),
        Verb::Resume(args) => (Change::Resume, args),
        Verb::Accept(args) => (Change::Accept, args),
        Verb::Retry(args) => (Change::Retry, args),
        Verb::Abort(args) => (Change::Abort, args),
    };
    let name = name_of(&verb.name)?;
    let hub = connect(hub_args)?;
    let (rollout, done) = apply(&hub, change, &name, verb).await?;
    if change == Change::Resume && verb.write.dry_run != DryRun::Client {
        // One that was created paused was not checked.
        guard::warn(&hub, rival(kinds, &rollout)).await;
    }
    report(&verb.write, &rollout, &done)?;
    Ok(Exit::Done)
}

/// The rival of the kind of a rollout's targets.
fn rival(kinds: Kinds, rollout: &PowerRollout) -> Option<&'static Rival> {
    kinds.in_rollouts_named(&rollout.spec.targets.kind)?.rival
}

/// The name that `NAME`, `rollout/NAME`, `powerrollout/NAME` or `pr/NAME` gives.
fn name_of(word: &str) -> Result<String, RolloutError> {
    let name = match word.split_once('/') {
        Some((kind, name)) if POWER_ROLLOUT.kind.is_named(kind) => name,
        _ => word,
    };
    if is_name(name) { Ok(name.to_owned()) } else { Err(RolloutError::NotARollout { name: word.to_owned() }) }
}

/// Reads a rollout and writes the change, again from the start if another client wrote it in between.
///
/// # Errors
/// When the change cannot work, or the hub refuses.
async fn apply(
    hub: &HubClient,
    change: Change,
    name: &str,
    args: &VerbArgs,
) -> Result<(PowerRollout, String), Problem> {
    let object = view::object(hub, Row::Shown(&POWER_ROLLOUT), name).await?;
    let next = async |object: &Value| {
        let rollout = typed(object.clone())?;
        let refused = |why| RolloutError::Verb { what: full_name(&rollout), verb: change.word(), why };
        Ok(step(change, &rollout, Timestamp::now()).map_err(refused)?)
    };
    let (object, done) = rewrite(hub, &POWER_ROLLOUT, object, &args.write, next).await?;
    Ok((typed(object)?, done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollout_is_named_in_several_ways() {
        for word in [
            "night",
            "rollout/night",
            "rollouts/night",
            "powerrollout/night",
            "pr/night",
            "powerrollouts.hibernate.sh/night",
        ] {
            assert_eq!(name_of(word).unwrap(), "night", "{word}");
        }
        for word in ["cd/night", "pr/", "", "Night", "pr/a/b"] {
            assert!(matches!(name_of(word), Err(RolloutError::NotARollout { .. })), "{word}");
        }
    }
}
