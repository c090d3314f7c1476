use super::*;

pub(crate) fn claim(uid: &str, wanted: Power) -> Mark {
    let action = if wanted == Power::Running { Action::Resume } else { Action::Hibernate };
    let before = if wanted == Power::Running { Power::Hibernating } else { Power::Running };
    let since = "2026-11-24T12:00:00Z".to_owned();
    let (held_until, wake_at, ended) = (None, None, None);
    let (name, uid) = ("night".into(), uid.into());
    Mark { name, uid, action, group: 0, attempt: 0, before, wanted, since, held_until, wake_at, ended }
}

#[test]
fn the_annotation_is_read_as_it_was_written() {
    let claim = claim("u", Power::Hibernating);
    let text = r#"{"v":1,"by":"night","uid":"u","action":"Hibernate","group":0,"attempt":0,"before":"Running","wanted":"Hibernating","at":"2026-11-24T12:00:00Z"}"#;
    assert_eq!((claim.text().as_str(), Mark::parse(text)), (text, Some(claim.clone())));
    let now = "2026-11-24T12:05:00Z".parse().unwrap();
    let record = claim.end(Outcome::Failed, &format!("\u{1b}[31m{}", "x".repeat(10_000)), now);
    assert!(record.text().len() < Mark::MAX_BYTES && !record.text().contains('\u{1b}'), "{}", record.text());
    assert_eq!(Mark::parse(&record.text()), Some(record.clone()));
    assert!(claim.is_claim_of("u") && !claim.is_claim_of("other") && !record.is_claim_of("u"));
    assert_eq!(record.end(Outcome::Succeeded, "", now), record, "a record stays as it is");
    for forged in ["\\u001b[31mnight", "../night", "a b", ""] {
        assert_eq!(Mark::parse(&text.replace("night", forged)), None, "{forged}");
    }
}

#[test]
fn what_is_no_mark_is_none() {
    let long = claim(&"u".repeat(Mark::MAX_BYTES), Power::Running).text();
    let long_uid = claim(&"u".repeat(254), Power::Running).text();
    let undated = Mark { since: "soon".into(), ..claim("u", Power::Running) }.text();
    let unheld = Mark { held_until: Some("soon".into()), ..claim("u", Power::Running) }.text();
    for text in ["", "{}", r#"{"v":1}"#, r#"{"v":2,"by":"n"}"#, &long, &long_uid, &undated, &unheld] {
        assert_eq!(Mark::parse(text), None, "{text:.40}");
    }
}
