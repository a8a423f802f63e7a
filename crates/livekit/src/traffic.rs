//! Traffic between hosts, checked by the receiver: TCP streams and numbered datagrams.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::net::Net;

/// How long a host tries to connect.
const PATIENCE: Duration = Duration::from_secs(5);
/// Attempts to accept a connection, 5 ms apart.
const TRIES: u32 = 1200;

/// Byte `at` of a stream, pseudo-random, so that no two blocks are equal.
const fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Sends `bytes` bytes by TCP from `a` to `b` at `to`, and checks each byte. Returns the rate in Mbit/s.
pub fn stream(a: &Net, b: &Net, to: IpAddr, bytes: u64) -> f64 {
    let listener = listen(b, to);
    let to = SocketAddr::new(to, listener.local_addr().unwrap().port());
    let sender = a.spawn(move || write(&mut connect(to), bytes));
    let rate = check(&mut accept(&listener), bytes);
    sender.join().unwrap();
    rate
}

/// As [`stream`], but the host that is connected to sends: from `b` to `a`, which connects to `to`.
pub fn download(a: &Net, b: &Net, to: IpAddr, bytes: u64) -> f64 {
    let listener = listen(b, to);
    let to = SocketAddr::new(to, listener.local_addr().unwrap().port());
    let receiver = a.spawn(move || check(&mut connect(to), bytes));
    write(&mut accept(&listener), bytes);
    receiver.join().unwrap()
}

/// A socket at all addresses of `b` of the family of `to`, as something in between may translate `to`.
fn listen(b: &Net, to: IpAddr) -> TcpListener {
    b.within(move || TcpListener::bind((any(to), 0)).unwrap())
}

/// All addresses of the family of `to`.
fn any(to: IpAddr) -> IpAddr {
    if to.is_ipv4() { [0, 0, 0, 0].into() } else { [0; 16].into() }
}

/// The next connection, for which it waits as long as the other side tries.
fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    for _ in 0..TRIES {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false).unwrap();
            return stream;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("nobody has connected")
}

fn connect(to: SocketAddr) -> TcpStream {
    TcpStream::connect_timeout(&to, PATIENCE).unwrap()
}

fn write(stream: &mut TcpStream, bytes: u64) {
    stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut at = 0;
    while at < bytes {
        let end = (at + (64 << 10)).min(bytes);
        let block: Vec<u8> = (at..end).map(byte).collect();
        stream.write_all(&block).unwrap();
        at = end;
    }
    stream.shutdown(Shutdown::Write).unwrap();
}

/// Reads the bytes, and checks them. Returns the rate in Mbit/s.
fn check(stream: &mut TcpStream, bytes: u64) -> f64 {
    let clock = crate::clock();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let (mut at, mut buffer, began) = (0, vec![0; 256 << 10], clock());
    loop {
        let len = match stream.read(&mut buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            len => len.unwrap(),
        };
        if len == 0 {
            break;
        }
        assert!(buffer[..len].iter().zip(at..).all(|(got, at)| *got == byte(at)), "at {at}");
        at += len as u64;
    }
    assert_eq!(at, bytes);
    bytes as f64 * 8e3 / (clock() - began) as f64
}

/// Numbered datagrams of several flows.
#[derive(Clone, Copy, Debug)]
pub struct Datagrams {
    /// The destination.
    pub to: IpAddr,
    /// Number of flows.
    pub flows: u64,
    /// Datagrams of each flow.
    pub count: u64,
    /// Length of each, at least 16.
    pub bytes: usize,
    /// Pause after one datagram of each flow.
    pub gap: Duration,
}

/// Counts of received datagrams.
#[derive(Debug, Default)]
pub struct Arrived {
    /// All of them.
    pub total: u64,
    /// Those that arrived after a later one of their flow.
    pub late: u64,
    /// Those that arrived twice in succession.
    pub twice: u64,
}

impl Datagrams {
    /// Sends from `a` to `b`, and waits until all have arrived or none arrives any more.
    pub fn send(self, a: &Net, b: &Net) -> Arrived {
        let (done, listening) = (Arc::new(AtomicBool::new(false)), self.listen(b));
        let (to, over) = (listening.1, Arc::clone(&done));
        let all = self.flows * self.count;
        let receiver = b.spawn(move || receive(&listening.0, all, &over));
        a.within(move || {
            let any = any(self.to);
            let sockets: Vec<_> =
                (0..self.flows).map(|_| UdpSocket::bind((any, 0)).unwrap()).collect();
            let mut data = vec![0; self.bytes];
            for number in 0..self.count {
                for (flow, socket) in (0..).zip(&sockets) {
                    let flow: u64 = flow;
                    data[..8].copy_from_slice(&flow.to_be_bytes());
                    data[8..16].copy_from_slice(&number.to_be_bytes());
                    // Fails in tests that set a link down.
                    let _sent = socket.send_to(&data, to);
                }
                if !self.gap.is_zero() {
                    std::thread::sleep(self.gap);
                }
            }
        });
        done.store(true, Ordering::Relaxed);
        receiver.join().unwrap()
    }

    fn listen(&self, b: &Net) -> (UdpSocket, SocketAddr) {
        let to = self.to;
        let socket = b.within(move || UdpSocket::bind((to, 0)).unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        crate::sys::big_buffer(&socket);
        let at = socket.local_addr().unwrap();
        (socket, at)
    }
}

/// Timeouts of 20 ms in succession after which no more datagrams are expected.
const SILENCES: u32 = 25;

/// Receives until all have arrived, or none arrives any more.
fn receive(socket: &UdpSocket, all: u64, done: &AtomicBool) -> Arrived {
    let (mut arrived, mut buffer, mut silences) = (Arrived::default(), vec![0; 65_536], 0);
    let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
    loop {
        match socket.recv(&mut buffer) {
            Ok(len) => {
                silences = 0;
                let word = |at: usize| u64::from_be_bytes(buffer[at..at + 8].try_into().unwrap());
                let (flow, number) = (word(0), word(8));
                assert!(len >= 16);
                arrived.total += 1;
                let next = seen.entry(flow).or_default();
                arrived.late += u64::from(number + 1 < *next);
                arrived.twice += u64::from(number + 1 == *next);
                *next = (*next).max(number + 1);
            }
            Err(_) if done.load(Ordering::Relaxed) => {
                silences += 1;
                if silences == SILENCES || arrived.total >= all {
                    return arrived;
                }
            }
            Err(_) => {}
        }
    }
}
