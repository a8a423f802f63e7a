use std::net::TcpListener;
use std::time::Duration;

use super::*;

#[test]
fn a_silent_address_does_not_use_up_the_time_of_the_next() {
    // Its queue of connections is full, so it does not answer.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&silent, 0).unwrap();
    let at = silent.local_addr().unwrap();
    let short = Duration::from_millis(100);
    let queued: Vec<_> =
        (0..16).map_while(|_| TcpStream::connect_timeout(&at, short).ok()).collect();
    assert!(queued.len() < 16, "the address answers");
    let good = TcpListener::bind("127.0.0.1:0").unwrap();
    #[allow(clippy::disallowed_methods, reason = "tests of real sockets wait by the clock")]
    let start = std::time::Instant::now();
    let now = || start.elapsed().as_nanos() as Nanos;
    let to = |addrs: &[SocketAddr]| connect(addrs, Deadline::new(&now, 1_000_000_000));
    let stream = to(&[at, good.local_addr().unwrap()]).unwrap();
    assert_eq!(stream.peer_addr().unwrap(), good.local_addr().unwrap());
    assert_eq!(to(&[at, at]).unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(to(&[]).unwrap_err().to_string().contains("no address"));
}
