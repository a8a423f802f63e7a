//! Measures what basic operations cost on this machine, as a profile for the models of `hostsim`.
//!
//! Each micro-benchmark measures one operation: the transfer of a cache line, a system call, a wake-up,
//! the engine's stages on one core and with a hand-off to a second one. The engine does no work here; the
//! models predict its rates with work.
//!
//! ```text
//!  look: quiet? ─> round 0: basic, stages, sockets ─> look ─> round 1: the same ─> look ... ─> medians, intervals
//! ```
//!
//! Every round measures every operation, so that what disturbs a part of the time disturbs all of them. A constant is the
//! median of the rounds.

use std::cell::Cell;
use std::fs;
use std::time::Duration;

use flowyard_hostsim::{Machine, Profile};
use flowyard_yard::{Clock, Span, Stages};

use self::quiet::{Look, Speeds};
use self::samples::Samples;
use crate::live;
use crate::live::memcached::Mix;
use crate::live::threads::Policy;
use crate::load;
use crate::load::clients::THREADS;
use crate::load::protocol::Records;
use crate::memcached::{KEY, VALUE};
use crate::rounds::{Case, Load, Round, Source};

mod micro;
mod quiet;
mod samples;

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
    /// Repetitions of each measurement; the median is used.
    pub rounds: usize,
    /// Duration of each run of the engine.
    pub time: Duration,
    /// Whether to measure on a machine that is not quiet, too.
    pub force: bool,
}

impl Default for Effort {
    fn default() -> Self {
        Self { rounds: 15, time: Duration::from_millis(60), force: false }
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
        let each = 1 + usize::from(wants.yard);
        let host = if wants.host { HOST_STEPS * rounds.min(HOST_ROUNDS) } else { 0 };
        Self { watch, done: Cell::new(0), all: 1 + each * rounds + host }
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
/// When the machine is not quiet, unless that is forced; when a thread cannot be pinned, a socket or process fails,
/// or a run of the engine does not balance.
pub fn profile(
    wants: Wants,
    effort: Effort,
    when: &str,
    clock: &Clock,
    watch: Watch<'_>,
) -> anyhow::Result<Profile> {
    let wants = Wants { host: wants.host && live::obstacle().is_none(), ..wants };
    let progress = Progress::new(watch, wants, effort.rounds);
    let look = || Look::now(clock);
    let (samples, disturbed, speeds) =
        measure(wants, effort, clock, &progress, quiet::BEFORE, &look)?;
    let processors = crate::processors();
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
        ("rounds", effort.rounds.to_string()),
        ("values", values(speeds)),
    ];
    Ok(Profile {
        name: "here".to_owned(),
        title: format!("{model}, {processors} processors"),
        disturbed,
        machine: Machine { sockets: 1, cores: processors.clamp(1, 128) as u16, threads: 1 },
        about: about.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        constants: samples.constants(speeds),
    })
}

/// What values and intervals are, in words.
fn values(speeds: Option<Speeds>) -> String {
    let mut words = "medians of the rounds; intervals of the median by order statistics".to_owned();
    if let Some(Speeds { fast, slow }) = speeds {
        words += &format!(
            ", widened to {fast:.2} and {slow:.2} times the value, because the speed of the processors changed by that"
        );
    }
    words
}

/// Looks at the machine.
type Looking<'a> = &'a dyn Fn() -> anyhow::Result<Look>;

/// The rounds, and what disturbed them. Refuses a machine that is not quiet in the time `before` or in the rounds.
fn measure(
    wants: Wants,
    effort: Effort,
    clock: &Clock,
    progress: &Progress<'_>,
    before: Duration,
    look: Looking<'_>,
) -> anyhow::Result<(Samples, Vec<String>, Option<Speeds>)> {
    progress.begin("looking whether the machine is quiet");
    let mut looks = vec![look()?];
    std::thread::sleep(before);
    looks.push(look()?);
    let refuse = |when: &str, disturbed: &[String]| {
        anyhow::ensure!(
            effort.force || disturbed.is_empty(),
            "the machine is not quiet: {when}, {}; end other programs and calibrate again, or use --force to measure \
             nevertheless, which the profile records",
            disturbed.join("; ")
        );
        Ok(())
    };
    let idle = quiet::disturbances(&looks);
    refuse("before the measurement", &idle)?;
    let (mut samples, rounds) = (Samples::default(), effort.rounds);
    looks.drain(..1);
    for round in 0..rounds {
        progress.begin("basic operations");
        let basic = basic(&mut samples, clock)?;
        if wants.yard {
            progress.begin("the engine's stages");
            yard(&mut samples, effort.time, clock)?;
        }
        // As many rounds as needed for an interval, spread over all.
        let host_rounds = HOST_ROUNDS.min(rounds);
        if wants.host && round * host_rounds / rounds != (round + 1) * host_rounds / rounds {
            host(&mut samples, &basic, clock, progress)?;
        }
        looks.push(look()?);
    }
    let working = quiet::disturbances(&looks);
    refuse("during the measurement", &working)?;
    let told = |when: &str, found: Vec<String>| {
        let told = found.into_iter().map(|what| format!("{when}, {what}"));
        told.collect::<Vec<_>>()
    };
    let disturbed = [told("before", idle), told("during the measurement", working)].concat();
    Ok((samples, disturbed, quiet::speeds(&looks)))
}

/// Costs of a round that others are computed from, in nanoseconds.
struct Basic {
    clock: f64,
    syscall: f64,
    /// Waking a thread on an idle CPU, compared with one on the same CPU; 0 with one CPU.
    idle_exit: f64,
}

/// One round of the basic operations.
fn basic(samples: &mut Samples, clock: &Clock) -> anyhow::Result<Basic> {
    let clock_ns = micro::clock(clock);
    samples.add("clock_ns", clock_ns, "reading the clock");
    let syscall = micro::syscall(clock);
    samples.add("syscall_ns", syscall, "getppid");
    let near = micro::wake(clock, false)?;
    samples.add(
        "wake_near_ns",
        near,
        "wake-up of a thread by another on the same CPU over a pipe (half a round trip)",
    );
    let mut far = near;
    if crate::processors() > 1 {
        samples.add(
            "line_socket_ns",
            micro::line(clock)?,
            "transfer of one cache line between CPUs 0 and 1 (half a round trip)",
        );
        far = micro::wake(clock, true)?;
        samples.add(
            "wake_far_ns",
            far,
            "wake-up of a thread on CPU 1 by one on CPU 0 over a pipe (half a round trip): write, wake, switch, read",
        );
    }
    Ok(Basic { clock: clock_ns, syscall, idle_exit: far - near })
}

/// One round of the engine's stages, without work.
fn yard(samples: &mut Samples, time: Duration, clock: &Clock) -> anyhow::Result<()> {
    let near = case(1, vec![0]).urgent(time, clock)?.0;
    let many = Case { flows: FLOWS, ..case(1, vec![0]) }.urgent(time, clock)?.0;
    let far = match crate::processors() {
        0 | 1 => None,
        _ => Some(case(2, vec![1]).urgent(time, clock)?.0),
    };
    let mut stages = |prefix: &str, round: &Round, what: &str| {
        let mut all = 0.0;
        for (name, step, spans) in STAGES {
            let ns = sum(&round.stages, spans);
            samples.add(&format!("{prefix}_{name}_ns"), ns, &format!("{step}: {what}"));
            all += ns;
        }
        all
    };
    if let Some(far) = &far {
        stages(
            "yard_far",
            far,
            "the engine, ordered queue, one flow, no work, passed to a second core",
        );
    }
    let all = stages("yard", &near, "the engine on one core, ordered queue, one flow, no work");
    // Stages plus rest is the time per frame. Differences are those of one round, so that what slows a round down
    // is not taken for a cost.
    let frame = |round: &Round| 1e9 / round.pps.max(1.0);
    samples.add(
        "yard_rest_ns",
        frame(&near) - all,
        "the engine on one core: time per frame by its rate, minus the sum of its stages",
    );
    samples.add(
        "yard_flows_ns",
        frame(&many) - frame(&near),
        "the engine on one core: time per frame with 1,100 flows minus that with one flow",
    );
    samples.add(
        "yard_lookup_ns",
        crate::figures::lookup::exact_ns(FLOWS as usize, clock)?,
        "one lookup in an exact table of 1,100 entries, timed alone",
    );
    Ok(())
}

/// Number of flows in the cases with many flows.
pub(crate) const FLOWS: u64 = 1100;

/// Repetitions of the measurements of sockets, threads and memcached, which take longer: as many as the interval of
/// a median needs, and one more.
const HOST_ROUNDS: usize = 7;

/// Steps of each of them.
const HOST_STEPS: usize = 4;

/// One round of sockets, threads and memcached.
fn host(
    samples: &mut Samples,
    basic: &Basic,
    clock: &Clock,
    progress: &Progress<'_>,
) -> anyhow::Result<()> {
    progress.begin("real-time threads");
    let [near, far, switch] = live::threads::measure(clock, Policy::Fifo, basic.syscall)?;
    samples.add(
        "fifo_wake_near_ns",
        near,
        "sleep and wake-up of a real-time thread on the same CPU, without the context switch",
    );
    samples.add(
        "fifo_wake_far_ns",
        far,
        "sleep and wake-up of a real-time thread by another CPU, both CPUs busy",
    );
    samples.add(
        "fifo_switch_ns",
        switch,
        "context switch between two real-time threads (sched_yield)",
    );
    samples.add(
        "idle_exit_ns",
        basic.idle_exit,
        "additional time to wake a thread on an idle CPU, compared with one on the same CPU",
    );
    progress.begin("operations on sockets");
    let mut epoll = [0.0; 2];
    for (name, ns, source) in live::sockets::measure(clock, basic.clock)? {
        for (epoll, known) in epoll.iter_mut().zip(["epoll_ns", "epoll_event_ns"]) {
            if name == known {
                *epoll = ns;
            }
        }
        samples.add(&name, ns, &source);
    }
    progress.begin("requests to memcached");
    samples.add(
        "memcached_request_ns",
        live::memcached::request(clock, basic.clock, switch, epoll, None)?,
        "memcached's own processing of a request over a Unix socket, without system calls",
    );
    progress.begin("an open loop");
    open(samples, basic, clock, switch, epoll)
}

/// One round of what `flowyard bench memcached` has and the closed loop has not: ordinary threads, a generator that waits
/// for times, and memcached with many keys.
fn open(
    samples: &mut Samples,
    basic: &Basic,
    clock: &Clock,
    switch: f64,
    epoll: [f64; 2],
) -> anyhow::Result<()> {
    let records = Records { keys: KEYS, key_bytes: KEY, value_bytes: VALUE };
    let ask = "sleep and wake-up of an ordinary thread";
    let [near, far, fair] = live::threads::measure(clock, Policy::Fair, basic.syscall)?;
    let [poll, timer] = live::threads::polls(clock, basic.clock, switch)?;
    let armed = live::threads::armed(clock)?;
    let idle = live::threads::idle(clock, basic.clock)?;
    let own = load::own::measure(records, SETS, CONNECTIONS / THREADS, clock)?;
    let mix = Some(Mix { records, sets: SETS });
    let keys = live::memcached::request(clock, basic.clock, switch, epoll, mix)?;
    let slice = live::threads::slice(clock)?;
    let of = |what: &str| format!("the generator of `flowyard bench memcached`: {what}");
    for (name, ns, source) in [
        ("fair_wake_near_ns", near, format!("{ask} on the same CPU, without the context switch")),
        ("fair_wake_far_ns", far, format!("{ask} by another CPU, both CPUs busy")),
        ("fair_switch_ns", fair, "context switch between two ordinary threads (sched_yield)".into()),
        ("fair_slice_ns", slice, "time that an ordinary thread runs while another waits".into()),
        ("ppoll_ns", poll, "ppoll on an epoll set without events, without waiting".into()),
        ("ppoll_armed_ns", armed, "ppoll that an event ends before a timer: what it adds to sleep and wake-up".into()),
        ("ppoll_timer_ns", timer, "ppoll that a timer ends, on the CPU that it interrupts".into()),
        ("idle_wake_ns", idle.wake, "write that wakes an ordinary thread on an idle CPU, less one that wakes nobody".into()),
        ("idle_wake_latency_ns", idle.run, "from the beginning of that write until the thread has read".into()),
        ("idle_poll_ns", idle.poll, "CPU time of a ppoll that a timer ends on an idle CPU".into()),
        ("idle_timer_latency_ns", idle.timer, "from the time of that timer until that ppoll returns".into()),
        ("generator_ask_ns", own.ask, of("building a request, without system calls")),
        ("generator_take_ns", own.take, of("checking an answer, without system calls")),
        ("generator_turn_ns", own.turn, of("a turn of its loop without requests and system calls")),
        (
            "memcached_keys_ns",
            keys,
            "as memcached_request_ns, for random ones of 500,000 keys with 64 bytes, 1 of 31 stored"
                .into(),
        ),
    ] {
        samples.add(name, ns, &source);
    }
    Ok(())
}

/// The load of `flowyard bench memcached` without options.
const KEYS: u64 = 500_000;
const SETS: f64 = 1.0 / 31.0;
const CONNECTIONS: usize = 120;

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
        assert_eq!(*steps.borrow(), [("a".to_owned(), 0, 16), ("b".to_owned(), 1, 16)]);
        let all = |rounds| Progress::new(&watch, Wants { yard: true, host: true }, rounds).all;
        assert_eq!((all(15), all(2)), (1 + 30 + 28, 1 + 4 + 8));
    }

    /// Two processors with 1,000 ticks between two looks, of which others use `others`.
    fn measured(others: [u64; 3], force: bool) -> (anyhow::Result<Vec<String>>, usize) {
        let (count, steps) = (Cell::new(0), Cell::new(0));
        let look = || {
            let n = count.replace(count.get() + 1);
            let ticks = [0, 0, 0, 1000 * n as u64, 0, 0, 0, 0];
            Ok(Look { ticks, others: others[n], spins: vec![1.0] })
        };
        let watch = |_: &str, _, _| steps.set(steps.get() + 1);
        let wants = Wants { yard: false, host: false };
        let progress = Progress::new(&watch, wants, 1);
        let effort = Effort { rounds: 1, force, ..Effort::default() };
        // A clock that only its readings advance.
        let time = std::sync::atomic::AtomicU64::new(0);
        let clock: Clock =
            std::sync::Arc::new(move || time.fetch_add(30, std::sync::atomic::Ordering::Relaxed));
        let done = measure(wants, effort, &clock, &progress, Duration::ZERO, &look);
        let disturbed = done.map(|(samples, disturbed, _)| {
            assert!(samples.constants(None).contains_key("syscall_ns"));
            disturbed
        });
        (disturbed, steps.get())
    }

    #[test]
    fn a_machine_that_is_not_quiet_is_refused_unless_that_is_forced() {
        assert_eq!(measured([0, 10, 20], false).0.unwrap(), [""; 0]);
        // Before: nothing is measured.
        let (refused, steps) = measured([0, 302, 302], false);
        let told = refused.unwrap_err().to_string();
        assert!(told.contains("before the measurement, other programs used 30.0 %"), "{told}");
        assert!(told.contains("--force") && steps == 1, "{steps}: {told}");
        // During: what was measured is not returned.
        let told = measured([0, 0, 302], false).0.unwrap_err().to_string();
        assert!(told.contains("during the measurement, other programs used 30.0 %"), "{told}");
        let forced = measured([0, 302, 604], true).0.unwrap();
        assert_eq!(forced.len(), 2);
        assert!(forced[0].starts_with("before, ") && forced[1].starts_with("during the"));
    }
}
