//! The messages that a switch sends without a request.

use std::time::Duration;

use flowyard_openflow::multipart::{Monitor, MonitorCommand, Request};
use flowyard_openflow::port::reserved;
use flowyard_openflow::{Match, Message, group};
use flowyard_operate::openflow::client::{Client, words};

use super::connect::{failed, say};
use super::print;
use super::session::bodies;
use crate::stop::Stop;

/// Flags of a flow monitor: initial flows, added, removed, modified, with instructions, also own changes.
const EVERYTHING: u16 = 1 | 2 | 4 | 8 | 16 | 32;

pub(super) fn monitor(client: &mut Client, watch: bool, count: Option<u64>) -> Result<(), Stop> {
    let mut printed = 0;
    if watch {
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
            print::updates(&body).iter().try_for_each(|line| say(line))?;
        }
    }
    while count.is_none_or(|count| printed < count) {
        let Some((_, message)) = client.news(Duration::from_secs(1)).map_err(failed)? else {
            continue;
        };
        printed += 1;
        match &message {
            Message::Error(error) => say(&format!("error: {}", words(error, client.version())))?,
            Message::MultipartReply { body, .. } => {
                print::updates(body).iter().try_for_each(|line| say(line))?;
            }
            _ => say(&print::news(&message))?,
        }
    }
    Ok(())
}
