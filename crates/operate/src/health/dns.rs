//! The DNS check: one query over UDP, and its response.
//!
//! Invariants: a datagram that is not a response to this query is ignored; records are counted and not read.
//! Thread-safety: stateless.

use std::io;
use std::net::SocketAddr;

use super::deadline::{Deadline, Fault};
use super::udp;
use crate::dns::{self, Reply};

/// Asks the server at `addr` for records of `name`, and waits for its response.
///
/// # Errors
/// There is no response in time, or one with an error or without a record.
pub(super) fn ask(
    addr: SocketAddr,
    name: &str,
    kind: u16,
    deadline: Deadline<'_>,
) -> Result<(), Fault> {
    let socket = udp::socket(addr)?;
    let told = |error: io::Error| deadline.fault(&error);
    socket.connect(addr).map_err(told)?;
    // Each check has a socket of its own, whose port the kernel chooses at random: so is the ID.
    let id = socket.local_addr().map_err(told)?.port();
    let query = dns::query(id, name, kind);
    socket.send(&query).map_err(told)?;
    let mut bytes = [0; 4096];
    loop {
        let left = deadline.left().map_err(told)?;
        socket.set_read_timeout(Some(left)).map_err(told)?;
        let len = socket.recv(&mut bytes).map_err(told)?;
        if let Some(outcome) = response(&query, &bytes[..len]) {
            return outcome.map_err(|why| Fault::wrong(format!("'{name}': {why}")));
        }
    }
}

/// Whether a response is a good one; `None` if `message` is not a response to `query`.
fn response(query: &[u8], message: &[u8]) -> Option<Result<(), String>> {
    let reply = Reply::to(query, message)?;
    Some(match (reply.code, reply.answers) {
        (0, 1..) => Ok(()),
        (0, 0) => Err("the response has no record".into()),
        (code, _) => Err(format!("the response is an error: {}", dns::error(code))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_good_without_an_error_and_with_a_record() {
        let query = dns::query(7, "a.example", 1);
        let of = |flags: u16, answers: u8| {
            let mut message = query.clone();
            message[2..4].copy_from_slice(&flags.to_be_bytes());
            message[7] = answers;
            response(&query, &message)
        };
        assert_eq!(of(0x8180, 1), Some(Ok(())));
        assert_eq!(of(0x8180, 0), Some(Err("the response has no record".into())));
        assert_eq!(of(0x8183, 0), Some(Err("the response is an error: NXDOMAIN".into())));
        assert_eq!(of(0x0100, 1), None, "a query");
    }
}
