//! What both engines have in common: how a machine is put together, run and read.

use crate::config::{Config, ConfigError};
use crate::counters::Snapshot;
use crate::device::{Arrival, Departure};
use crate::elf::{ElfError, Image};
use crate::memory::Request;

/// Why a simulation stopped before its time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The firmware did something the machine cannot do.
    #[error("core {core}, cycle {cycle}, pc {pc:#x}{function}: {what}")]
    Core {
        /// Which core.
        core: usize,
        /// When.
        cycle: u64,
        /// Where.
        pc: u32,
        /// ` in NAME`, or nothing.
        function: String,
        /// What.
        what: String,
    },
    /// A device was given nonsense.
    #[error("cycle {cycle}: {what}")]
    Device {
        /// When.
        cycle: u64,
        /// What.
        what: String,
    },
}

/// Why a machine cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The firmware file.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// The firmware needs another machine.
    #[error("{0}")]
    Firmware(String),
}

/// What a machine is made of.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Every knob.
    pub config: Config,
    /// The firmware.
    pub image: Image,
    /// Frames of a capture instead of generated ones.
    pub arrivals: Option<Vec<Arrival>>,
    /// Whether to keep the frames that are sent.
    pub keep_departures: bool,
    /// Words to put into the scratchpad before the start: byte address, words.
    pub preload: Vec<(u32, Vec<u32>)>,
    /// Firmware variables to read at the end of a run, by symbol.
    pub peeks: Vec<String>,
}

/// Who accessed what, in the order in which banks performed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The cycle.
    pub cycle: u64,
    /// A core, or 16 + an assist.
    pub who: usize,
    /// What.
    pub request: Request,
}

/// An engine: the machine, one way or the other.
pub trait Engine: Sized {
    /// The machine at time 0.
    ///
    /// # Errors
    /// When configuration or firmware are not sound.
    fn build(parts: Parts) -> Result<Self, BuildError>;

    /// Simulates every cycle before `cycle`.
    ///
    /// # Errors
    /// When the firmware or a descriptor goes wrong.
    fn run_to(&mut self, cycle: u64) -> Result<(), Fault>;

    /// What was counted in the cycles before the last [`Engine::run_to`].
    fn snapshot(&self) -> Snapshot;

    /// The scratchpad's word at byte address `addr`.
    fn peek(&self, addr: u32) -> u32;

    /// The frames that were sent, if they were kept.
    fn departures(&mut self) -> Vec<Departure>;
}

/// ` in NAME` for a fault.
pub(crate) fn in_function(image: &Image, pc: u32) -> String {
    image.function(pc).map_or_else(String::new, |symbol| format!(" in {}", symbol.name))
}

/// What is wrong with a core's memory request, if anything: size and place.
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
