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
use flowyard_frame::FlowKey;
use flowyard_ports::af_xdp::Before;
use flowyard_yard::front::AFTER;

use crate::layout::{self, ANSWER, COUNTS, Config, GATE, Key, PORTS, QUEUES};
use crate::memory::Memory;

mod answers;

/// The compiled program; `cargo xtask bpf` makes it of `front.c`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../steer/bpf/front.o");
const PROGRAM: &str = "front";
/// The longest wait for runs of the program that have begun, in nanoseconds.
const SETTLE_MOST: u64 = 1_000_000;
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
    /// Of each port, the longest frame that its interface takes now; 0: it takes none.
    longest: [AtomicU32; PORTS],
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
        inner
            .configure(&settings, &[0; PORTS])
            .map_err(|error| refused("writing the settings", &error))?;
        Ok(Arc::new(Self {
            settings: Settings { flows, ..settings },
            program,
            answers,
            counts,
            gates,
            drained,
            ports: AtomicU32::new(0),
            longest: [const { AtomicU32::new(0) }; PORTS],
            ahead: AtomicI64::new(0),
            inner: Mutex::new(inner),
        }))
    }

    /// Says that port `port` is the interface with this index; 0: it is none any more. Nothing is sent there before
    /// [`Kernel::takes`] says how much it takes.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn has(&self, port: u16, index: u32) -> io::Result<()> {
        let mut inner = self.lock();
        let place = inner.index.get_mut(usize::from(port));
        *place
            .ok_or_else(|| io::Error::other("a port that is offloaded has a number below 32"))? =
            index;
        if index != 0 {
            let map =
                inner.ebpf.map_mut("devices").ok_or_else(|| io::Error::other("no devices"))?;
            let mut map = DevMap::try_from(map).map_err(|error| os_error(&error))?;
            map.set(port.into(), index, None, 0).map_err(|error| os_error(&error))?;
        }
        inner.configure(&self.settings, &self.lengths()).map_err(|error| os_error(&error))?;
        self.ports.fetch_or(1 << port, Ordering::Release);
        Ok(())
    }

    /// Says that the interface of port `port` takes frames of at most `longest` bytes, with the Ethernet header; 0: none
    /// now. Longer frames are passed to the yard. Returns whether that is new.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn takes(&self, port: u16, longest: u32) -> io::Result<bool> {
        let Some(place) = self.longest.get(usize::from(port)) else { return Ok(false) };
        if place.load(Ordering::Acquire) == longest {
            return Ok(false);
        }
        let mut inner = self.lock();
        place.store(longest, Ordering::Release);
        inner.configure(&self.settings, &self.lengths()).map_err(|error| os_error(&error))?;
        Ok(true)
    }

    fn lengths(&self) -> [u32; PORTS] {
        std::array::from_fn(|port| self.longest[port].load(Ordering::Acquire))
    }

    fn is_known(&self, port: u16) -> bool {
        port < PORTS as u16 && self.ports.load(Ordering::Acquire) >> port & 1 == 1
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

    /// The program to attach to port `port`, whose own one it calls.
    pub(crate) fn before(&self, port: u16) -> io::Result<Before> {
        let inner = self.lock();
        let map = |name| {
            let data =
                inner.ebpf.map(name).and_then(data).ok_or_else(|| {
                    io::Error::other(format!("the object file has no map '{name}'"))
                })?;
            data.fd().as_fd().try_clone_to_owned()
        };
        Ok(Before {
            program: self.program.try_clone()?,
            behind: map("behind")?,
            at: port.into(),
            // Frames that are left to the kernel count as answered: the yard does not get them.
            counters: map("gates")?,
            first: u32::from(port) * QUEUES as u32,
            queues: QUEUES as u32,
            counter: 8,
        })
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
    fn configure(
        &mut self,
        settings: &Settings,
        longest: &[u32; PORTS],
    ) -> Result<(), aya::maps::MapError> {
        let config = layout::config(&settings.mask, settings.changes, &self.index, longest);
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

// The time for which a number is not used again must be long against a run of the program.
const _: () = assert!(AFTER >= 100_000_000);

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
