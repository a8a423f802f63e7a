//! Messages of the control channel: 128 bytes each, in the byte order of the machine.
//!
//! ```text
//!  0      2                                    128
//!  | type | fields of the type, then zeros ... |      with a file descriptor where the type has one
//! ```

/// The length of every message.
pub const MESSAGE_BYTES: usize = 128;

/// Version 2.0.
pub(crate) const VERSION: u16 = 2 << 8;
const NAME: usize = 32;
const SECRET: usize = 24;
const REASON: usize = 96;

/// A message of the control channel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// The message before was accepted.
    Ack,
    /// Server: the first message, with its limits.
    Hello {
        /// The server's name.
        name: String,
        /// The versions that it speaks, the lowest and the highest: major in the upper byte, minor in the lower.
        versions: (u16, u16),
        /// The highest numbers of regions, rings to the server, and rings to the client.
        highest: (u16, u16, u16),
        /// The largest ring, as a power of two.
        log2_ring: u8,
    },
    /// Client: which interface it wants.
    Init {
        /// The version that it speaks.
        version: u16,
        /// The number of the interface.
        id: u32,
        /// The kind of frames: 0 is Ethernet.
        mode: u8,
        /// What the server asks for.
        secret: [u8; SECRET],
        /// The client's name.
        name: String,
    },
    /// Client: memory, with its descriptor.
    AddRegion {
        /// Its number: 0, 1, ...
        index: u16,
        /// Its bytes.
        size: u64,
    },
    /// Client: a ring in a region, with a descriptor by which its producer of frames wakes the other side.
    AddRing(AddRing),
    /// Client: everything was sent.
    Connect {
        /// The interface's name at the client.
        name: String,
    },
    /// Server: the interface is connected.
    Connected {
        /// The interface's name at the server.
        name: String,
    },
    /// Either: the connection ends.
    Disconnect {
        /// A number of the sender's choice.
        code: u32,
        /// Why.
        reason: String,
    },
}

/// A ring in a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddRing {
    /// Whether it carries frames to the server.
    pub to_server: bool,
    /// Its number in its direction.
    pub index: u16,
    /// Its region.
    pub region: u16,
    /// Where it begins in its region.
    pub offset: u32,
    /// The number of its descriptors, as a power of two.
    pub log2_ring: u8,
    /// Bytes in front of each frame that only the client uses.
    pub private: u16,
}

/// Why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadMessage {
    /// Not 128 bytes.
    #[error("a message of {0} bytes was received; memif messages have {MESSAGE_BYTES}")]
    Length(usize),
    /// A type without a meaning.
    #[error("a message of the unknown type {0} was received")]
    Type(u16),
}

/// Reads fields in their order.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        head
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        self.take(N).first_chunk().copied().unwrap_or([0; N])
    }

    fn u8(&mut self) -> u8 {
        self.bytes::<1>()[0]
    }

    fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.bytes())
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.bytes())
    }

    /// A text that a zero ends, at the latest the last byte of its field, whatever that is.
    fn text(&mut self, count: usize) -> String {
        let field = self.take(count);
        let field = &field[..field.len().saturating_sub(1)];
        let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
        String::from_utf8_lossy(&field[..end]).into_owned()
    }
}

/// Writes fields in their order.
struct Writer {
    bytes: [u8; MESSAGE_BYTES],
    at: usize,
}

impl Writer {
    fn put(&mut self, field: &[u8]) -> &mut Self {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
        self
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.put(&value.to_ne_bytes())
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.put(&value.to_ne_bytes())
    }

    /// As much of `text` as fits with a zero behind it, in whole characters.
    fn text(&mut self, text: &str, count: usize) -> &mut Self {
        let fits = text.floor_char_boundary(count - 1);
        let end = self.at + count;
        self.put(&text.as_bytes()[..fits]);
        self.at = end;
        self
    }
}

impl Message {
    /// The message in `bytes`.
    ///
    /// # Errors
    /// When it does not have 128 bytes, or its type is unknown.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        if bytes.len() != MESSAGE_BYTES {
            return Err(BadMessage::Length(bytes.len()));
        }
        let mut f = Fields(bytes);
        Ok(match f.u16() {
            1 => Self::Ack,
            2 => Self::Hello {
                name: f.text(NAME),
                versions: (f.u16(), f.u16()),
                highest: (f.u16(), f.u16(), f.u16()),
                log2_ring: f.u8(),
            },
            3 => Self::Init {
                version: f.u16(),
                id: f.u32(),
                mode: f.u8(),
                secret: f.bytes(),
                name: f.text(NAME),
            },
            4 => Self::AddRegion { index: f.u16(), size: u64::from_ne_bytes(f.bytes()) },
            5 => Self::AddRing(AddRing {
                to_server: f.u16() & 1 != 0,
                index: f.u16(),
                region: f.u16(),
                offset: f.u32(),
                log2_ring: f.u8(),
                private: f.u16(),
            }),
            6 => Self::Connect { name: f.text(NAME) },
            7 => Self::Connected { name: f.text(NAME) },
            8 => Self::Disconnect { code: f.u32(), reason: f.text(REASON) },
            other => return Err(BadMessage::Type(other)),
        })
    }

    /// The bytes of the message. Texts that are too long are cut.
    #[must_use]
    pub fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let mut w = Writer { bytes: [0; MESSAGE_BYTES], at: 0 };
        match self {
            Self::Ack => w.u16(1),
            Self::Hello { name, versions, highest, log2_ring } => {
                w.u16(2).text(name, NAME).u16(versions.0).u16(versions.1);
                w.u16(highest.0).u16(highest.1).u16(highest.2).put(&[*log2_ring])
            }
            Self::Init { version, id, mode, secret, name } => {
                w.u16(3).u16(*version).u32(*id).put(&[*mode]).put(secret).text(name, NAME)
            }
            Self::AddRegion { index, size } => w.u16(4).u16(*index).put(&size.to_ne_bytes()),
            Self::AddRing(ring) => {
                w.u16(5).u16(ring.to_server.into()).u16(ring.index).u16(ring.region);
                w.u32(ring.offset).put(&[ring.log2_ring]).u16(ring.private)
            }
            Self::Connect { name } => w.u16(6).text(name, NAME),
            Self::Connected { name } => w.u16(7).text(name, NAME),
            Self::Disconnect { code, reason } => w.u16(8).u32(*code).text(reason, REASON),
        };
        w.bytes
    }
}
