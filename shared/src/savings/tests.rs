//! Ledgers, periods, prices and sums.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::history::SleepHistory;
use super::ledger::{Ledger, LedgerError, MachineGroup, Sleep};
use super::period::{Month, Period, day_of, days, seconds};
use super::prices::Prices;
use super::report::{By, Reported, rows};
use crate::record::{Format, RecordError};

const UID: &str = "0b6f2c1e-3f53-4a51-8d6b-0d3f7a1c9e55";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn month(text: &str) -> Month {
    text.parse().unwrap()
}

fn slept(from: Timestamp, to: Timestamp, kinds: &[(&str, u64)]) -> Sleep {
    let span = (from, to);
    let group = |(kind, count): &(&str, u64)| MachineGroup { kind: (*kind).to_owned(), count: *count, asleep: span };
    Sleep { span, asleep: span, machines: kinds.iter().map(group).collect() }
}

fn history(ledger: Ledger) -> SleepHistory {
    SleepHistory { ledger, ..SleepHistory::default() }
}

#[test]
fn a_sleep_over_a_months_end_is_split_and_comes_back_as_it_was() {
    let mut ledger = Ledger::new(UID);
    ledger.end_sleep(&slept(
        at("2026-10-31T18:00:00Z"),
        at("2026-11-01T08:00:00Z"),
        &[("m6i.xlarge", 3), ("r6i.large", 1)],
    ));
    let text = ledger.text();
    assert_eq!(
        text,
        format!(
            "{{\"v\":1,\"uid\":\"{UID}\",\"at\":\"2026-11-01T08:00:00Z\",\"types\":[\"m6i.xlarge\",\"r6i.large\"],\"machines\":[],\
             \"months\":[[\"2026-10\",21600,0,[64800,21600]],[\"2026-11\",28800,0,[86400,28800]]],\
             \"day\":\"2026-11-01\",\"days\":[28800,21600]}}"
        )
    );
    let now = at("2026-11-02T00:00:00Z");
    assert_eq!(Ledger::of(&text, UID, now), Ok(ledger.clone()));
    let usage = |period| history(ledger.clone()).usage(period, now);
    let october = usage(Period::Month(month("2026-10")));
    assert_eq!((october.asleep, october.existed, october.machines["m6i.xlarge"]), (21_600, 31 * 86_400, 64_800));
    let days = usage(Period::last_days(30, now));
    assert_eq!((days.asleep, days.machines["r6i.large"]), (50_400, 50_400));
    let today = usage(Period::last_days(2, now));
    assert_eq!((today.asleep, today.machines["m6i.xlarge"]), (28_800, 86_400));
}

#[test]
fn what_is_forged_is_refused_by_name() {
    let mut ledger = Ledger::new(UID);
    ledger.begin_sleep([("m6i.xlarge".to_owned(), 3)]);
    ledger.end_sleep(&slept(at("2026-11-01T00:00:00Z"), at("2026-11-02T00:00:00Z"), &[("m6i.xlarge", 3)]));
    let (text, now) = (ledger.text(), at("2026-11-29T12:00:00Z"));
    let unreadable = LedgerError::Unreadable(RecordError::Unreadable);
    for (forged, expected) in [
        (text.replace(UID, "another"), LedgerError::OtherObject),
        (text.replace("2026-11", "9999-12").replace("9999-12-02T", "2026-11-02T"), LedgerError::Future),
        (text.replace("86400,0", "-86400,0"), unreadable.clone()),
        (text.replace("86400,0", "2678401,0"), unreadable.clone()),
        (text.replace("[259200]", "[259200,1]"), unreadable.clone()),
        (text.replace("\"machines\":[3]", "\"machines\":[10001]"), unreadable.clone()),
        (text.replace("\"v\":1", "\"v\":2"), LedgerError::Unreadable(RecordError::Version(2))),
        (text.replace("m6i.xlarge", &"x".repeat(1 << 20)), LedgerError::Unreadable(RecordError::TooLong(1_536))),
        ("{}".to_owned(), unreadable.clone()),
        (String::new(), unreadable),
    ] {
        assert_ne!(forged, text);
        assert_eq!(Ledger::of(&forged, UID, now), Err(expected.clone()), "{}", &forged[..forged.len().min(200)]);
        let (new, dropped) = Ledger::or_new(Some(&forged), UID, now);
        assert_eq!((new, dropped), (Ledger::new(UID), Some(expected)));
    }
    assert!(Ledger::of(&text, UID, now).is_ok());
}

#[test]
fn no_time_is_counted_twice_and_a_sleep_under_way_counts_up_to_now() {
    let mut ledger = Ledger::new(UID);
    ledger.begin_sleep([("m6i.xlarge".to_owned(), 2)]);
    let first = slept(at("2026-11-10T00:00:00Z"), at("2026-11-10T10:00:00Z"), &[("m6i.xlarge", 2)]);
    ledger.end_sleep(&first);
    ledger.end_sleep(&first);
    // A clock was set back in between.
    ledger.end_sleep(&slept(at("2026-11-10T08:00:00Z"), at("2026-11-10T11:00:00Z"), &[("m6i.xlarge", 2)]));
    let now = at("2026-11-11T02:00:00Z");
    let asleep_since = Some(at("2026-11-10T10:30:00Z"));
    let history = SleepHistory { asleep_since, ..history(ledger) };
    let usage = history.usage(Period::Month(month("2026-11")), now);
    assert_eq!((usage.asleep, usage.machines["m6i.xlarge"]), (26 * 3_600, 52 * 3_600));
    assert_eq!(history.usage(Period::last_days(1, now), now).asleep, 2 * 3_600);
}

#[test]
fn what_nothing_proves_is_unknown() {
    let mut ledger = Ledger::new(UID);
    let span = (at("2026-11-10T00:00:00Z"), at("2026-11-10T10:00:00Z"));
    let half = (span.0, at("2026-11-10T04:00:00Z"));
    let group = |asleep| MachineGroup { kind: "a".to_owned(), count: 1, asleep };
    ledger.end_sleep(&Sleep { span, asleep: half, machines: vec![group(span), group(half)] });
    let usage = history(ledger).usage(Period::Month(month("2026-11")), at("2026-12-01T00:00:00Z"));
    assert_eq!((usage.asleep, usage.unknown, usage.machines["a"]), (4 * 3_600, 6 * 3_600, 14 * 3_600));
}

#[test]
fn twenty_months_leave_fourteen_and_many_types_one_more() {
    let mut ledger = Ledger::new(UID);
    let mut begin = at("2025-01-31T20:00:00Z");
    for night in 0..20 * 30 {
        let kind = format!("type-{}", night % 9);
        ledger.end_sleep(&slept(begin, begin + SignedDuration::from_hours(12), &[(&kind, 20)]));
        begin += SignedDuration::from_hours(24);
    }
    let text = ledger.text();
    assert!(text.len() <= Ledger::MAX_BYTES, "{}", text.len());
    let read = Ledger::of(&text, UID, begin).unwrap();
    let of = |name: &str| history(read.clone()).usage(Period::Month(month(name)), begin).asleep;
    assert_eq!((of("2025-07"), of("2025-08") > 0, of("2026-09") > 0), (0, true, true));
    assert!(history(read).usage(Period::Month(month("2026-08")), begin).machines.contains_key("other"));
}

#[test]
fn prices_are_read_as_kubecost_writes_them_and_every_fault_is_named() {
    let text = "EndTimeStamp,InstanceID,Region,AssetClass,InstanceIDField,InstanceType,MarketPriceHourly,Version\n\
                2026-11-01T00:00:00Z,,us-east-1,node,spec.providerID,m6i.xlarge,0.192,\n\
                2026-11-01T00:00:00Z,,,node,,\"r6i.large\",0.126,\n\
                ,pvc-1,us-east-1,pv,,gp3,0.08,\n";
    let prices = Prices::read(text).unwrap();
    assert_eq!((prices.count(), prices.currency.as_str()), (2, "USD"));
    let cost = |kind: &str, region: &str| prices.cost(kind, region, 36_000).map(|cost| cost.to_string());
    assert_eq!(cost("M6I.xlarge", "US-EAST-1"), Some("1.92".to_owned()));
    assert_eq!(cost("m6i.xlarge", "eu-west-1"), None);
    assert_eq!(cost("r6i.large", "eu-west-1"), Some("1.26".to_owned()));
    let head = "InstanceType,Region,MarketPriceHourly,Currency";
    for (lines, expected) in [
        ("a,x,$1,USD", "line 2: MarketPriceHourly: found \"$1\", must be a number such as 0.192"),
        ("a,x,-1,USD", "line 2: MarketPriceHourly: found \"-1\", must be a number such as 0.192"),
        ("a,x,1,USD\nA,X,2,USD", "line 3: a second price of a in region \"x\""),
        ("a,x,1,USD\nb,x,2,EUR", "found prices in EUR, USD, must be in one currency"),
        ("a,x,1,Dollar", "line 2: Currency: found \"Dollar\", must be a code such as USD"),
        ("", "it has no price of a machine"),
    ] {
        assert_eq!(Prices::read(&format!("{head}\n{lines}\n")), Err(vec![expected.to_owned()]), "{lines}");
    }
    let missing = Prices::read("InstanceType,Price\na,1\n").unwrap_err();
    assert_eq!(missing, ["line 1: found no column MarketPriceHourly; InstanceType and MarketPriceHourly are needed"]);
}

#[test]
fn those_come_first_that_could_avoid_most() {
    let now = at("2026-11-30T00:00:00Z");
    let target = |name: &str, hours: i64, size: u64, schedule: Option<&str>| {
        let mut ledger = Ledger::new(UID);
        let begin = at("2026-11-02T00:00:00Z");
        ledger.begin_sleep([("m".to_owned(), size)]);
        ledger.end_sleep(&slept(begin, begin + SignedDuration::from_hours(hours), &[("m", size)]));
        let history = SleepHistory { created: at("2026-11-02T00:00:00Z"), ..history(ledger) };
        let held = (name == "b").then(|| "held awake for 4h by alice".to_owned());
        Reported {
            key: (String::new(), String::new(), name.to_owned()),
            name: name.to_owned(),
            history,
            schedule: schedule.map(str::to_owned),
            held,
        }
    };
    let all = [target("a", 0, 3, Some("nights")), target("b", 100, 6, None), target("c", 400, 9, Some("nights"))];
    let (found, total) = rows(&all, &By::Target, Period::Month(month("2026-11")), None, now);
    let names: Vec<&str> = found.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["b", "a", "c"]);
    // Four weeks have 472 hours of nights and weekends.
    assert_eq!((found[0].could_sleep_seconds, found[1].could_sleep_seconds), (372 * 3_600, 472 * 3_600));
    assert_eq!(found[0].notes, ["no schedule", "held awake for 4h by alice"]);
    assert_eq!((found[1].notes.as_slice(), found[2].could_sleep_seconds), (&["no sleep in period".to_owned()][..], 0));
    assert_eq!((total.targets, total.asleep_seconds, total.existed_seconds), (3, 500 * 3_600, 3 * 28 * 86_400));
}

/// Namespace, platform, and sleeps: when, how many hours, type and count of machines.
type DrawnTarget = (usize, usize, Vec<(i64, i64, usize, u64)>);

proptest! {
    #[test]
    fn days_of_a_span_add_up_to_it(from in 0i64..2_000_000_000, length in 0i64..30_000_000) {
        let span = (Timestamp::from_second(from).unwrap(), Timestamp::from_second(from + length).unwrap());
        prop_assert_eq!(days(span).map(|(_, part)| part).sum::<u64>(), seconds(span));
        prop_assert!(days(span).all(|(day, part)| part <= 86_400 && day >= day_of(span.0) && day <= day_of(span.1)));
    }

    #[test]
    fn sums_are_equal_however_targets_are_grouped(
        targets in prop::collection::vec((0usize..3, 0usize..3, prop::collection::vec((0i64..400, 1i64..72, 0usize..4, 1u64..20), 0..6)), 0..12),
    ) {
        let prices = Prices::read("InstanceType,Region,MarketPriceHourly\nk0,,0.1\nk1,,0.25\nk2,,1.5\n").unwrap();
        let now = at("2026-12-05T00:00:00Z");
        let target = |(at_target, (namespace, platform, sleeps)): (usize, DrawnTarget)| {
            let mut ledger = Ledger::new(UID);
            for (start, hours, kind, count) in sleeps {
                let begin = at("2026-11-01T00:00:00Z") + SignedDuration::from_hours(start);
                ledger.end_sleep(&slept(begin, begin + SignedDuration::from_hours(hours), &[(&format!("k{kind}"), count)]));
            }
            let labels = [("team".to_owned(), format!("t{namespace}"))].into();
            let history = SleepHistory { platform: format!("p{platform}"), labels, ..history(ledger) };
            Reported { name: format!("c{at_target}"), key: (String::new(), format!("n{namespace}"), format!("c{at_target}")), history, ..Reported::default() }
        };
        let all: Vec<Reported> = targets.into_iter().enumerate().map(target).collect();
        for period in [Period::Month(month("2026-11")), Period::last_days(31, now)] {
            let mut sums = Vec::new();
            for by in [By::Target, By::Namespace, By::Platform, By::Label("team".to_owned()), By::Type] {
                let (found, total) = rows(&all, &by, period, Some(&prices), now);
                let mut amount = super::prices::Amount::default();
                for row in &found {
                    amount += row.amount();
                }
                let machines: u64 = found.iter().map(super::report::Row::machines).sum();
                prop_assert_eq!((machines, amount), (total.machines(), total.amount()));
                if by != By::Type {
                    prop_assert_eq!(found.iter().map(|row| row.asleep_seconds).sum::<u64>(), total.asleep_seconds);
                }
                sums.push((machines, amount));
            }
            prop_assert!(sums.windows(2).all(|two| two[0] == two[1]));
        }
    }

    #[test]
    fn a_ledger_never_counts_more_than_the_sleeps(sleeps in prop::collection::vec((0i64..20_000, 0i64..2_000, 0i64..2_000), 0..40)) {
        let mut ledger = Ledger::new(UID);
        let mut total = 0;
        let mut until = Timestamp::MIN;
        for (start, length, proven) in sleeps {
            let begin = at("2025-06-01T00:00:00Z") + SignedDuration::from_mins(start * 10);
            let span = (begin, begin + SignedDuration::from_mins(length));
            let asleep = (span.0, (span.0 + SignedDuration::from_mins(proven)).min(span.1));
            ledger.end_sleep(&Sleep { span, asleep, machines: vec![MachineGroup { kind: "k".into(), count: 2, asleep }] });
            if span.1 >= until {
                total += seconds((asleep.0.max(until).min(asleep.1), asleep.1));
                until = span.1;
            }
        }
        let (asleep, machines) = ledger.totals();
        prop_assert!(asleep <= total, "{asleep} of {total}");
        prop_assert_eq!(machines.get("k").copied().unwrap_or_default(), asleep * 2);
        prop_assert!(Ledger::read(&ledger.text()).is_ok());
    }
}
