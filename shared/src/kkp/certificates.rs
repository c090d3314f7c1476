//! When the certificates of a control plane expire. KKP renews them only while the cluster is not paused (row 15).

use jiff::{SignedDuration, Timestamp};
use x509_parser::pem::Pem;

/// Bytes of a Secret's value beyond which it is no certificate.
const MAX_BYTES: usize = 64 << 10;
/// Certificates that expire within this time may not last until KKP has cleaned up a cluster that is deleted.
const DELETION: SignedDuration = SignedDuration::from_hours(24);
/// Certificates of one value that are read.
const MAX_CERTIFICATES: usize = 16;

/// The earliest expiry of the certificates in these values of Secrets, PEM each. A value without a certificate, such as
/// a key, is skipped.
pub fn earliest_expiry<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<Timestamp> {
    values.into_iter().filter(|value| value.len() <= MAX_BYTES).flat_map(expiries).min()
}

/// Whether certificates that expire then may end before KKP has deleted the cluster: it renews none meanwhile (row 20).
pub fn end_before_a_deletion(expiry: Timestamp, now: Timestamp) -> bool {
    expiry.duration_since(now) <= DELETION
}

fn expiries(value: &[u8]) -> Vec<Timestamp> {
    let certificates = Pem::iter_from_buffer(value).take(MAX_CERTIFICATES).map_while(Result::ok);
    let expiry = |pem: &Pem| {
        let certificate = pem.parse_x509().ok()?;
        Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
    };
    certificates.filter(|pem| pem.label == "CERTIFICATE").filter_map(|pem| expiry(&pem)).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(year: i32) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["apiserver".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 1, 2);
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    #[test]
    fn the_earliest_of_all_certificates_counts_and_nothing_else() {
        let ((late, key), (early, _)) = (certificate(2031), certificate(2027));
        let expiry = |values: &[&str]| earliest_expiry(values.iter().map(|value| value.as_bytes()));
        let chain = format!("{late}{early}");
        let cut = &early[..early.len() / 2];
        for (values, expected) in [
            (vec![late.as_str(), key.as_str()], Some("2031-01-02T00:00:00Z")),
            (vec![late.as_str(), early.as_str()], Some("2027-01-02T00:00:00Z")),
            (vec![chain.as_str()], Some("2027-01-02T00:00:00Z")),
            (vec![cut, late.as_str()], Some("2031-01-02T00:00:00Z")),
            (vec![key.as_str(), "", "no certificate"], None),
            (vec![], None),
        ] {
            assert_eq!(expiry(&values).map(|at| at.to_string()).as_deref(), expected);
        }
    }
}
