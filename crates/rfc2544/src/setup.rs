//! The setup of a measurement: every parameter that no search varies.

use flowyard_frame::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::line::{Line, Load};
use crate::tag::Cover;
use crate::traffic::{BadTraffic, Spec};
use crate::trial::SECOND;

/// Which ports send to which.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// Port 0 sends to port 1.
    Uni,
    /// Each port of a pair sends to the other at the same rate; the value is the number of ports.
    Pairs(u8),
    /// Each port sends to every other in turn, all in the same order, so that frames contend for an
    /// output (RFC 2544 section 16); the value is the number of ports.
    Mesh(u8),
}

impl Topology {
    /// For each sending port: the destination ports of its flows, in rotation.
    #[must_use]
    pub fn routes(self) -> Vec<Vec<u8>> {
        match self {
            Self::Uni => vec![vec![1]],
            Self::Pairs(ports) => (0..ports.max(2) & !1).map(|port| vec![port ^ 1]).collect(),
            Self::Mesh(ports) => {
                let ports = ports.max(2);
                (0..ports).map(|from| (0..ports).filter(|to| *to != from).collect()).collect()
            }
        }
    }

    /// The number of ports that the tester needs.
    #[must_use]
    pub fn ports(self) -> u8 {
        match self {
            Self::Uni => 2,
            Self::Pairs(ports) => ports.max(2) & !1,
            Self::Mesh(ports) => ports.max(2),
        }
    }

    /// The number of ports that send.
    #[must_use]
    pub fn senders(self) -> u8 {
        if self == Self::Uni { 1 } else { self.ports() }
    }
}

/// The waiting times before and after a trial (RFC 2544 section 23).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Waits {
    /// After the learning frames, before the trial starts.
    pub settle: Nanos,
    /// After the last frame was sent, for frames still in flight.
    pub residue: Nanos,
    /// Before the next trial.
    pub rest: Nanos,
}

impl Waits {
    /// The waiting times of RFC 2544.
    pub const STANDARD: Self = Self { settle: 2 * SECOND, residue: 2 * SECOND, rest: 5 * SECOND };
    /// Shorter waits, a tenth of the standard's or less, for a software device on this machine.
    pub const SHORT: Self = Self { settle: SECOND / 20, residue: SECOND / 5, rest: SECOND / 20 };

    /// Whether no wait is shorter than the standard requires.
    #[must_use]
    pub const fn are_standard(&self) -> bool {
        let Self { settle, residue, rest } = Self::STANDARD;
        self.settle >= settle && self.residue >= residue && self.rest >= rest
    }
}

/// The fixed part of a measurement: "no change between tests" (RFC 2544 section 7).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Setup {
    /// The medium; its rate is 100 % load.
    pub line: Line,
    /// Which ports send to which.
    pub topology: Topology,
    /// The frames to send.
    pub traffic: Spec,
    /// The part of a frame that the device must not change.
    pub cover: Cover,
    /// Wait after the learning frames.
    pub settle: Nanos,
    /// Wait for frames still in flight before counters are read.
    pub residue: Nanos,
    /// Pause between trials.
    pub rest: Nanos,
    /// Whether one frame of each flow is sent in the reverse direction first, so that the device
    /// learns the addresses.
    pub learning: bool,
}

impl Setup {
    /// A setup with the waiting times of RFC 2544 section 23, learning frames, and frames that the
    /// device must not change at all.
    #[must_use]
    pub fn new(line: Line, topology: Topology, traffic: Spec) -> Self {
        Self {
            line,
            topology,
            traffic,
            cover: Cover::Frame,
            settle: Waits::STANDARD.settle,
            residue: Waits::STANDARD.residue,
            rest: Waits::STANDARD.rest,
            learning: true,
        }
    }

    /// The highest load that a port can send.
    ///
    /// # Errors
    /// When the traffic specification is invalid.
    pub fn max_load(&self) -> Result<Load, BadTraffic> {
        Ok(self.traffic.plan(0)?.max_load(self.line))
    }

    /// The time that a trial takes in addition to its duration.
    #[must_use]
    pub const fn around(&self) -> Nanos {
        self.residue + self.rest + if self.learning { self.settle } else { 0 }
    }
}
