//! Match fields (OXM): the 40 fields of 1.3, with masks, and the fields that 1.4 and the extensions
//! 109 and 233 add.
//!
//! ```text
//!   class 16 | field 7 | mask? 1 | length 8 | [experimenter 32] | value | [mask]
//! ```
//!
//! A value is a number of up to 128 bits. Bits outside the mask must be zero; otherwise the message
//! is refused with `OFPBMC_BAD_WILDCARDS` (1.3.5, section 7.2.3.5).
//!
//! Thread-safety: plain data.

use crate::Version;
use crate::io::{Io, Res};
use crate::problem::{self, ONF, Problem};

macro_rules! fields {
    ($($name:ident = $number:literal, $bits:literal, $mask:literal;)*) => {
        /// A match field. The numbers are those of class `OFPXMC_OPENFLOW_BASIC`.
        #[allow(missing_docs, reason = "the names are the specification's own")]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        #[repr(u8)]
        pub enum Field { #[default] $($name = $number,)* }

        impl Field {
            /// All fields, sorted by number.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The number of bits of a value.
            #[must_use]
            pub const fn bits(self) -> u32 {
                match self { $(Self::$name => $bits,)* }
            }

            /// Whether the field may have a mask (1.3.5, table 12).
            #[must_use]
            pub const fn maskable(self) -> bool {
                match self { $(Self::$name => $mask,)* }
            }
        }
    };
}

fields! {
    InPort = 0, 32, false;
    InPhyPort = 1, 32, false;
    Metadata = 2, 64, true;
    EthDst = 3, 48, true;
    EthSrc = 4, 48, true;
    EthType = 5, 16, false;
    VlanVid = 6, 13, true;
    VlanPcp = 7, 3, false;
    IpDscp = 8, 6, false;
    IpEcn = 9, 2, false;
    IpProto = 10, 8, false;
    Ipv4Src = 11, 32, true;
    Ipv4Dst = 12, 32, true;
    TcpSrc = 13, 16, false;
    TcpDst = 14, 16, false;
    UdpSrc = 15, 16, false;
    UdpDst = 16, 16, false;
    SctpSrc = 17, 16, false;
    SctpDst = 18, 16, false;
    Icmpv4Type = 19, 8, false;
    Icmpv4Code = 20, 8, false;
    ArpOp = 21, 16, false;
    ArpSpa = 22, 32, true;
    ArpTpa = 23, 32, true;
    ArpSha = 24, 48, true;
    ArpTha = 25, 48, true;
    Ipv6Src = 26, 128, true;
    Ipv6Dst = 27, 128, true;
    Ipv6Flabel = 28, 20, true;
    Icmpv6Type = 29, 8, false;
    Icmpv6Code = 30, 8, false;
    Ipv6NdTarget = 31, 128, false;
    Ipv6NdSll = 32, 48, false;
    Ipv6NdTll = 33, 48, false;
    MplsLabel = 34, 20, false;
    MplsTc = 35, 3, false;
    MplsBos = 36, 1, false;
    PbbIsid = 37, 24, true;
    TunnelId = 38, 64, true;
    Ipv6Exthdr = 39, 9, true;
    PbbUca = 41, 1, false;
    TcpFlags = 42, 12, true;
    ActsetOutput = 43, 32, false;
}

/// `OFPVID_PRESENT`: the bit of a [`Field::VlanVid`] that means that the frame has a tag.
pub const VID_PRESENT: u128 = 0x1000;

const BASIC: u32 = 0x8000;
const EXPERIMENTER: u32 = 0xffff;

impl Field {
    /// The mask with all bits of the field set.
    #[must_use]
    pub const fn full(self) -> u128 {
        u128::MAX >> (128 - self.bits())
    }

    /// The number of bytes of a value on the wire. A value of 20 bits takes four.
    #[must_use]
    pub const fn bytes(self) -> usize {
        if self.bits() == 20 { 4 } else { self.bits().div_ceil(8) as usize }
    }

    /// Whether a set-field action may write it (1.3.5, section 7.2.5). All header fields can be
    /// set, and fields of the pipeline cannot. The tunnel ID can be set, because it is a header
    /// field behind a logical port.
    #[must_use]
    pub const fn settable(self) -> bool {
        !matches!(
            self,
            Self::InPort
                | Self::InPhyPort
                | Self::Metadata
                | Self::Ipv6Exthdr
                | Self::TcpFlags
                | Self::ActsetOutput
        )
    }

    /// The field with this number, if `version` has it.
    #[must_use]
    pub fn find(number: u8, version: Version) -> Option<Self> {
        let found = Self::ALL.iter().find(|field| **field as u8 == number).copied();
        found.filter(|field| *field != Self::PbbUca || version == Version::V14)
    }

    const fn is_onf(self) -> bool {
        matches!(self, Self::TcpFlags | Self::ActsetOutput)
    }

    /// The first four bytes of this field on the wire.
    #[must_use]
    pub const fn header(self, masked: bool) -> u32 {
        let (class, extra) = if self.is_onf() { (EXPERIMENTER, 4) } else { (BASIC, 0) };
        let bytes = if masked { self.bytes() * 2 } else { self.bytes() };
        class << 16 | (self as u32) << 9 | (masked as u32) << 8 | (bytes as u32 + extra)
    }
}

/// A field with a value and a mask.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Oxm {
    /// The field.
    pub field: Field,
    /// The value; bits outside the mask are zero.
    pub value: u128,
    /// The bits that are compared; [`Field::full`] if the match has no mask.
    pub mask: u128,
}

impl Default for Oxm {
    fn default() -> Self {
        Self::exact(Field::InPort, 0)
    }
}

impl Oxm {
    /// A field with a value that is compared in full; excess bits of the value are removed.
    #[must_use]
    pub const fn exact(field: Field, value: u128) -> Self {
        Self { field, value: value & field.full(), mask: field.full() }
    }

    /// A field with a value and a mask.
    #[must_use]
    pub const fn masked(field: Field, value: u128, mask: u128) -> Self {
        let mask = mask & field.full();
        Self { field, value: value & mask, mask }
    }

    /// Whether all bits are compared.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.mask == self.field.full()
    }
}

/// The problems to report for a malformed field: a match and a set-field have different ones.
pub(crate) struct Errors {
    pub(crate) field: Problem,
    pub(crate) len: Problem,
    pub(crate) value: Problem,
    pub(crate) mask: Problem,
    set: bool,
}

pub(crate) const IN_MATCH: Errors = Errors {
    field: problem::MATCH_BAD_FIELD,
    len: problem::MATCH_BAD_LEN,
    value: problem::MATCH_BAD_VALUE,
    mask: problem::MATCH_BAD_MASK,
    set: false,
};

pub(crate) const IN_SET: Errors = Errors {
    field: problem::ACTION_BAD_SET_TYPE,
    len: problem::ACTION_BAD_SET_LEN,
    value: problem::ACTION_BAD_SET_ARGUMENT,
    mask: problem::ACTION_BAD_SET_TYPE,
    set: true,
};

/// The headers of the fields from which a maker chooses.
fn choices(version: Version, set: bool) -> Vec<u32> {
    let fields = Field::ALL.iter().filter(|field| Field::find(**field as u8, version).is_some());
    let fields = fields.filter(|field| !set || field.settable());
    let plain = fields.clone().map(|field| field.header(false));
    let masked = fields.filter(|field| field.maskable() && !set).map(|field| field.header(true));
    plain.chain(masked).collect()
}

/// Reads or writes one field.
pub(crate) fn oxm<C: Io>(c: &mut C, oxm: &mut Oxm, errors: &Errors) -> Res {
    let mut header = oxm.field.header(!oxm.is_exact());
    let known = if C::MAKES { choices(c.version(), errors.set) } else { Vec::new() };
    let was = c.blame(errors.len);
    c.draw(&mut header, 4, &known)?;
    let (class, masked, len) = (header >> 16, header & 0x100 != 0, header & 0xff);
    let field = Field::find((header >> 9 & 0x7f) as u8, c.version()).ok_or(errors.field)?;
    if class != field.header(masked) >> 16 {
        return Err(errors.field);
    }
    if errors.set && !field.settable() {
        return Err(errors.field);
    }
    if masked && (!field.maskable() || errors.set) {
        return Err(errors.mask);
    }
    if len != field.header(masked) & 0xff {
        return Err(errors.len);
    }
    if field.is_onf() {
        let mut experimenter = ONF;
        c.draw(&mut experimenter, 4, &[ONF])?;
        if experimenter != ONF {
            return Err(errors.field);
        }
    }
    if C::READS {
        *oxm = Oxm::exact(field, 0);
    }
    number(c, field, &mut oxm.value, errors.value)?;
    if masked {
        number(c, field, &mut oxm.mask, errors.mask)?;
    }
    if C::MAKES {
        oxm.value &= oxm.mask;
    }
    if oxm.value & !oxm.mask != 0 {
        return Err(problem::MATCH_BAD_WILDCARDS);
    }
    c.blame(was);
    Ok(())
}

/// Reads or writes a value or a mask. A mask may have more bits set than the field has; they are
/// ignored.
fn number<C: Io>(c: &mut C, field: Field, number: &mut u128, wrong: Problem) -> Res {
    let mut bytes = number.to_be_bytes();
    let from = 16 - field.bytes();
    c.bytes(&mut bytes[from..])?;
    bytes[..from].fill(0);
    *number = u128::from_be_bytes(bytes);
    if C::MAKES
        || wrong.code == problem::MATCH_BAD_MASK.code && wrong.kind == problem::Kind::BadMatch
    {
        *number &= field.full();
    }
    if *number & !field.full() != 0 { Err(wrong) } else { Ok(()) }
}
