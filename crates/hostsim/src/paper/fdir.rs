//! The Flow Director paper: memcached, the redirection table, and settings that the paper leaves out.

use std::collections::BTreeMap;

use flowyard_adapter::{Profile as Adapter, Rss, RssConfig};
use flowyard_report::exhibit::{Kind, Made, Spec};
use flowyard_report::{Axis, Plot, Unit};

use super::context::{Context, FigureError};
use crate::profile::Profile;
use crate::server::{Curve, Load, Outcome, Placement, Setup, SetupError, Steering};

/// Offered loads, in millions of requests a second.
const RATES: [f64; 16] =
    [0.1, 0.5, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.25, 4.5, 5.0, 5.5, 6.0];

pub(super) const M: f64 = 1e6;

/// The server with `steering` on its adapter: the ConnectX-3 for RSS, RPS and RFS, the X520 for the others.
pub(super) fn setup(profile: &Profile, steering: Steering) -> Result<Setup, SetupError> {
    let setup = match steering {
        Steering::Rss | Steering::Rps | Steering::Rfs => Setup::cx3(profile, steering, M)?,
        _ => Setup::x520(profile, M)?,
    };
    Ok(Setup { steering, threads: profile.machine.cpus(), ..setup })
}

pub(super) fn curve(setup: &Setup, rates: &[f64]) -> Result<Curve, FigureError> {
    let rates: Vec<f64> = rates.iter().map(|rate| rate * M).collect();
    Ok(Curve::run(setup, &rates)?)
}

/// The load at which the latency rises, in millions of requests a second; not a number if it never does.
pub(super) fn wall(curve: &Curve) -> f64 {
    curve.wall().unwrap_or(f64::NAN) / M
}

fn run(setup: &Setup) -> Result<Outcome, FigureError> {
    let outcome = setup.run()?;
    if outcome.is_balanced() { Ok(outcome) } else { Err(FigureError::Unbalanced) }
}

/// Numbers of the server model: it reads all constants of the profile.
pub(super) fn predicted(profile: &Profile) -> Made {
    let mut made = Made::default();
    made.using(Kind::Predicted, profile.all_inputs());
    made
}

/// The two configurations whose comparison the paper draws, and the two controls that separate the effect of steering
/// from that of the number of queues.
const ATR: &str = "X520, Flow Director ATR";
const RSS: &str = "ConnectX-3";

/// The names of the controls, for the numbers of queues of ATR and of RSS.
struct Controls {
    /// The numbers of queues of ATR and of RSS.
    queues: [u16; 2],
    /// ATR with as many queues as RSS has.
    atr: String,
    /// RSS with as many queues as ATR has.
    rss: String,
}

impl Controls {
    fn new(queues: [u16; 2]) -> Self {
        let [many, few] = queues;
        let atr = format!("control: Flow Director ATR, {few} queues");
        Self { queues, atr, rss: format!("control: RSS, {many} queues") }
    }
}

/// Throughput and latency by offered load.
pub(super) fn memcached(context: &Context, _: &Spec) -> Result<Made, FigureError> {
    let profile = context.profile("rose-city")?;
    let of = |steering| setup(&profile, steering);
    let queues = |queues, steering| Ok::<_, FigureError>(Setup { queues, ..of(steering)? });
    // The redirection table of ixgbe has entries of 4 bits. That of i40e reaches 32 queues; nothing else of the adapter
    // is in the model, so that this control differs from the ConnectX-3 by the number of queues alone.
    let wide = Adapter::find("xl710").ok_or(SetupError::Number("no adapter xl710"))?;
    let (atr, rss) = (of(Steering::Atr)?, of(Steering::Rss)?);
    let controls = Controls::new([atr.queues, rss.queues]);
    let [many, few] = controls.queues;
    let cases = [
        (ATR, atr),
        ("ConnectX-3, RPS and RFS", of(Steering::Rfs)?),
        (RSS, rss),
        ("ConnectX-3, RPS alone", of(Steering::Rps)?),
        ("16 queues by RSS", queues(16, Steering::Rss)?),
        (&controls.atr, queues(few, Steering::Atr)?),
        (&controls.rss, Setup { adapter: wide, ..queues(many, Steering::Rss)? }),
    ];
    let mut peaks = BTreeMap::new();
    let mut made = predicted(&profile);
    let offered = || Axis::linear("offered, M requests/s", Unit::Plain(""));
    let mut answered = Plot::new(
        "memcached: responses a second",
        offered(),
        Axis::linear("M responses/s", Unit::Plain("")),
    );
    let mut latency = Plot::new(
        "memcached: mean latency",
        offered(),
        Axis::log("microseconds", Unit::Plain("")).range(10.0, 10_000.0),
    );
    for (name, setup) in cases {
        let curve = curve(&setup, &RATES)?;
        made.push(format!("{name}: most responses"), curve.peak() / M);
        made.push(format!("{name}: latency's wall"), wall(&curve));
        peaks.insert(name, curve.peak());
        let points = |of: fn(&Outcome) -> f64| -> Vec<(f64, f64)> {
            curve.points.iter().map(|(rate, outcome)| (rate / M, of(outcome))).collect()
        };
        answered = answered.line(name, points(|outcome| outcome.answered_rps / M));
        latency = latency.line(name, points(|outcome| outcome.latency_us_mean));
    }
    made.plots =
        vec![answered.limit_y(5.0, "5 M"), latency.limit_y(crate::server::WALL_US, "wall")];
    controls.compare(&mut made, &peaks);
    Ok(made)
}

impl Controls {
    /// How much of the gain of ATR over RSS in the most responses comes from the number of queues alone. The two changes
    /// do not add up, so the share is given in both orders.
    fn compare(&self, made: &mut Made, peaks: &BTreeMap<&str, f64>) {
        let [many, few] = self.queues;
        let of = |name| peaks.get(name).copied().unwrap_or(f64::NAN);
        let [first, last] = [of(RSS), of(ATR)];
        let share = |from: f64, to: f64| 100.0 * (to - from) / (last - first);
        let (by_rss, by_atr) =
            (share(first, of(self.rss.as_str())), share(of(self.atr.as_str()), last));
        let row = |both| {
            format!("of the gain of ATR: {many} instead of {few} queues, both with {both}, %")
        };
        made.push(row("RSS"), by_rss);
        made.push(row("ATR"), by_atr);
        let mut note = format!(
            "Controls: ATR has {many} queues here, the ConnectX-3 has {few}. Of the {:.2} M/s by which the peak of ATR exceeds \
             that of RSS, {by_rss:.0} % remain when RSS has {many} queues too, without any steering by flow; with ATR in both \
             cases, {by_atr:.0} % come from {many} instead of {few} queues.",
            (last - first) / M
        );
        if last > first && by_rss > 50.0 && by_atr > 50.0 {
            note += " So in the model most of the gain in responses is the number of queues, which differs between the two \
                     adapters of the paper as well as the steering.";
        }
        made.note(note);
    }
}

/// The example of the redirection table: entries 0 and 4 name queue 15, then entry 4 names queue 13.
pub(super) fn table(context: &Context, _: &Spec) -> Result<Made, FigureError> {
    let profile = context.profile("rose-city")?;
    let before: Vec<u16> = (0..128).map(|i| if i == 0 || i == 4 { 15 } else { i % 16 }).collect();
    let mut after = before.clone();
    after[4] = 13;
    let mut made = predicted(&profile);
    for (when, reta) in [("before", before), ("after", after)] {
        let entries = |queue: u16| reta.iter().filter(|&&entry| entry == queue).count() as f64;
        let of = setup(&profile, Steering::Rss)?;
        // The adapter's table has the entries of the example; the low bits of a hash name one.
        let config = RssConfig { reta: Some(reta.clone()), ..RssConfig::seeded(1) };
        let rss = Rss::new(of.adapter, 16, config).map_err(SetupError::from)?;
        made.using(Kind::Computed, []);
        for entry in [0, 4] {
            let queue = rss.queue(Some(0xabcd_ef00 | entry));
            made.push(format!("{when}: queue of entry {entry}"), f64::from(queue));
        }
        made.using(Kind::Arithmetic, []);
        made.push(format!("{when}: entries of queue 15"), entries(15));
        made.using(Kind::Predicted, profile.all_inputs());
        let load = Load::Open { rate: 1.5 * M };
        let of = Setup { queues: 16, connections: 4000, reta: Some(reta.clone()), load, ..of };
        let outcome = run(&of)?;
        for queue in [13, 15] {
            let busy = outcome.busy.get(queue).copied().unwrap_or_default();
            made.push(format!("{when}: core of queue {queue} busy, %"), 100.0 * busy);
        }
    }
    Ok(made)
}

/// Filters that ATR learns, and filters that software programs.
pub(super) fn atr_ep(context: &Context, _: &Spec) -> Result<Made, FigureError> {
    let profile = context.profile("rose-city")?;
    let mut made = predicted(&profile);
    let whens = ["first 5 ms", "steady", "threads wander", "10,000 connections"];
    let when = || Axis::categories("", whens);
    let share = Axis::linear("share", Unit::Share).range(0.0, 1.0);
    let mut local = Plot::new("Segments processed on their thread's core", when(), share);
    let microseconds = Axis::linear("microseconds", Unit::Plain(""));
    let mut latency = Plot::new("Mean latency", when(), microseconds);
    for (name, steering) in [("ATR", Steering::Atr), ("EP", Steering::Ep)] {
        let mut bars: [Vec<f64>; 2] = Default::default();
        let base = setup(&profile, steering)?;
        let rate = |rate: f64| Load::Open { rate: rate * M };
        let first = Setup { load: rate(0.2), warmup: 0, measure: 5_000_000, ..base.clone() };
        let steady = Setup { load: rate(2.5), ..base.clone() };
        let wander = Setup { placement: Placement::Wandering, ..steady.clone() };
        let many = Setup { connections: 10_000, warmup: 20_000_000, ..steady.clone() };
        for (when, setup) in [
            ("first 5 ms after connecting", first),
            ("steady", steady),
            ("steady, threads wander", wander),
            ("steady, 10,000 connections", many),
        ] {
            let outcome = run(&setup)?;
            made.push(format!("{name}, {when}: on the thread's core"), 100.0 * outcome.local_share);
            made.push(format!("{name}, {when}: mean latency, us"), outcome.latency_us_mean);
            bars[0].push(outcome.local_share);
            bars[1].push(outcome.latency_us_mean);
        }
        let [shares, means] = bars;
        (local, latency) = (local.bars(name, shares), latency.bars(name, means));
    }
    made.plots = vec![local, latency];
    Ok(made)
}

/// 120, 10 thousand and a million connections.
pub(super) fn connections(context: &Context, _: &Spec) -> Result<Made, FigureError> {
    let profile = context.profile("rose-city")?;
    let mut made = predicted(&profile);
    let counts = [120, 10_000, 1_000_000];
    let cases = [
        ("Flow Director ATR", Steering::Atr),
        ("Flow Director EP", Steering::Ep),
        ("RPS and RFS", Steering::Rfs),
        ("RSS", Steering::Rss),
    ];
    let categories = ["120", "10 thousand", "1 million"];
    let mut plot = Plot::new(
        "Responses a second at 4.5 M offered",
        Axis::categories("connections", categories),
        Axis::linear("M responses/s", Unit::Plain("")),
    );
    let mut local = Plot::new(
        "Segments processed on their thread's core",
        Axis::categories("connections", categories),
        Axis::linear("share", Unit::Share).range(0.0, 1.0),
    );
    for (name, steering) in cases {
        let (mut rates, mut shares) = (Vec::new(), Vec::new());
        for (count, words) in counts.into_iter().zip(categories) {
            let base = setup(&profile, steering)?;
            let load = Load::Open { rate: 4.5 * M };
            let (warmup, measure) = (20_000_000, 40_000_000);
            let outcome = run(&Setup { connections: count, load, warmup, measure, ..base })?;
            made.push(format!("{name}, {words}: M responses/s"), outcome.answered_rps / M);
            made.push(
                format!("{name}, {words}: on the thread's core, %"),
                100.0 * outcome.local_share,
            );
            if steering == Steering::Atr {
                made.push(
                    format!("{name}, {words}: table flushes"),
                    outcome.filters.flushes as f64,
                );
                let aliases = outcome.filters.aliases as f64;
                made.push(format!("{name}, {words}: steered by another flow's filter"), aliases);
            }
            rates.push(outcome.answered_rps / M);
            shares.push(outcome.local_share);
        }
        plot = plot.bars(name, rates);
        local = local.bars(name, shares);
    }
    made.plots = vec![plot, local];
    Ok(made)
}

/// Segments that arrive after a later segment of their connection.
pub(super) fn reordering(context: &Context, _: &Spec) -> Result<Made, FigureError> {
    let profile = context.profile("rose-city")?;
    let mut made = predicted(&profile);
    let base = setup(&profile, Steering::Atr)?;
    let base = Setup {
        placement: Placement::Moved(1_000_000),
        load: Load::Open { rate: M },
        // At sample rate 10,000 a ring takes a sample every eighth of a second.
        warmup: 400_000_000,
        measure: 400_000_000,
        ..base
    };
    let mut names = Vec::new();
    let mut bars = Vec::new();
    for (name, steering, sample_rate) in [
        ("Flow Director, sample rate 20", Steering::Atr, 20),
        ("Flow Director, sample rate 10,000", Steering::Atr, 10_000),
        ("the same filters, settled", Steering::Settled, 20),
        ("RFS", Steering::Rfs, 20),
        ("RSS", Steering::Rss, 20),
    ] {
        let outcome = run(&Setup { steering, sample_rate, ..base.clone() })?;
        let share = 1e6 * outcome.reordered as f64 / (outcome.segments as f64).max(1.0);
        made.push(format!("{name}: reordered of a million"), share);
        made.push(format!("{name}: threads moved"), outcome.migrations as f64);
        names.push(name);
        bars.push(share);
    }
    made.plots = vec![
        Plot::new(
            "Segments overtaken, of a million",
            Axis::linear("of a million", Unit::Plain("")),
            Axis::categories("", names),
        )
        .bars("reordered", bars),
    ];
    Ok(made)
}

/// Settings that the paper does not list.
pub(super) fn settings(context: &Context, _: &Spec) -> Result<Made, FigureError> {
    let profile = context.profile("rose-city")?;
    let mut double = profile.clone();
    double.machine.cores *= 2;
    let names = ["irq_ns", "ipi_send_ns", "ipi_take_ns", "poll_exit_ns"];
    let half = names.into_iter().fold(profile.clone(), |profile, name| profile.times(name, 0.5));
    let mut made = predicted(&profile);
    let cards = ["Flow Director ATR", "RPS and RFS", "RSS"];
    let mut peaks = Plot::new(
        "Most responses a second",
        Axis::categories("", cards),
        Axis::linear("M responses/s", Unit::Plain("")),
    );
    let mut bars: [Vec<f64>; 3] = Default::default();
    let whats = ["as in the paper", "twice the cores", "half the interrupt cost"];
    let rates = [0.5, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 7.0];
    for (card, steering) in cards.into_iter().zip([Steering::Atr, Steering::Rfs, Steering::Rss]) {
        let profiles = [&profile, &double, &half];
        for ((what, profile), bars) in whats.into_iter().zip(profiles).zip(&mut bars) {
            let curve = curve(&setup(profile, steering)?, &rates)?;
            bars.push(curve.peak() / M);
            made.push(format!("{card}, {what}: most responses"), curve.peak() / M);
            made.push(format!("{card}, {what}: latency's wall"), wall(&curve));
        }
    }
    for (what, bars) in whats.into_iter().zip(bars) {
        peaks = peaks.bars(what, bars);
    }
    made.plots = vec![peaks];
    for (what, filters) in [("8,191 filters", 8191), ("819 filters", 819)] {
        let base = setup(&profile, Steering::Atr)?;
        let load = Load::Open { rate: 3.0 * M };
        let (warmup, measure) = (20_000_000, 60_000_000);
        let outcome = run(&Setup { connections: 10_000, filters, load, warmup, measure, ..base })?;
        let name = format!("10 thousand connections, {what}");
        made.push(format!("{name}: on the thread's core, %"), 100.0 * outcome.local_share);
        made.push(format!("{name}: mean latency, us"), outcome.latency_us_mean);
        made.push(format!("{name}: flushes"), outcome.filters.flushes as f64);
    }
    Ok(made)
}
