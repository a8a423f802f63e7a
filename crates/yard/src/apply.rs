//! Action lists: changes to the bytes of frames that a table entry asks for.
//!
//! ```text
//!  tables say    list 2 ──> [push_vlan 7] [set_eth_dst ..] [dec_ttl] ──> queue 1
//!  the lane      frame: changed bytes     key: as received     action: queue 1
//! ```
//!
//! Lists are applied after steer and before settle. The key and the hash of a frame stay as received,
//! so settle and queues still know the flow.
//!
//! The operations of a list are applied in order, to the outermost headers. An operation is skipped if the
//! frame lacks the field: another protocol, a later fragment, a truncated frame, or an inconsistent
//! header. `flowyard_wire::edit` changes the fields and updates the checksums: a wrong checksum stays wrong,
//! and an absent one stays absent. A frame is dropped for three reasons: `ttl_expired`; `too_long`, if a tag does not
//! fit into its buffer; `incomplete`, if the SCTP checksum cannot be computed because a part of the
//! packet is missing.
//!
//! Invariants: nothing outside the frame's buffer is read or written; nothing is allocated; a list
//! ends in one destination, which is never another list.
//! Thread-safety: plain data.

use std::net::IpAddr;

use flowyard_frame::{Batch, Frame, Lanes, To};
use flowyard_wire::Headers;

use crate::counters::DropReason;
use crate::port::refuse;
use flowyard_pool::{Meta, Pool};

mod fields;
mod tags;

use fields::Fields;

/// One change to a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Set the source MAC address.
    SetEthSrc([u8; 6]),
    /// Set the destination MAC address.
    SetEthDst([u8; 6]),
    /// Add an outermost VLAN tag (IEEE 802.1Q clause 9.6).
    PushVlan {
        /// EtherType: 0x8100 for a customer tag, 0x88a8 for a service tag.
        tpid: u16,
        /// Tag control information: priority (3 bits), drop eligibility (1 bit), VLAN id (12 bits).
        tci: u16,
    },
    /// Remove the outermost VLAN tag.
    PopVlan,
    /// Set the VLAN id of the outermost tag, 12 bits.
    SetVlan(u16),
    /// Set the priority of the outermost tag, 3 bits.
    SetPcp(u8),
    /// Decrement the IPv4 time to live or the IPv6 hop limit; at 1 or 0 the frame is dropped (RFC 1812
    /// section 5.3.1, RFC 8200 section 3).
    DecTtl,
    /// Set the source address of frames of the address's family.
    SetSrc(IpAddr),
    /// Set the destination address of frames of the address's family.
    SetDst(IpAddr),
    /// Set the source port of TCP, UDP or SCTP.
    SetSport(u16),
    /// Set the destination port of TCP, UDP or SCTP.
    SetDport(u16),
    /// Set the upper 6 bits of IPv4 TOS or IPv6 traffic class (RFC 2474); ECN stays.
    SetDscp(u8),
    /// Set the mark that the frame carries.
    SetMark(u32),
}

/// Operations in order, and the destination of the frame after them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct List {
    ops: Box<[Op]>,
    to: To,
}

impl List {
    /// `ops`, then `to`. If `to` is another list, frames are dropped as `no_route`.
    #[must_use]
    pub fn new(ops: impl Into<Box<[Op]>>, to: To) -> Self {
        Self { ops: ops.into(), to }
    }

    /// The destination.
    #[must_use]
    pub const fn to(&self) -> To {
        self.to
    }

    /// Applies the operations to `frame`, a frame of `pool`, and to its `mark`.
    ///
    /// # Errors
    /// Why the frame must be dropped. Earlier operations have been applied.
    pub fn run(&self, frame: &mut Frame, mark: &mut u32, pool: &Pool) -> Result<(), DropReason> {
        let mut known = None; // where the headers are, until a tag moves them
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
                    let Meta { link, offload, .. } = pool.meta(frame);
                    let bytes = pool.bytes_mut(frame);
                    let fields = known.get_or_insert_with(|| {
                        Fields::of(&Headers::parse(link, bytes), bytes, offload)
                    });
                    fields.set(op, bytes)?;
                }
            }
        }
        Ok(())
    }
}

/// The action lists of an engine, by the number in [`To::List`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lists(Box<[List]>);

impl Lists {
    /// `lists`, numbered from 0.
    #[must_use]
    pub fn new(lists: impl Into<Box<[List]>>) -> Self {
        Self(lists.into())
    }

    /// Whether there is no list.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Applies the lists that the lanes' actions name; each such action becomes the list's destination.
    /// Actions that name no existing list stay. Returns the lanes that a list dropped, with the reason in
    /// their action.
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
