//! The XDP program of an interface: loaded, its maps filled, attached, and detached when it is dropped.
//!
//! It is attached by a link (`bpf_link`), which the kernel takes away with the last descriptor of it: also when the
//! process is killed.

use std::collections::BTreeMap;

use aya::maps::xdp::CpuMap;
use aya::maps::{Array, HashMap, Map, MapError, PerCpuArray};
use aya::programs::links::FdLink;
use aya::programs::{ProgramError, ProgramFd, TestRun, TestRunOptions, Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader, Pod};
use flowyard_flow::toeplitz::Toeplitz;
use schemars::JsonSchema;
use serde::Serialize;

use crate::layout::{self, Action, Config, Counted, Key, Last, Parts, Rule, STAY};
use crate::model::{Decision, Reason};
use crate::pieces::{self, Pieces};
use crate::pins::{self, PinError, Pins};
use crate::policy::{self, BadPolicy, CPUS_MOST, Follow, Policy};

mod learners;
mod sampling;

use sampling::Watcher;

/// The compiled program; `cargo xtask bpf` makes it of `bpf/steer.c`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/steer.o");
/// The number of flows that are followed; of more, those that were quiet for the longest time are forgotten.
const FLOWS: u32 = 65_536;

/// Why a program cannot be loaded or attached; the message includes the fix.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The policy is refused.
    #[error(transparent)]
    Policy(#[from] BadPolicy),
    /// What is pinned cannot be used.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// Privileges are missing.
    #[error("{0}: not permitted; run it as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON")]
    Privilege(&'static str),
    /// There is no such interface.
    #[error("there is no interface '{0}' in this network namespace; 'ip link' lists them")]
    NoInterface(String),
    /// The interface has another XDP program.
    #[error(
        "'{0}' has an XDP program already; stop what uses it ('ip link show {0}' shows its id); if 'flowyard steer --pin' has left it, start with --pin, or \
         remove it with 'flowyard steer {0} --stop'; 'ip link set {0} xdp off' removes one that another program left"
    )]
    Taken(String),
    /// The interface has frames that XDP does not get.
    #[error(
        "'{interface}' has an MTU of {mtu}, and this kernel hands XDP only frames that fit in a page; set a smaller MTU (ip link set {interface} mtu 1500), or use Linux 5.18 or later"
    )]
    Mtu {
        /// The interface.
        interface: String,
        /// Its MTU.
        mtu: u32,
    },
    /// The kernel does not attach programs by links.
    #[error(
        "attaching to '{0}': this kernel has no links for XDP programs, so a killed process would leave the program behind; use Linux 5.15 or later"
    )]
    NoLink(String),
    /// What teaches cannot be attached.
    #[error("{what}: {error}; {needs}")]
    Learner {
        /// What was tried.
        what: &'static str,
        /// The error of the kernel.
        error: String,
        /// What it needs.
        needs: &'static str,
    },
    /// A CPU cannot be redirected to.
    #[error(
        "frames cannot be redirected to CPU {cpu}: {error}; name CPUs that are online (lscpu -e)"
    )]
    Cpu {
        /// The number of the CPU.
        cpu: u32,
        /// The error of the kernel.
        error: String,
    },
    /// Anything else that the kernel refuses.
    #[error("{what}: {error}; Linux 5.15 or later with CONFIG_BPF_SYSCALL is needed")]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// The error of the kernel.
        error: String,
    },
}

/// Where in the receive path the program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Attached {
    /// In the driver (native mode).
    Driver,
    /// After the driver (generic mode), because the driver has no XDP, or not with its settings.
    Generic,
}

impl Attached {
    /// The name in tables and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::Generic => "generic",
        }
    }
}

/// The frames of one queue.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct Counts {
    /// The queue.
    pub queue: u16,
    /// Its CPU; `None`: the frames stay where they are received.
    pub cpu: Option<u32>,
    /// Frames by the stage that decided.
    pub frames: BTreeMap<Reason, u64>,
    /// Bytes of all these frames.
    pub bytes: u64,
}

/// A loaded program.
#[derive(Debug)]
pub struct Program {
    /// Dropped first: no frame meets maps that are gone.
    pub(crate) link: Option<FdLink>,
    /// Of the program that teaches.
    pub(crate) learner: Option<FdLink>,
    pub(crate) ebpf: Ebpf,
    /// The CPU of each queue; the first `spread` of them receive, the others are for elephants only.
    cpus: Vec<Option<u32>>,
    spread: usize,
    /// The number of CPUs that the machine may have.
    possible: u32,
    follow: Option<Follow>,
    /// Whether frames are numbered, so that flows can move in order.
    moves: bool,
    watcher: Option<Watcher>,
    pieces: Pieces,
    pub(crate) pins: Option<Pins>,
}

impl Program {
    /// Loads the program and fills its maps. `queue_frames` is the number of frames that the queue of each CPU holds.
    ///
    /// # Errors
    /// When the policy is refused, privileges are missing, or the kernel refuses.
    pub fn load(policy: &Policy, queue_frames: u32) -> Result<Self, Error> {
        Self::load_with(policy, queue_frames, None, None)
    }

    /// As [`Program::load`], for frames in `pieces` instead of what the kernel knows.
    ///
    /// # Errors
    /// As [`Program::load`].
    pub fn load_for(
        policy: &Policy,
        queue_frames: u32,
        pieces: Option<Pieces>,
    ) -> Result<Self, Error> {
        Self::load_with(policy, queue_frames, pieces, None)
    }

    /// As [`Self::load`], with the state of the program that `pins` has, if it has one. Attaching replaces that program.
    ///
    /// # Errors
    /// As [`Self::load`], and when the pinned queues of CPUs have another length.
    pub fn load_pinned(policy: &Policy, queue_frames: u32, pins: Pins) -> Result<Self, Error> {
        Self::load_with(policy, queue_frames, None, Some(pins))
    }

    fn load_with(
        policy: &Policy,
        queue_frames: u32,
        pieces: Option<Pieces>,
        pins: Option<Pins>,
    ) -> Result<Self, Error> {
        policy.check()?;
        let ranked = policy.ranked()?;
        policy::count(&ranked)?;
        let toeplitz =
            Toeplitz::new(&policy.key).map_err(|error| BadPolicy::Key(error.to_string()))?;
        let possible = aya::util::nr_cpus().map_err(|(_, error)| Error::Kernel {
            what: "counting the CPUs",
            error: error.to_string(),
        })?;
        let forms = layout::forms(policy);
        let mut loader = EbpfLoader::new();
        loader.map_max_entries("table", policy.table.len() as u32);
        loader.map_max_entries("cpus", possible as u32);
        // Memory only for what is used.
        let moves = policy.moves() || pins.is_some();
        loader.map_max_entries("rings", possible as u32);
        loader.map_max_entries("flows", if moves { FLOWS } else { 64 });
        let pairs = if moves { CPUS_MOST * CPUS_MOST } else { 1 };
        loader.map_max_entries("sent", pairs);
        loader.map_max_entries("done", pairs);
        loader.override_global("FORMS", &forms, true);
        for (name, _, _) in pins.iter().flat_map(|_| pins::MAPS) {
            loader
                .map_pin_path(name, pins.as_ref().map_or_else(Default::default, |p| p.path(name)));
        }
        let failed =
            |error: &(dyn std::error::Error + 'static)| refused("loading the program", error);
        let mut ebpf = loader.load(OBJECT).map_err(|error| failed(&error))?;
        let known = pieces.map_or_else(|| Pieces::known(&mut ebpf), Ok);
        let pieces = known.map_err(|error| failed(&error))?;
        let mut program = Self {
            link: None,
            learner: None,
            ebpf,
            cpus: policy.all_cpus(),
            spread: policy.cpus.len(),
            possible: possible as u32,
            follow: policy.follow,
            moves,
            watcher: Watcher::new(policy),
            pieces,
            pins,
        };
        program.set::<Config>("config", 0, &layout::config(policy, &ranked, possible as u32))?;
        program.set::<Parts>("toeplitz", 0, &layout::parts(&toeplitz))?;
        for (entry, queue) in (0..).zip(&policy.table) {
            program.set("table", entry, &u32::from(*queue))?;
        }
        for (queue, cpu) in (0..).zip(policy.all_cpus()) {
            program.set("queues", queue, &cpu.unwrap_or(STAY))?;
        }
        program.open(queue_frames)?;
        let mut others = 0;
        for one in &ranked {
            if policy::is_exact(one.rule) {
                program.exact(layout::key(&one.rule.key), layout::action(one))?;
            } else {
                program.set::<Rule>("wildcards", others, &layout::rule(one))?;
                others += 1;
            }
        }
        program.xdp()?.load().map_err(|error| refused("loading the program", &error))?;
        Ok(program)
    }

    /// Opens a queue for each CPU that is redirected to, with the program that sees frames leave it if flows follow.
    fn open(&mut self, frames: u32) -> Result<(), Error> {
        let named = self.cpus.clone();
        let mut arrived = None;
        if self.moves {
            arrived = Some(self.arrived()?);
            (0..CPUS_MOST).try_for_each(|cpu| self.set("queue_of", cpu, &STAY))?;
            // A CPU with several queues has the first of them.
            let spread = &named[..self.spread];
            for (queue, cpu) in (0_u32..).zip(spread).collect::<Vec<_>>().into_iter().rev() {
                cpu.map_or(Ok(()), |cpu| self.set("queue_of", cpu, &queue))?;
            }
        }
        let pinned = self.pins.as_ref().map(|pins| pins.interface().to_owned());
        let map = self.map("cpus")?;
        let mut map = CpuMap::try_from(map).map_err(|error| refused("the map of CPUs", &error))?;
        for cpu in named.into_iter().flatten() {
            // A new queue would overtake one that is adopted.
            match (&pinned, map.get(cpu, 0)) {
                (Some(_), Ok(one)) if one.queue_size == frames => continue,
                (Some(interface), Ok(one)) if one.queue_size > 0 => {
                    let (interface, pinned) = (interface.clone(), one.queue_size);
                    return Err(PinError::Frames { cpu, interface, pinned }.into());
                }
                _ => {}
            }
            map.set(cpu, frames, arrived.as_ref(), 0)
                .map_err(|error| Error::Cpu { cpu, error: chain(&error) })?;
        }
        Ok(())
    }

    /// Attaches the program: in the driver, or else after it.
    ///
    /// # Errors
    /// When there is no such interface, it has another program, or the kernel refuses.
    pub fn attach(&mut self, interface: &str) -> Result<Attached, Error> {
        let attached = match self.replace()? {
            Some(attached) => attached,
            None => self.attach_first(interface)?,
        };
        // Behind the driver, frames lose their numbers, and no flow moves.
        if attached == Attached::Generic {
            self.watcher = None;
        }
        Ok(attached)
    }

    /// Attaches the program where there is none.
    fn attach_first(&mut self, interface: &str) -> Result<Attached, Error> {
        let (pieces, mtu) = (self.pieces, pieces::mtu(interface).ok());
        let xdp = self.xdp()?;
        let (id, attached) = match xdp.attach(interface, XdpMode::Driver) {
            Ok(id) => (id, Attached::Driver),
            Err(error) if is_final(&error) => return Err(not_attached(interface, &error)),
            Err(_) if mtu.is_some_and(|mtu| pieces.is_exceeded(mtu)) => {
                return Err(Error::Mtu {
                    interface: interface.to_owned(),
                    mtu: mtu.unwrap_or_default(),
                });
            }
            Err(_) => {
                let id = xdp.attach(interface, XdpMode::Skb);
                (id.map_err(|error| not_attached(interface, &error))?, Attached::Generic)
            }
        };
        let link = xdp.take_link(id).map_err(|error| not_attached(interface, &error))?;
        // Without a descriptor of the link, which old kernels do not give, dropping it detaches the program.
        let link = FdLink::try_from(link).map_err(|_| Error::NoLink(interface.to_owned()))?;
        self.attach_learner(interface)?;
        self.link = Some(self.keep(attached, link)?);
        Ok(attached)
    }

    /// Loads the program that runs where frames leave a CPU's queue.
    fn arrived(&mut self) -> Result<ProgramFd, Error> {
        let what = "loading the program for CPUs";
        let program = self.xdp_named(self.pieces.programs()[1])?;
        program.load().map_err(|error| refused(what, &error))?;
        let fd = program.fd().map_err(|error| refused(what, &error))?;
        fd.try_clone().map_err(|error| refused(what, &error))
    }

    /// The decision of the program on a frame, which goes nowhere (BPF_PROG_TEST_RUN). The caller stays on one CPU.
    ///
    /// # Errors
    /// When the kernel does not run the program: it takes 14 bytes at least, and at most about 3,500 in one piece, and
    /// some 60,000 in several.
    pub fn decide(&mut self, frame: &[u8]) -> Result<Option<Decision>, Error> {
        let options = TestRunOptions { data_in: Some(frame), ..TestRunOptions::new() };
        let run = self.xdp()?.test_run(options);
        run.map_err(|error| refused("running the program", &error))?;
        let map = self.map("last")?;
        let map = PerCpuArray::<_, Last>::try_from(&*map);
        let values = map.and_then(|map| map.get(&0, 0));
        let values = values.map_err(|error| refused("reading the decision", &error))?;
        let cpu = here();
        Ok(values.get(cpu).and_then(layout::decision))
    }

    /// The frames of each queue so far.
    ///
    /// # Errors
    /// When the kernel does not give the counters.
    pub fn counts(&mut self) -> Result<Vec<Counts>, Error> {
        let cpus = self.cpus.clone();
        let map = self.map("counts")?;
        let read = |error: MapError| refused("reading the counters", &error);
        let map = PerCpuArray::<_, Counted>::try_from(&*map).map_err(read)?;
        let mut all = Vec::with_capacity(cpus.len());
        for (queue, cpu) in (0..).zip(cpus) {
            let mut counts = Counts { queue, cpu, ..Counts::default() };
            for [frames @ .., bytes] in map.get(&queue.into(), 0).map_err(read)?.iter() {
                for (reason, frames) in Reason::ALL.into_iter().zip(frames) {
                    *counts.frames.entry(reason).or_default() += frames;
                }
                counts.bytes += bytes;
            }
            all.push(counts);
        }
        Ok(all)
    }

    pub(crate) fn xdp(&mut self) -> Result<&mut Xdp, Error> {
        self.xdp_named(self.pieces.programs()[0])
    }

    /// The CPU of each queue.
    pub fn queue_cpus(&self) -> impl Iterator<Item = Option<u32>> {
        self.cpus.iter().copied()
    }

    /// The number of CPUs that the machine may have.
    pub(crate) const fn possible(&self) -> u32 {
        self.possible
    }

    /// The name of the program that teaches.
    pub(crate) const fn teaches(&self) -> Option<&'static str> {
        match self.follow {
            None => None,
            Some(Follow::Senders { .. }) => Some("sends"),
            Some(Follow::Readers) => Some("reads"),
        }
    }

    fn xdp_named(&mut self, name: &str) -> Result<&mut Xdp, Error> {
        let program = self.ebpf.program_mut(name).and_then(|program| program.try_into().ok());
        program.ok_or(Error::Kernel { what: "the object file", error: "no program".into() })
    }

    pub(crate) fn map(&mut self, name: &'static str) -> Result<&mut Map, Error> {
        let map = self.ebpf.map_mut(name);
        map.ok_or(Error::Kernel { what: name, error: "the object file has no such map".into() })
    }

    pub(crate) fn set<V: Pod>(
        &mut self,
        name: &'static str,
        index: u32,
        value: &V,
    ) -> Result<(), Error> {
        let map = Array::<_, V>::try_from(self.map(name)?);
        map.and_then(|mut map| map.set(index, value, 0)).map_err(|error| refused(name, &error))
    }

    fn exact(&mut self, key: Key, action: Action) -> Result<(), Error> {
        let map = HashMap::<_, Key, Action>::try_from(self.map("exact")?);
        // Of two rules for one flow the first counts.
        let put = map.and_then(|mut map| match map.get(&key, 0) {
            Ok(_) => Ok(()),
            Err(_) => map.insert(key, action, 0),
        });
        put.map_err(|error| refused("exact", &error))
    }
}

/// The CPU of the calling thread.
fn here() -> usize {
    rustix::thread::sched_getcpu()
}

/// Whether attaching after the driver would fail, too.
fn is_final(error: &ProgramError) -> bool {
    let taken = matches!(os(error), Some(libc::EBUSY | libc::EEXIST | libc::EPERM));
    taken || matches!(error, ProgramError::UnknownInterface { .. })
}

pub(crate) fn not_attached(interface: &str, error: &ProgramError) -> Error {
    match (error, os(error)) {
        (ProgramError::UnknownInterface { .. }, _) => Error::NoInterface(interface.to_owned()),
        (_, Some(libc::EBUSY | libc::EEXIST)) => Error::Taken(interface.to_owned()),
        _ => refused("attaching the program", error),
    }
}

pub(crate) fn refused(what: &'static str, error: &(dyn std::error::Error + 'static)) -> Error {
    match os(error) {
        // The kernel's verifier says the same of a program that it refuses, and why.
        Some(libc::EPERM | libc::EACCES) if !has_reason(error) => Error::Privilege(what),
        _ => Error::Kernel { what, error: chain(error) },
    }
}

/// Whether the kernel's verifier says why it refuses a program.
fn has_reason(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|error| match error.downcast_ref() {
        Some(ProgramError::LoadError { verifier_log, .. }) => !verifier_log.to_string().is_empty(),
        _ => false,
    })
}

/// The number of the system's error that is the cause.
fn os(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.find_map(|error| error.downcast_ref::<std::io::Error>()?.raw_os_error())
}

/// An error with its causes, in one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut said: Vec<String> = Vec::new();
    for cause in causes.map(ToString::to_string) {
        if !said.iter().any(|before| before.contains(&cause)) {
            said.push(cause);
        }
    }
    said.join(": ")
}
