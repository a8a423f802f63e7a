//! The rate of 64-byte frames through one core, compared with the kernel's own forwarding, a bare
//! AF_XDP loop and DPDK's testpmd. This is a measurement, not a test:
//! `FLOWYARD_LIVE=1 cargo test --release -p flowyard-config --test interfaces rate -- --ignored --nocapture`
//!
//! ```text
//!  processor 0            processor 1                              processor 1
//!  a: generator [va] ──── [vb] m: the forwarder [vc] ────────── [vd] b: drops, counted
//!              └─ in the kernel, with vb's softirq: faster than any of them
//! ```
//!
//! The receive softirq of `vb` runs on the generator's processor. The kernel's own forwarding
//! happens in softirqs, so one processor does everything, and its cost includes the generator. The
//! work of `vd` is the same in all cases.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flowyard_frame::{FlowKey, proto};
use flowyard_ports::af_xdp::{Desc, Mode, Program, Rules, Settings, Socket};
use flowyard_ports::live::Interface;
use flowyard_report::{Cell, Column, Style, Table};
use flowyard_testkit::Build;

use crate::sys_bpf::{Blast, umem};
use flowyard_livekit::line::{Kind, Line, Plan};
use flowyard_livekit::net::{Net, alone};
use flowyard_livekit::sys;

flowyard_testkit::tests! {
    rate on_demand "a measurement",
}

const ROUNDS: usize = 3;

/// The program that forwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    Kernel,
    /// Sockets of our crate, and a loop that forwards frames.
    Bare,
    Yard(Kind),
    /// A kind of DPDK port.
    Testpmd(&'static str),
}

const ALL: [(&str, Who); 6] = [
    ("kernel forwarding", Who::Kernel),
    ("bare af_xdp loop", Who::Bare),
    ("testpmd, net_af_xdp", Who::Testpmd("net_af_xdp")),
    ("yard, af_xdp", Who::Yard(Kind::Xdp)),
    ("testpmd, net_af_packet", Who::Testpmd("net_af_packet")),
    ("yard, af_packet", Who::Yard(Kind::Packet)),
];

/// The number of packets that `name` received.
fn received(net: &Net, name: &str) -> u64 {
    let line = format!("sed -n 's/^ *{name}: *//p' /proc/thread-self/net/dev | awk '{{print $2}}'");
    net.sh(&line).trim().parse().unwrap()
}

/// The threads of process `of`, as directories.
fn tasks(of: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(format!("/proc/{of}/task")) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().path().to_str().unwrap().to_owned()).collect()
}

/// The processor time so far, in nanoseconds, of threads that are still running.
fn on_cpu(threads: &[String]) -> u64 {
    let one = |thread: &String| {
        let stat = fs::read_to_string(format!("{thread}/schedstat")).ok()?;
        stat.split_whitespace().next()?.parse::<u64>().ok()
    };
    threads.iter().filter_map(one).sum()
}

/// The results of one run.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Million frames per second that left, and that the generator had received by `vb`.
    rate: f64,
    offered: f64,
    /// Processor time for each frame that left, in nanoseconds.
    cost: f64,
}

/// Runs a loop from `vb` to `vc` without other processing, until `over`; in the namespace of both.
fn bare(over: &AtomicBool) {
    const PAGES: usize = 8192;
    let memory = umem(PAGES);
    let settings = Settings { mode: Mode::Copy, frames: 2048, multi_buffer: false };
    let [near, far] = ["vb", "vc"].map(|name| Interface::find(name).unwrap());
    let mut from = Socket::open(&near, 0, &memory, settings).unwrap();
    let mut to = Socket::open(&far, 0, &memory, settings).unwrap();
    let program = Program::attach(&near, &Rules::All, false, None).unwrap();
    let mut free: Vec<u64> = (0..PAGES as u64).map(|page| page * 4096).collect();
    let (mut descs, mut done) = ([Desc::default(); 64], [0; 64]);
    program.set(0, &from).unwrap();
    while !over.load(Ordering::Relaxed) {
        let room = from.fill_room().min(free.len());
        if room >= 64 {
            from.fill(&free.split_off(free.len() - room));
        }
        let most = to.tx_room().min(64);
        let count = from.receive(&mut descs[..most]);
        to.transmit(&descs[..count]);
        let _busy = to.wake().unwrap();
        loop {
            let count = to.complete(&mut done);
            free.extend(done[..count].iter().map(|addr| addr & !4095));
            if count < done.len() {
                break;
            }
        }
    }
}

/// Makes the kernel forward, in the generator's softirq.
fn kernel(m: &Net, elsewhere: &str) {
    m.sh(&format!(
        "echo 1 > /proc/sys/net/ipv4/ip_forward; ip addr add 10.7.0.1/24 dev vb; \
         ip addr add 10.9.0.254/24 dev vc; ip neigh add 10.9.0.2 lladdr {elsewhere} dev vc"
    ));
}

/// Sends for a while, and measures the output and the processor time of `threads`, or of the
/// generator if there are none.
fn measure(line: &Line, to: [u8; 6], threads: &[String]) -> Run {
    let [a, b] = [[10, 7, 0, 2], [10, 9, 0, 2]].map(std::net::IpAddr::from);
    let mut frame = Build::new(&FlowKey::five_tuple(proto::UDP, a, 1024, b, 53))
        .payload(&[0; 18]) // and the FCS: 64
        .bytes();
    frame[..6].copy_from_slice(&to);
    frame[40..42].fill(0); // the generator changes a port: no UDP checksum
    // Both sides are treated in the same way, so that other load of the machine is not measured.
    for thread in threads {
        let number = thread.rsplit('/').next().and_then(|number| number.parse().ok());
        sys::hurry(number.unwrap());
    }
    // If the scheduler shares time by session first, this is turned off during the measurement.
    let _without = fs::write("/proc/self/autogroup", "-10");
    let before = tasks("self");
    let over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&over);
    let generator = line.a.spawn(move || {
        sys::pin(0, 0);
        sys::hurry(0);
        let blast = Blast::new(Interface::find("va").unwrap().index, frame, 63).unwrap();
        while !stop.load(Ordering::Relaxed) {
            blast.send().unwrap();
        }
    });
    std::thread::sleep(Duration::from_millis(200));
    let added = tasks("self").into_iter().filter(|task| !before.contains(task));
    let generating: Vec<String> = added.collect();
    let threads = if threads.is_empty() { &generating } else { threads };
    let clock = crate::yard::clock();
    let m = line.yard();
    let look = || (received(&line.b, "vd"), received(m, "vb"), clock(), on_cpu(threads));
    let before = look();
    std::thread::sleep(Duration::from_millis(1000));
    let after = look();
    over.store(true, Ordering::Relaxed);
    generator.join().unwrap();
    let _without = fs::write("/proc/self/autogroup", "0");
    let (frames, time) = ((after.0 - before.0) as f64, (after.2 - before.2) as f64);
    Run {
        rate: frames * 1e3 / time,
        offered: (after.1 - before.1) as f64 * 1e3 / time,
        cost: (after.3 - before.3) as f64 / frames,
    }
}

fn one(who: Who) -> Run {
    let kind = if let Who::Yard(kind) = who { kind } else { Kind::Packet };
    let line = Line::new(Plan { yard: "pin = [1]\nidle = \"busy\"", ..Plan::of(kind) });
    let m = line.yard();
    // Frames from inside the kernel enter by NAPI.
    m.sh("ethtool -K vb gro on");
    line.b.sh("ip addr flush dev vd; echo 1 > /proc/sys/net/ipv6/conf/vd/disable_ipv6");
    // Not the address of the last host: its stack drops the frame at once.
    let elsewhere = [2, 0, 0, 0, 0, 0x0e];
    let own = &tasks("self");
    let new = || tasks("self").into_iter().filter(|task| !own.contains(task)).collect::<Vec<_>>();
    match who {
        Who::Kernel => {
            kernel(m, "02:00:00:00:00:0e");
            let mac = m.sh("ip -o link show vb | sed 's/.*ether \\([^ ]*\\).*/\\1/'");
            let bytes = mac.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap());
            let to: Vec<u8> = bytes.collect();
            measure(&line, to.try_into().unwrap(), &[])
        }
        Who::Bare => {
            let over = Arc::new(AtomicBool::new(false));
            let stop = Arc::clone(&over);
            let thread = m.spawn(move || {
                sys::pin(0, 1);
                bare(&stop);
            });
            std::thread::sleep(Duration::from_millis(200));
            let run = measure(&line, elsewhere, &new());
            over.store(true, Ordering::Relaxed);
            thread.join().unwrap();
            run
        }
        Who::Yard(_) => {
            let live = crate::yard::Live::on(&line);
            std::thread::sleep(Duration::from_millis(200));
            let run = measure(&line, elsewhere, &new());
            live.stop();
            run
        }
        Who::Testpmd(kind) => {
            let dir = tempfile::tempdir().unwrap();
            let port = |n: u8, name: &str| format!("--vdev {kind}{n},iface={name}");
            let line_of_shell = format!(
                "mount -t sysfs none /sys; exec dpdk-testpmd -l 0,1 --main-lcore 0 --no-huge -m 512 \
                 --no-pci --no-telemetry --file-prefix rate{} {} {} -- --forward-mode=io \
                 --nb-cores=1 --total-num-mbufs=16384 --auto-start -i",
                std::process::id(),
                port(0, "vb"),
                port(1, "vc")
            );
            let mut command = Command::new("unshare");
            command.args(["-m", "sh", "-c", &line_of_shell]).env("XDG_RUNTIME_DIR", dir.path());
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            sys::within(&mut command, &m.0);
            let mut child = command.spawn().unwrap();
            std::thread::sleep(Duration::from_millis(2500));
            let threads: Vec<String> = tasks(&child.id().to_string())
                .into_iter()
                .filter(|task| {
                    let name = fs::read_to_string(format!("{task}/comm")).unwrap_or_default();
                    name.contains("worker")
                })
                .collect();
            let run = measure(&line, elsewhere, &threads);
            let _gone = child.kill();
            child.wait().unwrap();
            run
        }
    }
}

fn rate() {
    let _alone = alone();
    let only = std::env::var("RATE_ONLY").unwrap_or_default();
    let load = || fs::read_to_string("/proc/loadavg").unwrap().trim().to_owned();
    let load_before = load();
    let mut all: BTreeMap<&str, Vec<Run>> = BTreeMap::new();
    let has_dpdk = Command::new("dpdk-testpmd").arg("--help").output().is_ok();
    for _ in 0..ROUNDS {
        for (name, who) in ALL {
            if !name.contains(&only) || matches!(who, Who::Testpmd(_)) && !has_dpdk {
                continue;
            }
            let run = one(who);
            flowyard_testkit::note!("  {name}: {run:.2?}");
            all.entry(name).or_default().push(run);
        }
    }
    let mut table = Table::new("64-byte frames through veth, one core")
        .column(Column::text("by"))
        .column(Column::number("out").unit("M/s"))
        .column(Column::number("least"))
        .column(Column::number("most"))
        .column(Column::number("offered").unit("M/s"))
        .column(Column::number("its core").unit("ns a frame"));
    for (name, _) in ALL {
        let Some(runs) = all.get(name) else { continue };
        let sorted = |of: fn(&Run) -> f64| {
            let mut values: Vec<f64> = runs.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let (rate, middle) = (sorted(|run| run.rate), runs.len() / 2);
        let two = |value: f64| Cell::new(format!("{value:.2}"));
        table.push([
            Cell::new(name),
            two(rate[middle]),
            two(rate[0]),
            two(rate[rate.len() - 1]),
            two(sorted(|run| run.offered)[middle]),
            Cell::new(format!("{:.0}", sorted(|run| run.cost)[middle])),
        ]);
    }
    let table = table.note(format!(
        "medians of {ROUNDS} rounds, rotated; load average {load_before} before, {} after",
        load()
    ));
    flowyard_testkit::note!("{}", table.to_text(&Style::plain()));
}
