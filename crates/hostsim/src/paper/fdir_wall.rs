//! The wall of RPS and RFS in the Flow Director paper, "before it gets to 1.5M requests per second": which assumption of the
//! model would put it there.
//!
//! Each case changes one assumption of `fdir-memcached`, and one case changes two. The paper says three things of the
//! ConnectX-3 with RFS: its wall is below 1.5 M/s, its most responses are below 4 M/s, and it is better than without RFS. A
//! case explains the paper only if it has all three, and if the X520 keeps its 5 M responses/s where the case changes the server.
//!
//! Thread-safety: plain functions; cases are computed by several threads, which share nothing.

use std::thread;

use flowyard_report::exhibit::{Made, Spec};
use flowyard_report::{Axis, Plot, Unit};

use super::context::{Context, FigureError};
use super::fdir::{M, curve, predicted, setup, wall};
use crate::profile::Profile;
use crate::server::{Curve, Moderation, Placement, Setup, Steering};

/// Offered loads, in millions of requests a second: close together where walls are.
const RATES: [f64; 11] = [0.5, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 4.5, 5.5];

/// The limits of the paper, in millions a second.
const WALL: f64 = 1.5;
const MOST: f64 = 4.0;
/// The most responses of the X520 that count as the paper's 5 M/s.
const ATR_MOST: f64 = 4.5;

/// An assumption that differs from that of `fdir-memcached`.
struct Case {
    name: &'static str,
    /// Of the ConnectX-3; ATR has a queue for each processor.
    queues: u16,
    placement: Placement,
    /// When the ConnectX-3 interrupts; `None` is its driver's default.
    moderation: Option<Moderation>,
    /// A constant of the profile that is multiplied by 2.
    doubled: Option<&'static str>,
    /// Whether ATR is computed, too: where the change is one of the server, it applies to the X520 as well.
    is_of_server: bool,
}

impl Case {
    const fn new(name: &'static str) -> Self {
        let (placement, moderation, doubled) = (Placement::Pinned, None, None);
        Self { name, queues: 8, placement, moderation, doubled, is_of_server: false }
    }

    /// The curve of `steering` under this assumption.
    fn curve(&self, profile: &Profile, steering: Steering) -> Result<Curve, FigureError> {
        let profile = profile.clone();
        let profile = self.doubled.into_iter().fold(profile, |all, name| all.times(name, 2.0));
        let own = setup(&profile, steering)?;
        let (queues, moderation) = match steering {
            Steering::Atr => (own.queues, own.moderation),
            _ => (self.queues, self.moderation.unwrap_or(own.moderation)),
        };
        let (placement, measure) = (self.placement, 10_000_000);
        curve(&Setup { queues, placement, moderation, measure, ..own }, &RATES)
    }
}

fn cases() -> [Case; 9] {
    let of = Case::new;
    let not_pinned = |name, queues| Case {
        queues,
        placement: Placement::Wandering,
        is_of_server: true,
        ..of(name)
    };
    [
        Case { is_of_server: true, ..of("as in fdir-memcached") },
        Case { queues: 4, ..of("4 queues") },
        Case { queues: 2, ..of("2 queues") },
        Case { doubled: Some("rps_ns"), ..of("cost of RPS times 2") },
        Case {
            doubled: Some("sibling_share"),
            is_of_server: true,
            ..of("share of a busy sibling times 2")
        },
        Case {
            moderation: Some(Moderation::Gap(125_000)),
            ..of("an interrupt every 125 us at most")
        },
        not_pinned("threads not pinned", 8),
        not_pinned("threads not pinned, 4 queues", 4),
        Case {
            placement: Placement::Moved(100_000),
            is_of_server: true,
            ..of("two threads change places every 0.1 ms")
        },
    ]
}

/// The curves of one case; none of ATR if the change does not concern the X520.
struct Outcome {
    rfs: Curve,
    rss: Curve,
    atr: Option<Curve>,
}

impl Outcome {
    fn of(case: &Case, profile: &Profile) -> Result<Self, FigureError> {
        let atr = case.is_of_server.then(|| case.curve(profile, Steering::Atr)).transpose()?;
        let [rfs, rss] =
            [Steering::Rfs, Steering::Rss].map(|steering| case.curve(profile, steering));
        Ok(Self { rfs: rfs?, rss: rss?, atr })
    }

    /// Whether RFS is as the paper says - wall, most responses, and better than without - and ATR as before.
    fn is_as_printed(&self) -> bool {
        let (rfs, rss) = (self.rfs.peak(), self.rss.peak());
        let keeps_atr = self.atr.as_ref().is_none_or(|atr| ATR_MOST * M < atr.peak());
        wall(&self.rfs) < WALL && rss < rfs && rfs < MOST * M && keeps_atr
    }
}

/// All cases, computed side by side.
fn outcomes(profile: &Profile) -> Result<Vec<(Case, Outcome)>, FigureError> {
    thread::scope(|scope| {
        let start = |case: Case| {
            scope.spawn(move || Outcome::of(&case, profile).map(|outcome| (case, outcome)))
        };
        let threads: Vec<_> = cases().into_iter().map(start).collect();
        let finish = |thread: thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(finish).collect()
    })
}

/// Walls and most responses by assumption, and which of them are as the paper says.
pub(super) fn rfs_wall(context: &Context, _: &Spec) -> Result<Made, FigureError> {
    let profile = context.profile("rose-city")?;
    let outcomes = outcomes(&profile)?;
    let mut made = predicted(&profile);
    for (Case { name, .. }, outcome) in &outcomes {
        let adapters = [("RFS", Some(&outcome.rfs)), ("RSS", Some(&outcome.rss))];
        for (adapter, curve) in adapters.into_iter().chain([("ATR", outcome.atr.as_ref())]) {
            let Some(curve) = curve else { continue };
            made.push(format!("{name}: {adapter}, latency's wall"), wall(curve));
            made.push(format!("{name}: {adapter}, most responses"), curve.peak() / M);
            made.push(format!("{name}: {adapter}, wall by most"), M * wall(curve) / curve.peak());
        }
    }
    let explains = outcomes.iter().filter(|(_, outcome)| outcome.is_as_printed());
    let explains: Vec<_> = explains.map(|(case, _)| case.name).collect();
    let explains = if explains.is_empty() { "no case".to_owned() } else { explains.join("; ") };
    made.note(format!(
        "Wall of RFS below 1.5 M/s, most responses between those without RFS and 4 M/s, and 5 M/s with ATR: {explains}."
    ));
    let latency = Plot::new(
        "Mean latency with RPS and RFS",
        Axis::linear("offered, M requests/s", Unit::Plain("")),
        Axis::log("microseconds", Unit::Plain("")).range(10.0, 10_000.0),
    );
    let line = |plot: Plot, (case, outcome): &(Case, Outcome)| {
        let points = outcome.rfs.points.iter();
        let points = points.map(|(rate, outcome)| (rate / M, outcome.latency_us_mean));
        plot.line(case.name, points.collect::<Vec<_>>())
    };
    made.plots = vec![outcomes.iter().fold(latency, line).limit_y(crate::server::WALL_US, "wall")];
    Ok(made)
}
