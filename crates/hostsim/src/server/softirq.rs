//! Rings, interrupts and their moderation, NAPI polling, backlogs of RPS, delivery to sockets.

use flowyard_frame::Nanos;

use super::host::Host;
use super::parts::{Chunk, Event, Packet, Source};
use super::setup::{Moderation, Placement};
use super::steer::Counts;

/// Frames taken from a source before the next source has its turn (`netdev` weight).
const WEIGHT: u32 = 64;
/// The time after which a lost segment is sent again: Linux's minimum retransmission timeout.
const RTO: Nanos = 200_000_000;
impl Host<'_> {
    /// The processor that a queue interrupts.
    fn cpu_of(&self, queue: u16) -> u16 {
        queue % self.setup.machine.cpus()
    }

    /// A frame reaches the adapter.
    pub(super) fn arrive(&mut self, mut packet: Packet) {
        let now = self.now();
        let counts = Counts { tails: &self.queue_tails, heads: &self.queue_heads };
        packet.queue = self.steer.queue(packet.conn, now, &counts);
        let queue = usize::from(packet.queue);
        if self.rings[queue].frames.len() >= self.setup.ring {
            self.outcome.dropped += u64::from(self.measuring());
            self.events.after(RTO, Event::Arrive(Packet { again: true, ..packet }));
        } else {
            self.rings[queue].frames.push_back(packet);
            self.rings[queue].bytes += u64::from(self.setup.wire_bytes[0]);
            self.queue_tails[queue] += 1;
            self.raise(packet.queue);
        }
        let counts = Counts { tails: &self.queue_tails, heads: &self.queue_heads };
        self.steer.entered(&counts);
    }

    /// Notes that an answer left by the transmit ring of `queue`, so its buffer must be freed.
    pub(super) fn transmitted(&mut self, queue: u16) {
        self.rings[usize::from(queue)].clean += 1;
        self.raise(queue);
    }

    /// Schedules the interrupt of a queue that has something to report.
    fn raise(&mut self, queue: u16) {
        let now = self.now();
        let ring = &mut self.rings[usize::from(queue)];
        if !ring.armed {
            return;
        }
        let (at, sooner) = match self.setup.moderation {
            _ if self.setup.low_latency => (now, true),
            Moderation::Off => (now, false),
            Moderation::Gap(_) | Moderation::Adaptive { .. } => (ring.last_irq + ring.gap, false),
            Moderation::Count { ns, frames } => {
                let full = ring.frames.len() >= usize::from(frames);
                (if full { now } else { now + ns }, full)
            }
        };
        if !ring.waiting || sooner {
            ring.waiting = true;
            ring.number = ring.number.wrapping_add(1);
            self.events.at(at, Event::Irq(queue, ring.number));
        }
    }

    /// Interrupts the processor of a queue.
    pub(super) fn interrupt(&mut self, queue: u16, number: u32) {
        let now = self.now();
        let ring = &mut self.rings[usize::from(queue)];
        if !ring.armed || number != ring.number {
            return;
        }
        (ring.armed, ring.waiting) = (false, false);
        if let Moderation::Adaptive { lowest, low, bulk } = self.setup.moderation {
            ring.adapt([lowest, low, bulk], now);
        }
        (ring.last_irq, ring.bytes) = (now, 0);
        self.outcome.irqs += u64::from(self.measuring());
        let cpu = self.cpu_of(queue);
        self.cpus[usize::from(cpu)].irqs.push_back(queue);
        self.poke(cpu);
    }

    /// The next chunk of softirq on `cpu`.
    pub(super) fn choose_softirq(&mut self, cpu: u16) -> (Chunk, Nanos, Nanos) {
        let costs = self.setup.costs;
        let own = &mut self.cpus[usize::from(cpu)];
        if own.polled >= WEIGHT {
            own.polled = 0;
            own.polls.rotate_left(1);
        }
        let Some(&source) = own.polls.front() else { return (Chunk::Idle, 0, 0) };
        own.polled += 1;
        match source {
            Source::Backlog => {
                let Some(packet) = own.backlog.pop_front() else {
                    return (Chunk::Exit(source), costs.poll_exit, 0);
                };
                let from = self.cpu_of(packet.queue);
                let lines = costs.packet_lines + costs.backlog_lines;
                let fetch = costs.fetch(&self.setup.machine, from, cpu, lines);
                let (work, more) = self.stack(cpu, packet.conn);
                (Chunk::Stack(packet), work, fetch + more)
            }
            Source::Ring(queue) => {
                let ring = &mut self.rings[usize::from(queue)];
                let clean = std::mem::take(&mut ring.clean);
                let cleaning = Nanos::from(clean) * costs.clean;
                let Some(packet) = ring.frames.pop_front() else {
                    if clean > 0 {
                        return (Chunk::Clean, cleaning, 0);
                    }
                    // The round ends here: processors with new frames in their backlogs are interrupted.
                    let kicks = own.to_kick.len() as Nanos * costs.ipi_send;
                    return (Chunk::Exit(source), costs.poll_exit + kicks, 0);
                };
                if self.steer.rps.is_some() || self.steer.rfs.is_some() {
                    let target = self.dispatch(packet).unwrap_or(cpu);
                    let machine = &self.setup.machine;
                    let fetch = costs.fetch(machine, target, cpu, costs.backlog_lines);
                    let work = cleaning + costs.driver + costs.rps;
                    return (Chunk::Frame(packet, Some(target)), work, fetch);
                }
                let (work, fetch) = self.stack(cpu, packet.conn);
                (Chunk::Frame(packet, None), cleaning + costs.driver + work, fetch)
            }
        }
    }

    /// The work of TCP for a segment on `cpu`, including the wake-up if its thread needs one, and the time
    /// to fetch its cache lines.
    fn stack(&mut self, cpu: u16, conn: u32) -> (Nanos, Nanos) {
        let costs = self.setup.costs;
        let conn = &mut self.conns[conn as usize];
        let last = std::mem::replace(&mut conn.touched, cpu);
        let fetch = costs.socket(&self.setup.machine, last, cpu, self.missing);
        let thread = &self.threads[usize::from(conn.thread)];
        let mut work = costs.stack;
        if !conn.ready {
            work += costs.notify;
        }
        if thread.asleep {
            work += costs.wake;
            if thread.cpu != cpu {
                work += costs.ipi_send;
            }
        }
        (work, fetch)
    }

    /// Puts a frame into the backlog of `target`.
    pub(super) fn enqueue_on(&mut self, cpu: u16, target: u16, packet: Packet) {
        let other = &mut self.cpus[usize::from(target)];
        other.backlog.push_back(packet);
        self.backlog_tails[usize::from(target)] =
            self.backlog_tails[usize::from(target)].wrapping_add(1);
        if !std::mem::replace(&mut other.backlog_on, true) {
            if target == cpu {
                other.polls.push_back(Source::Backlog);
            } else {
                self.cpus[usize::from(cpu)].to_kick.push(target);
            }
        }
        // The round also ends when the weight is used up.
        if self.cpus[usize::from(cpu)].polled >= WEIGHT {
            self.kick(cpu);
        }
    }

    /// Interrupts the processors whose backlogs received frames.
    fn kick(&mut self, cpu: u16) {
        let mut to_kick = std::mem::take(&mut self.cpus[usize::from(cpu)].to_kick);
        for target in to_kick.drain(..) {
            self.events.after(self.setup.costs.ipi_flight, Event::Ipi(target));
        }
        self.cpus[usize::from(cpu)].to_kick = to_kick;
    }

    /// Ends polling a source that was found empty and enables its interrupt, unless frames arrived meanwhile.
    pub(super) fn exit(&mut self, cpu: u16, source: Source) {
        self.kick(cpu);
        let own = &mut self.cpus[usize::from(cpu)];
        let more = match source {
            Source::Backlog => !own.backlog.is_empty(),
            Source::Ring(queue) => {
                let ring = &self.rings[usize::from(queue)];
                !ring.frames.is_empty() || ring.clean > 0
            }
        };
        own.polled = 0;
        if more {
            own.polls.rotate_left(1);
            return;
        }
        own.polls.pop_front();
        match source {
            Source::Backlog => own.backlog_on = false,
            Source::Ring(queue) => self.rings[usize::from(queue)].armed = true,
        }
    }

    /// Puts a segment into its socket.
    pub(super) fn deliver(&mut self, cpu: u16, packet: Packet) {
        let measuring = self.measuring();
        self.queue_heads[usize::from(packet.queue)] += 1;
        self.flying -= 1;
        let conn = &mut self.conns[packet.conn as usize];
        let late = packet.seq < conn.seen;
        conn.seen = conn.seen.max(packet.seq);
        conn.queued += 1;
        conn.written = cpu;
        let first = !std::mem::replace(&mut conn.ready, true);
        let number = conn.thread;
        let thread = &mut self.threads[usize::from(number)];
        if measuring {
            self.outcome.segments += 1;
            self.outcome.reordered += u64::from(late && !packet.again);
            self.local += u64::from(thread.cpu == cpu);
        }
        if first {
            thread.ready.push_back(packet.conn);
        }
        if thread.asleep {
            self.wake(cpu, number);
        }
    }

    /// Makes a thread runnable.
    fn wake(&mut self, cpu: u16, number: u16) {
        let home = self.threads[usize::from(number)].cpu;
        let target = match self.setup.placement {
            Placement::Pinned => home,
            Placement::Wandering => self.idle_near(home, cpu),
            Placement::Moved(_) => {
                self.threads[usize::from(number)].moves_to.take().unwrap_or(home)
            }
        };
        let thread = &mut self.threads[usize::from(number)];
        (thread.asleep, thread.woken) = (false, true);
        if target != home {
            thread.cpu = target;
            self.outcome.migrations += u64::from(self.measuring());
        }
        self.cpus[usize::from(target)].runs.push_back(number);
        if target != cpu && matches!(self.cpus[usize::from(target)].chunk, Chunk::Idle) {
            self.events.after(self.setup.costs.ipi_flight, Event::Ipi(target));
        }
    }

    /// The processor of a woken thread: its own if that is idle, otherwise the next idle processor of the
    /// same socket, otherwise its own.
    fn idle_near(&self, home: u16, waker: u16) -> u16 {
        let machine = &self.setup.machine;
        // The waker's processor is in softirq, so it counts as idle for the thread.
        let is_free = |cpu: u16| {
            let own = &self.cpus[usize::from(cpu)];
            own.runs.is_empty() && own.polls.is_empty() && matches!(own.chunk, Chunk::Idle)
        };
        if home == waker || is_free(home) {
            return home;
        }
        let cpus = machine.cpus();
        let near = |cpu: &u16| machine.socket(*cpu) == machine.socket(home) && is_free(*cpu);
        (1..cpus).map(|step| (home + step) % cpus).find(near).unwrap_or(home)
    }
}
