//! The messages of ARP and neighbour discovery, in bytes.
//!
//! ```text
//!  ARP   [eth 0x0806 | 1 0x0800 6 4 | 1 request, 2 reply | sender MAC, IP | target MAC, IP]
//!  ND    [eth 0x86dd | IPv6, hop limit 255 | 135 solicitation, 136 advertisement | target | option: MAC]
//! ```
//!
//! All input bytes are handled. A message that a router could have forwarded (hop limit below 255),
//! or that has a wrong checksum, is ignored (RFC 4861 section 7.1).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowyard_frame::{Frame, proto};
use flowyard_wire::checksum::transport_checksum;

use flowyard_pool::Pool;

/// A hardware address.
pub type Mac = [u8; 6];

/// The length of the longest request.
pub const QUESTION: usize = 14 + 40 + 32;

/// A message of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// A request for an address: ARP request, or neighbour solicitation.
    Asks {
        /// The requested address.
        target: IpAddr,
        /// The sender, if the message names it.
        from: Option<(IpAddr, Mac)>,
    },
    /// An answer: ARP reply, or neighbour advertisement.
    Says {
        /// The address, and the hardware address that has it.
        who: (IpAddr, Mac),
        /// Whether it replaces a known hardware address (override flag).
        replaces: bool,
    },
}

/// The offset of an ARP message or an IPv6 packet in `frame`, after its tags.
fn start(frame: &[u8]) -> Option<(u16, usize)> {
    let mut at = 12;
    loop {
        let kind = u16::from_be_bytes(*frame.get(at..)?.first_chunk()?);
        match kind {
            0x8100 | 0x88a8 | 0x9100 => at += 4,
            _ => return Some((kind, at + 2)),
        }
    }
}

/// Parses the Ethernet `frame`; `None` if it is not a correct message of ARP or neighbour
/// discovery.
pub fn read(frame: &[u8]) -> Option<Heard> {
    match start(frame)? {
        (0x0806, at) => arp(frame.get(at..)?.first_chunk()?),
        (0x86dd, at) => discovery(frame.get(at..)?),
        _ => None,
    }
}

fn arp(m: &[u8; 28]) -> Option<Heard> {
    let mac = |at: usize| [m[at], m[at + 1], m[at + 2], m[at + 3], m[at + 4], m[at + 5]];
    let addr = |at: usize| Ipv4Addr::new(m[at], m[at + 1], m[at + 2], m[at + 3]);
    let (sender, target) = (addr(14), addr(24));
    let who = (IpAddr::from(sender), mac(8));
    match m[..8] {
        // RFC 5227 section 2.1.1: a probe for a free address has no sender address.
        [0, 1, 8, 0, 6, 4, 0, 1] => Some(Heard::Asks {
            target: target.into(),
            from: (!sender.is_unspecified()).then_some(who),
        }),
        [0, 1, 8, 0, 6, 4, 0, 2] => Some(Heard::Says { who, replaces: true }),
        _ => None,
    }
}

fn discovery(packet: &[u8]) -> Option<Heard> {
    let header = packet.first_chunk::<40>()?;
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let message = packet.get(40..40 + len)?;
    if header[6..8] != [proto::ICMPV6, 255] || message.len() < 24 || message[1] != 0 {
        return None;
    }
    let addr = |bytes: &[u8]| bytes.first_chunk::<16>().map(|bytes| Ipv6Addr::from(*bytes));
    let (src, dst) = (addr(&header[8..])?, addr(&header[24..])?);
    if transport_checksum(src.into(), dst.into(), proto::ICMPV6, message) != 0 {
        return None;
    }
    let target = addr(&message[8..])?;
    if target.is_multicast() {
        return None;
    }
    // Options: type, length in units of 8 bytes.
    let (mut at, mut mac) = (24, [None; 2]);
    while at < message.len() {
        let option = message.get(at..)?.first_chunk::<8>()?;
        match option {
            [_, 0, ..] => return None,
            [kind @ (1 | 2), 1, a, b, c, d, e, f] => {
                mac[usize::from(*kind) - 1] = Some([*a, *b, *c, *d, *e, *f]);
            }
            _ => {}
        }
        at += usize::from(option[1]) * 8;
    }
    match message[0] {
        135 if src.is_unspecified() && mac[0].is_some() => None,
        135 => {
            let from = mac[0].map(|mac| (IpAddr::from(src), mac));
            Some(Heard::Asks { target: target.into(), from })
        }
        136 => {
            Some(Heard::Says { who: (target.into(), mac[1]?), replaces: message[4] & 0x20 != 0 })
        }
        _ => None,
    }
}

/// Turns `frame`, a request for `target`, into the reply that `mac` has it. Returns `false` if the
/// frame is too short.
pub fn answer(frame: &mut Frame, pool: &Pool, target: IpAddr, mac: Mac) -> bool {
    let Some((_, at)) = start(pool.bytes(frame)) else { return false };
    match target {
        IpAddr::V4(target) => {
            let Some((link, message)) = pool.bytes_mut(frame).split_at_mut_checked(at) else {
                return false;
            };
            let Some(m) = message.first_chunk_mut::<28>() else { return false };
            m[7] = 2;
            m.copy_within(8..18, 18);
            m[8..14].copy_from_slice(&mac);
            m[14..18].copy_from_slice(&target.octets());
            link[..6].copy_from_slice(&m[18..24]);
            link[6..12].copy_from_slice(&mac);
            true
        }
        IpAddr::V6(target) => {
            let (len, want) = (pool.bytes(frame).len(), at + 72);
            if len < want && !pool.insert(frame, len, want - len) {
                return false;
            }
            pool.truncate(frame, want);
            let (link, packet) = pool.bytes_mut(frame).split_at_mut(at);
            let asker =
                packet[8..].first_chunk::<16>().copied().map_or(Ipv6Addr::UNSPECIFIED, Into::into);
            // A duplicate address probe has no source address: the answer goes to all nodes.
            let (dst, solicited) = match asker.is_unspecified() {
                true => (Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), 0),
                false => (asker, 0x40),
            };
            if asker.is_unspecified() {
                link[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
            } else {
                link.copy_within(6..12, 0);
            }
            link[6..12].copy_from_slice(&mac);
            let option = option(2, mac);
            let head = [136, 0, 0, 0, solicited | 0x20, 0, 0, 0];
            write(packet, (target, dst), head, target, option);
            true
        }
    }
}

/// Writes a request for `target` by `who` into `frame`: to all stations or, if its address is
/// `known`, to that one. Returns the length.
pub fn question(
    frame: &mut [u8; QUESTION],
    (src, mac): (IpAddr, Mac),
    target: IpAddr,
    known: Option<Mac>,
) -> usize {
    frame[6..12].copy_from_slice(&mac);
    match (src, target) {
        (IpAddr::V4(src), IpAddr::V4(target)) => {
            frame[..6].copy_from_slice(&known.unwrap_or([0xff; 6]));
            frame[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
            frame[22..28].copy_from_slice(&mac);
            frame[28..32].copy_from_slice(&src.octets());
            frame[38..42].copy_from_slice(&target.octets());
            60 // the shortest frame of Ethernet
        }
        (IpAddr::V6(src), IpAddr::V6(target)) => {
            let [.., a, b, c] = target.octets();
            // RFC 4291 section 2.7.1, RFC 2464 section 7.
            let group = Ipv6Addr::new(
                0xff02,
                0,
                0,
                0,
                0,
                1,
                0xff00 | u16::from(a),
                u16::from_be_bytes([b, c]),
            );
            let (dst, to) = match known {
                Some(mac) => (target, mac),
                None => (group, [0x33, 0x33, 0xff, a, b, c]),
            };
            frame[..6].copy_from_slice(&to);
            frame[12..14].copy_from_slice(&[0x86, 0xdd]);
            let option = option(1, mac);
            write(&mut frame[14..], (src, dst), [135, 0, 0, 0, 0, 0, 0, 0], target, option);
            QUESTION
        }
        _ => 0,
    }
}

/// Writes an announcement that `mac` has `addr` into `frame`: an ARP announcement (RFC 5227 section
/// 2.3), or an unsolicited advertisement (RFC 4861 section 7.2.6). Returns the length.
pub fn announcement(frame: &mut [u8; QUESTION], addr: IpAddr, mac: Mac) -> usize {
    let IpAddr::V6(v6) = addr else { return question(frame, (addr, mac), addr, None) };
    frame[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
    frame[6..12].copy_from_slice(&mac);
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    write(&mut frame[14..], (v6, all), [136, 0, 0, 0, 0x20, 0, 0, 0], v6, option(2, mac));
    QUESTION
}

/// The option with a link-layer address (RFC 4861 section 4.6.1).
const fn option(kind: u8, [a, b, c, d, e, f]: Mac) -> [u8; 8] {
    [kind, 1, a, b, c, d, e, f]
}

/// Writes an IPv6 packet with a message about `target` and one option.
fn write(
    packet: &mut [u8],
    (src, dst): (Ipv6Addr, Ipv6Addr),
    head: [u8; 8],
    target: Ipv6Addr,
    option: [u8; 8],
) {
    packet[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 32, proto::ICMPV6, 255]);
    packet[8..24].copy_from_slice(&src.octets());
    packet[24..40].copy_from_slice(&dst.octets());
    packet[40..48].copy_from_slice(&head);
    packet[48..64].copy_from_slice(&target.octets());
    packet[64..72].copy_from_slice(&option);
    let sum = transport_checksum(src.into(), dst.into(), proto::ICMPV6, &packet[40..72]);
    packet[42..44].copy_from_slice(&sum.to_be_bytes());
}
