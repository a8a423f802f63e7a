//! Tunnels to backends: IP in IP and Generic UDP Encapsulation (GUE).
//!
//! ```text
//!  [eth | tags | IP packet]  ──>  [eth | tags | outer IP | (UDP 6080) | IP packet]
//! ```

use std::net::IpAddr;

use crate::Mode;
use flowyard_frame::{Frame, proto};
use flowyard_wire::checksum::{self, Sum};

use flowyard_pool::Pool;

/// The UDP port of GUE (IANA).
const GUE: u16 = 6080;

/// Puts a tunnel header in front of the packet at `l3`. Returns false if the buffer has no space for it.
pub(super) fn wrap(
    frame: &mut Frame,
    pool: &Pool,
    l3: usize,
    mode: Mode,
    (src, dst): (IpAddr, IpAddr),
    hash: u64,
) -> bool {
    if src.is_ipv4() != dst.is_ipv4() {
        return false;
    }
    let head = mode.overhead(dst.is_ipv6());
    let bytes = pool.bytes(frame);
    let inner = bytes.get(l3..).unwrap_or_default();
    let Some(start) = inner.first_chunk::<20>().copied() else { return false };
    let v6 = start[0] >> 4 == 6;
    let word = |at: usize| u16::from_be_bytes([start[at], start[at + 1]]);
    let len = if v6 { 40 + usize::from(word(4)) } else { usize::from(word(2)) };
    if len > inner.len() || len + head > usize::from(u16::MAX) {
        return false;
    }
    // Removes Ethernet padding after the packet.
    pool.truncate(frame, l3 + len);
    if !pool.insert(frame, l3, head) {
        return false;
    }
    let tos = if v6 { start[0] << 4 | start[1] >> 4 } else { start[1] };
    // The outer header allows fragmentation if the inner one does, with the same identification (RFC 6864).
    let (id, flags) = if v6 { (0, 0x4000) } else { (word(4), word(6) & 0x4000) };
    let bytes = pool.bytes_mut(frame);
    let eth_type: u16 = if dst.is_ipv6() { 0x86dd } else { 0x0800 };
    bytes[l3 - 2..l3].copy_from_slice(&eth_type.to_be_bytes());
    let upper = match (mode, v6) {
        (Mode::Gue, _) => proto::UDP,
        (_, true) => proto::IPV6,
        (_, false) => proto::IPIP,
    };
    let after = bytes.len() - l3;
    let outer = &mut bytes[l3..];
    let mut put = |at: usize, data: &[u8]| outer[at..at + data.len()].copy_from_slice(data);
    let udp = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            put(0, &[0x45, tos]);
            put(2, &(after as u16).to_be_bytes());
            put(4, &id.to_be_bytes());
            put(6, &u16::to_be_bytes(flags));
            put(8, &[64, upper, 0, 0]);
            put(12, &src.octets());
            put(16, &dst.octets());
            let sum = checksum::checksum(&outer[..20]);
            outer[10..12].copy_from_slice(&sum.to_be_bytes());
            20
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            // The flow label distributes tunnels over paths, as the source port does (RFC 6438).
            let label = (hash >> 40) as u32 & 0xf_ffff;
            put(0, &(6 << 28 | u32::from(tos) << 20 | label).to_be_bytes());
            put(4, &((after - 40) as u16).to_be_bytes());
            put(6, &[upper, 64]);
            put(8, &src.octets());
            put(24, &dst.octets());
            40
        }
        _ => return false,
    };
    if mode == Mode::Gue {
        udp_header(outer, udp, hash);
    }
    true
}

/// Writes the UDP header of a GUE tunnel at `udp` of the packet `outer`.
fn udp_header(outer: &mut [u8], udp: usize, hash: u64) {
    let sport = 0xc000 | (hash >> 48) as u16 & 0x3fff;
    let length = (outer.len() - udp) as u16;
    let header = [sport, GUE, length, 0].map(u16::to_be_bytes);
    outer[udp..udp + 8].copy_from_slice(header.as_flattened());
    if udp == 40 {
        // IPv6 requires a checksum (RFC 8200 section 8.1).
        let pseudo = Sum::ZERO.bytes(&outer[8..40]).word(length.into()).word(proto::UDP.into());
        let sum = match pseudo.bytes(&outer[udp..]).finish() {
            0 => 0xffff,
            sum => sum,
        };
        outer[udp + 6..udp + 8].copy_from_slice(&u16::to_be_bytes(sum));
    }
}

/// The tunnel of this balancer that an ICMP error quotes: its destination, and the offset in `message` of
/// the packet in the tunnel, which may be beyond the quoted bytes. `source` is the source address of the
/// balancer's tunnels.
pub(super) fn inside_of(
    message: &[u8],
    v6: bool,
    source: Option<IpAddr>,
) -> Option<(IpAddr, usize)> {
    let is_error = match message.first()? {
        1..=4 if v6 => true,
        3 | 11 | 12 => !v6,
        _ => false,
    };
    let outer = message.get(8..).filter(|_| is_error)?;
    let (upper, len, src, dst): (u8, usize, IpAddr, IpAddr) = if v6 {
        let header = outer.first_chunk::<40>().filter(|header| header[0] >> 4 == 6)?;
        let addr = |at: usize| header[at..].first_chunk::<16>().map(|addr| IpAddr::from(*addr));
        (header[6], 40, addr(8)?, addr(24)?)
    } else {
        let header = outer.first_chunk::<20>().filter(|header| header[0] == 0x45)?;
        let addr = |at: usize| header[at..].first_chunk::<4>().map(|addr| IpAddr::from(*addr));
        (header[9], 20, addr(12)?, addr(16)?)
    };
    let inner = match upper {
        proto::IPIP | proto::IPV6 => len,
        proto::UDP if outer.get(len + 2..len + 4) == Some(&GUE.to_be_bytes()) => len + 8,
        _ => return None,
    };
    (Some(src) == source).then_some((dst, 8 + inner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowyard_frame::FlowKey;
    use flowyard_pool::Meta;
    use flowyard_testkit::Build;

    #[test]
    fn a_packet_that_is_cut_or_too_long_gets_no_header() {
        let mut pool = Pool::new(1, flowyard_pool::LONGEST);
        let [a, b] = [[10, 0, 0, 1], [10, 0, 1, 1]].map(IpAddr::from);
        let key = FlowKey::five_tuple(proto::UDP, a, 1, b, 2);
        let longest = flowyard_pool::LONGEST - 14 - Mode::Ipip.overhead(false);
        for (len, cut, wanted) in
            [(100, 0, true), (100, 1, false), (longest, 0, true), (longest + 1, 0, false)]
        {
            let data = Build::new(&key).payload(&vec![7; len - 28]).bytes();
            let data = &data[..data.len() - cut];
            let meta = Meta { wire_len: data.len() as u32, ..Meta::default() };
            let mut frame = pool.copy(data, meta).unwrap();
            let done = wrap(&mut frame, &pool, 14, Mode::Ipip, (a, b), 5);
            assert_eq!(done, wanted, "{len} bytes, {cut} of them cut");
            assert!(pool.bytes(&frame).ends_with(&data[14..]), "the packet is unchanged");
            pool.put(frame);
        }
    }
}
