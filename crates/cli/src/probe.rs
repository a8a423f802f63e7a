//! `flowyard prove --probe`: sends frames of chosen flows to an interface, and compares where they come with the
//! prediction.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use flowyard_frame::{FlowKey, Nanos};
use flowyard_host::probe::{self, Counted, Landed, Probe, ROUNDS, Round};
use flowyard_host::{
    Card, Here, Machine as _, Outlet, Proof, Sampler, Seen, State, addresses, settings_of,
};
use flowyard_ports::live::mac_address;

use crate::stop::{Stop, bad_input, failed};
use crate::{host, live, plan, prove};

/// Frames that are sent one after the other before a pause, and that pause: a slow receiver loses none.
const BURST: u64 = 8;
const PAUSE: Duration = Duration::from_millis(1);

/// How long a round waits for its frames, and for the driver's counters, which some drivers update each second.
const ARRIVAL: Nanos = 200_000_000;
const COUNTERS: Nanos = 1_500_000_000;

#[derive(clap::Args)]
pub(crate) struct Probes {
    /// Send probes: 'entries' (a flow for each entry of the indirection table), a plan (for the entries that it
    /// changes), a file with a flow in each line, or a flow (may be repeated)
    #[arg(long, value_name = "WHAT", requires = "probe_from", conflicts_with = "seconds")]
    probe: Vec<String>,

    /// Send the probes out of this interface, which is connected to IFACE
    #[arg(long, value_name = "IFACE", requires = "probe")]
    probe_from: Option<String>,

    /// The network namespace of that interface, such as /run/netns/NAME or /proc/PID/ns/net [default: this one]
    #[arg(long, value_name = "FILE", requires = "probe")]
    probe_netns: Option<PathBuf>,
}

impl Probes {
    pub(crate) fn wants(&self) -> bool {
        !self.probe.is_empty()
    }
}

/// Sends the probes, and compares.
pub(crate) fn measure(interface: &str, args: &Probes) -> Result<Proof, Stop> {
    let state = host::read(interface)?;
    let settings = settings_of(&state);
    let card = Card::new(&state, &settings);
    let mut probes: Vec<Probe> = Vec::new();
    for what in &args.probe {
        for probe in chosen(interface, &state, &card, what)? {
            if !probes.iter().any(|other| other.flow == probe.flow) {
                probes.push(probe);
            }
        }
    }
    let from = args.probe_from.as_deref().unwrap_or_default();
    let (outlet, source) = outlet(from, args.probe_netns.as_deref())?;
    let to = mac_address(interface).ok_or_else(|| {
        bad_input(format!("{interface}: it has no MAC address to send probes to"))
    })?;
    let (kinds, seen) = prove::sockets(&state);
    let sampler = Sampler::open(state.index, &kinds).map_err(live::refused(interface))?;
    let ended = live::flag()?;
    let mut lab = Lab { interface, kinds, seen, sampler, outlet, to, source };
    let mut landed = Vec::new();
    for probe in &probes {
        if ended.load(Ordering::Relaxed) {
            return Err(Stop::Failed(anyhow::anyhow!("ended before all probes were sent")));
        }
        landed.push((*probe, lab.send(probe)?));
    }
    let flows: Vec<FlowKey> = probes.iter().map(|probe| probe.flow).collect();
    let only = |all: &BTreeMap<u32, flowyard_host::Traffic>| {
        all.iter().map(|(number, traffic)| (*number, traffic.only(&flows))).collect()
    };
    let seen = Seen { queues: only(&lab.seen.queues), cpus: only(&lab.seen.cpus), lost: 0 };
    let mut proof = Proof::of_probes(&state, &settings, &seen, &landed);
    prove::note_changes(&mut proof, &settings, &settings_of(&host::read(interface)?));
    Ok(proof)
}

/// The probes that a word of the command line names.
fn chosen(interface: &str, state: &State, card: &Card, what: &str) -> Result<Vec<Probe>, Stop> {
    let wrong = |why: String| bad_input(format!("--probe: {why}"));
    let own = || {
        let all = addresses(interface);
        let usable = all.iter().find(|ip| ip.is_ipv4()).or(all.first());
        // Nobody has this address, which is for tests (RFC 2544).
        usable.copied().unwrap_or_else(|| std::net::Ipv4Addr::new(198, 19, 0, 1).into())
    };
    let entries = |entries: &[usize]| probe::for_entries(card, entries, own()).map_err(wrong);
    if what == "entries" {
        let all = state.rss.value().map_or(0, |rss| rss.table.len());
        return entries(&(0..all).collect::<Vec<_>>());
    }
    let not_a_flow = match what.parse::<FlowKey>() {
        Ok(flow) => return Probe::of(flow).map(|probe| vec![probe]).map_err(wrong),
        Err(error) => error,
    };
    let path = Path::new(what);
    let text = std::fs::read_to_string(path).map_err(|error| {
        wrong(format!(
            "'{what}' is neither 'entries', nor a flow ({not_a_flow}), nor a file ({error})"
        ))
    })?;
    if text.trim_start().starts_with('{') {
        let plan = plan::read(path)?;
        if plan.interface != interface {
            return Err(wrong(format!("{what} is a plan for {}, not {interface}", plan.interface)));
        }
        let mut all = entries(&probe::entries_of(&plan, &settings_of(state)))?;
        if let Some(flow) = plan.goal.strip_prefix("isolate=").and_then(|flow| flow.parse().ok()) {
            all.push(Probe::of(flow).map_err(wrong)?);
        }
        return Ok(all);
    }
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let read = |(number, line): (usize, &str)| {
        let flow = line.trim().parse::<FlowKey>().map_err(|error| error.to_string());
        flow.and_then(Probe::of).map_err(|why| wrong(format!("{what}:{number}: {why}")))
    };
    lines.filter(|(_, line)| !line.trim_start().starts_with('#')).map(read).collect()
}

/// The socket that sends, and the MAC address of its interface.
fn outlet(interface: &str, netns: Option<&Path>) -> Result<(Outlet, [u8; 6]), Stop> {
    let open = || -> std::io::Result<(Outlet, [u8; 6])> {
        let outlet = Outlet::open(interface)?;
        Ok((outlet, mac_address(interface).unwrap_or([2, 0, 0, 0, 0, 1])))
    };
    let failed = |error: std::io::Error| {
        Stop::Failed(anyhow::Error::new(error).context(format!("--probe-from {interface}")))
    };
    let Some(path) = netns else { return open().map_err(failed) };
    let file = File::open(path)
        .map_err(|error| bad_input(format!("--probe-netns {}: {error}", path.display())))?;
    // A socket stays in the namespace in which it was opened; the thread that enters it ends.
    let enter = || {
        let kind = Some(rustix::thread::LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(file.as_fd(), kind)?;
        open()
    };
    let opened = std::thread::scope(|scope| scope.spawn(enter).join());
    opened
        .map_err(|_| Stop::Failed(anyhow::anyhow!("--probe-netns: the thread ended")))?
        .map_err(failed)
}

/// What sends and sees probes.
struct Lab<'a> {
    interface: &'a str,
    kinds: Vec<flowyard_host::Only>,
    seen: Seen,
    sampler: Sampler,
    outlet: Outlet,
    to: [u8; 6],
    source: [u8; 6],
}

impl Lab<'_> {
    /// Sends a probe in as many rounds as it takes to say where it comes.
    fn send(&mut self, probe: &Probe) -> Result<Landed, Stop> {
        let mut landed = Landed::default();
        for sent in ROUNDS {
            landed.rounds.push(self.round(probe, sent)?);
            landed.sent += sent;
            let (queues, cpus) = self.where_seen(&probe.flow);
            (landed.queues, landed.cpus) = (queues.collect(), cpus.collect());
            let counted = probe::counted(&landed.rounds);
            // Sockets that see the queue need no counters.
            let is_seen = !landed.queues.is_empty() || counted == Counted::Nothing;
            if matches!(counted, Counted::Queue(_)) || is_seen && !landed.cpus.is_empty() {
                break;
            }
        }
        Ok(landed)
    }

    /// The queues and the CPUs on which sockets have seen a flow.
    fn where_seen(&self, flow: &FlowKey) -> (impl Iterator<Item = u32>, impl Iterator<Item = u32>) {
        let of = |all: &BTreeMap<u32, flowyard_host::Traffic>| {
            let seen = all.iter().filter(|(_, traffic)| traffic.of(flow) > 0);
            seen.map(|(number, _)| *number).collect::<Vec<_>>().into_iter()
        };
        (of(&self.seen.queues), of(&self.seen.cpus))
    }

    fn frames(&self, flow: &FlowKey) -> u64 {
        self.seen.cpus.values().map(|traffic| traffic.of(flow)).sum()
    }

    fn round(&mut self, probe: &Probe, sent: u64) -> Result<Round, Stop> {
        let before = self.counters();
        let already = self.frames(&probe.flow);
        let frame = probe.frame(self.to, self.source);
        for number in 1..=sent {
            self.outlet.send(&frame).map_err(failed("sending a probe"))?;
            if number % BURST == 0 {
                std::thread::sleep(PAUSE);
            }
        }
        let clock = crate::clock::new();
        let arrived = Cell::new(already);
        let (kinds, seen) = (&self.kinds, &mut self.seen);
        let is_over = || arrived.get() >= already + sent || clock() >= ARRIVAL;
        let mut each = |socket: usize, frame: flowyard_host::Sampled<'_>| {
            prove::count(seen, kinds[socket], &frame);
            arrived.set(seen.cpus.values().map(|traffic| traffic.of(&probe.flow)).sum());
        };
        let run = self.sampler.run(&*clock, &is_over, &mut each);
        run.map_err(live::refused(self.interface))?;
        let expected = arrived.get() - already;
        loop {
            let grown = grown(&before, &self.counters());
            let all: u64 = grown.values().sum();
            // Frames that sockets saw are counted sooner or later.
            if grown.is_empty() || expected == 0 || all >= expected || clock() >= COUNTERS {
                return Ok(Round { sent, grown });
            }
            std::thread::sleep(20 * PAUSE);
        }
    }

    /// The driver's counter of each queue; none if it cannot be read.
    fn counters(&self) -> BTreeMap<u32, u64> {
        let all = Here.counters(self.interface).unwrap_or_default();
        all.into_iter().filter_map(|(name, n)| Some((probe::queue_of(&name)?, n))).collect()
    }
}

/// By how much counters grew.
fn grown(before: &BTreeMap<u32, u64>, after: &BTreeMap<u32, u64>) -> BTreeMap<u32, u64> {
    let grown = |(queue, n): (&u32, &u64)| Some((*queue, n.saturating_sub(*before.get(queue)?)));
    after.iter().filter_map(grown).collect()
}
