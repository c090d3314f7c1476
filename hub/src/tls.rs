//! TLS as every connection of the plugin has it.

use rustls::NamedGroup;
use rustls::crypto::CryptoProvider;

/// aws-lc-rs with the post-quantum key exchange in front. API servers built with Go 1.24 and later prefer it: offered
/// second, they answer with a `HelloRetryRequest`, which is one more round trip. X25519 is still offered in the same
/// message.
pub fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.kx_groups.sort_by_key(|group| group.name() != NamedGroup::X25519MLKEM768);
    provider
}
