//! The codes of today are not the last ones: whichever EC2 refuses one instance with, the others go.

use super::*;

const CODES: [&str; 4] = ["Unsupported", "MaxSpotInstanceCountExceeded", "InvalidHostState", "ACodeOfNextYear"];

#[tokio::test(start_paused = true)]
async fn whichever_code_ec2_refuses_one_instance_with_the_others_go_and_it_is_named() {
    for (code, names) in CODES.iter().flat_map(|code| [(*code, false), (*code, true)]) {
        let ec2 = Arc::new(Ec2 { names, ..refusing(&[("i-3", code)]) });
        let moves = Moves::new(Verb::Start, ec2.clone());
        let all = list(&["i-0", "i-1", "i-2", "i-3", "i-4", "i-5"]);
        let outcome = moves.all(&all).await.unwrap();
        let moved: Vec<String> = outcome.moved.into_iter().map(|(id, _)| id).collect();
        assert_eq!(moved, list(&["i-0", "i-1", "i-2", "i-4", "i-5"]), "{code} {names}");
        let [refusal] = &outcome.refused[..] else { panic!("{code} {names}: {:?}", outcome.refused) };
        assert_eq!((refusal.id.as_str(), refusal.kind), ("i-3", CloudErrorKind::Refused), "{code} {names}");
        assert!(refusal.to_string().starts_with(&format!("i-3: {code}: ")) && !refusal.message.is_empty(), "{refusal}");
        let calls = ec2.calls.lock().len();
        assert_eq!(calls, if names { 2 } else { 1 + all.len() }, "{code} {names}: all, then at most one call for each");
    }
}

#[tokio::test(start_paused = true)]
async fn another_clusters_unknown_code_costs_a_cluster_no_more_than_its_own_call() {
    for code in CODES {
        let (noted, ec2) = stop(refusing(&[("i-c", code)]), TWO).await;
        assert_eq!(noted, [ok(&["i-b", "i-a"], &[]), ok(&["i-d"], &["i-c"])], "{code}");
        let calls = ec2.calls.lock();
        assert_eq!(calls[1..], [list(&["i-b", "i-a"]), list(&["i-c", "i-d"]), list(&["i-c"]), list(&["i-d"])]);
    }
}

/// A code for the whole account that nobody lists: each instance is tried once, and then not again for a while.
#[tokio::test(start_paused = true)]
async fn a_refusal_of_everything_costs_a_call_for_each_instance_once_in_five_minutes() {
    let bad: Vec<_> = ["i-0", "i-1", "i-2", "i-3"].map(|id| (id, "ACodeOfNextYear")).into();
    let ec2 = Arc::new(refusing(&bad));
    let moves = Moves::new(Verb::Start, ec2.clone());
    let all = list(&["i-0", "i-1", "i-2", "i-3"]);
    for most in [1 + all.len(), 1, 1] {
        let refused = moves.all(&all).await.unwrap().refused;
        assert_eq!(refused.len(), all.len(), "{refused:?}");
        let calls = std::mem::take(&mut *ec2.calls.lock());
        assert!(calls.len() <= most, "{calls:?}");
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
}
