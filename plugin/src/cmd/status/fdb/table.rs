//! Clusters as a person reads them.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use shared::annotation::{format, keys};
use shared::fdb::suspension::Minimum;
use shared::target::FOUNDATIONDB_CLUSTER;

use super::record::{ClusterRecord, GroupRecord, HealthRecord};
use crate::cli::{StatusArgs, StatusOutput};
use crate::output;
use crate::output::age::age;

/// Prints the clusters in the format that was asked for.
pub(crate) fn show(records: &[ClusterRecord], args: &StatusArgs) {
    let list = || json!({ "apiVersion": "hibernate.sh/v1alpha1", "kind": "FoundationDBStatusList", "items": records });
    match args.output {
        StatusOutput::Json => output::text(&output::json(&list())),
        StatusOutput::Yaml => output::text(&output::yaml(&list())),
        StatusOutput::Name => {
            for record in records {
                output::line(&FOUNDATIONDB_CLUSTER.kind.full_name(&record.name));
            }
        }
        StatusOutput::Table | StatusOutput::Wide => {
            for (at, record) in records.iter().enumerate() {
                if at > 0 {
                    output::line("");
                }
                let lines = table(record, !args.no_headers, args.output == StatusOutput::Wide, Timestamp::now());
                for line in &lines {
                    output::line(line);
                }
                if record.protected == "no" && record.minimum_suspension.is_some() {
                    let why = record.unprotected_because.as_deref().unwrap_or_default();
                    output::warning(&format!("{}/{} is NOT PROTECTED: {why}", record.namespace, record.name));
                }
            }
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
    let header: Vec<String> = header.into_iter().map(ToOwned::to_owned).collect();
    let rows = record.suspended.iter().map(|group| {
        let mut cells = vec![
            group.group.clone(),
            group.class.clone(),
            group.zone.clone().unwrap_or_else(|| "-".to_owned()),
            group.since.map_or_else(|| "not stamped yet".to_owned(), |since| age(since, now)),
            expires(group, now),
            group.size.clone(),
        ];
        if wide {
            cells.extend([group.why.clone().unwrap_or_else(|| "-".to_owned()), group.claim.clone()]);
        }
        cells
    });
    lines.extend(output::aligned(&headers.then_some(header).into_iter().chain(rows).collect::<Vec<_>>()));
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

fn health(health: Option<&HealthRecord>) -> String {
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
