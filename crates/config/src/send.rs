//! The frames of `[[send]]`, and the ports that receive them.
//!
//! Each frame of a port has a receive time of its own. If the file gives frames equal times, each
//! comes one nanosecond after the one before. A frame is identified by port and time wherever it
//! leaves, even if its bytes have changed.

use std::collections::BTreeMap;

use flowyard_frame::{Batch, FlowKey, Nanos};
use flowyard_ports::mem::Frames;
use flowyard_testkit::Build;
use flowyard_wire::LinkType;

use super::send_words::{self as words, Fragment, SendConfig};
use crate::{Config, ConfigError};
use flowyard_pool::Pool;
use {
    flowyard_ports::port::{Pace, SourceRx},
    flowyard_yard::port::{Received, Rx},
};

/// A frame to be received.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The port that receives it.
    pub port: u16,
    /// Its receive time, counted from the start.
    pub time: Nanos,
    /// The key of the `flow` in its `[[send]]`.
    pub said: FlowKey,
    /// Its flow, within which the engine keeps the order. All fragments between two hosts are one
    /// flow.
    pub flow: FlowKey,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The longest frame: an Ethernet header and an IP packet of 65,535 bytes.
const LONGEST: usize = 65_535 + 14;

/// The largest number of bytes of all frames together.
const ROOM: usize = 64 << 20;

/// The last time at which an event may happen. A longer time without events counts as a standstill
/// of the simulation.
pub const LAST: Nanos = 5_000_000;

/// The frames of the whole file, ordered by port and time.
///
/// # Errors
/// The first `[[send]]` that is wrong.
pub fn plan(config: &Config) -> Result<Vec<Planned>, ConfigError> {
    let mut all = frames(config, u32::MAX)?;
    all.sort_by_key(|frame| (frame.port, frame.time)); // the sort is stable: equal times keep the file's order
    for at in 1..all.len() {
        if all[at].port == all[at - 1].port && all[at].time <= all[at - 1].time {
            all[at].time = all[at - 1].time + 1;
        }
    }
    Ok(all)
}

/// The first `most` frames of each `[[send]]`, in the order of the file.
fn frames(config: &Config, most: u32) -> Result<Vec<Planned>, ConfigError> {
    let (mut all, mut bytes) = (Vec::new(), 0);
    for send in &config.send {
        let (send, span) = (send.get_ref(), send.span());
        let length = send.length.as_ref().map_or(0, |length| *length.get_ref());
        let given = send.bytes.as_ref().map_or(0, |text| text.get_ref().len() / 2);
        let length = length.max(given).max(128);
        bytes = length.saturating_mul(send.count as usize).saturating_add(bytes);
        if bytes > ROOM {
            let what = "the frames up to here have more than 64 MiB";
            return Err(config.error(span, what, "send less, or receive a capture"));
        }
        one(config, send, span, most, &mut all)?;
    }
    Ok(all)
}

/// Adds the first `most` frames of one `[[send]]`.
fn one(
    config: &Config,
    send: &SendConfig,
    span: std::ops::Range<usize>,
    most: u32,
    all: &mut Vec<Planned>,
) -> Result<(), ConfigError> {
    crate::names::port_name(config, send.port.get_ref(), send.port.span())?;
    let port = config.port_number(send.port.get_ref()).unwrap_or_default();
    let wrong = |span, text: String| {
        let (what, fix) = text.split_once("; ").unwrap_or((&text, "see docs/scenarios.md"));
        config.error(span, what, fix)
    };
    let said = words::key(send.flow.get_ref()).map_err(|text| wrong(send.flow.span(), text))?;
    let eth = send
        .eth
        .as_ref()
        .map(|text| words::eth(text.get_ref()).map_err(|error| wrong(text.span(), error)));
    let flags = send
        .flags
        .as_ref()
        .map(|text| words::flags(text.get_ref()).map_err(|error| wrong(text.span(), error)));
    let flags = flags.transpose()?.unwrap_or_default();
    let length = send.length.as_ref().map(|length| *length.get_ref());
    if let (Some(spanned), Some(LONGEST..)) = (&send.length, length) {
        let text = format!("the frame has too many bytes; write less than {LONGEST}");
        return Err(wrong(spanned.span(), text));
    }
    let (at, every) = (send.at.unwrap_or_default().0, send.every.unwrap_or_default().0);
    if !(1..=100_000).contains(&send.count) {
        return Err(wrong(span, "'count' is out of range; write 1 to 100000".into()));
    }
    if at.saturating_add(every.saturating_mul(send.count.into())) > LAST {
        return Err(wrong(span, "the last of these frames comes after 5ms; send faster".into()));
    }
    let link = match eth.transpose()? {
        None => said,
        Some(FlowKey { eth_src, eth_dst, vlan_tci, .. }) => {
            let vlan_tci = if vlan_tci == 0 { said.vlan_tci } else { vlan_tci };
            FlowKey { eth_src, eth_dst, vlan_tci, ..said }
        }
    };
    let flows = send.flows.as_ref().map_or(1, |flows| *flows.get_ref());
    if let Some(spanned) = &send.flows
        && (flows == 0 || said.sport.checked_add(flows - 1).is_none() || said.sport == 0)
    {
        let text =
            "each of 'flows' has a source port one higher; write fewer, or a flow with ports";
        return Err(wrong(spanned.span(), text.into()));
    }
    let given = send.bytes.as_ref().map(|text| {
        let what = "these are not bytes; write two hexadecimal digits a byte";
        crate::hex(text.get_ref()).ok_or_else(|| wrong(text.span(), what.into()))
    });
    let given = given.transpose()?;
    for number in 0..send.count.min(most) {
        let sport = said.sport + (number % u32::from(flows)) as u16;
        let key = FlowKey { sport, tcp_flags: flags, ..link };
        let ttl = send.ttl.unwrap_or(64);
        let build = Build::new(&key).seq(number).frame_len(length.unwrap_or(0)).ttl(ttl);
        let (build, flow) = match send.fragment {
            None => (build, key.flow()),
            Some(which) => {
                let offset = if which == Fragment::First { 0 } else { 185 };
                let whole = FlowKey { sport: 0, dport: 0, frag: 1, ..key.flow() };
                (build.fragment(offset, which == Fragment::First), whole)
            }
        };
        let mut bytes = given.clone().unwrap_or_else(|| build.bytes());
        bytes.truncate(length.unwrap_or(usize::MAX));
        let time = at + every * Nanos::from(number);
        all.push(Planned { port, time, said, flow, bytes });
    }
    Ok(())
}

/// Returns the first mistake in the frames to be sent.
pub(crate) fn check(config: &Config) -> Result<(), ConfigError> {
    for send in &config.send {
        let name = send.get_ref().port.get_ref();
        let port = config.ports().find(|port| port.name.get_ref() == name);
        if port.is_some_and(|port| port.input.is_some()) {
            let what = format!("port '{name}' receives a capture already");
            let fix = "leave its 'in' out, or send to another port";
            return Err(config.error(send.get_ref().port.span(), what, fix));
        }
    }
    // A mistake is in all frames of a `[[send]]`, so one of each is enough.
    frames(config, 1).map(drop)
}

/// Makes the ports of `[[send]]` receive its frames, unless they receive from another source.
///
/// # Errors
/// The first `[[send]]` that is wrong.
pub fn receive(config: &Config, rx: &mut BTreeMap<u16, Box<dyn Rx>>) -> Result<(), ConfigError> {
    let all = plan(config)?;
    for (number, port) in (0..).zip(config.ports()) {
        let mine = || all.iter().filter(|frame| frame.port == number);
        let Some(first) = mine().next() else { continue };
        let sends = config.send.iter().map(toml::Spanned::get_ref);
        let timed = sends
            .filter(|send| send.port.get_ref() == port.name.get_ref())
            .any(|send| send.at.is_some() || send.every.is_some());
        let written = port.pace.as_ref().and_then(|pace| pace.get_ref().parse().ok());
        let pace = written.unwrap_or(if timed { Pace::Capture } else { Pace::Fast });
        let mut frames = Frames::new();
        mine().for_each(|frame| frames.push(frame.time, LinkType::Ethernet, &frame.bytes));
        let wait = if pace == Pace::Capture { first.time } else { 0 };
        let source = SourceRx::new(number, Box::new(frames), pace);
        rx.entry(number).or_insert_with(|| Box::new(Later { source, wait, began: None }));
    }
    Ok(())
}

/// Receives nothing until a given time. A paced source begins with its first frame, so this is the
/// time before it.
struct Later {
    source: SourceRx,
    wait: Nanos,
    began: Option<Nanos>,
}

impl Rx for Later {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        let began = *self.began.get_or_insert(now);
        if now.saturating_sub(began) < self.wait {
            return Received::default();
        }
        self.source.rx(into, pool, now)
    }

    fn close(&mut self, pool: &mut Pool) {
        self.wait = 0;
        self.source.close(pool);
    }

    fn remarks(&self) -> Vec<String> {
        self.source.remarks()
    }

    fn failure(&self) -> Option<String> {
        self.source.failure()
    }
}
