//! The loop over the events, and the choice of what each processor does next.

use flowyard_frame::Nanos;

use super::host::Host;
use super::outcome::Outcome;
use super::parts::{Chunk, Event, Packet, Source};
use super::setup::{Setup, SetupError};
use super::steer::Backlogs;
use crate::accounting::Accounting;

/// The time after which softirq lets threads run (`MAX_SOFTIRQ_TIME`).
const SOFTIRQ_MAX: Nanos = 2_000_000;

impl Setup {
    /// Simulates the run.
    ///
    /// # Errors
    /// When the setup cannot be run.
    pub fn run(&self) -> Result<Outcome, SetupError> {
        let (mut host, start) = Host::new(self)?;
        host.start(start);
        Ok(host.run())
    }
}

impl Host<'_> {
    fn run(mut self) -> Outcome {
        while let Some(event) = self.events.next_before(self.to) {
            match event {
                Event::Due => self.due(),
                Event::Ask(conn) => self.ask(conn),
                Event::Arrive(packet) => self.arrive(packet),
                Event::Irq(queue, number) => self.interrupt(queue, number),
                Event::Ipi(cpu) => {
                    self.cpus[usize::from(cpu)].ipi = true;
                    self.outcome.ipis += u64::from(self.measuring());
                    self.poke(cpu);
                }
                Event::Done(cpu) => self.done(cpu),
                Event::Answer(conn) => self.answer(conn),
                Event::Move => self.exchange_processors(),
            }
        }
        self.finish()
    }

    fn finish(mut self) -> Outcome {
        for cpu in &mut self.cpus {
            if !matches!(cpu.chunk, Chunk::Idle) {
                cpu.busy += self.to.saturating_sub(cpu.began.max(self.from));
            }
        }
        let seconds = self.setup.measure as f64 / 1e9;
        let us = |ns: u64| ns as f64 / 1e3;
        let in_sockets: u64 = self.conns.iter().map(|conn| u64::from(conn.queued)).sum();
        let mut outcome = self.outcome;
        outcome.offered_rps = self.due as f64 / seconds;
        outcome.answered_rps = self.answers as f64 / seconds;
        outcome.latency_us_mean = self.latency_sum as f64 / (self.answers as f64).max(1.0) / 1e3;
        outcome.latency_us_p50 = us(self.latency.value_at_quantile(0.5));
        outcome.latency_us_p99 = us(self.latency.value_at_quantile(0.99));
        outcome.local_share = self.local as f64 / (outcome.segments as f64).max(1.0);
        let measure = self.setup.measure.max(1) as f64;
        outcome.busy = self.cpus.iter().map(|cpu| cpu.busy as f64 / measure).collect();
        outcome.filters = self.steer.filters();
        outcome.accounting = Accounting {
            entered: self.sent,
            left: self.answered,
            dropped: 0,
            held: self.flying + in_sockets,
        };
        outcome
    }

    /// Starts `cpu` if it is idle, because something waits for it.
    pub(super) fn poke(&mut self, cpu: u16) {
        if matches!(self.cpus[usize::from(cpu)].chunk, Chunk::Idle) {
            self.next(cpu, self.setup.costs.idle_exit);
        }
    }

    /// Begins the next chunk of `cpu`, after a delay of `extra` nanoseconds.
    pub(super) fn next(&mut self, cpu: u16, extra: Nanos) {
        let (chunk, mut work, fetch) = self.choose(cpu);
        let own = &mut self.cpus[usize::from(cpu)];
        own.chunk = chunk;
        if matches!(chunk, Chunk::Idle) {
            (own.softirq_ns, own.thread_ns) = (0, 0);
            return;
        }
        let sibling = self.setup.machine.sibling(cpu);
        if sibling.is_some_and(|s| !matches!(self.cpus[usize::from(s)].chunk, Chunk::Idle)) {
            work = (work as f64 * self.setup.costs.sibling_share) as Nanos;
        }
        let (now, ns) = (self.now(), extra + work + fetch);
        let own = &mut self.cpus[usize::from(cpu)];
        match chunk {
            Chunk::Serve(..) | Chunk::Sleep(_) => own.thread_ns += ns,
            _ => own.softirq_ns += ns,
        }
        own.began = now;
        self.events.after(ns, Event::Done(cpu));
    }

    /// The next chunk of `cpu`, its work, and the time to fetch its cache lines, in nanoseconds.
    fn choose(&mut self, cpu: u16) -> (Chunk, Nanos, Nanos) {
        let own = &mut self.cpus[usize::from(cpu)];
        if let Some(queue) = own.irqs.pop_front() {
            return (Chunk::Irq(queue), self.setup.costs.irq, 0);
        }
        if std::mem::take(&mut own.ipi) {
            if own.backlog_on && !own.polls.contains(&Source::Backlog) {
                own.polls.push_back(Source::Backlog);
            }
            return (Chunk::Ipi, self.setup.costs.ipi_take, 0);
        }
        let (soft, app) = (!own.polls.is_empty(), !own.runs.is_empty());
        if !soft {
            (own.softirq_ns, own.thread_ns) = (0, 0);
        }
        let starved = own.softirq_ns > SOFTIRQ_MAX && own.thread_ns + SOFTIRQ_MAX < own.softirq_ns;
        if soft && !(app && starved) {
            self.choose_softirq(cpu)
        } else if app {
            self.choose_thread(cpu)
        } else {
            (Chunk::Idle, 0, 0)
        }
    }

    /// Applies the effect of a finished chunk and begins the next one.
    fn done(&mut self, cpu: u16) {
        let (now, from) = (self.now(), self.from);
        let own = &mut self.cpus[usize::from(cpu)];
        own.busy += now.saturating_sub(own.began.max(from));
        match own.chunk {
            Chunk::Irq(queue) => own.polls.push_back(Source::Ring(queue)),
            Chunk::Frame(packet, target) => match target {
                None => self.deliver(cpu, packet),
                Some(target) => self.enqueue_on(cpu, target, packet),
            },
            Chunk::Stack(packet) => {
                self.backlog_heads[usize::from(cpu)] =
                    self.backlog_heads[usize::from(cpu)].wrapping_add(1);
                self.deliver(cpu, packet);
            }
            Chunk::Exit(source) => self.exit(cpu, source),
            Chunk::Serve(thread, conn) => self.served(cpu, thread, conn),
            Chunk::Sleep(thread) => self.sleep(cpu, thread),
            Chunk::Idle | Chunk::Ipi | Chunk::Clean => {}
        }
        self.next(cpu, 0);
    }

    /// The processor that RPS or RFS chooses for a frame; `None` keeps it on the same processor.
    pub(super) fn dispatch(&mut self, packet: Packet) -> Option<u16> {
        let hash = self.steer.hash(packet.conn);
        let mut backlogs = Backlogs { tails: &self.backlog_tails, heads: &self.backlog_heads };
        if let Some(rfs) = &mut self.steer.rfs {
            return rfs.receive(hash, packet.queue, &mut backlogs);
        }
        self.steer.rps.as_ref().and_then(|rps| rps.cpu(hash, &backlogs))
    }
}
