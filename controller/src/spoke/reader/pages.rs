//! Lists of a spoke's objects: page by page, and no more of a kind than any cluster has. The spoke belongs to a tenant.

use std::time::Duration;

use kube::api::ListParams;
use shared::spoke::kinds::Kind;
use tokio::time::timeout;

use super::{Page, SpokeClient, TooLarge};
use fair::{Charge, ChargedValue, MemoryFull};

/// Objects of one page.
pub const PAGE: u32 = 100;

/// Objects of one kind that are taken of one spoke: as many as the Nodes that Kubernetes is made for.
pub const MOST: usize = 5_000;

/// Pages of one list. The API server may leave pages short, and so do we where there is little room.
pub const PAGES: u32 = 1_000;

/// How long a list may take.
const LIST_TIMEOUT: Duration = Duration::from_mins(1);

impl SpokeClient {
    /// All objects of a kind. `what` names it. They are charged until they are dropped.
    ///
    /// # Errors
    /// When a page cannot be read, or there are more than [`MOST`].
    pub async fn list<K: Kind>(
        &self,
        namespace: Option<&str>,
        params: &ListParams,
        what: &str,
    ) -> kube::Result<ChargedValue<Vec<K>>> {
        self.list_some(namespace, params, what, |_| true).await
    }

    /// The same of those objects that `wanted` takes. The others do not count.
    ///
    /// # Errors
    /// When a page cannot be read, or more than [`MOST`] are wanted.
    pub async fn list_some<K: Kind>(
        &self,
        namespace: Option<&str>,
        params: &ListParams,
        what: &str,
        wanted: impl FnMut(&K) -> bool,
    ) -> kube::Result<ChargedValue<Vec<K>>> {
        let list = gather(params, what, wanted, |page| async move { self.page(namespace, &page).await });
        let late = |_| kube::Error::Service(format!("the list of {what} takes more than {LIST_TIMEOUT:?}").into());
        timeout(LIST_TIMEOUT, Box::pin(list)).await.map_err(late)?
    }
}

/// How many objects to ask for after this error: fewer, if there was no room for so many.
pub fn smaller(limit: u32, error: &kube::Error) -> Option<u32> {
    let has_no_room = matches!(error, kube::Error::Service(why) if why.is::<MemoryFull>() || why.is::<TooLarge>());
    (has_no_room && limit > 1).then_some((limit / 4).max(1))
}

/// How many to ask for after a page that was read: a single large object does not make the rest of the list slow.
pub fn larger(limit: u32) -> u32 {
    (2 * limit).min(PAGE)
}

/// Whether what was asked for is not there. By the code of the answer: of a group that it does not serve, an API server
/// says so in plain text, without a reason.
pub fn is_not_there(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// What was asked for, if it is there.
///
/// # Errors
/// Any other failure.
pub fn if_there<T>(answer: kube::Result<T>) -> kube::Result<Option<T>> {
    match answer {
        Err(error) if is_not_there(&error) => Ok(None),
        answer => answer.map(Some),
    }
}

async fn gather<T, F>(
    params: &ListParams,
    what: &str,
    mut wanted: impl FnMut(&T) -> bool,
    page: impl Fn(ListParams) -> F,
) -> kube::Result<ChargedValue<Vec<T>>>
where
    F: Future<Output = kube::Result<(Page<T>, Charge)>>,
{
    let mut params = params.clone().limit(PAGE);
    let (mut all, mut charges) = (Vec::new(), None::<Charge>);
    for _ in 0..PAGES {
        let (found, charge) = match page(params.clone()).await {
            Ok(found) => found,
            Err(error) => {
                params.limit = Some(smaller(params.limit.unwrap_or(PAGE), &error).ok_or(error)?);
                continue;
            }
        };
        let before = all.len();
        all.reserve_exact(found.items.len());
        all.extend(found.items.into_iter().filter(&mut wanted));
        match &mut charges {
            None => charges = Some(charge),
            Some(charges) if all.len() > before => charges.merge(charge),
            Some(_) => {}
        }
        if all.len() > MOST {
            break;
        }
        match charges {
            Some(charge) if found.metadata.next.is_empty() => return Ok(ChargedValue::new(all, charge)),
            kept => charges = kept,
        }
        params.limit = params.limit.map(larger);
        params = params.continue_token(&found.metadata.next);
    }
    Err(kube::Error::Service(format!("the cluster has more than {MOST} {what}").into()))
}

#[cfg(test)]
mod tests {
    use super::super::PageMetadata;
    use super::*;
    use fair::{Consumer, MemoryLimit};

    fn page(items: usize, next: &str) -> Page<u8> {
        let metadata = PageMetadata { next: next.to_owned(), ..PageMetadata::default() };
        Page { metadata, items: vec![0; items] }
    }

    /// How many Nodes are taken of a server that answers so, by the token that it is asked with.
    async fn taken(answer: impl Fn(Option<&str>) -> Page<u8>) -> Result<usize, String> {
        let memory = MemoryLimit::default().of(Consumer::new("tenant", "spoke"));
        let list = |params: ListParams| {
            assert_eq!(params.limit, Some(PAGE));
            let page = answer(params.continue_token.as_deref());
            std::future::ready(Ok::<_, kube::Error>((page, memory.charge())))
        };
        let all = gather(&ListParams::default(), "Nodes", |_| true, list).await;
        all.map(|all| all.len()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_page_without_room_is_asked_for_in_parts() {
        let memory = MemoryLimit::default().of(Consumer::new("tenant", "spoke"));
        let answer = |params: ListParams| {
            let (limit, begin) =
                (params.limit.unwrap_or_default(), params.continue_token.map_or(0, |at| at.parse().unwrap()));
            let end = (begin + limit).min(100);
            let next = if end < 100 { end.to_string() } else { String::new() };
            std::future::ready(match limit {
                ..10 => Ok((page(usize::try_from(end - begin).unwrap(), &next), memory.charge())),
                _ => Err(kube::Error::Service(MemoryFull::Shared.into())),
            })
        };
        assert_eq!(gather(&ListParams::default(), "Nodes", |_| true, answer).await.unwrap().len(), 100);
        // One object fills a page by itself.
        let large = |params: ListParams| {
            let begin = params.continue_token.map_or(0, |at| at.parse().unwrap());
            let end = (begin + params.limit.unwrap_or_default()).min(100);
            let next = if end < 100 { end.to_string() } else { String::new() };
            std::future::ready(match end - begin {
                2.. if (begin..end).contains(&50) => Err(kube::Error::Service(TooLarge(String::new()).into())),
                count => Ok((page(usize::try_from(count).unwrap(), &next), memory.charge())),
            })
        };
        assert_eq!(gather(&ListParams::default(), "Nodes", |_| true, large).await.unwrap().len(), 100);
        let full =
            |_| std::future::ready(Err::<(Page<u8>, Charge), _>(kube::Error::Service(MemoryFull::Consumer.into())));
        assert!(gather(&ListParams::default(), "Nodes", |_| true, full).await.is_err(), "not even for the smallest");
    }

    #[tokio::test]
    async fn what_nobody_wants_does_not_fill_a_list() {
        let memory = MemoryLimit::default().of(Consumer::new("tenant", "spoke"));
        let many = |params: ListParams| {
            let number: usize = params.continue_token.map_or(0, |at| at.parse().unwrap());
            let next = if number < 100 { (number + 1).to_string() } else { String::new() };
            let mut charge = memory.charge();
            std::future::ready(charge.spend(1 << 20).map_err(|full| kube::Error::Service(full.into())).map(|()| {
                let items = vec![u8::from(number == 100); 100];
                (Page { items, ..page(0, &next) }, charge)
            }))
        };
        let all = gather(&ListParams::default(), "Nodes", |item| *item > 0, many).await;
        assert_eq!(all.unwrap().len(), 100);
    }

    #[tokio::test]
    async fn a_list_is_read_page_by_page_and_has_an_end() {
        let three = |token: Option<&str>| match token {
            None => page(500, "second"),
            Some("second") => page(500, "third"),
            _ => page(7, ""),
        };
        assert_eq!(taken(three).await, Ok(1_007));
        assert_eq!(taken(|_: Option<&str>| page(MOST, "")).await, Ok(MOST));
        // Without end, without limit, and without anything in it.
        for items in [500, MOST + 1, 0] {
            let error = taken(|_: Option<&str>| page(items, "next")).await.unwrap_err();
            assert!(error.ends_with("the cluster has more than 5000 Nodes"), "{items}: {error}");
        }
    }
}
