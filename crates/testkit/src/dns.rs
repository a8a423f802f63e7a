//! A DNS server for tests, with its records in memory.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What a server answers for a name and a type: a response code, and records as text.
type Zone = BTreeMap<(String, u16), (u16, Vec<String>)>;

/// A DNS server. Without an entry, a name does not exist.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    zone: Arc<Mutex<Zone>>,
    /// How often it was asked by UDP and by TCP.
    asked: [Arc<AtomicU64>; 2],
}

impl Server {
    /// Starts it at a port of its own; it ends with the process.
    ///
    /// # Panics
    /// When there is no port.
    #[must_use]
    pub fn start() -> Self {
        // The same port for both.
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()) {
                break (udp, tcp);
            }
        };
        let server = Self {
            addr: udp.local_addr().unwrap(),
            zone: Arc::default(),
            asked: [Arc::default(), Arc::default()],
        };
        let (zone, asked) = (Arc::clone(&server.zone), Arc::clone(&server.asked[0]));
        // Both end with the process.
        std::thread::spawn(move || {
            let mut bytes = [0; 512];
            while let Ok((len, from)) = udp.recv_from(&mut bytes) {
                asked.fetch_add(1, Ordering::Relaxed);
                let Some(mut message) = answer(&zone, &bytes[..len]) else { continue };
                if message.len() > 512 {
                    message.truncate(len);
                    message[2] |= 2; // cut off
                    message[6..8].fill(0);
                }
                // Somebody guesses, with another number.
                let mut wrong = message.clone();
                wrong[0] ^= 1;
                udp.send_to(&wrong, from).unwrap();
                udp.send_to(&message, from).unwrap();
            }
        });
        let (zone, asked) = (Arc::clone(&server.zone), Arc::clone(&server.asked[1]));
        std::thread::spawn(move || {
            for stream in tcp.incoming() {
                let mut stream = stream.unwrap();
                asked.fetch_add(1, Ordering::Relaxed);
                let mut length = [0; 2];
                stream.read_exact(&mut length).unwrap();
                let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
                stream.read_exact(&mut query).unwrap();
                let message = answer(&zone, &query).unwrap_or_default();
                let _gone = stream.write_all(&(message.len() as u16).to_be_bytes());
                let _gone = stream.write_all(&message);
            }
        });
        server
    }

    /// Its address, for UDP and TCP.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Records as `60 SRV 1 10 8080 a.example`, `60 A 10.0.0.1`, `60 CNAME b.example`.
    ///
    /// # Panics
    /// When a thread of the server has panicked.
    pub fn set(&self, name: &str, of: u16, records: &[&str]) {
        self.code(name, of, 0, records);
    }

    /// As [`Server::set`], with a response code; 99 stands for no response.
    ///
    /// # Panics
    /// When a thread of the server has panicked.
    pub fn code(&self, name: &str, of: u16, code: u16, records: &[&str]) {
        let records = records.iter().map(|record| (*record).to_owned()).collect();
        self.zone.lock().unwrap().insert((name.into(), of), (code, records));
    }

    /// The number of queries by UDP and by TCP.
    #[must_use]
    pub fn asked(&self) -> [u64; 2] {
        [0, 1].map(|at| self.asked[at].load(Ordering::Relaxed))
    }
}

fn labels(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

/// The response to a query; none for a code of 99.
fn answer(zone: &Mutex<Zone>, query: &[u8]) -> Option<Vec<u8>> {
    let (mut name, mut at) = (String::new(), 12);
    while query[at] != 0 {
        let len = usize::from(query[at]);
        name += if name.is_empty() { "" } else { "." };
        name += std::str::from_utf8(&query[at + 1..at + 1 + len]).unwrap();
        at += len + 1;
    }
    let of = u16::from_be_bytes([query[at + 1], query[at + 2]]);
    let (code, records) =
        zone.lock().unwrap().get(&(name.clone(), of)).cloned().unwrap_or((3, Vec::new()));
    let mut message = query.to_vec();
    (message[2], message[3]) = (0x81, 0x80 | code as u8);
    message[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
    let mut owner = name;
    for record in records {
        let words: Vec<&str> = record.split(' ').collect();
        let number = |at: usize| words[at].parse::<u16>().unwrap().to_be_bytes();
        let (kind, data) = match words[1] {
            "SRV" => (33u16, [&number(2)[..], &number(3), &number(4), &labels(words[5])].concat()),
            "A" => (1, words[2].parse::<std::net::Ipv4Addr>().unwrap().octets().to_vec()),
            "AAAA" => (28, words[2].parse::<std::net::Ipv6Addr>().unwrap().octets().to_vec()),
            "CNAME" => (5, labels(words[2])),
            _ => (16, vec![0xff; 400]),
        };
        message.extend(labels(&owner));
        message.extend([kind.to_be_bytes(), [0, 1]].concat());
        message.extend(words[0].parse::<u32>().unwrap().to_be_bytes());
        message.extend((data.len() as u16).to_be_bytes());
        message.extend(data);
        if words[1] == "CNAME" {
            owner = words[2].into();
        }
    }
    (code != 99).then_some(message)
}
