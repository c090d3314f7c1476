//! Divides the clusters of an upgrade into batches (section 3).

use std::collections::BTreeSet;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batches<'a> {
    /// Clusters that need work: a batch for each canary, then batches of the given size.
    pub plan: Vec<Vec<&'a str>>,
    /// The other clusters, canaries first.
    pub compliant: Vec<&'a str>,
}

/// Clusters per batch. `max` is `maxConcurrency`: 0 or less means all.
pub fn concurrency(max: i64, selected: usize) -> usize {
    usize::try_from(max).ok().filter(|max| (1..selected).contains(max)).unwrap_or(selected)
}

/// The batches of these clusters, which are distinct. A canary that is listed twice gets two batches, as with TALM.
pub fn batches<'a>(
    clusters: &[&'a str],
    canaries: &[&'a str],
    concurrency: usize,
    needs_work: impl Fn(&str) -> bool,
) -> Batches<'a> {
    let (first, compliant): (Vec<&str>, Vec<&str>) = canaries.iter().copied().partition(|name| needs_work(name));
    let is_canary: BTreeSet<&str> = canaries.iter().copied().collect();
    let (rest, others): (Vec<&str>, Vec<&str>) =
        clusters.iter().copied().filter(|name| !is_canary.contains(name)).partition(|name| needs_work(name));
    let mut once = BTreeSet::new();
    Batches {
        plan: first
            .into_iter()
            .map(|name| vec![name])
            .chain(rest.chunks(concurrency.max(1)).map(<[&str]>::to_vec))
            .collect(),
        compliant: compliant.into_iter().chain(others).filter(|name| once.insert(*name)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAMES: [&str; 6] = ["1", "2", "3", "4", "5", "6"];

    /// Cases 1 to 11 of section 3.
    #[test]
    fn the_plan_is_that_of_the_reference() {
        for (number, (clusters, needing, canaries, max, computed, plan)) in (1..).zip([
            ("1 4 6", "1 4", "", 1, 1, "1|4"),
            ("1", "1", "", 3, 1, "1"),
            ("1 2 5 6 3 4", "1 2 4 5 6", "", 2, 2, "1 2|5 6|4"),
            ("1 2 3", "3", "1", 2, 2, "3"),
            ("6 2 1 5", "6 2 1 5", "", 4, 4, "6 2 1 5"),
            ("1 2 3 4", "1 2 4", "", 2, 2, "1 2|4"),
            ("1 2 3 4 5 6", "1 2 3 4 5 6", "5 2", 2, 2, "5|2|1 3|4 6"),
            ("1 2 3 4 5 6", "1 2 3 4 5 6", "5 2", 4, 4, "5|2|1 3 4 6"),
            ("1 2 3 4 5 6", "2 4 6", "", 2, 2, "2 4|6"),
            ("1 2 3 4 5 6", "1 2 3 4 5 6", "", 0, 6, "1 2 3 4 5 6"),
            ("1 2", "1 2", "1 1", 1, 1, "1|1|2"),
            ("1 2", "", "2", -3, 2, ""),
        ]) {
            let names = |text: &'static str| text.split_whitespace().collect::<Vec<_>>();
            let (clusters, needing) = (names(clusters), names(needing));
            let found = concurrency(max, clusters.len());
            let batches = batches(&clusters, &names(canaries), found, |name| needing.contains(&name));
            let shown: Vec<String> = batches.plan.iter().map(|batch| batch.join(" ")).collect();
            assert_eq!((found, shown.join("|").as_str()), (computed, plan), "case {number}");
        }
        let batches = batches(&["1", "2", "3"], &["2"], 2, |_| false);
        assert_eq!(batches.compliant, ["2", "1", "3"]);
    }

    proptest! {
        /// A cluster that needs work is in the plan, in a batch that is not too large; every other cluster is compliant.
        #[test]
        fn every_cluster_is_in_the_plan_or_compliant(
            needing in proptest::collection::btree_set(proptest::sample::select(NAMES.to_vec()), 0..6),
            canaries in proptest::sample::subsequence(NAMES.to_vec(), 0..6),
            max in -2_i64..9,
        ) {
            let size = concurrency(max, NAMES.len());
            let batches = batches(&NAMES, &canaries, size, |name| needing.contains(name));
            let mut planned: Vec<&str> = batches.plan.concat();
            prop_assert!(batches.plan.iter().all(|batch| (1..=size).contains(&batch.len())));
            planned.sort_unstable();
            prop_assert_eq!(&planned, &needing.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(batches.compliant.len() + planned.len(), NAMES.len());
        }
    }
}
