//! The accounts that the simulators know.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use rcgen::{KeyPair, PKCS_RSA_SHA256};
use serde::Deserialize;
use serde_json::json;

/// The project of GCP.
pub const PROJECT: &str = "simulated";
/// The subscription of Azure, its tenant, and the client with its secret.
pub const SUBSCRIPTION: &str = "00000000-1111-2222-3333-444444444444";
/// See [`SUBSCRIPTION`].
pub const TENANT: &str = "tenant.example";
/// See [`SUBSCRIPTION`].
pub const CLIENT: &str = "client";
/// See [`SUBSCRIPTION`].
pub const SECRET: &str = "simulated~secret";
/// The API key of IBM Cloud.
pub const API_KEY: &str = "simulated-api-key";

/// The service account of GCP.
const EMAIL: &str = "hibernate@simulated.iam.gserviceaccount.com";

/// ID of its key.
const KEY_ID: &str = "key-1";

/// For whom its tokens have to be.
const AUDIENCE: &str = "https://compute.googleapis.com/";

/// Its keys, in PEM: private and public. One pair a process.
static KEYS: LazyLock<(String, String)> = LazyLock::new(|| {
    let pair = KeyPair::generate_for(&PKCS_RSA_SHA256);
    pair.map(|pair| (pair.serialize_pem(), pair.public_key_pem())).unwrap_or_default()
});

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    iat: u64,
    exp: u64,
}

/// `osServiceAccount.json` of the project.
pub fn service_account() -> String {
    json!({
        "type": "service_account", "project_id": PROJECT, "private_key_id": KEY_ID, "private_key": KEYS.0,
        "client_email": EMAIL, "token_uri": "http://127.0.0.1:1/never-called", "universe_domain": "googleapis.com",
    })
    .to_string()
}

/// Whether a token was signed by the service account, for Compute Engine, and is valid now.
pub(crate) fn is_signed(token: &str) -> bool {
    let mut validation = Validation::new(Algorithm::RS256);
    validation.set_audience(&[AUDIENCE]);
    validation.set_required_spec_claims(&["exp", "aud", "iss", "sub"]);
    let Ok(key) = DecodingKey::from_rsa_pem(KEYS.1.as_bytes()) else { return false };
    decode::<Claims>(token, &key, &validation).is_ok_and(|found| {
        let Claims { iss, sub, iat, exp } = found.claims;
        let is_short = exp.saturating_sub(iat) <= 3600;
        iss == EMAIL && sub == EMAIL && is_short && found.header.kid.as_deref() == Some(KEY_ID)
    })
}

/// A token of the form that IBM's SDK takes apart.
pub(crate) fn opaque(number: usize, issued: u64, life: u64) -> String {
    let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = json!({"iat": issued, "exp": issued + life, "jti": number});
    [part(json!({"alg": "none"})), part(claims), URL_SAFE_NO_PAD.encode("simulated")].join(".")
}
