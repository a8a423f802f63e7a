//! `flowyard explain`: which receive queue and core a flow gets, which stage decides it, and why.

use std::os::unix::fs::FileTypeExt as _;

use flowyard_analyze::{Analyzer, Explanation, NoPacket, Question, Setup, Target, rule_engine};
use flowyard_frame::FlowKey;
use flowyard_ports::pcap;

use self::places::WhereArgs;
use crate::args::{ModelArgs, rules_in};
use crate::interrupt::Reading;
use crate::output::{self, style};
use crate::stop::{Stop, bad_input};

pub(crate) mod places;
mod rule_places;
mod text;

/// Name and version of the JSON document; see docs/schema.
pub(crate) const SCHEMA: &str = "flowyard.explain/2";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard explain 'tcp 10.0.0.1:40000 > 10.0.0.2:11211'
  flowyard explain captures/yard.pcap:1234 --adapter x520 --expect-queue 7
  flowyard explain 'udp [2001:db8::1]:4000 > [2001:db8::2]:53' --adapter e810 --json
  flowyard explain 'tcp 10.0.0.1:40000 > 10.0.0.2:11211' --choose-port 3
  flowyard explain 'tcp 10.0.0.1:40000 > 10.0.0.2:11211' --interface eth0
  flowyard explain 'tcp 10.0.0.1:40000 > 10.0.0.2:11211' --interface eth0 --where
  flowyard explain 'tcp 10.0.0.1:40000 > 10.0.0.2:11211' --where --rules rules.txt
  flowyard explain 'tcp 10.0.0.1:40000 > 10.0.0.2:80 vlan 42' --tenants tenants.txt --to-mac 02:00:00:00:00:01")]
pub(crate) struct Args {
    /// The flow as the adapter receives it, as 'PROTO SRC:PORT > DST:PORT'; or CAPTURE:N for packet N
    /// (from 1) of a capture file, with all learned tables in the state in which that packet found them
    #[arg(value_name = "FLOW")]
    flow: String,

    #[command(flatten)]
    model: ModelArgs,

    /// Explain why the flow does not get receive queue N, and what would change that
    #[arg(long, value_name = "N")]
    expect_queue: Option<u16>,

    /// Find a source port with which RSS puts the flow on receive queue N
    #[arg(long, value_name = "N")]
    choose_port: Option<u16>,

    /// Destination MAC address of the flow's frames, as 02:00:00:00:00:01, so that a tenant can be named (--tenants)
    #[arg(long, value_name = "MAC", value_parser = mac)]
    to_mac: Option<[u8; 6]>,

    #[command(flatten)]
    places: WhereArgs,

    /// Print JSON (schema flowyard.explain/2, or flowyard.where/1 with --where) instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    let setup = args.model.setup()?;
    for (flag, queue) in
        [("--expect-queue", args.expect_queue), ("--choose-port", args.choose_port)]
    {
        if let Some(queue) = queue.filter(|&queue| queue >= setup.queues) {
            return Err(bad_input(format!(
                "{flag}: there is no queue {queue}; choose 0 to {}, or raise --queues",
                setup.queues - 1
            )));
        }
    }
    if args.places.is_wanted {
        return locate(args, setup);
    }
    let mut analyzer = Analyzer::new(setup).map_err(bad_input)?;
    let target = match packet_of(&args.flow) {
        Some((file, number)) => {
            let reading = Reading::begin()?;
            let interrupted = |read: u64| {
                Stop::Failed(anyhow::anyhow!(
                    "{file}: interrupted before packet {number}: {read} packets were read, and nothing is explained"
                ))
            };
            let mut source = match pcap::open_until(file, reading.ender()) {
                Err(_) if reading.was_interrupted() => return Err(interrupted(0)),
                opened => opened?,
            };
            let found = analyzer.read_to(file, &mut source, number);
            let target = found.map_err(|error| match error {
                NoPacket::Missing { packets, .. } if reading.was_interrupted() => {
                    interrupted(packets)
                }
                NoPacket::Unreadable(error) => error.into(),
                NoPacket::Damaged { .. } => Stop::Failed(error.into()),
                NoPacket::Missing { .. } => bad_input(error),
            })?;
            reading.over();
            target
        }
        None => {
            let key = args.flow.parse::<FlowKey>().map_err(|error| match as_file(&args.flow) {
                Some(advice) => bad_input(advice),
                None => bad_input(error),
            })?;
            Target::flow(FlowKey { eth_dst: args.to_mac.unwrap_or_default(), ..key })
        }
    };
    let question = Question { expect_queue: args.expect_queue, choose_port: args.choose_port };
    print(&analyzer.explain(&target, &question), args.json)
}

/// Says which place decides, and where rules can live.
fn locate(args: &Args, setup: Setup) -> Result<(), Stop> {
    if args.expect_queue.is_some() || args.choose_port.is_some() {
        return Err(bad_input("--where: leave out --expect-queue and --choose-port"));
    }
    let key: FlowKey = args.flow.parse().map_err(|error| {
        bad_input(match packet_of(&args.flow) {
            Some(_) => {
                "--where: name a flow, as 'PROTO SRC:PORT > DST:PORT', and not a packet".into()
            }
            None => format!("{error}"),
        })
    })?;
    let file = args.places.rules.as_deref();
    let rules = file.map(|file| rules_in(&file.to_string_lossy(), "--rules FILE")).transpose()?;
    let (engine, queues) = (rule_engine(&setup), setup.queues);
    let mut analyzer = Analyzer::new(setup).map_err(bad_input)?;
    let explained = analyzer.explain(&Target::flow(key), &Question::default());
    let (interface, socket) = (args.model.interface(), args.places.control.as_deref());
    let mut found = places::locate(&key, &explained, interface, socket)?;
    found.rules = rules.map_or_else(Vec::new, |rules| {
        rule_places::fit(&rules, &key, &explained.adapter, engine, queues)
    });
    match args.json {
        true => output::json(places::SCHEMA, &found),
        false => output::text(&places::text(&found)),
    }
}

/// A MAC address of six bytes.
fn mac(text: &str) -> Result<[u8; 6], String> {
    let wrong = || "write six bytes, such as 02:00:00:00:00:01".to_owned();
    let bytes: Result<Vec<u8>, _> =
        text.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect();
    bytes.ok().and_then(|bytes| bytes.try_into().ok()).ok_or_else(wrong)
}

/// Splits `CAPTURE:PACKETNUMBER`, if the part before the last colon is an existing file or FIFO.
fn packet_of(text: &str) -> Option<(&str, u64)> {
    let (file, number) = text.rsplit_once(':')?;
    let about = std::fs::metadata(file).ok()?;
    let is_capture = about.is_file() || about.file_type().is_fifo();
    is_capture.then_some((file, number.parse().ok()?))
}

/// Advice for a text that is not a flow but looks like the name of a capture.
fn as_file(text: &str) -> Option<String> {
    let (file, number) = text.rsplit_once(':').unwrap_or((text, ""));
    let looks =
        |name: &str| [".pcap", ".pcapng", ".gz", ".cap"].iter().any(|end| name.ends_with(end));
    if std::path::Path::new(file).is_file() {
        let what = match number {
            "" => "this is a capture, and no packet number follows".to_owned(),
            number => format!("'{number}' is not a packet number"),
        };
        return Some(format!("{file}: {what}; write {file}:1 for the first packet"));
    }
    looks(file).then(|| format!("{file}: there is no such capture file; check the path"))
}

fn print(explanation: &Explanation, json: bool) -> Result<(), Stop> {
    if json {
        return output::json(SCHEMA, explanation);
    }
    output::text(&text::text(explanation, &style()))
}
