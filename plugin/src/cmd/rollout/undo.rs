//! `rollout undo`: ends a rollout and creates the one that gives its targets back the state that they had before.

use hub::Write;
use hub::middleware::with_warnings;
use shared::annotation::format;
use shared::annotation::mark::Action;
use shared::kinds::{Kinds, POWER_ROLLOUT};
use shared::rollout::api::PowerRollout;
use shared::rollout::draft;
use shared::rollout::status::RolloutPhase;
use view::Row;

use super::create::{create, full_name, random, send};
use super::verbs::Change;
use super::{apply, guard, name_of, rival};
use crate::cli::rollout::UndoArgs;
use crate::cli::{DryRun, HubArgs, time};
use crate::connect::connect;
use crate::error::{Exit, Problem};
use crate::output::{self, prompt};
use crate::wait::rollout::typed;

/// Runs the verb.
///
/// # Errors
/// When the rollout does not exist, is not aborted, or the other one is not created.
pub(crate) async fn run(kinds: Kinds, args: &UndoArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let verb = &args.verb;
    let name = name_of(&verb.name)?;
    let now = time::now();
    let hours = args.hours(&now)?;
    let hub = connect(hub_args)?;
    let undone = typed(view::object(&hub, Row::Shown(&POWER_ROLLOUT), &name).await?)?;
    let spec = draft::restore(&undone, args.reason.as_deref(), hours.not_after);
    let new_name = draft::name(Action::Restore, now.timestamp(), random());
    if verb.write.dry_run != DryRun::Client {
        guard::check(&hub, &new_name, false, rival(kinds, &undone)).await?;
    }
    let phase = undone.status.as_ref().and_then(|status| status.phase);
    let is_over = undone.spec.abort || phase.is_some_and(RolloutPhase::is_over);
    let abort = if is_over { "" } else { "abort it, and " };
    let total = undone.status.as_ref().and_then(|status| status.total).unwrap_or(spec.max_targets);
    let text = format!(
        "undo rollout {name}: {abort}give its targets ({total}) the state back that they had before, as rollout {new_name}, starting until {}",
        format::seconds(hours.not_after)
    );
    prompt::confirm(&verb.write, verb.yes, &format!("About to {text}\nContinue? [y/N] "), &[text])?;
    let restore = PowerRollout::new(&new_name, spec);
    if !is_over {
        if verb.write.changes() {
            // An abort is for good: the hub has to accept the other rollout first. Its warnings come when it is
            // created.
            let rehearsal = Write::new(&verb.write.field_manager, true);
            with_warnings(send(&hub, &restore, &rehearsal)).await.0?;
        }
        let (aborted, done) = apply(&hub, Change::Abort, &name, verb).await?;
        let text = format!("{} {done}{}", full_name(&aborted), verb.write.dry_run.suffix());
        // Only one object goes to stdout: the one that is created.
        if verb.write.output.is_none() { output::line(&text) } else { output::note(&text) }
    }
    create(&hub, &restore, &verb.write, args.wait.then_some(args.timeout)).await
}
