//! The UDP check: one datagram, and its reply.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};

use super::deadline::{Deadline, Fault};

/// A UDP socket at a port of its own, for datagrams to `addr`.
pub(crate) fn socket(addr: SocketAddr) -> Result<UdpSocket, Fault> {
    let any = if addr.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    UdpSocket::bind(any).map_err(|error| Fault::Cannot(error.to_string()))
}

/// Sends a datagram, and waits for a reply that begins with `expect`. Without it, passes unless an ICMP error arrives.
pub(super) fn ask(
    addr: SocketAddr,
    deadline: Deadline<'_>,
    send: &[u8],
    expect: Option<&[u8]>,
) -> Result<(), Fault> {
    let socket = socket(addr)?;
    let mut answer = [0; 2048];
    let mut asked = || {
        socket.connect(addr)?;
        socket.send(send)?;
        socket.set_read_timeout(Some(deadline.left()?))?;
        socket.recv(&mut answer)
    };
    match (asked(), expect) {
        (Ok(len), Some(expect)) if !answer[..len].starts_with(expect) => {
            Err(Fault::wrong("the reply does not begin with 'expect'"))
        }
        (Ok(_), _) => Ok(()),
        (Err(error), None)
            if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
        {
            Ok(()) // no reply is expected
        }
        (Err(error), _) => Err(deadline.fault(&error)),
    }
}
