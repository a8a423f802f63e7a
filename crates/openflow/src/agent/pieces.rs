//! Replies that are made in pieces, because a table may have a million flow entries, and a reply about
//! all of them would take a multiple of their memory.
//!
//! ```text
//!   request ──> first piece ──(room to send)── proceed ──> next piece ──> .. ──> last piece
//!                         └─ meanwhile, requests of other connections
//! ```
//!
//! The owner asks for a piece when there is room to send it, and takes no message of the connection
//! meanwhile, so its replies are in the order of its requests. Flow entries that change between two
//! pieces are listed as they are then.
//!
//! Invariants: a piece looks at no more than [`LOOKS`] flow entries, and has no more than [`PIECE`]
//! of them or about [`BYTES`] bytes of groups.
//! Thread-safety: plain data.

use std::ops::Bound;

use super::table::Rule;
use super::{Agent, Ask, Out, memory};
use crate::multipart::{FlowFilter, FlowStats, Monitor, Reply};
use crate::problem::Problem;
use crate::{Message, Version, encode, translate};

/// The flow entries in a piece.
pub(super) const PIECE: usize = 1024;
/// The flow entries that are looked at for a piece.
const LOOKS: usize = 16 * PIECE;
/// The bytes of groups, or of the lists of flow entries, in a piece.
const BYTES: usize = 1 << 20;

/// What a reply lists.
#[derive(Clone, Debug)]
pub(super) enum What {
    Flows(FlowFilter),
    /// The flow entries that exist when these monitors are added.
    Initial(Vec<Monitor>),
    Groups,
}

/// A reply of which more pieces are to come.
#[derive(Clone, Debug)]
pub(super) struct Pieces {
    ask: Ask,
    what: What,
    /// The table, or the number of the group, at which the next piece begins.
    from: u32,
    /// The last flow entry of that table that was looked at.
    after: Option<Rule>,
}

impl Agent {
    /// The first piece of a reply; often it is the only one.
    pub(super) fn begin(&mut self, ask: Ask, what: What) -> Result<Message, Problem> {
        let what = match what {
            What::Flows(filter) => What::Flows(self.checked(&filter)?),
            what => what,
        };
        Ok(self.piece(Pieces { ask, what, from: 0, after: None }))
    }

    /// Whether a connection has a reply of which more pieces are to come. Until it is complete, the
    /// owner must give no other message of the connection to [`Agent::handle`].
    #[must_use]
    pub fn is_replying(&self, connection: u32) -> bool {
        self.peers.get(&connection).is_some_and(|peer| peer.pieces.is_some())
    }

    /// Makes the next piece of a reply, if there is one.
    pub fn proceed(&mut self, connection: u32, now: u64, out: &mut Vec<Out>) {
        self.now = now;
        let Some(peer) = self.peers.get_mut(&connection) else { return };
        let Some(mut pieces) = peer.pieces.take() else { return };
        pieces.ask.now = now;
        let (to, xid) = (connection, pieces.ask.xid);
        let message = self.piece(pieces);
        out.push(Out { to, xid, message, after: self.changes, counts: None });
    }

    fn piece(&mut self, mut pieces: Pieces) -> Message {
        let (body, more) = match pieces.what.clone() {
            What::Groups => self.some_groups(&mut pieces),
            What::Flows(filter) => {
                let mut list = Vec::new();
                let more = self.some_flows(&mut pieces, |flow, ask| {
                    let wanted = flow.is_in(&filter)
                        && (filter.table == crate::table::ALL || filter.table == flow.entry.table);
                    let stats = wanted.then(|| flow.stats(ask.now));
                    let stats = stats.filter(|stats| expressible(stats, ask.version));
                    let weight =
                        stats.as_ref().map(|one| memory::of_instructions(&one.instructions));
                    list.extend(stats);
                    weight
                });
                if !more && matches!(filter.table, 0 | crate::table::ALL) {
                    let (now, version) = (pieces.ask.now, pieces.ask.version);
                    let own = self.own.chosen(&filter).map(|flow| flow.stats(now));
                    list.extend(own.filter(|flow| expressible(flow, version)));
                }
                (Reply::Flow(list), more)
            }
            What::Initial(monitors) => {
                let mut list = Vec::new();
                let more = self.some_flows(&mut pieces, |flow, ask| {
                    let update = Self::initial(&monitors, flow, ask.version);
                    let weight =
                        update.is_some().then(|| memory::of_instructions(&flow.entry.instructions));
                    list.extend(update);
                    weight
                });
                (Reply::FlowMonitor(list), more)
            }
        };
        if more && let Some(peer) = self.peers.get_mut(&pieces.ask.from) {
            peer.pieces = Some(pieces);
        }
        Message::MultipartReply { more, body }
    }

    /// Shows flow entries to `take`, which returns the weight of those that it takes, until the piece
    /// is full. Returns whether there are more.
    fn some_flows(
        &self,
        pieces: &mut Pieces,
        mut take: impl FnMut(&super::table::Installed, &Ask) -> Option<usize>,
    ) -> bool {
        let (mut looks, mut taken, mut bytes) = (0, 0, 0);
        while let Some(table) = self.tables.get(pieces.from as usize) {
            let mut last = None;
            for flow in table.after(pieces.after.as_ref()) {
                if looks == LOOKS || taken == PIECE || bytes > BYTES {
                    pieces.after = last
                        .map(|flow: &super::table::Installed| Rule::of(&flow.entry))
                        .or_else(|| pieces.after.take());
                    return true;
                }
                looks += 1;
                if let Some(weight) = take(flow, &pieces.ask) {
                    (taken, bytes) = (taken + 1, bytes + weight);
                }
                last = Some(flow);
            }
            (pieces.from, pieces.after) = (pieces.from + 1, None);
        }
        false
    }

    fn some_groups(&self, pieces: &mut Pieces) -> (Reply, bool) {
        let (mut list, mut bytes) = (Vec::new(), 0);
        for (number, state) in self.groups.range((Bound::Included(pieces.from), Bound::Unbounded)) {
            if bytes > BYTES {
                pieces.from = *number;
                return (Reply::GroupDesc(list), true);
            }
            bytes += state.weight();
            list.push(state.group.desc.clone());
        }
        (Reply::GroupDesc(list), false)
    }
}

/// Whether the version can express a flow entry. Many entries have no form in 1.0, and some of 1.0
/// have none in newer versions.
fn expressible(flow: &FlowStats, version: Version) -> bool {
    if version != Version::V10 {
        return translate::fits(&flow.matching, &flow.instructions, version);
    }
    let body = Reply::Flow(vec![flow.clone()]);
    let reply = Message::MultipartReply { more: false, body };
    encode(&reply, version, 0, &mut Vec::new()).is_ok()
}
