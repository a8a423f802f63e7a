//! `flowyard steer`: steers the frames of an interface in the kernel, until it is stopped.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::ValueEnum;
use flowyard_flow::toeplitz::{MICROSOFT_KEY, SYMMETRIC_KEY};
use flowyard_report::{Cell, Column, Table};
use flowyard_steer::{
    Attached, BadPolicy, Counts, Error, Follow, GroupCounts, Happened, PinError, Policy,
    QUEUES_MOST, Reason, Ring, Scheduling, online_cpus,
};
use rustix::rand::{GetRandomFlags, getrandom};
use schemars::JsonSchema;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::args::{HashFunction, QuicArgs, UdpFields, rules_in};
use crate::host;
use crate::output::{self, style};
use crate::stop::{Stop, bad_input, failed};

mod daemon;
mod elephants;
mod pinned;
mod sockets;

use elephants::Elephants;
use sockets::{Groups, Shared};

/// Name and version of the JSON document; see docs/schema.
pub(crate) const SCHEMA: &str = "flowyard.steer/1";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard steer eth0
  flowyard steer eth0 --cpus 2,3,4,5 --inner
  flowyard steer eth0 --policy rfs
  flowyard steer eth0 --policy rfs --elephants --elephant-cpus 7
  flowyard steer eth0 --quic --sockets 1234:443
  flowyard steer eth0 --rules rules.txt --seconds 60 --json
  flowyard steer eth0 --policy atr --pin --metrics 9465
  flowyard steer eth0 --stop

An XDP program computes the queue of each frame, as an adapter with RSS and rules does, and the kernel receives the
frame on the CPU of that queue: queue 0 is the first CPU of --cpus, and so on. Programs need no change. Without --pin,
nothing is left behind when the command ends, also if it is killed. It needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, and Linux 5.15.

On a veth, the other end must compute its checksums: ethtool -K PEER tx off. Otherwise the kernel drops every
redirected TCP segment, because it takes the missing checksum for a wrong one.

With --pin, frames are steered on when the command ends, and the next start with --pin takes over without losing or
reordering frames; --stop ends that. While the command runs, 'flowyard show steer', 'flowyard top' and 'flowyard
trace FLOW' ask it.")]
pub(crate) struct Args {
    /// The interface
    #[arg(value_name = "IFACE")]
    interface: String,

    /// How frames are steered: rss (hash and table), rules (those of --rules first), atr (to the CPU that sends the
    /// flow's other direction) or rfs (to the CPU that reads the socket); the last two use rules first, if given,
    /// and rss for flows of which nothing is learned [default: rules if --rules is given, else rss]
    #[arg(long, value_name = "NAME")]
    policy: Option<PolicyName>,

    /// Rules, one for each line, as `ethtool -N` takes them; `action N` names a queue, -1 drops
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,

    /// For atr: one of N TCP segments that are sent teaches, besides every SYN
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    sample: u32,

    /// A flow that overloads its CPU gets a CPU of its own, in order: the least loaded one. SETTINGS has words of the
    /// yard's [elephants]: window_us, sample_every, samples_min, busy_high, waiting_frames, busy_low, promote, demote,
    /// patience, dwell_us, promoted_max, such as promote=0.5,dwell_us=5000000
    #[arg(long, value_name = "SETTINGS", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    elephants: Option<String>,

    /// For --elephants: the CPUs that such flows get, such as 6-7 [default: those of --cpus]
    #[arg(long, value_name = "LIST", requires = "elephants")]
    elephant_cpus: Option<String>,

    /// For atr, rfs and --elephants: flows move at once, and their frames may overtake each other
    #[arg(long)]
    unordered: bool,

    /// CPUs that receive, in the order of the queues, such as 2,3,6-9 [default: all that are online]
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,

    /// Length of the indirection table, which has all queues in turn
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=65536))]
    entries: u32,

    /// Queue numbers in the indirection table, separated by commas, such as 0,1,2,2; the list is repeated until the
    /// table is full [default: all queues in turn]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    indirection: Vec<u16>,

    /// Key of the hash: random, microsoft (the published test key), symmetric, or hex digits
    #[arg(long, value_name = "KEY", default_value = "random")]
    rss_key: String,

    /// Hash function
    #[arg(long, value_name = "NAME", default_value = "toeplitz")]
    rss_hash: HashFunction,

    /// Fields that are hashed for UDP: addresses (2-tuple), or addresses and ports (4-tuple)
    #[arg(long, value_name = "FIELDS", default_value = "4-tuple")]
    udp: UdpFields,

    /// Steer tunnelled frames (VXLAN, Geneve, GRE, IPIP, GTP-U, ...) by their inner headers
    #[arg(long)]
    inner: bool,

    /// Hash the home address and the type 2 routing header of IPv6 in place of the header's addresses
    #[arg(long)]
    ipv6_ex: bool,

    #[command(flatten)]
    quic: QuicArgs,

    /// Sockets of process PID, and of its descendants, that share PORT (SO_REUSEPORT): each packet goes to one whose
    /// thread runs on the CPU that processes the packet (may be repeated)
    #[arg(long, value_name = "PID:PORT", value_parser = sockets::shared)]
    sockets: Vec<Shared>,

    /// Number of frames that wait for a CPU at most; more are dropped
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..=16384))]
    queue_frames: u32,

    /// Scheduling of the kernel threads that receive the frames of each CPU: batch (they run when the program on the
    /// CPU waits or has used its time slice, which costs fewer context switches) or normal (they preempt the program,
    /// for the least latency beside programs that never wait)
    #[arg(long, value_name = "NAME", default_value = "batch")]
    ring_threads: RingThreads,

    /// Steer on when the command ends, and take over what an earlier start has pinned: in DIR, a folder of a BPF file
    /// system [default: /sys/fs/bpf/flowyard/IFACE]
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true)]
    #[allow(clippy::option_option, reason = "the option has an optional value")]
    pin: Option<Option<PathBuf>>,

    /// Remove what --pin has left: the programs, the flows and the counters
    #[arg(long, conflicts_with_all = ["policy", "rules", "cpus", "seconds", "json", "metrics"])]
    stop: bool,

    /// Path of the control socket for show, top and trace, or none [default: /run/flowyard/steer-IFACE.sock, or
    /// $XDG_RUNTIME_DIR/flowyard/steer-IFACE.sock for users other than root]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

    /// Serve metrics for Prometheus at this address; a port alone is one of 127.0.0.1
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,

    /// Stop after this many seconds [default: at SIGINT or SIGTERM]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,

    /// Print JSON (schema flowyard.steer/1) instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PolicyName {
    Rss,
    Rules,
    Atr,
    Rfs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RingThreads {
    Batch,
    Normal,
}

impl RingThreads {
    const fn scheduling(self) -> Scheduling {
        match self {
            Self::Batch => Scheduling::Batch,
            Self::Normal => Scheduling::Normal,
        }
    }
}

/// What was steered, from the start of the command to its end.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Steered {
    /// The interface.
    interface: String,
    /// Where in the receive path the program ran.
    attached: Attached,
    /// Time from attaching to the end, in seconds.
    seconds: f64,
    /// The folder of the pins; absent if the program ended with the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pins: Option<String>,
    /// The frames of each queue; with pins, since the program was first attached.
    queues: Vec<Counts>,
    /// The groups of sockets of `--sockets`.
    sockets: Vec<GroupCounts>,
    /// The ring of each CPU in the time of the command; absent if the kernel does not let programs see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    rings: Option<Vec<Ring>>,
    /// What learners and `settle` did.
    flows: Happened,
    /// What `--elephants` did in the time of the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    elephants: Option<Elephants>,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    if args.stop {
        return pinned::stop(args);
    }
    let mut policy = args.policy()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(failed("signals"))?;
    }
    let sockets = daemon::Sockets::open(args)?;
    let pins = pinned::open(args, &mut policy)?;
    let daemon = Arc::new(daemon::Daemon::start(args, &policy, pins)?);
    let mut groups = Groups::attach(&args.sockets)?;
    let _served = sockets.serve(&daemon)?;
    args.started(daemon.attached());
    let end = args.seconds.map_or(u64::MAX, |seconds| u64::from(seconds) * 1_000_000_000);
    let mut elephants = Elephants::default();
    while !stop.load(Ordering::Relaxed) && daemon.now() < end {
        std::thread::sleep(Duration::from_millis(20));
        for decision in daemon.watch().map_err(stopped)? {
            output::note(&decision.to_string());
            elephants.count(&decision);
        }
        groups.tend(daemon.now())?;
    }
    let mut steered = daemon.steered().map_err(stopped)?;
    steered.sockets = groups.counts()?;
    steered.elephants = args.elephants.is_some().then(|| elephants.with(daemon.elephants()));
    if args.json {
        return output::json(SCHEMA, &steered);
    }
    output::text(&text(&steered))
}

impl Args {
    /// Says that frames are steered now, and what is known to go wrong.
    fn started(&self, attached: Attached) {
        let name = &self.interface;
        if attached == Attached::Generic {
            let flows = match self.policy {
                Some(PolicyName::Atr | PolicyName::Rfs) => {
                    ", and flows do not follow their consumers"
                }
                _ if self.elephants.is_some() => ", and elephants stay where they are",
                _ => "",
            };
            output::note(&format!(
                "the driver of {name} has no XDP: the program runs after the driver, which is slower{flows}"
            ));
        }
        let state = host::read(name).ok();
        let driver = state.as_ref().and_then(|state| state.driver.value());
        if driver.is_some_and(|driver| driver.name == "veth") {
            output::note(&format!(
                "{name} is a veth: its other end must compute checksums (ethtool -K PEER tx off), or TCP to this host hangs"
            ));
        }
        let end = match self.pin {
            None => "Ctrl-C stops it".to_owned(),
            Some(_) => format!("it goes on after Ctrl-C; 'flowyard steer {name} --stop' stops it"),
        };
        output::note(&format!("steering the frames of {name}; {end}"));
    }

    fn policy(&self) -> Result<Policy, Stop> {
        let cpus = match &self.cpus {
            Some(list) => cpus(list, "--cpus")?,
            None => online_cpus().map_err(failed("reading which CPUs are online"))?,
        };
        let rules = match (self.policy, &self.rules) {
            (Some(PolicyName::Rss), Some(_)) => {
                return Err(bad_input(
                    "--policy rss has no rules; leave out --rules, or write --policy rules",
                ));
            }
            (Some(PolicyName::Rules), None) => {
                return Err(bad_input("--policy rules needs --rules FILE"));
            }
            (_, None) => Vec::new(),
            (_, Some(file)) => rules_in(&file.to_string_lossy(), "--rules FILE")?,
        };
        let mut policy = Policy::over(&cpus);
        let in_turn: Vec<u16> = (0..cpus.len() as u16).collect();
        let queues = if self.indirection.is_empty() { &in_turn } else { &self.indirection };
        policy.table = queues.iter().copied().cycle().take(self.entries as usize).collect();
        policy.key = self.key()?;
        policy.hfunc = self.rss_hash.model();
        policy.fields = self.udp.apply(policy.fields);
        policy.quic = self.quic.quic()?;
        policy.hashes_ipv6_ex = self.ipv6_ex;
        policy.follow = match self.policy {
            Some(PolicyName::Atr) => Some(Follow::Senders { sample: self.sample }),
            Some(PolicyName::Rfs) => Some(Follow::Readers),
            _ => None,
        };
        policy.elephants = self.elephants.as_deref().map(elephants::settings).transpose()?;
        if let (Some(settings), Some(list)) = (&mut policy.elephants, &self.elephant_cpus) {
            settings.cpus = self::cpus(list, "--elephant-cpus")?;
        }
        if let Some(settings) = &mut policy.elephants
            && settings.waiting_frames == 0
        {
            settings.waiting_frames = u64::from(self.queue_frames / 4).max(1);
        }
        if policy.follow.is_none() && policy.elephants.is_none() && self.unordered {
            return Err(bad_input(
                "--unordered is for --policy atr and rfs, and for --elephants: with others no flow moves",
            ));
        }
        let settles = !self.unordered;
        Ok(Policy { is_inner: self.inner, settles, rules, ..policy })
    }

    /// A policy that cannot be enforced. A rule has its place in the file.
    fn wrong(&self, error: BadPolicy) -> Stop {
        match (error, &self.rules) {
            (BadPolicy::Rule { line, what, fix }, Some(file)) => bad_input(format!(
                "{}:{line}: the rule cannot be enforced by XDP: {what}; {fix}",
                file.display()
            )),
            (error, _) => bad_input(error),
        }
    }

    fn key(&self) -> Result<Vec<u8>, Stop> {
        let text = self.rss_key.as_str();
        match text {
            "microsoft" => return Ok(MICROSOFT_KEY.to_vec()),
            "symmetric" => return Ok(SYMMETRIC_KEY[..40].to_vec()),
            "random" => {
                let mut key = vec![0; 40];
                let drawn = getrandom(&mut key, GetRandomFlags::empty());
                return match drawn {
                    Ok(40) => Ok(key),
                    _ => Err(Stop::Failed(anyhow::anyhow!("the system gives no random numbers"))),
                };
            }
            _ => {}
        }
        let digits: String = text.chars().filter(|c| *c != ':').collect();
        let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        let key: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
        key.ok_or_else(|| {
            bad_input(format!(
                "--rss-key: must be random, microsoft, symmetric or hex digits, not '{text}'"
            ))
        })
    }
}

/// The numbers in a list such as `2,3,6-9`.
fn cpus(list: &str, option: &str) -> Result<Vec<u32>, Stop> {
    let wrong = || {
        bad_input(format!("{option}: must be numbers and ranges, such as 2,3,6-9, not '{list}'"))
    };
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
        let (first, last) = (number(first)?, number(last)?);
        if first > last || (last - first) as usize >= QUEUES_MOST {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

/// Bad input, or a failure of the system.
fn stopped(error: Error) -> Stop {
    match error {
        Error::Pin(PinError::Io { .. }) => Stop::Failed(error.into()),
        Error::Policy(_)
        | Error::NoInterface(_)
        | Error::Cpu { .. }
        | Error::Mtu { .. }
        | Error::Pin(_) => bad_input(error),
        error => Stop::Failed(error.into()),
    }
}

fn text(steered: &Steered) -> String {
    let mut table = Table::new("")
        .column(Column::number("queue"))
        .column(Column::number("CPU"))
        .column(Column::number("frames"))
        .column(Column::number("bytes"));
    for reason in Reason::ALL {
        table = table.column(Column::number(reason.name()));
    }
    for queue in &steered.queues {
        let cpu = queue.cpu.map_or_else(|| "-".to_owned(), |cpu| cpu.to_string());
        let all: u64 = queue.frames.values().sum();
        let mut cells =
            vec![queue.queue.to_string(), cpu, all.to_string(), queue.bytes.to_string()];
        let of = |reason| queue.frames.get(&reason).copied().unwrap_or_default().to_string();
        cells.extend(Reason::ALL.map(of));
        table.push(cells.into_iter().map(Cell::new));
    }
    let dropped = |ring: &&Ring| ring.dropped > 0;
    let dropped = steered.rings.iter().flatten().filter(dropped).map(|ring| {
        let Ring { cpu, dropped, .. } = ring;
        format!(
            "CPU {cpu}: {dropped} frames found its ring full and were dropped (--queue-frames)\n"
        )
    });
    let rings: String = dropped.collect();
    let own: String = steered.elephants.iter().map(ToString::to_string).collect();
    let [queues, sockets] = [table.to_text(&style()), sockets::text(&steered.sockets)];
    format!("{}: {:.1} s\n\n{queues}{rings}{own}{sockets}", steered.interface, steered.seconds)
}
