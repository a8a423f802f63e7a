//! `flowyard watch-host`: reports changes of an interface's settings by other programs, and traffic that leaves the
//! prediction.
//!
//! ```text
//!  notifications of the kernel ──at once──┐
//!  each interval: settings ───────────────┴─> Watch: what differs from before ──> events, metrics
//!                 traffic against the prediction ─────────────────────────────┘
//! ```
//!
//! Thread-safety: the thread that waits for notifications and the one that looks at traffic share a [`Watch`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flowyard_host::{Notice, Notices, Proof, State, settings_of};
use flowyard_operate::metrics::{self, Metrics};
use schemars::JsonSchema;
use serde::Serialize;

use crate::stop::{Stop, bad_input, failed};
use crate::{clock, host, live, output, prove};

mod page;

/// Name and version of the JSON document; see docs/schema.
pub(crate) const SCHEMA: &str = "flowyard.watch-host/1";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard watch-host eth0
  flowyard watch-host eth0 --metrics 9465
  flowyard watch-host eth0 --interval 30s --metrics-file /var/lib/node_exporter/flowyard_eth0.prom

Each event is one line. The command runs until it is ended, or for --count intervals. Changes that the kernel
announces are reported at once (channels, features, interrupt moderation; RSS since Linux 6.17), all others after
the interval. Live traffic is compared if the command has CAP_NET_RAW; without it, only settings are watched.")]
pub(crate) struct Args {
    /// The interface
    #[arg(value_name = "IFACE")]
    interface: String,

    /// Time between two comparisons, during which traffic is read, such as 5s
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    interval: Duration,

    /// End after this many intervals
    #[arg(long, value_name = "N")]
    count: Option<u64>,

    /// Serve Prometheus metrics at http://ADDRESS/metrics; ADDRESS is a port of 127.0.0.1 or ADDRESS:PORT
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,

    /// Write metrics for Prometheus to this file after each interval, whole, for the textfile collector of
    /// node_exporter
    #[arg(long, value_name = "FILE")]
    metrics_file: Option<PathBuf>,

    /// Print a JSON document (schema flowyard.watch-host/1) in one line for each event instead of text
    #[arg(long)]
    json: bool,
}

/// Something that happened.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Event {
    /// The date and time, by RFC 3339.
    time: String,
    /// The interface.
    interface: String,
    /// `setting`: a setting changed; `traffic`: flows came elsewhere than predicted; `lost`: the interface, the
    /// right to read its traffic, or the notifications of the kernel are missing.
    kind: String,
    /// What happened, as a sentence.
    what: String,
    /// How it was found: `notification` of the kernel, or `comparison` after an interval.
    by: String,
}

/// Totals since the start, and the last interval.
#[derive(Default)]
struct Totals {
    /// Changes of settings that were found by a notification, and by a comparison.
    notified: u64,
    compared_settings: u64,
    /// Notifications, by subject.
    notices: BTreeMap<&'static str, u64>,
    differing: u64,
    differing_frames: u64,
    compared: u64,
    frames: u64,
    /// Frames of each queue: predicted, and seen.
    queues: BTreeMap<u32, (u64, u64)>,
    /// Whether the last compared interval agreed with the prediction.
    agrees: Option<bool>,
}

/// What both threads know.
struct Watch<'a> {
    args: &'a Args,
    /// Everything that is compared, as text.
    seen: BTreeMap<String, String>,
    totals: Totals,
}

/// Everything of an interface that is watched: its settings, and what plans do not change.
fn watched(state: &State) -> BTreeMap<String, String> {
    let settings = settings_of(state).into_iter();
    let mut all: BTreeMap<String, String> =
        settings.map(|(setting, value)| (setting.to_string(), value)).collect();
    for feature in state.features.value().into_iter().flatten() {
        let value = if feature.on { "on" } else { "off" };
        all.insert(format!("feature {}", feature.name), value.to_owned());
    }
    if let Some(one) = state.coalesce.value() {
        let value = format!(
            "rx {} us {} frames adaptive {}, tx {} us {} frames adaptive {}",
            one.rx_usecs,
            one.rx_frames,
            one.adaptive_rx,
            one.tx_usecs,
            one.tx_frames,
            one.adaptive_tx
        );
        all.insert("interrupt moderation".to_owned(), value);
    }
    if let Some(rules) = state.rules.value() {
        all.insert("rules".to_owned(), format!("{} installed", rules.installed));
    }
    for context in state.contexts.value().into_iter().flatten() {
        let rss = &context.rss;
        let value = format!("table {:?}, key {:?}", rss.table, rss.key.value());
        all.insert(format!("RSS context {}", context.number), value);
    }
    all
}

/// How two states differ, a sentence for each name.
fn changes(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Vec<String> {
    const MOST: usize = 40;
    let short = |value: &String| match value.char_indices().nth(MOST) {
        Some((at, _)) => format!("'{}...'", &value[..at]),
        None => format!("'{value}'"),
    };
    let of = |name: &String| match (before.get(name), now.get(name)) {
        (Some(old), Some(new)) if old == new => None,
        (Some(old), Some(new)) => Some(format!("{name} was {} and is {}", short(old), short(new))),
        (Some(old), None) => Some(format!("{name} was {} and is not there any more", short(old))),
        (None, new) => Some(format!("{name} was not there and is {}", short(new?))),
    };
    let mut names: Vec<&String> = before.keys().chain(now.keys()).collect();
    names.sort();
    names.dedup();
    names.into_iter().filter_map(of).collect()
}

impl Watch<'_> {
    /// Reads the interface, and reports what changed since the last time.
    fn compare(&mut self, by: &str) -> Result<(), Stop> {
        let now = watched(&host::read(&self.args.interface)?);
        for different in changes(&self.seen, &now) {
            match by {
                "notification" => self.totals.notified += 1,
                _ => self.totals.compared_settings += 1,
            }
            event(self.args, "setting", &different, by)?;
        }
        self.seen = now;
        Ok(())
    }

    fn notified(&mut self, notices: &[Notice]) -> Result<(), Stop> {
        for notice in notices {
            *self.totals.notices.entry(notice.subject()).or_default() += 1;
        }
        self.compare("notification")
    }

    fn traffic(&mut self, proof: &Proof) -> Result<(), Stop> {
        let totals = &mut self.totals;
        totals.compared += 1;
        totals.frames += proof.frames;
        totals.differing += proof.differing_flows;
        totals.differing_frames += proof.differing.iter().map(|one| one.frames).sum::<u64>();
        for one in &proof.queues {
            let queue = totals.queues.entry(one.queue).or_default();
            *queue = (queue.0 + one.predicted.unwrap_or(0), queue.1 + one.seen);
        }
        totals.agrees = Some(proof.differing_flows == 0);
        if proof.differing_flows > 0 {
            event(self.args, "traffic", &elsewhere(proof), "comparison")?;
        }
        Ok(())
    }
}

fn lock<'a, 'b>(watch: &'a Mutex<Watch<'b>>) -> MutexGuard<'a, Watch<'b>> {
    watch.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    if args.interval < Duration::from_millis(100) {
        return Err(bad_input("--interval: must be at least 100ms"));
    }
    let ended = live::flag()?;
    let over = AtomicBool::new(false);
    let state = host::read(&args.interface)?;
    // Joined before the settings are read: a change in between is not missed.
    let notices = Notices::open(state.index);
    let seen = watched(&host::read(&args.interface)?);
    let watch = Mutex::new(Watch { args, seen, totals: Totals::default() });
    let mut metrics = match &args.metrics {
        None => None,
        Some(text) => {
            let address = metrics::address(text).map_err(bad_input)?;
            Some(Metrics::bind(address).map_err(|error| Stop::Failed(error.into()))?)
        }
    };
    let shared = page::Shared::default();
    if let Some(metrics) = &mut metrics {
        let (clock, page) = (clock::new(), shared.clone());
        let served = metrics.serve_page(move || clock(), move || page.text());
        served.map_err(failed("serving metrics"))?;
        output::note(&format!("metrics: http://{}/metrics", metrics.address()));
    }
    std::thread::scope(|scope| {
        let listener = match notices {
            Ok(notices) => {
                let (watch, over, shared) = (&watch, &over, &shared);
                Some(scope.spawn(move || listen(&notices, watch, over, shared)))
            }
            Err(error) => {
                let what = format!("{error}; changes are found by comparing after each interval");
                event(args, "lost", &what, "comparison")?;
                None
            }
        };
        let is_ended = || {
            ended.load(Ordering::Relaxed)
                || listener.as_ref().is_some_and(std::thread::ScopedJoinHandle::is_finished)
        };
        let watched = intervals(&watch, &is_ended, &shared);
        over.store(true, Ordering::Relaxed);
        let listened = listener.map_or(Ok(Ok(())), std::thread::ScopedJoinHandle::join);
        watched?;
        listened.unwrap_or_else(|_| Err(Stop::Failed(anyhow::anyhow!("a thread panicked"))))
    })
}

/// Waits for notifications, until the intervals are over.
fn listen(
    notices: &Notices,
    watch: &Mutex<Watch<'_>>,
    over: &AtomicBool,
    shared: &page::Shared,
) -> Result<(), Stop> {
    while !over.load(Ordering::Relaxed) {
        let found = notices.read(Duration::from_millis(100));
        let found = found.map_err(failed("reading notifications of the kernel"))?;
        if !found.is_empty() {
            let mut watch = lock(watch);
            watch.notified(&found)?;
            shared.set(&watch.args.interface, &watch.totals);
        }
    }
    Ok(())
}

/// Compares traffic and settings, interval by interval.
fn intervals(
    watch: &Mutex<Watch<'_>>,
    is_ended: &dyn Fn() -> bool,
    shared: &page::Shared,
) -> Result<(), Stop> {
    let args = lock(watch).args;
    let interface = args.interface.as_str();
    let (mut has_traffic, mut rounds) = (true, 0);
    shared.set(interface, &Totals::default());
    while !is_ended() && args.count.is_none_or(|count| rounds < count) {
        rounds += 1;
        let before = lock(watch).seen.clone();
        let proof = match has_traffic {
            true => match prove::measure(interface, args.interval) {
                Ok(proof) => Some(proof),
                Err(stop) if host::read(interface).is_ok() => {
                    has_traffic = false;
                    let what = format!("{stop}; from now on only settings are watched");
                    event(args, "lost", &what, "comparison")?;
                    None
                }
                Err(stop) => return Err(stop),
            },
            false => {
                std::thread::sleep(args.interval);
                None
            }
        };
        let mut watch = lock(watch);
        watch.compare("comparison")?;
        // Flows of the time before a change came where they were predicted then.
        let is_same = watch.seen == before;
        if let Some(proof) = proof.filter(|proof| is_same && !proof.cpus.is_empty()) {
            watch.traffic(&proof)?;
        }
        shared.set(interface, &watch.totals);
        if let Some(path) = &args.metrics_file {
            let file = crate::outfile::OutFile::new(Some(path), "metrics")?;
            file.map_or(Ok(()), |file| file.write(shared.text().as_bytes()))?;
        }
    }
    Ok(())
}

fn elsewhere(proof: &Proof) -> String {
    let first = proof.differing.first().map_or(String::new(), |one| {
        format!(
            ", such as {}: {} frames in {}, predicted {}",
            one.flow, one.frames, one.seen, one.predicted
        )
    });
    format!("{} flows came elsewhere than predicted{first}", proof.differing_flows)
}

fn event(args: &Args, kind: &str, what: &str, by: &str) -> Result<(), Stop> {
    let (time, interface) = (clock::date(), args.interface.clone());
    if !args.json {
        return output::line(&format!("{time} {interface} {kind}: {what}\n"));
    }
    let (kind, what, by) = (kind.to_owned(), what.to_owned(), by.to_owned());
    output::json_line(SCHEMA, Event { time, interface, kind, what, by })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_sentences() {
        let all = |some: &[(&str, &str)]| -> BTreeMap<String, String> {
            some.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
        };
        let before = all(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let now = all(&[("a", "1"), ("b", "3"), ("d", "4")]);
        assert_eq!(
            changes(&before, &now),
            [
                "b was '2' and is '3'",
                "c was '3' and is not there any more",
                "d was not there and is '4'"
            ]
        );
        assert_eq!(changes(&before, &before), [""; 0]);
    }
}
