//! The parts of the host as plain data: processors, rings, threads, connections, and the events.

use std::collections::VecDeque;

use flowyard_frame::Nanos;

use super::setup::{Moderation, Setup};

/// Limits of ixgbe's moderation classes, in bytes a microsecond.
const CLASSES: [u64; 2] = [10, 20];

/// An event of the simulation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The next request is due (open load).
    Due,
    /// A client sends a request on this connection (closed load).
    Ask(u32),
    /// A frame reaches the adapter.
    Arrive(Packet),
    /// The adapter may interrupt for this queue. The event is stale unless its number is the ring's.
    Irq(u16, u32),
    /// An inter-processor interrupt reaches a processor.
    Ipi(u16),
    /// A processor has finished its chunk.
    Done(u16),
    /// An answer reaches the client.
    Answer(u32),
    /// Two threads are chosen to exchange their processors.
    Move,
}

/// A request on its way to the socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) conn: u32,
    /// Its number on the connection, from 1.
    pub(super) seq: u32,
    pub(super) queue: u16,
    /// Whether it was sent again after a loss, so that a late arrival is not reordering by the host.
    pub(super) again: bool,
}

/// A source of frames for softirq.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    Ring(u16),
    Backlog,
}

/// A piece of work that a processor does without interruption.
#[derive(Clone, Copy, Debug)]
pub(super) enum Chunk {
    Idle,
    Irq(u16),
    Ipi,
    /// A frame of a ring: the driver's part, and the stack's unless it goes to the backlog of a processor.
    Frame(Packet, Option<u16>),
    /// A frame of the backlog.
    Stack(Packet),
    /// The end of polling a source that is empty.
    Exit(Source),
    /// Freeing transmitted buffers.
    Clean,
    /// A request of this thread and connection.
    Serve(u16, u32),
    /// A call of epoll by a thread that finds nothing to do.
    Sleep(u16),
}

/// One processor.
#[derive(Debug)]
pub(super) struct Cpu {
    pub(super) chunk: Chunk,
    pub(super) irqs: VecDeque<u16>,
    pub(super) ipi: bool,
    pub(super) polls: VecDeque<Source>,
    /// Frames of the first source since its turn began.
    pub(super) polled: u32,
    pub(super) backlog: VecDeque<Packet>,
    pub(super) backlog_on: bool,
    /// Processors to interrupt when the round of softirq ends.
    pub(super) to_kick: Vec<u16>,
    pub(super) runs: VecDeque<u16>,
    /// The time of softirq since the processor last had none to do, and the threads' time in between.
    pub(super) softirq_ns: Nanos,
    pub(super) thread_ns: Nanos,
    pub(super) busy: Nanos,
    pub(super) began: Nanos,
}

impl Cpu {
    pub(super) const fn new() -> Self {
        Self {
            chunk: Chunk::Idle,
            irqs: VecDeque::new(),
            ipi: false,
            polls: VecDeque::new(),
            polled: 0,
            backlog: VecDeque::new(),
            backlog_on: false,
            to_kick: Vec::new(),
            runs: VecDeque::new(),
            softirq_ns: 0,
            thread_ns: 0,
            busy: 0,
            began: 0,
        }
    }
}

/// A receive ring, with the transmit ring of the same interrupt vector.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) frames: VecDeque<Packet>,
    /// Transmitted buffers to free.
    pub(super) clean: u32,
    /// Whether the interrupt is enabled; it is disabled from the interrupt until polling ends.
    pub(super) armed: bool,
    /// The number of the pending interrupt; events with an older number are stale.
    pub(super) number: u32,
    pub(super) waiting: bool,
    pub(super) last_irq: Nanos,
    pub(super) gap: Nanos,
    /// Bytes since the last interrupt.
    pub(super) bytes: u64,
}

impl Ring {
    pub(super) fn new(setup: &Setup) -> Self {
        let gap = match setup.moderation {
            Moderation::Gap(ns) => ns,
            Moderation::Adaptive { lowest, .. } => lowest,
            Moderation::Off | Moderation::Count { .. } => 0,
        };
        Self {
            frames: VecDeque::with_capacity(setup.ring.min(4096)),
            clean: 0,
            armed: true,
            number: 0,
            waiting: false,
            last_irq: 0,
            gap,
            bytes: 0,
        }
    }

    /// Chooses the moderation class as ixgbe_update_itr does: one step at a time.
    pub(super) fn adapt(&mut self, [lowest, low, bulk]: [Nanos; 3], now: Nanos) {
        let us = (now.saturating_sub(self.last_irq) / 1000).max(1);
        let rate = self.bytes / us;
        self.gap = match self.gap {
            gap if gap == lowest => {
                if rate > CLASSES[0] {
                    low
                } else {
                    lowest
                }
            }
            gap if gap == low && rate > CLASSES[1] => bulk,
            gap if gap == low && rate <= CLASSES[0] => lowest,
            gap if gap == bulk && rate <= CLASSES[1] => low,
            gap => gap,
        };
    }
}

/// One server thread.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) cpu: u16,
    pub(super) asleep: bool,
    /// The processor to which it moves when it is next woken.
    pub(super) moves_to: Option<u16>,
    /// Whether it was just woken, so that its next chunk includes the context switch.
    pub(super) woken: bool,
    /// Connections with something to read.
    pub(super) ready: VecDeque<u32>,
    /// How many of them the last epoll returned.
    pub(super) named: usize,
}

impl Thread {
    pub(super) const fn new(cpu: u16) -> Self {
        Self { cpu, asleep: true, woken: false, moves_to: None, ready: VecDeque::new(), named: 0 }
    }
}

/// One connection, both ends.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) thread: u16,
    /// The processor that last wrote to the socket, and the one that last put data into it.
    pub(super) touched: u16,
    pub(super) written: u16,
    /// Requests in the socket, and how many of them the thread is serving.
    pub(super) queued: u32,
    pub(super) taken: u32,
    /// Whether the thread has been notified that there is something to read.
    pub(super) ready: bool,
    /// The highest sequence number that the stack has processed.
    pub(super) seen: u32,
    pub(super) sent: u32,
    pub(super) outstanding: u32,
    /// When the unanswered requests were due; those that still wait at the client are last.
    pub(super) due: VecDeque<Nanos>,
}

impl Conn {
    pub(super) const fn new(thread: u16) -> Self {
        Self {
            thread,
            touched: 0,
            written: 0,
            queued: 0,
            taken: 0,
            ready: false,
            seen: 0,
            sent: 0,
            outstanding: 0,
            due: VecDeque::new(),
        }
    }
}
