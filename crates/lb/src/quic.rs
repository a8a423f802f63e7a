//! QUIC-LB: the server ID in a QUIC connection ID (draft-ietf-quic-load-balancers-21).
//!
//! ```text
//!  QUIC packet, long:   1....... | version 4 | length | connection ID ...
//!               short:  0....... | connection ID ...
//!  connection ID:  [ codepoint 3 bits | length or random 5 bits ] [ server ID | nonce ]
//!                                                                  \__ maybe encrypted __/
//! ```
//!
//! Three forms: in the clear; server ID and nonce of 16 bytes together as one AES block; any other
//! length as four rounds of Feistel with AES (section 5.4). A client migrates to another address, and its
//! packets still reach the server that knows the connection.
//!
//! Total on any bytes; nothing is allocated per packet.

use aes::Aes128;
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};

/// The longest connection ID of QUIC version 1, without its first byte.
const LONGEST: usize = 19;
/// The longest server ID.
const SERVER: usize = 15;

/// How server IDs stand in connection IDs of one codepoint.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    codepoint: u8,
    server_bytes: usize,
    nonce_bytes: usize,
    key: Option<[u8; 16]>,
}

impl std::fmt::Debug for Config {
    /// Without the key: it is a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { codepoint, server_bytes, nonce_bytes, key } = self;
        let form = if key.is_some() { "encrypted" } else { "plain" };
        write!(f, "{form} at {codepoint}: {server_bytes} + {nonce_bytes} bytes")
    }
}

/// Why there can be no such configuration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadConfig {
    /// 7 is "by address".
    #[error("a codepoint of {0} is not possible; write 0 to 6")]
    Codepoint(u8),
    /// See section 5 of the draft.
    #[error(
        "a server ID of {server} and a nonce of {nonce} bytes are not possible; a server ID has 1 to 15, a nonce 4 or more, both 19 at most"
    )]
    Lengths {
        /// Bytes of the server ID.
        server: usize,
        /// Bytes of the nonce.
        nonce: usize,
    },
}

impl Config {
    /// Server IDs of `server_bytes` and nonces of `nonce_bytes`, encrypted with `key` or in the
    /// clear.
    ///
    /// # Errors
    /// When the draft has no such form.
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

    /// The three bits that its connection IDs begin with.
    #[must_use]
    pub const fn codepoint(&self) -> u8 {
        self.codepoint
    }

    /// Bytes of a server ID.
    #[must_use]
    pub const fn server_bytes(&self) -> usize {
        self.server_bytes
    }
}

/// A server ID, up to 15 bytes, zeros behind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ServerId {
    bytes: [u8; SERVER],
    len: u8,
}

impl ServerId {
    /// From its bytes; `None` if there are none, or more than 15.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut all = [0; SERVER];
        all.get_mut(..bytes.len())?.copy_from_slice(bytes);
        (!bytes.is_empty()).then_some(Self { bytes: all, len: bytes.len() as u8 })
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or_default()
    }
}

/// Reads server IDs, with the keys expanded.
#[derive(Clone)]
pub struct Reader {
    /// By codepoint.
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

/// What a QUIC packet says about where it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// To this server, if it exists.
    Server(ServerId),
    /// By its addresses: codepoint 7, a client's own connection ID, or no QUIC at all.
    ByAddress,
}

impl Reader {
    /// For connection IDs of all of `configs`; of two with one codepoint the later counts.
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

    /// Where the UDP payload `packet` goes. A client's first connection ID is random and may look
    /// like a server's: who finds no such server goes by address.
    #[must_use]
    pub fn route(&self, packet: &[u8]) -> Route {
        connection_id(packet).and_then(|cid| self.read(cid)).map_or(Route::ByAddress, Route::Server)
    }

    /// The server ID in `cid`, of which more may follow.
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

/// The destination connection ID and, in a short header, all that follows it (RFC 8999).
fn connection_id(packet: &[u8]) -> Option<&[u8]> {
    let (first, rest) = packet.split_first()?;
    if first & 0x80 == 0 {
        return Some(rest);
    }
    let (_version, rest) = rest.split_first_chunk::<4>()?;
    let (len, rest) = rest.split_first()?;
    rest.get(..usize::from(*len))
}

/// Halves of an odd number of bytes share the middle one, four bits each.
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

    /// Clears the bits that the other half has.
    fn clear(&mut self) {
        if self.whole % 2 == 1 {
            self.left[self.half - 1] &= 0xf0;
            self.right[0] &= 0x0f;
        }
    }

    /// One round: `pass` 1 and 3 change the right half by the left one, 2 and 4 the left one.
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

/// Section 5.4.2 backwards.
fn unfeistel(aes: &Aes128, coded: &[u8], plain: &mut [u8; LONGEST]) {
    let mut halves = Halves::split(coded);
    for pass in [4, 3, 2, 1] {
        halves.round(aes, pass);
    }
    halves.join(plain);
}

/// A connection ID as a server of this configuration makes it, with its length in the first byte: for
/// tests, and for servers.
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
