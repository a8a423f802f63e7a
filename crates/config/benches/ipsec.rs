//! One tunnel on one core and on two: million packets a second of 1,450 bytes, sealed by a whole yard with ports in memory.
//!
//! ```text
//! cargo bench -p flowyard-config --bench ipsec [-- [aes-128 | aes-256 | chacha20] SECONDS [BYTES [CASE]]]
//! ```
//!
//! Core 0 receives. With two cores the frames pass through an ordered queue, and both cores seal. The two are measured in
//! turn, nine times each; the result is the median of the ratios of a round. Sequence numbers of what leaves are checked in
//! `tests/main/sim/ipsec.rs`, and against another implementation by the live tests of the crate.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowyard_config::Config;
use flowyard_frame::{Batch, FlowKey, LANES, Nanos, proto};
use flowyard_pool::{Meta, Pool};
use flowyard_ports::mem::Frames;
use flowyard_ports::port::{Pace, Repeat, SourceRx};
use flowyard_testkit::Build;
use flowyard_wire::LinkType;
use flowyard_yard::port::{Discard, Received, Rx};
use flowyard_yard::{Clock, Parts};

const STATE: &str = "src 192.0.2.1 dst 192.0.2.2\n proto esp spi 0x1000 reqid 1 mode tunnel\n replay-window 64 flag esn\n aead ";
/// Ciphers: the word that chooses one, its name in the kernel, and the bytes of its key with the salt.
const CIPHERS: [(&str, &str, usize); 3] = [
    ("aes-128", "rfc4106(gcm(aes))", 20),
    ("aes-256", "rfc4106(gcm(aes))", 36),
    ("chacha20", "rfc7539esp(chacha20,poly1305)", 36),
];
const POLICY: &str = "src 10.0.0.0/8 dst 10.0.0.0/8\n dir out priority 1\n tmpl src 192.0.2.1 dst 192.0.2.2\n proto esp \
    reqid 1 mode tunnel\n";

/// How a yard is run.
#[derive(Clone, Copy)]
struct Case {
    /// Cores of the yard, which all seal.
    cores: u16,
    /// Cores that receive and transmit.
    receive: u16,
    /// Whether the receiving core copies each frame, as with sockets. Otherwise it writes the headers only, because an
    /// adapter has written the frame.
    copies: bool,
}

const CASES: [Case; 6] = [
    Case { cores: 1, receive: 1, copies: true },
    Case { cores: 2, receive: 1, copies: true },
    Case { cores: 2, receive: 2, copies: true },
    Case { cores: 1, receive: 1, copies: false },
    Case { cores: 2, receive: 1, copies: false },
    Case { cores: 2, receive: 2, copies: false },
];

/// Receives frames whose payload is what the buffer has from its last use: this core writes the headers and does not touch
/// the rest, as with an adapter that writes frames into buffers.
struct InPlace {
    headers: Vec<[u8; HEADERS]>,
    bytes: usize,
    next: usize,
}

/// Ethernet, IPv4 and UDP.
const HEADERS: usize = 42;

impl InPlace {
    fn new(core: u16, receive: u16, bytes: usize) -> Self {
        let headers = frames(core, receive, bytes);
        let headers = headers.iter().filter_map(|frame| frame.first_chunk().copied()).collect();
        Self { headers, bytes: bytes + 14, next: 0 }
    }
}

impl Rx for InPlace {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        while into.len() < LANES {
            let wire_len = self.bytes as u32;
            let meta = Meta { time: now, wire_len, link: LinkType::Ethernet, ..Meta::default() };
            let Ok(mut frame) = pool.take(self.bytes, meta) else { break };
            pool.bytes_mut(&mut frame)[..HEADERS].copy_from_slice(&self.headers[self.next]);
            self.next = (self.next + 1) % self.headers.len();
            into.push(frame, FlowKey::ZERO).expect("there is a lane");
        }
        Received::default()
    }
}

fn text(folder: &Path, Case { cores, receive, .. }: Case) -> String {
    let (order, consumers) = if cores == 1 { ("direct", "[0]") } else { ("ordered", "[0, 1]") };
    let port = if receive == 1 { "[0]" } else { "[0, 1]" };
    format!(
        "[yard]\ncores = {cores}\nidle = \"busy\"\n[[port]]\nname = \"p\"\nkind = \"af_packet\"\ninterface = \"given\"\ncores = \
         {port}\n[[queue]]\nname = \"q\"\norder = \"{order}\"\nconsumers = {consumers}\nwindow_frames = 1024\n[work]\nkind = \
         \"ipsec\"\n[[work.route]]\nprefix = \"0.0.0.0/0\"\nport = \"p\"\nnext_hop = \"02:00:00:00:00:09\"\n[ipsec]\nstate = \
         {:?}\npolicy = {:?}\nmtu = 9000\n",
        folder.join("state"),
        folder.join("policy"),
    )
}

/// The frames that `core` receives: those of every flow, or of every second one.
fn frames(core: u16, receive: u16, bytes: usize) -> Vec<Vec<u8>> {
    let flows = (core..256).step_by(receive.into());
    flows
        .map(|flow| {
            let [a, b] = [[10, 0, 0, flow as u8], [10, 9, 1, 1]].map(std::net::IpAddr::from);
            let key = FlowKey::five_tuple(proto::UDP, a, 7, b, 53);
            Build::new(&key).payload(&vec![0x5a; bytes - 28]).bytes()
        })
        .collect()
}

/// The receiving half of `core`.
fn rx(core: u16, case: Case, bytes: usize) -> Box<dyn Rx> {
    if !case.copies {
        return Box::new(InPlace::new(core, case.receive, bytes));
    }
    let mut copied = Frames::new();
    for frame in frames(core, case.receive, bytes) {
        copied.push(0, LinkType::Ethernet, &frame);
    }
    Box::new(SourceRx::new(0, Box::new(Repeat::new(copied, u32::MAX)), Pace::Fast))
}

/// Packets a second.
fn rate(folder: &Path, case: Case, bytes: usize, time: Duration) -> f64 {
    let mut parts = Parts::default();
    for core in 0..case.receive {
        parts.ports.insert((0, core), (rx(core, case, bytes), Box::new(Discard)));
    }
    let start = Instant::now();
    let clock: Clock = Arc::new(move || start.elapsed().as_nanos() as u64);
    let yard = Config::parse("y", &text(folder, case)).unwrap().build(parts).unwrap();
    let running = yard.start(clock).unwrap();
    let sent = || running.handle().counters().iter().map(|core| core.tx_frames).sum::<u64>();
    std::thread::sleep(time / 4);
    let (before, from) = (sent(), Instant::now());
    std::thread::sleep(time);
    let (after, took) = (sent(), from.elapsed());
    running.stop();
    let outcome = running.join();
    assert_eq!((outcome.held, outcome.total().drops.total()), (0, 0), "nothing is lost");
    (after - before) as f64 / took.as_secs_f64()
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<f64>().ok());
    let time = Duration::from_secs_f64(numbers.next().unwrap_or(1.0));
    let bytes = numbers.next().unwrap_or(1450.0) as usize;
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    // `cargo bench` adds an option.
    let word = std::env::args()
        .skip(1)
        .find(|word| !word.starts_with('-') && word.parse::<f64>().is_err());
    let named = word
        .as_ref()
        .map_or(Some(&CIPHERS[0]), |word| CIPHERS.iter().find(|(name, ..)| word == name));
    let &(cipher, algorithm, key) = named.expect("the algorithm is aes-128, aes-256 or chacha20");
    let key: String = (0..key).map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(&state, format!("{STATE}{algorithm} 0x{key} 128\n")).unwrap();
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(folder.path().join("policy"), POLICY).unwrap();
    if let Some(case) = numbers.next() {
        println!("{:.3} million/s", rate(folder.path(), CASES[case as usize], bytes, time) / 1e6);
        return;
    }
    let mut ratios = [const { Vec::new() }; 4];
    for round in 0..9 {
        let mut rates = [0.0; 6];
        for n in 0..6 {
            let case = (n + round) % 6;
            rates[case] = rate(folder.path(), CASES[case], bytes, time) / 1e6;
        }
        let [one, two, both, one_in_place, two_in_place, both_in_place] = rates;
        println!(
            "round {}, million/s: frames copied: one core {one:.3}, two {two:.3}, both receive {both:.3}; in place: {one_in_place:.3}, \
             {two_in_place:.3}, {both_in_place:.3}",
            round + 1
        );
        let now =
            [two / one, both / one, two_in_place / one_in_place, both_in_place / one_in_place];
        for (ratios, now) in ratios.iter_mut().zip(now) {
            ratios.push(now);
        }
    }
    let [one, both, one_in_place, both_in_place] = ratios.map(|mut ratios| {
        ratios.sort_by(f64::total_cmp);
        ratios[ratios.len() / 2]
    });
    println!(
        "{cipher}, {bytes} bytes, two cores to one core, medians: frames copied, one core receives: {one:.2}, both receive: {both:.2}; \
         frames in place: {one_in_place:.2}, {both_in_place:.2}"
    );
}
