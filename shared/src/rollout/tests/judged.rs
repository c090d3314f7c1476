//! The rows about single targets (`PowerRollout`).

use super::*;
use crate::annotation::mark::tests::claim;
use crate::annotation::mark::{Action, Mark, Outcome};
use crate::kinds::view::Cause;
use crate::power::Power;
use crate::rollout::member::{Facts, Member, MemberState, Rollout, judge};

const OURS: &str = "ours";

fn rollout(action: Action) -> Rollout<'static> {
    Rollout {
        name: "night",
        uid: OURS,
        action,
        restores: None,
        attempt: 0,
        started: ago(600),
        as_of: None,
        may_start: true,
    }
}

/// Awake for a day, without a newer request.
fn awake() -> Facts<'static> {
    let (long, before) = (ago(86_400), ago(3_600));
    Facts {
        desired: Power::Running,
        observed: Some((Power::Running, long)),
        created: long,
        requested: Some(before),
        wakes_at: None,
        mark: None,
        refused: None,
        deferred: None,
        failed: None,
        held: None,
    }
}

fn asleep() -> Facts<'static> {
    Facts { desired: Power::Hibernating, observed: Some((Power::Hibernating, ago(3_600))), ..awake() }
}

fn judged(action: Action, facts: Facts<'_>) -> Member {
    judge(&rollout(action), &facts).unwrap()
}

fn says(action: Action, facts: Facts<'_>) -> (State, MemberState) {
    let member = judged(action, facts);
    (member.state, member.label)
}

#[test]
fn what_no_rollout_owns() {
    use Action::{Hibernate, Resume};
    let later = Some(ago(60));
    for (action, facts, expected) in [
        (Hibernate, awake(), (State::Pending, MemberState::Pending)),
        (Hibernate, asleep(), (State::Excluded, MemberState::AlreadyInState)),
        (Resume, awake(), (State::Excluded, MemberState::AlreadyInState)),
        // Asked for, and not there yet.
        (Hibernate, Facts { observed: None, ..asleep() }, (State::Pending, MemberState::Pending)),
        (Hibernate, Facts { refused: Some("V4: platform"), ..awake() }, (State::Excluded, MemberState::Refused)),
        (Hibernate, Facts { deferred: Some("held awake"), ..awake() }, (State::Deferred, MemberState::Deferred)),
        (
            Hibernate,
            Facts { refused: Some("V3"), deferred: Some("held"), ..awake() },
            (State::Excluded, MemberState::Refused),
        ),
        (Hibernate, Facts { requested: later, ..awake() }, (State::Excluded, MemberState::Overridden)),
        (Hibernate, Facts { requested: later, ..asleep() }, (State::Excluded, MemberState::AlreadyInState)),
        (Hibernate, Facts { requested: None, ..awake() }, (State::Pending, MemberState::Pending)),
    ] {
        assert_eq!(says(action, facts), expected, "{action} {facts:?}");
    }
    let young = Facts { created: ago(599), ..awake() };
    assert_eq!(judge(&rollout(Hibernate), &young), None, "created after the start");
}

#[test]
fn what_another_rollout_owns() {
    let (to_sleep, to_wake) = (claim("other", Power::Hibernating), claim("other", Power::Running));
    let newer = Mark { since: ago(60).to_string(), ..to_sleep.clone() };
    let to_sleep = Mark { since: ago(700).to_string(), ..to_sleep };
    let to_wake = Mark { since: ago(60).to_string(), ..to_wake };
    let under_way = |mark| Facts { mark: Some(mark), observed: None, requested: Some(ago(700)), ..asleep() };
    assert_eq!(
        says(Action::Resume, under_way(&newer)),
        (State::Deferred, MemberState::Deferred),
        "a newer Hibernate is a newer request"
    );
    assert_eq!(
        says(Action::Resume, under_way(&to_sleep)),
        (State::Pending, MemberState::Pending),
        "a wake takes it over"
    );
    let again = Facts { requested: Some(ago(50)), ..under_way(&to_sleep) };
    assert_eq!(
        says(Action::Resume, again),
        (State::Excluded, MemberState::Overridden),
        "a person has asked for sleep since"
    );
    let waking = Facts { desired: Power::Running, ..under_way(&to_wake) };
    let member = judged(Action::Hibernate, waking);
    assert_eq!((member.label, member.reason.as_str()), (MemberState::Deferred, "in progress in rollout night"));
    let record = Mark { since: ago(800).to_string(), ..to_wake }.end(Outcome::Succeeded, "", ago(700));
    let facts = Facts { mark: Some(&record), ..awake() };
    assert_eq!(says(Action::Hibernate, facts), (State::Pending, MemberState::Pending), "it has ended");
}

#[test]
fn what_this_rollout_owns() {
    let mark = Mark { since: ago(120).to_string(), ..claim(OURS, Power::Running) };
    let mine =
        Facts { mark: Some(&mark), desired: Power::Running, observed: None, requested: Some(ago(120)), ..asleep() };
    for (facts, state, says, since) in [
        (mine, State::Progressing, MemberState::Progressing, 120),
        (Facts { observed: Some((Power::Running, ago(30))), ..mine }, State::Succeeded, MemberState::Succeeded, 30),
        (Facts { observed: Some((Power::Running, ago(500))), ..mine }, State::Succeeded, MemberState::Succeeded, 120),
        (Facts { failed: Some(("denied", ago(20))), ..mine }, State::Failed, MemberState::Failed, 20),
        (
            Facts { held: Some((Cause::Capacity, ago(10))), ..mine },
            State::Held(Cause::Capacity),
            MemberState::Progressing,
            10,
        ),
    ] {
        let member = judged(Action::Resume, facts);
        assert_eq!((member.state, member.label, member.since), (state, says, Some(ago(since))), "{facts:?}");
        assert_eq!(member.started, Some(ago(120)));
    }
    let changed = Facts { desired: Power::Hibernating, ..mine };
    assert_eq!(says(Action::Resume, changed), (State::Excluded, MemberState::Overridden), "by any client");
    let refused = Facts { refused: Some("V3"), deferred: Some("held"), ..mine };
    assert_eq!(
        says(Action::Resume, refused),
        (State::Progressing, MemberState::Progressing),
        "what is under way goes on"
    );
}

#[test]
fn what_this_rollout_has_ended() {
    fn facts(mark: &Mark) -> Facts<'_> {
        Facts { mark: Some(mark), observed: None, requested: Some(ago(550)), ..asleep() }
    }
    let record = |result| claim(OURS, Power::Hibernating).end(result, "why", ago(100));
    for (result, state, word) in [
        (Outcome::Succeeded, State::Succeeded, MemberState::Succeeded),
        (Outcome::Failed, State::TimedOut, MemberState::Failed),
        (Outcome::TimeOut, State::TimedOut, MemberState::TimeOut),
        (Outcome::Overridden, State::Excluded, MemberState::Overridden),
        (Outcome::Abandoned, State::Excluded, MemberState::Abandoned),
    ] {
        let (record, again) = (record(result), Rollout { attempt: 1, ..rollout(Action::Hibernate) });
        let member = judged(Action::Hibernate, facts(&record));
        assert_eq!((member.state, member.label, member.since), (state, word, Some(ago(100))), "{result}");
        assert_eq!(member.reason, "why");
        let retried = judge(&again, &facts(&record)).unwrap().label;
        let is_retried = matches!(result, Outcome::Failed | Outcome::TimeOut);
        assert_eq!(retried, if is_retried { MemberState::Pending } else { word }, "{result}: retryFailed");
        let asked = Facts { requested: Some(ago(90)), ..facts(&record) };
        let overridden = judge(&again, &asked).unwrap().label;
        assert_eq!(overridden, if is_retried { MemberState::Overridden } else { word }, "{result}: asked for since");
    }
}

#[test]
fn a_restore_gives_back_what_the_records_of_the_other_rollout_say() {
    let undo = Rollout { restores: Some("other"), ..rollout(Action::Restore) };
    let record = claim("other", Power::Hibernating).end(Outcome::Succeeded, "", ago(3_000));
    let facts = Facts { mark: Some(&record), ..asleep() };
    let member = judge(&undo, &facts).unwrap();
    assert_eq!((member.label, member.wanted), (MemberState::Pending, Power::Running));
    assert_eq!(judge(&undo, &asleep()), None, "without a record it is no member");
    let foreign = claim("third", Power::Hibernating).end(Outcome::Succeeded, "", ago(3_000));
    assert_eq!(judge(&undo, &Facts { mark: Some(&foreign), ..asleep() }), None);
    let slept_again = Facts { requested: Some(ago(2_000)), ..facts };
    assert_eq!(
        judge(&undo, &slept_again).unwrap().label,
        MemberState::Overridden,
        "a person has put it to sleep since"
    );
    let awake_since = Facts { mark: Some(&record), observed: None, ..awake() };
    assert_eq!(judge(&undo, &awake_since).unwrap().label, MemberState::Overridden, "not as that rollout left it");
    // Another attempt undoes to the same state.
    let first = undo.claim(&facts, Power::Running, 0, ago(50));
    assert_eq!((first.before, first.wanted, first.is_claim_of(OURS)), (Power::Hibernating, Power::Running, true));
    let failed = first.end(Outcome::Failed, "", ago(40));
    let failed = Facts { mark: Some(&failed), desired: Power::Running, ..facts };
    assert_eq!(undo.claim(&failed, Power::Running, 0, ago(30)).before, Power::Hibernating);
    // Once it is claimed, the record of the other rollout is gone, and the claim says what is wanted.
    let own = Mark { action: Action::Restore, ..claim(OURS, Power::Running) };
    let claimed = Facts { mark: Some(&own), observed: None, ..awake() };
    assert_eq!(judge(&undo, &claimed).unwrap().label, MemberState::Progressing);
}

#[test]
fn what_was_changed_since_a_schedule_asked_is_left_as_it_is() {
    let at = |action, as_of| Rollout { as_of: Some(ago(as_of)), ..rollout(action) };
    let of = |rollout: &Rollout<'_>, facts: &Facts<'_>| {
        let member = judge(rollout, facts).expect("a member");
        (member.state, member.reason)
    };
    let (night, overridden) =
        (at(Action::Hibernate, 7_200), "a newer request was made after its schedule asked for this state");
    assert_eq!(of(&night, &awake()), (State::Excluded, overridden.to_owned()), "the rollout is late");
    assert_eq!(of(&at(Action::Hibernate, 3_600), &awake()).0, State::Pending, "in the second of the edge");
    let morning = at(Action::Resume, 600);
    let asleep = Facts { desired: Power::Hibernating, observed: Some((Power::Hibernating, ago(9_000))), ..awake() };
    assert_eq!(of(&morning, &asleep).0, State::Pending);
    let (state, reason) = of(&morning, &Facts { wakes_at: Some(ago(-60)), ..asleep });
    assert!(state == State::Excluded && reason.ends_with("as requested: a schedule wakes it no earlier"), "{reason}");
    assert_eq!(of(&morning, &Facts { wakes_at: Some(ago(601)), ..asleep }).0, State::Pending);
    assert_eq!(
        of(&rollout(Action::Resume), &Facts { wakes_at: Some(ago(-60)), ..asleep }).0,
        State::Pending,
        "a person's"
    );
}
