//! Both sides of the control channel, without sockets.
//!
//! ```text
//!  server                      client
//!  HELLO (limits)   ──>        chooses its rings
//!                   <──        INIT
//!  ACK              ──>
//!                   <──        ADD_REGION, with its memory
//!  ACK              ──>
//!                   <──        ADD_RING, with an eventfd; one for each ring
//!  ACK              ──>
//!                   <──        CONNECT
//!  CONNECTED        ──>
//! ```
//!
//! Descriptors are of any type `F`, so that tests and the fuzzer need no files.

use crate::Settings;
use crate::layout::Layout;
use crate::message::{AddRing, Message, VERSION};

/// More regions than any client has.
const REGIONS: usize = 16;

/// The other side is refused, because.
pub type Refused = String;

/// What a client has sent.
#[derive(Debug)]
pub struct Parts<F> {
    /// The client's name.
    pub name: String,
    /// Memory: its bytes, and its descriptor.
    pub regions: Vec<(u64, F)>,
    /// Rings that carry frames to the server.
    pub to_server: Vec<(AddRing, F)>,
    /// Rings that carry frames to the client.
    pub to_client: Vec<(AddRing, F)>,
}

impl<F> Parts<F> {
    const fn new() -> Self {
        Self {
            name: String::new(),
            regions: Vec::new(),
            to_server: Vec::new(),
            to_client: Vec::new(),
        }
    }
}

/// What the server does next.
#[derive(Debug)]
pub enum Reply<F> {
    /// Sends this message.
    Send(Message),
    /// Uses what the client has sent; and then sends this message.
    Connect(Parts<F>, Message),
    /// The client has ended the connection, because.
    Ended(String),
}

/// The server's side.
#[derive(Debug)]
pub struct Server<F> {
    settings: Settings,
    has_init: bool,
    is_connected: bool,
    parts: Parts<F>,
}

fn padded(secret: &[u8]) -> [u8; 24] {
    let mut all = [0; 24];
    for (to, from) in all.iter_mut().zip(secret) {
        *to = *from;
    }
    all
}

impl<F> Server<F> {
    /// A server that waits for a client.
    #[must_use]
    pub const fn new(settings: Settings) -> Self {
        Self { settings, has_init: false, is_connected: false, parts: Parts::new() }
    }

    /// The first message.
    #[must_use]
    pub fn hello(&self) -> Message {
        let last = self.settings.queues.saturating_sub(1);
        Message::Hello {
            name: self.settings.name.clone(),
            versions: (VERSION, VERSION),
            highest: (REGIONS as u16 - 1, last, last),
            log2_ring: 14,
        }
    }

    /// Takes a message, and the descriptor that came with it.
    ///
    /// # Errors
    /// When the message breaks the protocol, or asks for what this server does not have.
    pub fn receive(&mut self, message: Message, fd: Option<F>) -> Result<Reply<F>, Refused> {
        if let Message::Disconnect { reason, .. } = message {
            return Ok(Reply::Ended(reason));
        }
        if self.is_connected {
            return Err("after CONNECT, only DISCONNECT is expected".into());
        }
        match message {
            Message::Init { version, id, mode, secret, name } if !self.has_init => {
                self.init(version, id, mode, &secret)?;
                self.parts.name = name;
                self.has_init = true;
            }
            _ if !self.has_init => return Err("INIT is expected first, and once".into()),
            Message::AddRegion { index, size } => self.region(index, size, fd)?,
            Message::AddRing(ring) => self.ring(ring, fd)?,
            Message::Connect { .. } => return self.connect(),
            _ => return Err("ADD_REGION, ADD_RING or CONNECT is expected".into()),
        }
        Ok(Reply::Send(Message::Ack))
    }

    fn init(&self, version: u16, id: u32, mode: u8, secret: &[u8; 24]) -> Result<(), Refused> {
        let wanted = &self.settings;
        if version != VERSION {
            return Err(format!("version {}.{} is not spoken here", version >> 8, version & 255));
        }
        if id != wanted.id {
            return Err(format!("this socket has interface {}, not {id}", wanted.id));
        }
        if mode != 0 {
            return Err(format!("mode {mode} is not supported; use Ethernet frames (mode 0)"));
        }
        if *secret != padded(&wanted.secret) {
            return Err("the secret is wrong".into());
        }
        Ok(())
    }

    fn region(&mut self, index: u16, size: u64, fd: Option<F>) -> Result<(), Refused> {
        let fd = fd.ok_or("ADD_REGION has no descriptor")?;
        let count = self.parts.regions.len();
        if usize::from(index) != count || count >= REGIONS {
            return Err(format!("region {index} is not expected; the next one is {count}"));
        }
        self.parts.regions.push((size, fd));
        Ok(())
    }

    fn ring(&mut self, ring: AddRing, fd: Option<F>) -> Result<(), Refused> {
        let fd = fd.ok_or("ADD_RING has no descriptor")?;
        let of = &mut self.parts;
        let rings = if ring.to_server { &mut of.to_server } else { &mut of.to_client };
        let count = rings.len();
        if usize::from(ring.index) != count || count >= usize::from(self.settings.queues) {
            let most = self.settings.queues;
            return Err(format!(
                "ring {} is not expected; the next one is {count}, and there are at most {most}",
                ring.index
            ));
        }
        if usize::from(ring.region) >= of.regions.len() {
            return Err(format!("ring {} is in region {}, which is unknown", count, ring.region));
        }
        if ring.private != 0 {
            return Err("private headers are not supported".into());
        }
        rings.push((ring, fd));
        Ok(())
    }

    fn connect(&mut self) -> Result<Reply<F>, Refused> {
        if self.parts.to_server.is_empty() || self.parts.to_client.is_empty() {
            return Err("CONNECT needs at least one ring in each direction".into());
        }
        self.is_connected = true;
        let parts = std::mem::replace(&mut self.parts, Parts::new());
        Ok(Reply::Connect(parts, Message::Connected { name: self.settings.name.clone() }))
    }
}

/// The descriptor that a message of the client needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attach {
    /// None.
    Nothing,
    /// That of the memory.
    Memory,
    /// The eventfd of a ring.
    Ring,
}

/// What the client does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Sends this message.
    Send(Message, Attach),
    /// Uses its rings: the server with this name is ready.
    Connected(String),
    /// The server has ended the connection, because.
    Ended(String),
}

/// The client's side.
#[derive(Debug)]
pub struct Client {
    settings: Settings,
    layout: Option<Layout>,
    /// The messages that were sent.
    sent: u32,
}

impl Client {
    /// A client that waits for HELLO.
    #[must_use]
    pub const fn new(settings: Settings) -> Self {
        Self { settings, layout: None, sent: 0 }
    }

    /// Its memory, once the server's limits are known.
    #[must_use]
    pub const fn layout(&self) -> Option<Layout> {
        self.layout
    }

    /// Takes a message.
    ///
    /// # Errors
    /// When the message breaks the protocol, or the server does not have what this client needs.
    pub fn receive(&mut self, message: &Message) -> Result<Step, Refused> {
        match (message, self.layout) {
            (Message::Disconnect { reason, .. }, _) => Ok(Step::Ended(reason.clone())),
            (Message::Hello { versions, highest, log2_ring, .. }, None) => {
                if versions.0 > VERSION || versions.1 < VERSION {
                    let major = |version: u16| version >> 8;
                    let (low, high) = (major(versions.0), major(versions.1));
                    return Err(format!("the server speaks versions {low} to {high}, not 2.0"));
                }
                let most = |highest: u16| self.settings.queues.min(highest.saturating_add(1));
                let layout = Layout {
                    rings: (most(highest.1), most(highest.2)),
                    log2_ring: self.settings.log2_ring.min(*log2_ring),
                    buffer_bytes: self.settings.buffer_bytes,
                };
                if layout.log2_ring == 0 || layout.bytes().is_none() {
                    return Err("the server's limits leave no rings that are possible".into());
                }
                self.layout = Some(layout);
                self.next(&layout)
            }
            (Message::Ack, Some(layout)) => self.next(&layout),
            (Message::Connected { name }, Some(layout)) if self.sent == self.count(&layout) => {
                Ok(Step::Connected(name.clone()))
            }
            (other, _) => Err(format!("{other:?} is not expected here")),
        }
    }

    /// INIT, ADD_REGION, a ring each, CONNECT.
    const fn count(&self, layout: &Layout) -> u32 {
        3 + layout.rings.0 as u32 + layout.rings.1 as u32
    }

    fn next(&mut self, layout: &Layout) -> Result<Step, Refused> {
        let (to_server, number) = (u32::from(layout.rings.0), self.sent);
        let name = self.settings.name.clone();
        let (message, attach) = match number {
            0 => {
                let secret = padded(&self.settings.secret);
                let (version, id) = (VERSION, self.settings.id);
                (Message::Init { version, id, mode: 0, secret, name }, Attach::Nothing)
            }
            1 => {
                let size = layout.bytes().unwrap_or_default() as u64;
                (Message::AddRegion { index: 0, size }, Attach::Memory)
            }
            _ if number + 1 < self.count(layout) => {
                let ring = number - 2;
                let ring = match ring.checked_sub(to_server) {
                    None => layout.ring(true, ring as u16),
                    Some(ring) => layout.ring(false, ring as u16),
                };
                (Message::AddRing(ring), Attach::Ring)
            }
            _ if number + 1 == self.count(layout) => (Message::Connect { name }, Attach::Nothing),
            _ => return Err("one ACK too many".into()),
        };
        self.sent += 1;
        Ok(Step::Send(message, attach))
    }
}
