//! Flow size distributions of real networks, by name.
//!
//! A model is a distribution of bytes per flow: published points with linear interpolation,
//! discrete sizes, or a mixture of lognormal distributions. The models are small tables of
//! published measurements; each names its source, which is part of the report.

use flowyard_testkit::Rng;

mod homa;

/// A distribution of flow sizes.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// The name in options and reports.
    pub name: &'static str,
    /// Where and by whom it was measured.
    pub source: &'static str,
    law: Law,
}

#[derive(Clone, Copy, Debug)]
enum Law {
    /// Bytes and cumulative probability, ascending, with linear interpolation.
    Points(&'static [(f64, f64)]),
    /// Bytes and cumulative probability, ascending, without interpolation.
    Steps(&'static [(f64, f64)]),
    /// Weight, sigma and scale of lognormal distributions of bytes.
    Lognormal(&'static [(f64, f64, f64)]),
}

/// All models.
pub const MODELS: [Model; 12] = [
    Model {
        name: "agh-2015",
        source: "campus Internet, 4.03e9 flows: Jurkiewicz, Rzym, Boryło, Comp. Comm. 167 (2021)",
        law: Law::Lognormal(&[
            (0.449_790_6, 0.341_750_8, 106.174_473_6),
            (0.202_025_3, 0.510_181_7, 277.737_943_2),
            (0.268_655_1, 1.240_53, 1_000.094_158),
            (0.066_522_03, 1.451_013, 12_992.646_29),
            (0.011_003_51, 1.371_668, 278_972.787_4),
            (0.001_570_539, 1.170_402, 4_887_559.237),
            (0.000_292_576_3, 1.510_666, 28_030_827.25),
            (0.000_140_271_6, 0.707_925, 83_182_771.96),
        ]),
    },
    Model {
        name: "web-search",
        source: "DCTCP: Alizadeh et al., SIGCOMM 2010",
        law: Law::Points(&[
            (0.0, 0.0),
            (10e3, 0.15),
            (20e3, 0.2),
            (30e3, 0.3),
            (50e3, 0.4),
            (80e3, 0.53),
            (200e3, 0.6),
            (1e6, 0.7),
            (2e6, 0.8),
            (5e6, 0.9),
            (10e6, 0.97),
            (30e6, 1.0),
        ]),
    },
    Model {
        name: "data-mining",
        source: "VL2: Greenberg et al., SIGCOMM 2009",
        law: Law::Points(&[
            (0.0, 0.0),
            (180.0, 0.1),
            (216.0, 0.2),
            (560.0, 0.3),
            (900.0, 0.4),
            (1100.0, 0.5),
            (1870.0, 0.6),
            (3160.0, 0.7),
            (10e3, 0.8),
            (400e3, 0.9),
            (3.16e6, 0.95),
            (100e6, 0.98),
            (1e9, 1.0),
        ]),
    },
    Model {
        name: "fb-key-value",
        source: "Facebook key-value: Atikoglu et al., SIGMETRICS 2012, as points of TrafficGenerator",
        law: Law::Points(&[
            (0.0, 0.0),
            (3.0, 0.28),
            (10.0, 0.32),
            (12.0, 0.44),
            (75.0, 0.5),
            (250.0, 0.75),
            (350.0, 0.9),
            (1000.0, 0.965),
            (2515.0, 0.98),
            (6326.0, 0.99),
            (10_032.0, 0.995),
            (15_910.0, 0.997),
            (23_009.0, 0.9992),
            (24_094.0, 0.9996),
            (25_000.0, 0.9999),
            (100e3, 0.99999),
            (1e6, 1.0),
        ]),
    },
    Model {
        name: "fb-hadoop",
        source: "Facebook Hadoop: Roy et al., SIGCOMM 2015, as points of HPCC",
        law: Law::Points(&[
            (0.0, 0.0),
            (100.0, 0.01),
            (200.0, 0.02),
            (300.0, 0.05),
            (350.0, 0.15),
            (400.0, 0.2),
            (500.0, 0.3),
            (600.0, 0.4),
            (700.0, 0.5),
            (1000.0, 0.6),
            (2000.0, 0.67),
            (7000.0, 0.7),
            (30e3, 0.72),
            (50e3, 0.82),
            (80e3, 0.87),
            (120e3, 0.9),
            (300e3, 0.95),
            (1e6, 0.975),
            (2e6, 0.99),
            (10e6, 1.0),
        ]),
    },
    Model {
        name: "ali-storage",
        source: "Alibaba storage: Li et al. (HPCC), SIGCOMM 2019",
        law: Law::Points(&[
            (0.0, 0.0),
            (4000.0, 0.2293),
            (8000.0, 0.6921),
            (16e3, 0.8061),
            (32e3, 0.9047),
            (64e3, 0.9353),
            (128e3, 0.9677),
            (256e3, 0.9753),
            (2e6, 1.0),
        ]),
    },
    Model {
        name: "google-rpc",
        source: "all remote calls at Google, 2008, as workload 3 of Homa",
        law: Law::Steps(&homa::W3),
    },
    homa("homa-w1", &homa::W1),
    homa("homa-w2", &homa::W2),
    homa("homa-w3", &homa::W3),
    homa("homa-w4", &homa::W4),
    homa("homa-w5", &homa::W5),
];

const fn homa(name: &'static str, steps: &'static [(f64, f64)]) -> Model {
    Model { name, source: "Homa: Montazeri et al., SIGCOMM 2018", law: Law::Steps(steps) }
}

impl Model {
    /// The model with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        MODELS.iter().find(|model| model.name == name)
    }

    /// Draws the size of a flow in bytes.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        let mut point = rng.unit();
        match self.law {
            Law::Points(points) => {
                let at = points.partition_point(|&(_, upto)| upto <= point).min(points.len() - 1);
                let ((x0, p0), (x1, p1)) = (points[at.saturating_sub(1)], points[at]);
                let share = if p1 > p0 { (point - p0) / (p1 - p0) } else { 0.0 };
                (x0 + share * (x1 - x0)).ceil().max(1.0) as u64
            }
            Law::Steps(steps) => {
                let at = steps.partition_point(|&(_, upto)| upto <= point).min(steps.len() - 1);
                steps[at].0 as u64
            }
            Law::Lognormal(mix) => {
                let mut chosen = mix[mix.len() - 1];
                for &part in mix {
                    if point < part.0 {
                        chosen = part;
                        break;
                    }
                    point -= part.0;
                }
                // Box-Muller transform: a normal variate from two uniform ones.
                let normal = (-2.0 * (1.0 - rng.unit()).ln()).sqrt()
                    * (std::f64::consts::TAU * rng.unit()).cos();
                (chosen.2 * (chosen.1 * normal).exp()).clamp(1.0, 1e12) as u64
            }
        }
    }

    /// The mean flow size in bytes, computed from the distribution.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self.law {
            Law::Points(points) => {
                points.windows(2).map(|w| (w[1].1 - w[0].1) * w[0].0.midpoint(w[1].0)).sum()
            }
            Law::Steps(steps) => {
                let before = std::iter::once(0.0).chain(steps.iter().map(|step| step.1));
                steps.iter().zip(before).map(|((bytes, upto), from)| bytes * (upto - from)).sum()
            }
            Law::Lognormal(mix) => {
                mix.iter().map(|(share, s, scale)| share * scale * (s * s / 2.0).exp()).sum()
            }
        }
    }

    /// The flow numbers of `steps` frames. Flow sizes follow the model; up to 16 flows are
    /// interleaved. Each number below `flows` is used by one flow after another.
    pub(super) fn interleave(&self, flows: u16, steps: usize, rng: &mut Rng) -> Vec<u16> {
        let live = usize::from(flows.clamp(1, 16));
        let mut next = live as u64;
        let frames = |rng: &mut Rng| self.draw(rng).div_ceil(1448); // TCP payload per frame
        let mut now: Vec<_> = (0..live).map(|at| (at as u16, frames(rng))).collect();
        let draw = |_| {
            let at = rng.below(live as u64) as usize;
            let flow = now[at].0;
            now[at].1 -= 1;
            if now[at].1 == 0 {
                now[at] = ((next % u64::from(flows.max(1))) as u16, frames(rng));
                next += 1;
            }
            flow
        };
        (0..steps).map(draw).collect()
    }
}
