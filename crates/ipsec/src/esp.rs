//! ESP packets (RFC 4303): sealed and opened in place.
//!
//! ```text
//!  tunnel     [outer IP | (UDP) | SPI, number | IV | inner IP packet  | pad, length, next | ICV]
//!  transport  [IP       | (UDP) | SPI, number | IV | payload of the IP| pad, length, next | ICV]
//!                                               encrypted: └──────────────────────────┘
//! ```
//!
//! The buffer is the caller's. [`plan`] says how many bytes a packet needs in front and behind, and [`seal`] fills them.
//! [`open`] decrypts a packet where it is, and says which bytes of it have to be removed.
//!
//! Invariants: nothing is allocated; all bytes of a hostile packet are handled. A packet is changed only after it was
//! found authentic, except that its encrypted bytes are overwritten.
//! Thread-safety: plain functions; SAs may be shared.

use std::net::IpAddr;

use flowyard_frame::proto;
use flowyard_wire::checksum::{self, Sum};

use crate::ecn;
use crate::ip::{Ip, NO_NEXT, Outer, inner_proto, outer_len, set_tos};
use crate::replay::Refused;
use crate::sa::{Mode, Sa, Tally};
use crate::suite::{ICV, IV};
use crate::sync::Ordering;

/// SPI and sequence number.
const HEADER: usize = 8;
/// The UDP header of NAT traversal.
const UDP: usize = 8;
/// The port of NAT traversal (RFC 3948).
pub const NAT_PORT: u16 = 4500;
/// Data and trailer end on a multiple of this (RFC 4303 section 2.4).
const ALIGN: usize = 4;
/// The hop limit of tunnels. The router that the packet passes next in this process takes one of it.
const HOPS: u8 = 65;

/// Why a packet is not sealed or opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refuse {
    /// The packet is too short, or its contents do not fit the mode of the SA.
    Malformed,
    /// It is a fragment.
    Fragment,
    /// It would be longer than an IP packet can be.
    TooLong,
    /// Its sequence number was accepted before, or is below the window.
    Replayed,
    /// Its integrity check value is wrong.
    Unauthentic,
    /// It is authentic, and carries nothing (next header 59).
    Dummy,
    /// A router reported congestion, and the inner packet cannot carry that.
    Congested,
    /// The SA has reached a limit.
    Expired,
}

/// How a packet is sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    ip: Ip,
    /// Where bytes are inserted, and how many.
    pub at: usize,
    /// The number of bytes in front.
    pub head: usize,
    /// The number of bytes behind the packet.
    pub tail: usize,
    /// The length of the packet before.
    pub len: usize,
    pad: usize,
}

impl Plan {
    /// The length of the sealed packet.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.head + self.len + self.tail
    }

    /// Whether the packet must not be fragmented: IPv6, or IPv4 with DF.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.ip.is_whole
    }

    /// Whether the packet is IPv6.
    #[must_use]
    pub const fn is_v6(&self) -> bool {
        self.ip.is_v6
    }
}

fn udp_len(sa: &Sa) -> usize {
    if sa.config.encap.is_some() { UDP } else { 0 }
}

/// What sealing `packet` with `sa` needs. Bytes behind the IP packet are ignored.
///
/// # Errors
/// When the packet cannot be sealed.
pub fn plan(sa: &Sa, packet: &[u8]) -> Result<Plan, Refuse> {
    let ip = Ip::parse(packet).filter(|ip| has_right_sum(packet, ip)).ok_or(Refuse::Malformed)?;
    plan_for(sa, ip)
}

/// Whether the checksum of an IPv4 header is right (RFC 1812 section 5.2.2). It has to be checked before the packet changes: where
/// lengths change the checksum is computed anew, and nobody sees the header again until the packet is opened.
pub(crate) fn has_right_sum(packet: &[u8], ip: &Ip) -> bool {
    ip.is_v6 || packet.get(..ip.upper).is_some_and(checksum::verify_ipv4_header)
}

/// As [`plan`], for a packet with this header.
pub(crate) fn plan_for(sa: &Sa, ip: Ip) -> Result<Plan, Refuse> {
    if ip.is_fragment {
        return Err(Refuse::Fragment);
    }
    let (at, outer) = match sa.config.mode {
        Mode::Tunnel => (0, outer_len(sa.config.dst)),
        Mode::Transport => (ip.upper, 0),
    };
    let data = ip.total - at;
    let pad = (data + 2).next_multiple_of(ALIGN) - (data + 2);
    let head = outer + udp_len(sa) + HEADER + IV;
    let plan = Plan { ip, at, head, tail: pad + 2 + ICV, len: ip.total, pad };
    if plan.total() > usize::from(u16::MAX) { Err(Refuse::TooLong) } else { Ok(plan) }
}

/// The longest packet whose sealed form has at most `mtu` bytes.
#[must_use]
pub fn inner_mtu(mtu: usize, plan: &Plan) -> usize {
    let room = mtu.saturating_sub(plan.head + plan.at + ICV) / ALIGN * ALIGN;
    (room + plan.at).saturating_sub(2)
}

/// Seals the packet with sequence number `number`, which was taken from `sa`. `packet` has the form of `plan`: the
/// packet, with [`Plan::head`] bytes inserted at [`Plan::at`] and [`Plan::tail`] bytes behind. It is counted in `tally`, which
/// holds packets of this SA only.
///
/// # Errors
/// When `packet` has another length.
pub fn seal(
    sa: &Sa,
    number: u64,
    plan: &Plan,
    packet: &mut [u8],
    tally: &mut Tally,
) -> Result<(), Refuse> {
    let Plan { ip, at, head, tail, len, pad } = *plan;
    if packet.len() != plan.total() {
        return Err(Refuse::Malformed);
    }
    let is_tunnel = sa.config.mode == Mode::Tunnel;
    // The trailer: padding counts up from 1.
    let end = at + head + (len - at);
    for (n, byte) in (1_u8..).zip(&mut packet[end..end + pad]) {
        *byte = n;
    }
    packet[end + pad] = pad as u8;
    packet[end + pad + 1] = if is_tunnel { inner_proto(ip.is_v6) } else { ip.proto };
    // The headers.
    let esp = at + head - HEADER - IV;
    let iv = sa.iv_of(number);
    packet[esp..esp + 4].copy_from_slice(&sa.config.spi.to_be_bytes());
    packet[esp + 4..esp + 8].copy_from_slice(&(number as u32).to_be_bytes());
    packet[esp + 8..esp + 16].copy_from_slice(&iv);
    let upper = if sa.config.encap.is_some() { proto::UDP } else { proto::ESP };
    if is_tunnel {
        let flags = sa.config.flags;
        let outer = Outer {
            src: sa.config.src,
            dst: sa.config.dst,
            tos: ecn::outer(ip.tos, flags.dont_encap_dscp, flags.no_ecn),
            proto: upper,
            id: number as u16,
            is_whole: ip.is_whole && !flags.no_pmtu_discovery,
            hops: HOPS,
        };
        if !outer.write(packet) {
            return Err(Refuse::Malformed);
        }
    } else {
        ip.change(packet, upper, plan.total());
    }
    let (aad, aad_len) = sa.aad(number);
    let (data, icv) =
        packet[esp + HEADER + IV..].split_at_mut(plan.total() - esp - HEADER - IV - ICV);
    debug_assert_eq!((icv.len(), tail), (ICV, pad + 2 + ICV));
    let tag = sa.key.seal(iv, &aad[..aad_len], data).ok_or(Refuse::TooLong)?;
    icv.copy_from_slice(&tag);
    if sa.config.encap.is_some() {
        write_udp(sa, packet, esp - UDP);
    }
    tally.add(sa, packet.len());
    Ok(())
}

/// Writes the UDP header at `at`. IPv4 packets have no checksum (RFC 3948 section 2.1), IPv6 needs one.
fn write_udp(sa: &Sa, packet: &mut [u8], at: usize) {
    let Some(encap) = sa.config.encap else { return };
    let len = (packet.len() - at) as u16;
    let header = [encap.sport, encap.dport, len, 0].map(u16::to_be_bytes);
    packet[at..at + UDP].copy_from_slice(header.as_flattened());
    if sa.config.dst.is_ipv6() {
        let (src, dst) = (sa.config.src, sa.config.dst);
        let sum = match checksum::transport_checksum(src, dst, proto::UDP, &packet[at..]) {
            0 => 0xffff,
            sum => sum,
        };
        packet[at + 6..at + 8].copy_from_slice(&sum.to_be_bytes());
    }
}

/// An ESP packet that has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    ip: Ip,
    /// Where ESP starts.
    at: usize,
    /// The security parameters index.
    pub spi: u32,
    /// The low half of the sequence number.
    pub low: u32,
    /// Whether it came in UDP.
    pub is_udp: bool,
    /// The source of the packet.
    pub src: IpAddr,
    /// The destination of the packet.
    pub dst: IpAddr,
}

/// What a packet is to IPsec.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// ESP, with UDP or without.
    Esp(Arrived),
    /// A keepalive of NAT: one byte 0xff to the port of NAT traversal.
    Keepalive,
    /// Another message to the port of NAT traversal: with the non-ESP marker it is one of IKE.
    Ike,
    /// A fragment of ESP, or of UDP to the port of NAT traversal.
    Fragment,
    /// ESP that is too short, with UDP or without: nothing that a gateway can open.
    Short,
    /// Something else.
    Other,
    /// An invalid IP header.
    Malformed,
}

/// What `packet` is. `is_nat` says whether a UDP port is one of NAT traversal here.
#[must_use]
pub fn kind(packet: &[u8], is_nat: impl Fn(u16) -> bool) -> Kind {
    let Some(ip) = Ip::parse(packet) else { return Kind::Malformed };
    if !matches!(ip.proto, proto::ESP | proto::UDP) && !ip.is_fragment {
        return Kind::Other;
    }
    if ip.is_fragment {
        return fragment(packet, &ip, is_nat);
    }
    let Some(upper) = packet.get(ip.upper..ip.total) else { return Kind::Malformed };
    let is_udp = ip.proto == proto::UDP;
    let esp = if is_udp {
        let Some(header) = upper.first_chunk::<UDP>() else { return Kind::Other };
        if !is_nat(u16::from_be_bytes([header[2], header[3]])) {
            return Kind::Other;
        }
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        match upper.get(UDP..len) {
            Some([0xff]) => return Kind::Keepalive,
            Some([0, 0, 0, 0, ..]) => return Kind::Ike,
            Some(esp) => esp,
            None => return Kind::Short,
        }
    } else {
        upper
    };
    let Some(header) = esp.first_chunk::<HEADER>() else { return Kind::Short };
    let [spi, low] =
        [[0, 1, 2, 3], [4, 5, 6, 7]].map(|at| u32::from_be_bytes(at.map(|n: usize| header[n])));
    let Some((src, dst)) = ip.addresses(packet) else { return Kind::Malformed };
    let at = ip.upper + if is_udp { UDP } else { 0 };
    // UDP says itself how long it is; bytes behind it are no part of ESP.
    let ip = Ip { total: at + esp.len(), ..ip };
    Kind::Esp(Arrived { ip, at, spi, low, is_udp, src, dst })
}

/// What a fragment is. Later fragments have no ports, so those of UDP count as other packets.
fn fragment(packet: &[u8], ip: &Ip, is_nat: impl Fn(u16) -> bool) -> Kind {
    let (upper, proto) = if ip.is_v6 {
        // The fragment header says what it carries.
        (ip.upper + 8, packet.get(ip.upper).copied().unwrap_or(NO_NEXT))
    } else {
        (ip.upper, ip.proto)
    };
    let port = || packet.get(upper + 2..).and_then(|rest| rest.first_chunk()).copied();
    let is_first_of_nat =
        || !ip.is_later && port().is_some_and(|port| is_nat(u16::from_be_bytes(port)));
    match proto {
        proto::ESP => Kind::Fragment,
        proto::UDP if is_first_of_nat() => Kind::Fragment,
        _ => Kind::Other,
    }
}

/// The bytes of a packet that remain when it has been opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Where bytes are removed.
    pub at: usize,
    /// How many are removed there.
    pub cut: usize,
    /// The length of the packet after that. Bytes behind it are padding.
    pub len: usize,
    /// Whether the packet is IPv6.
    pub is_v6: bool,
}

/// Opens `packet`, whose [`kind`] is `arrived`, with `sa`. An authentic packet is counted in `tally`, which holds packets of
/// this SA only.
///
/// # Errors
/// When it is refused. Refused packets are counted at `sa` at once.
pub fn open(
    sa: &Sa,
    arrived: &Arrived,
    packet: &mut [u8],
    tally: &mut Tally,
) -> Result<Opened, Refuse> {
    let counts = &sa.counts;
    let note = |cell: &crate::sync::AtomicU64| {
        cell.fetch_add(1, Ordering::Relaxed);
    };
    let Arrived { ip, at, low, .. } = *arrived;
    let start = at + HEADER + IV;
    if ip.total > packet.len()
        || ip.total < start + 2 + ICV
        || arrived.is_udp != sa.config.encap.is_some()
        || sa.config.mode == Mode::Transport && !has_right_sum(packet, &ip)
    {
        note(&counts.malformed);
        return Err(Refuse::Malformed);
    }
    let limits = &sa.config.limits;
    let has_all_packets = limits.hard_packets != u64::MAX
        && counts.packets.load(Ordering::Relaxed) >= limits.hard_packets;
    if sa.has_all_bytes() || has_all_packets {
        note(&counts.expired);
        return Err(Refuse::Expired);
    }
    let number = sa.window.number(low, sa.config.is_extended);
    let replay = |refused| {
        note(match refused {
            Refused::Old => &counts.late,
            Refused::Twice => &counts.replayed,
        });
        Refuse::Replayed
    };
    sa.window.check(number).map_err(replay)?;
    let mut iv = [0; IV];
    iv.copy_from_slice(&packet[at + HEADER..start]);
    let (aad, aad_len) = sa.aad(number);
    if !sa.key.open(iv, &aad[..aad_len], &mut packet[start..ip.total]) {
        note(&counts.unauthentic);
        return Err(Refuse::Unauthentic);
    }
    sa.window.accept(number).map_err(replay)?;
    tally.add(sa, ip.total);
    let end = ip.total - ICV - 2;
    let (pad, next) = (usize::from(packet[end]), packet[end + 1]);
    let opened = match (next, end.checked_sub(pad).filter(|end| *end >= start)) {
        (NO_NEXT, _) => Err(Refuse::Dummy),
        (_, None) => Err(Refuse::Malformed),
        (_, Some(end)) => match sa.config.mode {
            Mode::Tunnel => open_tunnel(sa, &ip, packet, start..end, next),
            Mode::Transport => {
                ip.change(packet, next, end - (start - ip.upper));
                let (cut, len) = (start - ip.upper, end - (start - ip.upper));
                Ok(Opened { at: ip.upper, cut, len, is_v6: ip.is_v6 })
            }
        },
    };
    match opened {
        Err(Refuse::Dummy) => note(&counts.dummies),
        Err(_) => note(&counts.malformed),
        Ok(_) => {}
    }
    opened
}

/// The inner packet in `at`: its length is that of its header, because padding for traffic flow confidentiality may stand
/// behind it (RFC 4303 section 2.7).
fn open_tunnel(
    sa: &Sa,
    outer: &Ip,
    packet: &mut [u8],
    at: std::ops::Range<usize>,
    next: u8,
) -> Result<Opened, Refuse> {
    let start = at.start;
    let inner = &mut packet[at];
    let ip =
        Ip::parse(inner).filter(|ip| inner_proto(ip.is_v6) == next).ok_or(Refuse::Malformed)?;
    if !ip.is_v6 && !checksum::verify_ipv4_header(&inner[..ip.upper]) {
        return Err(Refuse::Malformed);
    }
    let flags = sa.config.flags;
    let ecn = if flags.no_ecn { Some(ip.tos & 3) } else { ecn::inner(ip.tos, outer.tos) };
    let ecn = ecn.ok_or(Refuse::Congested)?;
    let dscp = if flags.decap_dscp { outer.tos & !3 } else { ip.tos & !3 };
    if dscp | ecn != ip.tos {
        set_tos(inner, dscp | ecn);
    }
    Ok(Opened { at: 0, cut: start, len: ip.total, is_v6: ip.is_v6 })
}

/// One hop less for a packet that is about to be sealed in a tunnel: it passes a router here (RFC 4301 section 5.1.2).
/// Returns whether it may pass.
pub fn one_hop(packet: &mut [u8]) -> bool {
    let Some(ip) = Ip::parse(packet) else { return false };
    let Some(hops) = packet.get_mut(if ip.is_v6 { 7 } else { 8 }) else { return false };
    if *hops < 2 {
        return false;
    }
    *hops -= 1;
    if !ip.is_v6
        && let Some([hops, proto, high, low]) = packet.get_mut(8..12)
    {
        let word = |hops: u8| Sum::ZERO.word(u16::from_be_bytes([hops, *proto]).into());
        let old = u16::from_be_bytes([*high, *low]);
        [*high, *low] = checksum::update(old, word(*hops + 1), word(*hops)).to_be_bytes();
    }
    true
}

#[cfg(test)]
mod tests;
