//! `flowyard explain`: which receive queue and core a flow gets, which stage decides it, and why.

use std::os::unix::fs::FileTypeExt as _;

use flowyard_analyze::{Analyzer, Explanation, NoPacket, Question, Target};
use flowyard_frame::FlowKey;
use flowyard_ports::pcap;

use crate::args::ModelArgs;
use crate::interrupt::Reading;
use crate::output::{self, style};
use crate::stop::{Stop, bad_input};

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
  flowyard explain 'tcp 10.0.0.1:40000 > 10.0.0.2:11211' --interface eth0")]
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

    /// Print JSON (schema flowyard.explain/2) instead of text
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
        None => Target::flow(args.flow.parse::<FlowKey>().map_err(|error| {
            match as_file(&args.flow) {
                Some(advice) => bad_input(advice),
                None => bad_input(error),
            }
        })?),
    };
    let question = Question { expect_queue: args.expect_queue, choose_port: args.choose_port };
    print(&analyzer.explain(&target, &question), args.json)
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
