//! The commands with a row more in the table of kinds: a cluster-scoped kind that only tests know.

mod advice;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use jiff::Timestamp;
use serde_json::{Value, json};
use shared::annotation::format;
use shared::kinds::operators::CRUNCHY;
use shared::kinds::testing::{POWER, SANDBOX};
use shared::kinds::{CLUSTER_DEPLOYMENT, KINDS, Kinds};
use view::target::Target;
use view::{Query, Row};

use super::{completion, run};
use crate::cli::{self, Cli};
use crate::connect::connect;
use crate::error::Exit;
use crate::select::{Flags, parse};
use crate::wait::preflight::follow;

const WITH_SANDBOX: Kinds = Kinds { targets: &[&CLUSTER_DEPLOYMENT, &SANDBOX], ..KINDS };

const PATH: &str = "/apis/test.hibernate.sh/v1/sandboxes";

/// A hub with one sandbox, whose controller is done at once.
pub(super) struct Server {
    url: String,
    /// Method and path of every request, without the query.
    asked: Arc<Mutex<Vec<String>>>,
    /// How many of the next requests fail, as while the hub restarts.
    failing: Arc<Mutex<usize>>,
    /// Further answers, by method and path.
    answers: Arc<Mutex<BTreeMap<String, (u16, Value)>>>,
    kubeconfig: tempfile::NamedTempFile,
}

impl Server {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let object = json!({
            "apiVersion": "test.hibernate.sh/v1", "kind": "Sandbox",
            "metadata": { "name": "blue", "resourceVersion": "1" }, "status": { "phase": "Running" },
        });
        let (object, asked) = (Arc::new(Mutex::new(object)), Arc::new(Mutex::new(Vec::new())));
        let (failing, answers) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(BTreeMap::new())));
        let (seen, fails, others) = (Arc::clone(&asked), Arc::clone(&failing), Arc::clone(&answers));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (object, others) = (Arc::clone(&object), Arc::clone(&others));
                let (seen, fails) = (Arc::clone(&seen), Arc::clone(&fails));
                thread::spawn(move || serve(stream, &object, &others, &seen, &fails));
            }
        });
        let mut kubeconfig = tempfile::NamedTempFile::new().unwrap();
        kubeconfig.write_all(b"kind: Config\n").unwrap();
        Self { url, asked, failing, answers, kubeconfig }
    }

    /// Adds an answer to a method and path.
    pub(super) fn answers(&self, request: &str, code: u16, answer: Value) {
        self.answers.lock().unwrap().insert(request.to_owned(), (code, answer));
    }

    pub(super) fn cli(&self, line: &str) -> Cli {
        let _ = hub::provider().install_default();
        let kubeconfig = self.kubeconfig.path().to_str().unwrap();
        let hub = ["--server", &self.url, "--kubeconfig", kubeconfig];
        let words = std::iter::once("kubectl-hibernate").chain(line.split_whitespace()).chain(hub);
        cli::read::<Cli>(words.map(Into::into)).unwrap()
    }

    /// The exit code, and what was asked of the hub.
    fn run(&self, line: &str) -> (Exit, Vec<String>) {
        let exit = wait_for(run(WITH_SANDBOX, &self.cli(line))).unwrap();
        (exit, std::mem::take(&mut self.asked.lock().unwrap()))
    }
}

pub(super) fn wait_for<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn serve(
    stream: TcpStream,
    object: &Mutex<Value>,
    others: &Mutex<BTreeMap<String, (u16, Value)>>,
    asked: &Mutex<Vec<String>>,
    failing: &Mutex<usize>,
) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or_default() == 0 {
                return;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
            head += &line;
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let words: Vec<&str> = head.split_whitespace().take(2).collect();
        let path = words[1].split('?').next().unwrap();
        let request = format!("{} {path}", words[0]);
        asked.lock().unwrap().push(request.clone());
        let other = others.lock().unwrap().get(&request).cloned();
        let fails = {
            let mut left = failing.lock().unwrap();
            let fails = *left > 0;
            *left = left.saturating_sub(1);
            fails
        };
        let (code, answer) = if fails {
            (
                500,
                json!({ "kind": "Status", "status": "Failure", "code": 500, "reason": "InternalError", "message": "restarting" }),
            )
        } else {
            other.unwrap_or_else(|| answer(words[0], path, &body, object))
        };
        // A watch without an event of its own stays open.
        let is_open = code == 200 && words[1].contains("watch=true") && answer.get("type").is_none();
        let answer = if is_open { String::new() } else { answer.to_string() };
        let length = answer.len().max(1);
        let head = format!("HTTP/1.1 {code} x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        if reader.get_mut().write_all((head + &answer).as_bytes()).is_err() {
            return;
        }
    }
}

fn answer(method: &str, path: &str, body: &[u8], object: &Mutex<Value>) -> (u16, Value) {
    let mut object = object.lock().unwrap();
    match (method, path.strip_prefix(PATH)) {
        ("GET", Some("")) => {
            (200, json!({ "kind": "List", "metadata": { "resourceVersion": "1" }, "items": [object.clone()] }))
        }
        ("GET", Some("/blue")) => (200, object.clone()),
        ("PATCH", Some("/blue")) => {
            let patch: Value = serde_json::from_slice(body).unwrap();
            let state = patch["metadata"]["annotations"][POWER].clone();
            let phase = if state == "Hibernating" { "Paused" } else { "Running" };
            object["metadata"]["annotations"][POWER] = state;
            object["status"]["phase"] = json!(phase);
            (200, object.clone())
        }
        (_, rest) => {
            let details = rest.map(|name| json!({ "name": name.trim_start_matches('/') }));
            let message = "not found";
            (
                404,
                json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": message, "details": details }),
            )
        }
    }
}

/// As kubectl does, commands ignore a namespace given for a kind that has none.
#[test]
fn a_cluster_scoped_kind_is_slept_woken_and_waited_for() {
    let server = Server::start();
    let (one, all) = (format!("GET {PATH}/blue"), format!("GET {PATH}"));
    let patch = format!("PATCH {PATH}/blue");
    for (line, expected) in [
        ("sbx/blue -n shop --wait", vec![&one, &patch, &all]), // it has arrived when it is listed
        ("sandbox blue", vec![&one]),                          // asleep already
        ("resume sandboxes.test.hibernate.sh/blue --wait --timeout 5s", vec![&one, &patch, &all]),
        ("sbx --all --yes --dry-run", vec![&all]),
        ("sbx --all -A --yes --dry-run=server", vec![&all, &patch]),
        ("sbx -l team=blue --yes -o name", vec![&all]), // the dry run was kept by this simple server
    ] {
        let (exit, asked) = server.run(line);
        assert_eq!((exit, asked.iter().collect::<Vec<_>>()), (Exit::Done, expected), "{line}");
    }
}

/// What is asked for besides the schedules, which may govern what is shown and are asked for once.
fn shown(server: &Server, line: &str) -> (Exit, Vec<String>) {
    let (exit, asked) = server.run(line);
    let (schedules, others): (Vec<_>, Vec<_>) = asked.into_iter().partition(|one| one.ends_with("powerschedules"));
    assert_eq!(schedules.len(), 2, "{line}: {schedules:?}");
    (exit, others)
}

#[test]
fn a_cluster_scoped_kind_is_shown() {
    let server = Server::start();
    for line in
        ["status sbx", "status sbx -A -o wide", "status sbx/blue -n shop -o json", "status sandbox blue -o name"]
    {
        let (exit, asked) = shown(&server, line);
        let path = if line.contains("blue") { format!("GET {PATH}/blue") } else { format!("GET {PATH}") };
        assert_eq!((exit, asked), (Exit::Done, vec![path]), "{line}");
    }
}

#[test]
fn a_name_without_a_type_may_be_a_cluster_scoped_one() {
    let server = Server::start();
    let (exit, mut asked) = shown(&server, "status blue -n shop");
    asked.sort();
    let other = "GET /apis/hive.openshift.io/v1/namespaces/shop/clusterdeployments/blue".to_owned();
    assert_eq!((exit, asked), (Exit::Done, vec![other, format!("GET {PATH}/blue")]));
}

#[test]
fn what_is_not_found_is_not_said_to_be_in_a_namespace() {
    let server = Server::start();
    let cli = server.cli("status sbx/blu -n shop");
    let query = parse(WITH_SANDBOX, &["sbx/blu".to_owned()], Flags::default()).unwrap();
    let failure = wait_for(async {
        let hub = connect(&cli.hub).unwrap();
        view::targets(&hub, &query).await.remove(0).unwrap_err()
    });
    assert_eq!(failure.to_string(), "sandbox.test.hibernate.sh/blu not found; did you mean blue?");
    let query = parse(WITH_SANDBOX, &["sbx".to_owned()], Flags { all: true, ..Flags::default() }).unwrap();
    let hub = wait_for(async { connect(&cli.hub).unwrap() });
    assert_eq!(query.searched(&hub), None, "an empty list is not said to be of a namespace");
}

#[test]
fn pools_are_not_shown_to_those_who_may_not_list_clusters() {
    const HIVE: &str = "GET /apis/hive.openshift.io/v1";
    let server = Server::start();
    let pool = |name: &str| json!({ "metadata": { "name": name, "namespace": "shop" } });
    let pools = json!({ "metadata": {}, "items": [pool("a"), pool("b")] });
    server.answers(&format!("{HIVE}/namespaces/shop/clusterpools"), 200, pools);
    server.answers(&format!("{HIVE}/namespaces/shop/clusterpools/a"), 200, pool("a"));
    let message = "clusterdeployments.hive.openshift.io is forbidden: User \"bob\" cannot list resource";
    let refusal =
        json!({ "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": message });
    server.answers(&format!("{HIVE}/clusterdeployments"), 403, refusal);
    for line in ["status pools -n shop", "status pools -n shop -o json", "status pool/a -n shop -o json"] {
        let problem = wait_for(run(KINDS, &server.cli(line))).unwrap_err();
        assert_eq!(problem.exit(), Exit::Error, "{line}");
        let text = "clusterdeployments.hive.openshift.io: forbidden: User \"bob\" cannot list resource";
        assert_eq!(problem.to_string(), text, "{line}");
        let asked = std::mem::take(&mut *server.asked.lock().unwrap());
        let lists = asked.iter().filter(|request| request.ends_with("/clusterdeployments")).count();
        assert_eq!(lists, 1, "{line}: {asked:?}");
    }
}

#[test]
fn a_target_that_was_listed_is_read_in_the_version_that_the_hub_serves() {
    let server = Server::start();
    let path = "GET /apis/postgres-operator.crunchydata.com/v1beta1/namespaces/shop/postgresclusters";
    let database = json!({ "metadata": { "name": "db", "namespace": "shop" }, "spec": { "shutdown": true } });
    server.answers(path, 200, json!({ "metadata": { "resourceVersion": "1" }, "items": [database] }));
    server.answers(&format!("{path}/db"), 200, database.clone());
    let cli = server.cli("status -n shop");
    let query = Query { kinds: vec![Row::Target(&CRUNCHY)], ..Query::default() };
    let object = wait_for(async {
        let hub = connect(&cli.hub).unwrap();
        let listing = view::list(&hub, &query).await;
        listing.items[0].target().unwrap().object(&hub).await
    });
    assert_eq!(object.unwrap(), database);
}

#[test]
fn calendars_and_prices_are_read_where_the_controller_is() {
    let server = Server::start();
    let webhooks = "GET /apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/hibernate-webhook";
    let service = json!({ "service": { "namespace": "sleep", "name": "hibernate-webhook" } });
    server.answers(webhooks, 200, json!({ "webhooks": [{ "clientConfig": service }] }));
    let calendars = json!([{ "configMap": "holidays", "key": "days", "power": "Sleep" }]);
    let awake = json!([{ "from": "07:30", "to": "18:00" }]);
    let spec = json!({ "timeZone": "UTC", "awake": awake, "targets": { "all": true }, "calendars": calendars });
    let platform = |name: &str| json!({ "metadata": { "name": name }, "spec": spec });
    let list = |items: Vec<Value>| json!({ "metadata": { "resourceVersion": "1" }, "items": items });
    let schedule = "GET /apis/hibernate.sh/v1alpha1/clusterpowerschedules/platform";
    server.answers(schedule, 200, platform("platform"));
    let all = "GET /apis/hibernate.sh/v1alpha1/clusterpowerschedules";
    server.answers(all, 200, list(vec![platform("platform"), platform("tenants")]));
    server.answers("GET /apis/hibernate.sh/v1alpha1/namespaces/shop/powerschedules", 200, list(Vec::new()));
    let map = |namespace: &str, name: &str| format!("GET /api/v1/namespaces/{namespace}/configmaps/{name}");
    server.answers(&map("sleep", "holidays"), 200, json!({ "data": { "days": "2126-12-24 Christmas" } }));
    for (more, exit, expected) in [
        ("", Exit::Done, vec![schedule.to_owned(), webhooks.to_owned(), map("sleep", "holidays")]),
        (" --calendar-namespace shop", Exit::Error, vec![schedule.to_owned(), map("shop", "holidays")]),
    ] {
        assert_eq!(server.run(&format!("schedule next cpsch/platform{more}")), (exit, expected), "{more}");
    }
    let (exit, asked) = server.run("schedule next -n shop");
    let count = |request: &str| asked.iter().filter(|one| *one == request).count();
    assert_eq!((exit, count(webhooks), count(&map("sleep", "holidays"))), (Exit::Done, 1, 2), "{asked:?}");
    let cli = server.cli("savings");
    let prices = wait_for(async { view::savings::prices(&connect(&cli.hub).unwrap()).await });
    let asked = std::mem::take(&mut *server.asked.lock().unwrap());
    assert!(prices.is_err(), "the server says that there are no ConfigMaps");
    assert_eq!(asked, [webhooks.to_owned(), map("sleep", "hibernate-prices")]);
}

/// The watch is refused, and so are two lists after it: the hub restarts.
#[test]
fn an_answer_is_awaited_over_a_restart_of_the_hub() {
    let server = Server::start();
    let cli = server.cli("status sbx/blue");
    let before = json!({ "metadata": { "name": "blue", "resourceVersion": "1" }, "status": { "phase": "Resuming" } });
    let target = Target::new(&SANDBOX, "v1", before.clone());
    *server.failing.lock().unwrap() = 3;
    let phase = wait_for(async {
        let hub = connect(&cli.hub).unwrap();
        let probe = |object: &Value| Ok((object["status"]["phase"] == "Running").then_some("Running"));
        follow(&hub, &target, before, probe).await
    });
    let asked = server.asked.lock().unwrap().clone();
    assert_eq!((phase.unwrap(), asked), ("Running", vec![format!("GET {PATH}"); 4]));
}

#[test]
fn names_of_a_cluster_scoped_kind_are_completed() {
    let server = Server::start();
    let kubeconfig = server.kubeconfig.path().display().to_string();
    for words in [["sbx/"].as_slice(), &["sbx", ""]] {
        let hub = ["--server", &server.url, "--kubeconfig", &kubeconfig];
        let words: Vec<String> = hub.iter().chain(words).map(|&word| word.to_owned()).collect();
        wait_for(completion::answer(WITH_SANDBOX, &words));
        assert_eq!(*server.asked.lock().unwrap(), [format!("GET {PATH}")], "{words:?}");
        server.asked.lock().unwrap().clear();
    }
}

/// The status may not be patched, which a review of permissions need not show.
#[test]
fn a_recovery_that_cannot_go_on_does_not_leave_the_operator_paused() {
    const DATABASES: &str = "/apis/apps.foundationdb.org/v1beta2/namespaces/db/foundationdbclusters/sample";
    let server = Server::start();
    let removal = "2026-11-21T17:59:58Z";
    let record = json!({
        "v": 1, "at": removal, "skipped": true,
        "groups": [{ "group": "storage-1", "class": "storage", "pod": "sample-storage-1", "claim": "u-1", "removal": removal }],
    });
    let cluster = json!({
        "metadata": { "name": "sample", "namespace": "db", "uid": "u", "resourceVersion": "1",
            "annotations": { "hibernate.sh/recovery": record.to_string() } },
        "spec": { "version": "7.3.69", "skip": true, "processCounts": { "storage": 1 } },
        "status": { "processGroups": [{ "processGroupID": "storage-1", "processClass": "storage",
            "removalTimestamp": removal, "exclusionTimestamp": removal }] },
    });
    let held =
        json!({ "v": 1, "uid": "u-1", "group": "storage-1", "removal": removal, "minimum": "2h", "why": "recovery" });
    let claim = json!({
        "metadata": { "name": "sample-storage-1-data", "namespace": "db", "uid": "u-1", "resourceVersion": "1",
            "labels": { "foundationdb.org/fdb-cluster-name": "sample", "foundationdb.org/fdb-process-group-id": "storage-1" },
            "annotations": { "hibernate.sh/suspended-at": format::seconds(Timestamp::now()), "hibernate.sh/suspension": held.to_string() } },
    });
    let list = |items: &[Value]| json!({ "metadata": { "resourceVersion": "1" }, "items": items });
    let of_core = |plural: &str| format!("GET /api/v1/namespaces/db/{plural}");
    server.answers(&format!("GET {DATABASES}"), 200, cluster.clone());
    server.answers(&of_core("persistentvolumeclaims"), 200, list(&[claim]));
    server.answers(&of_core("services"), 200, list(&[]));
    server.answers(&of_core("pods"), 200, list(&[]));
    let refusal = json!({ "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "User \"bob\" cannot patch resource" });
    server.answers(&format!("PATCH {DATABASES}/status"), 403, refusal);
    server.answers(&format!("PATCH {DATABASES}"), 200, cluster);
    let line = "recover process-groups -n db -c sample --yes --settle 0";
    let problem = wait_for(run(KINDS, &server.cli(line))).unwrap_err();
    assert_eq!(problem.exit(), Exit::Error, "{problem}");
    let asked = server.asked.lock().unwrap();
    let patches: Vec<&str> = asked.iter().filter_map(|one| one.strip_prefix("PATCH ")).collect();
    assert_eq!(patches, [format!("{DATABASES}/status"), DATABASES.to_owned()], "{asked:?}");
}
