//! What a frame costs where XDP answers it (`[offload] xdp = true`), beside the yard and the kernel. These are
//! measurements, not tests; [`kth`] and [`dnat`] have the commands.
//!
//! ```text
//!  processor 0                 processor 1                                       processor 0
//!  a: generator [va] ────────> [vb] m: NAPI thread of vb, the yard's core [vc] ──> [vd] b: dropped by XDP, counted
//!       (in the kernel)             = the device
//! ```
//!
//! The interfaces `vb` and `vd` receive on kernel threads (threaded NAPI), so that the scheduler counts the device's
//! softirq time apart from the tester's. The cost of a frame is the time of the NAPI thread for each frame that it
//! received, and that of the yard's threads for each frame that left. Each way has new interfaces in every round.
//!
//! The time of the XDP program alone is that of the kernel's run-time statistics (`kernel.bpf_stats_enabled`), which are
//! switched on for a part of a run of their own, because they cost time themselves.

mod dnat;
mod kth;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flowyard_ports::af_packet::Sender;
use flowyard_ports::live::Interface;
use flowyard_report::{Cell, Column, Style, Table};

use crate::sys_bpf::{Blast, Sink};
use flowyard_livekit::line::{Kind, Line, Plan};
use flowyard_livekit::net::Net;
use flowyard_livekit::sys;
use flowyard_testkit::harness::Need;

flowyard_testkit::tests! {
    mod kth,
    mod dnat needs [Need::Program("nft")],
}

/// The hosts, with what receives at their end.
struct Lab {
    line: Line,
    _sink: Sink,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// Million frames a second that left, and that the device's interface received.
    rate: f64,
    offered: f64,
    /// Nanoseconds a frame: of the NAPI thread for each frame that it received, and of the yard for each that left.
    softirq: f64,
    yard: f64,
    /// Nanoseconds of a run of the program in front, by the kernel's statistics; 0 if there is none.
    program: f64,
}

/// A value of a run.
type Of = fn(&Run) -> f64;
/// A way: its name, and what runs it.
type Way<'a> = (&'static str, &'a dyn Fn() -> Run);

/// The values of a run with their names in the output.
const VALUES: [(&str, Of); 6] = [
    ("device_ns", |run| run.softirq + run.yard),
    ("softirq_ns", |run| run.softirq),
    ("yard_ns", |run| run.yard),
    ("program_ns", |run| run.program),
    ("out_mpps", |run| run.rate),
    ("offered_mpps", |run| run.offered),
];

impl Lab {
    fn new() -> Self {
        let line = Line::new(Plan::of(Kind::Xdp));
        for (net, name) in [(&line.a, "va"), (line.yard(), "vb"), (&line.b, "vd")] {
            net.sh(&format!(
                "ip addr flush dev {name}; echo 1 > /proc/sys/net/ipv6/conf/{name}/disable_ipv6; \
                 ethtool -K {name} gro on"
            ));
        }
        let sink = line.b.within(|| Sink::new(Interface::find("vd").unwrap().index).unwrap());
        Self { line, _sink: sink }
    }

    /// Makes the interfaces receive on threads; returns that of the device, as a directory.
    fn threads(&self) -> Vec<String> {
        let threaded = |net: &Net, name: &str| {
            let before = kernel_threads(name);
            net.sh(&format!(
                "unshare -m sh -c 'mount -t sysfs none /sys; echo 1 > /sys/class/net/{name}/threaded'"
            ));
            let mut new = kernel_threads(name);
            new.retain(|pid| !before.contains(pid));
            assert!(!new.is_empty(), "{name} has no NAPI thread");
            new
        };
        let own = threaded(self.line.yard(), "vb");
        // The tester drops frames before it generates others.
        for pid in threaded(&self.line.b, "vd") {
            sys::pin(pid, 0);
            sys::first(pid);
        }
        own.iter().for_each(|pid| sys::pin(*pid, 1));
        own.iter().map(|pid| format!("/proc/{pid}")).collect()
    }

    /// Sends frames from `net` by `name`, not faster than they are received.
    fn send(net: &Net, name: &'static str, frames: Vec<Vec<u8>>) {
        net.within(move || {
            let mut sender = Sender::open(&Interface::find(name).unwrap(), false).unwrap();
            for some in frames.chunks(64) {
                let mut some = some;
                while !some.is_empty() {
                    // A frame that finds the ring of the other end full is refused, and sent again.
                    let (sent, _full) = sender.send(some.iter().map(|frame| &frame[..]));
                    some = &some[sent..];
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        });
    }

    /// Sends `frame` as fast as possible, from the source ports in `ports`, and measures the device: the threads of its
    /// softirq and of its yard.
    fn measure(&self, frame: Vec<u8>, ports: u8, softirq: &[String], yard: &[String]) -> Run {
        let _without = fs::write("/proc/self/autogroup", "-10");
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let generator = self.line.a.spawn(move || {
            sys::pin(0, 0);
            let index = Interface::find("va").unwrap().index;
            let blast = Blast::new(index, frame, ports).unwrap();
            while !stop.load(Ordering::Relaxed) {
                blast.send().unwrap();
            }
        });
        std::thread::sleep(Duration::from_millis(200));
        let m = self.line.yard();
        let clock = crate::yard::clock();
        let look = || {
            let (out, offered) = (received(&self.line.b, "vd"), received(m, "vb"));
            (out, offered, clock(), on_cpu(softirq), on_cpu(yard))
        };
        let before = look();
        std::thread::sleep(Duration::from_millis(800));
        let after = look();
        let program = Statistics::during(|| std::thread::sleep(Duration::from_millis(200)));
        over.store(true, Ordering::Relaxed);
        generator.join().unwrap();
        let _without = fs::write("/proc/self/autogroup", "0");
        let (out, offered) = ((after.0 - before.0) as f64, (after.1 - before.1) as f64);
        let time = (after.2 - before.2) as f64;
        Run {
            rate: out * 1e3 / time,
            offered: offered * 1e3 / time,
            softirq: (after.3 - before.3) as f64 / offered,
            yard: (after.4 - before.4) as f64 / out,
            program,
        }
    }
}

/// The number of packets that `name` received.
fn received(net: &Net, name: &'static str) -> u64 {
    let all = net.within(|| fs::read_to_string("/proc/thread-self/net/dev").unwrap());
    let line = all.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
    line.unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The threads of the kernel that receive on interfaces of this name.
fn kernel_threads(interface: &str) -> Vec<i32> {
    let name = format!("napi/{interface}-");
    let pid = |entry: std::io::Result<fs::DirEntry>| {
        let pid = entry.ok()?.file_name().to_str()?.parse::<i32>().ok()?;
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        comm.starts_with(&name).then_some(pid)
    };
    fs::read_dir("/proc").unwrap().filter_map(pid).collect()
}

/// The threads of this process, as directories.
fn tasks() -> Vec<String> {
    let entries = fs::read_dir("/proc/self/task").unwrap();
    entries.map(|entry| entry.unwrap().path().to_str().unwrap().to_owned()).collect()
}

/// The processor time so far, in nanoseconds.
fn on_cpu(threads: &[String]) -> u64 {
    let one = |thread: &String| {
        let stat = fs::read_to_string(format!("{thread}/schedstat")).ok()?;
        stat.split_whitespace().next()?.parse::<u64>().ok()
    };
    threads.iter().filter_map(one).sum()
}

/// The kernel's statistics of programs, switched on until this is dropped.
struct Statistics(String);

const ENABLED: &str = "/proc/sys/kernel/bpf_stats_enabled";

impl Statistics {
    /// The nanoseconds of a run of this process's busiest XDP program while `what` runs; 0 if there is none. The busiest
    /// one includes what it calls at its end.
    fn during(what: impl FnOnce()) -> f64 {
        let on = Self(fs::read_to_string(ENABLED).unwrap());
        fs::write(ENABLED, "1").unwrap();
        let before = runs();
        what();
        let after = runs();
        drop(on);
        let new = after.iter().map(|(program, (time, runs))| {
            let (old, ran) = before.get(program).copied().unwrap_or_default();
            (runs - ran, time - old)
        });
        new.max()
            .filter(|(runs, _)| *runs > 0)
            .map_or(0.0, |(runs, time)| time as f64 / runs as f64)
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        let _as_it_was = fs::write(ENABLED, self.0.trim());
    }
}

/// The time and the number of the runs of this process's XDP programs, by their number; not those of the tester.
fn runs() -> BTreeMap<u64, (u64, u64)> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir("/proc/self/fdinfo").unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
            line?.trim().parse::<u64>().ok()
        };
        // XDP programs that look something up: the generator and the sink do not, and are short.
        let is_ours = value("prog_type") == Some(6) && value("verified_insns") > Some(100);
        if let (true, Some(id)) = (is_ours, value("prog_id")) {
            all.insert(id, (value("run_time_ns").unwrap_or(0), value("run_cnt").unwrap_or(0)));
        }
    }
    all
}

/// The number of rounds: `FLOWYARD_ROUNDS`, or 7.
fn rounds() -> usize {
    std::env::var("FLOWYARD_ROUNDS").map_or(7, |rounds| rounds.parse().unwrap())
}

/// The ratio of two ways: its name, and their places.
type Pair = (&'static str, usize, usize);

/// Runs each way once a round, beginning with another one each time. Prints medians and extremes, and for each pair the
/// medians of the ratios by round; writes all values as JSON to the file that `FLOWYARD_JSON` names.
fn rounds_of(what: &str, ways: &[Way<'_>], pairs: &[Pair]) {
    let load = || fs::read_to_string("/proc/loadavg").unwrap().trim().to_owned();
    let (before, count) = (load(), rounds());
    let mut all: Vec<Vec<Run>> = vec![Vec::new(); ways.len()];
    for round in 0..count {
        for at in 0..ways.len() {
            let at = (at + round) % ways.len();
            let run = ways[at].1();
            flowyard_testkit::note!("  {}: {run:.2?}", ways[at].0);
            all[at].push(run);
        }
    }
    let mut table = Table::new(what.to_owned()).column(Column::text("by"));
    for (name, _) in VALUES {
        table = table.column(Column::number(name));
    }
    for ((name, _), runs) in ways.iter().zip(&all) {
        let cells = VALUES.iter().map(|(_, of)| {
            let (median, least, most) = spread(values(runs, *of));
            let digits = usize::from(most < 20.0) * 2;
            Cell::new(format!("{median:.digits$} ({least:.digits$} to {most:.digits$})"))
        });
        table.push([Cell::new(*name)].into_iter().chain(cells).collect::<Vec<_>>());
    }
    let note = format!(
        "medians of {count} rounds, rotated; load average {before} before, {} after",
        load()
    );
    flowyard_testkit::note!("{}", table.note(note).to_text(&Style::plain()));
    for (name, one, other) in pairs {
        let told: Vec<String> = VALUES
            .iter()
            .map(|(key, of)| {
                let (median, least, most) = spread(ratios(&all[*one], &all[*other], *of));
                format!("{key} {median:.3} ({least:.3} to {most:.3})")
            })
            .collect();
        flowyard_testkit::note!("{name}, by round: {}", told.join(", "));
    }
    if let Some(file) = std::env::var_os("FLOWYARD_JSON") {
        fs::write(file, json(what, ways, &all, pairs)).unwrap();
    }
}

/// The ratios of a value of two ways, by round; without rounds in which there is none.
fn ratios(one: &[Run], other: &[Run], of: Of) -> Vec<f64> {
    let all = one.iter().zip(other).map(|(one, other)| of(one) / of(other));
    all.filter(|ratio| ratio.is_finite()).collect()
}

/// The median, the least and the greatest value.
fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |at: usize| values.get(at).copied().unwrap_or(0.0);
    (at(values.len() / 2), at(0), at(values.len().saturating_sub(1)))
}

fn values(runs: &[Run], of: Of) -> Vec<f64> {
    runs.iter().map(of).collect()
}

/// A value as JSON: the median, the extremes, and all rounds.
fn value(key: &str, rounds: Vec<f64>) -> String {
    let list: Vec<String> = rounds.iter().map(|one| format!("{one:.3}")).collect();
    let (median, least, most) = spread(rounds);
    format!(
        "\"{key}\": {{\"median\": {median:.3}, \"least\": {least:.3}, \"most\": {most:.3}, \"rounds\": [{}]}}",
        list.join(", ")
    )
}

fn json(what: &str, ways: &[Way<'_>], all: &[Vec<Run>], pairs: &[Pair]) -> String {
    let way = |((name, _), runs): (&Way<'_>, &Vec<Run>)| {
        let values = VALUES.iter().map(|(key, of)| value(key, values(runs, *of)));
        format!("{{\"way\": \"{name}\", {}}}", values.collect::<Vec<_>>().join(", "))
    };
    let pair = |(name, one, other): &Pair| {
        let values =
            VALUES.iter().map(|(key, of)| value(key, ratios(&all[*one], &all[*other], *of)));
        format!("{{\"ratio\": \"{name}\", {}}}", values.collect::<Vec<_>>().join(", "))
    };
    let ways: Vec<String> = ways.iter().zip(all).map(way).collect();
    let pairs: Vec<String> = pairs.iter().map(pair).collect();
    format!(
        "{{\"schema\": \"flowyard.live-fronted/1\", \"what\": \"{what}\",\n \"ways\": [\n  {}\n],\n \
         \"ratios\": [\n  {}\n]}}\n",
        ways.join(",\n  "),
        pairs.join(",\n  ")
    )
}
