//! What a cloud answers to a call.

use std::net::IpAddr;

use cloud_common::{Charge, ChargedValue};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde::de::DeserializeOwned;
use shared::read::{self, Limits};

use crate::error::CallError;
use crate::stranger::Stranger;

/// A successful answer, which is charged to its account.
#[derive(Debug)]
pub struct Answer {
    /// Its status, of class 2xx.
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub(crate) what: String,
    pub(crate) body: Vec<u8>,
    pub(crate) charge: Charge,
    /// Who has answered, where a tenant chooses the hosts.
    pub(crate) stranger: Option<(Stranger, IpAddr)>,
}

impl Answer {
    /// Whether it has no body.
    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// The body as `T`, which is charged until it is dropped.
    pub async fn json<T: DeserializeOwned>(self) -> Result<ChargedValue<T>, CallError> {
        self.open().await.map(|(value, charge)| ChargedValue::new(value, charge))
    }

    /// The same, with the charge apart.
    pub async fn open<T: DeserializeOwned>(self) -> Result<(T, Charge), CallError> {
        let Self { what, body, mut charge, stranger, .. } = self;
        let (text, mut full) = (charge.used(), None);
        // Who asks for few fields gets few names and many texts.
        let limits = Limits::answer(2 * body.len());
        let read = read::json_charged(&body, &limits, &mut |bytes| {
            full = charge.spend(bytes).err();
            full.is_none()
        });
        drop(body);
        charge.refund(text);
        // Its error would quote the answer.
        let read = read.map(|read| read.value).map_err(|_| match full {
            Some(full) => CallError::too_large(&what, full),
            None => CallError::unknown(&what, "the answer is malformed, or would take more than four times its size"),
        });
        match (read, stranger) {
            (Ok(value), stranger) => {
                if let Some((stranger, by)) = stranger {
                    stranger.prove(by);
                }
                Ok((value, charge))
            }
            (Err(error), Some((stranger, by))) => Err(stranger.discreet(Some(by), &what, error).await),
            (Err(error), None) => Err(error),
        }
    }
}
