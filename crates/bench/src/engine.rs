//! The engine with ports in memory, on the threads of this machine.
//!
//! Three tables: frames per second, nanoseconds per frame and stage, and the gain of splitting one flow
//! over two cores at several costs of work, beside the gain predicted from the stage costs. On request, programs of
//! DPDK are measured in the same rounds.
//!
//! The break-even follows from the stage costs. It is given only if the machine was quiet, and the
//! measured gains do not contradict it.

use std::cell::Cell;
use std::time::Duration;

use flowyard_flow::learn::elephant::{Costs, Room};
use flowyard_rfc2544::document::Machine;
use flowyard_yard::{Clock, Span, Stages};
use schemars::JsonSchema;
use serde::Serialize;

use crate::live::quiet::{Others, Rounds};
use crate::machine::Before;
use crate::peers::{Contest, Peers, Programs};
use crate::rounds::{Case, Load, Round, Source};
use crate::stats::median;

/// The results of all measurements.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Results {
    /// Number of CPUs.
    pub processors: usize,
    /// Number of times that each case was measured.
    pub rounds: usize,
    /// Rounds in which other programs used no more than 5 % of the CPU time of all processors.
    pub quiet_rounds: usize,
    /// The largest share of this CPU time that other programs used in a round, 0 to 1.
    pub others_share: f64,
    /// Rates and stage costs by configuration.
    pub walks: Vec<Walk>,
    /// One flow on one core and on two, by work.
    pub splits: Vec<Split>,
    /// The least work at which splitting a flow pays.
    pub break_even: BreakEven,
    /// Why no break-even is concluded.
    pub inconclusive: Option<String>,
    /// When the measurement began.
    pub date: String,
    /// Version and commit of the program.
    pub build: String,
    /// The machine.
    pub machine: Machine,
    /// The engine beside programs of DPDK, if they were asked for.
    pub peers: Option<Peers>,
}

/// In which order the flows send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flows {
    /// In random order.
    Random,
    /// One frame of each flow after another.
    InOrder,
    /// In random order; the cases that other programs are measured with also in order.
    Both,
}

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Number of times that each case is measured.
    pub rounds: usize,
    /// Duration of each measurement.
    pub time: Duration,
    /// In which order the flows send.
    pub flows: Flows,
    /// Programs to measure in the same rounds.
    pub peers: Option<&'a Programs>,
    /// The date now.
    pub date: &'a str,
    /// Version and commit of this program.
    pub build: &'a str,
}

/// One configuration of the engine.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Walk {
    /// What is measured.
    pub name: &'static str,
    /// Number of cores.
    pub cores: u16,
    /// In which order the flows send: `random` or `in order`.
    pub source: &'static str,
    /// Frames per second, the median of the rounds.
    pub pps: f64,
    /// 10^9 / `pps`.
    pub ns_per_frame: f64,
    /// Processor time of all threads for a frame, in nanoseconds, the median of the rounds. On a quiet machine with one
    /// core it is `ns_per_frame`.
    pub cpu_ns_per_frame: f64,
    /// Nanoseconds per frame by stage, the median of the rounds; a stage that was not timed is missing. With one core
    /// their sum is the processor time of a frame.
    pub stages: Vec<(&'static str, f64)>,
}

/// One flow on one core and on two.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Split {
    /// The work done on each frame.
    pub work: String,
    /// Cost of the work in nanoseconds per frame, beyond that of forwarding.
    pub work_ns: f64,
    /// Frames per second on one core, the median of the rounds.
    pub one_pps: f64,
    /// Frames per second on two cores, the median of the rounds.
    pub two_pps: f64,
    /// `two_pps / one_pps`, the median of the rounds' ratios.
    pub gain: f64,
    /// The gain predicted from the costs per stage.
    pub expected: f64,
}

/// The costs that decide from which work per frame on splitting a flow pays.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BreakEven {
    /// Nanoseconds per frame from receiving to settling.
    pub rx_ns: f64,
    /// Nanoseconds per frame for one side of a hand-off between cores.
    pub handoff_ns: f64,
    /// Nanoseconds per frame for completing it in order.
    pub commit_ns: f64,
    /// The least work per frame, in nanoseconds, at which two cores that share all stages gain
    /// [`GAIN`]; nothing if the measurement is inconclusive.
    pub two_cores_ns: Option<f64>,
}

/// Costs of the work at which one flow is split, in nanoseconds per frame.
const COSTS: [u64; 7] = [0, 50, 100, 200, 500, 1000, 2600];

/// Load balancer modes in which one flow is split.
const MODES: [&str; 3] = ["dsr", "ipip", "fullnat"];

/// The least gain that justifies a split: the default in `[elephants]`.
pub const GAIN: f64 = 1.1;

fn walks(flows: Flows) -> Vec<(&'static str, Case)> {
    let source = if flows == Flows::InOrder { Source::InOrder } else { Source::Random };
    let one = Case {
        cores: 1,
        order: "direct",
        consumers: vec![0],
        load: Load::Forward,
        flows: 8192,
        source,
        exact: false,
        length: 60,
    };
    let two = Case { cores: 2, consumers: vec![1], ..one.clone() };
    let exact = Case { exact: true, ..one.clone() };
    let first = [("hash (RSS)", one.clone()), ("exact entry for each flow", exact)];
    let again = first.clone().map(|(name, case)| (name, Case { source: Source::InOrder, ..case }));
    let again = again.into_iter().filter(|_| flows == Flows::Both);
    let others = [
        ("hash, atomic queue", Case { order: "atomic", ..one.clone() }),
        ("hash, ordered queue", Case { order: "ordered", ..one.clone() }),
        ("hash, 1,514-byte frames", Case { length: 1514, ..one }),
        ("passed to a second core", two.clone()),
        ("passed to a second core in order", Case { order: "ordered", ..two }),
    ];
    first.into_iter().chain(again).chain(others).collect()
}

fn split(load: Load) -> [Case; 2] {
    let one = Case {
        cores: 1,
        order: "direct",
        consumers: vec![0],
        load,
        flows: 1,
        source: Source::Random,
        exact: false,
        length: 60,
    };
    let two = Case { cores: 2, order: "ordered", consumers: vec![0, 1], ..one.clone() };
    [one, two]
}

/// Measures all cases of `job`. `progress` is called after each measurement with the number of those done and of all.
///
/// # Errors
///
/// When a run cannot start, or its frame counters do not balance, or a peer cannot be measured.
pub fn measure(
    job: &Job<'_>,
    clock: &Clock,
    progress: &dyn Fn(usize, usize),
) -> anyhow::Result<Results> {
    let &Job { rounds, time, flows, peers, date, build } = job;
    let before = Before::read();
    let mut contest = peers.map(Contest::new).transpose()?;
    let (walks, splits) = (walks(flows), COSTS.map(|ns| (ns, split(Load::Burn(ns)))));
    let modes = MODES.map(|mode| (mode, split(Load::Balance(mode))));
    let beside = contest.as_ref().map_or(0, Contest::steps);
    let steps = rounds * (walks.len() + 2 * (splits.len() + modes.len()) + beside);
    let done = Cell::new(0);
    let mut walked = vec![Vec::new(); walks.len()];
    let mut shared = vec![Vec::new(); splits.len()];
    let mut balanced = vec![Vec::new(); modes.len()];
    let step = || {
        done.set(done.get() + 1);
        progress(done.get(), steps);
    };
    let round = |case: &Case| {
        let round = case.round(time, clock);
        step();
        round
    };
    let mut quiet = Rounds::new(rounds);
    for _ in 0..rounds {
        let others = Others::from(None);
        for ((_, case), rounds) in walks.iter().zip(&mut walked) {
            rounds.push(round(case)?);
        }
        for ((_, [one, two]), rounds) in splits.iter().zip(&mut shared) {
            rounds.push([round(one)?, round(two)?]);
        }
        for ((_, [one, two]), rounds) in modes.iter().zip(&mut balanced) {
            rounds.push([round(one)?, round(two)?]);
        }
        quiet.add(others.share());
        if let Some(contest) = &mut contest {
            contest.round(time, clock, &step)?; // not in `others`, which would count the peers
        }
    }
    let walks: Vec<_> =
        walks.iter().zip(&walked).map(|((name, case), r)| walk(name, case, r)).collect();
    // The stage costs of two cores with an ordered queue between them.
    let costs = walked.last().map_or_else(Stages::default, |rounds| sum(rounds));
    let costs = costs_of(&costs);
    let burnt = splits.iter().map(|(ns, _)| *ns).zip(&shared);
    let compared = compare_all(burnt, modes.iter().map(|(mode, _)| *mode).zip(&balanced), costs);
    let room = Room { home: 1.0, workers: 2.0, cores: 2.0 };
    let two_cores_ns = costs.break_even_ns(&room, GAIN);
    let (quiet_rounds, others_share) = quiet.quiet();
    let inconclusive = too_loaded(quiet_rounds, rounds, others_share)
        .or_else(|| contradiction(two_cores_ns, &compared));
    Ok(Results {
        processors: crate::processors(),
        rounds,
        quiet_rounds,
        others_share,
        splits: compared,
        break_even: BreakEven {
            rx_ns: costs.rx_ns,
            handoff_ns: costs.handoff_ns,
            commit_ns: costs.commit_ns,
            two_cores_ns: inconclusive.is_none().then_some(two_cores_ns),
        },
        inconclusive,
        walks,
        date: date.into(),
        build: build.into(),
        machine: before.machine(),
        peers: contest.map(Contest::finish),
    })
}

/// One core and two, for each amount of work and each mode of the balancer.
fn compare_all<'a>(
    burnt: impl Iterator<Item = (u64, &'a Vec<[Round; 2]>)>,
    balanced: impl Iterator<Item = (&'static str, &'a Vec<[Round; 2]>)>,
    costs: Costs,
) -> Vec<Split> {
    let mut all: Vec<Split> =
        burnt.map(|(ns, rounds)| compare(format!("{ns} ns"), ns as f64, rounds, costs)).collect();
    for (mode, rounds) in balanced {
        // Cost of the balancer beyond that of forwarding.
        let alone = rounds.iter().fold(Stages::default(), |sum, [one, _]| sum.plus(&one.stages));
        let ns = costs_of(&alone).work_ns - costs.work_ns;
        all.push(compare(format!("balance, {mode}"), ns.max(0.0), rounds, costs));
    }
    all
}

/// Why rates measured in `rounds` rounds, of which `quiet` were quiet, allow no conclusion. The medians
/// need at least half of the rounds to be quiet.
fn too_loaded(quiet: usize, rounds: usize, most: f64) -> Option<String> {
    (2 * quiet < rounds).then(|| {
        format!(
            "the machine is too loaded: {quiet} of {rounds} rounds were quiet, and other programs used up to \
             {:.0} % of the CPU time in a round; stop them and measure again",
            most * 100.0
        )
    })
}

/// Why the measured gains contradict a break-even at `least_ns`: with twice this work, a split must gain.
fn contradiction(least_ns: f64, splits: &[Split]) -> Option<String> {
    let far: Vec<_> = splits.iter().filter(|split| split.work_ns >= 2.0 * least_ns).collect();
    let fewer: Vec<_> = far.iter().filter(|split| split.gain < GAIN).collect();
    let best = fewer.iter().map(|split| split.gain).fold(0.0, f64::max);
    (!fewer.is_empty() && 2 * fewer.len() >= far.len()).then(|| {
        format!(
            "the stage costs predict a gain of {GAIN} from {least_ns:.0} ns of work per frame on, but with twice \
             this work and more, {} of {} measured gains are below it (at most {best:.2}); two cores need two \
             processors without other load",
            fewer.len(),
            far.len()
        )
    })
}

fn sum(rounds: &[Round]) -> Stages {
    rounds.iter().fold(Stages::default(), |sum, round| sum.plus(&round.stages))
}

fn walk(name: &'static str, case: &Case, rounds: &[Round]) -> Walk {
    let pps = median(&mut rounds.iter().map(|round| round.pps).collect::<Vec<_>>());
    let cpu = median(&mut rounds.iter().map(|round| round.pps_cpu).collect::<Vec<_>>());
    // Medians: while another program has the processor, the time counts for the stage that it interrupts.
    let stage = |span: Span| {
        let times = rounds.iter().filter_map(|round| round.stages.ns_per_frame(span));
        let mut times: Vec<f64> = times.collect();
        (!times.is_empty()).then(|| (span.name(), median(&mut times)))
    };
    Walk {
        name,
        cores: case.cores,
        source: match case.source {
            Source::Random => "random",
            Source::InOrder => "in order",
        },
        pps,
        ns_per_frame: 1e9 / pps.max(1.0),
        cpu_ns_per_frame: 1e9 / cpu.max(1.0),
        stages: Span::ALL.into_iter().filter_map(stage).collect(),
    }
}

fn costs_of(stages: &Stages) -> Costs {
    let ns =
        |spans: &[Span]| spans.iter().filter_map(|&span| stages.ns_per_frame(span)).sum::<f64>();
    Costs {
        rx_ns: ns(&[Span::Rx, Span::Parse, Span::Steer, Span::Settle]),
        work_ns: ns(&[Span::Work, Span::Tx]),
        handoff_ns: ns(&[Span::Enqueue, Span::Dequeue]) / 2.0,
        commit_ns: ns(&[Span::Complete]),
    }
}

fn compare(work: String, work_ns: f64, rounds: &[[Round; 2]], costs: Costs) -> Split {
    let of = |at: usize| median(&mut rounds.iter().map(|round| round[at].pps).collect::<Vec<_>>());
    let mut gains: Vec<_> = rounds.iter().map(|[one, two]| two.pps / one.pps.max(1.0)).collect();
    let room = Room { home: 1.0, workers: 2.0, cores: 2.0 };
    let costs = Costs { work_ns: costs.work_ns + work_ns, ..costs };
    Split {
        work,
        work_ns,
        one_pps: of(0),
        two_pps: of(1),
        gain: median(&mut gains),
        expected: costs.estimate(room, GAIN).gain(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn splits(gains: &[f64]) -> Vec<Split> {
        let split = |(work_ns, gain): (u64, &f64)| Split {
            work: format!("{work_ns} ns"),
            work_ns: work_ns as f64,
            one_pps: 1e6,
            two_pps: 1e6 * gain,
            gain: *gain,
            expected: 1.5,
        };
        COSTS.into_iter().zip(gains).map(split).collect()
    }

    #[test]
    fn a_loaded_machine_allows_no_conclusion() {
        assert_eq!(too_loaded(5, 5, 0.02), None);
        assert_eq!(too_loaded(3, 5, 0.4), None, "the median is of a quiet round");
        let why = too_loaded(2, 5, 0.43).unwrap();
        assert!(why.contains("too loaded") && why.contains("43 %"), "{why}");
    }

    #[test]
    fn measured_gains_below_one_contradict_a_break_even() {
        // The gains of the report: 25 ns were predicted.
        let why = contradiction(25.0, &splits(&[0.27, 0.31, 0.4, 0.5, 0.61, 0.7, 0.76])).unwrap();
        assert!(why.contains("6 of 6") && why.contains("0.76"), "{why}");
        assert_eq!(contradiction(25.0, &splits(&[0.5, 0.9, 1.2, 1.4, 1.6, 1.7, 1.8])), None);
        assert_eq!(contradiction(f64::INFINITY, &splits(&[0.5; 7])), None, "none is claimed");
    }
}
