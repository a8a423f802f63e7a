//! QUIC-LB: the server ID in a QUIC connection ID (draft-ietf-quic-load-balancers-21).
//!
//! ```text
//!  QUIC packet, long:   1....... | version 4 | length | connection ID ...
//!               short:  0....... | connection ID ...
//!  connection ID:  [ codepoint 3 bits | length or random 5 bits ] [ server ID | nonce ]
//!                                                                  \__ maybe encrypted __/
//! ```
//!
//! Three forms: unencrypted; server ID and nonce of 16 bytes together as one AES block; any other
//! length as four rounds of a Feistel network with AES (section 5.4). When a client migrates to another
//! address, its packets still reach the server that has the connection.
//!
//! Every input has a result, without a panic; nothing is allocated per packet.

use aes::Aes128;
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use flowyard_wire::quic as wire;

/// The longest connection ID of QUIC version 1 without its first byte, in bytes.
const LONGEST: usize = 19;
/// The longest server ID, in bytes.
const SERVER: usize = 15;

/// The encoding of server IDs in connection IDs with one codepoint.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    codepoint: u8,
    server_bytes: usize,
    nonce_bytes: usize,
    key: Option<[u8; 16]>,
}

impl std::fmt::Debug for Config {
    /// Omits the key, which is a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { codepoint, server_bytes, nonce_bytes, key } = self;
        let form = if key.is_some() { "encrypted" } else { "plain" };
        write!(f, "{form} at {codepoint}: {server_bytes} + {nonce_bytes} bytes")
    }
}

/// Reasons for which a configuration is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadConfig {
    /// The codepoint exceeds 6; the draft reserves 7 for routing by address.
    #[error("the codepoint {0} is out of range; write 0 to 6")]
    Codepoint(u8),
    /// The lengths are not allowed by section 5 of the draft.
    #[error(
        "a server ID of {server} bytes with a nonce of {nonce} bytes is not allowed; a server ID has 1 to 15 bytes, a nonce at least 4, and both together at most 19"
    )]
    Lengths {
        /// Length of the server ID in bytes.
        server: usize,
        /// Length of the nonce in bytes.
        nonce: usize,
    },
}

impl Config {
    /// An encoding with server IDs of `server_bytes` and nonces of `nonce_bytes`, encrypted with
    /// `key`, or unencrypted without one.
    ///
    /// # Errors
    /// The draft does not allow these values.
    pub fn new(
        codepoint: u8,
        server_bytes: usize,
        nonce_bytes: usize,
        key: Option<[u8; 16]>,
    ) -> Result<Self, BadConfig> {
        if codepoint > 6 {
            return Err(BadConfig::Codepoint(codepoint));
        }
        if !(1..=SERVER).contains(&server_bytes)
            || nonce_bytes < 4
            || server_bytes.saturating_add(nonce_bytes) > LONGEST
        {
            return Err(BadConfig::Lengths { server: server_bytes, nonce: nonce_bytes });
        }
        Ok(Self { codepoint, server_bytes, nonce_bytes, key })
    }

    /// The value of the first three bits of connection IDs with this encoding.
    #[must_use]
    pub const fn codepoint(&self) -> u8 {
        self.codepoint
    }

    /// Length of a server ID in bytes.
    #[must_use]
    pub const fn server_bytes(&self) -> usize {
        self.server_bytes
    }
}

/// A server ID of 1 to 15 bytes, padded with zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ServerId {
    bytes: [u8; SERVER],
    len: u8,
}

impl ServerId {
    /// Makes a server ID; `None` if `bytes` is empty or longer than 15 bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut all = [0; SERVER];
        all.get_mut(..bytes.len())?.copy_from_slice(bytes);
        (!bytes.is_empty()).then_some(Self { bytes: all, len: bytes.len() as u8 })
    }

    /// The bytes without padding.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or_default()
    }
}

/// Decodes server IDs. It holds the expanded AES keys.
#[derive(Clone)]
pub struct Reader {
    /// Indexed by codepoint.
    forms: [Option<Form>; 7],
}

#[derive(Clone)]
struct Form {
    server: usize,
    whole: usize,
    cipher: Option<Box<Aes128>>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reader({} codepoints)", self.forms.iter().flatten().count())
    }
}

/// How a QUIC packet is routed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// To the server with this ID, if it exists.
    Server(ServerId),
    /// By its addresses: the packet has codepoint 7, a connection ID chosen by the client, or is not
    /// QUIC.
    ByAddress,
}

impl Reader {
    /// A reader for all of `configs`; if two have the same codepoint, the later is used.
    #[must_use]
    pub fn new(configs: &[Config]) -> Self {
        let mut forms = [const { None }; 7];
        for config in configs {
            forms[usize::from(config.codepoint)] = Some(Form {
                server: config.server_bytes,
                whole: config.server_bytes + config.nonce_bytes,
                cipher: config.key.map(|key| Box::new(Aes128::new(&key.into()))),
            });
        }
        Self { forms }
    }

    /// How the UDP payload `packet` is routed. A client's first connection ID is random and may look
    /// like a server's, so the caller must route by address if the server does not exist.
    #[must_use]
    pub fn route(&self, packet: &[u8]) -> Route {
        let id = wire::destination(packet).and_then(|id| self.read(id.bytes));
        id.map_or(Route::ByAddress, Route::Server)
    }

    /// The server ID in the connection ID at the start of `cid`, which may be longer.
    fn read(&self, cid: &[u8]) -> Option<ServerId> {
        let (first, rest) = cid.split_first()?;
        let form = self.forms.get(usize::from(first >> 5))?.as_ref()?;
        let coded = rest.get(..form.whole)?;
        let mut plain = [0; LONGEST];
        match &form.cipher {
            None => plain[..form.whole].copy_from_slice(coded),
            Some(aes) if form.whole == 16 => {
                let mut block = [0; 16];
                block.copy_from_slice(coded);
                let mut block = block.into();
                aes.decrypt_block(&mut block);
                plain[..16].copy_from_slice(&block);
            }
            Some(aes) => unfeistel(aes, coded, &mut plain),
        }
        ServerId::new(&plain[..form.server])
    }
}

/// The two halves of the Feistel network. If the length is odd, each half has four bits of the middle
/// byte.
struct Halves {
    left: [u8; 10],
    right: [u8; 10],
    /// Bytes of a half, rounded up.
    half: usize,
    whole: usize,
}

impl Halves {
    fn split(bytes: &[u8]) -> Self {
        let (whole, half) = (bytes.len(), bytes.len().div_ceil(2));
        let (mut left, mut right) = ([0; 10], [0; 10]);
        left[..half].copy_from_slice(&bytes[..half]);
        right[..half].copy_from_slice(&bytes[whole - half..]);
        let mut halves = Self { left, right, half, whole };
        halves.clear();
        halves
    }

    /// Clears the bits of the middle byte that belong to the other half.
    fn clear(&mut self) {
        if self.whole % 2 == 1 {
            self.left[self.half - 1] &= 0xf0;
            self.right[0] &= 0x0f;
        }
    }

    /// One round: passes 1 and 3 change the right half, passes 2 and 4 the left half.
    fn round(&mut self, aes: &Aes128, pass: u8) {
        let (from, to) = match pass % 2 {
            1 => (&self.left, &mut self.right),
            _ => (&self.right, &mut self.left),
        };
        let mut block = [0; 16];
        block[..self.half].copy_from_slice(&from[..self.half]);
        (block[14], block[15]) = (self.whole as u8, pass);
        let mut block = block.into();
        aes.encrypt_block(&mut block);
        to.iter_mut().zip(&block).take(self.half).for_each(|(to, with)| *to ^= with);
        self.clear();
    }

    fn join(&self, into: &mut [u8; LONGEST]) {
        into[..self.half].copy_from_slice(&self.left[..self.half]);
        let at = self.whole - self.half;
        into[at..self.whole].iter_mut().zip(&self.right).for_each(|(byte, right)| {
            *byte = *right;
        });
        if self.whole % 2 == 1 {
            into[at] = self.left[self.half - 1] | self.right[0];
        }
    }
}

/// Inverts section 5.4.2.
fn unfeistel(aes: &Aes128, coded: &[u8], plain: &mut [u8; LONGEST]) {
    let mut halves = Halves::split(coded);
    for pass in [4, 3, 2, 1] {
        halves.round(aes, pass);
    }
    halves.join(plain);
}

/// Encodes a connection ID as a server with this configuration does, with its length in the first
/// byte. `None` if the lengths of `server` or `nonce` differ from the configuration. For tests and
/// servers.
#[must_use]
pub fn connection_id_of(config: &Config, server: &ServerId, nonce: &[u8]) -> Option<Vec<u8>> {
    if server.bytes().len() != config.server_bytes || nonce.len() != config.nonce_bytes {
        return None;
    }
    let plain = [server.bytes(), nonce].concat();
    let mut cid = vec![config.codepoint << 5 | plain.len() as u8];
    match config.key.map(|key| Aes128::new(&key.into())) {
        None => cid.extend(plain),
        Some(aes) if plain.len() == 16 => {
            let mut block = [0; 16];
            block.copy_from_slice(&plain);
            let mut block = block.into();
            aes.encrypt_block(&mut block);
            cid.extend(block);
        }
        Some(aes) => {
            let (mut halves, mut coded) = (Halves::split(&plain), [0; LONGEST]);
            (1..=4).for_each(|pass| halves.round(&aes, pass));
            halves.join(&mut coded);
            cid.extend(&coded[..plain.len()]);
        }
    }
    Some(cid)
}

#[cfg(test)]
mod tests;
