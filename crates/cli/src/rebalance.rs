//! `flowyard rebalance`: moves entries of an interface's indirection table from overloaded queues, while their flows
//! pause.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flowyard_flow::learn::rebalance::Limits;
use flowyard_frame::Nanos;
use flowyard_host::journal::{self, Journal};
use flowyard_host::{
    Carried, Halt, Here, Machine as _, Moved, News, Only, Rebalancer, Sampler, State, Totals,
};
use flowyard_wire::LinkType;
use schemars::JsonSchema;
use serde::Serialize;

use crate::apply::{FOLDER, guard};
use crate::args::{limits, nanos};
use crate::stop::{Stop, bad_input, failed};
use crate::{clock, host, live, output};

mod text;

/// Name and version of the JSON document; see docs/schema.
pub(crate) const SCHEMA: &str = "flowyard.rebalance/1";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard rebalance eth0 --dry-run --count 10
  flowyard rebalance eth0 --once
  flowyard rebalance eth0 --metrics-file /var/lib/node_exporter/flowyard_eth0.prom

An entry moves only if no frame has come for it in the time --pause. Choose a time that is longer than a frame
waits in a queue of this adapter: the entries of its receive ring times the time for one frame. At its end the
command returns all entries to their queues. After kill -9, `flowyard undo IFACE` does.

The command needs CAP_NET_RAW to read copies of received frames, and CAP_NET_ADMIN to set the table. The exit
status is 0 if it was ended, 1 if it stopped, for example because another program changed the table, and 2 if
the interface has no indirection table.")]
pub(crate) struct Args {
    /// The interface
    #[arg(value_name = "IFACE")]
    interface: String,

    /// Time over which the load of queues is measured
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    every: Duration,

    /// A queue with more than this many times the mean load is overloaded
    #[arg(long, value_name = "RATIO", default_value_t = 1.25)]
    even: f64,

    /// An entry moves if no frame has come for it in this time
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = humantime::parse_duration)]
    pause: Duration,

    /// The most entries that move in a second
    #[arg(long, value_name = "N", default_value_t = 100)]
    moves: u32,

    /// Move an entry that has waited for a pause for this long without one, which can reorder [default: it stays]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    force_after: Option<Duration>,

    /// Report what would move, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Measure, move until nothing waits or for 5 windows, and end; the table stays, and `flowyard undo` restores it
    #[arg(long, conflicts_with = "count")]
    once: bool,

    /// End after this many windows
    #[arg(long, value_name = "N")]
    count: Option<u64>,

    /// Leave the table as it is at the end; `flowyard undo` restores it
    #[arg(long)]
    keep: bool,

    /// At the end, wait up to this time for pauses of entries that return
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = humantime::parse_duration)]
    return_within: Duration,

    /// Move entries also if the interface carries the default route or the SSH connection of this command
    #[arg(long)]
    allow_management: bool,

    /// Folder of the journal, from which the table is restored
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    journal: PathBuf,

    /// Write metrics for Prometheus to this file after each window, whole, for the textfile collector of
    /// node_exporter
    #[arg(long, value_name = "FILE")]
    metrics_file: Option<PathBuf>,

    /// Print a JSON document (schema flowyard.rebalance/1) in one line for each event instead of text
    #[arg(long)]
    json: bool,
}

/// Something that happened.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Event {
    /// The date and time, by RFC 3339.
    pub(crate) time: String,
    /// The interface.
    pub(crate) interface: String,
    /// `overloaded`: a queue has too much, and entries are to move; `even`: no more; `moved`; `busy`: entries did not
    /// pause, and stay for a time; `lost`: frames came faster than they could be read; `stopped`: with the reason;
    /// `returned`: entries are in their first queues again; `end`.
    pub(crate) kind: String,
    /// What happened, as a sentence.
    pub(crate) what: String,
    /// The entries that moved, or would move with `--dry-run`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) moves: Vec<EntryMove>,
    /// Totals since the start.
    pub(crate) totals: Counted,
}

/// A move of an entry of the indirection table.
#[derive(Serialize, JsonSchema)]
pub(crate) struct EntryMove {
    /// The entry.
    entry: u64,
    /// The queue that it had.
    from: u32,
    /// The queue that it has.
    to: u32,
    /// Whether it moved although it did not pause (`--force-after`).
    forced: bool,
}

/// Totals since the start.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Counted {
    /// Windows in which load was measured.
    windows: u64,
    /// Received frames that were seen.
    frames: u64,
    /// Frames that came faster than they could be read. While that happens, no entry moves.
    lost: u64,
    /// Moves of entries.
    moves: u64,
    /// Those without a pause.
    forced: u64,
    /// Times that the table was written.
    writes: u64,
    /// Times that an entry did not pause, and stayed.
    busy: u64,
    /// Frames that came on the new queue of an entry less than the pause after a frame on its old queue, or on the old
    /// queue after some on the new one. Assumption: a frame waits in a queue for less than the pause.
    could_overtake: u64,
    /// Entries that are not in their first queue.
    displaced: u64,
    /// Load of the busiest queue over the mean, in the last window with enough frames.
    imbalance: Option<f64>,
    /// The same if no entry had moved.
    imbalance_of_first: Option<f64>,
}

impl From<&Moved> for EntryMove {
    fn from(&Moved { entry, from, to, forced }: &Moved) -> Self {
        Self { entry: entry as u64, from, to, forced }
    }
}

/// The running command.
struct Daemon<'a> {
    args: &'a Args,
    rebalancer: Rebalancer,
    sampler: Sampler,
    /// The queue of each socket.
    queues: Vec<Option<u32>>,
    clock: flowyard_yard::Clock,
    ended: Arc<AtomicBool>,
    imbalance: (Option<f64>, Option<f64>),
    is_overloaded: bool,
    /// Frames that were lost, as reported.
    lost: u64,
}

/// Windows after which `--once` ends if nothing waits, and in any case.
const ONCE: (u64, u64) = (3, 5);
/// Time between two looks at the sockets, while entries wait for a pause and otherwise.
const LOOKS: (Duration, Duration) = (Duration::from_micros(500), Duration::from_millis(2));

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    let limits = limits(Limits {
        even: args.even,
        window: nanos(args.every),
        pause: nanos(args.pause),
        moves: args.moves,
        force_after: args.force_after.map(nanos),
    })?;
    let interface = args.interface.as_str();
    let state = host::read(interface)?;
    let folder = (!args.dry_run).then_some(args.journal.as_path());
    let rebalancer = Rebalancer::new(&Here, &state, limits, folder).map_err(stop)?;
    if let Some(folder) = folder {
        // Which entries will move is not known yet; that of the connection may be one of them.
        let managed = Here.management(interface).into_iter();
        let moves = managed.filter(|one| one.carried != Carried::Route);
        let dangers: Vec<_> = moves.map(|one| one.what).collect();
        let advice = "add --allow-management, or try --dry-run";
        guard(interface, &dangers, args.allow_management, advice)?;
        is_free(interface, folder)?;
    }
    let mut daemon = Daemon::new(args, rebalancer, &state)?;
    let halted = daemon.work();
    daemon.finish(halted)
}

/// Refuses a second program that changes the interface at the same time.
fn is_free(interface: &str, folder: &Path) -> Result<(), Stop> {
    for path in journal::list(folder, interface).map_err(failed("reading the journals"))? {
        if let Err(error) = Journal::open(&path)
            && error.kind() == std::io::ErrorKind::WouldBlock
        {
            return Err(bad_input(format!(
                "{interface}: another flowyard changes this interface now (journal {}); end it first",
                path.display()
            )));
        }
    }
    Ok(())
}

fn stop(halt: Halt) -> Stop {
    match halt {
        Halt::NoTable { .. } => bad_input(halt),
        _ => Stop::Failed(halt.into()),
    }
}

impl<'a> Daemon<'a> {
    fn new(args: &'a Args, rebalancer: Rebalancer, state: &State) -> Result<Self, Stop> {
        let queues = 0..state.queues().unwrap_or(1);
        let queues: Vec<_> = queues.map(Some).chain([None]).collect();
        let kind = |queue: &Option<u32>| queue.map_or(Only::NoQueue, Only::Queue);
        let kinds: Vec<_> = queues.iter().map(kind).collect();
        let ended = if args.dry_run { live::flag()? } else { live::flag_of_change()? };
        let sampler = Sampler::open(state.index, &kinds).map_err(live::refused(&args.interface))?;
        Ok(Self {
            args,
            rebalancer,
            sampler,
            queues,
            clock: clock::new(),
            ended,
            imbalance: (None, None),
            is_overloaded: false,
            lost: 0,
        })
    }

    /// Works until the command is ended, or something stops it.
    fn work(&mut self) -> Result<(), Stop> {
        while !self.ended.load(Ordering::Relaxed) && !self.is_over() {
            self.look()?;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let windows = self.rebalancer.totals().windows;
        match self.args.once {
            true => {
                let nothing_waits = windows >= ONCE.0 && !self.rebalancer.is_waiting();
                nothing_waits || windows >= ONCE.1
            }
            false => self.args.count.is_some_and(|count| windows >= count),
        }
    }

    /// Waits a moment, reads all frames that came, and moves entries.
    fn look(&mut self) -> Result<(), Stop> {
        std::thread::sleep(if self.rebalancer.is_waiting() { LOOKS.0 } else { LOOKS.1 });
        let is_empty = self.read()?;
        let now = (self.clock)();
        let mut news = self.rebalancer.tick(&mut Here, now, !is_empty).map_err(stop)?;
        while self.rebalancer.is_prepared() {
            let is_empty = self.read()?;
            let now = (self.clock)();
            if !is_empty {
                self.rebalancer.behind(now);
            }
            news.extend(self.rebalancer.commit(&mut Here, now).map_err(stop)?);
        }
        news.iter().try_for_each(|one| self.tell(one))
    }

    /// Counts the frames that came. Returns whether no more wait to be read.
    fn read(&mut self) -> Result<bool, Stop> {
        let Self { sampler, rebalancer, queues, clock, args, .. } = self;
        let now = || -> Nanos { clock() };
        let refused = live::refused(&args.interface);
        let is_empty = sampler
            .drain(&now, &mut |socket, frame| {
                rebalancer.see(LinkType::Ethernet, &frame, queues[socket]);
            })
            .map_err(&refused)?;
        rebalancer.lost(sampler.lost().map_err(&refused)?, now());
        Ok(is_empty)
    }

    /// Reports what happened.
    fn tell(&mut self, news: &News) -> Result<(), Stop> {
        match news {
            News::Window { imbalance, first, waiting, .. } => {
                if imbalance.is_some() {
                    self.imbalance = (*imbalance, *first);
                }
                let is_uneven = imbalance.is_some_and(|ratio| ratio > self.args.even);
                let is_overloaded = *waiting > 0 || self.is_overloaded && is_uneven;
                let was = std::mem::replace(&mut self.is_overloaded, is_overloaded);
                match (was, self.is_overloaded) {
                    (false, true) => {
                        self.event("overloaded", &text::overloaded(*waiting, *imbalance), &[])?;
                    }
                    (true, false) => self.event("even", &text::even(*imbalance), &[])?,
                    _ => {}
                }
                let lost = self.rebalancer.totals().lost;
                if lost > self.lost {
                    self.event("lost", &text::lost(lost - self.lost), &[])?;
                    self.lost = lost;
                }
                self.write_metrics()
            }
            News::Moved(moves) => {
                self.event("moved", &text::moved(moves, self.args.dry_run), moves)
            }
            News::Busy(busy) => self.event("busy", &text::busy(busy, self.args.pause), &[]),
        }
    }

    /// Ends: the table is restored, unless it is to be kept or is another program's.
    fn finish(mut self, halted: Result<(), Stop>) -> Result<(), Stop> {
        let keeps = (self.args.keep || self.args.once) && halted.is_ok();
        // Whatever cannot be printed, the table is restored first.
        let mut told = match &halted {
            Err(stop) => self.event("stopped", &stop.to_string(), &[]),
            Ok(()) => Ok(()),
        };
        if halted.is_ok() && !keeps && self.rebalancer.journal().is_some() {
            told = told.and(self.come_home());
        }
        let journal = self.rebalancer.journal().map(Path::to_owned);
        told = told.and(self.event("end", &text::end(&self.rebalancer, keeps), &[]));
        told = told.and(self.write_metrics());
        if keeps {
            return told;
        }
        let Self { rebalancer, args, .. } = self;
        match (halted, rebalancer.restore(&mut Here)) {
            (halted, Ok(_)) => halted.and(told),
            (halted, Err(halt)) => {
                let why = halted.err().map(|stop| format!("{stop}; ")).unwrap_or_default();
                let journal = journal.map(|path| path.display().to_string()).unwrap_or_default();
                let name = &args.interface;
                Err(Stop::Failed(anyhow::anyhow!(
                    "{name}: {why}{halt}: {journal}; `flowyard undo {name} --forget` deletes it"
                )))
            }
        }
    }

    /// Entries return to their first queues as they pause, for a limited time.
    fn come_home(&mut self) -> Result<(), Stop> {
        let displaced = self.rebalancer.displaced();
        let end = (self.clock)().saturating_add(nanos(self.args.return_within));
        self.rebalancer.return_all((self.clock)());
        while self.rebalancer.is_waiting() && (self.clock)() < end {
            // What stops the return stops it; then restoring says why.
            if self.look().is_err() {
                break;
            }
        }
        let left = self.rebalancer.displaced();
        self.event("returned", &text::returned(displaced - left.min(displaced), left), &[])
    }

    fn event(&self, kind: &str, what: &str, moves: &[Moved]) -> Result<(), Stop> {
        let (time, interface) = (clock::date(), self.args.interface.clone());
        if !self.args.json {
            return output::line(&format!("{time} {interface} {kind}: {what}\n"));
        }
        let event = Event {
            time,
            interface,
            kind: kind.to_owned(),
            what: what.to_owned(),
            moves: moves.iter().map(EntryMove::from).collect(),
            totals: self.counted(),
        };
        output::json_line(SCHEMA, event)
    }

    fn counted(&self) -> Counted {
        let Totals { windows, frames, lost, moves, forced, writes, busy, could_overtake } =
            self.rebalancer.totals();
        let displaced = self.rebalancer.displaced() as u64;
        let (imbalance, imbalance_of_first) = self.imbalance;
        Counted {
            windows,
            frames,
            lost,
            moves,
            forced,
            writes,
            busy,
            could_overtake,
            displaced,
            imbalance,
            imbalance_of_first,
        }
    }

    fn write_metrics(&self) -> Result<(), Stop> {
        let Some(path) = &self.args.metrics_file else { return Ok(()) };
        let text = text::metrics(&self.args.interface, &self.counted());
        let file = crate::outfile::OutFile::new(Some(path), "metrics")?;
        file.map_or(Ok(()), |file| file.write(text.as_bytes()))
    }
}
