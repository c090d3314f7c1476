//! etcd as etcd-launcher runs it: section 5 of docs/reference/kkp.md, for a ring that is stopped and started as a whole,
//! restored, or left without valid certificates. Plain data, driven by its own clock.
//!
//! A member that lost its volume, or was away while the others went on, never comes back (rows 38, 40 and 41 say when a
//! real one does): no sleep may stop a part of etcd.

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
    /// Since when each Pod is there.
    since: BTreeMap<u32, f64>,
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
        // Rows 18 and 46: only without the condition a new ring is made, and only where no member has data.
        let data_left = self.ring.iter().any(|(ordinal, volume)| seen.pods.get(ordinal) == Some(volume));
        if !seen.initialized && !data_left && seen.pods.len() > 1 && seen.pods.len() == seen.replicas as usize {
            self.ring = seen.pods.clone();
        }
        // Members with their data (rows 36, 37, 42). Row 44: with expired certificates none finds another.
        let answers = |(ordinal, volume): &(&u32, &String)| {
            let started = self.since.get(*ordinal).is_some_and(|since| seen.now - since >= seen.start);
            seen.certificates_valid && seen.pods.get(*ordinal) == Some(*volume) && started
        };
        let with_data: BTreeSet<u32> = self.ring.iter().filter(answers).map(|(ordinal, _)| *ordinal).collect();
        // Row 39: one of three never serves, and what does not serve is not ready.
        self.ready = if with_data.len() * 2 > self.ring.len() { with_data } else { BTreeSet::new() };
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

    /// A second of the test is one of that page; a start takes 12 s.
    struct Run {
        etcd: Etcd,
        now: f64,
        seen: Seen,
    }

    impl Run {
        /// A ring of three that serves.
        fn new() -> Self {
            let mut run = Self {
                etcd: Etcd::default(),
                now: 0.0,
                seen: Seen { certificates_valid: true, start: 12.0, ..Seen::default() },
            };
            assert!(run.at(3, "v", 13));
            run.seen.initialized = true;
            run
        }

        /// So many replicas on these volumes for so long; whether it serves at the end.
        fn at(&mut self, replicas: u32, volumes: &str, seconds: u32) -> bool {
            let pods: BTreeMap<_, _> = (0..replicas).map(|ordinal| (ordinal, format!("{volumes}{ordinal}"))).collect();
            for _ in 0..=seconds {
                self.now += 1.0;
                self.etcd.go_on(&Seen { now: self.now, replicas, pods: pods.clone(), ..self.seen.clone() });
            }
            self.etcd.serves()
        }
    }

    #[test]
    fn rows_36_37_39_42_44_and_46_when_etcd_serves() {
        let mut run = Run::new();
        let ring = run.etcd.ring.clone();
        run.at(2, "v", 2);
        assert!(!run.at(0, "v", 60), "down");
        assert!(!run.at(3, "v", 5) && run.at(3, "v", 10) && run.etcd.ring == ring, "rows 36 and 37");
        run.at(0, "v", 5);
        assert!(!run.at(1, "v", 300) && run.etcd.ready.is_empty(), "row 39");
        run.at(0, "v", 5);
        run.seen.certificates_valid = false;
        assert!(!run.at(3, "v", 60), "row 44");
        run.seen.certificates_valid = true;
        assert!(run.at(3, "v", 1), "row 44: they are replaced");
        run.at(0, "v", 5);
        assert!(!run.at(3, "lost", 300), "row 46");
        run.seen.initialized = false;
        assert!(run.at(3, "lost", 13), "row 18: the cure");
        run.at(0, "lost", 5);
        assert!(run.at(3, "lost", 13) && run.etcd.ready.len() == 3, "row 42");
    }
}
