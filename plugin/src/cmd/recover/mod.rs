//! `recover process-groups`: find the groups, show the plan, ask, carry it out.

mod dialog;
mod preflight;
mod run;
mod select;
mod signals;
mod steps;

use std::time::Duration;

use hub::Write;
use shared::fdb::recover::check::{Goal, Place, Refusal, check};
use shared::fdb::recover::presence::Unrecoverable;
use shared::fdb::recover::{RunState, Step, remaining};
use shared::text::quoted;
use tokio::time::{Instant, sleep};
use view::age::elapsed;

use self::dialog::PromptMode;
use self::run::{End, Progress, Run};
use self::select::Selected;
use crate::cli::recover::{FdbArgs, GroupArgs, ProcessGroupsArgs};
use crate::cli::values::Limit;
use crate::cli::{DryRun, HubArgs, Include};
use crate::error::{Exit, FdbError, Problem, WaitError};
use crate::output::{self, nothing_found};
use crate::read::fdb::{DatabaseSnapshot, called};

/// How the recovery proceeds, under either name of the program.
struct Options {
    /// Whether to run `include` in the database.
    include: bool,
    /// Whether to wait for the Pods.
    wait: bool,
    settle: Duration,
    write: Write,
}

/// `kubectl hibernate recover process-groups`.
pub(crate) async fn run(args: &ProcessGroupsArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let prompt = if args.yes { PromptMode::Never } else { PromptMode::Terminal };
    recover(&args.groups, hub_args, prompt, args.wait, settle(args.groups.settle)).await
}

/// `kubectl fdb recover process-groups`.
pub(crate) async fn run_as_fdb(args: &FdbArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let prompt = if args.wait && !args.yes { PromptMode::Always } else { PromptMode::Never };
    let seconds = args.sleep.map(|seconds| Duration::from_secs(seconds.into()));
    recover(&args.groups, hub_args, prompt, true, seconds.unwrap_or_else(|| settle(args.groups.settle))).await
}

/// 0 is no time at all here, not an unlimited one.
fn settle(limit: Limit) -> Duration {
    limit.0.unwrap_or_default()
}

async fn recover(
    args: &GroupArgs,
    hub_args: &HubArgs,
    prompt: PromptMode,
    wait: bool,
    settle: Duration,
) -> Result<Exit, Problem> {
    let selected = select::select(args, hub_args).await?;
    let goal = goal(&selected).await?;
    // A recovery whose groups have gone, or are back, is ended all the same: its record, and what it asks of the operator.
    if goal.record.groups.is_empty() && !is_left(&selected.snapshot) {
        return nothing_left(args, &selected, &goal);
    }
    let dry_run = !args.write.changes();
    let choice = dialog::replacements(&goal, if dry_run { PromptMode::Never } else { prompt })?;
    let seen = &selected.snapshot;
    let mut record = goal.record.clone();
    record.replacements.extend(choice);
    record.replacements.sort();
    let options = Options { include: args.include == Include::Auto, wait, settle, write: Write::from(&args.write) };
    let mut run = Run {
        hub: &selected.hub,
        place: &selected.place,
        cluster: called(&selected.place.name),
        options: &options,
        record,
        announced: Vec::new(),
        begun: Instant::now(),
        progress: Progress::default(),
    };
    if goal.skipped {
        return hold(&mut run, seen, !dry_run).await;
    }
    let plan = remaining(&seen.facts(), &run.record, options.include, RunState::default());
    let plan = plan.map_err(|lost| run.unrecoverable(lost))?;
    run.announced.clone_from(&plan.record.replacements);
    for line in dialog::plan(&run.cluster, &seen.facts(), &goal, &plan) {
        if dry_run && args.write.output.is_none() { output::line(&line) } else { output::note(&line) }
    }
    preflight::judge(&run, seen, &plan.steps).await?;
    if dry_run {
        return rehearse(args, &mut run, &plan.steps, seen).await;
    }
    dialog::begin(prompt)?;
    carry_out(args, &mut run, seen).await
}

/// What is to be done for the groups that were selected.
async fn goal(selected: &Selected<'_>) -> Result<Goal, Problem> {
    let Selected { hub, place, snapshot, ids, left_out, .. } = selected;
    let cluster = called(&place.name);
    if !left_out.is_empty() {
        output::note(&format!(
            "{cluster}: left out, because they went in exchange for groups that were recovered: {}; once that recovery is finished, name \
             them to recover them, too",
            left_out.join(", ")
        ));
    }
    let goal = match check(&snapshot.facts(), ids, &selected.replacements) {
        Ok(goal) => goal,
        Err(refusals) => {
            preflight::report_released(hub, place, &refusals).await;
            if is_left_skipped(snapshot) {
                output::warning(&format!(
                    "{cluster}: spec.skip is still true from an unfinished recovery; to finish it, run \
                     kubectl hibernate recover process-groups -n {} -c {}",
                    quoted(&place.namespace),
                    quoted(&place.name)
                ));
            }
            return Err(FdbError::Refused { cluster, refusals }.into());
        }
    };
    for (id, at) in &goal.recovered {
        output::note(&format!("{cluster}: {id} was already recovered at {at}: unchanged"));
    }
    Ok(goal)
}

/// Whether something is left of a recovery that can be finished.
fn is_left(seen: &DatabaseSnapshot) -> bool {
    let (facts, is_deleted) = (seen.facts(), seen.cluster.metadata.deletion_timestamp.is_some());
    !is_deleted && facts.record().is_some_and(|record| record.skipped || !facts.is_skipped())
}

/// Whether the operator is still asked to skip the cluster, by such a recovery.
fn is_left_skipped(seen: &DatabaseSnapshot) -> bool {
    seen.facts().is_skipped() && is_left(seen)
}

fn nothing_left(args: &GroupArgs, selected: &Selected<'_>, goal: &Goal) -> Result<Exit, Problem> {
    let Selected { place, snapshot, selection, left_out, .. } = selected;
    if let Some(error) = select::unmatched(snapshot, selection) {
        return Err(error.into());
    }
    if goal.recovered.is_empty() {
        let what = if left_out.is_empty() { "nothing" } else { "nothing else" };
        output::note(&format!(
            "{}: {what} is suspended. {}",
            called(&place.name),
            nothing_found(Some(&place.namespace))
        ));
    } else {
        let ids: Vec<&str> = goal.recovered.iter().map(|(id, _)| id.as_str()).collect();
        report(args, &called(&place.name), snapshot, &ids, "unchanged");
    }
    Ok(Exit::Done)
}

/// Where another client has the operator skip the cluster, the volumes are held at least.
async fn hold(run: &mut Run<'_>, seen: &DatabaseSnapshot, held: bool) -> Result<Exit, Problem> {
    if held {
        run.hold().await?;
    }
    let danger = "the operator's first pass deletes the volumes of groups whose suspension has ended: stop the operator before you set \
                  spec.skip to false, and start it again once this command waits for the Pods";
    preflight::warn_unprotected(run, seen, danger).await;
    let refusals = vec![Refusal::Skipped { place: run.place.clone(), held }];
    Err(FdbError::Refused { cluster: run.cluster.clone(), refusals }.into())
}

async fn rehearse(
    args: &GroupArgs,
    run: &mut Run<'_>,
    steps: &[Step],
    seen: &DatabaseSnapshot,
) -> Result<Exit, Problem> {
    if args.write.dry_run == DryRun::Server {
        // The API server judges every write and keeps none.
        for step in steps {
            run.send(step).await?;
        }
    }
    let ids = run.record.ids().join(", ");
    let what = if ids.is_empty() { "the record of a finished recovery would be removed" } else { "would be recovered" };
    let ids = if ids.is_empty() { ids } else { format!("{ids} ") };
    let text = format!("{} {ids}{what}{}", run.cluster, args.write.dry_run.suffix());
    match args.write.output {
        None => output::line(&text),
        // Nothing is written, so it is the cluster as it is.
        Some(output) => {
            output::note(&text);
            output::object(output, &run.cluster, &seen.object);
        }
    }
    Ok(Exit::Done)
}

async fn carry_out(args: &GroupArgs, run: &mut Run<'_>, seen: &DatabaseSnapshot) -> Result<Exit, Problem> {
    let ended = see_through(args, run, seen).await;
    if ended.as_ref().err().is_some_and(is_left_to_end) && run.progress.skipping {
        run.warn("spec.skip is still true, so the operator ignores the cluster: run this command again");
    }
    // The last line that the user sees: this step is left to the user.
    if let Some(command) = run.progress.owed.take() {
        run.warn(&format!(
            "the database still has the groups excluded (--include=never), and the operator replaces what stays excluded after \
             failureDetectionTimeSeconds (7200 by default): run {command}"
        ));
    }
    ended
}

/// Whether running the command again is what ends a skip: not where there is no cluster, or another client has set it.
fn is_left_to_end(problem: &Problem) -> bool {
    match problem {
        Problem::Fdb(FdbError::Deleted { .. }) => false,
        Problem::Fdb(FdbError::Unrecoverable { lost, .. }) => **lost != Unrecoverable::ForeignSkip,
        _ => true,
    }
}

async fn see_through(args: &GroupArgs, run: &mut Run<'_>, seen: &DatabaseSnapshot) -> Result<Exit, Problem> {
    run.begun = Instant::now();
    let requested = run.record.clone();
    let limit = async {
        match args.timeout.0 {
            None => std::future::pending().await,
            Some(limit) => sleep(limit).await,
        }
    };
    let ended = tokio::select! {
        biased;
        ended = run.finish() => ended?,
        () = limit => return Err(Problem::Wait(WaitError::TimedOut { after: run.begun.elapsed(), state: stuck(run.place, &run.progress) })),
        () = signals::received() => return Err(FdbError::Interrupted.into()),
    };
    let text = match ended {
        End::Recovered => format!("recovered after {}", elapsed(run.begun.elapsed())),
        End::Left => "the operator has not finished; run this command again to complete the recovery".to_owned(),
    };
    let last = run.snapshot().await;
    report(args, &run.cluster, last.as_ref().unwrap_or(seen), &requested.ids(), &text);
    Ok(Exit::Done)
}

/// What to do when time is up, or what to check when nothing happens.
fn stuck(Place { namespace, name }: &Place, Progress { doing, skipping, .. }: &Progress) -> String {
    let doing = if doing.is_empty() { "nothing is done yet" } else { doing };
    let (cluster, namespace, name) = (called(name), quoted(namespace), quoted(name));
    if *skipping {
        return format!(
            "{cluster}: {doing}. Up to here the command itself has the operator skip the cluster: this was not enough time. The volumes are \
             held; run this command again with a longer --timeout to finish the recovery"
        );
    }
    format!(
        "{cluster}: {doing}. Check that the operator runs, and its log and Events: kubectl -n {namespace} logs \
         deployment/fdb-kubernetes-operator-controller-manager; kubectl -n {namespace} describe fdb {name}. The volumes are held; run \
         this command again to finish the recovery"
    )
}

fn report(args: &GroupArgs, cluster: &str, seen: &DatabaseSnapshot, ids: &[&str], text: &str) {
    match args.write.output {
        None => ids.iter().for_each(|id| output::line(&format!("{cluster} {id} {text}"))),
        Some(output) => output::object(output, cluster, &seen.object),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::fdb::recover::presence::SpecDrift;

    #[test]
    fn running_again_is_advised_unless_it_is_refused() {
        let cluster = called("sample");
        let lost = |lost| Problem::from(FdbError::Unrecoverable { cluster: cluster.clone(), lost: Box::new(lost) });
        let foreign = lost(Unrecoverable::ForeignSkip);
        assert!(foreign.to_string().contains("another client set spec.skip to true during the recovery"), "{foreign}");
        let deleted = Problem::from(FdbError::Deleted { cluster: cluster.clone() });
        assert!(deleted.to_string().starts_with(&format!("{cluster} was deleted during the recovery: ")), "{deleted}");
        assert!(!is_left_to_end(&foreign) && !is_left_to_end(&deleted));
        let claim = lost(Unrecoverable::NoClaim { group: "storage-1".to_owned() });
        assert!(is_left_to_end(&claim) && is_left_to_end(&FdbError::Interrupted.into()));
    }

    /// The command that finishes a recovery is advised only where there is something to finish.
    #[test]
    fn a_cluster_that_goes_has_no_recovery_to_finish() {
        let record = serde_json::json!({
            "v": 1, "at": "2026-11-21T17:00:00Z", "skipped": true,
            "groups": [{ "group": "s", "class": "storage", "pod": "p", "claim": "u" }],
        });
        let mut object = serde_json::json!({
            "metadata": { "name": "sample", "annotations": { "hibernate.sh/recovery": record.to_string() } },
            "spec": { "version": "7.3.69", "skip": true },
        });
        let left = |object: &serde_json::Value| {
            let cluster = crate::read::fdb::read(object).unwrap();
            let (claims, services, pods) = (vec![], vec![], vec![]);
            let seen = DatabaseSnapshot {
                object: object.clone(),
                cluster,
                claims,
                services,
                pods,
                pods_version: String::new(),
            };
            (is_left(&seen), is_left_skipped(&seen))
        };
        assert_eq!(left(&object), (true, true));
        object["spec"]["skip"] = false.into();
        assert_eq!(left(&object), (true, false), "the record is left");
        let resumed = record.to_string().replace("true", "false");
        object["metadata"]["annotations"]["hibernate.sh/recovery"] = resumed.into();
        assert_eq!(left(&object), (true, false));
        object["spec"]["skip"] = true.into();
        assert_eq!(left(&object), (false, false), "another client has set it");
        object["metadata"]["annotations"]["hibernate.sh/recovery"] = record.to_string().into();
        object["metadata"]["deletionTimestamp"] = "2026-11-21T18:00:00Z".into();
        assert_eq!(left(&object), (false, false));
    }

    #[test]
    fn a_changed_template_is_named_with_the_way_back() {
        let outdated = SpecDrift { groups: "storage-1".to_owned(), why: "it is old", field: "spec.processes" };
        let text = FdbError::Outdated { cluster: called("sample"), outdated }.to_string();
        for part in ["has marked storage-1 again, and it is old.", "Set spec.processes back, wait until"] {
            assert!(text.contains(part), "{text}");
        }
    }

    /// The operator is not to blame while the command itself keeps it from reconciling.
    #[test]
    fn who_had_not_enough_time_is_named() {
        for (skipping, part, other) in
            [(true, "with a longer --timeout", "Check that"), (false, "Check that the operator runs", "--timeout")]
        {
            let place = Place { namespace: "db".to_owned(), name: "sample".to_owned() };
            let text = stuck(&place, &Progress { skipping, ..Progress::default() });
            assert!(text.contains(part) && !text.contains(other), "{text}");
        }
    }
}
