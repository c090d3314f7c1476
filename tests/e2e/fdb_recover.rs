//! Suspended process groups are brought back, by the real plugin with a real exec, from the double of the operator in
//! both of its write modes. A webhook of the tests stands in for ours: it denies every DELETE of the volumes
//! throughout.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::ResourceExt;
use serde_json::json;
use shared::annotation::keys;
use testbed::fdb::common::{Held, SOON, global, held, held_storage, is_back, ours, uid, untimed};
use testbed::fdb::options::{Settings, UpdateMode};
use testbed::world::run::Ran;
use testbed::{FdbOptions, eventually};
use tokio::io::{AsyncBufReadExt, BufReader};

const MODES: [UpdateMode; 2] = [UpdateMode::Update, UpdateMode::Apply];

fn mode(update_mode: UpdateMode) -> FdbOptions {
    FdbOptions { settings: Settings { update_mode, ..Settings::default() }, ..untimed() }
}

/// Long enough on a busy machine, and less than a program of a test may take.
const TIMEOUT: &str = "2m";

/// The command line that recovers a held group, but for the program.
fn line<'a>(held: &'a Held, more: &[&'a str]) -> Vec<&'a str> {
    let (ns, name) = (held.db.namespace(), held.db.name());
    let mut line = vec!["recover", "process-groups", "-n", ns, "-c", name];
    for (flag, value) in [("--settle", "400ms"), ("--timeout", TIMEOUT)] {
        if !more.contains(&flag) {
            line.extend([flag, value]);
        }
    }
    line.extend(more);
    line
}

async fn recover(held: &Held, more: &[&str]) -> Result<Ran> {
    held.world.plugin(&line(held, &[&[held.id.as_str(), "--yes"], more].concat())).await
}

/// It succeeds, and the group is back.
async fn recovers(held: &Held) -> Result<Ran> {
    let ran = recover(held, &[]).await?;
    ran.says(0, &[])?;
    is_back(held).await?;
    Ok(ran)
}

/// And it stays: the operator finds the right number of groups, and the replacement goes instead.
async fn stays(held: &Held, class: &str, count: usize) -> Result<()> {
    held.db.wait_suspended(&held.replacement, SOON).await?;
    held.denier.deny(false);
    held.db.wake().await?;
    held.db
        .wait("replacement gone", SOON, async || Ok(uid(&held.db, &held.replacement).await.is_none().then_some(())))
        .await?;
    wait_count(held, class, count).await?;
    held.wait_back().await;
    Ok(())
}

/// Waits until the operator is done with so many groups of the class, the recovered one among them.
async fn wait_count(held: &Held, class: &str, count: usize) -> Result<()> {
    held.db.wait_reconciled(SOON).await?;
    let there = async || {
        let ids = held.db.ids(class).await?;
        Ok((ids.len() == count && ids.contains(&held.id)).then_some(()))
    };
    held.db.wait(&format!("{count} groups of class {class}"), SOON, there).await
}

#[tokio::test]
async fn a_storage_group_comes_back_and_its_replacement_goes() -> Result<()> {
    for update_mode in MODES {
        let held = held_storage("swap", mode(update_mode)).await;
        let ran = recovers(&held).await.with_context(|| format!("{update_mode:?}"))?;
        ensure!(ran.stdout.contains(&format!("{} recovered after ", held.id)), "{}", ran.stdout);
        ran.says(0, &["Removed in exchange", &held.replacement])?;
        stays(&held, "storage", 3).await?;
        let again = recover(&held, &[]).await?;
        ensure!(again.code == 0 && again.stdout.contains("unchanged"), "{} {}", again.stdout, again.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn addresses_of_logs_and_of_exclusion_by_ip_are_included_too() -> Result<()> {
    for (name, class, localities) in [("logs", "log", true), ("ips", "storage", false)] {
        let held = held(name, class, &["persistentvolumeclaims"], FdbOptions { localities, ..untimed() }).await;
        let addresses = held.db.group(&held.id).await?.context("its entry")?.addresses;
        let before = held.db.database().await?.exclusions;
        ensure!(addresses.iter().any(|address| before.contains(address)), "{name}: {addresses:?} {before:?}");
        recovers(&held).await.with_context(|| name)?;
        let after = held.db.database().await?.exclusions;
        ensure!(!addresses.iter().any(|address| after.contains(address)), "{name}: {addresses:?} {after:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_lost_service_is_made_anew_and_a_kept_one_stays() -> Result<()> {
    for (name, resources) in
        [("lost", &["persistentvolumeclaims"][..]), ("kept", &["persistentvolumeclaims", "services"])]
    {
        let options = FdbOptions { public_ip_source: "service".to_owned(), ..untimed() };
        let held = held(name, "storage", resources, options).await;
        let before = held.db.service(&held.id).await?;
        ensure!(before.is_some() == (name == "kept"));
        let ran = recovers(&held).await.with_context(|| name)?;
        let after = held.db.service(&held.id).await?.context("its Service")?;
        ensure!(ours(&after).is_empty(), "{:?}", ours(&after));
        match before {
            Some(before) => ensure!(before.uid() == after.uid()),
            None => ensure!(ran.stderr.contains("service: ") && after.owner_references().len() == 1, "{}", ran.stderr),
        }
    }
    Ok(())
}

#[tokio::test]
async fn without_the_database_it_comes_back_and_says_what_is_missing() -> Result<()> {
    for update_mode in MODES {
        let held = held_storage("unavailable", mode(update_mode)).await;
        held.db.set_available(false).await?;
        let wanted = format!("fdbcli --exec 'include locality_instance_id:{}'", held.id);
        recover(&held, &[]).await?.says(1, &["the database still has them excluded", &wanted])?;
        let pod = held.db.pod(&held.id).await?.context("its Pod")?;
        ensure!(pod.status.and_then(|status| status.phase).as_deref() == Some("Running"));
        ensure!(uid(&held.db, &held.id).await == held.uid);
        held.db.set_available(true).await?;
        recovers(&held).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_group_removed_without_exclusion_comes_back() -> Result<()> {
    let held = held_storage("skipped", untimed()).await;
    let ran = recover(&held, &["--include=never"]).await?;
    ran.says(0, &["--include=never"])?;
    // Not in the Pod of the replacement, which the operator may have deleted by now.
    let healthy = held.db.ids("storage").await?.into_iter().find(|id| *id != held.id && *id != held.replacement);
    let pod = held.db.pod_name(&healthy.context("a third group")?);
    let (_, command) = ran.stderr.split_once(": run kubectl ").context("the command that is left to the user")?;
    let (words, orders) = command.trim_end().split_once(" --exec ").context("its orders")?;
    let words = words.split(' ').map(|word| if word == "POD" { pod.as_str() } else { word });
    let included = held.world.kubectl(&words.chain(["--exec", orders.trim_matches('\'')]).collect::<Vec<_>>()).await?;
    ensure!(included.code == 0, "{command}: {}", included.stderr);
    is_back(&held).await?;
    stays(&held, "storage", 3).await?;
    held.denier.deny(true);
    let before = held.db.ids("storage").await?;
    held.db.remove_without_exclusion(&[&held.id]).await?;
    held.db.wait_suspended(&held.id, SOON).await?;
    held.db.wait_asleep(testbed::fdb::common::IDLE, SOON).await?;
    ensure!(held.db.group(&held.id).await?.context("its entry")?.exclusion_skipped);
    recovers(&held).await?;
    let object = held.db.get().await?;
    ensure!(object.data["spec"]["processGroupsToRemoveWithoutExclusion"] == json!([]), "{:?}", object.data["spec"]);
    ensure!(before.contains(&held.id));
    Ok(())
}

/// In global mode the operator never takes a group off its lists that is marked no longer: `recover` does, or nothing
/// would be included any more.
#[tokio::test]
async fn in_global_mode_it_comes_back_and_blocks_nobody() -> Result<()> {
    let held = held_storage("global", global()).await;
    recovers(&held).await?;
    held.db.wait_suspended(&held.replacement, SOON).await?;
    held.denier.deny(false);
    held.db.wake().await?;
    wait_count(&held, "storage", 3).await?;
    is_back(&held).await?;
    let included = async || {
        let database = held.db.database().await?;
        Ok((database.exclusions.is_empty() && database.keys.is_empty()).then_some(()))
    };
    held.db.wait("an empty exclusion list", SOON, included).await
}

#[tokio::test]
async fn it_holds_its_own_against_an_operator_that_never_sleeps() -> Result<()> {
    for update_mode in MODES {
        let held = held_storage("busy", mode(update_mode)).await;
        let waker = async {
            loop {
                let _ = held.db.wake().await;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let ran = tokio::select! {
            ran = recover(&held, &[]) => ran?,
            () = waker => unreachable!("it never ends"),
        };
        ensure!(ran.code == 0, "{update_mode:?}: {}", ran.stderr);
        is_back(&held).await?;
        stays(&held, "storage", 3).await?;
    }
    Ok(())
}

/// Runs it until it says a word, and kills it there. Whether it came to say it.
async fn killed_at(held: &Held, word: &str) -> Result<bool> {
    let mut command = held.world.command(testbed::paths::program("kubectl-hibernate")?);
    command.args(line(held, &[&held.id, "--yes"])).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().context("start the plugin")?;
    let mut lines = BufReader::new(child.stderr.take().context("its stderr")?).lines();
    let begun = Instant::now();
    while let Some(text) = lines.next_line().await? {
        ensure!(begun.elapsed() < SOON, "it never said {word:?}");
        if text.contains(word) {
            child.kill().await?;
            return Ok(true);
        }
    }
    child.wait().await?;
    Ok(false)
}

/// Asks for a group that there is not, and runs the command that the warning about the unfinished recovery names.
async fn as_advised(held: &Held) -> Result<Ran> {
    let (ns, name) = (held.db.namespace(), held.db.name());
    let refused = held.world.plugin(&["recover", "process-groups", "-n", ns, "-c", name, "storage-0", "--yes"]).await?;
    let finish = refused.stderr.lines().find_map(|line| line.split_once("to finish it, run kubectl hibernate "));
    let (_, finish) = finish.with_context(|| format!("no command: {} {}", refused.code, refused.stderr))?;
    let finish: Vec<&str> = finish.split(' ').chain(["--settle", "400ms", "--timeout", TIMEOUT, "--yes"]).collect();
    held.world.plugin(&finish).await
}

#[tokio::test]
async fn killed_after_any_step_the_next_run_ends_well() -> Result<()> {
    let words = [
        ": hold: ",
        ": skip: ",
        ": settle: ",
        ": lists: ",
        ": status: ",
        ": include: ",
        ": verify: ",
        ": resume: ",
        "has not created its Pod yet",
        ": clear: ",
    ];
    let cases = MODES.into_iter().flat_map(|mode| words.iter().enumerate().map(move |(at, word)| (mode, at, word)));
    let case = async |(update_mode, at, word): (UpdateMode, usize, &&str)| {
        let held = held_storage(&format!("killed-{at}"), mode(update_mode)).await;
        let detail = killed_at(&held, word).await?;
        // The Pod may be there before anybody could say that it is not.
        ensure!(detail || word.contains("Pod"), "{update_mode:?}: it never said {word:?}");
        // Time for the operator to make the most of it.
        held.db.wake().await?;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let ran = if *word == ": skip: " { as_advised(&held).await? } else { recover(&held, &[]).await? };
        ensure!(ran.code == 0, "{update_mode:?}, killed after {word:?}: {}", ran.stderr);
        is_back(&held).await.with_context(|| format!("{update_mode:?}, killed after {word:?}"))?;
        held.db.remove_all().await
    };
    stream::iter(cases).map(case).buffer_unordered(4).try_collect().await
}

/// Each of two recoveries that begin at once chooses by itself: two groups go, and no third one.
#[tokio::test]
async fn two_that_begin_at_once_exchange_two() -> Result<()> {
    for update_mode in MODES {
        let held = held_storage("both", mode(update_mode)).await;
        let before = held.db.ids("storage").await?;
        let other = before.iter().find(|id| **id != held.id && **id != held.replacement).context("another")?.clone();
        held.db.remove(&[&held.id, &other]).await?;
        held.db.wait_suspended(&other, SOON).await?;
        held.db.wait_asleep(testbed::fdb::common::IDLE, SOON).await?;
        let now = held.db.ids("storage").await?;
        let second = now.into_iter().find(|id| !before.contains(id)).context("its replacement")?;
        let run = async |id: &str| held.world.plugin(&line(&held, &[id, "--yes"])).await;
        let (one, two) = tokio::try_join!(run(&held.id), run(&other))?;
        ensure!(one.code == 0 && two.code == 0, "{update_mode:?}: {}\n{}", one.stderr, two.stderr);
        is_back(&held).await?;
        for id in [&held.replacement, &second] {
            held.db.wait_suspended(id, SOON).await.with_context(|| format!("{}\n{}", one.stderr, two.stderr))?;
        }
        let left: Vec<_> = held.db.groups().await?.into_iter().filter(|group| !group.is_marked()).collect();
        let storage = left.iter().filter(|group| group.process_class == "storage").count();
        ensure!(storage == 3 && left.iter().any(|group| group.id == other), "{left:?}");
    }
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_recovered_is_said_and_nothing_is_changed() -> Result<()> {
    let held = held_storage("refused", untimed()).await;
    let (ns, name) = (held.db.namespace().to_owned(), held.db.name().to_owned());
    let healthy =
        held.db.ids("storage").await?.into_iter().find(|id| *id != held.replacement).context("a healthy group")?;
    let versions = async || {
        let claim = held.db.pvc(&held.id).await?.and_then(|claim| claim.resource_version());
        anyhow::Ok((held.db.get().await?.resource_version(), claim))
    };
    let before = versions().await?;
    let base = ["recover", "process-groups", "-n", &ns, "--yes"];
    let cases: [(&[&str], i32, &str); 4] = [
        (&["-c", "nobody", "storage-1"], 1, "foundationdbcluster.apps.foundationdb.org/nobody not found"),
        (&["-c", &name, "storage-0"], 1, "has no process group \"storage-0\"; suspended groups:"),
        (&["-c", &name, &healthy], 1, "is not suspended: it is not marked for removal, and its Pod runs"),
        (&["nobody-storage-1"], 1, "has a process group whose Pod is named nobody-storage-1"),
    ];
    for (more, code, part) in cases {
        held.world.plugin(&[&base, more].concat()).await?.says(code, &[part])?;
    }
    let dry = held.world.plugin(&line(&held, &[&held.id, "--dry-run=server"])).await?;
    ensure!(
        dry.code == 0 && dry.stdout.contains("Steps:") && dry.stdout.contains("would be recovered (server dry run)"),
        "{dry:?}"
    );
    let after = versions().await?;
    ensure!(before == after, "{before:?} {after:?}");

    held.db.patch(&json!({ "spec": { "skip": true } })).await?;
    let ran = recover(&held, &[]).await?;
    ran.says(3, &["spec.skip is true, and no recovery set it", "The volumes are held for 5 minutes at least"])?;
    let claim = held.db.pvc(&held.id).await?.context("the claim")?;
    let stamp = claim.metadata.annotations.unwrap_or_default().remove(keys::SUSPENSION).unwrap_or_default();
    ensure!(stamp.contains("\"recovery\""), "held before it is refused: {stamp}");
    let (words, patch) =
        ran.stderr.split_once("(kubectl ").and_then(|(_, rest)| rest.split_once(" -p '")).context("a command")?;
    let patch = patch.split('\'').next().context("a patch")?;
    held.world.kubectl(&words.split(' ').chain(["-p", patch]).collect::<Vec<_>>()).await?.ok()?;

    // Too late: the volume goes.
    held.denier.deny(false);
    held.db.wake().await?;
    held.db.wait("the claim's end", SOON, async || Ok(uid(&held.db, &held.id).await.is_none().then_some(()))).await?;
    let ran = recover(&held, &[]).await?;
    let gone =
        ran.stderr.contains("too late: its PersistentVolumeClaim") || ran.stderr.contains("has no process group");
    ensure!(ran.code == 1 && gone, "{}", ran.stderr);
    Ok(())
}

#[tokio::test]
async fn missing_rights_are_named_before_anything_is_changed() -> Result<()> {
    let held = held_storage("rights", untimed()).await;
    let ns = held.db.namespace();
    let role = json!([
        { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": "reader", "namespace": ns },
          "rules": [{ "apiGroups": ["", "apps.foundationdb.org"], "resources": ["*"], "verbs": ["get", "list", "watch"] },
                    { "apiGroups": ["apps.foundationdb.org"], "resources": ["foundationdbclusters"], "verbs": ["patch"] },
                    { "apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["patch"] }] },
        { "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "reader", "namespace": ns },
          "subjects": [{ "kind": "User", "name": "carol", "apiGroup": "rbac.authorization.k8s.io" }],
          "roleRef": { "kind": "Role", "name": "reader", "apiGroup": "rbac.authorization.k8s.io" } },
    ]);
    testbed::apply::all(&held.world.hub().await?, role.as_array().context("two objects")?).await?;
    let before = held.db.get().await?.resource_version();
    let lacks = [
        "nothing was changed: you do not have permission to",
        "foundationdbclusters.apps.foundationdb.org/status",
        "create pods/exec",
        "--include=never",
    ];
    recover(&held, &["--as", "carol"]).await?.says(1, &lacks)?;
    ensure!(held.db.get().await?.resource_version() == before);
    recover(&held, &["--as", "nobody"]).await?.says(1, &["forbidden"])
}

#[tokio::test]
async fn without_an_operator_it_times_out_and_is_finished_later() -> Result<()> {
    let held = held_storage("absent", untimed()).await;
    held.db.kill_operator().await?;
    let waits = ["the operator has not created its Pod yet", "Check that the operator runs", "The volumes are held"];
    // A run whose time is up before it comes to wait goes on in the next one.
    eventually(SOON, "a run that waits for the operator", async || {
        recover(&held, &["--timeout", "10s"]).await?.says(4, &waits)
    })
    .await?;
    let status =
        held.world.plugin(&["status", &format!("fdb/{}", held.db.name()), "-n", held.db.namespace()]).await?.ok()?;
    ensure!(status.contains("Recovering:"), "{status}");
    held.db.restart_operator().await?;
    recovers(&held).await.map(drop)
}

#[tokio::test]
async fn it_answers_to_kubectl_fdb_recover() -> Result<()> {
    let held = held_storage("alias", untimed()).await;
    let folder = tempfile::tempdir()?;
    let path = folder.path().to_string_lossy().into_owned();
    let ran = held.world.plugin(&["install-alias", &path]).await?;
    ensure!(ran.code == 0 && ran.stdout.contains("kubectl-fdb-recover written"), "{} {}", ran.stdout, ran.stderr);
    // The official plugin stands beside it and keeps everything else.
    let official = folder.path().join("kubectl-fdb");
    std::fs::write(&official, "#!/bin/sh\necho official \"$@\"\n")?;
    std::fs::set_permissions(&official, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let kubectl = async |args: &[&str]| {
        let mut command = held.world.command("kubectl");
        let paths = format!("{path}:{}:{}", held.world.program_path(), std::env::var("PATH").unwrap_or_default());
        command.args(args).env("PATH", paths);
        held.world.run(command).await
    };
    ensure!(kubectl(&["fdb", "analyze", "x"]).await?.ok()?.starts_with("official analyze x"));
    let pod = held.db.pod_name(&held.id);
    let base = ["fdb", "recover", "process-groups", &pod, "-n", held.db.namespace(), "-z", "1"];
    let ran = kubectl(&base).await?;
    ensure!(ran.code == 1 && ran.stderr.contains("user aborted"), "it asks, and nobody answers: {}", ran.stderr);
    ensure!(held.db.pod(&held.id).await?.is_none());
    let ran = kubectl(&[&base[..], &["--wait=false", "--version-check=false"]].concat()).await?;
    ensure!(ran.code == 0, "{}", ran.stderr);
    is_back(&held).await
}

#[tokio::test]
async fn the_status_shows_what_is_suspended() -> Result<()> {
    let held = held_storage("shown", untimed()).await;
    let target = format!("fdb/{}", held.db.name());
    let table = held.world.plugin(&["status", &target, "-n", held.db.namespace(), "-o", "wide"]).await?.ok()?;
    for part in [held.id.as_str(), "storage", "16Gi", "not stamped yet", "available, healthy"] {
        ensure!(table.contains(part), "{part}: {table}");
    }
    let list = held.world.plugin(&["status", &target, "-n", held.db.namespace(), "-o", "json"]).await?.json()?;
    let item = &list["items"][0];
    ensure!(item["suspended"][0]["group"] == json!(held.id) && item["suspended"][0]["class"] == "storage", "{list}");
    Ok(())
}

/// The database is away while the first pass after `resume` looks at it twice, and back when that pass counts the groups:
/// only the replacement goes.
#[tokio::test]
async fn an_operator_that_cannot_read_the_database_for_a_while_takes_nobody_else() -> Result<()> {
    for update_mode in MODES {
        let held =
            held_storage("blink", FdbOptions { storage: 8, removal_mode: "All".to_owned(), ..mode(update_mode) }).await;
        let others = held.db.ids("storage").await?;
        let words = line(&held, &[&held.id, "--yes", "--settle", "2s"]);
        let away = async {
            let edited = async || {
                let skips = held.db.get().await?.data["spec"]["skip"] == json!(true);
                let is_unmarked = held.db.group(&held.id).await?.is_some_and(|group| !group.is_marked());
                Ok((skips && is_unmarked).then_some(()))
            };
            held.db.wait("edited status", SOON, edited).await?;
            held.db.turn(&json!({ "failedFetches": 2 })).await
        };
        let (ran, _) = tokio::try_join!(held.world.plugin(&words), away)?;
        ensure!(ran.code == 0, "{update_mode:?}: {}", ran.stderr);
        let passes = held.db.log().await?.passes;
        ensure!(passes.iter().any(|pass| pass.ended - pass.began > 1.0), "two fetches failed: {passes:?}");
        is_back(&held).await?;
        held.db.wait_suspended(&held.replacement, SOON).await?;
        let wanted: Vec<&String> = others.iter().filter(|id| **id != held.replacement).collect();
        let left = held.db.ids("storage").await?;
        ensure!(
            left.len() == 8 && wanted.iter().all(|id| left.contains(*id)),
            "{update_mode:?}: {wanted:?} of {left:?}"
        );
        held.db.remove_all().await?;
    }
    Ok(())
}
