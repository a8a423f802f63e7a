//! The golden scenarios with a DPDK device between each port and the frames of the scenario: the results must be those of
//! ports in memory.
//!
//! ```text
//!  frames of [[send]] ──> DPDK port (transmit) ══ net_ring ══ DPDK port (receive) ──> yard
//!  results            <── DPDK port (receive)  ══ net_ring ══ DPDK port (transmit) <── yard
//! ```
//!
//! Metadata does not pass a device, so each end of a link notes the metadata and the bytes of the frames, and the other
//! end checks that these bytes arrive, in this order.

use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use flowyard_frame::{Batch, FlowKey, Lanes, Nanos, To};
use flowyard_pool::{Meta, Pool};
use flowyard_ports::port::dpdk::{self, DpdkPort, Environment, Memory, SPARE_FRAMES};
use flowyard_scenario::{Link, Scenario};
use flowyard_testkit::event_engine::OPTIONS;
use flowyard_yard::port::{Halves, Received, Rx, Tx};

flowyard_testkit::tests! {
    scenarios_over_net_ring_give_the_same_results,
    scenarios_over_net_ring_with_copies_give_the_same_results,
}

/// Scenarios that are not possible over a device, and why.
const LEFT_OUT: [(&str, &str); 3] = [
    ("pool-empty", "it counts the buffers of the pool, of which DPDK has some"),
    ("runt", "it has frames without an Ethernet header, which a device does not carry"),
    ("too-long", "buffers that are lent have 2,048 bytes, and its frames are too long for 128"),
];

/// Descriptors of a ring.
const RING: u16 = 64;

/// A net_ring for each half of each port.
struct Rings {
    memory: Memory,
    /// Devices opened so far: each has a name of its own.
    opened: usize,
}

impl Rings {
    fn open(&mut self, pool: &Pool) -> Result<Halves, String> {
        let number = self.opened;
        self.opened += 1;
        let port = DpdkPort {
            number: 0,
            name: format!("ring {number}"),
            cores: 1,
            device: format!("net_ring{number}"),
            memory: self.memory,
            frames: RING,
            mtu: 0,
            hash_key: None,
            environment: Environment {
                options: OPTIONS.map(str::to_owned).to_vec(),
                devices: Vec::new(),
            },
        };
        let opened = dpdk::open(&port, pool, &(Arc::new(|_: &str, _: &str| {}) as _));
        let mut opened = opened.map_err(|error| format!("{}: {}", error.what, error.fix))?;
        opened.halves.pop().ok_or_else(|| "the device has no queue".into())
    }
}

impl Link for Rings {
    fn lent_frames(&self) -> usize {
        2 * (2 * usize::from(RING) + 2 * SPARE_FRAMES)
    }

    fn rx(&mut self, port: u16, pool: &Pool, far: Box<dyn Rx>) -> Result<Box<dyn Rx>, String> {
        let ring = Ring { halves: self.open(pool)?, passing: VecDeque::new() };
        Ok(Box::new(Receive { ring, far, port, ended: false }))
    }

    fn tx(&mut self, _: u16, pool: &Pool, far: Box<dyn Tx>) -> Result<Box<dyn Tx>, String> {
        let ring = Ring { halves: self.open(pool)?, passing: VecDeque::new() };
        Ok(Box::new(Transmit { ring, far, pool: pool.share() }))
    }
}

/// A frame in a ring.
struct Passing {
    meta: Meta,
    key: FlowKey,
    bytes: Vec<u8>,
}

/// A device that returns what it gets.
struct Ring {
    halves: Halves,
    passing: VecDeque<Passing>,
}

impl Ring {
    /// Transmits frames by the device; returns what [`Tx::tx`] returns.
    fn put(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes {
        // So that a drop of the device can be recognised.
        lanes.for_each(|lane| from.actions[lane].to = To::Port(0));
        let offered: Vec<_> = lanes
            .map(|lane| {
                let frame = &from.frames[lane];
                let (meta, key) = (pool.meta(frame), pool.key(from, lane));
                (lane, Passing { meta, key, bytes: pool.bytes(frame).to_vec() })
            })
            .collect();
        let left = self.halves.1.tx(from, lanes, pool, now);
        for (lane, passing) in offered {
            if left.0 & (1 << lane) == 0 && !matches!(from.actions[lane].to, To::Drop(_)) {
                self.passing.push_back(passing);
            }
        }
        left
    }

    /// Receives from the device, and checks what comes.
    fn take(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) {
        let got = self.halves.0.rx(into, pool, now);
        assert!(!got.drops_some(), "the device dropped frames: {got:?}");
        for lane in into.lanes() {
            let passing = self.passing.pop_front().expect("a frame that was not put into the ring");
            assert_eq!(pool.bytes(&into.frames[lane]), passing.bytes, "a frame of the ring");
            pool.set_meta(&mut into.frames[lane], passing.meta);
            into.keys[lane] = passing.key;
        }
    }
}

/// The receiving half of a port behind a ring.
struct Receive {
    ring: Ring,
    far: Box<dyn Rx>,
    port: u16,
    ended: bool,
}

impl Rx for Receive {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        let (mut batch, mut got) = (Batch::default(), Received::default());
        if self.ring.passing.is_empty() && !self.ended {
            got = self.far.rx(&mut batch, pool, now);
            self.ended = got.ended;
            let lanes = batch.lanes();
            let left = self.ring.put(&mut batch, lanes, pool, now);
            assert!(left.is_empty(), "the ring of port {} is full", self.port);
            pool.put_batch(&mut batch);
        }
        self.ring.take(into, pool, now);
        got.ended = self.ended && self.ring.passing.is_empty();
        got
    }

    fn close(&mut self, pool: &mut Pool) {
        self.far.close(pool);
        self.ring.halves.0.close(pool);
    }
}

/// The transmitting half of a port in front of a ring.
struct Transmit {
    ring: Ring,
    far: Box<dyn Tx>,
    pool: Pool,
}

impl Tx for Transmit {
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes {
        let left = self.ring.put(from, lanes, pool, now);
        let mut batch = Batch::default();
        self.ring.take(&mut batch, &mut self.pool, now);
        let lanes = batch.lanes();
        let refused = self.far.tx(&mut batch, lanes, &self.pool, now);
        assert!(refused.is_empty(), "the far end takes all frames");
        self.pool.put_batch(&mut batch);
        left
    }

    fn close(&mut self) -> Result<(), String> {
        assert!(self.ring.passing.is_empty(), "frames are left in the ring");
        self.ring.halves.1.close()?;
        self.far.close()
    }
}

/// The first argument of this program if it is to run one scenario.
const ARGUMENT: &str = "--scenario";
/// Seeds of each scenario.
const SEEDS: u64 = 2;

/// Runs the scenario that the arguments name, with its memory. `None` if they name none.
pub(super) fn asked() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next()? != ARGUMENT {
        return None;
    }
    let (file, memory) = (arguments.next()?, arguments.next()?);
    let memory = if memory == "copy" { Memory::Copy } else { Memory::Yard };
    let scenario = Scenario::read(&file, Path::new(&file)).map_err(|error| error.to_string());
    let ran = scenario
        .and_then(|scenario| scenario.with_seeds(SEEDS).run_over(&mut Rings { memory, opened: 0 }));
    match ran {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(what) => {
            let _ = writeln!(std::io::stderr(), "{what}");
            Some(ExitCode::FAILURE)
        }
    }
}

/// Runs all scenarios. Each has a process of its own, because a net_ring of DPDK 22.11 keeps 15 of its 16 rings when it
/// is removed, and a process has room for 170 such devices.
fn over(memory: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| {
        let stem = file.file_stem().unwrap_or_default();
        let is_left_out = LEFT_OUT.iter().any(|(name, _)| stem == *name);
        file.extension().is_some_and(|extension| extension == "toml") && !is_left_out
    });
    files.sort();
    assert!(files.len() > 100, "{} scenarios", files.len());
    let program = std::env::current_exe().unwrap();
    let failed = |file: &PathBuf| {
        let ran = Command::new(&program).arg(ARGUMENT).arg(file).arg(memory).output().unwrap();
        let text = String::from_utf8_lossy(&ran.stderr).into_owned();
        (!ran.status.success()).then(|| format!("{}: {}\n{text}", file.display(), ran.status))
    };
    let (one, other) = files.split_at(files.len() / 2);
    let wrong: Vec<_> = std::thread::scope(|scope| {
        let other = scope.spawn(|| other.iter().filter_map(failed).collect::<Vec<_>>());
        let mut wrong: Vec<_> = one.iter().filter_map(failed).collect();
        wrong.extend(other.join().unwrap());
        wrong
    });
    flowyard_testkit::note!("{} scenarios", files.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn scenarios_over_net_ring_give_the_same_results() {
    over("yard");
}

fn scenarios_over_net_ring_with_copies_give_the_same_results() {
    over("copy");
}
