//! Measurements of the engine with ports in memory, each for a fixed time.
//!
//! ```text
//!  round 0:  case a, case b, case c ...      cases that are compared are measured in every round,
//!  round 1:  case a, case b, case c ...      so that other load disturbs all of them alike
//! ```

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use flowyard_config::Config;
use flowyard_frame::{Action, Edit, FlowKey, proto};
use flowyard_ports::mem::Frames;
use flowyard_ports::port::{Pace, Repeat, SourceRx};
use flowyard_testkit::{Build, Rng};
use flowyard_wire::LinkType;
use flowyard_yard::run::Outcome;
use flowyard_yard::{Clock, Parts, Reload, Stages};

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
    /// Number of flows; each frame's flow is drawn with equal probability.
    pub(crate) flows: u64,
    /// Whether each flow has an entry in the exact table.
    pub(crate) exact: bool,
    /// Frame length in bytes, without the FCS.
    pub(crate) length: usize,
}

/// The result of measuring a case once.
#[derive(Clone)]
pub(crate) struct Round {
    pub(crate) pps: f64,
    pub(crate) stages: Stages,
}

fn key(flow: u64) -> FlowKey {
    let [client, server] =
        [[10, 0, (flow >> 8) as u8, flow as u8], [10, 1, 0, 1]].map(std::net::Ipv4Addr::from);
    FlowKey::five_tuple(proto::UDP, client.into(), 4000, server.into(), 53)
}

impl Case {
    fn config(&self, first: u16) -> anyhow::Result<Config> {
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
        let text = format!(
            "[yard]\ncores = {cores}\nidle = \"busy\"\npin = {pin:?}\n\
             [[port]]\nname = \"in\"\nkind = \"mem\"\nin = \"memory\"\nwindow_frames = 256\n\
             [[port]]\nname = \"out\"\nkind = \"mem\"\ncore = {}\nwindow_frames = 256\n\
             [[queue]]\nname = \"q\"\norder = \"{order}\"\nconsumers = {consumers:?}\n\
             window_frames = 512\n[work]\n{work}\n",
            cores - 1,
        );
        Config::parse("bench", &text).context("the bench's own configuration")
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
        let (mut frames, mut rng, mut bytes) = (Frames::new(), Rng::new(1), Vec::new());
        for _ in 0..FRAMES {
            Build::new(&key(rng.below(self.flows))).pad(self.length).write(&mut bytes);
            frames.push(0, LinkType::Ethernet, &bytes);
        }
        let mut parts = Parts { clock: Some(Arc::clone(clock)), ..Parts::default() };
        let source = Repeat::new(frames, u32::MAX);
        parts.rx.insert(0, Box::new(SourceRx::new(0, Box::new(source), Pace::Fast)));
        let yard = self.config(first)?.build(parts).context("the bench's own yard")?;
        let running = yard.start(Arc::clone(clock)).context("starting a thread for a core")?;
        if self.exact {
            let puts = (0..self.flows).map(|flow| Edit::Put(key(flow), Action::queue(0)));
            running.reload(Reload { exact: puts.collect(), ..Reload::default() });
        }
        thread::sleep(time / 4); // to warm up
        let sent = |yard: &flowyard_yard::run::Running| {
            let frames: u64 = yard.counters().iter().map(|core| core.tx_frames).sum();
            (clock(), frames)
        };
        let (began, before) = sent(&running);
        thread::sleep(time);
        let (ended, after) = sent(&running);
        running.stop();
        let outcome: Outcome = running.join();
        anyhow::ensure!(outcome.is_balanced(), "the frame counters of a run do not balance");
        let stages = outcome.cores.iter().fold(Stages::default(), |sum, c| sum.plus(&c.stages));
        let pps = (after - before) as f64 * 1e9 / (ended - began).max(1) as f64;
        Ok(Round { pps, stages })
    }
}
