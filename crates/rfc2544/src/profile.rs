//! Profiles: which tests, at which sizes, for how long. By name, and then changed by the user's words.

use flowyard_frame::Nanos;
use serde::{Deserialize, Serialize};

use crate::line::{Line, Load};
use crate::search::Goal;
use crate::setup::{Topology, Waits};
use crate::tag::Cover;
use crate::traffic::{Addresses, ETHERNET_SIZES, Family, Genome, Mix};
use crate::trial::SECOND;

/// What is measured, and how.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// The medium.
    pub line: Line,
    /// Who sends to whom.
    pub topology: Topology,
    /// Frame sizes, or sequences of sizes, one after the other.
    pub sizes: Vec<Genome>,
    /// Flows of each port.
    pub flows: u16,
    /// Which flow comes next.
    pub mix: Mix,
    /// Who the flows are.
    pub addresses: Addresses,
    /// Of which IP the frames are.
    #[serde(default)]
    pub family: Family,
    /// One frame in so many is a broadcast; 0 is none.
    pub broadcast_every: u16,
    /// Of all that is drawn.
    pub seed: u64,
    /// What the device must not change in a frame.
    pub cover: Cover,
    /// What is waited for around each trial.
    pub waits: Waits,
    /// How often the throughput is searched: in real time, one figure says nothing of its noise.
    pub repeats: u32,
    /// The fastest that the tester itself was shown to be, by size; what is faster is not tried.
    pub limits: Vec<(Genome, Load)>,
    /// Trials on the way.
    pub short: Nanos,
    /// Trials that count.
    pub full: Nanos,
    /// Width of the throughput, in parts of a million.
    pub width_ppm: u64,
    /// Latency streams; tagged frames come from half of it on.
    pub latency: Nanos,
    /// How often latency is measured.
    pub latency_repeats: u32,
    /// The longest burst.
    pub burst: Nanos,
    /// How often bursts are searched.
    pub burst_repeats: u32,
    /// What is done: see [`Test`].
    pub tests: Vec<Test>,
    /// Goals of an MLRsearch.
    pub goals: Vec<Goal>,
    /// Filters of the device, RFC 2544 section 11.4.1, for the statement: 0, 1 or 25.
    pub filters: u8,
    /// How fast a capture is replayed, in hundredths of its own speed.
    pub speed: Option<u64>,
    /// How long a soak is, and its load in hundredths of the line.
    pub soak: (Nanos, u64),
}

/// One kind of measurement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// RFC 2544 section 26.1; all but `Mlr` and `Soak` need it.
    Throughput,
    /// Sections 26.2, and RFC 8219.
    Latency,
    /// Section 26.3.
    LossRate,
    /// RFC 9004.
    BackToBack,
    /// Section 26.5.
    Recovery,
    /// RFC 6201.
    Reset,
    /// Section 21: bursts of 16, 64, 256 and 1024 frames.
    Bursts,
    /// Several goals at once.
    Mlr,
    /// A long run at a fixed load.
    Soak,
}

impl Profile {
    /// RFC 2544 whole: seven sizes, 60 s, both ways.
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

    /// Short, for real time: trials of `full`, latency in five streams of as much, five bursts, the
    /// throughput `repeats` times to 3 %, and short waits. The report says so.
    #[must_use]
    pub fn brief(self, full: Nanos, repeats: u32) -> Self {
        Self {
            waits: Waits::SHORT,
            repeats,
            // A short trial that says nothing of a longer one costs more than it saves.
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

    /// Throughput and back-to-back frames, RFC 9004.
    #[must_use]
    pub fn rfc9004(line: Line) -> Self {
        let tests = vec![Test::Throughput, Test::BackToBack];
        Self { name: "rfc9004".into(), burst: 30 * SECOND, tests, ..Self::rfc2544(line) }
    }

    /// MLRsearch with CSIT's NDR and PDR, and the goal that is RFC 2544's throughput.
    #[must_use]
    pub fn csit(line: Line) -> Self {
        let mut goals = Goal::csit();
        goals.push(Goal::rfc2544());
        let sizes = [Genome::fixed(64), Genome::imix_csit(), Genome::fixed(1518)].to_vec();
        Self { name: "csit".into(), sizes, tests: vec![Test::Mlr], goals, ..Self::rfc2544(line) }
    }

    /// The experiment of Lanner (2011): duplex, trials of 30 s, its sizes, and 64 of its text. 1540
    /// bytes need a line that takes more than 1518.
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

    /// The long run of the same experiment: 14 hours at a load in hundredths of the line.
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
