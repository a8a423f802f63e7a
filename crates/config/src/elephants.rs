//! `[elephants]`: when a flow is split over several cores.

use flowyard_flow::learn::elephant::{Costs, Settings};
use flowyard_frame::Nanos;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{Config, ConfigError, Order, free, names};

/// `[elephants]`: a flow that one core cannot handle is moved to an ordered queue. Shares are from
/// 0 to 1.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ElephantsConfig {
    /// The ordered queue of promoted flows. Its consumers are the workers; each of them also has a
    /// queue of its own.
    pub queue: Spanned<String>,
    /// The core that runs the detector.
    #[serde(default = "super::core_0")]
    pub core: Spanned<u16>,
    /// The interval between decisions, in microseconds.
    #[serde(default = "window_us")]
    pub window_us: Spanned<u64>,
    /// One of N frames that a core works on is sampled.
    #[serde(default = "sample_every")]
    pub sample_every: Spanned<u32>,
    /// With fewer samples from a core, the detector makes no decision about it.
    #[serde(default = "samples_min")]
    pub samples_min: u64,
    /// A core whose utilisation is at least this share, and that does not keep up, is overloaded.
    #[serde(default = "busy_high")]
    pub busy_high: Spanned<f64>,
    /// A core does not keep up if its queue has at least this number of waiting frames, or dropped
    /// any. 0 is a quarter of the smallest queue of the workers.
    #[serde(default)]
    pub waiting_frames: u64,
    /// Rebalancing fills a core at most to this share.
    #[serde(default = "busy_target")]
    pub busy_target: Spanned<f64>,
    /// A promoted flow is demoted when its home core would then be at most this busy.
    #[serde(default = "busy_low")]
    pub busy_low: Spanned<f64>,
    /// A flow that takes at least this share of its overloaded core is an elephant.
    #[serde(default = "promote")]
    pub promote: Spanned<f64>,
    /// A promoted flow that would take less than this share of a core is demoted.
    #[serde(default = "demote")]
    pub demote: Spanned<f64>,
    /// The number of consecutive windows that must agree.
    #[serde(default = "patience")]
    pub patience: u32,
    /// The shortest time between two decisions about a flow, in microseconds.
    #[serde(default = "dwell_us")]
    pub dwell_us: u64,
    /// How long a flow is not split again after its split reduced its rate, in microseconds.
    #[serde(default = "undone_us")]
    pub undone_us: u64,
    /// The largest number of promoted flows.
    #[serde(default = "promoted_max")]
    pub promoted_max: Spanned<usize>,
    /// The smallest expected gain over one core for which a flow is split.
    #[serde(default = "gain")]
    pub gain: Spanned<f64>,
    /// The cost of receiving, parsing and steering a frame, in nanoseconds; measured if left out.
    pub rx_ns: Option<f64>,
    /// The cost of one side of a hand-off, in nanoseconds; measured if left out.
    pub handoff_ns: Option<f64>,
    /// The cost of committing a frame in order, in nanoseconds; measured if left out.
    pub commit_ns: Option<f64>,
}

impl ElephantsConfig {
    /// The length of a window.
    pub(crate) fn window(&self) -> Nanos {
        self.window_us.get_ref().saturating_mul(1000).max(1)
    }

    /// The initial costs: those that are set, or typical ones of a 3 GHz core until they are
    /// measured.
    pub(crate) fn costs(&self) -> Costs {
        Costs {
            rx_ns: self.rx_ns.unwrap_or(25.0),
            work_ns: 0.0,
            handoff_ns: self.handoff_ns.unwrap_or(8.0),
            commit_ns: self.commit_ns.unwrap_or(8.0),
        }
    }
}

impl Config {
    /// The workers for elephants: the core and the queue of each, in the order of the ordered
    /// queue's consumers.
    fn workers(&self, elephants: &ElephantsConfig) -> Vec<(u16, u16)> {
        let split = self.queue_number(elephants.queue.get_ref());
        let Some(queue) = split.and_then(|split| self.queues().nth(split.into())) else {
            return Vec::new();
        };
        let consumers = queue.consumers.get_ref().iter().map(|core| *core.get_ref());
        consumers.filter_map(|core| Some((core, self.home(core)?))).collect()
    }

    /// The limits at which the detector acts.
    pub(crate) fn elephant_settings(&self, elephants: &ElephantsConfig) -> Settings {
        Settings {
            busy_high: *elephants.busy_high.get_ref(),
            queue_high: self.waiting_frames(elephants),
            busy_target: *elephants.busy_target.get_ref(),
            busy_low: *elephants.busy_low.get_ref(),
            promote: *elephants.promote.get_ref(),
            demote: *elephants.demote.get_ref(),
            patience: elephants.patience,
            dwell: elephants.dwell_us.saturating_mul(1000),
            undone: elephants.undone_us.saturating_mul(1000),
            promoted_max: *elephants.promoted_max.get_ref(),
            workers: u16::MAX,
            gain: *elephants.gain.get_ref(),
            samples_min: elephants.samples_min,
        }
    }

    /// `waiting_frames`, or its default.
    fn waiting_frames(&self, elephants: &ElephantsConfig) -> u64 {
        let own = self.workers(elephants).into_iter();
        let windows = own.filter_map(|(_, queue)| self.queues().nth(queue.into()));
        let least = windows.map(|queue| u64::from(*queue.window_frames.get_ref())).min();
        match elephants.waiting_frames {
            0 => (least.unwrap_or(1024) / 4).max(1),
            frames => frames,
        }
    }
}

/// Checks the queue of promoted flows and its consumers.
fn check_workers(config: &Config, elephants: &ElephantsConfig) -> Result<(), ConfigError> {
    let split = config.queue_number(elephants.queue.get_ref());
    let queue = split.and_then(|split| config.queues().nth(split.into()));
    let name = elephants.queue.get_ref();
    if queue.is_some_and(|queue| queue.order != Order::Ordered) {
        let what =
            format!("queue '{name}' does not keep the order of a flow that several cores work on");
        let fix = format!("give queue '{name}' order = \"ordered\"");
        return Err(config.error(elephants.queue.span(), what, fix));
    }
    let consumers = queue.map_or(&[][..], |queue| queue.consumers.get_ref());
    if consumers.len() < 2 {
        let fix = format!("name at least two consumers of queue '{name}'");
        return Err(config.error(
            elephants.queue.span(),
            "a flow cannot be split over one core",
            fix,
        ));
    }
    if let Some(core) = consumers.iter().find(|core| config.home(*core.get_ref()).is_none()) {
        let core = core.get_ref();
        let what = format!("core {core} has no queue of its own for flows that are not split");
        let fix = format!(
            "add a [[queue]] with consumers = [{core}], or remove the core from the consumers of '{name}'"
        );
        return Err(config.error(elephants.queue.span(), what, fix));
    }
    Ok(())
}

/// Returns the first mistake.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let Some(elephants) = &config.elephants else { return Ok(()) };
    names::queue_name(config, &elephants.queue)?;
    names::core(config, &elephants.core)?;
    check_workers(config, elephants)?;
    if *elephants.window_us.get_ref() == 0 {
        let fix = "write the length in microseconds; 100000 is usual";
        return Err(config.error(
            elephants.window_us.span(),
            "a window of length 0 is not possible",
            fix,
        ));
    }
    if *elephants.sample_every.get_ref() == 0 {
        let fix = "write 1 to sample every frame, or 64";
        return Err(config.error(elephants.sample_every.span(), "nothing would be sampled", fix));
    }
    if *elephants.promoted_max.get_ref() == 0 {
        let fix = "write at least 1, or leave [elephants] out";
        return Err(config.error(elephants.promoted_max.span(), "nothing would be split", fix));
    }
    if *elephants.promoted_max.get_ref() > 1 << 16 {
        let what = "this many flows cannot be promoted";
        return Err(config.error(elephants.promoted_max.span(), what, "write at most 65536"));
    }
    let ElephantsConfig { busy_high, busy_target, busy_low, promote, demote, gain, .. } = elephants;
    for share in [busy_high, busy_target, busy_low, promote, demote] {
        if !(0.0..=1.0).contains(share.get_ref()) {
            let what = format!("{} is not a share", share.get_ref());
            return Err(config.error(share.span(), what, "write a number from 0 to 1"));
        }
    }
    for (low, high, names) in
        [(demote, promote, ["demote", "promote"]), (busy_low, busy_high, ["busy_low", "busy_high"])]
    {
        if low.get_ref() >= high.get_ref() {
            let [low_name, high_name] = names;
            let what =
                format!("{low_name} is not below {high_name}: flows would move back and forth");
            let span = if low.span().is_empty() { high.span() } else { low.span() };
            let fix = format!("write a {low_name} below {}", high.get_ref());
            return Err(config.error(span, what, fix));
        }
    }
    if !(1.0..=1e6).contains(gain.get_ref()) {
        let what = format!("a gain of {} is not possible", gain.get_ref());
        return Err(config.error(gain.span(), what, "write 1 or more: 1.1 is usual"));
    }
    let costs = [elephants.rx_ns, elephants.handoff_ns, elephants.commit_ns];
    if costs.into_iter().flatten().any(|ns| !(0.0..=1e9).contains(&ns)) {
        let what = "rx_ns, handoff_ns and commit_ns must be durations of at most 1 s";
        let fix = "write nanoseconds, 0 or more, or leave them out to have them measured";
        return Err(config.error(elephants.queue.span(), what, fix));
    }
    Ok(())
}

fn window_us() -> Spanned<u64> {
    free(100_000)
}

fn sample_every() -> Spanned<u32> {
    free(64)
}

const fn samples_min() -> u64 {
    64
}

fn busy_high() -> Spanned<f64> {
    free(0.95)
}

fn busy_target() -> Spanned<f64> {
    free(0.8)
}

fn busy_low() -> Spanned<f64> {
    free(0.6)
}

fn promote() -> Spanned<f64> {
    free(0.3)
}

fn demote() -> Spanned<f64> {
    free(0.15)
}

const fn patience() -> u32 {
    3
}

const fn dwell_us() -> u64 {
    2_000_000
}

const fn undone_us() -> u64 {
    30_000_000
}

fn promoted_max() -> Spanned<usize> {
    free(8)
}

fn gain() -> Spanned<f64> {
    free(1.1)
}
