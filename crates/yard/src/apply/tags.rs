//! VLAN tags: operations that insert, remove or change the outermost tag.
//!
//! ```text
//!  0         6         12     14          16
//!  | eth_dst | eth_src | tpid | TCI       | EtherType, or the next tag
//!                               pcp dei vid
//!                               3   1   12 bits
//! ```

use flowyard_frame::Frame;
use flowyard_wire::{LinkType, is_tag};

use crate::counters::DropReason;
use flowyard_pool::Pool;

/// Offset of the outermost tag.
const TAG: usize = 12;
/// Bytes of a tag.
const SIZE: usize = 4;
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// Inserts an outermost tag into an Ethernet frame with a complete header.
pub(super) fn push(frame: &mut Frame, pool: &Pool, tpid: u16, tci: u16) -> Result<(), DropReason> {
    if pool.meta(frame).link != LinkType::Ethernet || pool.bytes(frame).len() < ETHERNET {
        return Ok(());
    }
    if !pool.insert(frame, TAG, SIZE) {
        return Err(DropReason::TooLong);
    }
    if let Some([a, b, c, d]) = pool.bytes_mut(frame).get_mut(TAG..TAG + SIZE) {
        [*a, *b] = tpid.to_be_bytes();
        [*c, *d] = tci.to_be_bytes();
    }
    Ok(())
}

/// Removes the outermost tag, if there is one.
pub(super) fn pop(frame: &mut Frame, pool: &Pool) {
    if pool.meta(frame).link == LinkType::Ethernet && has_tag(pool.bytes(frame)) {
        let _it_is_there = pool.remove(frame, TAG, SIZE);
    }
}

/// Sets the bits of `mask` in the outermost tag's TCI to `bits`.
pub(super) fn change(bytes: &mut [u8], mask: u16, bits: u16) {
    if has_tag(bytes)
        && let Some([a, b]) = bytes.get_mut(TAG + 2..TAG + SIZE)
    {
        let tci = u16::from_be_bytes([*a, *b]) & !mask | bits & mask;
        [*a, *b] = tci.to_be_bytes();
    }
}

/// Whether an Ethernet frame has a tag and the EtherType after it.
fn has_tag(bytes: &[u8]) -> bool {
    match bytes.get(TAG..ETHERNET + SIZE) {
        Some(&[a, b, ..]) => is_tag(u16::from_be_bytes([a, b])),
        _ => false,
    }
}
