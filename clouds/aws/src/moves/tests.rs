//! One cluster's bad instance never spoils another cluster's.

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use shared::cloud::InstanceState;

use super::*;
use crate::call::StateChanges;

mod codes;

/// EC2 as far as refusals go: a batch with a bad instance is refused as a whole.
#[derive(Default)]
struct Ec2 {
    calls: Mutex<Vec<Vec<String>>>,
    /// Instances that are refused, with the code; whether EC2 names them.
    bad: Mutex<Vec<(&'static str, &'static str)>>,
    names: bool,
    /// More instances than this are too many for EC2 at once.
    room: Option<usize>,
    /// What every call answers, whatever is asked.
    broken: Option<CloudErrorKind>,
    /// How long a call waits for its turn.
    busy: Duration,
    one_time: Mutex<Vec<String>>,
    /// How many instances EC2's limits admit, turn by turn; all if absent.
    admits: Mutex<Option<std::vec::IntoIter<usize>>>,
}

impl Ec2Api for Ec2 {
    fn admit(&self, _: Verb, instances: usize) -> BoxFuture<'_, usize> {
        let admits = self.admits.lock().as_mut().map_or(Some(instances), Iterator::next);
        match admits {
            Some(admitted) => std::future::ready(admitted.min(instances)).boxed(),
            None => std::future::pending().boxed(),
        }
    }

    fn turn(&self, _: Verb) -> BoxFuture<'_, ()> {
        tokio::time::sleep(self.busy).boxed()
    }

    fn send<'a>(&'a self, _: Verb, ids: &'a [String]) -> BoxFuture<'a, Result<StateChanges, Failure>> {
        self.calls.lock().push(ids.to_vec());
        let failure = |code: &str, message: String, status, kind| Failure { code: code.into(), message, status, kind };
        let bad = self.bad.lock().clone();
        let bad = bad.iter().find(|(bad, _)| ids.iter().any(|id| id == bad));
        let result = match (self.broken, bad) {
            (Some(kind), _) => Err(failure("Broken", "no".into(), 503, kind)),
            (None, Some((id, code))) => {
                let message =
                    if self.names { format!("The instance '{id}' is a one-time Spot Instance") } else { "no".into() };
                match *code {
                    "UnauthorizedOperation" => Err(failure(code, message, 403, CloudErrorKind::Denied)),
                    "InsufficientInstanceCapacity" => Err(failure(code, message, 500, CloudErrorKind::Capacity)),
                    _ => Err(failure(code, message, 400, CloudErrorKind::Invalid)),
                }
            }
            (None, None) if self.room.is_some_and(|room| ids.len() > room) => {
                Err(failure("InsufficientInstanceCapacity", "full".into(), 500, CloudErrorKind::Capacity))
            }
            (None, None) => Ok(ids.iter().map(|id| (id.clone(), InstanceState::Stopping)).collect()),
        };
        async move { result }.boxed()
    }

    fn failed(&self, call: &str, failure: Failure) -> CloudError {
        CloudError { kind: failure.kind, message: call.to_owned() }
    }

    fn cannot_stop(&self, id: &str) {
        self.one_time.lock().push(id.to_owned());
    }
}

fn refusing(bad: &[(&'static str, &'static str)]) -> Ec2 {
    Ec2 { bad: Mutex::new(bad.to_vec()), ..Ec2::default() }
}

fn list(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

/// What a caller is told: moved and refused, or the kind of failure.
type Replied = Result<(Vec<String>, Vec<String>), CloudErrorKind>;

/// All callers at once: what each is told, and EC2's calls.
async fn stop(ec2: Ec2, callers: &[&[&str]]) -> (Vec<Replied>, Arc<Ec2>) {
    let ec2 = Arc::new(ec2);
    let moves = Moves::new(Verb::Stop, ec2.clone());
    let callers: Vec<_> = callers.iter().map(|ids| list(ids)).collect();
    let noted = join_all(callers.iter().map(|ids| moves.all(ids))).await;
    let noted = noted.into_iter().map(|noted| {
        let noted = noted.map_err(|error| error.kind)?;
        Ok((noted.moved.into_iter().map(|(id, _)| id).collect(), noted.refused.into_iter().map(|r| r.id).collect()))
    });
    (noted.collect(), ec2)
}

#[expect(clippy::unnecessary_wraps, reason = "it stands for what a caller is told")]
fn ok(moved: &[&str], refused: &[&str]) -> Replied {
    Ok((list(moved), list(refused)))
}

const TWO: &[&[&str]] = &[&["i-b", "i-a"], &["i-c", "i-d"]];

#[tokio::test(start_paused = true)]
async fn callers_at_the_same_time_share_a_call_and_each_hears_its_own() {
    let (noted, ec2) = stop(Ec2::default(), TWO).await;
    assert_eq!(noted, [ok(&["i-b", "i-a"], &[]), ok(&["i-c", "i-d"], &[])]);
    assert_eq!(*ec2.calls.lock(), [list(&["i-b", "i-a", "i-c", "i-d"])], "in the order given");
}

#[tokio::test(start_paused = true)]
async fn a_named_instance_is_left_out_and_the_others_go() {
    let ec2 = refusing(&[("i-a", "OperationNotPermitted"), ("i-d", "UnsupportedOperation")]);
    let (noted, ec2) = stop(Ec2 { names: true, ..ec2 }, TWO).await;
    assert_eq!(noted, [ok(&["i-b"], &["i-a"]), ok(&["i-c"], &["i-d"])]);
    let calls = ec2.calls.lock();
    assert_eq!(calls[1..], [list(&["i-b", "i-c", "i-d"]), list(&["i-b", "i-c"])]);
    assert_eq!(*ec2.one_time.lock(), ["i-d"], "by its code and its words");
}

#[tokio::test(start_paused = true)]
async fn while_nothing_changes_a_later_try_is_one_call() {
    let bad = [("i-a", "IncorrectInstanceState"), ("i-b", "IncorrectInstanceState"), ("i-c", "IncorrectInstanceState")];
    let ec2 = Arc::new(Ec2 { names: true, ..refusing(&bad) });
    let moves = Moves::new(Verb::Stop, ec2.clone());
    let all = list(&["i-a", "i-b", "i-c"]);
    let mut calls = Vec::new();
    for _ in 0..5 {
        let outcome = moves.all(&all).await.unwrap();
        let mut refused: Vec<_> = outcome.refused.into_iter().map(|refusal| refusal.id).collect();
        refused.sort();
        assert_eq!((outcome.moved.len(), refused), (0, all.clone()), "all are still reported");
        calls.push(std::mem::take(&mut *ec2.calls.lock()));
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
    assert_eq!(calls[0], [all.clone(), list(&["i-b", "i-c"]), list(&["i-c"])], "who is to blame is found out once");
    assert_eq!(calls[1..], [[all.clone()], [list(&["i-b", "i-c"])], [list(&["i-c"])], [all.clone()]]);

    // The cause is gone: all go with the next try, also whoever would sit it out.
    ec2.bad.lock().clear();
    assert_eq!(moves.all(&all).await.unwrap().moved.len(), 3);
    assert_eq!(*ec2.calls.lock(), [list(&["i-b", "i-c"]), list(&["i-a"])]);
}

#[tokio::test(start_paused = true)]
async fn those_that_stay_bad_hold_up_no_other_for_long() {
    let all = list(&["i-a", "i-b", "i-c", "i-d"]);
    let bad = all.iter().map(|id| (&*Box::leak(id.clone().into_boxed_str()), "OperationNotPermitted"));
    let bad: Vec<_> = bad.collect();
    for stay in 1..4 {
        let ec2 = Arc::new(Ec2 { names: true, ..refusing(&bad) });
        let moves = Moves::new(Verb::Stop, ec2.clone());
        let (mut left, mut tries) = (all.clone(), 0);
        moves.all(&left).await.unwrap();
        ec2.bad.lock().truncate(stay);
        while left.len() > stay {
            let outcome = moves.all(&left).await.unwrap();
            left.retain(|id| !outcome.moved.iter().any(|(moved, _)| moved == id));
            tries += 1;
            assert!(tries <= 4, "{left:?} are left");
        }
        assert_eq!(left, all[..stay]);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_name_each_goes_by_itself() {
    let (noted, ec2) = stop(refusing(&[("i-c", "IncorrectInstanceState")]), TWO).await;
    assert_eq!(noted, [ok(&["i-b", "i-a"], &[]), ok(&["i-d"], &["i-c"])]);
    let calls = ec2.calls.lock();
    assert_eq!(calls[1..], [list(&["i-b", "i-a"]), list(&["i-c", "i-d"]), list(&["i-c"]), list(&["i-d"])]);
}

#[tokio::test(start_paused = true)]
async fn what_is_denied_for_one_is_done_for_the_others() {
    let (noted, _) = stop(refusing(&[("i-c", "UnauthorizedOperation")]), TWO).await;
    assert_eq!(noted, [ok(&["i-b", "i-a"], &[]), Err(CloudErrorKind::Denied)]);
    // Three in a row, and nobody else is asked about.
    let callers: &[&[&str]] = &[&["i-1"], &["i-2"], &["i-3"], &["i-4"], &["i-5"]];
    let (noted, ec2) = stop(Ec2 { broken: Some(CloudErrorKind::Denied), ..Ec2::default() }, callers).await;
    assert!(noted.iter().all(|noted| *noted == Err(CloudErrorKind::Denied)), "{noted:?}");
    assert_eq!(ec2.calls.lock().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn whoever_is_denied_lets_others_go_first_next_time() {
    let names: Vec<&'static str> = (0..9).map(|n| &*Box::leak(format!("i-{n}").into_boxed_str())).collect();
    let bad: Vec<_> = names[..8].iter().map(|id| (*id, "UnauthorizedOperation")).collect();
    let ec2 = Arc::new(refusing(&bad));
    let moves = Moves::new(Verb::Stop, ec2.clone());
    let callers: Vec<_> = names.iter().map(|id| list(&[id])).collect();
    let mut tries = 0;
    loop {
        let noted = join_all(callers.iter().map(|ids| moves.all(ids))).await;
        assert!(noted[..8].iter().all(Result::is_err), "{noted:?}");
        tries += 1;
        if noted[8].is_ok() {
            break;
        }
        assert!(tries < 3, "the one that may be stopped is never asked for");
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_room_for_all_each_goes_by_itself() {
    let callers: &[&[&str]] = &[&["i-1"], &["i-2", "i-3", "i-4"], &["i-5"]];
    let (noted, _) = stop(Ec2 { room: Some(2), ..Ec2::default() }, callers).await;
    assert_eq!(noted, [ok(&["i-1"], &[]), ok(&["i-2", "i-3", "i-4"], &[]), ok(&["i-5"], &[])]);
    // Without any room, all of them are refused, and not tried one by one again soon; then others are.
    let ec2 = Arc::new(Ec2 { room: Some(0), ..Ec2::default() });
    let moves = Moves::new(Verb::Start, ec2.clone());
    let all: Vec<String> = (0..8).map(|n| format!("i-{n}")).collect();
    let mut tried = Vec::new();
    for calls in [6, 1, 1, 4] {
        let refused = moves.all(&all).await.unwrap().refused;
        assert_eq!(refused.iter().filter(|refusal| refusal.kind == CloudErrorKind::Capacity).count(), 8, "{refused:?}");
        let made = std::mem::take(&mut *ec2.calls.lock());
        assert!(made.len() >= calls, "{made:?}");
        tried.extend(made.into_iter().filter(|ids| ids.len() == 1).flatten());
        tokio::time::sleep(Duration::from_secs(101)).await;
    }
    tried.sort();
    tried.dedup();
    assert_eq!(tried, all, "everybody has been asked for by itself");
}

#[tokio::test(start_paused = true)]
async fn one_without_room_costs_the_others_little() {
    let callers: Vec<_> = (0..33).map(|c| (0..3).map(|i| format!("i-{c}-{i}")).collect::<Vec<_>>()).collect();
    let full = [("i-7-1", "InsufficientInstanceCapacity"), ("i-20-0", "InsufficientInstanceCapacity")];
    let ec2 = Arc::new(Ec2 { busy: Duration::from_secs(1), ..refusing(&full) });
    let moves = Moves::new(Verb::Start, ec2.clone());
    let begun = Instant::now();
    let noted =
        join_all(callers.iter().map(async |ids| (moves.all(ids).await.unwrap(), begun.elapsed().as_secs()))).await;
    let calls = ec2.calls.lock();
    assert_eq!(
        calls.len(),
        1 + 7 + 10 + 6,
        "all, groups of five, two of these each by itself, two of these one by one"
    );
    for (at, ((noted, after), ids)) in noted.into_iter().zip(&callers).enumerate() {
        let is_full = |id: &String| full.iter().any(|(full, _)| full == id);
        let refused: Vec<_> = noted.refused.iter().map(|refusal| refusal.id.clone()).collect();
        assert_eq!(refused, ids.iter().filter(|id| is_full(id)).cloned().collect::<Vec<_>>());
        assert_eq!(noted.moved.len() + refused.len(), 3);
        let with_a_full_one = [7, 20].iter().any(|full| full / 5 == at / 5);
        assert!(with_a_full_one || after <= 8, "{at} was told after {after} s");
    }
}

#[tokio::test(start_paused = true)]
async fn without_any_room_few_are_tried_one_by_one() {
    let callers: Vec<_> = (0..16).map(|c| (0..3).map(|i| format!("i-{c}-{i}")).collect::<Vec<_>>()).collect();
    let ec2 = Arc::new(Ec2 { room: Some(0), ..Ec2::default() });
    let moves = Moves::new(Verb::Start, ec2.clone());
    let mut tried = HashSet::new();
    for tries in 1..10 {
        let noted = join_all(callers.iter().map(|ids| moves.all(ids))).await;
        assert!(noted.into_iter().all(|noted| noted.unwrap().refused.len() == 3));
        let calls = std::mem::take(&mut *ec2.calls.lock());
        assert!(calls.len() <= 1 + 4 + 16 + 6, "{tries}: {}", calls.len());
        tried.extend(calls.into_iter().filter(|ids| ids.len() == 1).flatten());
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    assert_eq!(tried.len(), 16 * 3, "but everybody in the end");
}

/// Two callers without any room use up the round: those behind them are tried one by one as well, and soon.
#[tokio::test(start_paused = true)]
async fn whoever_waits_behind_many_without_room_has_its_turn() {
    let machines = |caller: usize| (0..5).map(move |i| &*Box::leak(format!("i-{caller:02}-{i}").into_boxed_str()));
    let callers: Vec<Vec<&'static str>> = (0..20).map(|caller| machines(caller).collect()).collect();
    let room = ["i-19-3", "i-19-4"];
    let full = callers.iter().flatten().filter(|id| !room.contains(id)).map(|id| (*id, "InsufficientInstanceCapacity"));
    let ec2 = Arc::new(refusing(&full.collect::<Vec<_>>()));
    let moves = Moves::new(Verb::Start, ec2);
    let callers: Vec<_> = callers.iter().map(|ids| list(ids)).collect();
    let mut moved = Vec::new();
    for tries in 1..=21 {
        let noted = join_all(callers.iter().map(|ids| moves.all(ids))).await;
        moved.extend(noted.into_iter().flat_map(|noted| noted.unwrap().moved).map(|(id, _)| id));
        if room.iter().all(|id| moved.iter().any(|moved| moved == id)) {
            return;
        }
        assert!(tries < 21, "{moved:?}");
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_as_a_whole_is_told_to_everybody_and_not_repeated() {
    for (kind, calls) in [(CloudErrorKind::Throttled, 1), (CloudErrorKind::Unavailable, 1), (CloudErrorKind::Denied, 3)]
    {
        let (noted, ec2) = stop(Ec2 { broken: Some(kind), ..Ec2::default() }, TWO).await;
        assert_eq!(noted, [Err(kind), Err(kind)]);
        assert_eq!(ec2.calls.lock().len(), calls, "{kind:?}: a policy may be about one of them alone");
    }
}

#[tokio::test(start_paused = true)]
async fn one_who_gives_up_takes_nothing_from_the_others() {
    let ec2 = Arc::new(Ec2::default());
    let moves = Moves::new(Verb::Stop, ec2.clone());
    let (left, stays) = (list(&["i-1"]), list(&["i-2"]));
    let gives_up = tokio::time::timeout(BATCH_WINDOW / 2, moves.all(&left));
    let (gave_up, stayed) = tokio::join!(gives_up, moves.all(&stays));
    assert!(gave_up.is_err() && stayed.is_ok_and(|outcome| outcome.moved.len() == 1));
    assert_eq!(*ec2.calls.lock(), [stays]);
}

#[tokio::test(start_paused = true)]
async fn what_is_given_up_while_its_call_waits_for_its_turn_is_not_sent() {
    let ec2 = Arc::new(Ec2 { busy: Duration::from_secs(5), ..Ec2::default() });
    let moves = Moves::new(Verb::Stop, ec2.clone());
    let (left, stays, alone) = (list(&["i-1"]), list(&["i-2"]), list(&["i-3"]));
    let gives_up = tokio::time::timeout(Duration::from_secs(1), moves.all(&left));
    let (gave_up, stayed) = tokio::join!(gives_up, moves.all(&stays));
    assert!(gave_up.is_err() && stayed.is_ok_and(|outcome| outcome.moved.len() == 1));
    assert!(tokio::time::timeout(Duration::from_secs(1), moves.all(&alone)).await.is_err());
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(*ec2.calls.lock(), [stays]);
}

#[tokio::test(start_paused = true)]
async fn callers_that_come_while_a_call_waits_for_its_turn_share_it() {
    let ec2 = Arc::new(Ec2 { busy: Duration::from_secs(1), ..Ec2::default() });
    let moves = Moves::new(Verb::Start, ec2.clone());
    let callers: Vec<_> = (0..8).map(|caller| list(&[&format!("i-{caller}")])).collect();
    let noted = join_all(callers.iter().zip(0..).map(async |(ids, caller)| {
        tokio::time::sleep(Duration::from_millis(125) * caller).await;
        moves.all(ids).await
    }));
    assert!(noted.await.into_iter().all(|noted| noted.unwrap().moved.len() == 1));
    assert_eq!(*ec2.calls.lock(), [callers.concat()]);
}

#[tokio::test(start_paused = true)]
async fn no_call_has_more_than_a_hundred() {
    let names: Vec<Vec<String>> = (0..30).map(|c| (0..7).map(|i| format!("i-{c}-{i}")).collect()).collect();
    let many: Vec<String> = (0..250).map(|i| format!("i-{i}")).collect();
    let ec2 = Arc::new(Ec2::default());
    let moves = Moves::new(Verb::Stop, ec2.clone());
    let noted = join_all(names.iter().chain([&many]).map(|ids| moves.all(ids))).await;
    assert!(noted.iter().zip(names.iter().chain([&many])).all(|(noted, ids)| {
        let moved = noted.as_ref().unwrap().moved.iter().map(|(id, _)| id);
        moved.eq(ids)
    }));
    let calls = ec2.calls.lock();
    assert!(calls.iter().all(|ids| ids.len() <= 100) && calls.len() <= 7, "{}", calls.len());
}

proptest::proptest! {
    /// Whoever is bad, whether EC2 says who or not: everybody's good instances are moved, and the bad ones refused.
    #[test]
    fn the_good_are_moved_and_the_bad_refused(
        sizes in proptest::collection::vec(1usize..6, 1..6), bad in proptest::collection::vec(0usize..30, 0..4), named: bool,
    ) {
        let all: Vec<&'static str> = (0..30).map(|n| &*Box::leak(format!("i-{n}").into_boxed_str())).collect();
        let mut next = all.iter().copied();
        let callers: Vec<Vec<&str>> = sizes.iter().map(|size| next.by_ref().take(*size).collect()).collect();
        let callers: Vec<&[&str]> = callers.iter().map(Vec::as_slice).collect();
        let bad: Vec<_> = bad.iter().map(|n| all[*n]).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let bad_ones: Vec<_> = bad.iter().map(|id| (*id, "IncorrectState")).collect();
        let ec2 = Ec2 { names: named, ..refusing(&bad_ones) };
        let (noted, _) = runtime.block_on(stop(ec2, &callers));
        for (noted, ids) in noted.into_iter().zip(callers) {
            let (mut moved, mut refused) = noted.unwrap();
            let (mut good, mut wrong) = (list(ids), list(ids));
            good.retain(|id| !bad.contains(&id.as_str()));
            wrong.retain(|id| bad.contains(&id.as_str()));
            for ids in [&mut moved, &mut refused, &mut good, &mut wrong] {
                ids.sort();
            }
            proptest::prop_assert_eq!((moved, refused), (good, wrong));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_ec2_does_not_admit_is_left_for_the_next_time() {
    let ids: Vec<String> = (0..150).map(|number| format!("i-{number}")).collect();
    for (admits, expected) in [
        (vec![100, 50], Ok((150, false))),
        (vec![100, 7], Ok((107, true))),
        (vec![6], Ok((6, true))),
        (vec![100], Ok((100, true))),
        (vec![], Err(())),
    ] {
        let ec2 = Ec2 { admits: Mutex::new(Some(admits.clone().into_iter())), ..Ec2::default() };
        let outcome = Moves::new(Verb::Start, Arc::new(ec2)).all(&ids).await;
        let moved = outcome.map(|outcome| (outcome.moved.len(), outcome.unfinished)).map_err(|error| {
            assert_eq!(error.kind, CloudErrorKind::Throttled);
            assert_eq!(
                error.message,
                "StartInstances waits for its turn: EC2 limits the instances of an account and region"
            );
        });
        assert_eq!(moved, expected, "{admits:?}");
    }
}
