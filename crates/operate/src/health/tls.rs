//! TLS for HTTPS checks: the trusted authorities, and the name that a certificate must have.
//!
//! Uses rustls with ring: no C library is linked, and only the list of trusted authorities is taken
//! from the system.

use std::io::{Read, Write};
use std::net::IpAddr;
use std::sync::Arc;

use flowyard_lb::check::Tls;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    StreamOwned,
};

use super::deadline::Fault;

/// A client that verifies certificates as `tls` requires, or the reason why there is none.
pub(super) fn client(tls: &Tls) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let client = client.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let config = if tls.verify {
        client.with_root_certificates(roots(tls.ca.as_deref())?).with_no_client_auth()
    } else {
        let anyone = Arc::new(Anyone(provider));
        client.dangerous().with_custom_certificate_verifier(anyone).with_no_client_auth()
    };
    Ok(Arc::new(config))
}

/// The trusted authorities.
pub(crate) fn roots(ca: Option<&[u8]>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(pem) => {
            for cert in CertificateDer::pem_slice_iter(pem) {
                let cert = cert.map_err(|error| format!("the file in 'ca': {error}"))?;
                roots.add(cert).map_err(|error| format!("the file in 'ca': {error}"))?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    match (roots.is_empty(), ca) {
        (true, Some(_)) => Err("the file in 'ca' has no certificate".into()),
        (true, None) => {
            Err("the system has no list of trusted authorities; name a file with 'ca'".into())
        }
        (false, _) => Ok(roots),
    }
}

/// The name that the certificate must have: the requested host without its port, or the address.
pub(super) fn name(host: Option<&str>, addr: IpAddr) -> Result<ServerName<'static>, Fault> {
    let Some(host) = host else { return Ok(ServerName::from(addr)) };
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let name =
        host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |(name, _)| name);
    let name = name.trim_matches(['[', ']']).to_owned();
    ServerName::try_from(name)
        .map_err(|_| Fault::Cannot(format!("'{host}' is not a valid host name")))
}

/// A connection over `plain`, on which the server must have a certificate for `host`, or for `addr` without one.
pub(crate) fn stream<S: Read + Write>(
    config: &Arc<ClientConfig>,
    host: Option<&str>,
    addr: IpAddr,
    plain: S,
) -> Result<StreamOwned<ClientConnection, S>, Fault> {
    let connection = ClientConnection::new(Arc::clone(config), name(host, addr)?);
    let connection = connection.map_err(|error| Fault::Cannot(error.to_string()))?;
    Ok(StreamOwned::new(connection, plain))
}

/// Accepts every certificate, and verifies only that the server has its private key.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
