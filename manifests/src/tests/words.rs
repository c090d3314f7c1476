//! Words of expressions and of messages.

use std::collections::BTreeSet;

use shared::admission::{MAX_TEXT_BYTES, UNREADABLE};
use shared::annotation::keys as common;
use shared::cgu::objects::LOCAL_CLUSTER;
use shared::cgu::ztp;
use shared::kkp::keys;

use super::expressions::{OF_HIVE, OF_KKP, TIMES, expressions, validations};

/// An expression reads a member that is misspelled as one that is absent.
const MEMBERS: &str = "abort actionType adminKubeconfigSecretRef annotations apiVersion authorizer clientConfig cloud \
    clusterMetadata clusterPoolRef conditions data dc deletionTimestamp groups hibernateAfter infraID installed kind \
    kube labels metadata name namespace object oldObject operation ownerReferences pause pauseReason paused poolName \
    powerState providerName reason replicas request resource scope spec status subResource subjects suspend template type \
    userInfo username version webhooks";
/// CEL's own words, and names within one expression.
const WORDS: &str = "all allowed check double duration dyn endsWith entry exists false field findAll group has hasValue in \
    int key map matches new none null old one optional orValue part prefix replace size startsWith subresource sum text \
    timestamp unit";

#[test]
fn expressions_are_made_of_known_words_and_of_variables_of_their_policy() {
    let known: BTreeSet<&str> = MEMBERS.split_whitespace().chain(WORDS.split_whitespace()).collect();
    let all = expressions();
    let mut used = BTreeSet::new();
    for (name, expression) in &all {
        let (object, _) = name.split_once(": ").unwrap();
        let is_word = |one: char| one.is_ascii_alphanumeric() || one == '_';
        let mut is_variable = false;
        // A text in JSON or in CEL is no word.
        for word in expression.split(['\'', '"']).step_by(2).flat_map(|part| part.split(|one| !is_word(one))) {
            if is_variable {
                assert!(all.contains_key(&format!("{object}: {word}")), "{name}: no variable {word}");
            } else if word.len() > 1 && word != "variables" && !word.starts_with(|one: char| one.is_ascii_digit()) {
                used.insert(word);
            }
            is_variable = word == "variables";
        }
    }
    assert_eq!(used, known);
}

/// Parts of messages that the code knows.
#[test]
fn messages_name_what_the_code_knows() {
    let (record, _) = keys::RECORD;
    let both = |one: &str, other: &str| format!("metadata.annotations: {one} and {other} are written when");
    let messages = validations("message");
    for (name, part) in [
        ("hibernate-controller-hive: 1", format!("conditions {} of a ClusterDeployment", OF_HIVE.join(", "))),
        ("hibernate-controller-kkp: 1", format!("no ConfigMap but {record}")),
        ("hibernate-controller-kkp: 4", format!("must begin with {:?}", keys::PAUSED_BY_US)),
        (
            "hibernate-controller-kkp: 5",
            format!("conditions {} and {} of a Cluster", OF_KKP[..4].join(", "), OF_KKP[4]),
        ),
        ("hibernate-controller-cgu: 0", format!("none in {LOCAL_CLUSTER}")),
        ("hibernate-controller-cgu: 4", format!("no namespace but {}", ztp::NAMESPACE)),
        ("clusterdeployments.hibernate.sh: 0", format!("metadata.annotations: {} is written", common::ROLLOUT)),
        ("clusterdeployments.hibernate.sh: 3", format!("metadata.annotations[{}]: ", common::PROTECTED)),
        ("clusterdeployments.hibernate.sh: 4", format!("texts of at most {MAX_TEXT_BYTES} bytes ({UNREADABLE})")),
        (
            "clusterdeployments.hibernate.sh: 6",
            format!(
                "{} must be RFC 3339 times, {} true or false, {} an integer",
                TIMES.join(", "),
                common::PROTECTED,
                common::REPLICAS
            ),
        ),
        (
            "clusterdeployments.hibernate.sh: 7",
            format!("{} is written when {} is set", common::HOLD_AWAKE_BY, common::HOLD_AWAKE_UNTIL),
        ),
        ("clusterdeployments.hibernate.sh: 8", both(common::REQUESTED_BY, common::REQUESTED_AT)),
    ] {
        assert!(messages[name].contains(&part), "{name} does not say: {part}");
    }
    for (name, message) in messages.iter().filter(|(name, _)| name.starts_with("hibernate-controller-")) {
        assert!(message.starts_with("hibernate-controller may "), "{name}");
    }
}

/// The plugin reads the row from the end of a policy's denial, which has no causes.
#[test]
fn every_message_of_the_twin_ends_with_its_row() {
    let messages = validations("message");
    let of_twin = messages.iter().filter(|(name, _)| name.starts_with("clusterdeployments.hibernate.sh: "));
    let ends: Vec<&str> = of_twin.map(|(_, message)| message.rsplit_once(' ').unwrap().1).collect();
    assert_eq!(ends, ["(V10)", "(V3)", "(V5)", "(V6)", "(unreadable)", "(V8)", "(V9)", "(V10)", "(V10)"]);
}
