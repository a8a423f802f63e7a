//! Clients: when requests are due, how many are under way, how long answers take.

use std::collections::VecDeque;

use flowyard_frame::Nanos;

use super::host::{Event, Host, Packet};
use super::{Load, Placement};

/// One connection, both ends.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) thread: u16,
    /// The processor that last wrote to the socket, and the one that last put data into it.
    pub(super) touched: u16,
    pub(super) written: u16,
    /// Requests in the socket, and how many of them the thread is at.
    pub(super) queued: u32,
    pub(super) taken: u32,
    /// Whether the thread knows that there is something to read.
    pub(super) ready: bool,
    /// The highest number that TCP has seen.
    pub(super) seen: u32,
    sent: u32,
    under_way: u32,
    /// When the requests not yet answered were due, those at the client last.
    due: VecDeque<Nanos>,
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
            under_way: 0,
            due: VecDeque::new(),
        }
    }
}

impl Host<'_> {
    /// The clients begin.
    pub(super) fn start(&mut self, at: Nanos) {
        for conn in 0..self.conns.len() {
            let cpu = self.threads[usize::from(self.conns[conn].thread)].cpu;
            (self.conns[conn].touched, self.conns[conn].written) = (cpu, cpu);
        }
        if let Placement::Moved(every) = self.setup.placement {
            self.events.at(at + every, Event::Move);
        }
        match self.setup.load {
            Load::Open { .. } => self.events.at(at, Event::Due),
            Load::Closed { think } => {
                for conn in 0..self.conns.len() as u32 {
                    let later = self.rng.below(think.max(10_000));
                    self.events.at(at + later, Event::Ask(conn));
                }
            }
        }
    }

    /// The next request of all connections together is due: exponential gaps, even choice, so each
    /// connection has exponential gaps of its own.
    pub(super) fn due(&mut self) {
        let conn = self.rng.below(self.conns.len() as u64) as u32;
        self.ask(conn);
        if let Load::Open { rate } = self.setup.load {
            let gap = -(1.0 - self.rng.unit()).ln() * 1e9 / rate;
            self.events.after(gap.round() as Nanos, Event::Due);
        }
    }

    /// A request is due.
    pub(super) fn ask(&mut self, conn: u32) {
        self.due += u64::from(self.measuring());
        let now = self.now();
        self.conns[conn as usize].due.push_back(now);
        self.send(conn);
    }

    /// Sends what the window lets through.
    fn send(&mut self, number: u32) {
        let conn = &mut self.conns[number as usize];
        while (conn.under_way as usize) < conn.due.len() && conn.under_way < self.setup.window {
            conn.under_way += 1;
            conn.sent += 1;
            self.flying += 1;
            self.sent += 1;
            let packet = Packet { conn: number, seq: conn.sent, queue: 0, again: false };
            self.events.after(self.setup.costs.network, Event::Arrive(packet));
        }
    }

    /// An answer is back.
    pub(super) fn answer(&mut self, number: u32) {
        let (now, measuring) = (self.now(), self.measuring());
        let conn = &mut self.conns[number as usize];
        conn.under_way -= 1;
        if let Some(due) = conn.due.pop_front()
            && measuring
        {
            self.answers += 1;
            self.latency_sum += u128::from(now - due);
            self.latency.saturating_record((now - due).max(1));
        }
        self.send(number);
        if let Load::Closed { think } = self.setup.load {
            self.events.after(think, Event::Ask(number));
        }
    }
}
