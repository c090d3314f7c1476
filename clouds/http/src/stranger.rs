//! Endpoints that a tenant chooses: their addresses are checked, and their failures are all alike until they have proven
//! who they are.

use std::net::IpAddr;

use cloud_common::{Consumer, Denied, Dialer, Discretion, Endpoint, FairPermit, Resolver};
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use shared::cloud::{CloudError, CloudErrorKind};
use tokio::time::Instant;
use tower::Service;

use crate::error::CallError;

/// The endpoints of one account.
#[derive(Clone, Debug)]
pub(crate) struct Strangers {
    dialer: Dialer,
    consumer: Consumer,
    names: Resolver,
}

/// An endpoint during one call.
#[derive(Clone, Debug)]
pub(crate) struct Stranger {
    dialer: Dialer,
    endpoint: Endpoint,
    /// When failures are reported while the endpoint is unproven.
    until: Instant,
}

impl Strangers {
    pub(crate) fn new(dialer: Dialer, consumer: Consumer) -> Self {
        Self { names: Resolver::new(consumer.tenant.clone(), dialer.clone()), dialer, consumer }
    }

    /// The tenant's turn for one more call.
    pub(crate) async fn turn(&self) -> FairPermit {
        self.dialer.call(&self.consumer.tenant).await
    }

    /// The endpoint of a call that begins now.
    pub(crate) fn meet(&self, url: &Url, discretion: &Discretion) -> Result<Stranger, Denied> {
        let host = url.host_str().unwrap_or_default();
        self.dialer.check_host(host)?;
        let origin = (&self.consumer, url.origin().ascii_serialization());
        let endpoint = Endpoint::new(&origin, self.names.resolved(host));
        Ok(Stranger { dialer: self.dialer.clone(), endpoint, until: Instant::now() + discretion.after })
    }
}

impl Stranger {
    /// When to give up, unless the endpoint has proven its identity.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        (!self.endpoint.is_expected(&self.dialer)).then_some(self.until)
    }

    /// It has given a well-formed answer.
    pub(crate) fn prove(&self, by: IpAddr) {
        self.endpoint.answered(&self.dialer, Some(by));
    }

    /// The error to report. Until the endpoint has proven its identity, every failure gets the same text after the same
    /// delay. `by`: the address that answered, if any.
    pub(crate) async fn discreet(&self, by: Option<IpAddr>, what: &str, error: CallError) -> CallError {
        let is_proven = match by {
            Some(by) => self.dialer.is_proven(self.endpoint.at(by)),
            None => self.endpoint.is_proven(&self.dialer),
        };
        if by.is_none() {
            self.endpoint.answered(&self.dialer, None);
        }
        if is_proven {
            return error;
        }
        tokio::time::sleep_until(self.until).await;
        let message = format!("{what}: {}", Discretion::CLOUD.words);
        CallError::Unknown(CloudError::new(CloudErrorKind::Denied, message))
    }
}

impl Resolve for Strangers {
    fn resolve(&self, name: Name) -> Resolving {
        let mut names = self.names.clone();
        Box::pin(async move {
            let found = names.call(name.as_str().parse()?).await?;
            Ok(Box::new(found) as Addrs)
        })
    }
}
