//! The memcached pool ETC (Atikoglu et al., SIGMETRICS 2012, sections 4 and 5): key sizes, value
//! sizes, and the time between requests.
//!
//! Key size: generalised extreme value distribution. Value size: a table below 15 bytes, otherwise
//! 15 plus a generalised Pareto distribution. Time between requests: generalised Pareto
//! distribution. About 30 GETs per SET. The three are independent. The paper gives no key
//! popularity; see [`super::Zipf`] for one.

use flowyard_frame::Nanos;
use flowyard_testkit::Rng;

use super::plan::{Plan, Step};
use super::zipf::Zipf;

/// Probabilities of value sizes from 0 to 14 bytes.
const SMALL: [f64; 15] = [
    0.00536, 0.00047, 0.17820, 0.09239, 0.00018, 0.02740, 0.00065, 0.00606, 0.00023, 0.00837,
    0.00837, 0.08989, 0.00092, 0.00326, 0.01980,
];

/// A random sequence of requests. Equal seeds give equal requests.
#[derive(Clone, Debug)]
pub struct Etc {
    rng: Rng,
}

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Time since the previous request.
    pub after_ns: Nanos,
    /// Key size in bytes, 1 to 250.
    pub key: u16,
    /// Value size in bytes, at most 1,000,000.
    pub value: u32,
    /// Whether the request is a SET.
    pub is_set: bool,
}

/// The quantile function of the generalised Pareto distribution.
fn pareto(unit: f64, sigma: f64, k: f64) -> f64 {
    sigma * ((1.0 - unit).powf(-k) - 1.0) / k
}

impl Etc {
    /// A sequence from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed) }
    }

    fn value(&mut self) -> u32 {
        let mut point = self.rng.unit();
        for (bytes, share) in (0..).zip(SMALL) {
            if point < share {
                return bytes;
            }
            point -= share;
        }
        (15.0 + pareto(self.rng.unit(), 214.476, 0.348_238)).min(1e6) as u32
    }
}

impl Iterator for Etc {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let (mu, sigma, k) = (30.7984, 8.20449, 0.078_688);
        let unit = self.rng.unit().max(1e-12);
        let key = mu + sigma * ((-unit.ln()).powf(-k) - 1.0) / k;
        Some(Request {
            after_ns: (pareto(self.rng.unit(), 16.0292, 0.154_971) * 1000.0) as Nanos,
            key: key.round().clamp(1.0, 250.0) as u16,
            value: self.value(),
            is_set: self.rng.below(31) == 0,
        })
    }
}

/// Bytes of a GET frame without the key: Ethernet with FCS 18, IPv4 20, UDP 8, memcached's UDP
/// header 8, `get ` and the end of the line 6.
const AROUND_GET: u32 = 60;
/// The same for a SET without key and value: `set `, ` 0 0 `, the value's length, two line ends.
const AROUND_SET: u32 = AROUND_GET + 13;

/// A plan of `count` requests from `flows` clients. The paper gives no popularity of clients;
/// Zipf's law with exponent 0.99 is used. Frames are cut to 1518 bytes. Intervals follow the paper
/// and are the same at all ports, so that all ports have equally many frames in any trial.
pub(super) fn plan(flows: u16, count: usize, seed: u64, rng: &mut Rng) -> Plan {
    let zipf = Zipf::new(flows, 0.99);
    let frame = |request: Request| {
        let key = u32::from(request.key);
        let bytes =
            if request.is_set { AROUND_SET + key + request.value } else { AROUND_GET + key };
        let size = bytes.clamp(64, 1518) as u16;
        Step { flow: zipf.draw(rng), size, broadcast: false }
    };
    let requests: Vec<_> = Etc::new(seed).take(count).collect();
    let gaps: Vec<_> = requests.iter().map(|request| request.after_ns).collect();
    Plan::new(requests.into_iter().map(frame).collect()).apart(&gaps)
}
