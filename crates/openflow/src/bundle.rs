//! Bundles: changes that are made together or not at all (1.4, and extension 230 of 1.3).
#![allow(missing_docs, reason = "the fields are the specification's own")]

use crate::io::{Io, Res};
use crate::port::{Property, properties};
use crate::problem;

/// Opens, closes, commits or discards a bundle (1.4, and extension 230 of 1.3).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bundle {
    pub id: u32,
    /// `OFPBCT_*`: 0 open, 2 close, 4 commit, 6 discard; the number of a reply is one higher.
    pub control: u16,
    pub flags: u16,
    pub properties: Vec<Property>,
}

pub(crate) fn bundle<C: Io>(c: &mut C, m: &mut Bundle) -> Res {
    c.u32(&mut m.id)?;
    c.u16(&mut m.control)?;
    c.u16(&mut m.flags)?;
    properties(c, &mut m.properties)
}

/// Adds a message, of which the bytes are kept, to a bundle.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BundleAdd {
    pub id: u32,
    pub flags: u16,
    pub message: Vec<u8>,
    pub properties: Vec<Property>,
}

pub(crate) fn bundle_add<C: Io>(c: &mut C, m: &mut BundleAdd) -> Res {
    c.u32(&mut m.id)?;
    c.pad(2)?;
    c.u16(&mut m.flags)?;
    let was = c.blame(problem::BUNDLE_BAD_LEN);
    let mark = c.open();
    c.message(&mut m.message)?;
    // There is padding only if properties follow.
    if if C::READS { c.more() } else { !m.properties.is_empty() } {
        c.align(&mark)?;
        properties(c, &mut m.properties)?;
    }
    c.unmark(&mark);
    c.blame(was);
    Ok(())
}
