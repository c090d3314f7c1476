//! The part of a request that its requester wrote: PKCS #10 in PEM.
//!
//! The signer will read the same bytes with another library. Whatever two readers could understand differently is
//! refused: text around the PEM block, bytes after the DER, a second list of extensions, a second common name.

use std::net::IpAddr;

use x509_parser::certification_request::{X509CertificationRequest, X509CertificationRequestInfo};
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension, SubjectAlternativeName};
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::FromDer as _;

use super::Reason;

const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----";
const END: &str = "-----END CERTIFICATE REQUEST-----";

/// Many times what a kubelet writes, with the longest of keys.
const MAX_REQUEST_BYTES: usize = 32 * 1024;

/// A request with a valid signature of its own key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Common name; empty if it has none.
    pub common_name: String,
    /// Organizations, in order.
    pub organizations: Vec<String>,
    /// DNS names.
    pub dns: Vec<String>,
    /// IP addresses.
    pub ips: Vec<IpAddr>,
    /// Whether it asks for email addresses, URIs or other names.
    pub other_names: bool,
    /// The public key, as `SubjectPublicKeyInfo` in DER.
    pub key: Vec<u8>,
}

impl Request {
    /// Reads a request and verifies its signature.
    ///
    /// # Errors
    /// Why it cannot be read, or asks for what kubelets do not ask for.
    pub fn parse(pem: &[u8]) -> Result<Self, Reason> {
        let der = der(pem).ok_or(Reason::Malformed)?;
        let (rest, parsed) = X509CertificationRequest::from_der(&der).map_err(|_| Reason::Malformed)?;
        if !rest.is_empty() {
            return Err(Reason::Malformed);
        }
        parsed.verify_signature().map_err(|_| Reason::BadSignature)?;
        let info = &parsed.certification_request_info;
        let mut request = Self { key: info.subject_pki.raw.to_vec(), ..Self::default() };
        request.read_subject(info)?;
        if let Some(names) = names(info)? {
            request.read_names(names)?;
        }
        Ok(request)
    }

    fn read_subject(&mut self, info: &X509CertificationRequestInfo<'_>) -> Result<(), Reason> {
        let mut common_names = Vec::new();
        for attribute in info.subject.iter_attributes() {
            let text = attribute.as_str().map_err(|_| Reason::Malformed)?.to_owned();
            match attribute.attr_type() {
                oid if *oid == OID_X509_COMMON_NAME => common_names.push(text),
                oid if *oid == OID_X509_ORGANIZATION_NAME => self.organizations.push(text),
                _ => return Err(Reason::ExtraSubject),
            }
        }
        if common_names.len() > 1 {
            return Err(Reason::ExtraSubject);
        }
        self.common_name = common_names.pop().unwrap_or_default();
        Ok(())
    }

    fn read_names(&mut self, names: &SubjectAlternativeName<'_>) -> Result<(), Reason> {
        for name in &names.general_names {
            match name {
                GeneralName::DNSName(name) => self.dns.push((*name).to_owned()),
                GeneralName::IPAddress(octets) => self.ips.push(address(octets).ok_or(Reason::Malformed)?),
                _ => self.other_names = true,
            }
        }
        Ok(())
    }
}

/// The content of the text, which is to be one PEM block and nothing else.
fn der(pem: &[u8]) -> Option<Vec<u8>> {
    let text = str::from_utf8(pem).ok().filter(|text| text.len() <= MAX_REQUEST_BYTES)?.trim();
    let inside = text.strip_prefix(BEGIN)?.strip_suffix(END)?;
    let plain = inside.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=\r\n".contains(&byte));
    let (_, block) = parse_x509_pem(text.as_bytes()).ok().filter(|_| plain)?;
    Some(block.contents)
}

/// The alternative names, if they are all that it asks for.
fn names<'a>(info: &'a X509CertificationRequestInfo<'a>) -> Result<Option<&'a SubjectAlternativeName<'a>>, Reason> {
    let extensions = match info.attributes() {
        [] => return Ok(None),
        [only] => match only.parsed_attribute() {
            ParsedCriAttribute::ExtensionRequest(requested) => &requested.extensions,
            _ => return Err(Reason::ExtraExtension),
        },
        _ => return Err(Reason::ExtraExtension),
    };
    match extensions.as_slice() {
        [] => Ok(None),
        [only] => match only.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(names) => Ok(Some(names)),
            _ => Err(Reason::ExtraExtension),
        },
        _ => Err(Reason::ExtraExtension),
    }
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok().map(|address| address.to_canonical())
}
