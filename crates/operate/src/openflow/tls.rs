//! TLS: the certificate and key of this side, and the authority that signs those of the other side.
//!
//! Both sides present a certificate: a listener requires one from its clients. The certificate of a
//! controller must have the host name in the configuration.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
};

/// Paths of PEM files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tls {
    /// The certificate of this side, followed by intermediate certificates.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// Certificates of the authority that signs the certificate of the other side.
    pub authority: PathBuf,
}

/// The TLS configuration is invalid.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or has other contents.
    #[error("{path}: {why}; it must be a PEM file with {wanted}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        why: String,
        /// The required contents.
        wanted: &'static str,
    },
    /// The files are not consistent.
    #[error("certificate {certificate}: {why}; check that key and certificate belong together")]
    Unfit {
        /// The path of the certificate of this side.
        certificate: PathBuf,
        /// The reason.
        why: String,
    },
    /// An endpoint with TLS is configured without certificates.
    #[error("{0}: TLS requires a certificate, a private key and an authority")]
    Missing(String),
}

/// The loaded certificates.
pub struct Loaded {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Loaded")
    }
}

impl Loaded {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read, or key and certificate do not belong together.
    pub fn new(files: &Tls) -> Result<Self, TlsError> {
        let wrong = |path: &PathBuf, wanted| {
            let path = path.clone();
            move |error: rustls::pki_types::pem::Error| TlsError::File {
                path,
                why: error.to_string(),
                wanted,
            }
        };
        let chain = |path: &PathBuf| -> Result<Vec<CertificateDer<'static>>, TlsError> {
            let wanted = "certificates";
            let found = CertificateDer::pem_file_iter(path).map_err(wrong(path, wanted))?;
            let found: Result<Vec<_>, _> = found.collect();
            let found = found.map_err(wrong(path, wanted))?;
            if found.is_empty() {
                let why = "the file contains no certificate".into();
                return Err(TlsError::File { path: path.clone(), why, wanted });
            }
            Ok(found)
        };
        let own = chain(&files.certificate)?;
        let key =
            || PrivateKeyDer::from_pem_file(&files.key).map_err(wrong(&files.key, "a private key"));
        let unfit = |error: &dyn std::fmt::Display| TlsError::Unfit {
            certificate: files.certificate.clone(),
            why: error.to_string(),
        };
        let mut roots = RootCertStore::empty();
        for certificate in chain(&files.authority)? {
            roots.add(certificate).map_err(|error| unfit(&error))?;
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| unfit(&error))?
            .with_root_certificates(Arc::clone(&roots))
            .with_client_auth_cert(own.clone(), key()?)
            .map_err(|error| unfit(&error))?;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(|error| unfit(&error))?;
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unfit(&error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(own, key()?)
            .map_err(|error| unfit(&error))?;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }

    /// A TLS session for a connection to `host`.
    pub(super) fn client(&self, host: &str) -> io::Result<Connection> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let made = ClientConnection::new(Arc::clone(&self.client), name);
        made.map(Connection::Client).map_err(io::Error::other)
    }

    /// A TLS session for an accepted connection.
    pub(super) fn server(&self) -> io::Result<Connection> {
        let made = ServerConnection::new(Arc::clone(&self.server));
        made.map(Connection::Server).map_err(io::Error::other)
    }
}
