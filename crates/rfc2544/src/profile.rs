//! Profiles: which tests, at which frame sizes, for how long. A profile is chosen by name; command
//! line options then change single fields.

use flowyard_frame::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::line::{Line, Load};
use crate::search::{Goal, throughput};
use crate::setup::{Topology, Waits};
use crate::tag::Cover;
use crate::traffic::{Addresses, BadTraffic, ETHERNET_SIZES, Family, Genome, Mix, Spec};
use crate::trial::SECOND;

/// The description of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Profile {
    /// The name of the method, such as `rfc2544` or `soak`.
    pub name: String,
    /// The medium.
    pub line: Line,
    /// Which ports send to which.
    pub topology: Topology,
    /// Frame sizes, or sequences of sizes, tested one after another.
    pub sizes: Vec<Genome>,
    /// Flows per port.
    pub flows: u16,
    /// How frames are assigned to flows.
    pub mix: Mix,
    /// The addresses of the flows.
    pub addresses: Addresses,
    /// The IP version of the frames.
    #[serde(default)]
    pub family: Family,
    /// One frame in N is a broadcast; 0 for none.
    pub broadcast_every: u16,
    /// Seed of the random generator.
    pub seed: u64,
    /// The part of a frame that the device must not change.
    pub cover: Cover,
    /// Waiting times before and after each trial.
    pub waits: Waits,
    /// Number of throughput searches; in real time several are needed to judge the noise.
    pub repeats: u32,
    /// The tester's own qualified rate for each frame size; no higher load is offered.
    pub limits: Vec<(Genome, Load)>,
    /// Duration of the intermediate trials of a search.
    pub short: Nanos,
    /// Duration of the trials that decide a result.
    pub full: Nanos,
    /// Resolution of the throughput search in parts per million.
    pub width_ppm: u64,
    /// Duration of a latency stream; tagged frames are in its second half.
    pub latency: Nanos,
    /// Number of latency streams.
    pub latency_repeats: u32,
    /// Duration of the longest burst.
    pub burst: Nanos,
    /// Number of back-to-back searches.
    pub burst_repeats: u32,
    /// The tests, in the order in which they run.
    pub tests: Vec<Test>,
    /// The goals of an MLRsearch.
    pub goals: Vec<Goal>,
    /// Filters configured on the device (RFC 2544 section 11.4.1), for the compliance statement: 0,
    /// 1 or 25.
    pub filters: u8,
    /// Speed of a replay in hundredths of the capture's own.
    pub speed: Option<u64>,
    /// Duration of a soak test, and its load in percent of the line rate.
    pub soak: (Nanos, u64),
}

/// A kind of measurement.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// RFC 2544 section 26.1. All tests but `LossRate`, `Bursts`, `Mlr` and `Soak` need its result.
    Throughput,
    /// RFC 2544 section 26.2, and RFC 8219.
    Latency,
    /// RFC 2544 section 26.3.
    LossRate,
    /// RFC 9004.
    BackToBack,
    /// RFC 2544 section 26.5.
    Recovery,
    /// RFC 6201.
    Reset,
    /// RFC 2544 section 21: bursts of 16, 64, 256 and 1024 frames.
    Bursts,
    /// MLRsearch: several goals at once.
    Mlr,
    /// A long trial at a fixed load.
    Soak,
}

impl std::fmt::Display for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::LossRate => "frame loss rate",
            Self::BackToBack => "back-to-back frames",
            Self::Recovery => "system recovery",
            Self::Reset => "reset",
            Self::Bursts => "bursts",
            Self::Mlr => "MLRsearch",
            Self::Soak => "soak",
        })
    }
}

impl Profile {
    /// All of RFC 2544: seven frame sizes, trials of 60 s, bidirectional.
    #[must_use]
    pub fn rfc2544(line: Line) -> Self {
        Self {
            name: "rfc2544".into(),
            line,
            topology: Topology::Pairs(2),
            sizes: ETHERNET_SIZES.map(Genome::fixed).to_vec(),
            flows: 1,
            mix: Mix::RoundRobin,
            addresses: Addresses::Patterned,
            family: Family::Ipv4,
            broadcast_every: 0,
            seed: 1,
            cover: Cover::Frame,
            waits: Waits::STANDARD,
            repeats: 1,
            limits: Vec::new(),
            short: 5 * SECOND,
            full: 60 * SECOND,
            width_ppm: 1000,
            latency: 120 * SECOND,
            latency_repeats: 20,
            burst: 2 * SECOND,
            burst_repeats: 50,
            tests: vec![
                Test::Throughput,
                Test::Latency,
                Test::LossRate,
                Test::BackToBack,
                Test::Recovery,
                Test::Reset,
            ],
            goals: Vec::new(),
            filters: 0,
            speed: None,
            soak: (0, 0),
        }
    }

    /// Sets how frames are assigned to flows. Traffic with frame lengths of its own (requests of ETC,
    /// captures) makes the sizes of the profile one: the mean of its frames.
    ///
    /// # Errors
    /// When the traffic cannot be generated.
    pub fn set_mix(&mut self, mix: Mix) -> Result<(), BadTraffic> {
        self.mix = mix;
        if matches!(self.mix, Mix::Etc | Mix::Replay(_)) {
            let (flows, family, seed) = (self.flows, self.family, self.seed);
            let traffic = Spec { flows, mix: self.mix.clone(), family, seed, ..Spec::fixed(64) };
            let plan = traffic.plan(0)?;
            self.sizes = vec![Genome::fixed((plan.bytes() / plan.period()) as u16)];
        }
        Ok(())
    }

    /// The name of a frame size in reports.
    #[must_use]
    pub fn size_name(&self, size: &Genome) -> String {
        match &self.mix {
            Mix::Etc => format!("etc (mean {size})"),
            Mix::Replay(_) => format!("capture (mean {size})"),
            _ => size.to_string(),
        }
    }

    /// The parameters of a throughput search up to the load `max`.
    #[must_use]
    pub const fn throughput(&self, max: Load) -> throughput::Config {
        throughput::Config {
            width_ppm: self.width_ppm,
            short: self.short,
            full: self.full,
            ..throughput::Config::rfc2544(max)
        }
    }

    /// A shortened run for real time: trials and five latency streams of duration `full`, five
    /// burst searches, `repeats` throughput searches with a resolution of 3 %, and short waits. The
    /// report lists these deviations.
    #[must_use]
    pub fn brief(self, full: Nanos, repeats: u32) -> Self {
        Self {
            waits: Waits::SHORT,
            repeats,
            // In real time a short trial does not predict a longer one, and costs more than it
            // saves.
            short: full,
            full,
            width_ppm: 30_000,
            latency: full,
            latency_repeats: 5,
            burst: full.min(2 * SECOND),
            burst_repeats: 5,
            ..self
        }
    }

    /// Throughput and back-to-back frames (RFC 9004).
    #[must_use]
    pub fn rfc9004(line: Line) -> Self {
        let tests = vec![Test::Throughput, Test::BackToBack];
        Self { name: "rfc9004".into(), burst: 30 * SECOND, tests, ..Self::rfc2544(line) }
    }

    /// MLRsearch with CSIT's goals NDR and PDR, and a goal equivalent to RFC 2544's throughput.
    #[must_use]
    pub fn csit(line: Line) -> Self {
        let mut goals = Goal::csit();
        goals.push(Goal::rfc2544());
        let sizes = [Genome::fixed(64), Genome::imix_csit(), Genome::fixed(1518)].to_vec();
        Self { name: "csit".into(), sizes, tests: vec![Test::Mlr], goals, ..Self::rfc2544(line) }
    }

    /// The experiment of Lanner (2011): duplex, trials of 30 s, the frame sizes of its figures, and
    /// 64 bytes from its text. Frames of 1540 bytes need a line that accepts more than 1518.
    #[must_use]
    pub fn lanner(line: Line, ports: u8) -> Self {
        let sizes = [64, 128, 256, 512, 1024, 1280, 1518, 1540];
        Self {
            name: "lanner".into(),
            topology: Topology::Pairs(ports),
            sizes: sizes.map(Genome::fixed).to_vec(),
            full: 30 * SECOND,
            tests: vec![Test::Throughput],
            ..Self::rfc2544(line)
        }
    }

    /// The long run of the same experiment, at a load in percent of the line rate; the paper's run
    /// takes 14 hours.
    #[must_use]
    pub fn soak(line: Line, ports: u8, duration: Nanos, percent: u64) -> Self {
        Self {
            name: "soak".into(),
            tests: vec![Test::Soak],
            soak: (duration, percent),
            ..Self::lanner(line, ports)
        }
    }
}
