//! A cloud on the test bench.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cloud_common::{Dialer, MemoryLimit, Permit, Process};
use shared::cloud::{Driver, Target};

/// What goes wrong with requests to a cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Every request is answered with "too many".
    Throttled,
    /// Every request is answered with a server error.
    Unavailable,
    /// Every request is answered with "you may not".
    Denied,
    /// No request is answered at all.
    Silent,
    /// This machine can be neither stopped nor started; requests for it are refused.
    Refused(String),
    /// Starts of this machine are accepted, and given up later for want of capacity.
    GivenUp(String),
    /// A part of the cloud does not answer: a zone, or what is behind the first page of a list.
    Partial,
}

/// Names of what a cloud cannot do wrong.
pub const GIVEN_UP: &str = "GivenUp";
/// See [`GIVEN_UP`].
pub const PARTIAL: &str = "Partial";

/// A cloud, simulated or real, and drivers for it. Time passes only in [`Bench::finish`].
#[expect(async_fn_in_trait, reason = "tests run on one thread")]
pub trait Bench {
    /// A new driver for the same account, as after a restart of the controller. It asks the permit before every
    /// request.
    fn driver(&self, permit: Permit) -> Arc<dyn Driver>;
    /// A new driver whose permit is never lost.
    fn leader(&self) -> Arc<dyn Driver> {
        self.driver(Arc::new(|| true))
    }
    /// Makes a cluster with so many running machines. The first of several is of the control plane.
    async fn cluster(&self, infra_id: &str, machines: usize) -> Target;
    /// Lets everything end that the cloud is doing: machines that stop are stopped.
    async fn finish(&self);
    /// From now on this goes wrong, or nothing.
    async fn fault(&self, fault: Option<Fault>);
    /// Which faults the cloud cannot have, by name.
    fn cannot(&self) -> &'static [&'static str] {
        &[]
    }
    /// Requests that have reached the cloud so far.
    fn requests(&self) -> usize;
    /// How many machines of the cluster run, whatever the driver says.
    async fn running(&self, target: &Target) -> usize;
    /// Puts a machine into a state that no driver can know, and that is not running.
    async fn confuse(&self, target: &Target, id: &str);
}

/// A process with this permit.
pub fn process(permit: Permit) -> Process {
    Process { identity: "test".to_owned(), permit, dialer: Dialer::default(), memory: MemoryLimit::default() }
}

/// Name of a cluster's machine of this number.
pub fn machine(infra_id: &str, number: usize, of: usize) -> String {
    let role = if number == 0 && of > 1 { "master" } else { "worker" };
    format!("{infra_id}-{role}-{number}")
}

/// A permit that a test can take away, and that counts how often it was given.
#[derive(Clone, Default)]
pub struct Leadership {
    lost: Arc<AtomicBool>,
    given: Arc<AtomicUsize>,
    most: Option<usize>,
}

impl Leadership {
    /// Lost after it was given so many times.
    pub fn of(most: usize) -> Self {
        Self { most: Some(most), ..Self::default() }
    }

    /// Another controller leads now.
    pub fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
    }

    /// How often the permit was given.
    pub fn given(&self) -> usize {
        self.given.load(Ordering::SeqCst)
    }

    /// For a driver.
    pub fn permit(&self) -> Permit {
        let this = self.clone();
        Arc::new(move || {
            let may = !this.lost.load(Ordering::SeqCst) && this.most.is_none_or(|most| this.given() < most);
            if may {
                this.given.fetch_add(1, Ordering::SeqCst);
            }
            may
        })
    }
}
