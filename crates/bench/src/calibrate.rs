//! Measures what basic operations cost on this machine, as a profile for the models of `hostsim`.
//!
//! Each micro-benchmark measures one operation: the transfer of a cache line, a system call, a wake-up,
//! the engine's stages on one core and with a hand-off to a second one. The engine does no work here; the
//! models predict its rates with work.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use flowyard_hostsim::{Constant, How, Machine, Profile};
use flowyard_yard::{Clock, Span, Stages};

use crate::live;
use crate::rounds::{Case, Load, Round, Source};
use crate::stats::{least, median};

mod micro;

/// The runs of the engine in which its stages are timed: one flow, no work.
fn case(cores: u16, consumers: Vec<u16>) -> Case {
    let (load, exact) = (Load::Forward, false);
    Case {
        cores,
        order: "ordered",
        consumers,
        load,
        flows: 1,
        source: Source::Random,
        exact,
        length: 60,
    }
}

/// Groups of constants to measure, besides the basic ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wants {
    /// The engine's stages.
    pub yard: bool,
    /// Sockets, threads and memcached; skipped if not root or without memcached.
    pub host: bool,
}

/// How much to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Repetitions of each measurement; the smallest result is used.
    pub rounds: usize,
    /// Duration of each run of the engine.
    pub time: Duration,
}

impl Default for Effort {
    fn default() -> Self {
        Self { rounds: 15, time: Duration::from_millis(60) }
    }
}

/// Called before each step of the measurement, with its name, the number of steps done, and of all.
pub type Watch<'a> = &'a dyn Fn(&str, usize, usize);

/// Counts the steps of a measurement.
struct Progress<'a> {
    watch: Watch<'a>,
    done: Cell<usize>,
    all: usize,
}

impl<'a> Progress<'a> {
    /// The progress of a measurement of `wants` with `rounds` repetitions.
    fn new(watch: Watch<'a>, wants: Wants, rounds: usize) -> Self {
        let basic = if crate::processors() > 1 { 5 } else { 3 };
        let yard = if wants.yard { rounds } else { 0 };
        let host = if wants.host { 1 + HOST_ROUNDS + REQUESTS } else { 0 };
        Self { watch, done: Cell::new(0), all: basic + yard + host }
    }

    /// The step `name` begins.
    fn begin(&self, name: &str) {
        let done = self.done.replace(self.done.get() + 1);
        (self.watch)(name, done, self.all);
    }
}

/// Measures the basic costs and the groups in `wants`. `when` is the date for the profile.
///
/// # Errors
///
/// When a thread cannot be pinned, a socket or process fails, or a run of the engine does not balance.
pub fn profile(
    wants: Wants,
    effort: Effort,
    when: &str,
    clock: &Clock,
    watch: Watch<'_>,
) -> anyhow::Result<Profile> {
    let rounds = effort.rounds;
    let wants = Wants { host: wants.host && live::obstacle().is_none(), ..wants };
    let progress = Progress::new(watch, wants, rounds);
    let processors = crate::processors();
    let mut constants = BTreeMap::new();
    let mut put = |name: &str, value: f64, source: &str| {
        let constant =
            Constant { value: value.max(0.0), how: How::Measured, source: source.into() };
        constants.insert(name.to_owned(), constant);
    };
    let often = |measure: &dyn Fn() -> anyhow::Result<f64>| -> anyhow::Result<f64> {
        Ok(least((0..rounds).map(|_| measure()).collect::<anyhow::Result<Vec<_>>>()?))
    };
    progress.begin("reading the clock");
    put("clock_ns", often(&|| Ok(micro::clock(clock)))?, "reading the clock");
    progress.begin("a system call");
    put("syscall_ns", often(&|| Ok(micro::syscall(clock)))?, "getppid");
    if processors > 1 {
        progress.begin("a cache line between CPUs");
        put(
            "line_socket_ns",
            often(&|| micro::line(clock))?,
            "transfer of one cache line between CPUs 0 and 1 (half a round trip)",
        );
        progress.begin("waking a thread on another CPU");
        put(
            "wake_far_ns",
            often(&|| micro::wake(clock, true))?,
            "wake-up of a thread on CPU 1 by one on CPU 0 over a pipe (half a round trip): write, wake, switch, read",
        );
    }
    progress.begin("waking a thread on the same CPU");
    put(
        "wake_near_ns",
        often(&|| micro::wake(clock, false))?,
        "wake-up of a thread by another on the same CPU over a pipe (half a round trip)",
    );

    if wants.yard {
        yard(effort, clock, &progress, &mut put)?;
    }
    if wants.host {
        host(&mut constants, clock, &progress)?;
    }

    let file = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = file("/proc/cpuinfo");
    let field = |name: &str| {
        let line = cpu.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let model = field("model name").unwrap_or_else(|| "unknown processor".to_owned());
    let about = [
        ("processor", model.clone()),
        ("processors", processors.to_string()),
        ("mhz", field("cpu MHz").unwrap_or_default()),
        ("kernel", file("/proc/sys/kernel/osrelease").trim().to_owned()),
        ("load average", file("/proc/loadavg").trim().to_owned()),
        ("when", when.to_owned()),
        ("rounds", rounds.to_string()),
    ];
    Ok(Profile {
        name: "here".to_owned(),
        title: format!("{model}, {processors} processors"),
        machine: Machine { sockets: 1, cores: processors.clamp(1, 128) as u16, threads: 1 },
        about: about.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        constants,
    })
}

/// The engine's stages, without work.
fn yard(
    Effort { rounds, time }: Effort,
    clock: &Clock,
    progress: &Progress<'_>,
    put: &mut dyn FnMut(&str, f64, &str),
) -> anyhow::Result<()> {
    let processors = crate::processors();
    // Every round measures all cases, so that other load disturbs them alike.
    let (mut near, mut far, mut many) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        progress.begin("the engine's stages");
        near.push(case(1, vec![0]).urgent(time, clock)?.0);
        many.push(Case { flows: FLOWS, ..case(1, vec![0]) }.urgent(time, clock)?.0);
        if processors > 1 {
            far.push(case(2, vec![1]).urgent(time, clock)?.0);
        }
    }
    let mut all = 0.0;
    for (prefix, rounds, what) in [
        ("yard_far", &far, "the engine, ordered queue, one flow, no work, passed to a second core"),
        ("yard", &near, "the engine on one core, ordered queue, one flow, no work"),
    ] {
        if rounds.is_empty() {
            continue;
        }
        all = 0.0;
        for (name, step, spans) in STAGES {
            let ns = least(rounds.iter().map(|round| sum(&round.stages, spans)));
            put(&format!("{prefix}_{name}_ns"), ns, &format!("{step}: {what}"));
            all += ns;
        }
    }
    // Stages plus rest is the time per frame in the fastest round. If other load slowed the stages down in
    // every round, the difference is negative and counts as 0.
    let frame = |rounds: &[Round]| least(rounds.iter().map(|r| 1e9 / r.pps.max(1.0)));
    put(
        "yard_rest_ns",
        frame(&near) - all,
        "the engine on one core: time per frame by its rate, minus the sum of its stages",
    );
    put(
        "yard_flows_ns",
        frame(&many) - frame(&near),
        "the engine on one core: time per frame with 1,100 flows minus that with one flow",
    );
    put(
        "yard_lookup_ns",
        crate::figures::lookup::exact_ns(FLOWS as usize, clock)?,
        "one lookup in an exact table of 1,100 entries, timed alone",
    );
    Ok(())
}

/// Number of flows in the cases with many flows.
pub(crate) const FLOWS: u64 = 1100;

/// Repetitions of the socket measurements.
const HOST_ROUNDS: usize = 5;

/// Repetitions of the memcached measurement.
const REQUESTS: usize = 3;

/// Sockets, threads and memcached.
fn host(
    constants: &mut BTreeMap<String, Constant>,
    clock: &Clock,
    progress: &Progress<'_>,
) -> anyhow::Result<()> {
    let mut put = |name: &str, value: f64, source: &str| {
        let constant =
            Constant { value: value.max(0.0), how: How::Measured, source: source.into() };
        constants.insert(name.to_owned(), constant);
    };
    let (clock_ns, syscall_ns) = (micro::clock(clock), micro::syscall(clock));
    progress.begin("real-time threads");
    let [near, far, switch] = live::threads::measure(clock, syscall_ns)?;
    put(
        "fifo_wake_near_ns",
        near,
        "sleep and wake-up of a real-time thread on the same CPU, without the context switch",
    );
    put(
        "fifo_wake_far_ns",
        far,
        "sleep and wake-up of a real-time thread by another CPU, both CPUs busy",
    );
    put("fifo_switch_ns", switch, "context switch between two real-time threads (sched_yield)");
    let idle = micro::wake(clock, true)? - micro::wake(clock, false)?;
    put(
        "idle_exit_ns",
        idle,
        "additional time to wake a thread on an idle CPU, compared with one on the same CPU",
    );
    let mut runs = BTreeMap::<String, (Vec<f64>, String)>::new();
    for _ in 0..HOST_ROUNDS {
        progress.begin("operations on sockets");
        for (name, ns, source) in live::sockets::measure(clock, clock_ns)? {
            runs.entry(name).or_insert_with(|| (Vec::new(), source)).0.push(ns);
        }
    }
    let mut epoll = [0.0; 2];
    for (name, (mut runs, source)) in runs {
        // A difference of two measurements can be too small as well as too large: use the median.
        let ns = if name.starts_with("rps") { median(&mut runs) } else { least(runs) };
        for (epoll, known) in epoll.iter_mut().zip(["epoll_ns", "epoll_event_ns"]) {
            if name == known {
                *epoll = ns;
            }
        }
        put(&name, ns, &source);
    }
    let request = || {
        progress.begin("requests to memcached");
        live::memcached::request(clock, clock_ns, switch, epoll)
    };
    let ns = least((0..REQUESTS).map(|_| request()).collect::<anyhow::Result<Vec<_>>>()?);
    put(
        "memcached_request_ns",
        ns,
        "memcached's own processing of a request over a Unix socket, without system calls",
    );
    Ok(())
}

/// The model's stages, the step that each times, and the engine's stages that it consists of.
const STAGES: [(&str, &str, &[Span]); 6] = [
    (
        "rx",
        "receiving a frame, parsing it, and choosing its queue",
        &[Span::Rx, Span::Parse, Span::Steer, Span::Settle],
    ),
    ("enqueue", "putting a frame into its queue", &[Span::Enqueue]),
    ("dequeue", "taking a frame from its queue", &[Span::Dequeue]),
    ("work", "the work on a frame, of which there is none", &[Span::Work]),
    ("complete", "completing a frame in the queue's order", &[Span::Complete]),
    ("tx", "transmitting a frame", &[Span::Tx]),
];

fn sum(stages: &Stages, spans: &[Span]) -> f64 {
    spans.iter().filter_map(|&span| stages.ns_per_frame(span)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_reported_before_it_begins() {
        let steps = std::cell::RefCell::new(Vec::new());
        let watch = |name: &str, done, of| steps.borrow_mut().push((name.to_owned(), done, of));
        let wants = Wants { yard: false, host: false };
        let progress = Progress::new(&watch, wants, 15);
        progress.begin("a");
        progress.begin("b");
        let all = if crate::processors() > 1 { 5 } else { 3 };
        assert_eq!(*steps.borrow(), [("a".to_owned(), 0, all), ("b".to_owned(), 1, all)]);
        assert_eq!(Progress::new(&watch, Wants { yard: true, host: true }, 15).all, all + 15 + 9);
    }
}
