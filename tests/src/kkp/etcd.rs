//! etcd as etcd-launcher runs it: section 5 of docs/reference/kkp.md, without invented loss of data. Plain data, driven
//! by its own clock.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// What the etcd of one user cluster is like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Etcd {
    /// Members of the ring, by ordinal, each with the volume that holds its data.
    pub ring: BTreeMap<u32, String>,
    /// Members that answer.
    pub ready: BTreeSet<u32>,
    /// Members that lost their data directory and joined anew.
    pub rejoined: u32,
    /// Since when each Pod is there.
    since: BTreeMap<u32, f64>,
    /// Since when there is a quorum, but not all members.
    incomplete_since: Option<f64>,
}

/// What etcd-launcher sees.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Now, in seconds.
    pub now: f64,
    /// `spec.replicas` of the `StatefulSet`: the launcher's desired size.
    pub replicas: u32,
    /// Volumes of the Pods that are there, by ordinal.
    pub pods: BTreeMap<u32, String>,
    /// Condition `EtcdClusterInitialized`: whether there is a cluster to join.
    pub initialized: bool,
    /// Whether the serving and peer certificates are valid (row 44).
    pub certificates_valid: bool,
    /// How long a start takes.
    pub start: f64,
    /// How long a member is away before it is removed (row 38).
    pub removal: f64,
}

impl Etcd {
    /// Whether it serves: more than half of the ring answers.
    pub fn serves(&self) -> bool {
        !self.ring.is_empty() && self.ready.len() * 2 > self.ring.len()
    }

    /// Goes on to what is seen now.
    pub fn go_on(&mut self, seen: &Seen) {
        self.since.retain(|ordinal, _| seen.pods.contains_key(ordinal));
        for ordinal in seen.pods.keys() {
            self.since.entry(*ordinal).or_insert(seen.now);
        }
        let started = |since: &BTreeMap<u32, f64>, ordinal: &u32, times: f64| {
            since.get(ordinal).is_some_and(|since| seen.now - since >= times * seen.start)
        };
        // Rows 18 and 46: only without the condition a new ring is made, and only where no member has data.
        let data_left = self.ring.iter().any(|(ordinal, volume)| seen.pods.get(ordinal) == Some(volume));
        if !seen.initialized && !data_left && seen.pods.len() > 1 && seen.pods.len() == seen.replicas as usize {
            self.ring = seen.pods.clone();
        }
        // Members with their data (rows 36, 37, 42). Row 44: with expired certificates none finds another.
        let answers = |(ordinal, volume): &(&u32, &String)| {
            seen.certificates_valid && seen.pods.get(ordinal) == Some(volume) && started(&self.since, ordinal, 1.0)
        };
        let with_data: BTreeSet<u32> = self.ring.iter().filter(answers).map(|(ordinal, _)| *ordinal).collect();
        let quorum = with_data.len() * 2 > self.ring.len();
        // Row 39: one of three never serves, and what does not serve is not ready.
        self.ready = if quorum { with_data } else { BTreeSet::new() };
        if !quorum {
            self.incomplete_since = None;
            return;
        }
        for (ordinal, volume) in &seen.pods {
            let member = self.ring.get(ordinal);
            // Row 41: a member whose volume was lost is replaced. Row 43: not if the condition denied the cluster:
            // "mismatch member".
            let replaced = member.is_some_and(|known| known != volume) && seen.initialized;
            // Rows 38, 40: one that was removed wipes its directory and joins with a new ID, 23 s.
            let rejoins = member.is_none() && *ordinal < seen.replicas;
            if (replaced || rejoins) && started(&self.since, ordinal, 2.0) {
                self.ring.insert(*ordinal, volume.clone());
                self.ready.insert(*ordinal);
                self.rejoined += 1;
            }
        }
        self.remove_members(seen);
    }

    /// Rows 38, 40: those beyond the desired size that do not answer are removed, while there is a quorum to do it.
    fn remove_members(&mut self, seen: &Seen) {
        let away = |ordinal: &u32| *ordinal >= seen.replicas && !self.ready.contains(ordinal);
        if !self.ring.keys().any(away) {
            self.incomplete_since = None;
            return;
        }
        let since = *self.incomplete_since.get_or_insert(seen.now);
        if seen.now - since >= seen.removal {
            let ready = self.ready.clone();
            self.ring.retain(|ordinal, _| *ordinal < seen.replicas || ready.contains(ordinal));
            self.incomplete_since = None;
        }
    }
}

/// KKP's own count of etcd: it keeps what it finds until etcd is healthy, and then moves by one (row 3). A
/// `StatefulSet` that does not exist is made with all.
pub fn wanted(found: Option<i64>, serves: bool, members: i64) -> i64 {
    match found {
        None => members,
        Some(0) => 0,
        Some(found) if !serves => found,
        Some(found) => found + (members - found).signum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second of the tests is one of that page; a start takes 12 s.
    struct Run {
        etcd: Etcd,
        now: f64,
        volumes: BTreeMap<u32, String>,
        initialized: bool,
        valid: bool,
    }

    impl Run {
        fn new() -> Self {
            let volumes = (0..3).map(|ordinal| (ordinal, format!("v{ordinal}"))).collect();
            let mut run = Self { etcd: Etcd::default(), now: 0.0, volumes, initialized: false, valid: true };
            assert!(run.at(3, 13));
            run.initialized = true;
            run
        }

        /// So many replicas for so long; whether it serves at the end.
        fn at(&mut self, replicas: u32, seconds: u32) -> bool {
            for _ in 0..=seconds {
                self.now += 1.0;
                let pods = self.volumes.iter().filter(|(ordinal, _)| **ordinal < replicas);
                self.etcd.go_on(&Seen {
                    now: self.now,
                    replicas,
                    pods: pods.map(|(ordinal, volume)| (*ordinal, volume.clone())).collect(),
                    initialized: self.initialized,
                    certificates_valid: self.valid,
                    start: 12.0,
                    removal: 40.0,
                });
            }
            self.etcd.serves()
        }

        fn lose(&mut self, ordinals: &[u32]) {
            for ordinal in ordinals {
                self.volumes.insert(*ordinal, format!("new{ordinal}"));
            }
        }
    }

    #[test]
    fn rows_36_and_37_down_and_up_again_leaves_the_ring_alone() {
        for downs in [&[0][..], &[2, 1, 0][..]] {
            let mut run = Run::new();
            let ring = run.etcd.ring.clone();
            for replicas in downs {
                run.at(*replicas, 2);
            }
            assert!(!run.at(0, 60) && !run.at(3, 5));
            assert!(run.at(3, 10) && run.etcd.ring == ring && run.etcd.rejoined == 0, "{downs:?}");
        }
    }

    #[test]
    fn row_38_slowly_down_a_member_is_removed_and_rejoins() {
        let mut run = Run::new();
        assert!(run.at(2, 65) && run.etcd.ring.len() == 2);
        assert!(!run.at(1, 75) && run.etcd.ring.len() == 2);
        assert!(!run.at(0, 5));
        assert!(run.at(3, 26) && run.etcd.ring.len() == 3 && run.etcd.ready.len() == 3);
        assert_eq!(run.etcd.rejoined, 1);
    }

    #[test]
    fn rows_39_and_40_one_of_three_never_serves_and_two_do() {
        let mut run = Run::new();
        run.at(0, 5);
        assert!(!run.at(1, 300) && run.etcd.ready.is_empty());
        assert!(run.at(3, 13));
        run.at(0, 5);
        assert!(run.at(2, 80) && run.etcd.ring.len() == 2);
        assert!(run.at(3, 26) && run.etcd.ring.len() == 3 && run.etcd.rejoined == 1);
    }

    #[test]
    fn rows_41_to_43_and_46_lost_volumes() {
        let mut run = Run::new();
        run.at(0, 5);
        run.lose(&[1]);
        assert!(run.at(3, 30) && run.etcd.ready.len() == 3 && run.etcd.rejoined == 1, "row 41");

        let mut run = Run::new();
        run.at(0, 5);
        run.initialized = false;
        assert!(run.at(3, 13) && run.etcd.ready.len() == 3, "row 42");

        let mut run = Run::new();
        run.at(0, 5);
        (run.initialized, run.volumes) =
            (false, [(0, "v0"), (1, "v1"), (2, "new")].map(|(o, v)| (o, v.to_owned())).into());
        assert!(run.at(3, 300) && run.etcd.ready.len() == 2, "row 43");

        let mut run = Run::new();
        run.at(0, 5);
        run.lose(&[0, 1, 2]);
        assert!(!run.at(3, 300), "row 46");
        run.initialized = false;
        assert!(run.at(3, 13), "row 18: the cure");
    }

    #[test]
    fn row_44_expired_certificates_end_the_quorum_until_they_are_replaced() {
        let mut run = Run::new();
        run.at(0, 5);
        run.valid = false;
        assert!(!run.at(3, 60));
        run.valid = true;
        assert!(run.at(3, 1));
    }

    #[test]
    fn row_3_kkp_keeps_0_and_what_does_not_serve() {
        for (found, serves, expected) in [
            (None, false, 3),
            (Some(0), true, 0),
            (Some(1), false, 1),
            (Some(2), true, 3),
            (Some(3), true, 3),
            (Some(5), true, 4),
        ] {
            assert_eq!(wanted(found, serves, 3), expected, "{found:?}");
        }
    }
}
