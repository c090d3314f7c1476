//! `recover process-groups`: find the groups, show the plan, ask, carry it out.

mod ask;
mod late;
mod render;
mod rights;
mod select;
mod signals;
mod steps;
mod wait;

use std::cell::{Cell, RefCell};
use std::time::Duration;

use hub::error::HubError;
use hub::{HubClient, Write};
use shared::text::quoted;
use tokio::time::Instant;
use view::protection;

use self::ask::Asking;
use self::select::GroupSelection;
use self::steps::{End, Run};
use crate::cli::duration::{Limit, elapsed};
use crate::cli::recover::{FdbArgs, GroupArgs, ProcessGroupsArgs};
use crate::cli::{DryRun, HubArgs, Include};
use crate::connect::connect;
use crate::error::{Exit, FdbError, Problem, WaitError};
use crate::output::{self, nothing_found};
use crate::read::fdb::{DatabaseSnapshot, called};
use crate::recover::check::{Goal, Place, Refusal, check};
use crate::recover::include::{left_out, orders};
use crate::recover::record::Record;
use crate::recover::replace::Wanted;
use crate::recover::{Done, Step, Unrecoverable, outdated, remaining};

/// How the recovery proceeds, under either name of the program.
struct Options {
    asking: Asking,
    wait: bool,
    settle: Duration,
}

/// `kubectl hibernate recover process-groups`.
///
/// # Errors
/// When it cannot be begun or finished.
pub(crate) async fn run(args: &ProcessGroupsArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let asking = if args.yes { Asking::Never } else { Asking::Terminal };
    recover(&args.groups, hub_args, Options { asking, wait: args.wait, settle: settle(args.groups.settle) }).await
}

/// `kubectl fdb recover process-groups`.
///
/// # Errors
/// When it cannot be begun or finished.
pub(crate) async fn run_as_fdb(args: &FdbArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let asking = if args.wait && !args.yes { Asking::Always } else { Asking::Never };
    let seconds = args.sleep.map(|seconds| Duration::from_secs(seconds.into()));
    let settle = seconds.unwrap_or_else(|| settle(args.groups.settle));
    recover(&args.groups, hub_args, Options { asking, wait: true, settle }).await
}

/// 0 is no time at all here, not an unlimited one.
fn settle(limit: Limit) -> Duration {
    limit.0.unwrap_or_default()
}

async fn recover(args: &GroupArgs, hub_args: &HubArgs, options: Options) -> Result<Exit, Problem> {
    let selection = select::selection(args, hub_args)?;
    let wanted = wanted(&args.replacement)?;
    let hub = connect(hub_args)?;
    let (namespace, name) = select::cluster(&hub, &selection, args, hub_args.all_namespaces).await?;
    let cluster = called(&name);
    let observation = DatabaseSnapshot::new(&hub, &namespace, &name).await.map_err(|problem| match problem {
        Problem::Hub(HubError::NoObject { .. }) => {
            FdbError::NoCluster { cluster: cluster.clone(), namespace: namespace.clone() }.into()
        }
        problem => problem,
    })?;
    let (ids, left_out) = select::ids(&observation, &selection);
    if !left_out.is_empty() {
        output::note(&format!(
            "{cluster}: left out, because they went in exchange for groups that were recovered: {}; once that recovery is finished, name \
             them to recover them, too",
            left_out.join(", ")
        ));
    }
    let refused = |refusals| FdbError::Refused { cluster: cluster.clone(), refusals };
    let goal = match check(&observation.facts(), &ids, &wanted) {
        Ok(goal) => goal,
        Err(refusals) => {
            late::report(&hub, &namespace, &name, &refusals).await;
            if is_left_skipped(&observation) {
                output::warning(&format!(
                    "{cluster}: spec.skip is still true from an unfinished recovery; to finish it, run \
                     kubectl hibernate recover process-groups -n {} -c {}",
                    quoted(&namespace),
                    quoted(&name)
                ));
            }
            return Err(refused(refusals).into());
        }
    };
    for (id, at) in &goal.recovered {
        output::note(&format!("{cluster}: {id} was already recovered at {at}: unchanged"));
    }
    // A recovery whose groups have gone is ended all the same: the operator must not be left asked to skip.
    if goal.record.groups.is_empty() && !is_left_skipped(&observation) {
        if selection == GroupSelection::Named(&[]) {
            return Err(FdbError::Nothing.into());
        }
        if let Some(error) = select::unmatched(&observation, &selection) {
            return Err(error.into());
        }
        if goal.recovered.is_empty() {
            let what = if left_out.is_empty() { "nothing" } else { "nothing else" };
            output::note(&format!("{cluster}: {what} is suspended. {}", nothing_found(Some(&namespace))));
        } else {
            report(
                args,
                &observation,
                &goal.recovered.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(),
                "unchanged",
            );
        }
        return Ok(Exit::Done);
    }
    for line in render::candidates(&goal) {
        output::note(&line);
    }
    let dry_run = !args.write.changes();
    let asking = if dry_run { Asking::Never } else { options.asking };
    let record = record(&goal, asking)?;
    let include = args.include == Include::Auto;
    let write = Write::from(&args.write);
    let planned = record.completed(&observation.facts());
    let run = Run {
        hub: &hub,
        namespace: &namespace,
        name: &name,
        cluster: cluster.clone(),
        record,
        include,
        wait: options.wait,
        settle: options.settle,
        write: &write,
        state: RefCell::new("nothing is done yet".to_owned()),
        skipping: Cell::new(false),
        owed: RefCell::new(None),
        announced: RefCell::new(planned.replacements.clone()),
    };
    if goal.skipped {
        let held = !dry_run;
        if held {
            run.hold().await?;
        }
        if let protection::Protection::No(why) = protection::of(&hub, &namespace, &observation.cluster).await {
            output::warning(&format!(
                "NOT PROTECTED: {why}; the operator's first pass deletes the volumes of groups whose suspension has ended: stop the operator \
                 before you set spec.skip to false, and start it again once this command waits for the Pods"
            ));
        }
        let place = Place { namespace: namespace.clone(), name: name.clone() };
        return Err(refused(vec![Refusal::Skipped { place, held }]).into());
    }
    let steps = remaining(&observation.facts(), &run.record, include, Done::default());
    let steps = steps.map_err(|lost| run.unrecoverable(lost))?;
    for line in render::plan(&cluster, &observation, &goal, &planned, &steps) {
        if dry_run && args.write.output.is_none() { output::line(&line) } else { output::note(&line) }
    }
    warn(&hub, &namespace, &observation, &run, args.include).await;
    let missing = rights::missing(&hub, &namespace, &steps, &write).await;
    if !missing.is_empty() {
        return Err(FdbError::Rights { cluster, missing }.into());
    }
    if dry_run {
        return rehearse(args, &run, &steps, &observation).await;
    }
    ask::begin(options.asking)?;
    carry_out(args, &run, &observation).await
}

/// `--replacement`.
fn wanted(words: &[String]) -> Result<Wanted, FdbError> {
    match words {
        [] => Ok(Wanted::Find),
        [word] if word == "none" => Ok(Wanted::None),
        words if words.iter().any(|word| word == "none") => Err(FdbError::NoneAndSome),
        ids => Ok(Wanted::These(ids.to_vec())),
    }
}

/// The goal with the groups that the user chose to remove. The others are chosen anew for every step.
fn record(goal: &Goal, asking: Asking) -> Result<Record, Problem> {
    let mut record = goal.record.clone();
    for choice in &goal.choices {
        record.replacements.extend(ask::replacements(choice, asking)?);
    }
    record.replacements.sort();
    Ok(record)
}

/// Whether the operator is still asked to skip the cluster, by a recovery that can be finished.
fn is_left_skipped(observation: &DatabaseSnapshot) -> bool {
    let is_deleted = observation.cluster.metadata.deletion_timestamp.is_some();
    !is_deleted
        && observation.cluster.spec.skip == Some(true)
        && observation.facts().record().is_some_and(|record| record.skipped)
}

/// What the user should know before.
async fn warn(hub: &HubClient, namespace: &str, observation: &DatabaseSnapshot, run: &Run<'_>, include: Include) {
    if let protection::Protection::No(why) = protection::of(hub, namespace, &observation.cluster).await {
        output::warning(&format!("NOT PROTECTED: {why}; the operator can delete the volumes during the recovery"));
    }
    if let Some(outdated) = outdated(&observation.facts(), &run.record) {
        run.warn(&format!("{outdated}: the operator replaces the group again, unless {} is set back", outdated.field));
    }
    for target in left_out(&observation.cluster, &run.record) {
        run.warn(&format!(
            "{target:?} is neither an IP address nor the locality of a process group: it is not included in the database"
        ));
    }
    let orders = orders(&observation.cluster, &run.record);
    if include == Include::Never && !orders.is_empty() {
        let command = run.by_hand(&orders);
        output::note(&format!("--include=never leaves the groups excluded in the database; afterwards run: {command}"));
    }
}

async fn rehearse(
    args: &GroupArgs,
    run: &Run<'_>,
    steps: &[Step],
    observation: &DatabaseSnapshot,
) -> Result<Exit, Problem> {
    if args.write.dry_run == DryRun::Server {
        run.rehearse(steps).await?;
    }
    let ids: Vec<&str> = run.record.groups.iter().map(|held| held.group.as_str()).collect();
    let text = format!("{} {} would be recovered{}", run.cluster, ids.join(", "), args.write.dry_run.suffix());
    match args.write.output {
        None => output::line(&text),
        // Nothing is written, so it is the cluster as it is.
        Some(output) => {
            output::note(&text);
            output::object(output, &run.cluster, &observation.object);
        }
    }
    Ok(Exit::Done)
}

async fn carry_out(args: &GroupArgs, run: &Run<'_>, observation: &DatabaseSnapshot) -> Result<Exit, Problem> {
    let ended = see_through(args, run, observation).await;
    if ended.as_ref().err().is_some_and(is_left_to_end) && run.skipping.get() {
        run.warn("spec.skip is still true, so the operator ignores the cluster: run this command again");
    }
    // The last line that the user sees: this step is left to the user.
    if let Some(command) = run.owed.take() {
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

async fn see_through(args: &GroupArgs, run: &Run<'_>, observation: &DatabaseSnapshot) -> Result<Exit, Problem> {
    let begin = Instant::now();
    let limit = async {
        match args.timeout.0 {
            None => std::future::pending().await,
            Some(limit) => tokio::time::sleep(limit).await,
        }
    };
    let ended = tokio::select! {
        biased;
        ended = run.finish() => ended?,
        () = limit => return Err(Problem::Wait(WaitError::TimedOut { after: begin.elapsed(), state: stuck_of(run) })),
        () = signals::received() => return Err(FdbError::Interrupted.into()),
    };
    let ids: Vec<&str> = run.record.groups.iter().map(|held| held.group.as_str()).collect();
    let text = match ended {
        End::Recovered => format!("recovered after {}", elapsed(begin.elapsed())),
        End::Left => "the operator has not finished; run this command again to complete the recovery".to_owned(),
    };
    let last = run.observation().await;
    report(args, last.as_ref().unwrap_or(observation), &ids, &text);
    Ok(Exit::Done)
}

fn stuck_of(run: &Run<'_>) -> String {
    stuck(&run.cluster, &run.state.borrow(), (run.namespace, run.name), run.skipping.get())
}

/// What to do when time is up, or what to check when nothing happens.
fn stuck(cluster: &str, state: &str, (namespace, name): (&str, &str), skipping: bool) -> String {
    if skipping {
        return format!(
            "{cluster}: {state}. Up to here the command itself has the operator skip the cluster: this was not enough time. The volumes are \
             held; run this command again with a longer --timeout to finish the recovery"
        );
    }
    let (namespace, name) = (quoted(namespace), quoted(name));
    format!(
        "{cluster}: {state}. Check that the operator runs, and its log and Events: kubectl -n {namespace} logs \
         deployment/fdb-kubernetes-operator-controller-manager; kubectl -n {namespace} describe fdb {name}. The volumes are held; run \
         this command again to finish the recovery"
    )
}

fn report(args: &GroupArgs, observation: &DatabaseSnapshot, ids: &[&str], text: &str) {
    match args.write.output {
        None => ids.iter().for_each(|id| output::line(&format!("{} {id} {text}", called(name(observation))))),
        Some(output) => output::object(output, &called(name(observation)), &observation.object),
    }
}

fn name(observation: &DatabaseSnapshot) -> &str {
    observation.cluster.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recover::Outdated;

    #[test]
    fn none_is_no_id() {
        let wanted = |words: &[&str]| wanted(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
        assert_eq!(wanted(&[]).unwrap(), Wanted::Find);
        assert_eq!(wanted(&["none"]).unwrap(), Wanted::None);
        assert_eq!(wanted(&["storage-1"]).unwrap(), Wanted::These(vec!["storage-1".to_owned()]));
        assert!(matches!(wanted(&["none", "storage-1"]), Err(FdbError::NoneAndSome)));
    }

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
            is_left_skipped(&DatabaseSnapshot {
                object: object.clone(),
                cluster,
                claims,
                services,
                pods,
                pods_version: String::new(),
            })
        };
        assert!(left(&object));
        object["metadata"]["deletionTimestamp"] = "2026-11-21T18:00:00Z".into();
        assert!(!left(&object));
    }

    #[test]
    fn a_changed_template_is_named_with_the_way_back() {
        let outdated = Outdated { groups: "storage-1".to_owned(), why: "it is old", field: "spec.processes" };
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
            let text = stuck("fdb/sample", "settle", ("db", "sample"), skipping);
            assert!(text.contains(part) && !text.contains(other), "{text}");
        }
    }
}
