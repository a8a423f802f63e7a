//! Yards over an event device beside the same yards over flowyard's own queues, in interleaved rounds.
//!
//! Ports are in memory and repeat their frames. A round measures each yard over both, one after the other.

use std::time::Duration;

use flowyard_config::Config;
use flowyard_yard::Clock;

use super::{Beside, Job};
use crate::rounds::{Case, Load, Source};
use crate::stats::median;

/// The time for which a yard is measured in a round.
const TIME: Duration = Duration::from_millis(300);

/// The yards: the cores that work, of one or two, and the order of the queue.
const YARDS: [(&str, u16, &str, &[u16]); 5] = [
    ("one core, direct queue", 1, "direct", &[0]),
    ("passed to a second core, direct queue", 2, "direct", &[1]),
    ("two cores, ordered queue", 2, "ordered", &[0, 1]),
    ("two cores, atomic queue", 2, "atomic", &[0, 1]),
    ("two cores, unordered queue", 2, "unordered", &[0, 1]),
];

/// A yard to measure, with the configurations over both kinds of queues.
struct Pair {
    case: Case,
    own: Config,
    device: Config,
}

/// Measures all yards; none if there can be no yard over the device.
pub(super) fn measure(job: &Job<'_>, clock: &Clock) -> anyhow::Result<Vec<Beside>> {
    let mut pairs = Vec::new();
    for (_, cores, order, consumers) in YARDS {
        let case = Case {
            cores,
            order,
            consumers: consumers.to_vec(),
            load: Load::Forward,
            flows: 1024,
            source: Source::Random,
            exact: false,
            length: 60,
        };
        let Ok(device) = Config::parse("bench", &over(&case, job)) else { return Ok(Vec::new()) };
        pairs.push(Pair { own: case.config(0)?, device, case });
    }
    let mut rates = vec![(Vec::new(), Vec::new()); pairs.len()];
    for _ in 0..job.rounds {
        for (Pair { case, own, device }, rates) in pairs.iter().zip(&mut rates) {
            let rate = |config: &Config| {
                let round = case.measure(case.yard(config, clock)?, TIME, clock)?;
                anyhow::Ok(round.pps / 1e6)
            };
            rates.0.push(rate(own)?);
            rates.1.push(rate(device)?);
        }
    }
    let beside = |(yard, (own, device)): (&'static str, &mut (Vec<f64>, Vec<f64>))| {
        let mut ratios: Vec<f64> =
            own.iter().zip(&*device).map(|(own, device)| device / own).collect();
        Beside {
            yard,
            own_million_per_s: median(own),
            device_million_per_s: median(device),
            ratio: median(&mut ratios),
        }
    };
    Ok(YARDS.iter().map(|yard| yard.0).zip(&mut rates).map(beside).collect())
}

/// The configuration of a case over the device.
fn over(case: &Case, job: &Job<'_>) -> String {
    let engine = format!("[yard]\nengine = \"eventdev\"\nevent_device = {:?}", job.device);
    let text = case.text(0).replacen("[yard]", &engine, 1);
    format!("{text}\n[dpdk]\noptions = {:?}\n", job.options)
}
