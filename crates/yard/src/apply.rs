//! Apply: action lists on bytes. What a table's answer may have done to a frame on its way.
//!
//! ```text
//!  tables say    list 2 ──> [push_vlan 7] [set_eth_dst ..] [dec_ttl] ──> queue 1
//!  the lane      frame: changed bytes     key: as received     action: queue 1
//! ```
//!
//! It stands behind steer and in front of settle. A flow is who it was when it came in: its key
//! and its hash stay, so neither settle nor a queue takes a changed flow for another one.
//!
//! Ops are done in their order, on the outermost headers. An op on what the frame does not have is
//! skipped: a field of another protocol, in a later fragment, of which a byte was cut off, or
//! behind a header that contradicts itself. Checksums follow the change (RFC 1624), so one that
//! was wrong stays wrong, and one that is not there is not made. A frame is dropped for three
//! reasons: `ttl_expired`; `too_long`, when a tag does not fit into its buffer; `incomplete`, when
//! the SCTP checksum cannot follow because not all of what it covers is here.
//!
//! Invariants: nothing outside the frame's buffer is read or written; nothing is allocated; a list
//! ends in one destination, which is never another list.
//! Thread-safety: plain data.

use std::net::IpAddr;

use flowyard_frame::{Batch, Frame, Lanes, To};
use flowyard_wire::Headers;

use crate::counters::DropReason;
use crate::port::refuse;
use flowyard_pool::Pool;

mod fields;
mod tags;

/// One change to a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// The source MAC address.
    SetEthSrc([u8; 6]),
    /// The destination MAC address.
    SetEthDst([u8; 6]),
    /// A new outermost VLAN tag (IEEE 802.1Q clause 9.6): its EtherType and its TCI, which are the
    /// priority in the upper 3 bits and the VLAN id in the lower 12.
    PushVlan {
        /// 0x8100 for a customer's tag, 0x88a8 for a service tag.
        tpid: u16,
        /// Priority, drop eligibility, VLAN id.
        tci: u16,
    },
    /// The outermost VLAN tag goes.
    PopVlan,
    /// The VLAN id of the outermost tag, 12 bits.
    SetVlan(u16),
    /// The priority of the outermost tag, 3 bits.
    SetPcp(u8),
    /// IPv4 time to live or IPv6 hop limit less one; at 1 or 0 the frame is dropped (RFC 1812
    /// section 5.3.1, RFC 8200 section 3).
    DecTtl,
    /// The source address of frames of the address's own family.
    SetSrc(IpAddr),
    /// The destination address, likewise.
    SetDst(IpAddr),
    /// The source port of TCP, UDP or SCTP.
    SetSport(u16),
    /// The destination port, likewise.
    SetDport(u16),
    /// The upper 6 bits of IPv4 TOS or IPv6 traffic class (RFC 2474); ECN stays.
    SetDscp(u8),
    /// The mark that the frame carries.
    SetMark(u32),
}

/// Ops in their order, and where frames go then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct List {
    ops: Box<[Op]>,
    to: To,
}

impl List {
    /// `ops`, then `to`. A list as destination is none: its frames are dropped as `no_route`.
    #[must_use]
    pub fn new(ops: impl Into<Box<[Op]>>, to: To) -> Self {
        Self { ops: ops.into(), to }
    }

    /// Where frames go.
    #[must_use]
    pub const fn to(&self) -> To {
        self.to
    }

    /// Does the ops on `frame`, a frame of `pool`, and on its `mark`.
    ///
    /// # Errors
    /// Why the frame is to be dropped. Ops before that one are done.
    pub fn run(&self, frame: &mut Frame, mark: &mut u32, pool: &Pool) -> Result<(), DropReason> {
        let mut known = None; // the headers, until a tag moves them
        for op in &self.ops {
            match *op {
                Op::SetMark(value) => *mark = value,
                Op::PushVlan { tpid, tci } => {
                    tags::push(frame, pool, tpid, tci)?;
                    known = None;
                }
                Op::PopVlan => {
                    tags::pop(frame, pool);
                    known = None;
                }
                op => {
                    let link = pool.meta(frame).link;
                    let bytes = pool.bytes_mut(frame);
                    let headers = known.get_or_insert_with(|| Headers::parse(link, bytes));
                    fields::set(op, headers, bytes)?;
                }
            }
        }
        Ok(())
    }
}

/// The action lists of a yard, by the number in [`To::List`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lists(Box<[List]>);

impl Lists {
    /// `lists`, numbered from 0.
    #[must_use]
    pub fn new(lists: impl Into<Box<[List]>>) -> Self {
        Self(lists.into())
    }

    /// Whether there are none.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Runs the lists that the lanes' actions name, each of which becomes the list's destination;
    /// an action that names none there is stays. Returns the lanes that a list dropped: the
    /// reason's code is in their action's counter.
    pub fn apply(&self, batch: &mut Batch, pool: &Pool) -> Lanes {
        let mut dropped = Lanes::NONE;
        for lane in batch.lanes() {
            let To::List(number) = batch.actions[lane].to else { continue };
            let Some(list) = self.0.get(usize::from(number)) else { continue };
            let action = &mut batch.actions[lane];
            match list.run(&mut batch.frames[lane], &mut action.mark, pool) {
                Ok(()) => action.to = list.to,
                Err(reason) => {
                    refuse(batch, lane, reason);
                    dropped = dropped.with(lane);
                }
            }
        }
        dropped
    }
}

#[cfg(test)]
mod tests;
