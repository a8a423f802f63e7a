//! TAP: flowyard as the multi-queue adapter of the host it runs on.
//!
//! ```text
//!  host's stack <──write── queue 0 ── core 0          which queue a frame is written to decides on
//!       │      <──write── queue 1 ── core 1          which processor the host works on it, and
//!       └────────read───> the queue its flow was last written to: the host learns, as ATR does;
//!                           or, with a [`Chooser`], the queue of the processor that sends
//! ```
//!
//! Offloads are off: the host completes checksums and cuts segments before frames come here. An
//! interface that this program made ends with it; one that was there before stays.
//!
//! Invariants: one frame a call, whole or counted as too long.
//! Thread-safety: one queue is one thread's at a time.

mod sys;

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::af_xdp::assemble::{Assembler, R0};
use crate::af_xdp::sys::{Insn, Purpose, load};
use crate::live::{Interface, OpenError};

/// How an interface is set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// Its MTU; none leaves it as it is.
    pub mtu: Option<u32>,
    /// Its hardware address; none leaves it as it is.
    pub mac: Option<[u8; 6]>,
}

/// One queue of a TAP interface.
#[derive(Debug)]
pub struct Queue(File);

/// What one reading came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Got {
    /// Nothing was there.
    Nothing,
    /// A frame of so many bytes.
    Frame(usize),
    /// A frame that was longer than the buffer; it is gone.
    TooLong,
}

impl Queue {
    /// `count` queues of the interface `name`, which is made if there is none, and set up; and how many
    /// frames were lost, as [`Queue::attach`] has it.
    ///
    /// # Errors
    /// When the kernel does not let us.
    pub fn open(
        name: &str,
        count: usize,
        settings: Settings,
        programs: &Programs,
    ) -> Result<(Vec<Self>, u32), OpenError> {
        let queues = Self::attach(name, count, programs).map_err(|error| refused(name, &error))?;
        let doing = format!("setting up tap '{name}'");
        let interface = Interface::find(name)?;
        interface
            .set_up(settings.mtu, settings.mac)
            .map_err(|error| OpenError::os(&doing, &error, CAPABILITY))?;
        Ok(queues)
    }

    /// `count` queues of the interface `name`, which may be up: all take frames from when all are there,
    /// or flows would move to a queue that is new while an older one has frames of them. How many
    /// frames came before that and are gone; what comes while the queues are made the kernel drops, and
    /// counts. Only a frame that the host is sending at that very instant can be early or late.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn attach(name: &str, count: usize, programs: &Programs) -> io::Result<(Vec<Self>, u32)> {
        let one = || sys::attach(name, count > 1).map(Self);
        let mut first = one()?;
        if count == 1 {
            return Ok((vec![first], 0));
        }
        if let Some(gate) = &programs.gate {
            sys::filter(&first.0, Some(gate))?;
        }
        let made = (1..count).map(|_| one()).collect::<io::Result<Vec<_>>>().and_then(|more| {
            // Also without a chooser: an interface that was there before may have that of a run that
            // was killed.
            sys::steer(&first.0, programs.chooser.as_ref().map(|chooser| &*chooser.0))?;
            Ok(more)
        });
        let mut gone = 0;
        if programs.has_gate() {
            while !matches!(first.read(&mut [0; 64]), Ok(Got::Nothing) | Err(_)) {
                gone += 1;
            }
        }
        // In any case: a run that was killed may have left its own.
        let opened = sys::filter(&first.0, None);
        let more = made?;
        if programs.has_gate() {
            opened?;
        }
        Ok((std::iter::once(first).chain(more).collect(), gone))
    }

    /// Reads one frame into `buffer`. Never waits.
    ///
    /// # Errors
    /// What the kernel says: the interface is down, or gone.
    #[inline]
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<Got> {
        match self.0.read(buffer) {
            Ok(0) => Ok(Got::Nothing),
            Ok(len) if len > buffer.len() => Ok(Got::TooLong),
            Ok(len) => Ok(Got::Frame(len)),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Ok(Got::Nothing)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes one frame: the host has received it when this returns.
    ///
    /// # Errors
    /// What the kernel says.
    #[inline]
    pub fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        self.0.write(frame).map(drop)
    }
}

/// What runs in the kernel for an interface's queues. Loaded once: an interface that comes back is opened
/// with fewer rights.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// Keeps no frame, while queues are attached.
    gate: Option<Arc<OwnedFd>>,
    chooser: Option<Chooser>,
}

impl Programs {
    /// With `chooser`, or with queues by flow.
    #[must_use]
    pub fn new(chooser: Option<Chooser>) -> Self {
        Self { gate: load(Purpose::Filter, &nothing()).ok().map(Arc::new), chooser }
    }

    /// Whether queues can be opened together: not without CAP_BPF.
    #[must_use]
    pub const fn has_gate(&self) -> bool {
        self.gate.is_some()
    }
}

/// Chooses the queue that a frame leaves the host by, by the processor that sends it: what XPS is
/// for the queues of an adapter (Linux, scaling.rst). It tells the yard where a flow's program runs.
#[derive(Clone, Debug)]
pub struct Chooser(Arc<OwnedFd>);

impl Chooser {
    /// Queue `n` is for what processor `processors[n]` sends; others share all queues.
    ///
    /// # Errors
    /// When the kernel does not let us.
    pub fn by_processor(processors: &[u32]) -> Result<Self, OpenError> {
        let program = load(Purpose::Filter, &chooser(processors)).map_err(|(error, _)| {
            OpenError::os("loading the program that chooses a tap's queue", &error, "CAP_BPF")
        })?;
        Ok(Self(Arc::new(program)))
    }
}

/// The helper that says on which processor it runs (bpf-helpers(7), bpf_get_smp_processor_id).
const PROCESSOR: i32 = 8;

/// Keeps no frame.
fn nothing() -> Vec<Insn> {
    let mut program = Assembler::default();
    program.move_imm(R0, 0);
    program.exit();
    program.finish()
}

/// The kernel takes the result modulo the number of queues.
fn chooser(processors: &[u32]) -> Vec<Insn> {
    let mut program = Assembler::default();
    program.call(PROCESSOR);
    for (queue, processor) in (0..).zip(processors) {
        let [mine, next] = [program.label(), program.label()];
        program.if_equal(R0, *processor as i32, mine);
        program.goto(next);
        program.place(mine);
        program.move_imm(R0, queue);
        program.exit();
        program.place(next);
    }
    program.exit();
    program.finish()
}

const CAPABILITY: &str = "CAP_NET_ADMIN";

fn refused(name: &str, error: &io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(libc::ENOENT) => OpenError::new(
            "there is no /dev/net/tun",
            "load the kernel's tun module ('modprobe tun'), or pass the device into the container",
        ),
        Some(libc::EINVAL) => OpenError::new(
            format!("'{name}' cannot be a tap of so many queues"),
            "an interface of that name is of another kind, or was made with or without multi_queue: choose another name",
        ),
        _ => OpenError::os(&format!("tap '{name}'"), error, CAPABILITY),
    }
}
