//! Server threads, which work as memcached does: epoll, read, answer.

use flowyard_frame::Nanos;

use super::host::Host;
use super::parts::{Chunk, Event, Thread};
use super::setup::Placement;

/// Requests served on a connection before the next connection has its turn (memcached's `reqs_per_event`).
const PER_EVENT: u32 = 20;

impl Host<'_> {
    /// The next chunk of the thread whose turn it is.
    pub(super) fn choose_thread(&mut self, cpu: u16) -> (Chunk, Nanos, Nanos) {
        let costs = self.setup.costs;
        let Some(&number) = self.cpus[usize::from(cpu)].runs.front() else {
            return (Chunk::Idle, 0, 0);
        };
        let thread = &mut self.threads[usize::from(number)];
        let mut work = if std::mem::take(&mut thread.woken) { costs.switch } else { 0 };
        let Some(&conn) = thread.ready.front() else {
            return (Chunk::Sleep(number), work + costs.epoll, 0);
        };
        if thread.named == 0 {
            thread.named = thread.ready.len();
            work += costs.epoll;
        }
        let own = &mut self.conns[conn as usize];
        let machine = &self.setup.machine;
        let mut fetch = 0;
        if own.taken == 0 {
            own.taken = own.queued.min(PER_EVENT);
            work += 2 * costs.read; // the second read finds nothing
            let lines = u64::from(own.taken) * costs.packet_lines;
            fetch += costs.fetch(machine, own.written, cpu, lines);
        }
        let last = std::mem::replace(&mut own.touched, cpu);
        fetch += costs.socket(machine, last, cpu, self.missing);
        (Chunk::Serve(number, conn), work + costs.request + costs.send, fetch)
    }

    /// Sends the answer to a request that was served.
    pub(super) fn served(&mut self, cpu: u16, number: u16, conn: u32) {
        let (now, setup) = (self.now(), self.setup);
        let hash = self.steer.hash(conn);
        if let Some(rfs) = &mut self.steer.rfs {
            rfs.consume(hash, cpu);
        }
        let ring = if setup.tx_by_cpu { cpu % setup.queues } else { self.steer.by_hash(conn) };
        self.steer.transmit(conn, ring, now);
        // 0.8 ns a byte at 10 Gb/s.
        let wire = Nanos::from(setup.wire_bytes[1]) * 4 / 5;
        self.tx_free = self.tx_free.max(now) + wire;
        self.events.at(self.tx_free + setup.costs.network, Event::Answer(conn));
        self.answered += 1;
        self.transmitted(ring);

        let own = &mut self.conns[conn as usize];
        own.queued -= 1;
        own.taken -= 1;
        if own.taken > 0 {
            return;
        }
        let more = own.queued > 0;
        own.ready = more;
        let thread = &mut self.threads[usize::from(number)];
        thread.ready.pop_front();
        if more {
            thread.ready.push_back(conn);
        }
        thread.named -= 1;
        if thread.named == 0 {
            self.cpus[usize::from(cpu)].runs.rotate_left(1);
        }
    }

    /// Chooses two threads at random, which exchange their processors if both are of one socket.
    pub(super) fn exchange_processors(&mut self) {
        let place = |thread: &Thread| thread.moves_to.unwrap_or(thread.cpu);
        let count = self.threads.len() as u64;
        let [one, other] = [(); 2].map(|()| self.rng.below(count) as usize);
        let [here, there] = [one, other].map(|number| place(&self.threads[number]));
        let machine = self.setup.machine;
        if machine.socket(here) == machine.socket(there) {
            self.threads[one].moves_to = Some(there);
            self.threads[other].moves_to = Some(here);
        }
        if let Placement::Moved(every) = self.setup.placement {
            self.events.after(every.max(1), Event::Move);
        }
    }

    /// Lets a thread that found nothing in epoll sleep, unless something arrived meanwhile.
    pub(super) fn sleep(&mut self, cpu: u16, number: u16) {
        let thread = &mut self.threads[usize::from(number)];
        if thread.ready.is_empty() {
            thread.asleep = true;
            self.cpus[usize::from(cpu)].runs.retain(|&other| other != number);
        }
    }
}
