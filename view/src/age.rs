//! When, how long ago and how long: lengths as kubectl and Go print them.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use shared::duration;
use shared::schedule::zone::zone;

/// `38s`, `2m5s`, `1h0m5s`: whole seconds as Go prints them.
pub fn elapsed(duration: Duration) -> String {
    duration::go_string(Duration::from_secs(duration.as_secs()))
}

/// `5m`, `3h`, `2d5h`: the rules of kubectl's AGE column. A time in the future is `0s`.
pub fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = (now.as_second() - since.as_second()).max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let with = |whole: i64, unit: &str, rest: i64, rest_unit: &str| match rest {
        0 => format!("{whole}{unit}"),
        rest => format!("{whole}{unit}{rest}{rest_unit}"),
    };
    match (minutes, hours, days) {
        _ if seconds < 120 => format!("{seconds}s"),
        (..10, _, _) => with(minutes, "m", seconds % 60, "s"),
        (..180, _, _) => format!("{minutes}m"),
        (_, ..8, _) => with(hours, "h", minutes % 60, "m"),
        (_, ..48, _) => format!("{hours}h"),
        (_, ..192, _) => with(days, "d", hours % 24, "h"),
        (_, _, ..730) => format!("{days}d"),
        (_, _, ..2920) => with(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

/// `2026-11-30T07:30+01:00`: the civil time of a zone by its name; of UTC if there is no such zone.
pub fn local(at: Timestamp, name: &str) -> String {
    at.to_zoned(zone(name).unwrap_or(TimeZone::UTC)).strftime("%Y-%m-%dT%H:%M%:z").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elapsed_time_has_no_fractions() {
        assert_eq!(elapsed(Duration::from_millis(38_900)), "38s");
        assert_eq!(elapsed(Duration::from_secs(125)), "2m5s");
    }

    /// The examples of kubectl's own test of its ages.
    #[test]
    fn ages_are_kubectls() {
        const HOUR: i64 = 3600;
        const DAY: i64 = 24 * HOUR;
        for (seconds, text) in [
            (-5, "0s"),
            (1, "1s"),
            (119, "119s"),
            (130, "2m10s"),
            (600, "10m"),
            (1 + 10 * 60, "10m"),
            (179 * 60, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 600, "3h10m"),
            (7 * HOUR + 1200, "7h20m"),
            (8 * HOUR + 1200, "8h"),
            (47 * HOUR, "47h"),
            (2 * DAY, "2d"),
            (49 * HOUR, "2d1h"),
            (8 * DAY + 2 * HOUR, "8d"),
            (367 * DAY, "367d"),
            (2 * 365 * DAY, "2y"),
            (2 * 365 * DAY + 9 * DAY, "2y9d"),
            (8 * 365 * DAY + 9 * DAY, "8y"),
        ] {
            let now = Timestamp::from_second(1_800_000_000).unwrap();
            let since = Timestamp::from_second(1_800_000_000 - seconds).unwrap();
            assert_eq!(age(since, now), text, "{seconds}");
        }
    }
}
