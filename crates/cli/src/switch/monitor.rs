//! The messages that a switch sends without a request.

use std::time::Duration;

use flowyard_openflow::multipart::{Monitor, MonitorCommand, Reply, Request};
use flowyard_openflow::port::reserved;
use flowyard_openflow::{Match, Message, group};

use super::connect::{Options, failed, say};
use super::document;
use super::events::News;
use super::passed::passed;
use super::print;
use super::query::Asked;
use super::session::{Named, PortNames, Session, bodies};
use crate::output;
use crate::stop::Stop;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard switch monitor tcp:127.0.0.1 -O 1.4 --watch --count 10
  flowyard switch monitor tcp:127.0.0.1 --names
  flowyard switch monitor tcp:127.0.0.1 --json

With --json, each message is a JSON document in a line of its own (schema flowyard.switch.monitor/1).")]
pub(super) struct Args {
    #[command(flatten)]
    asked: Asked,
    #[command(flatten)]
    named: Named,
    /// Also print flows when they are added, changed or deleted (needs -O 1.4)
    #[arg(long)]
    watch: bool,
    /// Exit after N messages [default: never]
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

/// Flags of a flow monitor: initial flows, added, removed, modified, with instructions, also own changes.
const EVERYTHING: u16 = 1 | 2 | 4 | 8 | 16 | 32;

pub(super) fn run(options: &Options, args: &Args) -> Result<(), Stop> {
    let mut session = Session::new(options, &args.asked.at);
    let writes = args.named.wanted(args.asked.json);
    // A document has the name of a port beside its number.
    let mut names = match writes || args.asked.json {
        true => session.names()?,
        false => PortNames::default(),
    };
    let client = session.client()?;
    let version = client.version();
    let show = |message: &Message, names: &PortNames| -> Result<(), Stop> {
        let named = names.list();
        let written: &[(&str, u32)] = if writes { &named } else { &[] };
        match message {
            Message::MultipartReply { body, .. } if matches!(body, Reply::FlowMonitor(_)) => {
                events(body, written, args.asked.json)
            }
            message if args.asked.json => {
                output::json_line(document::MONITOR, News::of(message, version, &named, written))
            }
            message => say(&passed(message, version, written)),
        }
    };
    if args.watch {
        let monitor = Monitor {
            id: 1,
            out_port: reserved::ANY,
            out_group: group::ANY,
            flags: EVERYTHING,
            table: 0xff,
            command: MonitorCommand::Add,
            matching: Match::default(),
        };
        for body in bodies(client, Request::FlowMonitor(vec![monitor]))? {
            show(&Message::MultipartReply { more: false, body }, &names)?;
        }
    }
    let mut printed = 0;
    while args.count.is_none_or(|count| printed < count) {
        let Some((_, message)) = client.news(Duration::from_secs(1)).map_err(failed)? else {
            continue;
        };
        printed += 1;
        names.learn(&message);
        show(&message, &names)?;
    }
    Ok(())
}

/// Prints the events of a flow monitor.
fn events(body: &Reply, names: &[(&str, u32)], json: bool) -> Result<(), Stop> {
    let Reply::FlowMonitor(list) = body else { return Ok(()) };
    list.iter().try_for_each(|update| match json {
        true => output::json_line(document::MONITOR, News::update(update, names)),
        false => say(&print::update(update, names)),
    })
}
