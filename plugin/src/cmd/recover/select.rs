//! Which process groups of which cluster the user selects. Suspended groups have no Pod, so Pod names are matched by
//! the rules by which the operator forms them.

use std::collections::BTreeMap;

use hub::HubClient;
use hub::error::HubError;
use kube::ResourceExt;
use serde_json::Value;
use shared::fdb::api::{FoundationDBCluster, ProcessGroup};
use shared::fdb::recover::check::{Place, suspended};
use shared::fdb::recover::facts::labels_match;
use shared::fdb::recover::replace::ReplacementMode;

use crate::cli::HubArgs;
use crate::cli::recover::GroupArgs;
use crate::connect::connect;
use crate::error::{FdbError, Problem};
use crate::read::fdb::{DatabaseSnapshot, called, clusters, read};
use crate::select::unique;

/// What the user means, and the cluster as it is now.
pub(super) struct Selected<'a> {
    pub(super) hub: HubClient,
    pub(super) place: Place,
    pub(super) snapshot: DatabaseSnapshot,
    pub(super) selection: GroupSelection<'a>,
    pub(super) ids: Vec<String>,
    /// Groups that a filter leaves out because they went in exchange for others.
    pub(super) left_out: Vec<String>,
    pub(super) replacements: ReplacementMode,
}

/// Reads the flags, and then the cluster.
pub(super) async fn select<'a>(args: &'a GroupArgs, hub_args: &HubArgs) -> Result<Selected<'a>, Problem> {
    let selection = selection(args, hub_args)?;
    let replacements = replacements(&args.replacement)?;
    let hub = connect(hub_args)?;
    let place = cluster(&hub, &selection, args, hub_args.all_namespaces).await?;
    let Place { namespace, name } = &place;
    let snapshot = DatabaseSnapshot::new(&hub, namespace, name).await.map_err(|problem| match problem {
        Problem::Hub(HubError::NoObject { .. }) => {
            FdbError::NoCluster { cluster: called(name), namespace: namespace.clone() }.into()
        }
        problem => problem,
    })?;
    let (ids, left_out) = ids(&snapshot, &selection);
    Ok(Selected { hub, place, snapshot, selection, ids, left_out, replacements })
}

/// How groups were named.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GroupSelection<'a> {
    /// By ID or Pod.
    Named(&'a [String]),
    /// Every suspended one.
    All,
    /// Every suspended one of a class.
    Class(&'a str),
    /// Every suspended one whose claim has labels.
    Labels(BTreeMap<String, String>),
}

/// What the flags mean.
fn selection<'a>(args: &'a GroupArgs, hub: &HubArgs) -> Result<GroupSelection<'a>, FdbError> {
    if hub.selector.is_some() {
        return Err(FdbError::Selector);
    }
    if hub.all_namespaces && args.fdb_cluster.is_some() {
        return Err(FdbError::ClusterInAllNamespaces);
    }
    let filters = [
        ("--all-suspended", args.all_suspended),
        ("--process-class", args.process_class.is_some()),
        ("--match-labels", !args.match_labels.is_empty()),
    ];
    let given: Vec<&'static str> = filters.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag).collect();
    match given.as_slice() {
        [] if args.groups.is_empty() && args.fdb_cluster.is_none() => return Err(FdbError::Nothing),
        // A cluster alone: what an earlier run has left.
        [] => return Ok(GroupSelection::Named(&args.groups)),
        [flag] if !args.groups.is_empty() => return Err(FdbError::NamesAndFilter(flag)),
        [flag] if args.fdb_cluster.is_none() => return Err(FdbError::NeedsCluster(flag)),
        [_] => {}
        _ => return Err(FdbError::Filters),
    }
    if let Some(class) = &args.process_class {
        return Ok(GroupSelection::Class(class));
    }
    if args.all_suspended {
        return Ok(GroupSelection::All);
    }
    let pair = |text: &String| {
        let (key, value) = text.split_once('=').filter(|(key, _)| !key.is_empty())?;
        Some((key.to_owned(), value.to_owned()))
    };
    let labels = args.match_labels.iter().map(|text| pair(text).ok_or_else(|| FdbError::NotALabel(text.clone())));
    Ok(GroupSelection::Labels(labels.collect::<Result<_, _>>()?))
}

/// `--replacement`.
fn replacements(words: &[String]) -> Result<ReplacementMode, FdbError> {
    match words {
        [] => Ok(ReplacementMode::Find),
        [word] if word == "none" => Ok(ReplacementMode::None),
        words if words.iter().any(|word| word == "none") => Err(FdbError::NoneAndSome),
        ids => Ok(ReplacementMode::These(ids.to_vec())),
    }
}

/// The cluster that is meant.
async fn cluster(
    hub: &HubClient,
    selection: &GroupSelection<'_>,
    args: &GroupArgs,
    everywhere: bool,
) -> Result<Place, Problem> {
    if let Some(name) = &args.fdb_cluster {
        return Ok(Place { namespace: hub.namespace.clone(), name: name.clone() });
    }
    let GroupSelection::Named(names) = selection else { return Err(FdbError::NeedsCluster("that").into()) };
    let namespace = (!everywhere).then_some(hub.namespace.as_str());
    let all = clusters(hub, namespace).await?;
    let searched =
        namespace.map_or_else(|| "of any namespace".to_owned(), |namespace| format!("in namespace {namespace}"));
    owner(&all, names, &searched)
}

/// The one cluster of all these Pods.
fn owner(all: &[Value], names: &[String], searched: &str) -> Result<Place, Problem> {
    let all: Vec<FoundationDBCluster> = all.iter().map(read).collect::<Result<_, _>>()?;
    let mut found: Vec<Place> = Vec::new();
    for name in names {
        let owners = all.iter().filter(|cluster| by_pod(cluster, name).is_some());
        let place = |cluster: &FoundationDBCluster| Place {
            namespace: cluster.namespace().unwrap_or_default(),
            name: cluster.name_any(),
        };
        match owners.map(place).collect::<Vec<_>>().as_slice() {
            [] if all.iter().any(|cluster| cluster.group(name).is_some()) => {
                return Err(FdbError::IdWithoutCluster(name.clone()).into());
            }
            [] => return Err(FdbError::NoClusterOfPod { pod: name.clone(), place: searched.to_owned() }.into()),
            [one] => found.push(one.clone()),
            several => return Err(FdbError::SeveralClusters { pod: name.clone(), clusters: list(several) }.into()),
        }
    }
    match unique(found).as_slice() {
        [one] => Ok(one.clone()),
        several => Err(FdbError::NotOneCluster(list(several)).into()),
    }
}

fn list(clusters: &[Place]) -> String {
    clusters.iter().map(|Place { namespace, name }| format!("{namespace}/{name}")).collect::<Vec<_>>().join(" and ")
}

/// The ID behind the name of a Pod.
fn by_pod<'a>(cluster: &'a FoundationDBCluster, pod: &str) -> Option<&'a str> {
    let group = cluster.groups().iter().find(|group| cluster.pod_name(group).as_deref() == Some(pod))?;
    Some(&group.process_group_id)
}

/// The IDs that are meant, and those that a filter leaves out because they went in exchange for others. A word that is
/// no Pod's name is an ID, known or not.
fn ids(observation: &DatabaseSnapshot, selection: &GroupSelection<'_>) -> (Vec<String>, Vec<String>) {
    let facts = observation.facts();
    let those = |is: &dyn Fn(&ProcessGroup) -> bool| {
        let (out, chosen): (Vec<_>, Vec<_>) =
            suspended(&facts).into_iter().filter(|group| is(group)).partition(|group| facts.is_exchanged(group));
        let ids = |groups: Vec<&ProcessGroup>| groups.into_iter().map(|group| group.process_group_id.clone()).collect();
        (ids(chosen), ids(out))
    };
    match selection {
        GroupSelection::Named(names) => {
            let id = |name: &String| match observation.cluster.group(name) {
                Some(_) => name.clone(),
                None => by_pod(&observation.cluster, name).map_or_else(|| name.clone(), ToOwned::to_owned),
            };
            (unique(names.iter().map(id).collect::<Vec<_>>()), Vec::new())
        }
        GroupSelection::All => those(&|_| true),
        GroupSelection::Class(class) => those(&|group| group.process_class == *class),
        GroupSelection::Labels(labels) => {
            those(&|group| facts.claims_of(&group.process_group_id).iter().any(|claim| labels_match(claim, labels)))
        }
    }
}

/// The message when no group was named, or a filter matches none although some are suspended.
pub(super) fn unmatched(observation: &DatabaseSnapshot, selection: &GroupSelection<'_>) -> Option<FdbError> {
    let filter = match selection {
        GroupSelection::Named([]) => return Some(FdbError::Nothing),
        GroupSelection::Named(_) | GroupSelection::All => return None,
        GroupSelection::Class(class) => format!("of class {class}"),
        GroupSelection::Labels(labels) => {
            let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("whose PersistentVolumeClaim is labeled {}", labels.join(","))
        }
    };
    if ids(observation, selection) != (Vec::new(), Vec::new()) {
        return None;
    }
    let named = |group: &ProcessGroup| format!("{} ({})", group.process_group_id, group.process_class);
    let others: Vec<String> = suspended(&observation.facts()).into_iter().map(named).collect();
    let cluster = called(&observation.cluster.name_any());
    (!others.is_empty()).then(|| FdbError::NoMatch { cluster, filter, suspended: others.join(", ") })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli;
    use crate::cli::recover::{FdbCli, FdbCommand};

    fn cluster(namespace: &str, name: &str, groups: &[(&str, &str)]) -> Value {
        let groups: Vec<Value> =
            groups.iter().map(|(id, class)| json!({ "processGroupID": id, "processClass": class })).collect();
        json!({
            "apiVersion": "apps.foundationdb.org/v1beta2", "kind": "FoundationDBCluster",
            "metadata": { "name": name, "namespace": namespace },
            "spec": { "version": "7.3.69" }, "status": { "processGroups": groups },
        })
    }

    fn understood(line: &str) -> String {
        let words = ["kubectl-fdb-recover", "process-groups"].into_iter().chain(line.split_whitespace());
        let cli = cli::read::<FdbCli>(words.map(Into::into)).unwrap();
        let FdbCommand::ProcessGroups(args) = cli.command;
        match selection(&args.groups, &cli.hub) {
            Ok(selection) => format!("{selection:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn flags_say_which_groups_are_meant() {
        for (line, part) in [
            ("-c a storage-1", r#"Named(["storage-1"])"#),
            ("a-storage-1", r#"Named(["a-storage-1"])"#),
            ("-c a", "Named([])"),
            ("-c a --all-suspended", "All"),
            ("-c a --process-class log", r#"Class("log")"#),
            ("-c a --match-labels x=y,z=", r#"Labels({"x": "y", "z": ""})"#),
            ("", "specify process groups by ID"),
            ("--all-suspended", "--all-suspended requires a cluster"),
            ("--process-class log", "--process-class requires a cluster"),
            ("-c a storage-1 --process-class log", "names and --process-class are mutually exclusive"),
            ("-c a --process-class log --all-suspended", "are mutually exclusive"),
            ("-c a --match-labels x", "write KEY=VALUE"),
            ("-c a -l x=y", "-l does not select process groups"),
            ("-A -c a storage-1", "with -c, use -n"),
        ] {
            let answer = understood(line);
            assert!(answer.contains(part), "{line}: {answer}");
        }
    }

    #[test]
    fn none_is_no_id() {
        let mode = |words: &[&str]| replacements(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
        assert_eq!(mode(&[]).unwrap(), ReplacementMode::Find);
        assert_eq!(mode(&["none"]).unwrap(), ReplacementMode::None);
        assert_eq!(mode(&["storage-1"]).unwrap(), ReplacementMode::These(vec!["storage-1".to_owned()]));
        assert!(matches!(mode(&["none", "storage-1"]), Err(FdbError::NoneAndSome)));
    }

    #[test]
    fn a_pod_name_identifies_one_cluster() {
        let all = [
            cluster("x", "a", &[("dc1-storage-1", "storage"), ("dc1-cluster_controller-2", "cluster_controller")]),
            cluster("y", "a", &[("storage-1", "storage")]),
            cluster("x", "b", &[("storage-5", "storage")]),
        ];
        let answer = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            match owner(&all, &names, "in namespace x") {
                Ok(Place { namespace, name }) => format!("{namespace}/{name}"),
                Err(problem) => problem.to_string(),
            }
        };
        assert_eq!(answer(&["b-storage-5"]), "x/b");
        assert_eq!(answer(&["a-cluster-controller-2"]), "x/a");
        assert!(
            answer(&["a-storage-1"])
                .contains("more than one cluster has a process group with this Pod name: x/a and y/a")
        );
        assert!(
            answer(&["b-storage-5", "a-cluster-controller-2"]).contains("belong to more than one cluster: x/b and x/a")
        );
        assert!(answer(&["storage-5"]).contains(r#""storage-5" is an ID: name its cluster"#));
        assert!(answer(&["c-storage-1"]).contains("no FoundationDBCluster in namespace x has a process group"));
        let first = read(&all[0]).unwrap();
        assert_eq!(by_pod(&first, "a-storage-1"), Some("dc1-storage-1"), "prefixes are not in the names of Pods");
    }

    #[test]
    fn a_filter_without_match_differs_from_nothing_suspended() {
        let observation = |marked: usize| {
            let ids = [("storage-1", "storage"), ("log-2", "log"), ("log-3", "log")];
            let mut object = cluster("x", "sample", &ids);
            for at in 0..marked {
                object["status"]["processGroups"][at]["removalTimestamp"] = json!("2026-11-21T17:59:58Z");
            }
            let claim = |(id, _): (&str, &str)| {
                let labels = json!({ "foundationdb.org/fdb-cluster-name": "sample", "foundationdb.org/fdb-process-group-id": id });
                json!({ "metadata": { "name": format!("sample-{id}-data"), "labels": labels } })
            };
            let (claims, cluster) = (ids.into_iter().map(claim).collect(), read(&object).unwrap());
            DatabaseSnapshot { object, cluster, claims, services: vec![], pods: vec![], pods_version: String::new() }
        };
        let answer = |marked: usize, selection: GroupSelection<'_>| {
            unmatched(&observation(marked), &selection).map(|error| error.to_string())
        };
        let known =
            "in foundationdbcluster.apps.foundationdb.org/sample: suspended groups: storage-1 (storage), log-2 (log)";
        assert_eq!(
            answer(2, GroupSelection::Class("logg")).unwrap(),
            format!("no suspended group of class logg {known}")
        );
        // Those that went in exchange for others are not meant.
        let mut exchanged = observation(2);
        let mark = json!({ "hibernate.sh/exchanged-at": "2026-11-21T17:59:58Z" });
        exchanged.claims[0]["metadata"]["annotations"] = mark;
        let of = |selection| ids(&exchanged, &selection);
        let (one, other) = (vec!["storage-1".to_owned()], vec!["log-2".to_owned()]);
        assert_eq!(of(GroupSelection::All), (other, one.clone()));
        assert_eq!(of(GroupSelection::Class("storage")), (vec![], one.clone()));
        assert_eq!(unmatched(&exchanged, &GroupSelection::Class("storage")).map(|error| error.to_string()), None);
        assert_eq!(of(GroupSelection::Named(&one)), (one.clone(), vec![]), "unless they are named");
        let labels = GroupSelection::Labels([("x".to_owned(), "y".to_owned())].into());
        let expected = format!("no suspended group whose PersistentVolumeClaim is labeled x=y {known}");
        assert_eq!(answer(2, labels).unwrap(), expected);
        assert_eq!(answer(0, GroupSelection::Class("logg")), None);
        assert_eq!(answer(2, GroupSelection::Class("log")), None);
        assert_eq!(answer(2, GroupSelection::All), None);
    }
}
