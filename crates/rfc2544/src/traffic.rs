//! Traffic: the sequence of frames that the tester sends, generated from a seed.
//!
//! ```text
//!  Spec (sizes, flows, popularity or model, addresses, seed) ──> Plan: step 0, 1, 2 ... repeated
//!                                                              step = (flow, size [, time])
//!  Plan + port ──> one template for each (flow, size); the tag is written at departure
//! ```
//!
//! A plan is periodic, so that a device under virtual time can return to an earlier state. The same
//! seed gives the same bytes in the same order (T8); seed and genome are part of the report. Frames
//! follow RFC 2544 appendix C: UDP echo, TTL 10, addresses from 198.18.0.0/15, payload of ascending
//! octets. The UDP checksum is 0 (none), because the tag contains a stronger check. IPv6 frames
//! (RFC 5180, 2001:2::/48) have a UDP checksum.
//!
//! Thread-safety: plain values.

use flowyard_testkit::Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod address;
mod etc;
mod genome;
mod model;
mod plan;
mod replay;
mod zipf;

pub use address::{Addresses, Family, Hosts};
pub use etc::Etc;
pub use genome::{BadGenome, Genome};
pub use model::{MODELS, Model};
pub use plan::{Plan, Step};
pub use replay::{Capture, Captured, rewrite};
pub use zipf::Zipf;

/// The Ethernet frame sizes of RFC 2544 section 9.1, with FCS.
pub const ETHERNET_SIZES: [u16; 7] = [64, 128, 256, 512, 1024, 1280, 1518];

/// The specification of the traffic.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Spec {
    /// Sequence of frame sizes, repeated.
    pub sizes: Genome,
    /// Number of flows per port.
    pub flows: u16,
    /// How frames are assigned to flows.
    pub mix: Mix,
    /// The addresses of the flows.
    pub addresses: Addresses,
    /// The IP version.
    #[serde(default)]
    pub family: Family,
    /// One frame in N is sent to the broadcast address instead; 0 for none. RFC 2544 section 11.1
    /// requires 100.
    pub broadcast_every: u16,
    /// Seed of the random generator.
    pub seed: u64,
}

/// How frames are assigned to flows.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    /// One flow after another.
    #[default]
    RoundRobin,
    /// Flow i is chosen with weight 1 / (i + 1)^s.
    Zipf(f64),
    /// Flow sizes are drawn from the model of this name; up to 16 flows are interleaved.
    Model(String),
    /// Requests of the memcached pool ETC: request lengths, request intervals scaled to the load of
    /// the trial, and flows by Zipf's law with exponent 0.99.
    Etc,
    /// The flows, sizes and times of a capture.
    Replay(Capture),
}

/// Number of steps of a random plan: enough to include the tail of a model, and few enough to fit
/// into a cache.
const DRAWN: usize = 1 << 14;

impl Default for Spec {
    fn default() -> Self {
        Self::fixed(64)
    }
}

impl Spec {
    /// One flow of frames of `size` bytes.
    #[must_use]
    pub fn fixed(size: u16) -> Self {
        Self {
            sizes: Genome::fixed(size),
            flows: 1,
            mix: Mix::RoundRobin,
            addresses: Addresses::Patterned,
            family: Family::Ipv4,
            broadcast_every: 0,
            seed: 1,
        }
    }

    /// The addresses of the flows, in the IP version of this traffic.
    #[must_use]
    pub const fn hosts(&self) -> Hosts {
        self.addresses.of(self.family)
    }

    /// The plan for a port of the tester. IPv6 frames too short for a tag are lengthened.
    ///
    /// # Errors
    /// When the flow-size model is unknown.
    pub fn plan(&self, port: u8) -> Result<Plan, BadTraffic> {
        let plan = self.drawn(port)?;
        Ok(match self.family {
            Family::Ipv4 => plan,
            Family::Ipv6 => plan.at_least(self.family.min_size()),
        })
    }

    fn drawn(&self, port: u8) -> Result<Plan, BadTraffic> {
        let flows = self.flows.max(1);
        let sizes = self.sizes.sizes();
        let mut rng = Rng::new(self.seed ^ u64::from(port) << 56);
        let drawn: Option<Vec<u16>> = match &self.mix {
            Mix::RoundRobin => None,
            Mix::Etc => return Ok(etc::plan(flows, DRAWN, self.seed, &mut rng)),
            Mix::Replay(capture) => return Ok(capture.plan()),
            Mix::Zipf(s) => {
                let zipf = Zipf::new(flows, *s);
                Some((0..DRAWN).map(|_| zipf.draw(&mut rng)).collect())
            }
            Mix::Model(name) => {
                let model = Model::find(name).ok_or_else(|| BadTraffic::Model(name.clone()))?;
                Some(model.interleave(flows, DRAWN, &mut rng))
            }
        };
        let broadcast = usize::from(self.broadcast_every);
        let mut period = lcm(sizes.len(), drawn.as_ref().map_or(flows.into(), Vec::len));
        if broadcast > 0 {
            period = lcm(period, broadcast);
        }
        let steps = (0..period.min(1 << 20)).map(|at| Step {
            flow: drawn.as_ref().map_or((at % usize::from(flows)) as u16, |d| d[at % d.len()]),
            size: sizes[at % sizes.len()],
            broadcast: broadcast > 0 && at % broadcast == broadcast - 1,
        });
        Ok(Plan::new(steps.collect()))
    }
}

/// An invalid traffic specification.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadTraffic {
    /// An unknown flow-size model.
    #[error(
        "there is no flow-size model '{0}'; choose one of {list}",
        list = MODELS.map(|m| m.name).join(", ")
    )]
    Model(String),
}

fn lcm(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a.max(1), b.max(1));
    while y > 0 {
        (x, y) = (y, x % y);
    }
    a.max(1) / x * b.max(1)
}

#[cfg(test)]
mod tests;
