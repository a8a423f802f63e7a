//! VLAN tags of an Ethernet frame.
//!
//! ```text
//!  0         6         12     14          16
//!  | eth_dst | eth_src | TPID | TCI       | EtherType, or the next tag
//!                               PCP DEI VID
//!                               3   1   12 bits
//! ```
//!
//! A tag begins with one of the numbers of [`is_tag`].

use crate::is_tag;

/// Offset of the outermost tag, or of the EtherType of a frame without tags.
pub const AT: usize = 12;
/// Bytes of a tag.
pub const LEN: usize = 4;

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|word| u16::from_be_bytes(*word))
}

/// The EtherType behind all tags, and the offset of the byte behind it. `None` if the frame ends earlier.
#[must_use]
#[inline]
pub fn ether_type(bytes: &[u8]) -> Option<(u16, usize)> {
    let mut at = AT;
    loop {
        let kind = word(bytes, at)?;
        if !is_tag(kind) {
            return Some((kind, at + 2));
        }
        at += LEN;
    }
}

/// The tag control information of the outermost tag. `None` without a tag, or if the frame ends before the
/// EtherType behind it.
#[must_use]
#[inline]
pub fn outermost(bytes: &[u8]) -> Option<u16> {
    let has_tag = is_tag(word(bytes, AT)?) && bytes.len() >= AT + LEN + 2;
    word(bytes, AT + 2).filter(|_| has_tag)
}

/// The bytes of a tag.
#[must_use]
pub const fn tag(tpid: u16, tci: u16) -> [u8; LEN] {
    let ([a, b], [c, d]) = (tpid.to_be_bytes(), tci.to_be_bytes());
    [a, b, c, d]
}

/// Sets the bits of `mask` in the control information of the outermost tag. Returns the new value, or
/// `None` if there is no tag.
pub fn set_outermost(bytes: &mut [u8], mask: u16, tci: u16) -> Option<u16> {
    let tci = outermost(bytes)? & !mask | tci & mask;
    super::put(bytes, AT + 2, &tci.to_be_bytes());
    Some(tci)
}
