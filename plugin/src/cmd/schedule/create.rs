//! `schedule create`: read the times and the targets, check them, count the targets, ask, create.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use hub::{HubClient, Resource, Write, is_name};
use jiff::Timestamp;
use serde_json::{Value, json};
use shared::duration::{after, age, go_string, parse_positive};
use shared::kinds::cron_job::IN_NAMESPACE;
use shared::kinds::operators::objects::OPERATORS;
use shared::kinds::{CLUSTER_SCHEDULE, Kinds, SCHEDULE, TargetKind};
use shared::power::Power;
use shared::rollout::api::{MAX_MEMBERS, TargetName, Targets};
use shared::rollout::draft::by_labels;
use shared::rollout::selector;
use shared::schedule::api::{
    Event, PowerSchedule, PowerScheduleSpec, RolloutSettings, ScheduleSpec, ScheduledPower, WORKLOADS, Window,
};
use shared::schedule::timetable::Timetable;
use shared::text::{count, list, name_some};
use view::resolve::NAMESPACE;
use view::target::Target;
use view::{Namespaces, ObjectName, Query, Row};

use super::text;
use crate::cli::schedule::CreateArgs;
use crate::cli::{DryRun, HubArgs};
use crate::cmd::rollout::canary::{name_of, place};
use crate::cmd::rollout::create::question;
use crate::connect::connect;
use crate::error::{Exit, Failure, Problem, RolloutError, ScheduleError, UsageError};
use crate::output::{self, prompt};
use crate::select::{Flags, parse};

/// How many targets a warning lists.
const NAMED: usize = 5;
/// How far ahead the longest time awake is looked for.
const LOOK: Duration = Duration::from_hours(14 * 24);

/// Runs the verb. If a target that was named does not exist, nothing is created.
///
/// # Errors
/// When nothing was created.
pub(super) async fn run(kinds: Kinds, args: &CreateArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let mut spec = spec(args)?;
    let timetable = Timetable::of(&spec, &[]).map_err(ScheduleError::Faults)?;
    if !is_name(&args.schedule_name) {
        return Err(UsageError::NotAName(args.schedule_name.clone()).into());
    }
    let hub = (args.write.dry_run != DryRun::Client).then(|| connect(hub_args)).transpose()?;
    let namespace = given(hub_args).or(hub.as_ref().map(|hub| hub.namespace.as_str()));
    let named = named_operators(args)?;
    let (mut query, targets) = selected(kinds, args, hub_args, namespace)?;
    let operators = match (named, &hub) {
        (None, Some(hub)) if targets.kind == WORKLOADS => {
            served_operators(hub, namespace.filter(|_| !args.cluster_wide)).await?
        }
        (named, _) => named.unwrap_or_default(),
    };
    query.kinds.extend(operators.iter().map(|row| Row::Target(row)));
    (spec.targets, spec.operator_kinds) = (targets, operators.iter().map(|row| row.kind.resource_name()).collect());
    let (of_workloads, most) = (spec.targets.kind == WORKLOADS, spec.rollout.most_targets());
    let object = object(args, spec, namespace);
    let kind = if args.cluster_wide { &CLUSTER_SCHEDULE.kind } else { &SCHEDULE.kind };
    let name = kind.full_name(&args.schedule_name);
    let Some(hub) = &hub else {
        output::changed(&args.write, &name, "created", &object);
        return Ok(Exit::Done);
    };
    let (found, failures): (Vec<_>, Vec<_>) = view::targets(hub, &query).await.into_iter().partition(Result::is_ok);
    if !failures.is_empty() {
        let failures = failures.into_iter().filter_map(Result::err);
        return Ok(Exit::of(failures.map(|failure| output::failed(&Failure::from(failure)))));
    }
    let (found, now): (Vec<Target>, _) = (found.into_iter().flatten().collect(), Timestamp::now());
    let (selects, what) =
        if of_workloads { (namespaces(hub, &query, &found).await, "namespace") } else { (found.len(), "target") };
    for text in too_many(selects, what, most).into_iter().chain(too_early(&timetable, &found, now)) {
        output::warning(&text);
    }
    let lines = summary(args, &name, &timetable, &count(selects, what), now);
    prompt::confirm(&args.write, args.yes, &question(&lines, &found.iter().collect::<Vec<_>>()), &lines)?;
    let write = Write::from(&args.write);
    let created = output::warned(hub.create(Resource::preferred(kind), Some(&hub.namespace), &object, &write)).await?;
    output::changed(&args.write, &name, "created", &created);
    Ok(Exit::Done)
}

/// The namespace that the command line names.
fn given(hub_args: &HubArgs) -> Option<&str> {
    hub_args.connection.namespace.as_deref().filter(|namespace| !namespace.is_empty())
}

/// What the flags say, without targets.
fn spec(args: &CreateArgs) -> Result<ScheduleSpec, ScheduleError> {
    let event = |power| move |cron: &String| Event { cron: cron.clone(), power };
    let sleeps = args.sleep_at.iter().map(event(ScheduledPower::Sleep));
    Ok(ScheduleSpec {
        time_zone: args.zone.clone(),
        awake: args.awake.iter().map(|text| window(text)).collect::<Result<_, _>>()?,
        events: sleeps.chain(args.wake_at.iter().map(event(ScheduledPower::Awake))).collect(),
        rollout: RolloutSettings { max_targets: args.max_targets, ..RolloutSettings::default() },
        priority: args.priority.unwrap_or_default(),
        lead: args.lead.clone(),
        ..ScheduleSpec::default()
    })
}

/// Reads `Mon-Fri,Sun 07:30-18:00` or `07:30-18:00`. Whether days and times are some is for the timetable to say.
fn window(text: &str) -> Result<Window, ScheduleError> {
    let unreadable = || ScheduleError::NotAWindow { text: text.to_owned() };
    let (days, times) = text.trim().rsplit_once(char::is_whitespace).unwrap_or(("", text.trim()));
    let (from, to) =
        times.split_once('-').filter(|(from, to)| from.contains(':') && to.contains(':')).ok_or_else(unreadable)?;
    let days = days.split([',', ' ']).filter(|day| !day.is_empty()).map(str::to_owned).collect();
    Ok(Window { days, from: from.to_owned(), to: to.to_owned() })
}

/// Kinds of operators that the hub serves and the user may patch, but those that have schedules of their own. Names those
/// that the user may not patch.
async fn served_operators(hub: &HubClient, namespace: Option<&str>) -> Result<Vec<&'static TargetKind>, Problem> {
    let groups = hub.groups().await?;
    let is_served = |row: &&TargetKind| groups.iter().any(|group| group == row.kind.group) && row.in_rollouts.is_none();
    let reviews = OPERATORS.into_iter().filter(is_served).map(async |row| {
        let right = json!({
            "group": row.kind.group, "resource": row.kind.plural, "verb": "patch", "namespace": namespace.unwrap_or_default(),
        });
        (row, hub.is_allowed(&right).await == Some(true))
    });
    let (allowed, others): (Vec<_>, Vec<_>) = join_all(reviews).await.into_iter().partition(|(_, allowed)| *allowed);
    if !others.is_empty() {
        let names = others.iter().map(|(row, _)| row.kind.resource_name());
        output::note(&format!("not included, because you may not patch them: {}", list(names)));
    }
    Ok(allowed.into_iter().map(|(row, _)| row).collect())
}

/// Kinds of operators that the command line names; none if it leaves them to the hub.
fn named_operators(args: &CreateArgs) -> Result<Option<Vec<&'static TargetKind>>, ScheduleError> {
    let words = args.operator_kinds.as_ref();
    if words.is_some() && !WORKLOADS.eq_ignore_ascii_case(&args.kind) {
        return Err(ScheduleError::NotWorkloads { kind: args.kind.clone() });
    }
    let named = |word: &String| {
        let found = OPERATORS.into_iter().find(|row| row.kind.is_named(word));
        let known = || OPERATORS.map(|row| row.kind.resource_name()).join(", ");
        found.ok_or_else(|| ScheduleError::NoOperator { word: word.clone(), known: known() })
    };
    words.map(|words| words.iter().filter(|word| !word.is_empty()).map(named).collect()).transpose()
}

/// What the command line selects: for the hub, and for the schedule. `namespace`: where targets by name are.
fn selected(
    kinds: Kinds,
    args: &CreateArgs,
    hub_args: &HubArgs,
    namespace: Option<&str>,
) -> Result<(Query, Targets), Problem> {
    let row = kinds.in_rollouts().find(|row| row.kind.is_named(&args.kind));
    let flag = match row {
        _ if !args.cluster_wide && hub_args.all_namespaces => Some("-A"),
        Some(row) if !args.cluster_wide && !row.kind.is_namespaced() => Some("--kind cluster"),
        _ => None,
    };
    if let Some(flag) = flag {
        return Err(ScheduleError::ClusterWide { flag }.into());
    }
    if row.is_none() && !args.all {
        return Err(ScheduleError::AllWorkloads.into());
    }
    let rows = row.map_or_else(|| IN_NAMESPACE.to_vec(), |row| vec![row]);
    let types = rows.iter().map(|row| row.kind.resource_name()).collect::<Vec<_>>().join(",");
    let typed = |name: &String| if name.contains('/') { name.clone() } else { format!("{types}/{name}") };
    let words = if args.targets.is_empty() { vec![types.clone()] } else { args.targets.iter().map(typed).collect() };
    let mut query = parse(kinds, &words, Flags::new(hub_args, args.all))?;
    let rows: Vec<Row> = rows.into_iter().map(Row::Target).collect();
    if query.whole().is_some() || query.names.iter().any(|one| one.kinds != rows) {
        return Err(ScheduleError::OtherKind { kind: args.kind.clone() }.into());
    }
    let kind = row.map_or(WORKLOADS, |row| row.kind.kind).to_owned();
    let has_namespace = args.cluster_wide && row.is_none_or(|row| row.kind.is_namespaced());
    if !query.names.is_empty() {
        let namespace = if has_namespace { namespace.ok_or(ScheduleError::NoNamespace)? } else { "" };
        let name = |one: &ObjectName| TargetName { namespace: namespace.to_owned(), name: one.name.clone() };
        let names = query.names.iter().map(name).collect();
        return Ok((query, Targets { kind, names, ..Targets::default() }));
    }
    let namespace = given(hub_args).filter(|_| has_namespace);
    if args.cluster_wide && namespace.is_none() {
        query.namespace = Namespaces::All;
    }
    let labels = Some(query.labels.trim()).filter(|labels| !labels.is_empty());
    let labels = labels.map(selector::parse).transpose().map_err(RolloutError::Selector)?;
    let targets = by_labels(row.map_or(&IN_NAMESPACE[0].kind, |row| &row.kind), labels, namespace);
    Ok((query, Targets { kind, ..targets }))
}

/// The object to create.
fn object(args: &CreateArgs, spec: ScheduleSpec, namespace: Option<&str>) -> Value {
    // Both kinds have the same fields.
    let mut schedule = PowerSchedule::new(&args.schedule_name, PowerScheduleSpec(spec));
    schedule.metadata.namespace = namespace.filter(|_| !args.cluster_wide).map(str::to_owned);
    let mut object = json!(schedule);
    if args.cluster_wide {
        object["kind"] = CLUSTER_SCHEDULE.kind.kind.into();
    }
    object
}

/// S5: the targets that Hive puts to sleep while they are to be awake.
fn too_early(timetable: &Timetable, found: &[Target], now: Timestamp) -> Option<String> {
    let edges = timetable.edges(now, after(now, LOOK));
    let awake = edges.windows(2).filter(|pair| pair[0].power == Power::Running && pair[1].power == Power::Hibernating);
    let longest = awake.map(|pair| age(pair[0].at, pair[1].at)).max()?;
    let is_early = |target: &&Target| {
        let after = target.record().ok().and_then(|record| parse_positive(&record.hibernate_after?).ok());
        after.is_some_and(|after| after < longest)
    };
    let names: Vec<String> = found.iter().filter(is_early).map(|target| place(&name_of(target))).collect();
    let longest = go_string(longest);
    (!names.is_empty()).then(|| {
        format!(
            "spec.hibernateAfter of {} is shorter than {longest}, the longest time awake: Hive puts them to sleep before it \
             ends",
            name_some(names, NAMED)
        )
    })
}

/// How many namespaces have the workloads that are selected. Of all namespaces, those count in which nothing runs, too.
async fn namespaces(hub: &HubClient, query: &Query, found: &[Target]) -> usize {
    if query.namespace == Namespaces::All
        && let Ok(all) = hub.list(Resource::preferred(&NAMESPACE), None, "", "").await
    {
        return all.items.len();
    }
    found.iter().map(|target| &target.namespace).collect::<BTreeSet<_>>().len()
}

/// An edge changes nothing if the schedule governs more than `most`. What others govern is not known here.
fn too_many(found: usize, what: &str, most: u32) -> Option<String> {
    let advice = if found <= MAX_MEMBERS as usize {
        format!("give --max-targets {found} or more, or select fewer")
    } else {
        format!("select fewer, {MAX_MEMBERS} at most")
    };
    (found > most as usize).then(|| {
        format!(
            "the schedule selects {}, and no edge changes any if it governs more than {most} ({what}s that other schedules \
             govern do not count): {advice}",
            count(found, what)
        )
    })
}

/// What is about to be created, in lines.
fn summary(args: &CreateArgs, what: &str, timetable: &Timetable, selects: &str, now: Timestamp) -> Vec<String> {
    let edges: Vec<String> = timetable.next(now, 2).iter().map(|edge| text(edge, &args.zone)).collect();
    let next = if edges.is_empty() { "no edge".to_owned() } else { edges.join(", then ") };
    vec![format!("create {what}, which selects {selects} now"), format!("  {next}")]
}

#[cfg(test)]
mod tests {
    use shared::kinds::{CLUSTER_DEPLOYMENT, KINDS};

    use super::super::tests::at;
    use super::*;
    use crate::cli::schedule::ScheduleVerb;
    use crate::cli::{self, Cli, Command};

    /// The object of a command line, or the error.
    fn made(line: &str) -> Result<Value, String> {
        let words = ["kubectl-hibernate", "schedule", "create", "night", "--zone=Europe/Berlin"].into_iter();
        let cli = cli::read::<Cli>(words.chain(line.split('|')).map(Into::into)).map_err(|error| error.to_string())?;
        let Some(Command::Schedule(schedule)) = &cli.command else { panic!("another command") };
        let ScheduleVerb::Create(args) = &schedule.verb else { panic!("another verb") };
        let mut spec = spec(args).map_err(|error| error.to_string())?;
        Timetable::of(&spec, &[]).map_err(|faults| ScheduleError::Faults(faults).to_string())?;
        let namespace = given(&cli.hub).or(Some("team"));
        spec.targets = selected(KINDS, args, &cli.hub, namespace).map_err(|error| error.to_string())?.1;
        Ok(object(args, spec, namespace))
    }

    #[test]
    fn flags_become_a_schedule() {
        let object =
            made("--awake|Mon-Fri,Sun 07:30-18:00|--awake|22:00-02:00|--all|--lead|20m|--priority|-3").unwrap();
        let window = |days: &[&str], from: &str, to: &str| match days {
            [] => json!({ "from": from, "to": to }),
            days => json!({ "days": days, "from": from, "to": to }),
        };
        let expected = json!({
            "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerSchedule",
            "metadata": { "name": "night", "namespace": "team" },
            "spec": {
                "timeZone": "Europe/Berlin", "priority": -3, "lead": "20m", "suspend": false,
                "awake": [window(&["Mon-Fri", "Sun"], "07:30", "18:00"), window(&[], "22:00", "02:00")],
                "targets": { "kind": "ClusterDeployment", "all": true },
            },
        });
        assert_eq!(object, expected);
        let object = made("--wake-at|30 7 * * 1-5|--sleep-at|0 18 * * *|--max-targets|5|--cluster-wide|--all").unwrap();
        assert_eq!(
            (&object["kind"], &object["metadata"]),
            (&json!("ClusterPowerSchedule"), &json!({ "name": "night" }))
        );
        let events = json!([{ "cron": "0 18 * * *", "power": "Sleep" }, { "cron": "30 7 * * 1-5", "power": "Awake" }]);
        assert_eq!((&object["spec"]["events"], &object["spec"]["rollout"]), (&events, &json!({ "maxTargets": 5 })));
        assert!(object["spec"].get("awake").is_none());
    }

    #[test]
    fn targets_are_selected_as_the_kind_allows() {
        let labels = |key: &str, value: &str| json!({ "matchLabels": { key: value } });
        let own = |name: &str| labels("kubernetes.io/metadata.name", name);
        let named = |namespace: &str, name: &str| json!({ "namespace": namespace, "name": name });
        for (line, kind, expected) in [
            ("demo|cd/web", "ClusterDeployment", json!({ "names": [{ "name": "demo" }, { "name": "web" }] })),
            ("-l|env=dev", "ClusterDeployment", json!({ "selector": labels("env", "dev") })),
            ("--all|--cluster-wide", "ClusterDeployment", json!({ "all": true })),
            ("--all|--cluster-wide|-A", "ClusterDeployment", json!({ "all": true })),
            ("--all|--cluster-wide|-n|shop", "ClusterDeployment", json!({ "namespaceSelector": own("shop") })),
            ("-l|env=dev|--cluster-wide", "ClusterDeployment", json!({ "selector": labels("env", "dev") })),
            (
                "demo|cd/web|--cluster-wide",
                "ClusterDeployment",
                json!({ "names": [named("team", "demo"), named("team", "web")] }),
            ),
            ("abc|--cluster-wide|--kind=cluster", "Cluster", json!({ "names": [{ "name": "abc" }] })),
            ("--all|--kind=workloads", "Workloads", json!({ "all": true })),
            ("--all|--cluster-wide|--kind=workloads", "Workloads", json!({ "all": true })),
            ("--all|--cluster-wide|-n|shop|--kind=workloads", "Workloads", json!({ "namespaceSelector": own("shop") })),
        ] {
            let object = made(&format!("--awake|07:30-18:00|{line}")).unwrap();
            let mut targets = json!({ "kind": kind, "all": false });
            json_patch::merge(&mut targets, &expected);
            assert_eq!(object["spec"]["targets"], targets, "{line}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_would_be_right() {
        for (line, parts) in [
            (
                "--all|--awake|Mon-Fri",
                &["--awake \"Mon-Fri\" is not a time of the week", "write \"Mon-Fri 07:30-18:00\""][..],
            ),
            ("--all|--awake|daily 7-18", &["is not a time of the week"]),
            (
                "--all|--awake|mon 7:30-25:00",
                &[
                    "nothing was created:\n  spec.awake[0].days[0]: found \"mon\", must be a day",
                    "\n  spec.awake[0].from: ",
                    "\n  spec.awake[0].to: ",
                ],
            ),
            ("--all|--awake|00:00-24:00", &["spec.awake: found windows that leave no time to sleep"]),
            ("--all|--sleep-at|18:00", &["spec.events[0].cron: found \"18:00\", must be minute, hour"]),
            ("--all|--awake|07:30-18:00|--lead|2d", &["spec.lead: found \"2d\", must be a duration"]),
            ("--awake|07:30-18:00", &["is a type: name targets of it, or give -l SELECTOR or --all"]),
            ("--awake|07:30-18:00|-l|a=b|--all", &["mutually exclusive"]),
            ("--awake|07:30-18:00|-l| ", &["-l is empty"]),
            ("--awake|07:30-18:00|-l|a=b=c", &["-l is not a label selector"]),
            ("--awake|07:30-18:00|--all|x", &["names a target: with -l and --all only types can be given"]),
            ("--awake|07:30-18:00|--all|-A", &["-A needs --cluster-wide"]),
            ("--awake|07:30-18:00|--all|--kind=cluster", &["--kind cluster needs --cluster-wide"]),
            ("--awake|07:30-18:00|x|--kind=workloads", &["workloads are selected as a whole: give --all"]),
            ("--awake|07:30-18:00|deploy/x", &["targets are of one kind, here clusterdeployment"]),
            ("--awake|07:30-18:00|ns/shop", &["targets are of one kind, here clusterdeployment"]),
            ("--awake|07:30-18:00|cd/a/b", &["is not a name: it has a slash"]),
        ] {
            let error = made(line).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{line}: {error}");
        }
    }

    #[test]
    fn a_selection_over_the_limit_warns_of_it_with_a_limit_that_is_taken() {
        let most = |limit: &str| {
            let object = made(&format!("--awake|07:30-18:00|--all{limit}")).unwrap();
            serde_json::from_value::<PowerSchedule>(object).unwrap().spec.0.rollout.most_targets()
        };
        for (limit, found, what, says) in [
            ("", 1_000, "target", ""),
            (
                "",
                1_200,
                "target",
                "selects 1200 targets, and no edge changes any if it governs more than 1000 (targets that",
            ),
            ("|--max-targets|2000", 1_200, "target", ""),
            (
                "|--max-targets|5",
                6,
                "namespace",
                "selects 6 namespaces, and no edge changes any if it governs more than 5 (",
            ),
            ("", 50_000, "target", "selects 50000 targets, and no edge changes any if it governs more than 1000 ("),
        ] {
            let warning = too_many(found, what, most(limit)).unwrap_or_default();
            assert!(warning.contains(says) && warning.is_empty() == says.is_empty(), "{limit} {found}: {warning}");
            if let Some((_, advised)) = warning.split_once("--max-targets ") {
                let advised = advised.split(' ').next().unwrap();
                assert_eq!(too_many(found, what, most(&format!("|--max-targets|{advised}"))), None, "{warning}");
            }
        }
        let warning = too_many(50_001, "target", 1_000).unwrap();
        assert!(warning.ends_with(" govern do not count): select fewer, 50000 at most"), "{warning}");
    }

    #[test]
    fn the_question_has_the_edges_and_the_targets_and_a_warning_names_the_field() {
        let cluster = |name: &str, after: &str| {
            Target::new(
                &CLUSTER_DEPLOYMENT,
                "v1",
                json!({
                    "metadata": { "name": name, "namespace": "team", "annotations": { "hibernate.sh/protected": "true" } },
                    "spec": { "baseDomain": "d", "clusterName": name, "installed": true, "platform": {}, "hibernateAfter": after },
                }),
            )
        };
        let found = [cluster("demo", "8h"), cluster("web", "12h")];
        let now = at("2026-11-27T12:00:00Z");
        let words = "kubectl-hibernate schedule create night --zone UTC --all --awake 07:30-18:00";
        let cli = cli::read::<Cli>(words.split(' ').map(Into::into)).unwrap();
        let Some(Command::Schedule(schedule)) = &cli.command else { panic!("another command") };
        let ScheduleVerb::Create(args) = &schedule.verb else { panic!("another verb") };
        let timetable = Timetable::of(&spec(args).unwrap(), &[]).unwrap();
        let lines = summary(args, "powerschedule.hibernate.sh/night", &timetable, "2 targets", now);
        assert_eq!(
            question(&lines, &found.iter().collect::<Vec<_>>()),
            "About to create powerschedule.hibernate.sh/night, which selects 2 targets now\n  \
             Sleep at 2026-11-27T18:00+00:00, then Awake at 2026-11-28T07:30+00:00\nTargets:\n  \
             team/demo (protected)\n  team/web (protected)\nContinue? [y/N] "
        );
        assert_eq!(
            too_early(&timetable, &found, now).unwrap(),
            "spec.hibernateAfter of team/demo is shorter than 10h30m0s, the longest time awake: Hive puts them to sleep before it ends"
        );
        assert_eq!(too_early(&timetable, &found[1..], now), None);
    }
}
