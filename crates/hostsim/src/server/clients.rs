//! Clients: when requests are due, how many are outstanding, how long answers take.

use flowyard_frame::Nanos;

use super::host::Host;
use super::parts::{Event, Packet};
use super::setup::{Load, Placement};

impl Host<'_> {
    /// Lets the clients begin at the time `at`.
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

    /// Sends the next request on a random connection and schedules the one after. The gaps between requests
    /// are exponential and every connection is equally likely, so each connection has exponential gaps too.
    pub(super) fn due(&mut self) {
        let conn = self.rng.below(self.conns.len() as u64) as u32;
        self.ask(conn);
        if let Load::Open { rate } = self.setup.load {
            let gap = -(1.0 - self.rng.unit()).ln() * 1e9 / rate;
            self.events.after(gap.round() as Nanos, Event::Due);
        }
    }

    /// Sends a request, or lets it wait at the client if the connection's window is full.
    pub(super) fn ask(&mut self, conn: u32) {
        self.due += u64::from(self.measuring());
        let now = self.now();
        self.conns[conn as usize].due.push_back(now);
        self.send(conn);
    }

    /// Sends the waiting requests that the window allows.
    fn send(&mut self, number: u32) {
        let conn = &mut self.conns[number as usize];
        while (conn.outstanding as usize) < conn.due.len() && conn.outstanding < self.setup.window {
            conn.outstanding += 1;
            conn.sent += 1;
            self.flying += 1;
            self.sent += 1;
            let packet = Packet { conn: number, seq: conn.sent, queue: 0, again: false };
            self.events.after(self.setup.costs.network, Event::Arrive(packet));
        }
    }

    /// Takes an answer at the client.
    pub(super) fn answer(&mut self, number: u32) {
        let (now, measuring) = (self.now(), self.measuring());
        let conn = &mut self.conns[number as usize];
        conn.outstanding -= 1;
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
