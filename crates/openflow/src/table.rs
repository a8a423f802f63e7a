//! Tables: changes, descriptions, features, statistics.
#![allow(missing_docs, reason = "the fields are the specification's own")]

use crate::Version;
use crate::io::{Io, Res, choice};
use crate::port::{Property, Text, properties};
use crate::problem;

/// `OFPTT_ALL`: every table.
pub const ALL: u8 = 0xff;

/// Changes a table. Properties 2 (eviction) and 3 (vacancy) exist since 1.4.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableMod {
    pub table: u8,
    pub config: u32,
    pub properties: Vec<Property>,
}

pub(crate) fn table_mod<C: Io>(c: &mut C, m: &mut TableMod) -> Res {
    c.u8(&mut m.table)?;
    c.pad(3)?;
    c.u32(&mut m.config)?;
    if c.version() == Version::V14 { properties(c, &mut m.properties) } else { Ok(()) }
}

/// A table's configuration (1.4).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableDesc {
    pub table: u8,
    pub config: u32,
    pub properties: Vec<Property>,
}

pub(crate) fn table_desc<C: Io>(c: &mut C, m: &mut TableDesc) -> Res {
    let mut mark = c.open();
    c.len(&mut mark)?;
    c.u8(&mut m.table)?;
    c.pad(1)?;
    c.u32(&mut m.config)?;
    properties(c, &mut m.properties)?;
    c.close(&mark)
}

choice! {
    /// `OFPTR_*`.
    TableReason { VacancyDown = 3, VacancyUp = 4, }
}

/// Reports that the free space of a table crossed a vacancy limit (1.4).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableStatus {
    pub reason: TableReason,
    pub table: TableDesc,
}

pub(crate) fn table_status<C: Io>(c: &mut C, m: &mut TableStatus) -> Res {
    c.choice(&mut m.reason, 1, problem::REQUEST_BAD_TYPE)?;
    c.pad(7)?;
    table_desc(c, &mut m.table)
}

/// Counters of a table. Only 1.0 has name, wildcards and size here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableStats {
    pub table: u8,
    pub name: Text<32>,
    pub wildcards: u32,
    pub max_entries: u32,
    pub active: u32,
    pub looked_up: u64,
    pub matched: u64,
}

pub(crate) fn table_stats<C: Io>(c: &mut C, m: &mut TableStats) -> Res {
    c.u8(&mut m.table)?;
    c.pad(3)?;
    if c.version() == Version::V10 {
        c.bytes(&mut m.name.0)?;
        c.u32(&mut m.wildcards)?;
        c.u32(&mut m.max_entries)?;
    }
    c.u32(&mut m.active)?;
    c.u64(&mut m.looked_up)?;
    c.u64(&mut m.matched)
}

/// The features of a table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableFeatures {
    pub table: u8,
    pub name: Text<32>,
    pub metadata_match: u64,
    pub metadata_write: u64,
    /// 1.4 calls this field capabilities.
    pub config: u32,
    pub max_entries: u32,
    pub properties: Vec<Feature>,
}

/// A property of table features: a list of supported elements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Feature {
    /// `kind` is 0, or 1 for a table miss. Each element is a type, and for 0xffff an experimenter.
    Instructions { kind: u16, list: Vec<(u16, u32)> },
    /// `kind` is 2, or 3 for a table miss, or 16 for tables with which this one is synchronised
    /// (1.4).
    Tables { kind: u16, list: Vec<u8> },
    /// `kind` is 4 to 7: write-actions, the same for a miss, apply-actions, the same for a miss.
    Actions { kind: u16, list: Vec<(u16, u32)> },
    /// `kind` is 8 match, 10 wildcards, 12 to 15 set-field (write, miss, apply, miss). Each element
    /// is an OXM header, and for class 0xffff an experimenter.
    Fields { kind: u16, list: Vec<(u32, u32)> },
    /// An experimenter's property.
    Other(Property),
}

impl Feature {
    /// The number of the property's type (1.3.5, section 7.3.5.5.2).
    #[must_use]
    pub const fn kind(&self) -> u16 {
        match self {
            Self::Instructions { kind, .. }
            | Self::Tables { kind, .. }
            | Self::Actions { kind, .. }
            | Self::Fields { kind, .. } => *kind,
            Self::Other(property) => property.kind,
        }
    }
}

impl Default for Feature {
    fn default() -> Self {
        Self::Tables { kind: 2, list: Vec::new() }
    }
}

const FEATURES: &[u32] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 14, 15, 0xfffe, 0xffff];

pub(crate) fn table_features<C: Io>(c: &mut C, m: &mut TableFeatures) -> Res {
    let mut mark = c.open();
    c.len(&mut mark)?;
    c.u8(&mut m.table)?;
    c.pad(5)?;
    c.bytes(&mut m.name.0)?;
    c.u64(&mut m.metadata_match)?;
    c.u64(&mut m.metadata_write)?;
    c.u32(&mut m.config)?;
    c.u32(&mut m.max_entries)?;
    let wrong = if c.version() == Version::V14 {
        problem::PROPERTY_BAD_LEN
    } else {
        problem::Problem { code: 3, ..problem::FEATURES_BAD_TABLE }
    };
    let was = c.blame(wrong);
    c.list(&mut m.properties, feature)?;
    c.blame(was);
    c.close(&mark)
}

fn feature<C: Io>(c: &mut C, m: &mut Feature) -> Res {
    let mut mark = c.open();
    let (Feature::Instructions { kind, .. }
    | Feature::Tables { kind, .. }
    | Feature::Actions { kind, .. }
    | Feature::Fields { kind, .. }
    | Feature::Other(Property { kind, .. })) = m;
    let mut number = (*kind).into();
    c.draw(&mut number, 2, FEATURES)?;
    c.len(&mut mark)?;
    let kind = number as u16;
    if C::READS {
        *m = match kind {
            0 | 1 => Feature::Instructions { kind, list: Vec::new() },
            2 | 3 | 16 => Feature::Tables { kind, list: Vec::new() },
            4..=7 => Feature::Actions { kind, list: Vec::new() },
            8 | 10 | 12..=15 => Feature::Fields { kind, list: Vec::new() },
            0xfffe | 0xffff => Feature::Other(Property { kind, data: Vec::new() }),
            _ if c.version() == Version::V14 => return Err(problem::PROPERTY_BAD_TYPE),
            _ => return Err(problem::Problem { code: 2, ..problem::FEATURES_BAD_TABLE }),
        };
    }
    match m {
        Feature::Instructions { list, .. } => c.list(list, |c, id| number_id(c, id, &[1, 4, 6]))?,
        Feature::Actions { list, .. } => c.list(list, |c, id| number_id(c, id, &[0, 22, 25]))?,
        Feature::Tables { list, .. } => c.list(list, C::u8)?,
        Feature::Fields { list, .. } => c.list(list, |c, (header, experimenter)| {
            c.draw(header, 4, &[0x8000_0004, 0x8000_0606, 0xffff_5406])?;
            if *header >> 16 == 0xffff { c.u32(experimenter) } else { Ok(()) }
        })?,
        Feature::Other(property) => c.rest(&mut property.data)?,
    }
    c.close(&mark)?;
    c.align(&mark)
}

/// An instruction or action in a list of features: type and length 4, or 8 with an experimenter.
fn number_id<C: Io>(c: &mut C, (kind, experimenter): &mut (u16, u32), known: &[u32]) -> Res {
    let mut mark = c.open();
    let mut number = (*kind).into();
    c.draw(&mut number, 2, known)?;
    *kind = number as u16;
    c.len(&mut mark)?;
    if *kind == 0xffff {
        c.u32(experimenter)?;
    }
    c.close(&mark)
}
