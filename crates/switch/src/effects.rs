//! Effects: what becomes of a frame. Filled by the data plane, read and cleared by who moves frames.
//!
//! Invariants: nothing is allocated once the buffers have their size, but for punts, which are few:
//! at most [`Effects::punts_max`] wait at a time, and those above are counted.
//! Thread-safety: plain data, one owner.

use flowyard_openflow::change::Punt;

use crate::packet::Packet;

/// The bytes that leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bytes {
    /// Those of the frame as it came.
    Same,
    /// Others: see [`Effects::bytes`].
    Changed {
        /// Where they start.
        at: u32,
        /// How many they are.
        len: u32,
    },
}

/// A frame leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// By this port, never a reserved one but `LOCAL`.
    pub port: u32,
    /// By this queue of it; 0 where none was set.
    pub queue: u32,
    /// With these bytes.
    pub bytes: Bytes,
}

/// A station was seen at a port, by an output to `NORMAL`: other cores want to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Its address.
    pub mac: [u8; 6],
    /// In this VLAN; 0 without a tag.
    pub vlan: u16,
    /// The port.
    pub port: u32,
    /// When.
    pub at: u64,
}

/// Why a frame left by no port. The first reason counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Its port takes none: unknown, down, or `OFPPC_NO_RECV`.
    NotReceived,
    /// No flow of a table matched.
    Miss,
    /// The flows that matched send nothing.
    NoOutput,
    /// A meter.
    Meter,
    /// Its time to live was over.
    Ttl,
    /// An SCTP checksum could not follow a change.
    Incomplete,
    /// It would have become longer than any frame.
    TooLong,
    /// It was sent only to where it came from, or to ports that are down or forward nothing.
    Filtered,
    /// It went to a controller, and nowhere else.
    Controller,
}

/// What became of a frame, and frames for the controllers.
#[derive(Debug, Default)]
pub struct Effects {
    /// The frames that leave, in this order.
    pub sent: Vec<Sent>,
    /// Why none does.
    pub reason: Option<Reason>,
    /// For the controllers; not cleared with the rest.
    pub punts: Vec<Punt>,
    /// How many of them may wait.
    pub punts_max: usize,
    /// How many found no room.
    pub punts_lost: u64,
    /// Stations seen; not cleared with the rest.
    pub seen: Vec<Seen>,
    room: Vec<u8>,
}

impl Effects {
    /// Room for `punts_max` frames for controllers.
    #[must_use]
    pub fn new(punts_max: usize) -> Self {
        Self { punts_max, ..Self::default() }
    }

    /// Forgets what became of the last frame.
    pub fn clear(&mut self) {
        self.sent.clear();
        self.room.clear();
        self.reason = None;
    }

    /// The bytes of a frame that leaves; `frame` is what came.
    #[must_use]
    pub fn bytes<'a>(&'a self, sent: &Sent, frame: &'a [u8]) -> &'a [u8] {
        match sent.bytes {
            Bytes::Same => frame,
            Bytes::Changed { at, len } => {
                self.room.get(at as usize..(at + len) as usize).unwrap_or(&[])
            }
        }
    }

    pub(crate) fn send(&mut self, port: u32, queue: u32, packet: &mut Packet<'_>, owned: bool) {
        let bytes = if packet.is_same() && !owned {
            Bytes::Same
        } else {
            let (at, len) = packet.kept.unwrap_or_else(|| {
                let at = self.room.len();
                self.room.extend_from_slice(packet.bytes());
                (at as u32, (self.room.len() - at) as u32)
            });
            packet.kept = Some((at, len));
            Bytes::Changed { at, len }
        };
        self.sent.push(Sent { port, queue, bytes });
    }

    pub(crate) fn because(&mut self, reason: Reason) {
        self.reason.get_or_insert(reason);
    }

    pub(crate) fn punt(&mut self, punt: impl FnOnce() -> Punt) {
        if self.punts.len() < self.punts_max {
            self.punts.push(punt());
        } else {
            self.punts_lost += 1;
        }
    }
}
