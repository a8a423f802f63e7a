//! Numbered frames: a port that generates them and one that checks them, and a yard between the two.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flowyard_config::Config;
use flowyard_frame::{Batch, FlowKey, LANES, Lanes, Nanos, proto};
use flowyard_pool::{Meta, Pool};
use flowyard_ports::port::Log;
use flowyard_testkit::Build;
use flowyard_testkit::event_engine::OPTIONS;
use flowyard_wire::LinkType;
use flowyard_yard::port::{Received, Rx, Tx};
use flowyard_yard::{Clock, Parts};

/// Whether DPDK starts with the options of these tests.
pub(crate) fn dpdk_starts() -> Result<(), String> {
    let options = OPTIONS.map(str::to_owned);
    flowyard_dpdk::Eal::start(&options, &[]).map(drop).map_err(|error| error.what)
}

/// The number of frames of a test.
pub(crate) fn frames() -> u64 {
    frames_or(300_000)
}

/// As [`frames`], where the usual number takes too long.
pub(crate) fn frames_or(usual: u64) -> u64 {
    let asked = std::env::var("FLOWYARD_DPDK_FRAMES").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(usual)
}

#[expect(clippy::disallowed_methods, reason = "threads run by a real clock")]
pub(crate) fn clock() -> Clock {
    let start = std::time::Instant::now();
    Arc::new(move || start.elapsed().as_nanos() as u64)
}

pub(crate) const FLOWS: u64 = 64;

/// The bytes of a frame but its number.
fn templates() -> Vec<Vec<u8>> {
    let template = |flow: u64| {
        let (from, to) = ([10, 0, 0, 1], [10, 0, 1, flow as u8]);
        let key = FlowKey::five_tuple(proto::UDP, from.into(), 1000, to.into(), 2000 + flow as u16);
        let payload = vec![flow as u8; if flow.is_multiple_of(9) { 900 } else { 30 }];
        let mut frame = Build::new(&key).payload(&payload).bytes();
        // Unicast addresses, which bridges accept.
        frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        frame
    };
    (0..FLOWS).map(template).collect()
}

const IP_PROTOCOL: usize = 23;
const NUMBER: std::ops::Range<usize> = 42..50;

/// Makes the frame with a number.
pub(crate) fn frame() -> impl Fn(u64) -> Vec<u8> {
    let templates = templates();
    move |number| {
        let mut frame = templates[(number % FLOWS) as usize].clone();
        frame[NUMBER].copy_from_slice(&number.to_be_bytes());
        frame
    }
}

/// Receives the frames from 0 up to a number.
pub(crate) struct Generate {
    templates: Vec<Vec<u8>>,
    next: u64,
    end: u64,
    seen: Arc<Seen>,
    /// The most frames on their way, for links that drop what they have no room for.
    window: u64,
}

impl Rx for Generate {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        let arrived = self.seen.count.load(Ordering::Relaxed);
        let end = if self.seen.go.load(Ordering::Acquire) {
            self.end.min(arrived + self.window)
        } else {
            0
        };
        while into.len() < LANES && self.next < end {
            let template = &self.templates[(self.next % FLOWS) as usize];
            let meta = Meta {
                time: now,
                wire_len: template.len() as u32,
                in_port: 0,
                link: LinkType::Ethernet,
                ..Meta::default()
            };
            // In a yard with long buffers, some short frames are in those, as errors about long frames are.
            let taken = match self.next.is_multiple_of(7) && pool.has_large() {
                true => pool.take_large(template.len(), meta),
                false => pool.take(template.len(), meta),
            };
            let Ok(mut frame) = taken else { break };
            pool.bytes_mut(&mut frame).copy_from_slice(template);
            pool.bytes_mut(&mut frame)[NUMBER].copy_from_slice(&self.next.to_be_bytes());
            self.next += 1;
            into.push(frame, FlowKey::ZERO).unwrap();
        }
        Received::default()
    }
}

/// What a [`Check`] has seen.
#[derive(Default)]
pub(crate) struct Seen {
    /// Whether frames may be generated.
    go: AtomicBool,
    pub(crate) count: AtomicU64,
    pub(crate) wrong: Mutex<Vec<String>>,
}

/// Transmits nowhere, and checks that frames come once, unchanged and in the order of their flow.
pub(crate) struct Check {
    templates: Vec<Vec<u8>>,
    next: Vec<u64>,
    seen: Arc<Seen>,
}

impl Check {
    pub(crate) fn new() -> (Self, Arc<Seen>) {
        let seen = Arc::new(Seen::default());
        let next = (0..FLOWS).collect();
        (Self { templates: templates(), next, seen: Arc::clone(&seen) }, seen)
    }

    fn check(&mut self, bytes: &[u8]) {
        if bytes.get(IP_PROTOCOL).is_some_and(|byte| *byte != proto::UDP) {
            return; // a frame of the kernel, such as IGMP; a frame of ours that looks so is missed at the end
        }
        self.seen.count.fetch_add(1, Ordering::Relaxed);
        let number = bytes.get(NUMBER).and_then(|bytes| bytes.first_chunk());
        let number = number.map_or(u64::MAX, |bytes| u64::from_be_bytes(*bytes));
        let flow = (number % FLOWS) as usize;
        let template = &self.templates[flow];
        let is_whole = bytes.len() == template.len()
            && bytes[..NUMBER.start] == template[..NUMBER.start]
            && bytes[NUMBER.end..] == template[NUMBER.end..];
        let mut wrong = self.seen.wrong.lock().unwrap();
        if !is_whole {
            wrong.push(format!("frame {number} of {} bytes is damaged", bytes.len()));
        } else if number != self.next[flow] {
            wrong.push(format!("frame {number} came in place of {}", self.next[flow]));
        }
        self.next[flow] = number.wrapping_add(FLOWS);
        wrong.truncate(8);
    }
}

impl Tx for Check {
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, _: Nanos) -> Lanes {
        lanes.for_each(|lane| self.check(pool.bytes(&from.frames[lane])));
        Lanes::NONE
    }
}

/// The result of a run: what its ports reported.
pub(crate) struct Ran {
    pub(crate) log: Vec<String>,
}

impl Ran {
    /// Whether the port with this name copies its frames.
    pub(crate) fn copies(&self, port: &str) -> bool {
        let told =
            |what: &str| self.log.iter().any(|line| line.starts_with(port) && line.contains(what));
        assert_ne!(told("frames are copied"), told("frames are not copied"), "{:?}", self.log);
        told("frames are copied")
    }
}

/// A log that keeps its lines.
pub(crate) fn log() -> (Log, Arc<Mutex<Vec<String>>>) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&lines);
    (
        Arc::new(move |port: &str, what: &str| to.lock().unwrap().push(format!("{port}: {what}"))),
        lines,
    )
}

/// A configuration on one core: what port `gen` generates passes through the ports in `ports`, by the map `map`, to
/// port `sink`.
pub(crate) fn text(ports: &str, map: &str) -> String {
    let options: Vec<_> = OPTIONS.iter().map(|option| format!("{option:?}")).collect();
    format!(
        "[yard]\ncores = 1\nidle = \"busy\"\n[dpdk]\noptions = [{}]\n[[port]]\nname = \"gen\"\nkind = \"mem\"\n\
         [[port]]\nname = \"sink\"\nkind = \"mem\"\n{ports}\n[[queue]]\nname = \"q\"\norder = \"direct\"\n\
         consumers = [0]\n[work]\nkind = \"forward\"\nports = {{ {map} }}\n",
        options.join(", ")
    )
}

/// Whether the log has a line with each of these texts.
pub(crate) fn shows(signs: &[&str]) -> impl Fn(&[String]) -> bool {
    move |lines| signs.iter().all(|sign| lines.iter().any(|line| line.contains(sign)))
}

/// Lets `frames` frames pass through a yard, and checks all that can be checked at the end.
pub(crate) fn pass(text: &str, frames: u64) -> Ran {
    pass_when(text, frames, u64::MAX / 2, |_| true)
}

/// As [`pass`], with at most `window` frames on their way, and not before the log is such that
/// `is_ready`.
pub(crate) fn pass_when(
    text: &str,
    frames: u64,
    window: u64,
    is_ready: impl Fn(&[String]) -> bool,
) -> Ran {
    let config = Config::parse("y", text).unwrap_or_else(|error| panic!("{error}"));
    let (check, seen) = Check::new();
    let mut parts = Parts::default();
    let generate =
        Generate { templates: templates(), next: 0, end: frames, seen: Arc::clone(&seen), window };
    parts.rx.insert(0, Box::new(generate));
    parts.tx.insert(1, Box::new(check));
    let (to, log) = log();
    let yard = config.build_logged(parts, &to).unwrap_or_else(|error| panic!("{error}"));
    let running = yard.start(clock()).unwrap();
    for _ in 0..400 {
        if is_ready(&log.lock().unwrap()) {
            break;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    seen.go.store(true, Ordering::Release);
    let (mut before, mut idle) = (0, 0);
    while seen.count.load(Ordering::Relaxed) < frames && idle < 400 {
        std::thread::sleep(Duration::from_millis(25));
        let now = seen.count.load(Ordering::Relaxed);
        idle = if now == before { idle + 1 } else { 0 };
        before = now;
    }
    running.stop();
    let outcome = running.join();
    let log = log.lock().unwrap().clone();
    assert_eq!(*seen.wrong.lock().unwrap(), [""; 0], "{log:?}");
    assert_eq!(
        seen.count.load(Ordering::Relaxed),
        frames,
        "frames that arrived; {outcome:?} {log:?}"
    );
    assert!(outcome.is_balanced(), "{outcome:?}");
    assert_eq!((outcome.held, outcome.total().drops.total()), (0, 0), "{outcome:?}");
    assert_eq!(outcome.failed, [""; 0], "{outcome:?}");
    Ran { log }
}
