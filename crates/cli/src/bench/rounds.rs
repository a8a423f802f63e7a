//! Rounds: a yard in memory, run for a set time, as often as asked.
//!
//! ```text
//!  round 0:  case a, case b, case c ...      what is compared runs side by side in each round,
//!  round 1:  case a, case b, case c ...      so that what disturbs the machine disturbs both
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

/// Frames that a port has in memory, repeated without end.
const FRAMES: u64 = 65_536;

/// What a yard works.
#[derive(Clone, Copy)]
pub(crate) enum Load {
    /// It forwards.
    Forward,
    /// It forwards, and burns so many nanoseconds a frame.
    Burn(u64),
    /// It balances, in a mode of `[[service]]`.
    Balance(&'static str),
}

/// A yard to be measured.
#[derive(Clone)]
pub(crate) struct Case {
    /// Cores: the first receives, the last transmits.
    pub(crate) cores: u16,
    /// Order of the one queue, and who works on it.
    pub(crate) order: &'static str,
    pub(crate) consumers: Vec<u16>,
    pub(crate) load: Load,
    /// Flows, drawn evenly.
    pub(crate) flows: u64,
    /// Whether each flow has an exact entry.
    pub(crate) exact: bool,
    /// Bytes of a frame, without the FCS.
    pub(crate) length: usize,
}

/// What one round of a case came to.
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
        // Pinned where there are processors enough: a core that wanders measures the wandering.
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

    /// Runs it for `time`.
    pub(crate) fn round(&self, time: Duration, clock: &Clock) -> anyhow::Result<Round> {
        self.round_from(0, time, clock)
    }

    /// The same, before all other work of the machine where that is allowed; and the share of the
    /// processors that other work had.
    pub(crate) fn urgent(&self, time: Duration, clock: &Clock) -> anyhow::Result<(Round, f64)> {
        let (round, others) = crate::live::urgent(|| self.round(time, clock))?;
        Ok((round?, others))
    }

    /// The same on processors from `first` on: several can run side by side.
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
        let running = yard.start(Arc::clone(clock));
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
        anyhow::ensure!(outcome.is_balanced(), "the books of the bench do not balance");
        let stages = outcome.cores.iter().fold(Stages::default(), |sum, c| sum.plus(&c.stages));
        let pps = (after - before) as f64 * 1e9 / (ended - began).max(1) as f64;
        Ok(Round { pps, stages })
    }
}

/// The middle one; of none, 0.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
