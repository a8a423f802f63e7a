//! Ports and queues: descriptions, changes, statistics. Also the properties that 1.4 adds to many
//! messages.
#![allow(missing_docs, reason = "the fields are the specification's own")]

use crate::Version;
use crate::io::{Io, Res, choice};
use crate::problem;

/// The value of a counter that the switch does not have (1.4.0, section 7.3.5).
pub const NOT_COUNTED: u64 = u64::MAX;

/// `OFPP_*`: reserved ports, with their numbers of 1.3.
pub mod reserved {
    #![allow(missing_docs, reason = "the names are the specification's own")]
    pub const MAX: u32 = 0xffff_ff00;
    pub const IN_PORT: u32 = 0xffff_fff8;
    pub const TABLE: u32 = 0xffff_fff9;
    pub const NORMAL: u32 = 0xffff_fffa;
    pub const FLOOD: u32 = 0xffff_fffb;
    pub const ALL: u32 = 0xffff_fffc;
    pub const CONTROLLER: u32 = 0xffff_fffd;
    pub const LOCAL: u32 = 0xffff_fffe;
    pub const ANY: u32 = 0xffff_ffff;
}

/// Text in a field of fixed size, padded with zeros.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<const N: usize>(pub [u8; N]);

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> std::fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(N);
        write!(f, "{:?}", String::from_utf8_lossy(&self.0[..end]))
    }
}

impl<const N: usize> From<&str> for Text<N> {
    /// Text that does not fit is cut; the last byte stays zero.
    fn from(text: &str) -> Self {
        let mut bytes = [0; N];
        for (to, from) in bytes.iter_mut().take(N.saturating_sub(1)).zip(text.bytes()) {
            *to = from;
        }
        Self(bytes)
    }
}

/// A property that is stored without being interpreted, such as an experimenter's or an optical
/// one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Property {
    pub kind: u16,
    pub data: Vec<u8>,
}

/// Properties: type, length without padding, data, zeros up to a multiple of 8.
pub(crate) fn properties<C: Io>(c: &mut C, list: &mut Vec<Property>) -> Res {
    let was = c.blame(problem::PROPERTY_BAD_LEN);
    c.list(list, |c, property| {
        let mut mark = c.open();
        let mut kind = property.kind.into();
        c.draw(&mut kind, 2, &[0xffff])?;
        property.kind = kind as u16;
        c.len(&mut mark)?;
        c.rest(&mut property.data)?;
        if C::MAKES {
            property.data.resize(8 + property.data.len() / 4 * 4, 0);
        }
        // An experimenter's property has the experimenter's number and a type.
        if property.kind == 0xffff && property.data.len() < 8 {
            return Err(problem::PROPERTY_BAD_LEN);
        }
        c.close(&mark)?;
        c.align(&mark)
    })?;
    c.blame(was);
    Ok(())
}

/// Properties of which one, of type 0, is known. It comes first. A second one of that type is
/// refused.
fn with_first<C: Io, const N: usize>(
    c: &mut C,
    first: &mut Option<[u32; N]>,
    list: &mut Vec<Property>,
    gap: usize,
) -> Res {
    // Ethernet properties are 32-bit fields after `gap` bytes; otherwise they are written as any
    // other property.
    let mut all = Vec::new();
    if let Some(fields) = first {
        let bytes = fields.iter().flat_map(|field| field.to_be_bytes());
        all.push(Property { kind: 0, data: std::iter::repeat_n(0, gap).chain(bytes).collect() });
    }
    all.append(list);
    properties(c, &mut all)?;
    for property in all {
        if property.kind != 0 {
            list.push(property);
            continue;
        }
        if C::READS && first.is_some() {
            return Err(problem::PROPERTY_DUPLICATE);
        }
        let fields = property.data.get(gap..).filter(|fields| fields.len() == 4 * N);
        let fields = fields.ok_or(problem::PROPERTY_BAD_LEN)?;
        let word = |at: usize| {
            fields[at * 4..at * 4 + 4].iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
        };
        *first = Some(std::array::from_fn(word));
    }
    Ok(())
}

/// `OFPPS_*`.
pub mod state {
    #![allow(missing_docs, reason = "the names are the specification's own")]
    pub const LINK_DOWN: u32 = 1;
}

/// A port. `ethernet` is curr, advertised, supported, peer, curr_speed, max_speed. 1.0 has no
/// speeds, and 1.4 may omit them all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Port {
    pub number: u32,
    pub hw: [u8; 6],
    pub name: Text<16>,
    pub config: u32,
    pub state: u32,
    pub ethernet: Option<[u32; 6]>,
    pub properties: Vec<Property>,
}

pub(crate) fn port<C: Io>(c: &mut C, m: &mut Port) -> Res {
    let version = c.version();
    let mut mark = c.open();
    c.port(&mut m.number)?;
    match version {
        Version::V10 => {}
        Version::V13 => c.pad(4)?,
        Version::V14 => {
            c.len(&mut mark)?;
            c.pad(2)?;
        }
    }
    c.bytes(&mut m.hw)?;
    c.pad(if version == Version::V10 { 0 } else { 2 })?;
    c.bytes(&mut m.name.0)?;
    c.u32(&mut m.config)?;
    c.u32(&mut m.state)?;
    if version == Version::V14 {
        with_first(c, &mut m.ethernet, &mut m.properties, 4)?;
        return c.close(&mark);
    }
    let mut ethernet = m.ethernet.unwrap_or_default();
    let words = if version == Version::V10 { 4 } else { 6 };
    ethernet[..words].iter_mut().try_for_each(|word| c.u32(word))?;
    m.ethernet = Some(ethernet);
    c.unmark(&mark);
    Ok(())
}

choice! {
    /// `OFPPR_*`.
    PortReason { Add = 0, Delete = 1, Modify = 2, }
}

/// Reports that a port was added, removed or changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortStatus {
    pub reason: PortReason,
    pub port: Port,
}

pub(crate) fn port_status<C: Io>(c: &mut C, m: &mut PortStatus) -> Res {
    c.choice(&mut m.reason, 1, problem::REQUEST_BAD_TYPE)?;
    c.pad(7)?;
    port(c, &mut m.port)
}

/// Changes a port. In 1.4 the advertised features may be left out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortMod {
    pub number: u32,
    pub hw: [u8; 6],
    pub config: u32,
    pub mask: u32,
    pub advertise: Option<[u32; 1]>,
    pub properties: Vec<Property>,
}

pub(crate) fn port_mod<C: Io>(c: &mut C, m: &mut PortMod) -> Res {
    let version = c.version();
    c.port(&mut m.number)?;
    c.pad(if version == Version::V10 { 0 } else { 4 })?;
    c.bytes(&mut m.hw)?;
    c.pad(if version == Version::V10 { 0 } else { 2 })?;
    c.u32(&mut m.config)?;
    c.u32(&mut m.mask)?;
    if version == Version::V14 {
        return with_first(c, &mut m.advertise, &mut m.properties, 0);
    }
    let mut advertise = m.advertise.unwrap_or_default();
    c.u32(&mut advertise[0])?;
    m.advertise = Some(advertise);
    c.pad(4)
}

/// Counters of a port. `basic` is packets, bytes, dropped and errors, each rx and tx; `ethernet` is
/// frame errors, overruns, CRC errors (all rx) and collisions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortStats {
    pub number: u32,
    pub basic: [u64; 8],
    pub ethernet: Option<[u64; 4]>,
    pub duration_sec: u32,
    pub duration_nsec: u32,
    pub properties: Vec<Property>,
}

pub(crate) fn port_stats<C: Io>(c: &mut C, m: &mut PortStats) -> Res {
    let version = c.version();
    if version == Version::V14 {
        let mut mark = c.open();
        c.len(&mut mark)?;
        c.pad(2)?;
        c.u32(&mut m.number)?;
        c.u32(&mut m.duration_sec)?;
        c.u32(&mut m.duration_nsec)?;
        m.basic.iter_mut().try_for_each(|counter| c.u64(counter))?;
        let mut halves = m.ethernet.map(|counters| {
            std::array::from_fn::<u32, 8, _>(|i| {
                (counters[i / 2] >> if i % 2 == 0 { 32 } else { 0 }) as u32
            })
        });
        with_first(c, &mut halves, &mut m.properties, 4)?;
        m.ethernet = halves.map(|halves| {
            std::array::from_fn(|i| u64::from(halves[2 * i]) << 32 | u64::from(halves[2 * i + 1]))
        });
        return c.close(&mark);
    }
    c.port(&mut m.number)?;
    c.pad(if version == Version::V10 { 6 } else { 4 })?;
    m.basic.iter_mut().try_for_each(|counter| c.u64(counter))?;
    // These versions cannot leave the counters out.
    let mut ethernet = m.ethernet.unwrap_or([NOT_COUNTED; 4]);
    ethernet.iter_mut().try_for_each(|counter| c.u64(counter))?;
    m.ethernet = Some(ethernet);
    if version == Version::V10 {
        return Ok(());
    }
    c.u32(&mut m.duration_sec)?;
    c.u32(&mut m.duration_nsec)
}

/// Counters of a queue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueStats {
    pub port: u32,
    pub queue: u32,
    pub bytes: u64,
    pub packets: u64,
    pub errors: u64,
    pub duration_sec: u32,
    pub duration_nsec: u32,
    pub properties: Vec<Property>,
}

pub(crate) fn queue_stats<C: Io>(c: &mut C, m: &mut QueueStats) -> Res {
    let version = c.version();
    let mut mark = c.open();
    if version == Version::V14 {
        c.len(&mut mark)?;
        c.pad(6)?;
    }
    c.port(&mut m.port)?;
    c.pad(if version == Version::V10 { 2 } else { 0 })?;
    c.u32(&mut m.queue)?;
    for counter in [&mut m.bytes, &mut m.packets, &mut m.errors] {
        c.u64(counter)?;
    }
    if version != Version::V10 {
        c.u32(&mut m.duration_sec)?;
        c.u32(&mut m.duration_nsec)?;
    }
    if version == Version::V14 {
        properties(c, &mut m.properties)?;
        return c.close(&mark);
    }
    c.unmark(&mark);
    Ok(())
}

/// A queue and its properties: type 1 is the minimum rate, type 2 the maximum rate, in 1/10 %.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Queue {
    pub port: u32,
    pub queue: u32,
    pub properties: Vec<Property>,
}

pub(crate) fn queue<C: Io>(c: &mut C, m: &mut Queue) -> Res {
    let version = c.version();
    let mut mark = c.open();
    if version == Version::V14 {
        c.u32(&mut m.port)?;
    }
    c.u32(&mut m.queue)?;
    if version == Version::V13 {
        c.u32(&mut m.port)?;
    }
    c.len(&mut mark)?;
    c.pad(if version == Version::V10 { 2 } else { 6 })?;
    if version == Version::V14 {
        properties(c, &mut m.properties)?;
        return c.close(&mark);
    }
    // Before 1.4, a property has four bytes of padding after its length, and is 16 bytes long.
    let was = c.blame(problem::REQUEST_BAD_LEN);
    c.list(&mut m.properties, |c, property| {
        let mut mark = c.open();
        let mut kind = property.kind.into();
        c.draw(&mut kind, 2, &[1])?;
        property.kind = kind as u16;
        c.len(&mut mark)?;
        c.pad(4)?;
        c.rest(&mut property.data)?;
        c.close(&mark)
    })?;
    c.blame(was);
    c.close(&mark)
}
