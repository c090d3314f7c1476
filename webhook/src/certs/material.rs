//! What is in the Secret, and what has to be done about it. Time comes in as data.
//!
//! | row | found | done |
//! |---|---|---|
//! | C1 | nothing | begin: CA and leaf |
//! | C2 | no CA with its key, or one that has expired or is not valid yet | begin again |
//! | C3 | less than a third of the CA's lifetime left | new CA beside the old one, cross-signed by it; new leaf |
//! | C4 | leaf unreadable, untrusted, with other names, or less than a third of its lifetime left | new leaf |
//! | C5 | an expired CA in the bundle | drop it |
//! | C6 | none of these | nothing |
//!
//! No order has to be kept between the Secret and the caBundle of the configurations: a leaf of the new CA comes with
//! the new CA's certificate signed by the old one, so that a client trusts it with the old bundle, with both, and with
//! the new.
//!
//! A CA is not valid yet when the clock of the replica that made it was ahead. No leaf helps then: API servers check the
//! CA's own time, too. The TLS library here does not, so that C4 does not see it.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rustls::RootCertStore;

use super::issue::{self, Authority};
use super::options::Timing;
use super::parse::{self, Block, Facts, Pair};

/// The four texts in the Secret. It has no `Debug`, because two of them are keys.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Content {
    /// Bundle of all CAs that are to be trusted, PEM: what goes into caBundle.
    pub(super) bundle: String,
    /// Key of the CA that signs, PEM.
    pub(super) authority_key: String,
    /// Leaf, and the cross certificate while there is one, PEM.
    pub(super) chain: String,
    /// Key of the leaf, PEM.
    pub(super) key: String,
}

/// What has to be done, with the row that says so.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// C1, C2.
    Begin,
    /// C3.
    NewAuthority,
    /// C4.
    NewLeaf,
    /// C5.
    DropExpired,
    /// C6.
    Nothing,
}

/// Content that was read.
pub(super) struct Material {
    authority: Authority,
    /// What the CA's certificate says of itself.
    facts: Facts,
    bundle: Vec<Block>,
    /// The leaf with its key, if they can be served.
    pair: Option<Pair>,
    content: Content,
}

/// Why a certificate could not be made.
#[derive(Debug, thiserror::Error)]
#[error("make a certificate for {}", names.join(", "))]
pub(super) struct IssueError {
    names: Vec<String>,
    source: rcgen::Error,
}

/// What the leaf is to be.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) names: Vec<String>,
    pub(super) timing: Timing,
}

impl Wanted {
    /// C1, C2: CA and leaf from nothing.
    pub(super) fn begin(&self, now: Timestamp) -> Result<Content, IssueError> {
        let issue = || {
            let (authority, _) = Authority::new(now, self.timing.authority, None)?;
            self.sign(&authority, authority.certificate.clone(), "", now)
        };
        issue().map_err(|source| self.error(source))
    }

    fn sign(
        &self,
        authority: &Authority,
        bundle: String,
        cross: &str,
        now: Timestamp,
    ) -> Result<Content, rcgen::Error> {
        let leaf = authority.leaf(&self.names, now, self.timing.leaf)?;
        Ok(Content { bundle, authority_key: authority.key.clone(), chain: leaf.certificate + cross, key: leaf.key })
    }

    fn error(&self, source: rcgen::Error) -> IssueError {
        IssueError { names: self.names.clone(), source }
    }
}

impl Material {
    /// Reads content; `None` if there is no CA in it that could sign.
    pub(super) fn read(content: Content) -> Option<Self> {
        let bundle = parse::blocks(&content.bundle).ok()?;
        let public_key = issue::public_key(&content.authority_key).ok()?;
        let own = bundle.iter().find(|block| block.facts.public_key == public_key)?;
        let facts = own.facts.clone();
        let authority = Authority::from_pem(&own.pem, content.authority_key.clone(), facts.not_after).ok()?;
        let pair = parse::pair(content.chain.as_bytes(), content.key.as_bytes()).ok();
        Some(Self { authority, facts, bundle, pair, content })
    }

    /// Every CA that is to be trusted, PEM: what caBundle must be.
    pub(super) fn bundle(&self) -> &str {
        &self.content.bundle
    }

    /// The row that applies.
    pub(super) fn step(&self, wanted: &Wanted, now: Timestamp) -> Step {
        if !self.facts.valid(now) {
            return Step::Begin; // C2
        }
        if nearly_over(self.facts.not_after, wanted.timing.authority, now) {
            return Step::NewAuthority; // C3
        }
        if !self.leaf_will_do(wanted, now) {
            return Step::NewLeaf; // C4
        }
        if self.bundle.iter().any(|block| block.facts.not_after <= now) {
            return Step::DropExpired; // C5
        }
        Step::Nothing // C6
    }

    fn leaf_will_do(&self, wanted: &Wanted, now: Timestamp) -> bool {
        let names: BTreeSet<_> = wanted.names.iter().cloned().collect();
        self.pair.as_ref().is_some_and(|pair| {
            pair.leaf.names == names
                && parse::is_trusted(&pair.key.cert, &self.roots(), now).is_ok()
                && !nearly_over(pair.leaf.not_after, wanted.timing.leaf, now)
        })
    }

    fn roots(&self) -> RootCertStore {
        parse::roots(self.bundle.iter().map(|block| block.der.clone()))
    }

    /// The content after a step.
    pub(super) fn after(&self, step: &Step, wanted: &Wanted, now: Timestamp) -> Result<Content, IssueError> {
        let error = |source| wanted.error(source);
        match step {
            Step::Begin => wanted.begin(now),
            Step::NewAuthority => {
                let (authority, cross) =
                    Authority::new(now, wanted.timing.authority, Some(&self.authority)).map_err(error)?;
                let bundle = authority.certificate.clone() + &self.trusted(now);
                wanted.sign(&authority, bundle, &cross.unwrap_or_default(), now).map_err(error)
            }
            Step::NewLeaf => wanted.sign(&self.authority, self.trusted(now), &self.cross(now), now).map_err(error),
            Step::DropExpired => Ok(Content { bundle: self.trusted(now), ..self.content.clone() }),
            Step::Nothing => Ok(self.content.clone()),
        }
    }

    /// The CAs that have not expired, PEM.
    fn trusted(&self, now: Timestamp) -> String {
        unexpired(&self.bundle, now)
    }

    /// The cross certificates that have not expired, PEM.
    fn cross(&self, now: Timestamp) -> String {
        let chain = parse::blocks(&self.content.chain).unwrap_or_default();
        unexpired(chain.get(1..).unwrap_or_default(), now)
    }
}

fn unexpired(blocks: &[Block], now: Timestamp) -> String {
    let valid = blocks.iter().filter(|block| now < block.facts.not_after);
    valid.map(|block| block.pem.as_str()).collect()
}

/// Whether less than a third of a lifetime is left.
fn nearly_over(end: Timestamp, lifetime: std::time::Duration, now: Timestamp) -> bool {
    end.duration_since(now) < jiff::SignedDuration::try_from(lifetime / 3).unwrap_or(jiff::SignedDuration::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn wanted() -> Wanted {
        let timing = Timing { authority: 30 * HOUR, leaf: 6 * HOUR, check: HOUR };
        let names = ["hook.system.svc", "127.0.0.1", "fd00::1", "Hook.Example"];
        Wanted { names: names.map(str::to_owned).into(), timing }
    }

    fn at(hours: u32) -> Timestamp {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        start + hours * HOUR
    }

    fn begun() -> Content {
        wanted().begin(at(0)).unwrap()
    }

    fn next(content: &Content, now: Timestamp) -> (Step, Content) {
        let material = Material::read(content.clone()).unwrap();
        let step = material.step(&wanted(), now);
        let after = material.after(&step, &wanted(), now).unwrap();
        (step, after)
    }

    fn trusts(bundle: &str, content: &Content, now: Timestamp) -> bool {
        let roots = parse::roots(parse::blocks(bundle).unwrap().into_iter().map(|block| block.der));
        let pair = parse::pair(content.chain.as_bytes(), content.key.as_bytes()).unwrap();
        parse::is_trusted(&pair.key.cert, &roots, now).is_ok()
    }

    #[test]
    fn what_is_begun_is_trusted_for_its_lifetime_and_left_alone() {
        let content = begun();
        assert!(trusts(&content.bundle, &content, at(0)));
        assert!(!trusts(&content.bundle, &content, at(7)));
        assert_eq!(next(&content, at(3)).0, Step::Nothing);
        let facts = parse::pair(content.chain.as_bytes(), content.key.as_bytes()).unwrap().leaf;
        assert_eq!(facts.names, wanted().names.into_iter().collect());
        assert_eq!(facts.not_after, at(6));
    }

    #[test]
    fn the_leaf_is_renewed_in_its_last_third_under_the_same_bundle() {
        let old = begun();
        let (step, new) = next(&old, at(5));
        assert_eq!(step, Step::NewLeaf);
        assert_eq!(new.bundle, old.bundle);
        assert!(new.key != old.key);
        assert!(trusts(&old.bundle, &new, at(10)));
    }

    #[test]
    fn an_expired_leaf_is_renewed_too() {
        assert_eq!(next(&begun(), at(10)).0, Step::NewLeaf);
    }

    #[test]
    fn a_new_authority_is_trusted_by_old_bundle_new_bundle_and_both() {
        let old = begun();
        let (step, new) = next(&old, at(21));
        assert_eq!(step, Step::NewAuthority);
        let blocks = parse::blocks(&new.bundle).unwrap();
        assert_eq!(blocks.len(), 2);
        assert_eq!(blocks[1].pem, old.bundle);
        for bundle in [&old.bundle, &new.bundle, &blocks[0].pem] {
            assert!(trusts(bundle, &new, at(21)));
        }
        // A replica that has not seen the Secret yet serves a leaf of the old CA.
        let (_, behind) = next(&old, at(20));
        assert!(trusts(&new.bundle, &behind, at(21)));
    }

    #[test]
    fn the_cross_certificate_stays_with_renewed_leaves_until_the_old_authority_expires() {
        let old = begun();
        let (_, mut content) = next(&old, at(21));
        assert_eq!(parse::blocks(&content.chain).unwrap().len(), 2);
        for hour in 22..30 {
            content = next(&content, at(hour)).1;
            assert!(trusts(&old.bundle, &content, at(hour)), "hour {hour}");
        }
        for hour in 30..40 {
            content = next(&content, at(hour)).1;
        }
        assert_eq!(parse::blocks(&content.bundle).unwrap().len(), 1);
        assert_eq!(parse::blocks(&content.chain).unwrap().len(), 1);
    }

    #[test]
    fn an_expired_authority_is_dropped_from_the_bundle_and_nothing_else_changes() {
        let expired = wanted().begin(at(0)).unwrap();
        let young = wanted().begin(at(29)).unwrap();
        let both = Content { bundle: young.bundle.clone() + &expired.bundle, ..young.clone() };
        assert_eq!(next(&both, at(29)).0, Step::Nothing);
        let (step, after) = next(&both, at(31));
        assert_eq!(step, Step::DropExpired);
        assert!(after == young);
    }

    #[test]
    fn years_of_rotation_never_leave_a_client_without_trust() {
        let mut content = begun();
        for hour in 1..500 {
            let before = content.bundle.clone();
            content = next(&content, at(hour)).1;
            assert!(trusts(&before, &content, at(hour)), "hour {hour}");
            assert!(parse::blocks(&content.bundle).unwrap().len() <= 2, "hour {hour}");
        }
    }

    #[test]
    fn other_names_and_a_leaf_of_somebody_else_are_replaced() {
        let other = Wanted { names: vec!["other.svc".to_owned()], ..wanted() };
        let material = Material::read(begun()).unwrap();
        assert_eq!(material.step(&other, at(1)), Step::NewLeaf);

        let stranger = begun();
        let mixed = Content { chain: stranger.chain, key: stranger.key, ..begun() };
        assert_eq!(next(&mixed, at(1)).0, Step::NewLeaf);
        let broken = Content { chain: "garbage".to_owned(), ..begun() };
        assert_eq!(next(&broken, at(1)).0, Step::NewLeaf);
    }

    /// A clock was ahead at the first start, or by so much that C3 applied. The leaf may be one by the right clock.
    #[test]
    fn an_authority_that_is_not_valid_yet_is_begun_again() {
        let (step, rotated) = next(&begun(), at(21));
        assert_eq!(step, Step::NewAuthority);
        for ahead in [wanted().begin(at(10)).unwrap(), rotated] {
            let renewed = Material::read(ahead.clone()).unwrap().after(&Step::NewLeaf, &wanted(), at(5)).unwrap();
            for content in [ahead, renewed] {
                let (step, after) = next(&content, at(5));
                assert_eq!(step, Step::Begin);
                assert!(trusts(&after.bundle, &after, at(5)));
                assert_eq!(next(&after, at(5)).0, Step::Nothing);
            }
        }
        let within_the_backdate = at(10) - Duration::from_mins(5);
        assert_eq!(next(&wanted().begin(at(10)).unwrap(), within_the_backdate).0, Step::Nothing);
    }

    #[test]
    fn an_authority_that_cannot_sign_is_begun_again() {
        assert_eq!(next(&begun(), at(31)).0, Step::Begin);
        for broken in [
            Content { bundle: String::new(), ..begun() },
            Content { authority_key: "garbage".to_owned(), ..begun() },
            Content { authority_key: begun().authority_key, ..begun() },
        ] {
            assert!(Material::read(broken).is_none());
        }
    }
}
