//! The XDP program in front of a yard's ports: loaded once, run by each of its interfaces.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aya::maps::xdp::DevMap;
use aya::maps::{Array, HashMap, Map, MapData};
use aya::programs::{TestRun, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfLoader};
use flowyard_frame::{FlowKey, Nanos};
use flowyard_ports::af_xdp::{Ahead, Before};
use flowyard_yard::front::{AFTER, Entry, Front, Seen};
use rustix::time::{ClockId, clock_gettime};

use crate::layout::{self, ANSWER, COUNTS, Config, GATE, Key, PORTS, QUEUES};
use crate::memory::Memory;

/// The compiled program; `cargo xtask bpf` makes it of `front.c`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../steer/bpf/front.o");
const PROGRAM: &str = "front";
/// A flow has two entries: its frames, and its replies.
const BOTH: u32 = 2;

/// Why the program cannot be used; the message includes the fix.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Privileges are missing.
    #[error(
        "{0}: not permitted; run it as root, or with CAP_BPF and CAP_NET_ADMIN, or remove [offload]"
    )]
    Privilege(&'static str),
    /// Anything else that the kernel refuses.
    #[error(
        "{what}: {error}; Linux 5.15 or later with CONFIG_BPF_SYSCALL is needed, or remove [offload]"
    )]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// The error of the kernel.
        error: String,
    },
}

/// What the program is to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The most flows.
    pub flows: u32,
    /// The bits of keys that distinguish flows.
    pub mask: FlowKey,
    /// Frames with one of these TCP flags are left to the yard.
    pub changes: u8,
    /// The queue of the interface by which a core receives from a port, by port and core.
    pub queues: BTreeMap<(u16, u16), u32>,
}

/// The loaded program with its maps.
#[derive(Debug)]
pub struct Kernel {
    settings: Settings,
    program: OwnedFd,
    answers: Memory,
    counts: Memory,
    gates: Memory,
    drained: Memory,
    /// Bits of the ports whose interfaces are known.
    ports: AtomicU32,
    /// What the program's clock is ahead of the yard's.
    ahead: AtomicI64,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    ebpf: Ebpf,
    index: [u32; PORTS],
    /// The keys of each flow.
    keys: Vec<[Option<Key>; 2]>,
    /// Numbers that were used before.
    free: VecDeque<u32>,
}

impl Kernel {
    /// Loads the program.
    ///
    /// # Errors
    /// When privileges are missing, or the kernel refuses.
    pub fn load(settings: Settings) -> Result<Arc<Self>, Error> {
        let (flows, entries) =
            (settings.flows.clamp(1, 1 << 24), settings.flows.clamp(1, 1 << 24) * BOTH);
        let mut loader = EbpfLoader::new();
        for name in ["flows", "answers", "counts"] {
            loader.map_max_entries(name, entries);
        }
        let mut ebpf =
            loader.load(OBJECT).map_err(|error| refused("loading the XDP program", &error))?;
        let words = |ebpf: &Ebpf, name: &'static str, words: usize| {
            let map = ebpf.map(name).and_then(data);
            let map =
                map.ok_or(Error::Kernel { what: name, error: "there is no such map".into() })?;
            Memory::map(map.fd().as_fd(), words).map_err(|error| refused(name, &error))
        };
        let answers = words(&ebpf, "answers", entries as usize * ANSWER)?;
        let counts = words(&ebpf, "counts", entries as usize * COUNTS)?;
        let gates = words(&ebpf, "gates", PORTS * QUEUES * GATE)?;
        let drained = words(&ebpf, "drained", 1)?;
        let xdp = xdp(&mut ebpf)?;
        xdp.load().map_err(|error| refused("loading the XDP program", &error))?;
        let program = xdp.fd().map_err(|error| refused("loading the XDP program", &error))?;
        let program = program.as_fd().try_clone_to_owned();
        let program = program.map_err(|error| refused("loading the XDP program", &error))?;
        let mut inner = Inner {
            ebpf,
            index: [0; PORTS],
            keys: Vec::with_capacity(flows as usize),
            free: VecDeque::with_capacity(flows as usize),
        };
        inner.configure(&settings).map_err(|error| refused("writing the settings", &error))?;
        Ok(Arc::new(Self {
            settings: Settings { flows, ..settings },
            program,
            answers,
            counts,
            gates,
            drained,
            ports: AtomicU32::new(0),
            ahead: AtomicI64::new(0),
            inner: Mutex::new(inner),
        }))
    }

    /// Says that port `port` is the interface with this index.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn has(&self, port: u16, index: u32) -> io::Result<()> {
        let mut inner = self.lock();
        let place = inner.index.get_mut(usize::from(port));
        *place
            .ok_or_else(|| io::Error::other("a port that is offloaded has a number below 32"))? =
            index;
        let map = inner.ebpf.map_mut("devices").ok_or_else(|| io::Error::other("no devices"))?;
        let mut map = DevMap::try_from(map).map_err(|error| os_error(&error))?;
        map.set(port.into(), index, None, 0).map_err(|error| os_error(&error))?;
        inner.configure(&self.settings).map_err(|error| os_error(&error))?;
        self.ports.fetch_or(1 << port, Ordering::Release);
        Ok(())
    }

    /// What the program does with a frame, which goes nowhere (BPF_PROG_TEST_RUN): the action, and the frame
    /// afterwards. The frame arrives by the interface with index 1.
    ///
    /// # Errors
    /// When the kernel does not run the program: it takes 14 bytes at least, and about 3,500 at most.
    pub fn run(&self, frame: &[u8]) -> Result<(u32, Vec<u8>), Error> {
        let mut out = vec![0; frame.len() + 256];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ..TestRunOptions::new()
        };
        let mut inner = self.lock();
        let run = xdp(&mut inner.ebpf)?.test_run(options);
        let run = run.map_err(|error| refused("running the program", &error))?;
        out.truncate(run.data_size_out as usize);
        Ok((run.return_value, out))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, flow: u32, entry: u32) -> &[AtomicU64] {
        part(self.answers.words(), flow * BOTH + entry, ANSWER)
    }

    fn counted(&self, flow: u32, entry: u32) -> &[AtomicU64] {
        part(self.counts.words(), flow * BOTH + entry, COUNTS)
    }
}

/// Record `at` of records of `size` words.
fn part(words: &[AtomicU64], at: u32, size: usize) -> &[AtomicU64] {
    words.get(at as usize * size..(at as usize + 1) * size).unwrap_or_default()
}

fn load(words: &[AtomicU64], at: usize) -> u64 {
    words.get(at).map_or(0, |word| word.load(Ordering::Acquire))
}

impl Inner {
    fn configure(&mut self, settings: &Settings) -> Result<(), aya::maps::MapError> {
        let config = layout::config(&settings.mask, settings.changes, &self.index);
        match self.ebpf.map_mut("config") {
            Some(map) => Array::<_, Config>::try_from(map)?.set(0, config, 0),
            None => Ok(()),
        }
    }

    /// Adds the keys, of entries from `first` on; all or none.
    fn enter(&mut self, keys: &[Option<Key>; 2], first: u32) -> bool {
        let Some(Ok(mut map)) = self.ebpf.map_mut("flows").map(HashMap::<_, Key, u32>::try_from)
        else {
            return false;
        };
        for (at, key) in (0..).zip(keys) {
            let Some(key) = key else { continue };
            if map.insert(key, first + at, NOEXIST).is_err() {
                for key in keys.iter().take(at as usize).flatten() {
                    let _is_gone = map.remove(key);
                }
                return false;
            }
        }
        true
    }

    fn leave(&mut self, flow: u32) {
        let keys = self.keys.get_mut(flow as usize).map(std::mem::take).unwrap_or_default();
        if let Some(Ok(mut map)) = self.ebpf.map_mut("flows").map(HashMap::<_, Key, u32>::try_from)
        {
            for key in keys.iter().flatten() {
                let _was_there = map.remove(key);
            }
        }
    }
}

/// BPF_NOEXIST
const NOEXIST: u64 = 1;

impl Front for Kernel {
    fn reaches(&self, port: u16) -> bool {
        port < PORTS as u16 && self.ports.load(Ordering::Acquire) >> port & 1 == 1
    }

    fn put(&self, entries: &[Entry], now: Nanos) -> Option<u32> {
        if entries.len() > BOTH as usize || !entries.iter().all(|entry| self.reaches(entry.port)) {
            return None;
        }
        self.ahead.store(self.time().wrapping_sub(now) as i64, Ordering::Relaxed);
        let mut inner = self.lock();
        let flow = match inner.free.pop_front() {
            Some(flow) => flow,
            None if inner.keys.len() < self.settings.flows as usize => {
                inner.keys.push([None; 2]);
                inner.keys.len() as u32 - 1
            }
            None => return None,
        };
        let mut keys = [None; 2];
        for ((at, key), entry) in (0..).zip(&mut keys).zip(entries) {
            *key = Some(layout::key(&entry.key, &self.settings.mask));
            let answer = layout::answer(entry);
            let words = self.answer(flow, at).iter().zip(answer);
            // Nothing is answered before the time is known.
            words.for_each(|(word, value)| word.store(value, Ordering::Relaxed));
            self.answer(flow, at)
                .iter()
                .take(1)
                .for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
            self.counted(flow, at).iter().for_each(|word| word.store(0, Ordering::Release));
        }
        if !inner.enter(&keys, flow * BOTH) {
            inner.free.push_back(flow);
            return None;
        }
        inner.keys[flow as usize] = keys;
        drop(inner);
        // From here on every frame of the flow finds the entry; those before came before this time.
        let since = self.time();
        for at in 0..entries.len() as u32 {
            self.answer(flow, at)
                .iter()
                .take(1)
                .for_each(|word| word.store(since, Ordering::Release));
        }
        Some(flow)
    }

    fn remove(&self, flow: u32) {
        self.lock().leave(flow);
    }

    fn seen(&self, flow: u32, entry: usize) -> Seen {
        let words = self.counted(flow, entry as u32);
        let last = load(words, 2);
        let ahead = self.ahead.load(Ordering::Relaxed);
        let last = if last == 0 { 0 } else { last.wrapping_sub(ahead as u64) };
        Seen { packets: load(words, 0), bytes: load(words, 1), last }
    }

    fn free(&self, flow: u32) {
        self.lock().free.push_back(flow);
    }

    fn passed(&self, port: u16, core: u16) -> Option<u64> {
        let queue = *self.settings.queues.get(&(port, core)).filter(|_| self.reaches(port))?;
        let words = part(self.gates.words(), u32::from(port) * QUEUES as u32 + queue, GATE);
        // What is being answered counts as passed.
        let answered = load(words, 1);
        Some(load(words, 0).wrapping_sub(answered))
    }

    fn time(&self) -> u64 {
        let time = clock_gettime(ClockId::Monotonic);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    fn drained(&self, time: u64) {
        self.drained.words().iter().take(1).for_each(|word| word.store(time, Ordering::Release));
    }
}

// The time for which a number is not used again must be long against a run of the program.
const _: () = assert!(AFTER >= 100_000_000);

/// The program in front of one port.
#[derive(Debug)]
pub struct OfPort {
    /// The program.
    pub kernel: Arc<Kernel>,
    /// The port's number.
    pub number: u16,
}

impl Ahead for OfPort {
    fn on(&self, index: u32) -> io::Result<Before> {
        self.kernel.has(self.number, index)?;
        let inner = self.kernel.lock();
        let behind = inner.ebpf.map("behind").and_then(data);
        let behind = behind.ok_or_else(|| io::Error::other("no map of programs"))?;
        Ok(Before {
            program: self.kernel.program.try_clone()?,
            behind: behind.fd().as_fd().try_clone_to_owned()?,
            at: self.number.into(),
        })
    }
}

/// The descriptor of an array or of a map of programs.
fn data(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data) | Map::ProgramArray(data) => Some(data),
        _ => None,
    }
}

fn xdp(ebpf: &mut Ebpf) -> Result<&mut Xdp, Error> {
    let program = ebpf.program_mut(PROGRAM).and_then(|program| program.try_into().ok());
    program.ok_or(Error::Kernel { what: "the object file", error: "there is no program".into() })
}

fn os(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.find_map(|error| error.downcast_ref::<io::Error>()?.raw_os_error())
}

fn os_error(error: &(dyn std::error::Error + 'static)) -> io::Error {
    os(error).map_or_else(|| io::Error::other(error.to_string()), io::Error::from_raw_os_error)
}

fn refused(what: &'static str, error: &(dyn std::error::Error + 'static)) -> Error {
    match os(error) {
        Some(libc::EPERM | libc::EACCES) => Error::Privilege(what),
        _ => {
            let causes = std::iter::successors(Some(error), |error| error.source());
            let said: Vec<String> = causes.map(ToString::to_string).collect();
            Error::Kernel { what, error: said.join(": ") }
        }
    }
}
