//! `balance`: any bytes as a UDP payload with a QUIC connection ID, as an ICMP message, and as the answer to a gRPC health check. The first
//! three bytes choose the encryption, the lengths of server ID and nonce, and the address family.

use crate::{Limits, Line};
use flowyard_lb::check::grpc;
use flowyard_lb::icmp;
use flowyard_lb::quic::{Config, Reader, Route};

/// A payload has at most one connection ID: at most 20 bytes are decrypted, in four rounds. An ICMP message is read to
/// the ports of its quoted packet; its checksum adds all bytes. The parsers allocate nothing: the bytes belong to
/// this target's configuration and reader.
pub const LIMITS: Limits =
    Limits { blocks: Line { input: 1000, byte: 10 }, bytes: Line { input: 1000, byte: 0 } };

/// Reads `data` as all of them.
///
/// # Panics
/// When a parser panics, or returns what the bytes cannot hold.
pub fn balance(data: &[u8]) {
    let Some((&[form, server, nonce], data)) = data.split_first_chunk::<3>() else { return };
    let key = (form & 0x80 != 0).then_some([form; 16]);
    let (server, nonce) = (usize::from(server % 20), usize::from(nonce % 24));
    if let Ok(config) = Config::new(form & 7, server, nonce, key)
        && let Route::Server(id) = Reader::new(&[config]).route(data)
    {
        assert_eq!(id.bytes().len(), server);
        assert!(data.len() > server + nonce, "a connection ID that is longer than the bytes");
    }
    if grpc::answer(data).is_some() {
        assert!(data.len() >= 5 && data[0] == 0);
    }
    let v6 = form & 0x40 != 0;
    if let Some(quoted) = icmp::quoted(data, v6) {
        assert_eq!(quoted.flow.is_ipv6(), v6);
        assert!(icmp::HEADER + quoted.l4 + 4 <= data.len());
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn changed_seeds() {
        let mut seed: Vec<u8> = (0..96).map(|byte| byte ^ 0x45).collect();
        for at in 0..seed.len() {
            for value in [0, 1, 0x40, 0x45, 0x60, 0x80, 0xc0, 0xff] {
                let old = std::mem::replace(&mut seed[at], value);
                super::balance(&seed);
                super::balance(&seed[..at]);
                seed[at] = old;
            }
        }
    }
}
