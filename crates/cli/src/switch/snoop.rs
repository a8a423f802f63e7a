//! `flowyard switch snoop`: the messages that pass between a running instance and its controllers, queried
//! over its control socket.

use std::time::Duration;

use flowyard_openflow::message::Rejected;
use flowyard_openflow::ofctl::Ports;
use flowyard_openflow::{Version, decode};
use flowyard_operate::protocol::{Request, Snooped, SnoopedMessage};

use super::connect::{Unused, say};
use super::document;
use super::events::{Passed, kind};
use super::passed::passed as describe;
use super::session::Named;
use crate::output;
use crate::show::{AskArgs, refused};
use crate::stop::Stop;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard switch snoop --count 20
  flowyard switch snoop --json

Hello and echo messages are not printed, and of an answer with several entries the first three. At most
1,024 messages are kept between two looks. With --json, each message is a JSON document in a line of its
own (schema flowyard.switch.snoop/1).")]
pub(super) struct Args {
    #[command(flatten)]
    ask: AskArgs,

    #[command(flatten)]
    named: Named,

    /// Exit after N messages [default: never]
    #[arg(long, value_name = "N")]
    count: Option<u64>,

    #[command(flatten)]
    _unused: Unused,
}

pub(super) fn run(args: &Args) -> Result<(), Stop> {
    let json = args.ask.json;
    let mut client = args.ask.connect()?;
    let first: Snooped = client.ask(&Request::SwitchSnoop { from: None }).map_err(refused)?;
    let named: Vec<(&str, u32)> =
        first.ports.iter().map(|port| (port.name.as_str(), port.number)).collect();
    let names: Ports<'_> = if args.named.wanted(json) { &named } else { &[] };
    let (mut next, mut printed) = (first.next, 0);
    loop {
        let request = Request::SwitchSnoop { from: Some(next) };
        let passed: Snooped = client.ask(&request).map_err(refused)?;
        for message in &passed.messages {
            if args.count.is_some_and(|count| printed >= count) {
                return Ok(());
            }
            let missed = message.number.saturating_sub(next);
            next = message.number + 1;
            printed += 1;
            let message = read(message, missed, names);
            if json {
                output::json_line(document::SNOOP, message)?;
                continue;
            }
            if missed > 0 {
                say(&format!("({missed} messages were not kept)"))?;
            }
            say(&line(&message))?;
        }
        if args.count.is_some_and(|count| printed >= count) {
            return Ok(());
        }
        next = next.max(passed.next);
        if passed.messages.is_empty() {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// A message as a document.
fn read(message: &SnoopedMessage, missed: u64, names: Ports<'_>) -> Passed {
    let digits = message.bytes.as_bytes().chunks(2);
    let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.map(byte).collect();
    let (xid, kind, text) = match bytes.as_deref().map(decode) {
        Some(Ok((header, message))) => {
            let version = Version::of(header.version).unwrap_or(Version::V13);
            let text = describe(&message, version, names);
            (Some(header.xid), kind(&text), text)
        }
        Some(Err(rejected)) => (known(&rejected), "unreadable".into(), rejected.to_string()),
        None => (None, "unreadable".into(), message.bytes.clone()),
    };
    Passed {
        number: message.number,
        missed,
        at_s: message.at_s,
        connection: message.connection.clone(),
        is_sent: message.is_sent,
        xid,
        kind,
        text,
        bytes: message.bytes.clone(),
    }
}

/// The transaction ID of a message that cannot be read, if its header can.
fn known(rejected: &Rejected) -> Option<u32> {
    (rejected.header.length > 0).then_some(rejected.header.xid)
}

/// A message with its time and direction.
fn line(message: &Passed) -> String {
    let way = if message.is_sent { "to" } else { "from" };
    let about = match message.xid {
        Some(xid) if message.kind != "unreadable" => {
            format!("xid={xid:#x} {} (len={})", message.text, message.bytes.len() / 2)
        }
        _ => message.text.clone(),
    };
    format!("{:.6} {way} {}: {about}", message.at_s, message.connection)
}
