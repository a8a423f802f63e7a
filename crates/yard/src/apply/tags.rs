//! Operations that insert or remove the outermost VLAN tag, see [`flowyard_wire::edit::tags`].

use flowyard_frame::Frame;
use flowyard_wire::LinkType;
use flowyard_wire::edit::tags;

use crate::counters::DropReason;
use flowyard_pool::Pool;

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// Inserts an outermost tag into an Ethernet frame with a complete header.
pub(super) fn push(frame: &mut Frame, pool: &Pool, tpid: u16, tci: u16) -> Result<(), DropReason> {
    if pool.meta(frame).link != LinkType::Ethernet || pool.bytes(frame).len() < ETHERNET {
        return Ok(());
    }
    if !pool.insert(frame, tags::AT, tags::LEN) {
        return Err(DropReason::TooLong);
    }
    if let Some(tag) = pool.bytes_mut(frame).get_mut(tags::AT..tags::AT + tags::LEN) {
        tag.copy_from_slice(&tags::tag(tpid, tci));
    }
    Ok(())
}

/// Removes the outermost tag, if there is one.
pub(super) fn pop(frame: &mut Frame, pool: &Pool) {
    let is_ethernet = pool.meta(frame).link == LinkType::Ethernet;
    if is_ethernet && tags::outermost(pool.bytes(frame)).is_some() {
        let _it_is_there = pool.remove(frame, tags::AT, tags::LEN);
    }
}
