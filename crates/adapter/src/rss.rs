//! Receive-side scaling: from hash through indirection table to queue. Every frame gets a queue.
//!
//! ```text
//!  key ─> flow type ─> fields ─> Toeplitz ─> low bits ─> RETA[index] ─> queue
//!         fragment, portless: 2-tuple    not IP: no hash ──────────────> queue 0
//! ```
//!
//! The hash input is in network order: source address, destination address, source port,
//! destination port (Microsoft, "RSS Hashing Functions"). Limits come from the adapter's
//! [`Profile`].
//!
//! Invariants: the indirection table's length is the adapter's and a power of two; every entry
//! names a queue below [`Rss::queues`]. No allocation after `new`, except in `explain`.
//! Thread-safety: read-only after `new`.

use flowyard_flow::toeplitz::{self, MICROSOFT_KEY, Toeplitz};
use flowyard_frame::FlowKey;
use serde::Serialize;

use crate::profile::{Changeable, DefaultTable, Profile, RssLimits, SctpHash, Support};

mod error;
mod ethtool;
mod explain;
mod special;

pub use crate::hash_fields::{Fields, FlowType, HashFields, Hfunc};
pub use error::Error;
pub use ethtool::{NotPrinted, Printed, parse_ethtool};
pub use explain::{InputField, RssExplanation};

/// A key under which both directions of a flow have the same hash: 0x6d5a, twenty times (Woo and
/// Park). The key repeats every 16 bits, so the hash depends only on the XOR of all 16-bit words of
/// the tuple, and regular traffic (equal ports, mirrored addresses) may all land on one queue.
pub const SYMMETRIC_KEY: [u8; 40] = *toeplitz::SYMMETRIC_KEY.first_chunk().expect("52 bytes");

/// The PCIe function whose indirection table is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Function {
    /// The physical function.
    #[default]
    Physical,
    /// The physical function while SR-IOV is on.
    PhysicalWithSriov,
    /// A virtual function.
    Virtual,
}

/// The RSS settings that software chooses.
#[derive(Clone, Debug)]
pub struct RssConfig {
    /// The hash key: 40 bytes, or the adapter's full length. Inputs of up to 36 bytes never use
    /// more than the first 40.
    pub key: Vec<u8>,
    /// The hashed fields of each flow type; `None`: the driver's default.
    pub fields: Option<HashFields>,
    /// The hash function; `None`: the driver's default.
    pub hfunc: Option<Hfunc>,
    /// The indirection table; `None`: the driver's default ([`RssLimits::default_table`]).
    pub reta: Option<Vec<u16>>,
    /// The function whose table is used.
    pub function: Function,
}

/// Microsoft's verification key, so that results are reproducible. The key is public, and with a
/// known key a sender can choose the receiver's queues; therefore drivers draw a random key, and so
/// should a live port.
impl Default for RssConfig {
    fn default() -> Self {
        Self {
            key: MICROSOFT_KEY.to_vec(),
            fields: None,
            hfunc: None,
            reta: None,
            function: Function::Physical,
        }
    }
}

impl RssConfig {
    /// The default configuration with a key derived from `seed`, where a driver draws a random one.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        let mut random = flowyard_frame::Rng::new(seed);
        let words = std::array::from_fn::<[u8; 8], 5, _>(|_| random.bits().to_be_bytes());
        Self { key: words.concat(), ..Self::default() }
    }
}

/// RSS of one function of one adapter.
#[derive(Clone, Debug)]
pub struct Rss {
    toeplitz: Toeplitz,
    fields: HashFields,
    hfunc: Hfunc,
    reta: Vec<u16>,
    queues: u16,
    clamped_from: Option<u16>,
    sctp: SctpHash,
    ipv6_ex: bool,
}

/// The longest hash input in bytes: two IPv6 addresses and two ports.
const INPUT_MAX: usize = 36;

impl Rss {
    /// RSS over `queues` open queues, as the adapter of `profile` does it.
    ///
    /// More queues than the entries of the table can address are no error: the drivers fill the
    /// default table with the queues that it can address, and so does this model. In that case
    /// [`Rss::clamped_from`] returns the requested number.
    ///
    /// # Errors
    /// When the adapter would refuse the configuration; the message includes the fix.
    pub fn new(profile: &Profile, queues: u16, config: RssConfig) -> Result<Self, Error> {
        let name = profile.name;
        let limits = profile.rss.ok_or(Error::NoRss(name))?;
        if queues == 0 {
            return Err(Error::NoQueues(name));
        }
        let reachable = limits.queues.map_or(queues, |limit| limit.min(queues));
        check_key(name, &limits, &config.key)?;
        let fields = config.fields.unwrap_or(limits.fields);
        let hfunc = config.hfunc.unwrap_or(limits.hfunc);
        check_fields(name, &limits, &fields, hfunc)?;
        let size = match config.function {
            Function::Physical => limits.reta,
            Function::PhysicalWithSriov => limits.reta_sriov,
            Function::Virtual => limits.reta_vf.ok_or(Error::NoVirtual(name))?,
        };
        let reta = match config.reta {
            None => default_table(limits.default_table, size, reachable),
            Some(reta) => check_reta(name, reta, size, reachable)?,
        };
        Ok(Self {
            toeplitz: Toeplitz::new(&config.key).map_err(|bad| Error::KeyLength {
                name,
                got: bad.len,
                want: limits.key_len,
            })?,
            fields,
            hfunc,
            reta,
            queues: reachable,
            clamped_from: (reachable < queues).then_some(queues),
            sctp: limits.sctp,
            ipv6_ex: limits.ipv6_ex == Support::Yes,
        })
    }

    /// RSS with the settings that were read from a card, whatever its profile says of them. SCTP is hashed by the
    /// fields of its flow type.
    ///
    /// # Errors
    /// When the key is shorter than 40 bytes, or the length of the table is not a power of two.
    pub fn of_card(
        key: &[u8],
        fields: HashFields,
        hfunc: Hfunc,
        reta: Vec<u16>,
    ) -> Result<Self, Error> {
        let name = "card";
        let (got, want) = (reta.len(), reta.len().next_power_of_two());
        if got != want {
            return Err(Error::RetaLength { name, got, want: want as u16 });
        }
        let toeplitz =
            Toeplitz::new(key).map_err(|bad| Error::KeyLength { name, got: bad.len, want: 40 })?;
        let queues = reta.iter().max().map_or(1, |most| most.saturating_add(1));
        let (sctp, ipv6_ex, clamped_from) = (SctpHash::AsIp, false, None);
        Ok(Self { toeplitz, fields, hfunc, reta, queues, clamped_from, sctp, ipv6_ex })
    }

    /// The number of queues that RSS spreads over.
    #[must_use]
    pub const fn queues(&self) -> u16 {
        self.queues
    }

    /// The requested number of queues, if it was more than RSS can address.
    #[must_use]
    pub const fn clamped_from(&self) -> Option<u16> {
        self.clamped_from
    }

    /// The indirection table: the queue of each entry.
    #[must_use]
    pub fn reta(&self) -> &[u16] {
        &self.reta
    }

    /// The hash of a frame; `None` when the adapter computes none, because the frame is not IP or
    /// its flow type is not hashed.
    #[must_use]
    #[inline]
    pub fn hash(&self, key: &FlowKey) -> Option<u32> {
        let fields = self.fields.get(FlowType::of(key)?);
        let mut input = [0; INPUT_MAX];
        let len = self.input(key, fields, &mut input);
        (len > 0).then(|| self.toeplitz.hash(&input[..len]))
    }

    /// Whether the hash of a frame covers a port.
    #[must_use]
    #[inline]
    pub fn hashes_ports(&self, key: &FlowKey) -> bool {
        FlowType::of(key).is_some_and(|flow| !self.fields.get(flow).is_portless())
    }

    /// The hash with other addresses in place of those in the IPv6 header, as the `*_IPV6_EX` types
    /// define: the source from the Home Address option, the destination from a type 2 routing
    /// header. A flow key carries neither. Both are ignored for IPv4 frames, and on adapters that
    /// are not known to hash these types ([`RssLimits::ipv6_ex`]).
    #[must_use]
    pub fn hash_with(
        &self,
        key: &FlowKey,
        src: Option<[u8; 16]>,
        dst: Option<[u8; 16]>,
    ) -> Option<u32> {
        self.hash(&self.seen(key, src, dst))
    }

    /// The index into the indirection table: the low bits of the hash.
    #[must_use]
    #[inline]
    pub fn index(&self, hash: u32) -> u16 {
        (hash as usize & (self.reta.len() - 1)) as u16
    }

    /// The queue of a hash; the default queue 0 without a hash.
    #[must_use]
    #[inline]
    pub fn queue(&self, hash: Option<u32>) -> u16 {
        hash.map_or(0, |hash| self.reta[self.index(hash) as usize])
    }

    /// Writes the hash input to the front of `input`; returns its length in bytes.
    #[inline]
    fn input(&self, key: &FlowKey, fields: Fields, input: &mut [u8; INPUT_MAX]) -> usize {
        let width = if key.is_ipv4() { 4 } else { 16 };
        let (mut src, mut dst) = (key.src, key.dst);
        let (mut sport, mut dport) = (key.sport, key.dport);
        if self.hfunc != Hfunc::Toeplitz {
            let (a, b) = (u128::from_ne_bytes(src), u128::from_ne_bytes(dst));
            let first = |or: u128, xor| if self.hfunc == Hfunc::SymmetricXor { xor } else { or };
            (src, dst) = (first(a | b, a ^ b).to_ne_bytes(), (a ^ b).to_ne_bytes());
            let xor = sport ^ dport;
            (sport, dport) = (first((sport | dport).into(), xor.into()) as u16, xor);
        }
        let mut len = 0;
        for (field, address) in [(Fields::SRC_IP, src), (Fields::DST_IP, dst)] {
            if fields.has(field) {
                input[len..len + width].copy_from_slice(&address[..width]);
                len += width;
            }
        }
        for (field, port) in [(Fields::SRC_PORT, sport), (Fields::DST_PORT, dport)] {
            if fields.has(field) {
                input[len..len + 2].copy_from_slice(&port.to_be_bytes());
                len += 2;
            }
        }
        len
    }
}

/// The table that the driver writes by default.
fn default_table(kind: DefaultTable, size: u16, queues: u16) -> Vec<u16> {
    let block = |i: u16| (u32::from(i) * u32::from(queues) / u32::from(size)) as u16;
    (0..size)
        .map(|i| match kind {
            DefaultTable::InTurn => i % queues,
            DefaultTable::Blocks => block(i),
        })
        .collect()
}

fn check_key(name: &'static str, limits: &RssLimits, key: &[u8]) -> Result<(), Error> {
    let (got, want) = (key.len(), limits.key_len);
    if got == 40 || got == want { Ok(()) } else { Err(Error::KeyLength { name, got, want }) }
}

fn check_reta(
    name: &'static str,
    reta: Vec<u16>,
    want: u16,
    limit: u16,
) -> Result<Vec<u16>, Error> {
    if reta.len() != usize::from(want) {
        return Err(Error::RetaLength { name, got: reta.len(), want });
    }
    match reta.iter().position(|&queue| queue >= limit) {
        Some(entry) => Err(Error::RetaQueue { name, entry, queue: reta[entry], limit }),
        None => Ok(reta),
    }
}

fn check_fields(
    name: &'static str,
    limits: &RssLimits,
    all: &HashFields,
    hfunc: Hfunc,
) -> Result<(), Error> {
    match hfunc {
        Hfunc::SymmetricXor if limits.symmetric_xor != Support::Yes => {
            return Err(Error::NoSymmetricXor(name));
        }
        Hfunc::SymmetricOrXor if limits.symmetric_or_xor != Support::Yes => {
            return Err(Error::NoSymmetricOrXor(name));
        }
        _ => {}
    }
    for flow in FlowType::ALL {
        let fields = all.get(flow);
        if hfunc != Hfunc::Toeplitz && !fields.is_paired() {
            return Err(Error::Unpaired { name, flow, fields });
        }
        if let Some(fix) = refused(limits, all, flow, fields) {
            return Err(Error::Fields { name, flow, fields, fix });
        }
    }
    Ok(())
}

/// The fix, if the adapter cannot hash `fields` for `flow`.
fn refused(
    limits: &RssLimits,
    all: &HashFields,
    flow: FlowType,
    fields: Fields,
) -> Option<&'static str> {
    let bare = flow == flow.bare();
    let udp = matches!(flow, FlowType::Udp4 | FlowType::Udp6);
    let sctp = matches!(flow, FlowType::Sctp4 | FlowType::Sctp6);
    if bare && !fields.is_portless() {
        return Some("the IP types have no ports: use s, d or sd");
    }
    match limits.changeable {
        Changeable::PerFlowType => None,
        Changeable::Nothing => (fields != limits.fields.get(flow))
            .then_some("the driver cannot change the fields: use its default"),
        Changeable::TcpAndUdp => (fields != limits.fields.get(flow) && (bare || sctp))
            .then_some("only the fields of TCP and UDP can change"),
        Changeable::UdpPorts => {
            let fixed = fields == limits.fields.get(flow);
            let udp = udp && (fields == Fields::TWO_TUPLE || fields == Fields::FOUR_TUPLE);
            (!fixed && !udp).then_some("only UDP can change, between sd and sdfn")
        }
        Changeable::HashTypes => {
            let ip = all.get(flow.bare());
            let off = fields == ip; // a frame without its own hash type uses the IP type
            let on = if bare { fields == Fields::TWO_TUPLE } else { fields == Fields::FOUR_TUPLE };
            let fits = if bare { on || fields.is_none() } else { off || (on && !sctp) };
            (!fits).then_some(
                "a hash type is either on (IP: sd; TCP and UDP: sdfn) or off (hashed as IP)",
            )
        }
    }
}

#[cfg(test)]
mod tests;
