//! The credentials of the client, and the authorities that it trusts: the files of `[cluster]`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flowyard_config::{ClusterConfig, file};
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::health::tls;

/// A file that `[cluster]` needs cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{path}: {why}; {fix}", path = .path.display())]
pub struct OpenError {
    path: PathBuf,
    why: String,
    fix: String,
}

impl OpenError {
    /// The file that names the DNS servers of the system does not.
    pub(super) fn of_resolver(path: &Path, why: &dyn std::fmt::Display) -> Self {
        let why = format!("the DNS servers of the system are not known: {why}");
        let fix = "write the addresses of DNS servers as 'servers' in [cluster], such as servers = [\"10.0.0.53\"]";
        Self { path: path.into(), why, fix: fix.into() }
    }
}

/// User and password or token, and the settings of TLS.
#[derive(Clone)]
pub(super) struct Login {
    pub(super) user: Option<(String, String)>,
    /// The last good token, and the file that it was read from.
    token: Option<(PathBuf, String)>,
    /// `None` if no endpoint uses TLS.
    pub(super) tls: Option<Arc<ClientConfig>>,
}

impl Login {
    pub(super) fn read(config: &ClusterConfig) -> Result<Self, OpenError> {
        let user = match (&config.user, &config.password_file) {
            (Some(user), Some(path)) => {
                let path = path.get_ref();
                let text =
                    file::text(path).map_err(|error| wrong("password_file", path, &error))?;
                Some((user.get_ref().clone(), text.trim_end_matches(['\r', '\n']).to_owned()))
            }
            _ => None,
        };
        let token = config.token_file.as_ref().map(|path| {
            let path = path.get_ref();
            let token = token(path).map_err(|why| wrong("token_file", path, &why))?;
            Ok((path.clone(), token))
        });
        // Files that are named and not needed are read, too, so that a wrong path is noticed.
        let tls = config.endpoints().iter().any(|endpoint| endpoint.tls)
            || config.ca.is_some()
            || config.cert.is_some();
        let tls = if tls { Some(client(config)?) } else { None };
        Ok(Self { user, token: token.transpose()?, tls })
    }

    /// The value of the field `Authorization`. A token is read again, because some expire; if that fails, the last good
    /// one stays.
    pub(super) fn authorization(&mut self) -> Option<String> {
        if let Some((path, last)) = &mut self.token {
            if let Ok(token) = token(path) {
                *last = token;
            }
            return Some(format!("Bearer {last}"));
        }
        let (user, password) = self.user.as_ref()?;
        Some(format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}"))))
    }
}

/// Reads a token, which becomes a part of a request, so it must not contain the end of a line.
fn token(path: &Path) -> Result<String, String> {
    let text = file::text(path).map_err(|error| error.to_string())?;
    let token = text.trim();
    match !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(token.into()),
        false => Err("this is not a token, which has no blanks and only letters of ASCII".into()),
    }
}

fn wrong(key: &'static str, path: &Path, why: &dyn std::fmt::Display) -> OpenError {
    let fix = format!("it is '{key}' of [cluster]");
    OpenError { path: path.into(), why: why.to_string(), fix }
}

/// TLS that verifies the certificates of the server, and presents one if the configuration has one.
fn client(config: &ClusterConfig) -> Result<Arc<ClientConfig>, OpenError> {
    let ca = config.ca.as_ref().map(|path| path.get_ref().as_path());
    let at_ca = |why: &dyn std::fmt::Display| wrong("ca", ca.unwrap_or(Path::new("")), why);
    let pem = ca.map(file::read).transpose().map_err(|error| at_ca(&error))?;
    let roots = tls::roots(pem.as_deref()).map_err(|why| at_ca(&why))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider);
    let client = client.with_safe_default_protocol_versions().map_err(|error| at_ca(&error))?;
    let client = client.with_root_certificates(roots);
    let (Some(cert), Some(key)) = (&config.cert, &config.key) else {
        return Ok(Arc::new(client.with_no_client_auth()));
    };
    let (cert, key) = (cert.get_ref(), key.get_ref());
    let pem = file::read(cert).map_err(|error| wrong("cert", cert, &error))?;
    let chain = CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>();
    let chain = chain.map_err(|error| wrong("cert", cert, &error))?;
    let pem = file::read(key).map_err(|error| wrong("key", key, &error))?;
    let secret = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| wrong("key", key, &error))?;
    let client = client.with_client_auth_cert(chain, secret);
    client.map(Arc::new).map_err(|error| wrong("cert", cert, &error))
}
