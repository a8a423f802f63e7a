//! A match: the fields that a frame must have.
//!
//! ```text
//!   1.3, 1.4:  type 1 | length | field field ... | zeros up to a multiple of 8
//!   1.0:       40 bytes with every field in its place, see `v10`
//! ```
//!
//! Fields are kept in the order in which they were sent. [`Match::normal`] is a form in which
//! equivalent matches are equal.

use std::collections::BTreeMap;

use crate::io::{Io, Res};
use crate::oxm::{self, Field, IN_MATCH, Oxm, VID_PRESENT};
use crate::problem::{self, Problem};
use crate::{Version, v10};

/// The fields that a frame must have.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Match(pub Vec<Oxm>);

impl Match {
    /// The value of a field, if the match has all its bits.
    #[must_use]
    pub fn exact(&self, field: Field) -> Option<u128> {
        self.get(field).filter(Oxm::is_exact).map(|oxm| oxm.value)
    }

    /// The match's field of this kind.
    #[must_use]
    pub fn get(&self, field: Field) -> Option<Oxm> {
        self.0.iter().find(|oxm| oxm.field == field).copied()
    }

    /// An equivalent match with its fields sorted by number, without fields whose mask is zero.
    #[must_use]
    pub fn normal(&self) -> Self {
        let mut fields: Vec<Oxm> = self.0.iter().filter(|oxm| oxm.mask != 0).copied().collect();
        fields.sort_by_key(|oxm| oxm.field);
        fields.dedup_by_key(|oxm| oxm.field);
        Self(fields)
    }

    /// Whether `wider` matches every frame that this match does.
    #[must_use]
    pub fn is_within(&self, wider: &Self) -> bool {
        wider.0.iter().all(|wide| {
            let own = self.get(wide.field).unwrap_or(Oxm::masked(wide.field, 0, 0));
            own.mask & wide.mask == wide.mask && own.value & wide.mask == wide.value
        })
    }

    /// Whether one frame could match both: no bit has different values in the two.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().all(|own| {
            let Some(other) = other.get(own.field) else { return true };
            (own.value ^ other.value) & own.mask & other.mask == 0
        })
    }

    /// Checks that each field is present once and has the fields that it requires (1.3.5, section
    /// 7.2.3.6).
    ///
    /// # Errors
    /// `OFPBMC_DUP_FIELD`, `OFPBMC_BAD_PREREQ`, and `OFPBMC_BAD_VALUE` for a VLAN ID without tag.
    pub fn check(&self) -> Result<(), Problem> {
        let mut seen = BTreeMap::new();
        for oxm in &self.0 {
            if seen.insert(oxm.field, ()).is_some() {
                return Err(problem::MATCH_DUPLICATE);
            }
            if !self.allows(oxm.field) {
                return Err(problem::MATCH_BAD_PREREQ);
            }
            let vid = oxm.field == Field::VlanVid && oxm.is_exact();
            if vid && oxm.value & VID_PRESENT == 0 && oxm.value != 0 {
                return Err(problem::MATCH_BAD_VALUE);
            }
        }
        Ok(())
    }

    /// Whether every frame that matches has this field (1.3.5, table 12).
    #[must_use]
    pub fn allows(&self, field: Field) -> bool {
        let eth =
            |types: &[u128]| self.exact(Field::EthType).is_some_and(|found| types.contains(&found));
        let proto = |number| self.exact(Field::IpProto) == Some(number);
        let ip = || eth(&[0x0800, 0x86dd]);
        let icmp6 = |types: &[u128]| {
            eth(&[0x86dd])
                && proto(58)
                && self.exact(Field::Icmpv6Type).is_some_and(|found| types.contains(&found))
        };
        match field {
            Field::InPhyPort => self.get(Field::InPort).is_some(),
            Field::VlanPcp => self.get(Field::VlanVid).is_some_and(|vid| vid.value != 0),
            Field::IpDscp | Field::IpEcn | Field::IpProto => ip(),
            Field::Ipv4Src | Field::Ipv4Dst => eth(&[0x0800]),
            Field::TcpSrc | Field::TcpDst | Field::TcpFlags => ip() && proto(6),
            Field::UdpSrc | Field::UdpDst => ip() && proto(17),
            Field::SctpSrc | Field::SctpDst => ip() && proto(132),
            Field::Icmpv4Type | Field::Icmpv4Code => eth(&[0x0800]) && proto(1),
            Field::ArpOp | Field::ArpSpa | Field::ArpTpa | Field::ArpSha | Field::ArpTha => {
                eth(&[0x0806])
            }
            Field::Ipv6Src | Field::Ipv6Dst | Field::Ipv6Flabel | Field::Ipv6Exthdr => {
                eth(&[0x86dd])
            }
            Field::Icmpv6Type | Field::Icmpv6Code => eth(&[0x86dd]) && proto(58),
            Field::Ipv6NdTarget => icmp6(&[135, 136]),
            Field::Ipv6NdSll => icmp6(&[135]),
            Field::Ipv6NdTll => icmp6(&[136]),
            Field::MplsLabel | Field::MplsTc | Field::MplsBos => eth(&[0x8847, 0x8848]),
            Field::PbbIsid | Field::PbbUca => eth(&[0x88e7]),
            Field::InPort
            | Field::Metadata
            | Field::EthDst
            | Field::EthSrc
            | Field::EthType
            | Field::VlanVid
            | Field::TunnelId
            | Field::ActsetOutput => true,
        }
    }
}

impl FromIterator<Oxm> for Match {
    fn from_iter<T: IntoIterator<Item = Oxm>>(fields: T) -> Self {
        Self(fields.into_iter().collect())
    }
}

/// Reads or writes a match.
pub(crate) fn matching<C: Io>(c: &mut C, wanted: &mut Match) -> Res {
    if c.version() == Version::V10 {
        return v10::matching(c, wanted).map(drop);
    }
    let was = c.blame(problem::MATCH_BAD_LEN);
    let mut mark = c.open();
    let mut kind = 1;
    c.draw(&mut kind, 2, &[1])?;
    if kind != 1 {
        return Err(problem::MATCH_BAD_TYPE);
    }
    c.len(&mut mark)?;
    c.list(&mut wanted.0, |c, field| oxm::oxm(c, field, &IN_MATCH))?;
    c.close(&mark)?;
    c.align(&mark)?;
    c.blame(was);
    Ok(())
}
