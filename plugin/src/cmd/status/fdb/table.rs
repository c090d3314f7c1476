//! Clusters as a person reads them.

use std::time::Duration;

use jiff::Timestamp;
use shared::annotation::{format, keys};
use shared::fdb::api::Health;
use shared::fdb::suspension::Minimum;

use super::record::{ClusterRecord, GroupRecord};
use crate::cli::{StatusArgs, StatusOutput};
use crate::output;
use crate::output::age::age;

/// Prints the clusters for a person.
pub(crate) fn show(records: &[ClusterRecord], args: &StatusArgs) {
    for (at, record) in records.iter().enumerate() {
        if at > 0 {
            output::line("");
        }
        for line in table(record, !args.no_headers, args.output == StatusOutput::Wide, Timestamp::now()) {
            output::line(&line);
        }
        if record.protected == "no" && record.minimum_suspension.is_some() {
            let why = record.unprotected_because.as_deref().unwrap_or_default();
            output::warning(&format!("{}/{} is NOT PROTECTED: {why}", record.namespace, record.name));
        }
    }
}

/// One cluster, line by line.
pub(crate) fn table(record: &ClusterRecord, headers: bool, wide: bool, now: Timestamp) -> Vec<String> {
    let protection = match (record.protected, &record.unprotected_because) {
        ("no", _) => "NOT PROTECTED".to_owned(),
        ("unknown", Some(why)) => format!("unknown ({why})"),
        (word, _) => word.to_owned(),
    };
    let mut lines = vec![
        format!("{}/{}", record.namespace, record.name),
        format!("  Health:      {}", health(record.health.as_ref())),
        format!("  Suspension:  {}", suspension(record.minimum_suspension.as_deref())),
        format!("  Protected:   {protection}"),
    ];
    if !record.unlocked.is_empty() {
        lines.push(format!("  NOT PROTECTED: {}, because of {}", record.unlocked.join(", "), keys::RELEASE));
    }
    if !record.excluded.is_empty() {
        lines.push(format!(
            "  EXCLUDED:    {}: not removed, but excluded in the database; the operator replaces a group that stays excluded (run \
             `recover process-groups` again, or include it)",
            record.excluded.join(", ")
        ));
    }
    if record.skipped {
        lines.push("  Operator:    paused (spec.skip is true)".to_owned());
    }
    if !record.recovering.is_empty() {
        lines.push(format!(
            "  Recovering:  {} (if there is no progress, run `recover process-groups` again)",
            record.recovering.join(", ")
        ));
    }
    if record.suspended.is_empty() {
        lines.push("  Suspended:   nothing".to_owned());
        return lines;
    }
    let mut header = vec!["GROUP", "CLASS", "ZONE", "SINCE", "EXPIRES", "SIZE"];
    if wide {
        header.extend(["WHY", "CLAIM"]);
    }
    let rows = record.suspended.iter().map(|group| {
        let mut cells = vec![
            group.group.clone(),
            group.class.clone(),
            group.zone.clone().unwrap_or_default(),
            group.since.map_or_else(|| "not stamped yet".to_owned(), |since| age(since, now)),
            expires(group, now),
            group.size.clone(),
        ];
        if wide {
            cells.extend([group.why.clone().unwrap_or_default(), group.claim.clone()]);
        }
        cells
    });
    lines.extend(output::table(if headers { &header } else { &[] }, rows));
    lines
}

/// How long removed groups are kept, by the cluster's annotation.
fn suspension(minimum: Option<&str>) -> String {
    let Some(text) = minimum else { return format!("no annotation {}", keys::MINIMUM_SUSPENSION) };
    match Minimum::of(minimum, Duration::ZERO) {
        Minimum::Unreadable(_) => {
            format!("{text:?} is invalid: all suspended groups are kept until it is corrected")
        }
        Minimum::Off | Minimum::For(_) => text.to_owned(),
    }
}

fn health(health: Option<&Health>) -> String {
    let Some(health) = health else { return "unknown".to_owned() };
    let words = [
        if health.available { "available" } else { "NOT AVAILABLE" },
        if health.healthy { "healthy" } else { "not healthy" },
        if health.full_replication { "fully replicated" } else { "not fully replicated" },
    ];
    words.join(", ")
}

/// `in 119m (2026-11-21T20:00:00Z)`.
fn expires(group: &GroupRecord, now: Timestamp) -> String {
    match group.expires {
        _ if group.released => "released".to_owned(),
        None => "-".to_owned(),
        Some(at) if at <= now => format!("due ({})", format::seconds(at)),
        Some(at) => format!("in {} ({})", age(now, at), format::seconds(at)),
    }
}
