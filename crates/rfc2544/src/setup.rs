//! Setup: everything about a measurement that is not searched for.

use flowyard_frame::Nanos;
use serde::{Deserialize, Serialize};

use crate::line::{Line, Load};
use crate::tag::Cover;
use crate::traffic::{BadTraffic, Spec};
use crate::trial::SECOND;

/// Who sends to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// Port 0 sends to port 1.
    Uni,
    /// Each port of a pair sends to the other, at the same rate; so many ports.
    Pairs(u8),
    /// Each port sends to every other in turn, all in the same order, so that frames meet at an
    /// output (RFC 2544 section 16); so many ports.
    Mesh(u8),
}

impl Topology {
    /// By sending port: where its flows go, in turn.
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

    /// Ports of the tester.
    #[must_use]
    pub fn ports(self) -> u8 {
        match self {
            Self::Uni => 2,
            Self::Pairs(ports) => ports.max(2) & !1,
            Self::Mesh(ports) => ports.max(2),
        }
    }

    /// Ports that send.
    #[must_use]
    pub fn senders(self) -> u8 {
        if self == Self::Uni { 1 } else { self.ports() }
    }
}

/// What is waited for around a trial (RFC 2544 section 23).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Waits {
    /// After the learning frames.
    pub settle: Nanos,
    /// For frames under way, after the last was sent.
    pub residue: Nanos,
    /// Until the next trial.
    pub rest: Nanos,
}

impl Waits {
    /// What the standard asks for.
    pub const STANDARD: Self = Self { settle: 2 * SECOND, residue: 2 * SECOND, rest: 5 * SECOND };
    /// What a device in software on this machine needs: a tenth of it and less.
    pub const SHORT: Self = Self { settle: SECOND / 20, residue: SECOND / 5, rest: SECOND / 20 };

    /// Whether they are what the standard asks for.
    #[must_use]
    pub const fn are_standard(&self) -> bool {
        let Self { settle, residue, rest } = Self::STANDARD;
        self.settle >= settle && self.residue >= residue && self.rest >= rest
    }
}

/// The measurement's fixed part: "no change between tests" (RFC 2544 section 7).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// The medium: what 100 % means.
    pub line: Line,
    /// Who sends to whom.
    pub topology: Topology,
    /// What is sent.
    pub traffic: Spec,
    /// What the device must not change.
    pub cover: Cover,
    /// How long learning frames have to take effect.
    pub settle: Nanos,
    /// How long the tester waits for frames under way before counters are read.
    pub residue: Nanos,
    /// How long the device rests between trials.
    pub rest: Nanos,
    /// Whether a frame of each flow goes back first, for the device to learn addresses.
    pub learning: bool,
}

impl Setup {
    /// Frames of `size` bytes on `line`, otherwise as RFC 2544 section 23 says.
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

    /// The most that a port can send.
    ///
    /// # Errors
    /// Traffic that cannot be.
    pub fn max_load(&self) -> Result<Load, BadTraffic> {
        Ok(self.traffic.plan(0)?.max_load(self.line))
    }

    /// What a trial costs besides its duration.
    #[must_use]
    pub const fn around(&self) -> Nanos {
        self.residue + self.rest + if self.learning { self.settle } else { 0 }
    }
}
