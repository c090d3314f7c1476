//! Tokens of an account, kept for most of their life.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::error::CallError;

/// How long a refused login is not retried.
const REFUSED_TTL: Duration = Duration::from_secs(10);

/// How long callers get a failed login's result instead of a new attempt.
const FAILED_TTL: Duration = Duration::from_secs(1);

/// Longest time that a token is kept, whatever its answer says: a time too far away is none that a clock can tell.
const MAX_TTL: Duration = Duration::from_hours(24);

/// How an account gets a token.
pub trait Login: Send + Sync {
    /// A token, and what came with it.
    type Token: Clone + PartialEq + Send + Sync;

    /// A new token, and its lifetime.
    fn login(&self) -> impl Future<Output = Result<(Self::Token, Duration), CallError>> + Send;
}

/// The token of one account. Callers at the same time share one login.
#[derive(Debug)]
pub struct Tokens<L: Login> {
    login: L,
    cached: Mutex<Option<CachedToken<L::Token>>>,
}

#[derive(Clone, Debug)]
struct CachedToken<T> {
    result: Result<T, CallError>,
    until: Instant,
}

impl<L: Login> Tokens<L> {
    pub fn new(login: L) -> Self {
        Self { login, cached: Mutex::default() }
    }

    /// The token, which is renewed at 80 % of its life. A login that was refused is not repeated for 10 s.
    pub async fn get(&self) -> Result<L::Token, CallError> {
        let mut cached = self.cached.lock().await;
        if let Some(CachedToken { result, .. }) = cached.as_ref().filter(|cached| Instant::now() < cached.until) {
            return result.clone();
        }
        let login = self.login.login().await;
        let life = match &login {
            Ok((_, life)) => life.mul_f64(0.8).min(MAX_TTL),
            Err(CallError::Rejected(_)) => REFUSED_TTL,
            Err(_) => FAILED_TTL,
        };
        let result = login.map(|(token, _)| token);
        *cached = Some(CachedToken { result: result.clone(), until: Instant::now() + life });
        result
    }

    /// Makes a call with a token, and once more with a new one if the token is not accepted.
    pub async fn with<'a, R>(
        &'a self,
        call: impl Fn(L::Token) -> BoxFuture<'a, Result<R, CallError>>,
    ) -> Result<R, CallError> {
        let token = self.get().await?;
        match call(token.clone()).await {
            Err(error) if error.is_unauthorized() => {
                self.forget(&token).await;
                call(self.get().await?).await
            }
            result => result,
        }
    }

    /// Forgets a token, unless there is a newer one.
    async fn forget(&self, token: &L::Token) {
        let mut cached = self.cached.lock().await;
        if cached.as_ref().is_some_and(|cached| cached.result.as_ref() == Ok(token)) {
            *cached = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::FutureExt;
    use reqwest::StatusCode;
    use reqwest::header::HeaderMap;

    use super::*;
    use crate::error::Rejection;

    struct Numbers {
        next: AtomicU32,
        refuses: bool,
        life: Duration,
    }

    fn unauthorized() -> CallError {
        let what = "POST tokens".to_owned();
        CallError::Rejected(Rejection::new(what, StatusCode::UNAUTHORIZED, HeaderMap::new(), b""))
    }

    impl Login for Numbers {
        type Token = u32;

        async fn login(&self) -> Result<(u32, Duration), CallError> {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
            if self.refuses { Err(unauthorized()) } else { Ok((number, self.life)) }
        }
    }

    fn tokens(refuses: bool) -> Tokens<Numbers> {
        Tokens::new(Numbers { next: AtomicU32::new(0), refuses, life: Duration::from_secs(100) })
    }

    #[tokio::test(start_paused = true)]
    async fn callers_share_a_token_until_most_of_its_life_is_over() {
        let tokens = tokens(false);
        assert_eq!(futures::join!(tokens.get(), tokens.get()), (Ok(1), Ok(1)));
        tokio::time::sleep(Duration::from_secs(79)).await;
        assert_eq!(tokens.get().await, Ok(1));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(tokens.get().await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_of_an_absurd_life_is_kept_for_a_day() {
        for life in [u64::MAX, u64::MAX / 2].map(Duration::from_secs) {
            let tokens = Tokens::new(Numbers { next: AtomicU32::new(0), refuses: false, life });
            assert_eq!(tokens.get().await, Ok(1));
            tokio::time::sleep(MAX_TTL.saturating_sub(Duration::from_secs(2))).await;
            assert_eq!(tokens.get().await, Ok(1));
            tokio::time::sleep(Duration::from_secs(3)).await;
            assert_eq!(tokens.get().await, Ok(2));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_is_not_accepted_is_renewed_once() {
        let tokens = tokens(false);
        let call = |token| async move { if token < 2 { Err(unauthorized()) } else { Ok(token) } }.boxed();
        assert_eq!(futures::join!(tokens.with(call), tokens.with(call)), (Ok(2), Ok(2)), "one new token for both");
        let never = |_| async { Err::<(), _>(unauthorized()) }.boxed();
        assert_eq!(tokens.with(never).await, Err(unauthorized()));
        assert_eq!(tokens.get().await, Ok(3), "one login for each call");
    }

    #[tokio::test(start_paused = true)]
    async fn refused_credentials_are_not_sent_by_every_caller() {
        let tokens = tokens(true);
        for _ in 0..5 {
            assert_eq!(tokens.get().await, Err(unauthorized()));
        }
        assert_eq!(tokens.login.next.load(Ordering::Relaxed), 1);
        tokio::time::sleep(REFUSED_TTL).await;
        let _ = tokens.get().await;
        assert_eq!(tokens.login.next.load(Ordering::Relaxed), 2);
    }
}
