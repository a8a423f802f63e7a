//! The DNS check: one query over UDP, and its response.
//!
//! Invariants: a datagram that is not a response to this query is ignored; records are counted and not read.
//! Thread-safety: stateless.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};

use super::deadline::{Deadline, Fault, Timed};
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
    let query = dns::query(dns::random_id(), name, kind);
    let message = over_udp(&socket, &query, deadline).map_err(told)?;
    let outcome = response(&query, &message).unwrap_or_else(|| Err("there is no response".into()));
    outcome.map_err(|why| Fault::wrong(format!("'{name}': {why}")))
}

/// Sends a query from a connected socket, and waits for the response to it.
pub(crate) fn over_udp(
    socket: &UdpSocket,
    query: &[u8],
    deadline: Deadline<'_>,
) -> io::Result<Vec<u8>> {
    socket.send(query)?;
    let mut bytes = [0; 4096];
    loop {
        socket.set_read_timeout(Some(deadline.left()?))?;
        let len = socket.recv(&mut bytes)?;
        // Others are of another query, or not from the server.
        if Reply::to(query, &bytes[..len]).is_some() {
            return Ok(bytes[..len].to_vec());
        }
    }
}

/// Sends a query over a connection of its own, and reads one message, which may be something else than a response.
pub(crate) fn over_tcp(
    server: SocketAddr,
    query: &[u8],
    deadline: Deadline<'_>,
) -> io::Result<Vec<u8>> {
    let stream = TcpStream::connect_timeout(&server, deadline.left()?)?;
    let mut stream = Timed { stream, deadline };
    let length = u16::try_from(query.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), query].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message)?;
    Ok(message)
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
