//! `flowyard watch-host`: reports changes of an interface's settings by other programs, and traffic that leaves the
//! prediction.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use flowyard_host::{Proof, differences, settings_of};
use schemars::JsonSchema;
use serde::Serialize;

use crate::stop::{Stop, bad_input};
use crate::{clock, host, live, output, prove};

/// Name and version of the JSON document; see docs/schema.
pub(crate) const SCHEMA: &str = "flowyard.watch-host/1";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard watch-host eth0
  flowyard watch-host eth0 --interval 30s --metrics-file /var/lib/node_exporter/flowyard_eth0.prom

Each event is one line. The command runs until it is ended, or for --count intervals. Live traffic is compared
if the command has CAP_NET_RAW; without it, only settings are watched.")]
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
    /// `setting`: a setting changed; `traffic`: flows came elsewhere than predicted; `lost`: the interface, or the
    /// right to read its traffic, is missing.
    kind: String,
    /// What happened, as a sentence.
    what: String,
}

/// Totals since the start.
#[derive(Default)]
struct Totals {
    settings: u64,
    differing: u64,
    compared: u64,
    frames: u64,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    if args.interval < Duration::from_millis(100) {
        return Err(bad_input("--interval: must be at least 100ms"));
    }
    let interface = args.interface.as_str();
    let ended = live::flag()?;
    let mut settings = settings_of(&host::read(interface)?);
    let (mut totals, mut has_traffic, mut rounds) = (Totals::default(), true, 0);
    while !ended.load(Ordering::Relaxed) && args.count.is_none_or(|count| rounds < count) {
        rounds += 1;
        let proof = if has_traffic { prove::measure(interface, args.interval) } else { idle(args) };
        let proof = match proof {
            Ok(proof) => Some(proof),
            Err(stop) if host::read(interface).is_ok() => {
                has_traffic = false;
                event(args, "lost", &format!("{stop}; from now on only settings are watched"))?;
                None
            }
            Err(stop) => return Err(stop),
        };
        let now = settings_of(&host::read(interface)?);
        for different in differences(&settings, &now) {
            totals.settings += 1;
            event(args, "setting", &different)?;
        }
        if let Some(proof) = proof.filter(|proof| settings == now && !proof.cpus.is_empty()) {
            totals.compared += 1;
            totals.frames += proof.frames;
            totals.differing += proof.differing_flows;
            if proof.differing_flows > 0 {
                event(args, "traffic", &elsewhere(&proof))?;
            }
        }
        settings = now;
        if let Some(path) = &args.metrics_file {
            write(path, interface, &totals)?;
        }
    }
    Ok(())
}

/// Waits for an interval, without traffic.
fn idle(args: &Args) -> Result<Proof, Stop> {
    std::thread::sleep(args.interval);
    let state = host::read(&args.interface)?;
    Ok(Proof::new(
        &state,
        &settings_of(&state),
        &flowyard_host::Seen::default(),
        &Default::default(),
    ))
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

fn event(args: &Args, kind: &str, what: &str) -> Result<(), Stop> {
    let (time, interface) = (clock::date(), args.interface.clone());
    if !args.json {
        return output::line(&format!("{time} {interface} {kind}: {what}\n"));
    }
    let (kind, what) = (kind.to_owned(), what.to_owned());
    output::json_line(SCHEMA, Event { time, interface, kind, what })
}

/// Metrics in the text format of Prometheus.
fn write(path: &Path, interface: &str, totals: &Totals) -> Result<(), Stop> {
    let mut text = String::new();
    for (name, about, value) in [
        ("setting_changes", "Changes of settings that were seen.", totals.settings),
        ("differing_flows", "Flows that came elsewhere than predicted.", totals.differing),
        ("compared_intervals", "Intervals whose traffic was compared.", totals.compared),
        ("compared_frames", "Received frames that were looked at.", totals.frames),
    ] {
        let name = format!("flowyard_host_{name}_total");
        let _infallible = writeln!(
            text,
            "# HELP {name} {about}\n# TYPE {name} counter\n{name}{{interface=\"{interface}\"}} {value}"
        );
    }
    let file = crate::outfile::OutFile::new(Some(&path), "metrics")?;
    file.map_or(Ok(()), |file| file.write(text.as_bytes()))
}
