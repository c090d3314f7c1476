//! An API key, and its token.

use std::sync::Arc;
use std::time::Duration;

use cloud_http::{Body, CallError, Granted, HeaderValue, Http, Login, Method, Url, below};
use shared::cloud::Priority;

/// Key of the API key in its Secret.
pub(crate) const KEY: &str = "ibmcloud_api_key";

/// Asks IBM Cloud's IAM for tokens.
pub(crate) struct Iam {
    pub(crate) http: Arc<Http>,
    pub(crate) api_key: String,
    pub(crate) host: Url,
}

impl Login for Iam {
    type Token = HeaderValue;

    async fn login(&self) -> Result<(HeaderValue, Duration), CallError> {
        let url = below(&self.host, &["identity", "token"]);
        let form = Body::Form(vec![
            ("grant_type", "urn:ibm:params:oauth:grant-type:apikey".to_owned()),
            ("apikey", self.api_key.clone()),
            ("response_type", "cloud_iam".to_owned()),
        ]);
        let answer = self.http.call(Priority::Waking, Method::POST, url, &[], Some(&form)).await;
        answer.map_err(CallError::of_login)?.json::<Granted>().await?.token()
    }
}
