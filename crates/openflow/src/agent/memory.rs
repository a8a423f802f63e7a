//! What controllers can make the switch store, in bytes, and the limits for it.
//!
//! ```text
//!   flow-mod, group-mod, meter-mod ──> tables      one limit for all controllers together
//!   bundle-add, multipart request ───> connection  a limit for each, and one for all together
//!   flow-removed, monitor events ────> notices     a limit for each, and one for all together
//! ```
//!
//! The bytes are those of the wire for messages that are stored as they came, and an estimate for
//! everything else: the sizes of the structures in the agent, and what a core stores besides.
//!
//! Invariants: an element has the same weight when it is added and when it is removed.
//! Thread-safety: plain data and plain functions.

use std::mem::{size_of, size_of_val};

use super::table::Installed;
use crate::act::{Action, Instruction};
use crate::change::{Counts, Entry};
use crate::group::{Band, Bucket};
use crate::multipart::{Monitor, Request};
use crate::port::Property;
use crate::table::{Feature, TableFeatures};
use crate::{Match, Message};

/// The most bytes that controllers can make the switch store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Flow entries, groups, meters and reduced table features, with what the cores store of them.
    pub tables: usize,
    /// The part of it that groups may have.
    pub groups: usize,
    /// The bundles of a connection.
    pub bundles: usize,
    /// The bundles of all connections.
    pub all_bundles: usize,
    /// The pieces of multipart requests that have not ended, of a connection.
    pub pieces: usize,
    /// Those of all connections.
    pub all_pieces: usize,
    /// Notices of flow entries for a controller (flow-removed messages and events of flow monitors)
    /// that the owner has not taken yet.
    pub notices: usize,
    /// Those for all controllers.
    pub all_notices: usize,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            tables: 1 << 30,
            groups: 128 << 20,
            bundles: 32 << 20,
            all_bundles: 64 << 20,
            pieces: 1 << 20,
            all_pieces: 8 << 20,
            notices: 64 << 20,
            all_notices: 128 << 20,
        }
    }
}

/// What a flow entry takes besides its lists: its nodes in the agent's trees, and itself.
const FLOW: usize = 512 + size_of::<Entry>();
/// What a core stores of a flow entry: key, mask, and its place in the table.
const FLOW_ON_CORE: usize = 704 + size_of::<Counts>();
/// The lists of a match that the agent stores: that of the entry, and the keys of its trees.
const MATCHES: usize = 4;
/// What a group or a meter takes besides its lists, with its nodes.
const GROUP: usize = 512;
/// What an allocation takes besides its bytes, about.
pub(super) const BLOCK: usize = 64;

fn of_match(matching: &Match) -> usize {
    size_of_val(matching.0.as_slice())
}

fn of_actions(list: &[Action]) -> usize {
    let more = |action: &Action| match action {
        Action::Experimenter { data, .. } => data.len(),
        _ => 0,
    };
    size_of_val(list) + list.iter().map(more).sum::<usize>()
}

pub(super) fn of_instructions(list: &[Instruction]) -> usize {
    let more = |instruction: &Instruction| match instruction {
        Instruction::WriteActions(list) | Instruction::ApplyActions(list) => of_actions(list),
        Instruction::Experimenter { data, .. } => data.len(),
        _ => 0,
    };
    list.iter().map(|one| size_of::<Instruction>() + more(one)).sum()
}

/// A flow entry with this match and these instructions. `asked` is the match as the controller wrote
/// it, if it is stored as well.
pub(super) fn of_flow(
    matching: &Match,
    asked: Option<&Match>,
    instructions: &[Instruction],
    cores: usize,
) -> usize {
    FLOW + FLOW_ON_CORE * cores
        + MATCHES * of_match(matching)
        + asked.map_or(0, of_match)
        + of_instructions(instructions)
}

pub(super) fn of_installed(flow: &Installed) -> usize {
    let entry = &flow.entry;
    of_flow(&entry.matching, flow.asked.as_deref(), &entry.instructions, entry.counts.len())
}

/// Every core has its own copy of the actions, in the order in which they are applied.
pub(super) fn of_group(buckets: &[Bucket], cores: usize) -> usize {
    let bucket = |bucket: &Bucket| {
        let each = BLOCK + size_of::<Bucket>() + of_actions(&bucket.actions) * 3 / 2;
        each + (each + size_of::<Counts>()) * cores
    };
    GROUP + buckets.iter().map(bucket).sum::<usize>()
}

pub(super) fn of_meter(bands: &[Band], cores: usize) -> usize {
    GROUP + size_of_val(bands) + bands.len() * 2 * size_of::<Counts>() * cores
}

pub(super) fn of_features(features: &TableFeatures) -> usize {
    let list = |feature: &Feature| match feature {
        Feature::Instructions { list, .. } | Feature::Actions { list, .. } => {
            size_of_val(list.as_slice())
        }
        Feature::Fields { list, .. } => size_of_val(list.as_slice()),
        Feature::Tables { list, .. } => list.len(),
        Feature::Other(Property { data, .. }) => data.len(),
    };
    size_of::<TableFeatures>()
        + BLOCK
        + features.properties.iter().map(|one| size_of::<Feature>() + list(one)).sum::<usize>()
}

fn of_monitor(monitor: &Monitor) -> usize {
    size_of::<Monitor>() + of_match(&monitor.matching)
}

/// The pieces of a request that can be split.
pub(super) fn of_request(request: &Request) -> usize {
    match request {
        Request::TableFeatures(list) => list.iter().map(of_features).sum(),
        Request::FlowMonitor(list) => list.iter().map(of_monitor).sum(),
        Request::Flow(filter) | Request::Aggregate(filter) => BLOCK + of_match(&filter.matching),
        Request::Experimenter { data, .. } => BLOCK + data.len(),
        _ => BLOCK,
    }
}

/// A notice of a flow entry.
pub(super) fn of_notice(flow: &Installed, has_instructions: bool) -> usize {
    let list = if has_instructions { of_instructions(&flow.entry.instructions) } else { 0 };
    size_of::<Message>() + 2 * BLOCK + of_match(flow.said()) + list
}

/// What a message of a controller takes while it waits, in bytes, about.
#[must_use]
pub fn weight(message: &Message) -> usize {
    let lists = match message {
        Message::FlowMod(m) => of_match(&m.matching) + of_instructions(&m.instructions),
        Message::PacketOut(m) => m.data.len() + of_actions(&m.actions),
        Message::GroupMod(m) => {
            let bucket = |one: &Bucket| size_of::<Bucket>() + BLOCK + of_actions(&one.actions);
            m.buckets.iter().map(bucket).sum()
        }
        Message::MeterMod(m) => size_of_val(m.bands.as_slice()) + m.bands.len() * BLOCK,
        Message::BundleAdd(m) => m.message.len() + BLOCK * m.properties.len(),
        Message::MultipartRequest { body, .. } => of_request(body),
        Message::EchoRequest(data) | Message::EchoReply(data) | Message::RequestForward(data) => {
            data.len()
        }
        Message::FeaturesRequest
        | Message::GetConfigRequest
        | Message::SetConfig(_)
        | Message::BarrierRequest
        | Message::QueueConfigRequest { .. }
        | Message::RoleRequest(_)
        | Message::GetAsyncRequest => 0,
        // Few of these come; a message of 64 KiB takes no more than this.
        _ => LARGEST,
    };
    size_of::<Message>() + lists
}

/// More than any message takes.
const LARGEST: usize = 512 << 10;
