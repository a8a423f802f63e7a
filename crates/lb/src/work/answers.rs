//! ICMP messages that the balancer sends to the sender of a packet: errors and echo replies (RFC 792,
//! RFC 1191, RFC 4443). The packet is rewritten into its answer.
//!
//! There is no error about an ICMP error, about a fragment other than the first, or about a packet from or
//! to a group address (RFC 1122 section 3.2.2, RFC 4443 section 2.4). A core sends at most a thousand errors
//! a second. An error quotes the packet as it would have been on a wire: of a frame that is to be cut, the first segment.

use std::net::IpAddr;

use flowyard_frame::{Batch, FlowKey, Frag, Frame, proto};
use flowyard_wire::checksum::{self, Sum};

use super::balance::Balance;
use super::exit::leave;
use super::finish::first_segment;
use super::rewrite::Packet;
use flowyard_pool::Pool;
use flowyard_yard::DropReason;
use flowyard_yard::port::refuse;

/// The most bytes of a packet that an ICMPv4 error quotes: 576 in total (RFC 1812 section 4.3.2.3).
const QUOTE_V4: usize = 548;
/// The most bytes of a packet that an ICMPv6 error quotes: 1280 in total (RFC 4443 section 2.4).
const QUOTE_V6: usize = 1232;

/// The reason for an ICMP error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wrong {
    /// The packet exceeds this MTU.
    TooBig(usize),
    /// The TTL or hop limit reached 0.
    Expired,
}

impl Balance {
    /// Sends an ICMP error about the packet in `lane` to the port where it was received. The source is the
    /// address of that port, or `from` if it has none. If no error may be sent, the packet is dropped for
    /// `reason`.
    pub(super) fn answer_with(
        &mut self,
        (batch, lane): (&mut Batch, usize),
        pool: &Pool,
        wrong: Wrong,
        (from, reason): (IpAddr, DropReason),
    ) {
        let key = batch.keys[lane];
        let v6 = key.is_ipv6();
        let from =
            self.neighbours.place(key.in_port).and_then(|place| place.own(v6)).unwrap_or(from);
        let frame = &mut batch.frames[lane];
        let packet = Packet::new(pool.bytes_mut(frame), &key);
        let l3 = packet.filter(|packet| may_be_answered(packet)).map(|packet| packet.l3);
        let Some(l3) = l3.filter(|_| self.allowance.take(self.now)) else {
            return refuse(batch, lane, reason);
        };
        match first_segment(frame, pool) && answer(frame, pool, l3, v6, from, wrong) {
            true => leave(batch, lane, key.in_port),
            false => refuse(batch, lane, reason),
        }
    }

    /// If the frame of `lane` is an echo request to an address of the balancer, rewrites it into the reply
    /// and returns true (RFC 1122 section 3.2.2.6, RFC 4443 section 4.2).
    pub(super) fn echoes(&self, batch: &mut Batch, lane: usize, pool: &Pool) -> bool {
        let key = batch.keys[lane];
        let icmp = if key.is_ipv6() { proto::ICMPV6 } else { proto::ICMP };
        if key.proto != icmp || key.fragment() != Frag::No {
            return false;
        }
        let is_own = |addr| {
            let place = self.neighbours.place(key.in_port);
            self.plan.answers_for(addr)
                || self.settings.local.contains(&addr)
                || place.is_some_and(|place| place.is(addr))
        };
        // If 'pass' forwards other packets of this port, it forwards echo requests too.
        let passed = self.settings.pass.get(usize::from(key.in_port)).copied().flatten();
        let frame = pool.bytes_mut(&mut batch.frames[lane]);
        if passed.is_some() || !key.dst_ip().is_some_and(is_own) || !echo(frame, &key) {
            return false;
        }
        leave(batch, lane, key.in_port);
        true
    }
}

/// Rewrites an echo request into its reply. Returns false, without a change, for packets with options.
fn echo(frame: &mut [u8], key: &FlowKey) -> bool {
    let Some(mut packet) = Packet::new(frame, key).filter(may_be_answered) else { return false };
    let (request, reply, plain) = if packet.v6 { (128, 129, 40) } else { (8, 0, 20) };
    if packet.l4 != plain || packet.bytes[plain..plain + 2] != [request, 0] {
        return false;
    }
    packet.set_hops(64);
    let (addrs, n) = if packet.v6 { (8, 16) } else { (12, 4) };
    let (src, dst) = packet.bytes[addrs..addrs + 2 * n].split_at_mut(n);
    src.swap_with_slice(dst);
    packet.change(plain, &[reply]);
    let (dst, rest) = frame.split_at_mut(6);
    dst.swap_with_slice(&mut rest[..6]);
    true
}

/// Whether an ICMP error about this packet is allowed.
fn may_be_answered(packet: &Packet<'_>) -> bool {
    let bytes = &packet.bytes;
    if packet.is_later() || packet.l3 >= 6 && packet.to_group {
        return false;
    }
    let kind = bytes.get(packet.l4).copied().unwrap_or_default();
    let is_error = match packet.proto {
        proto::ICMP => !packet.v6 && matches!(kind, 3 | 4 | 5 | 11 | 12),
        proto::ICMPV6 => packet.v6 && (kind < 128 || kind == 137),
        _ => false,
    };
    let (src, dst) = if packet.v6 { (8, 24) } else { (12, 16) };
    let group = |at: usize| match packet.v6 {
        true => bytes[at] == 0xff || bytes[at..at + 16] == [0; 16],
        false => bytes[at] >= 224 || bytes[at] == 0 || bytes[at] == 127,
    };
    !is_error && !group(src) && !group(dst)
}

/// Rewrites a frame into an ICMP error to its sender. Returns false if that is not possible.
pub(super) fn answer(
    frame: &mut Frame,
    pool: &Pool,
    l3: usize,
    v6: bool,
    from: IpAddr,
    wrong: Wrong,
) -> bool {
    let packet = pool.bytes(frame).get(l3..).unwrap_or_default();
    let (head, quote, ip) = if v6 { (48, QUOTE_V6, 40) } else { (28, QUOTE_V4, 20) };
    let Some(start) = packet.get(..ip) else { return false };
    let mut addrs = [0; 32];
    let n = if v6 { 16 } else { 4 };
    let at = if v6 { 8 } else { 12 };
    addrs[..2 * n].copy_from_slice(&start[at..at + 2 * n]);
    match from {
        IpAddr::V4(from) if !v6 => addrs[n..2 * n].copy_from_slice(&from.octets()),
        IpAddr::V6(from) if v6 => addrs[n..2 * n].copy_from_slice(&from.octets()),
        _ => return false,
    }
    pool.truncate(frame, l3 + quote);
    if !pool.insert(frame, l3, head) {
        return false;
    }
    let bytes = pool.bytes_mut(frame);
    let len = bytes.len() - l3;
    let (link, outer) = bytes.split_at_mut(l3);
    // Swaps the MAC addresses.
    let (dst, rest) = link.split_at_mut(6);
    dst.swap_with_slice(&mut rest[..6]);
    let (src, dst) = addrs[..2 * n].split_at(n);
    let at = if v6 { 8 } else { 12 };
    outer[at..at + n].copy_from_slice(dst);
    outer[at + n..at + 2 * n].copy_from_slice(src);
    let (kind, code, word) = match (wrong, v6) {
        (Wrong::TooBig(room), true) => (2, 0, room.min(usize::from(u16::MAX)) as u32),
        (Wrong::TooBig(room), false) => (3, 4, room.min(usize::from(u16::MAX)) as u32),
        (Wrong::Expired, true) => (3, 0, 0),
        (Wrong::Expired, false) => (11, 0, 0),
    };
    let icmp = if v6 { 40 } else { 20 };
    outer[icmp..icmp + 4].copy_from_slice(&[kind, code, 0, 0]);
    outer[icmp + 4..icmp + 8].copy_from_slice(&word.to_be_bytes());
    if v6 {
        outer[0] = 0x60;
        outer[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
        outer[6..8].copy_from_slice(&[proto::ICMPV6, 64]);
        let pseudo = Sum::ZERO.bytes(&outer[8..40]).word((len - 40) as u64);
        let sum = pseudo.word(proto::ICMPV6.into()).bytes(&outer[40..]).finish();
        outer[42..44].copy_from_slice(&sum.to_be_bytes());
    } else {
        outer[..2].copy_from_slice(&[0x45, 0]);
        outer[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        outer[8..10].copy_from_slice(&[64, proto::ICMP]);
        let sum = checksum::checksum(&outer[..20]);
        outer[10..12].copy_from_slice(&sum.to_be_bytes());
        let sum = checksum::checksum(&outer[20..]);
        outer[22..24].copy_from_slice(&sum.to_be_bytes());
    }
    true
}

#[cfg(test)]
mod tests {
    use flowyard_flow::parse;
    use flowyard_testkit::Build;
    use flowyard_wire::{Headers, LinkType};

    use super::*;

    /// Whether an error about a frame of `key` is allowed, after a change of its bytes.
    fn allowed(key: &FlowKey, change: impl Fn(&mut [u8])) -> bool {
        let mut bytes = Build::new(key).payload(&[7; 40]).bytes();
        change(&mut bytes);
        let key = parse::key(&Headers::parse(LinkType::Ethernet, &bytes), &bytes, 0);
        may_be_answered(&Packet::new(&mut bytes, &key).expect("a whole packet"))
    }

    fn keys(v6: bool, upper: u8) -> FlowKey {
        let [src, dst]: [IpAddr; 2] = match v6 {
            true => ["2001:db8::1", "2001:db8::2"].map(|addr| addr.parse().expect("an address")),
            false => [[198, 51, 100, 1], [192, 0, 2, 1]].map(IpAddr::from),
        };
        let port = if upper == proto::UDP { 0x0303 } else { 0 };
        FlowKey::five_tuple(upper, src, port, dst, port)
    }

    #[test]
    fn there_is_no_error_about_an_error() {
        for (v6, icmp, l4) in [(false, proto::ICMP, 34), (true, proto::ICMPV6, 54)] {
            for kind in 0..=255_u8 {
                let is_error = match v6 {
                    false => [3, 4, 5, 11, 12].contains(&kind),
                    true => kind < 128 || kind == 137,
                };
                let may = allowed(&keys(v6, icmp), |bytes| bytes[l4] = kind);
                assert_eq!(may, !is_error, "v6 {v6}, type {kind}");
            }
            assert!(allowed(&keys(v6, proto::UDP), |_| ()), "only ICMP has types");
        }
    }

    #[test]
    fn there_is_no_error_about_groups_and_later_fragments() {
        for at in [26, 30] {
            for first in 0..=255_u8 {
                let may = allowed(&keys(false, proto::UDP), |bytes| bytes[at] = first);
                let is_one = !(first == 0 || first == 127 || first >= 224);
                assert_eq!(may, is_one, "an address of {first}.0.0.0/8 at {at}");
            }
        }
        for at in [22, 38] {
            let v6 = |start: &[u8]| {
                let mut addr = [0; 16];
                addr[..start.len()].copy_from_slice(start);
                allowed(&keys(true, proto::UDP), |bytes| bytes[at..at + 16].copy_from_slice(&addr))
            };
            assert!(!v6(&[]) && !v6(&[0xff]) && !v6(&[0xff, 2, 1]), "at {at}");
            assert!(v6(&[0xfe, 0x80]) && v6(&[0, 1]) && v6(&[0x20]), "at {at}");
        }
        for v6 in [false, true] {
            assert!(!allowed(&keys(v6, proto::UDP), |bytes| bytes[0] |= 1), "a group MAC address");
        }
        let word = |word: [u8; 2]| {
            allowed(&keys(false, proto::UDP), |bytes| bytes[20..22].copy_from_slice(&word))
        };
        assert!(
            word([0x20, 0]) && word([0x40, 0]),
            "a first fragment, and one that must not be one"
        );
        assert!(!word([0, 1]) && !word([0x20, 9]), "later fragments");
    }
}
