//! The hub's own verdict on the sleep: the plugin sends its patch as a dry run. Webhooks and policies judge it with
//! their real settings, which the plugin cannot read.

use hub::error::HubError;
use hub::middleware::with_warnings;
use hub::{HubClient, Write};
use jiff::Timestamp;
use serde_json::Value;
use shared::admission::Denial;
use shared::finding::{Finding, Severity};
use shared::kinds::lifecycle::REFUSED;
use shared::kinds::row::RuleTable;
use view::target::Target;

/// The answer to the dry run, and the hub's warnings.
pub(crate) type Verdict = (Result<Value, HubError>, Vec<String>);

/// Sends the sleep as a dry run. None if the desired state is Hibernating already.
pub(crate) async fn ask(hub: &HubClient, manager: &str, target: &Target, end: Option<Timestamp>) -> Option<Verdict> {
    let patch =
        target.row.trial_patch(&target.object, end, Timestamp::now()).filter(|patch| patch.get("spec").is_some())?;
    let write = Write::new(manager, true);
    Some(with_warnings(hub.patch(target.resource, &target.namespace, &target.name, &patch, &write)).await)
}

/// Adds the hub's verdict to the findings of the built-in rules, if there is one. A denial in the words of a rule gets
/// that rule's row. The other rules stay: the hub stops at the first refusal, and webhooks may be missing.
pub(crate) fn weigh(table: Option<&RuleTable>, rules: Vec<Finding>, verdict: Option<&Verdict>) -> Vec<Finding> {
    let Some((answer, warnings)) = verdict else { return rules };
    let refusal = match answer {
        Ok(_) => None,
        Err(HubError::Refused { by, message, denials, .. }) => Some((by, message, denials)),
        Err(error) => return rules.into_iter().chain([unasked(error)]).collect(),
    };
    let (blocks, mut findings): (Vec<_>, Vec<_>) =
        rules.into_iter().partition(|finding| finding.severity == Severity::Block);
    match refusal {
        Some((by, message, denials)) if denials.is_empty() => findings.extend(refused(table, blocks, by, message)),
        Some((by, _, denials)) => findings.extend(denied(table, blocks, by, denials)),
        None => findings.extend(blocks.into_iter().filter(|block| !depends_on_settings(table, block)).map(passed)),
    }
    for text in warnings {
        let warning = Finding::new(Severity::Warn, "HubWarns", text);
        // The API server cuts long ones.
        let begin = warning.sentence.trim_end_matches('…');
        if !findings.iter().any(|known| known.sentence.starts_with(begin)) {
            findings.push(warning);
        }
    }
    findings
}

/// Only the built-in rules have answered.
fn unasked(error: &HubError) -> Finding {
    let (severity, code) = match error {
        HubError::WebhookDown { .. } => (Severity::Block, "WebhookDown"),
        _ => (Severity::Info, "HubNotAsked"),
    };
    let sentence = format!(
        "the hub did not evaluate the request; only the built-in webhook rules with default settings did: {error}"
    );
    Finding::new(severity, code, sentence)
}

/// A rule that this hub does not enforce, at least not for this user.
fn passed(mut block: Finding) -> Finding {
    block.severity = Severity::Warn;
    block.sentence.push_str("; the hub would still accept it");
    block
}

/// Denials by our webhook: one that a built-in rule gives too has that rule's row, any other is a finding of its own.
fn denied(table: Option<&RuleTable>, mut blocks: Vec<Finding>, by: &str, denials: &[Denial]) -> Vec<Finding> {
    // The webhook gives every denial, so a platform that it does not name is served on this hub.
    let is_denied = |block: &Finding| denials.iter().any(|denial| same(block, denial));
    blocks.retain(|block| !depends_on_settings(table, block) || is_denied(block));
    let others = denials.iter().filter(|denial| !blocks.iter().any(|block| same(block, denial)));
    let others = others.map(|denial| {
        let by_settings = table.map(|table| table.by_settings).filter(|(_, field)| denial.field == *field);
        let code = by_settings.map_or(REFUSED, |(row, _)| row);
        Finding::new(Severity::Block, code, format!("{denial} (says {by})"))
    });
    let others: Vec<_> = others.collect();
    blocks.into_iter().chain(others).collect()
}

/// Whether a built-in rule and the webhook say the same. A finding is on one line.
fn same(block: &Finding, denial: &Denial) -> bool {
    block.sentence == Finding::new(Severity::Block, "", denial.to_string()).sentence
}

/// A refusal in words only, by a policy or another webhook: it stands for the built-in rule of its row, if it names
/// one, and for the rule about platforms, of which the hub has settings of its own.
fn refused(table: Option<&RuleTable>, mut blocks: Vec<Finding>, by: &str, message: &str) -> Vec<Finding> {
    let row = table.and_then(|table| row(table, message)).unwrap_or(REFUSED);
    blocks.retain(|block| !depends_on_settings(table, block) && block.code != row);
    blocks.push(Finding::new(Severity::Block, row, format!("{message} (says {by})")));
    blocks
}

/// The row that a policy's message ends with: `... (V6)`.
fn row<'a>(table: &RuleTable, message: &'a str) -> Option<&'a str> {
    let row = message.strip_suffix(')')?.rsplit_once(" (")?.1;
    (table.has)(row).then_some(row)
}

/// Whether the rule depends on settings of the hub's webhook: a hub that accepts the request has others than the built-in.
fn depends_on_settings(table: Option<&RuleTable>, block: &Finding) -> bool {
    table.is_some_and(|table| table.by_settings.0 == block.code)
}

#[cfg(test)]
mod tests {
    use shared::kinds::CLUSTER_DEPLOYMENT;

    use super::*;

    const SERVED: &str =
        "spec.platform: found vsphere, but only clusters on aws, azure, gcp, ibmcloud can be put to sleep";
    const PROTECTED: &str = "metadata.annotations[hibernate.sh/protected]: the cluster is protected from sleep";

    const NONE: &[&str] = &[];

    fn table() -> Option<&'static RuleTable> {
        CLUSTER_DEPLOYMENT.plan.unwrap().rules.as_ref()
    }

    fn rules() -> Vec<Finding> {
        vec![
            Finding::new(Severity::Block, "V4", SERVED),
            Finding::new(Severity::Block, "V6", PROTECTED),
            Finding::new(Severity::Warn, "V7", "an upgrade is in progress"),
        ]
    }

    fn weighed(rules: Vec<Finding>, refusal: Option<&str>, warnings: &[&str]) -> Vec<String> {
        weighed_with(rules, refusal, &[], warnings)
    }

    fn weighed_with(rules: Vec<Finding>, message: Option<&str>, denials: &[&str], warnings: &[&str]) -> Vec<String> {
        let denial = |detail: &&str| {
            let (field, message) = detail.split_once(": ").unwrap();
            Denial::from_cause("FieldValueForbidden", field, message).unwrap()
        };
        let denials = denials.iter().map(denial).collect();
        let (object, by) = ("x/demo".to_owned(), "admission webhook \"w\"".to_owned());
        let refusal = message.map(|message| HubError::Refused { object, by, message: message.to_owned(), denials });
        let warnings = warnings.iter().map(|&text| text.to_owned()).collect();
        let mut findings = weigh(table(), rules, Some(&(refusal.map_or(Ok(Value::Null), Err), warnings)));
        findings.sort();
        findings.iter().map(|finding| format!("{} {}", finding.severity, finding.code)).collect()
    }

    #[test]
    fn causes_are_read_instead_of_the_message() {
        let aws = "spec.platform: found azure, but only clusters on aws can be put to sleep";
        let newer = "metadata.annotations[hibernate.sh/curfew]: not at night";
        for (case, denials, expected) in [
            ("as the rules say", &[SERVED, PROTECTED][..], &["block V4", "block V6", "warn V7"][..]),
            ("the platform is served here", &[PROTECTED], &["block V6", "warn V7"]),
            ("it is not served here", &[aws], &["block V4", "block V6", "warn V7"]),
            ("by a newer rule", &[newer, PROTECTED], &["block Refused", "block V6", "warn V7"]),
        ] {
            assert_eq!(weighed_with(rules(), Some("in other words"), denials, NONE), expected, "{case}");
        }
        let unlisted = weighed_with(Vec::new(), Some("in other words"), &[aws], NONE);
        assert_eq!(unlisted, ["block V4"], "the built-in list has azure");
    }

    #[test]
    fn the_hub_has_the_last_word() {
        let policy = "metadata.annotations[hibernate.sh/protected]: the cluster is protected; remove it (V6)";
        for (case, refusal, warnings, expected) in [
            ("a policy says it in other words", Some(policy), NONE, &["block V6", "warn V7"][..]),
            ("by somebody else's", Some("not on sundays"), NONE, &["block Refused", "block V6", "warn V7"]),
            ("nobody enforces it", None, NONE, &["warn V6", "warn V7"]),
            ("the user is exempt", None, &[PROTECTED], &["warn V6", "warn V7"]),
            ("cut and new warnings", None, &["an upgrade is…", "sunday"], &["warn HubWarns", "warn V6", "warn V7"]),
        ] {
            assert_eq!(weighed(rules(), refusal, warnings), expected, "{case}");
        }
    }

    #[test]
    fn without_an_answer_the_rules_stand() {
        let object = || "x/demo".to_owned();
        let forbidden = HubError::Forbidden { object: object(), message: "no".to_owned() };
        let down = HubError::WebhookDown { object: object(), message: "failed calling webhook".to_owned() };
        for (error, severity, code) in
            [(forbidden, Severity::Info, "HubNotAsked"), (down, Severity::Block, "WebhookDown")]
        {
            let findings = weigh(table(), rules(), Some(&(Err(error), Vec::new())));
            assert_eq!(findings[..3], rules()[..], "{code}");
            assert_eq!((findings[3].severity, findings[3].code.as_str()), (severity, code));
        }
    }
}
