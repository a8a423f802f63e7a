//! Servers of tests: they answer each connection by a function, with TLS or without.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A connection.
pub(super) trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// A server's certificate for 127.0.0.1. Its authority is `ca.pem` in `folder`, and another one is `other.pem`.
pub(super) fn certificate(folder: &Path) -> Arc<ServerConfig> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".into()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".into()]).unwrap();
    std::fs::write(folder.join("ca.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("other.pem"), other.cert.pem()).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    Arc::new(config.with_single_cert(vec![made.cert.der().clone()], key).unwrap())
}

/// Calls `talk` for each connection, each on a thread of its own that ends with the process; returns the URL.
pub(super) fn listen(
    tls: Option<Arc<ServerConfig>>,
    talk: impl Fn(&mut dyn Stream) + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let scheme = if tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}", listener.local_addr().unwrap());
    let talk = Arc::new(talk);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, talk, tls) = (stream.unwrap(), Arc::clone(&talk), tls.clone());
            std::thread::spawn(move || match tls {
                None => talk(&mut stream),
                Some(config) => {
                    let connection = ServerConnection::new(config).unwrap();
                    talk(&mut StreamOwned::new(connection, stream));
                }
            });
        }
    });
    url
}

/// Answers requests without a body by `answer`, which gets the head of each; returns the URL.
pub(super) fn answer(
    tls: Option<Arc<ServerConfig>>,
    answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static,
) -> String {
    listen(tls, move |stream| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            let Ok(1..) = stream.read(&mut byte) else { return };
            head.extend(byte);
        }
        let head = String::from_utf8(head).unwrap();
        let _gone = stream.write_all(&answer(&head));
        let _gone = stream.flush();
    })
}
