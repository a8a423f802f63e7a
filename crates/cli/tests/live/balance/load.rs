//! Clients: HTTP/1.1 requests on new or kept connections, with every failure counted; downloads that are
//! compared byte by byte; memcached's protocol and echoes over UDP.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::yard::clock;
use flowyard_livekit::net::Net;

const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to a web server.
pub(crate) struct Web {
    stream: BufReader<TcpStream>,
}

/// The head of an HTTP response.
struct Head {
    status: u16,
    length: usize,
}

impl Web {
    /// Connects from the calling thread's namespace.
    pub(crate) fn open(to: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&to, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::with_capacity(256 << 10, stream) })
    }

    /// The address of this end.
    pub(crate) fn here(&self) -> SocketAddr {
        self.stream.get_ref().local_addr().unwrap()
    }

    fn head(&mut self) -> io::Result<Head> {
        let (mut head, mut line) = (Head { status: 0, length: 0 }, String::new());
        loop {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(io::Error::other("closed before the answer"));
            }
            let text = line.trim_end();
            if let Some(rest) = text.strip_prefix("HTTP/1.1 ") {
                head.status = rest.get(..3).and_then(|code| code.parse().ok()).unwrap_or(0);
            } else if let Some((name, value)) = text.split_once(": ")
                && name.eq_ignore_ascii_case("content-length")
            {
                head.length = value.parse().map_err(io::Error::other)?;
            } else if text.is_empty() {
                return Ok(head);
            }
        }
    }

    /// GETs a short text; `last` closes the connection.
    pub(crate) fn get(&mut self, path: &str, last: bool) -> io::Result<String> {
        let how = if last { "close" } else { "keep-alive" };
        let ask = format!("GET {path} HTTP/1.1\r\nHost: vip\r\nConnection: {how}\r\n\r\n");
        self.stream.get_mut().write_all(ask.as_bytes())?;
        let head = self.head()?;
        let mut body = vec![0; head.length];
        self.stream.read_exact(&mut body)?;
        if head.status != 200 {
            return Err(io::Error::other(format!("status {}", head.status)));
        }
        String::from_utf8(body).map_err(io::Error::other)
    }

    /// GETs a file, which must be equal to `want`.
    pub(crate) fn download(&mut self, path: &str, want: &[u8]) -> io::Result<()> {
        let ask = format!("GET {path} HTTP/1.1\r\nHost: vip\r\n\r\n");
        self.stream.get_mut().write_all(ask.as_bytes())?;
        let head = self.head()?;
        if (head.status, head.length) != (200, want.len()) {
            return Err(io::Error::other(format!("status {}, {} bytes", head.status, head.length)));
        }
        let mut at = 0;
        while at < want.len() {
            let got = match self.stream.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                got => got?,
            };
            let len = got.len();
            if len == 0 || want.get(at..at + len) != Some(got) {
                return Err(io::Error::other(format!(
                    "it ends or differs within {at}..{}",
                    at + len
                )));
            }
            self.stream.consume(len);
            at += len;
        }
        Ok(())
    }

    /// PUTs a new file.
    pub(crate) fn upload(&mut self, path: &str, data: &[u8]) -> io::Result<()> {
        let head =
            format!("PUT {path} HTTP/1.1\r\nHost: vip\r\nContent-Length: {}\r\n\r\n", data.len());
        self.stream.get_mut().write_all(head.as_bytes())?;
        self.stream.get_mut().write_all(data)?;
        let head = self.head()?;
        match head.status {
            201 => Ok(()),
            status => Err(io::Error::other(format!("status {status}"))),
        }
    }
}

/// The results of requests.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) requests: u64,
    pub(crate) failed: u64,
    /// Number of failures by error.
    pub(crate) why: BTreeMap<String, u64>,
    /// Number of answers by backend.
    pub(crate) by: BTreeMap<String, u64>,
    /// The longest time of a request in nanoseconds, with that for its connection if it opened one.
    pub(crate) longest: u64,
}

impl Done {
    pub(crate) fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.failed += other.failed;
        self.longest = self.longest.max(other.longest);
        other.why.into_iter().for_each(|(why, n)| *self.why.entry(why).or_default() += n);
        other.by.into_iter().for_each(|(who, n)| *self.by.entry(who).or_default() += n);
    }

    fn fail(&mut self, why: String) {
        self.failed += 1;
        *self.why.entry(why).or_default() += 1;
    }

    /// Checks that no request failed, and that each of `backends` backends answered some.
    #[track_caller]
    pub(crate) fn all_well(&self, backends: usize) -> &Self {
        assert_eq!((self.failed, self.by.len()), (0, backends), "{self:?}");
        self
    }
}

/// A client's requests for `/who`.
#[derive(Clone, Copy)]
pub(crate) struct Requests {
    pub(crate) to: SocketAddr,
    /// Requests on each connection.
    pub(crate) each: u32,
    /// Pause after each request.
    pub(crate) pause: Duration,
}

impl Requests {
    pub(crate) fn short(vip: IpAddr) -> Self {
        Self { to: (vip, 80).into(), each: 1, pause: Duration::ZERO }
    }

    pub(crate) fn kept(vip: IpAddr, each: u32) -> Self {
        Self { each, ..Self::short(vip) }
    }

    /// Opens one connection and sends its requests.
    fn connection(self, done: &mut Done) {
        let clock = clock();
        let mut began = clock();
        let mut web = Web::open(self.to, PATIENCE);
        for n in 1..=self.each {
            done.requests += 1;
            let answer =
                web.as_mut().map_err(|error| format!("connect: {error}")).and_then(|web| {
                    let answer = web.get("/who", n == self.each);
                    answer.map_err(|error| format!("request {n} from {}: {error}", web.here()))
                });
            match answer {
                Ok(who) => *done.by.entry(who).or_default() += 1,
                Err(error) => return done.fail(format!("{}: {error}", self.to)),
            }
            done.longest = done.longest.max(clock() - began);
            if !self.pause.is_zero() {
                std::thread::sleep(self.pause);
            }
            began = clock();
        }
    }

    /// Opens this number of connections, one after the other.
    pub(crate) fn run(self, net: &Net, connections: u32) -> Done {
        net.within(move || {
            let mut done = Done::default();
            (0..connections).for_each(|_| self.connection(&mut done));
            done
        })
    }
}

/// Clients that send requests until they are stopped.
pub(crate) struct Load {
    over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Done>>,
}

impl Load {
    pub(crate) fn start(net: &Net, clients: &[Requests]) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let client = |requests: &Requests| {
            let (requests, over) = (*requests, Arc::clone(&over));
            net.spawn(move || {
                let mut done = Done::default();
                while !over.load(Ordering::Relaxed) {
                    requests.connection(&mut done);
                }
                done
            })
        };
        let clients = clients.iter().map(client).collect();
        Self { over, clients }
    }

    pub(crate) fn stop(mut self) -> Done {
        self.over.store(true, Ordering::Relaxed);
        let mut done = Done::default();
        self.clients.drain(..).for_each(|client| done.add(client.join().unwrap()));
        done
    }
}

/// Ends the clients of a test that failed. They would use a processor each until the last test ends.
impl Drop for Load {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Pseudo-random content of this length, in which no two blocks are equal.
pub(crate) fn content(bytes: usize) -> Vec<u8> {
    let mut data = Vec::with_capacity(bytes + 8);
    let mut word = 0x9e37_79b9_7f4a_7c15_u64;
    while data.len() < bytes {
        // A simplified SplitMix64.
        word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        data.extend_from_slice(
            &(word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9).to_le_bytes(),
        );
    }
    data.truncate(bytes);
    data
}

/// A small file, larger than a TCP window.
pub(crate) fn small() -> Vec<u8> {
    content(2 << 20)
}

/// A UDP socket for datagrams to a VIP, in the calling thread's namespace.
fn datagrams(to: SocketAddr) -> UdpSocket {
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let socket = UdpSocket::bind((any, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.connect(to).unwrap();
    socket
}

/// Sets and gets values of memcached over UDP (protocol.txt, "UDP protocol"), each from its own socket;
/// returns their number.
pub(crate) fn memcached(net: &Net, vip: IpAddr, sockets: usize) -> usize {
    net.within(move || {
        for n in 0..sockets {
            let socket = datagrams((vip, 11211).into());
            let value: Vec<u8> = content(n * 97 % 900 + 1).iter().map(|b| b'a' + b % 26).collect();
            let ask = |id: u16, text: &[u8]| {
                let [high, low] = id.to_be_bytes();
                socket.send(&[&[high, low, 0, 0, 0, 1, 0, 0], text].concat()).unwrap();
                let mut answer = vec![0; 2000];
                let len = socket.recv(&mut answer).unwrap();
                assert_eq!(answer[..8], [high, low, 0, 0, 0, 1, 0, 0], "one datagram, of {id}");
                answer[8..len].to_vec()
            };
            let set =
                [format!("set k{n} 0 0 {}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
            assert_eq!(ask(n as u16 * 2, &set), b"STORED\r\n");
            let got = ask(n as u16 * 2 + 1, format!("get k{n}\r\n").as_bytes());
            let head = format!("VALUE k{n} 0 {}\r\n", value.len());
            assert!(got == [head.as_bytes(), &value, b"\r\nEND\r\n"].concat(), "value {n}");
        }
        sockets
    })
}

/// Sends datagrams of `bytes` bytes from several sockets, and checks that they return unchanged; returns the
/// number of answers by backend.
pub(crate) fn echoes(
    net: &Net,
    vip: IpAddr,
    (sockets, each): (usize, usize),
    bytes: usize,
) -> BTreeMap<u8, usize> {
    net.within(move || {
        let mut by = BTreeMap::new();
        for n in 0..sockets {
            let socket = datagrams((vip, 7).into());
            let mut whose = None;
            for k in 0..each {
                let mut data = content(bytes + 2);
                data[0] = 0;
                data[1] = (n * each + k) as u8;
                socket.send(&data).unwrap();
                let mut answer = vec![0; 65_536];
                let len = socket.recv(&mut answer).unwrap_or_else(|error| {
                    panic!("no echo of {bytes} bytes from {vip}, socket {n}, datagram {k}: {error}")
                });
                let who = std::mem::take(&mut answer[0]);
                assert!(answer[..len] == data, "{bytes} bytes from {vip}");
                assert_eq!(*whose.get_or_insert(who), who, "one flow, one backend");
                *by.entry(who).or_default() += 1;
            }
        }
        by
    })
}
