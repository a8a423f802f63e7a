//! Requests that a server answers: the highest load at which it is quick, and what happens below and above.

use flowyard_adapter::Profile as Adapter;
use flowyard_adapter::capability::Adaptive;
use flowyard_adapter::profile::FdirKind;
use flowyard_frame::Nanos;
use flowyard_report::exhibit::{How, Rows};

use super::{Case, Choice, Curve, Latency, Point, PredictError, Predicted, Prediction, Settings};
use crate::server::{Costs, Load, Moderation, Outcome, Placement, Setup, Steering, WALL_US};

/// The ways of steering by name.
pub const WAYS: [(&str, Steering); 6] = [
    ("rss", Steering::Rss),
    ("rps", Steering::Rps),
    ("rfs", Steering::Rfs),
    ("atr", Steering::Atr),
    ("settled", Steering::Settled),
    ("ep", Steering::Ep),
];

/// When the adapter interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupts {
    /// At once.
    Off,
    /// As the driver ixgbe adapts its moderation.
    Ixgbe,
    /// At most once in this many nanoseconds.
    Gap(Nanos),
}

/// The settings of the model that are no numbers.
#[derive(Clone, Debug)]
pub struct Server {
    adapter: &'static Adapter,
    adapter_how: How,
    steering: (Steering, How),
    interrupts: (Interrupts, How),
}

/// The lowest load that is tried, in requests a second, and the ratio of neighbouring loads.
const LOWEST: f64 = 1000.0;
const RATIO: f64 = 1.01;
/// The number of the highest load: about 10^9.
const MOST: u32 = 1390;

/// The share of the offered requests that must be answered.
const ANSWERED: f64 = 0.95;

/// Loads of the curve, as shares of the capacity.
const SHARES: [f64; 11] = [0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5];

/// The latency that the capacity is limited by, if the user gives none, in microseconds.
pub(super) const LIMIT_US: f64 = WALL_US;

const CAPACITY: &str = "capacity, requests/s";
const MEAN: &str = "mean latency at half of the capacity, us";
const P99: &str = "99th percentile of the latency there, us";
const OVER: &str = "answered when 1.5 times the capacity is offered, requests/s";

impl Server {
    /// The server behind `adapter`, with defaults for what is `None`.
    ///
    /// # Errors
    /// When the adapter has no such steering.
    pub fn new(
        adapter: Option<&'static Adapter>,
        steering: Option<Steering>,
        interrupts: Option<Interrupts>,
    ) -> Result<Self, PredictError> {
        let adapter_how = if adapter.is_some() { How::Given } else { How::Assumed };
        let none = PredictError::Setting { name: "adapter", why: "there is no x520".to_owned() };
        let adapter = adapter.or_else(|| Adapter::find("x520")).ok_or(none)?;
        let learns = adapter.atr.is_some() && matches!(adapter.fdir, FdirKind::Ixgbe { .. });
        let default = if learns { Steering::Atr } else { Steering::Rss };
        let steering = steering.map_or((default, How::Assumed), |given| (given, How::Given));
        let needs_filters = matches!(steering.0, Steering::Atr | Steering::Settled | Steering::Ep);
        if needs_filters && !learns {
            let why = format!(
                "the model has the Flow Director of ixgbe adapters only, and not that of {}; choose rss, rps or rfs",
                adapter.name
            );
            return Err(PredictError::Setting { name: "steering", why });
        }
        let is_ixgbe = adapter.capabilities().adaptive == Adaptive::Ixgbe;
        let default = if is_ixgbe { Interrupts::Ixgbe } else { Interrupts::Gap(50_000) };
        let interrupts = interrupts.map_or((default, How::Assumed), |given| (given, How::Given));
        Ok(Self { adapter, adapter_how, steering, interrupts })
    }

    /// The numbers of the setup, with defaults for what is `None`.
    #[must_use]
    pub fn settings(
        &self,
        cpus: u16,
        queues: Option<f64>,
        threads: Option<f64>,
        connections: Option<f64>,
        limit_us: Option<f64>,
    ) -> Settings {
        let reach = self.adapter.reach(cpus.min(MOST_QUEUES));
        let most = match self.steering.0 {
            Steering::Rss | Steering::Rps | Steering::Rfs => reach.rss.max(1),
            _ => reach.atr.max(1),
        };
        let each = "one for each processor, as far as the adapter can address them";
        let settings = Settings::default()
            .with("queues", queues, f64::from(most), each)
            .with("threads", threads, f64::from(cpus), "one for each processor")
            .with("connections", connections, 120.0, "as in the Flow Director paper")
            .with("window", None, 20.0, "requests outstanding on a connection, at most")
            .with("ring", None, 512.0, "descriptors of a receive ring of ixgbe")
            .with("latency_limit_us", limit_us, LIMIT_US, "about three times that of light load");
        match self.interrupts.0 {
            Interrupts::Off => settings,
            Interrupts::Gap(gap) => {
                let given = (self.interrupts.1 == How::Given).then_some(gap as f64);
                settings.with("interrupt_gap_ns", given, gap as f64, "20,000 interrupts a second")
            }
            Interrupts::Ixgbe => settings.with(
                "interrupt_gaps_times",
                None,
                1.0,
                "factor of the intervals of ixgbe: 10, 50 and 125 us",
            ),
        }
    }

    fn choices(&self) -> Vec<Choice> {
        let choice = |name: &str, value: String, how: How, default: &str| Choice {
            name: name.to_owned(),
            value,
            how,
            source: match how {
                How::Given => "command line".to_owned(),
                _ => format!("default: {default}"),
            },
        };
        let way = WAYS.iter().find(|(_, way)| *way == self.steering.0).map_or("", |way| way.0);
        let interrupts = match self.interrupts.0 {
            Interrupts::Off => "at once".to_owned(),
            Interrupts::Ixgbe => "moderated as by ixgbe".to_owned(),
            Interrupts::Gap(_) => "at most one in an interval".to_owned(),
        };
        vec![
            choice("adapter", self.adapter.name.to_owned(), self.adapter_how, "as in the paper"),
            choice("steering", way.to_owned(), self.steering.1, "atr if the model has it, or rss"),
            choice("interrupts", interrupts, self.interrupts.1, "those of the driver, if modelled"),
        ]
    }

    /// The run of `case` at `rate`.
    fn setup(&self, case: &Case, rate: f64) -> Result<Setup, PredictError> {
        let Case { costs, settings, .. } = case;
        let machine = costs.machine;
        let cpus = u64::from(machine.cpus());
        let connections: u32 = settings.count("connections", 1_000_000)?;
        let steering = self.steering.0;
        let filters = matches!(steering, Steering::Atr | Steering::Settled | Steering::Ep);
        let times = settings.get("interrupt_gaps_times");
        let gap = |ns: f64| (ns * times).round() as Nanos;
        // Long enough that ATR has sampled every connection, and to count two thousand answers.
        let seconds = |requests: f64| (requests / rate * 1e9) as Nanos;
        let learnt = (25.0 * f64::from(connections)).min(200_000.0);
        Ok(Setup {
            costs: Costs::of(&costs.profile())?,
            machine,
            adapter: self.adapter,
            queues: settings.count("queues", cpus.min(MOST_QUEUES.into()))?,
            reta: None,
            ring: settings.count("ring", 1 << 20)?,
            moderation: match self.interrupts.0 {
                Interrupts::Off => Moderation::Off,
                Interrupts::Gap(_) => {
                    Moderation::Gap(settings.get("interrupt_gap_ns").round() as Nanos)
                }
                Interrupts::Ixgbe => Moderation::Adaptive {
                    lowest: gap(10_000.0),
                    low: gap(50_000.0),
                    bulk: gap(125_000.0),
                },
            },
            low_latency: false,
            tx_by_cpu: filters,
            steering,
            sample_rate: 20,
            filters: 8191,
            threads: settings.count("threads", 1024)?,
            placement: Placement::Pinned,
            connections,
            load: Load::Open { rate },
            window: settings.count("window", 1 << 20)?,
            wire_bytes: [36 + 90, 36 + 64 + 20 + 90],
            seed: 1,
            warmup: seconds(learnt).clamp(4_000_000, 2_000_000_000),
            measure: seconds(2000.0).clamp(8_000_000, 2_000_000_000),
        })
    }

    fn run(&self, case: &Case, rate: f64) -> Result<Outcome, PredictError> {
        let outcome = self.setup(case, rate)?.run()?;
        if outcome.is_balanced() { Ok(outcome) } else { Err(PredictError::Unbalanced) }
    }

    /// The highest load that is answered within the latency limit. The search begins at `near`.
    fn capacity(&self, case: &Case, near: f64) -> Result<f64, PredictError> {
        let limit_us = case.settings.get("latency_limit_us");
        let mut first = None;
        let mut is_quick = |n: u32| -> Result<bool, PredictError> {
            let outcome = self.run(case, rate(n))?;
            if n == 0 {
                first = Some(outcome.latency_us_mean);
            }
            let answered = outcome.answered_rps >= ANSWERED * outcome.offered_rps;
            Ok(answered && outcome.latency_us_mean <= limit_us)
        };
        let near = ((near / LOWEST).ln() / RATIO.ln()).round().clamp(0.0, f64::from(MOST)) as u32;
        match highest(near, MOST, &mut is_quick)? {
            Some(n) => Ok(rate(n)),
            None => Err(PredictError::Limit {
                rate: LOWEST,
                latency_us: first.unwrap_or(f64::NAN),
                limit_us,
            }),
        }
    }

    pub(super) fn predict(&self, case: &Case) -> Result<Prediction, PredictError> {
        let capacity = self.capacity(case, 1e6)?;
        let rows = self.rows(case, capacity, capacity)?;
        let curves = self.curves(case, capacity)?;
        let machine = case.costs.machine;
        let limit = case.settings.get("latency_limit_us");
        Ok(Prediction {
            model: "server".to_owned(),
            title: format!(
                "A server of small requests behind {}, {} processors",
                self.adapter.title,
                machine.cpus()
            ),
            choices: self.choices(),
            inputs: case.inputs(),
            rows: Predicted::of(rows),
            curves,
            notes: std::iter::once(format!(
                "The capacity is the highest load, in steps of 1 %, of which at least 95 % are answered with a mean latency of at most {limit:.0} us."
            ))
            .chain(case.costs.notes.iter().cloned())
            .collect(),
        })
    }

    /// The curve by load, at shares of `capacity`.
    pub(super) fn curves(&self, case: &Case, capacity: f64) -> Result<Vec<Curve>, PredictError> {
        let mut points = Vec::with_capacity(SHARES.len());
        for share in SHARES {
            points.push(point(capacity * share, &self.run(case, capacity * share)?));
        }
        Ok(vec![Curve { axis: "offered, requests/s".to_owned(), points }])
    }

    pub(super) fn rows_beside(
        &self,
        case: &Case,
        beside: &Prediction,
    ) -> Result<Rows, PredictError> {
        let capacity = beside.rows.first().map_or(1e6, |row| row.value);
        let own = self.capacity(case, capacity)?;
        self.rows(case, own, capacity)
    }

    /// The rows of `case`, whose capacity is `own`; latencies and overload are those at shares of `base`.
    fn rows(&self, case: &Case, own: f64, base: f64) -> Result<Rows, PredictError> {
        let half = self.run(case, 0.5 * base)?;
        let over = self.run(case, 1.5 * base)?;
        let rows = [
            (CAPACITY, own),
            (MEAN, half.latency_us_mean),
            (P99, half.latency_us_p99),
            (OVER, over.answered_rps),
        ];
        Ok(rows.map(|(name, value)| (name.to_owned(), value)).into())
    }
}

/// The most queues that ATR of ixgbe can use.
const MOST_QUEUES: u16 = 63;

/// Load `n` in requests a second.
fn rate(n: u32) -> f64 {
    LOWEST * RATIO.powi(n as i32)
}

fn point(offered: f64, outcome: &Outcome) -> Point {
    let frames = (outcome.segments + outcome.dropped) as f64;
    Point {
        at: offered,
        offered: Some(offered),
        rate: outcome.answered_rps,
        lost_share: outcome.dropped as f64 / frames.max(1.0),
        latency: Some(Latency {
            mean_us: outcome.latency_us_mean,
            p50_us: outcome.latency_us_p50,
            p99_us: outcome.latency_us_p99,
        }),
        busiest_share: outcome.busiest(),
        rate_between: None,
        mean_us_between: None,
    }
}

/// The highest number from 0 to `most` for which `holds`, if it holds up to some number and not above; `None` if it
/// does not hold for 0. Begins at `near` and takes steps that grow by a factor of 4, then halves.
pub(super) fn highest<E>(
    near: u32,
    most: u32,
    holds: &mut impl FnMut(u32) -> Result<bool, E>,
) -> Result<Option<u32>, E> {
    let (mut low, mut high, mut step) = (near, near, 1);
    if holds(near)? {
        loop {
            if low == most {
                return Ok(Some(most));
            }
            high = low.saturating_add(step).min(most);
            if !holds(high)? {
                break;
            }
            (low, step) = (high, step * 4);
        }
    } else {
        loop {
            if high == 0 {
                return Ok(None);
            }
            low = high.saturating_sub(step);
            if holds(low)? {
                break;
            }
            (high, step) = (low, step * 4);
        }
    }
    while high - low > 1 {
        let middle = low.midpoint(high);
        if holds(middle)? { low = middle } else { high = middle }
    }
    Ok(Some(low))
}
