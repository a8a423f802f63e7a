//! Measurements of the engine with ports in memory, each for a fixed time.
//!
//! ```text
//!  round 0:  case a, case b, case c ...      cases that are compared are measured in every round,
//!  round 1:  case a, case b, case c ...      so that other load disturbs all of them alike
//! ```

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use flowyard_config::Config;
use flowyard_frame::{Action, Edit, FlowKey, Nanos, proto};
use flowyard_ports::mem::Frames;
use flowyard_ports::port::{Pace, Repeat, SourceRx};
use flowyard_testkit::{Build, Rng};
use flowyard_wire::LinkType;
use flowyard_yard::ask::{Answer, Question};
use flowyard_yard::run::{Outcome, Running};
use flowyard_yard::{Clock, Parts, Reload, Stages, Yard};
use rustix::time::{ClockId, clock_gettime};

/// Frames in a port's memory; the port repeats them without end.
const FRAMES: u64 = 65_536;

/// The work done on every frame.
#[derive(Clone, Copy)]
pub(crate) enum Load {
    /// Forward it.
    Forward,
    /// Forward it after busy waiting for this many nanoseconds.
    Burn(u64),
    /// Load balancing in this `mode` of a `[[service]]`.
    Balance(&'static str),
}

/// The order in which the flows of a case send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The flow of each of [`FRAMES`] frames is drawn, all with equal probability.
    Random,
    /// One frame of each flow after another, as the captures that other programs are measured with.
    InOrder,
}

/// A configuration of the engine to measure.
#[derive(Clone)]
pub(crate) struct Case {
    /// Number of cores: the first receives, the last transmits.
    pub(crate) cores: u16,
    /// Order of the only queue.
    pub(crate) order: &'static str,
    /// Cores that work on the queue.
    pub(crate) consumers: Vec<u16>,
    pub(crate) load: Load,
    /// Number of flows.
    pub(crate) flows: u64,
    pub(crate) source: Source,
    /// Whether each flow has an entry in the exact table.
    pub(crate) exact: bool,
    /// Frame length in bytes, without the FCS.
    pub(crate) length: usize,
}

/// The result of measuring a case once.
#[derive(Clone)]
pub(crate) struct Round {
    /// Frames per second.
    pub(crate) pps: f64,
    /// Frames per second of processor time that this process used, of all threads.
    pub(crate) pps_cpu: f64,
    /// Of the time in which the frames were counted.
    pub(crate) stages: Stages,
}

/// How long a core may take to answer a question: on a busy machine, it may not run for a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a run has done so far.
struct Done {
    at: Nanos,
    cpu: Nanos,
    frames: u64,
    stages: Stages,
}

impl Done {
    fn read(running: &Running, clock: &Clock) -> anyhow::Result<Self> {
        let answers = running.handle().ask(&Question::Stages, PATIENCE);
        let mut stages = Stages::default();
        for answer in answers {
            let Some(Answer::Stages(core)) = answer else {
                anyhow::bail!(
                    "a core did not answer within {PATIENCE:?}; the machine is too loaded"
                )
            };
            stages = stages.plus(&core);
        }
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = cpu.tv_sec as Nanos * 1_000_000_000 + cpu.tv_nsec as Nanos;
        let frames = running.counters().iter().map(|core| core.tx_frames).sum();
        Ok(Self { at: clock(), cpu, frames, stages })
    }

    fn since(&self, before: &Self) -> Round {
        let rate = |ns: Nanos| (self.frames - before.frames) as f64 * 1e9 / ns.max(1) as f64;
        Round {
            pps: rate(self.at - before.at),
            pps_cpu: rate(self.cpu - before.cpu),
            stages: self.stages.minus(&before.stages),
        }
    }
}

/// Address and UDP port of the client and of the server of a flow.
pub(crate) const fn endpoints(flow: u64) -> [(Ipv4Addr, u16); 2] {
    let client = Ipv4Addr::new(10, 0, (flow >> 8) as u8, flow as u8);
    [(client, 4000), (Ipv4Addr::new(10, 1, 0, 1), 53)]
}

fn key(flow: u64) -> FlowKey {
    let [(client, from), (server, to)] = endpoints(flow);
    FlowKey::five_tuple(proto::UDP, client.into(), from, server.into(), to)
}

impl Case {
    pub(crate) fn config(&self, first: u16) -> anyhow::Result<Config> {
        Config::parse("bench", &self.text(first)).context("the bench's own configuration")
    }

    /// The configuration of this case, on the CPUs from `first` on.
    pub(crate) fn text(&self, first: u16) -> String {
        let Self { cores, order, consumers, .. } = self;
        let through = "ports = { in = \"out\" }";
        let work = match self.load {
            Load::Forward => format!("kind = \"forward\"\n{through}"),
            Load::Burn(ns) => format!("kind = \"burn\"\ncost_ns = {ns}\n{through}"),
            Load::Balance(mode) => format!(
                "kind = \"balance\"\n[balance]\nlocal = [\"10.9.0.1\", \"10.9.0.2\"]\n\
                 clients = {{ port = \"in\", next_hop = \"02:00:00:00:00:01\" }}\n\
                 [[service]]\nname = \"s\"\nvip = \"10.1.0.1\"\nproto = \"udp\"\nport = 53\n\
                 mode = \"{mode}\"\n[[service.backend]]\nname = \"b\"\naddr = \"10.2.0.1\"\n\
                 exit = {{ port = \"out\", next_hop = \"02:00:00:00:00:02\" }}"
            ),
        };
        // Cores are pinned if there are enough CPUs, so that migrations are not part of the result.
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let pin: Vec<u16> = (first..first + cores)
            .take_while(|_| usize::from(first + cores) <= processors)
            .collect();
        format!(
            "[yard]\ncores = {cores}\nidle = \"busy\"\npin = {pin:?}\n\
             [[port]]\nname = \"in\"\nkind = \"mem\"\nin = \"memory\"\nwindow_frames = 256\n\
             [[port]]\nname = \"out\"\nkind = \"mem\"\ncore = {}\nwindow_frames = 256\n\
             [[queue]]\nname = \"q\"\norder = \"{order}\"\nconsumers = {consumers:?}\n\
             window_frames = 512\n[work]\n{work}\n",
            cores - 1,
        )
    }

    /// Measures the case for `time`, after a quarter of it to warm up.
    pub(crate) fn round(&self, time: Duration, clock: &Clock) -> anyhow::Result<Round> {
        self.round_from(0, time, clock)
    }

    /// As [`Case::round`] but with real-time priority, where that is permitted. Also returns the share of
    /// all CPU time that other programs used.
    pub(crate) fn urgent(&self, time: Duration, clock: &Clock) -> anyhow::Result<(Round, f64)> {
        let (round, others) = crate::live::priority::urgent(|| self.round(time, clock))?;
        Ok((round?, others))
    }

    /// As [`Case::round`] on the CPUs from `first` on, so that several cases can run at the same time.
    pub(crate) fn round_from(
        &self,
        first: u16,
        time: Duration,
        clock: &Clock,
    ) -> anyhow::Result<Round> {
        self.measure(self.yard(&self.config(first)?, clock)?, time, clock)
    }

    /// Measures the engine `yard`, which is one of this case.
    pub(crate) fn measure(
        &self,
        yard: Yard,
        time: Duration,
        clock: &Clock,
    ) -> anyhow::Result<Round> {
        let running = yard.start(Arc::clone(clock));
        let running = running.context("starting a thread for a core")?;
        running.reload(self.entries());
        thread::sleep(time / 4); // to warm up
        let before = Done::read(&running, clock);
        thread::sleep(time);
        let after = Done::read(&running, clock);
        running.stop();
        let outcome: Outcome = running.join();
        anyhow::ensure!(outcome.is_balanced(), "the frame counters of a run do not balance");
        Ok(after?.since(&before?))
    }

    /// The engine of this case, with this configuration.
    pub(crate) fn yard(&self, config: &Config, clock: &Clock) -> anyhow::Result<Yard> {
        let mut parts = Parts { clock: Some(Arc::clone(clock)), ..Parts::default() };
        let source = Repeat::new(self.frames(), u32::MAX);
        parts.rx.insert(0, Box::new(SourceRx::new(0, Box::new(source), Pace::Fast)));
        config.build(parts).context("the bench's own yard")
    }

    /// The frames that the port repeats.
    pub(crate) fn frames(&self) -> Frames {
        let (mut frames, mut rng, mut bytes) = (Frames::new(), Rng::new(1), Vec::new());
        let count = if self.source == Source::Random { FRAMES } else { self.flows };
        for at in 0..count {
            let flow = if self.source == Source::Random { rng.below(self.flows) } else { at };
            Build::new(&key(flow)).pad(self.length).write(&mut bytes);
            frames.push(0, LinkType::Ethernet, &bytes);
        }
        frames
    }

    /// The entries of the exact table.
    fn entries(&self) -> Reload {
        let flows = if self.exact { self.flows } else { 0 };
        let puts = (0..flows).map(|flow| Edit::Put(key(flow), Action::queue(0)));
        Reload { exact: puts.collect(), ..Reload::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use flowyard_frame::{Batch, Lanes};
    use flowyard_pool::Pool;
    use flowyard_yard::port::Received;
    use flowyard_yard::{Rx, Span, Tick, Tx};

    use super::*;

    /// Time that only readings of the clock and [`Slow`] ports pass.
    #[derive(Clone, Default)]
    struct Time(Arc<AtomicU64>);

    /// The time of reading the clock.
    const READING: Nanos = 30;

    impl Time {
        fn pass(&self, ns: Nanos) -> Nanos {
            self.0.fetch_add(ns, Ordering::Relaxed)
        }

        fn clock(&self) -> Clock {
            let time = self.clone();
            Arc::new(move || time.pass(READING))
        }
    }

    /// A port that takes 150 ns for each frame, received or transmitted.
    struct Slow<T>(T, Time);

    impl<T: Rx> Rx for Slow<T> {
        fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
            let got = self.0.rx(into, pool, now);
            self.1.pass(150 * into.len() as Nanos);
            got
        }
    }

    impl<T: Tx> Tx for Slow<T> {
        fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes {
            self.1.pass(150 * Nanos::from(lanes.count()));
            self.0.tx(from, lanes, pool, now)
        }
    }

    /// One core whose queue is always full, as it is when the core has once received more than it worked on: the
    /// frames then enter the queue at the second attempt.
    #[test]
    fn the_stages_of_a_full_queue_add_up_to_the_time_of_a_frame() {
        for order in ["direct", "ordered", "atomic"] {
            let case = Case {
                cores: 1,
                order,
                consumers: vec![0],
                load: Load::Forward,
                flows: 64,
                source: Source::InOrder,
                exact: false,
                length: 60,
            };
            let time = Time::default();
            let mut parts = Parts { clock: Some(time.clock()), ..Parts::default() };
            let source =
                SourceRx::new(0, Box::new(Repeat::new(case.frames(), u32::MAX)), Pace::Fast);
            parts.rx.insert(0, Box::new(Slow(source, time.clone())));
            parts.tx.insert(1, Box::new(Slow(flowyard_yard::port::Discard, time.clone())));
            let mut yard = case.config(0).unwrap().build(parts).unwrap();
            let core = &mut yard.cores[0];
            let mut blocked = 0;
            let mut tick = || {
                let now = time.pass(0);
                core.tick(now);
                blocked += u32::from(core.is_blocked());
                (now, core.counters().tx_frames, core.stages())
            };
            (0..170).for_each(|_| _ = tick()); // to fill the queue
            let (began, before, stages) = tick();
            (0..17 * 500).for_each(|_| _ = tick());
            let (ended, after, all) = tick();
            let stages = all.minus(&stages);
            let of = |span| stages.ns_per_frame(span).unwrap_or_default();
            let sum: f64 = Span::ALL.into_iter().map(of).sum();
            // Of the time of a frame, the clock's readings of one tick in 17 are no stage.
            let frame = (ended - began) as f64 / (after - before) as f64;
            assert!((290.0..=frame).contains(&sum), "{order}: {sum} of {frame}");
            assert!(frame - sum < 3.0, "{order}: {sum} of {frame}");
            assert!(
                blocked > 4000 || order == "direct",
                "{order}: the queue was full {blocked} times"
            );
            let share = |span| stages.frames(span) as f64 / stages.frames(Span::Rx) as f64;
            assert!(
                (0.9..1.1).contains(&share(Span::Enqueue)),
                "{order}: {}",
                share(Span::Enqueue)
            );
            assert!((0.9..1.1).contains(&share(Span::Work)), "{order}: {}", share(Span::Work));
        }
    }
}
