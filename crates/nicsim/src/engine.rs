//! The interface of both engines: how a machine is built, run and read.

use crate::config::{Config, ConfigError};
use crate::counters::Snapshot;
use crate::device::{Arrival, Departure};
use crate::elf::{ElfError, Image};
use crate::memory::Request;
use crate::timeline::Timeline;

/// Why a simulation stopped before its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The firmware did something that the machine cannot do.
    #[error("core {core}, cycle {cycle}, pc {pc:#x}{function}: {what}")]
    Core {
        /// The number of the core.
        core: usize,
        /// The cycle.
        cycle: u64,
        /// The address of the instruction.
        pc: u32,
        /// ` in NAME`, or empty.
        function: String,
        /// The cause.
        what: String,
    },
    /// A device was given an invalid descriptor or register value.
    #[error("cycle {cycle}: {what}")]
    Device {
        /// The cycle.
        cycle: u64,
        /// The cause.
        what: String,
    },
}

/// Why a machine cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The firmware file is wrong.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// The firmware does not support the configuration.
    #[error("{0}")]
    Firmware(String),
}

/// The parts of a machine.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// The configuration.
    pub config: Config,
    /// The firmware.
    pub image: Image,
    /// Frames of a capture that arrive instead of generated ones.
    pub arrivals: Option<Vec<Arrival>>,
    /// Whether to keep the frames that are sent.
    pub keep_departures: bool,
    /// Words that are in the scratchpad before the start: byte address and words.
    pub preload: Vec<(u32, Vec<u32>)>,
    /// Whether to run until all arrivals have passed through the adapter, beyond the measured time if need be.
    pub to_the_end: bool,
    /// Whether to record a timeline of the measured time, at most a millisecond. Only the reference engine can.
    pub timeline: bool,
    /// Firmware variables to read at the end of a run, by symbol.
    pub peeks: Vec<String>,
}

/// One access to the scratchpad; a trace has them in the order in which the banks performed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The cycle.
    pub cycle: u64,
    /// The requester: the number of a core, or 16 plus the number of an assist.
    pub who: usize,
    /// The request.
    pub request: Request,
    /// What it returned: the value of a load, 1 if an `sc` stored; 0 in a trace that was read from a file.
    pub result: u32,
}

/// An engine, which simulates the machine.
pub trait Engine: Sized {
    /// The machine at time 0.
    ///
    /// # Errors
    /// When the configuration or the firmware is wrong.
    fn build(parts: Parts) -> Result<Self, BuildError>;

    /// Simulates every cycle before `cycle`.
    ///
    /// # Errors
    /// When the firmware does something that the machine cannot do.
    fn run_to(&mut self, cycle: u64) -> Result<(), Fault>;

    /// The counters of all cycles before that of the last [`Engine::run_to`].
    fn snapshot(&self) -> Snapshot;

    /// The scratchpad's word at byte address `addr`.
    fn peek(&self, addr: u32) -> u32;

    /// The frames that were sent, if they were kept.
    fn departures(&mut self) -> Vec<Departure>;

    /// Begins to record a timeline, if this engine can.
    fn begin_timeline(&mut self) {}

    /// The recorded timeline, if there is one.
    fn timeline(&mut self) -> Option<Timeline> {
        None
    }
}

/// The cause of a fault: an instruction address outside the code.
pub(crate) const OUTSIDE: &str = "runs outside the firmware's code";

/// The cause of a fault: a word that is not an instruction of the subset.
pub(crate) fn not_decoded(word: u32) -> String {
    format!("word {word:#010x} is not an instruction of the subset")
}

/// The cause of a fault: `break` or `syscall`.
pub(crate) fn gave_up(insn: &crate::isa::Insn) -> String {
    format!("{insn}: the firmware stopped itself")
}

/// ` in NAME` for the message of a fault, if a function contains `pc`.
pub(crate) fn in_function(image: &Image, pc: u32) -> String {
    image.function(pc).map_or_else(String::new, |symbol| format!(" in {}", symbol.name))
}

/// The reason why a core's memory request is not allowed, if it is not: its alignment or its address.
#[cold]
#[inline(never)]
pub(crate) fn wrong_access(op: crate::isa::Op, addr: u32, scratchpad: u32) -> Option<String> {
    use crate::isa::Op;
    use crate::memory::{SCRATCHPAD_BASE, SDRAM_BASE, SDRAM_BYTES};
    let size = match op {
        Op::Lb | Op::Lbu | Op::Sb => 1,
        Op::Lh | Op::Lhu | Op::Sh => 2,
        _ => 4,
    };
    let plain = !matches!(op, Op::Ll | Op::Sc | Op::Set | Op::Update);
    let scratch = addr.wrapping_sub(SCRATCHPAD_BASE) < scratchpad;
    let external = addr.wrapping_sub(SDRAM_BASE) < SDRAM_BYTES;
    if addr & (size - 1) != 0 {
        return Some(format!("{op:?} at {addr:#x} is not aligned to {size} bytes"));
    }
    if scratch || (external && plain) {
        return None;
    }
    Some(match external {
        true => format!("{op:?} at {addr:#x}: atomic accesses are for the scratchpad"),
        false => format!("{op:?} at {addr:#x} is outside the scratchpad and the SDRAM"),
    })
}
