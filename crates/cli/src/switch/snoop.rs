//! `flowyard switch snoop`: the messages that pass between a running instance and its controllers, queried
//! over its control socket.

use std::time::Duration;

use flowyard_openflow::{Version, decode};
use flowyard_operate::protocol::{Request, Snooped, SnoopedMessage};

use super::connect::{Unused, say};
use super::passed::passed as describe;
use crate::show::{AskArgs, refused};
use crate::stop::Stop;

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  flowyard switch snoop --count 20

Hello and echo messages are not printed, and of an answer with several entries the first three. At most
1,024 messages are kept between two looks.")]
pub(super) struct Args {
    /// Control socket of the instance [default: that of the only running instance]
    #[arg(long, value_name = "PATH")]
    control: Option<std::path::PathBuf>,

    /// Exit after N messages [default: never]
    #[arg(long, value_name = "N")]
    count: Option<u64>,

    #[command(flatten)]
    _unused: Unused,
}

pub(super) fn run(args: &Args) -> Result<(), Stop> {
    let ask = AskArgs { control: args.control.clone(), json: false };
    let mut client = ask.connect()?;
    let first: Snooped = client.ask(&Request::SwitchSnoop { from: None }).map_err(refused)?;
    let (mut next, mut printed) = (first.next, 0);
    loop {
        let request = Request::SwitchSnoop { from: Some(next) };
        let passed: Snooped = client.ask(&request).map_err(refused)?;
        for message in &passed.messages {
            if args.count.is_some_and(|count| printed >= count) {
                return Ok(());
            }
            if message.number > next {
                say(&format!("({} messages were not kept)", message.number - next))?;
            }
            next = message.number + 1;
            printed += 1;
            say(&line(message))?;
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

/// A message with its time and direction.
fn line(passed: &SnoopedMessage) -> String {
    let way = if passed.is_sent { "to" } else { "from" };
    let digits = passed.bytes.as_bytes().chunks(2);
    let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.map(byte).collect();
    let said = match bytes.as_deref().map(decode) {
        Some(Ok((header, message))) => {
            let version = Version::of(header.version).unwrap_or(Version::V13);
            format!("xid={:#x} {} (len={})", header.xid, describe(&message, version), header.length)
        }
        Some(Err(rejected)) => rejected.to_string(),
        None => passed.bytes.clone(),
    };
    format!("{:.6} {way} {}: {said}", passed.at_s, passed.connection)
}
