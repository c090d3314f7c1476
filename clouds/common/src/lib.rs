//! What cloud drivers have in common: rate limits, batches, addresses that are dialed for tenants, and how they register.
//! No cloud is named here.

mod batcher;
mod dial;
mod list_batcher;
mod pool;
mod proof;
mod rate_limiter;
mod registration;
mod resolver;

pub use fair::{Charge, ChargeGuard, ChargedValue, Consumer, ConsumerMemory, FairPermit, MemoryFull, MemoryLimit};

pub use self::batcher::{Batcher, NoReply, Reply};
pub use self::dial::{Denied, Dialer};
pub use self::list_batcher::{Key, ListBatcher};
pub use self::pool::{Pool, digest};
pub use self::proof::{Discretion, Endpoint};
pub use self::rate_limiter::RateLimiter;
pub use self::registration::{
    Access, MAX_CREDENTIALS, Permit, Platform, Process, SecretData, account_word, credentials_secret, region, text,
};
pub use self::resolver::{Resolved, Resolver};
