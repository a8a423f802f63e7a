//! Frames with tunnels, built from a description, and the descriptions of their segments.
//!
//! ```text
//!  eth [vlan] | IP [UDP vxlan eth | UDP geneve eth | GRE | ...] ... | IP [options] | TCP or UDP | payload
//! ```
//!
//! Slow and simple: every frame is built from the inside to the outside, each checksum over all that it covers.

use crate::{Rng, sums};

/// What is between an IP header and the packet inside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tunnel {
    /// VXLAN (RFC 7348) in UDP, with a checksum or none.
    Vxlan(bool),
    /// Geneve (RFC 8926) in UDP, with one option.
    Geneve(bool),
    /// GRE (RFC 2784) with an IP packet in it.
    Gre(bool),
    /// GRE with a key (RFC 2890) and an Ethernet frame in it.
    GreEthernet(bool),
    /// IP in IP.
    Ip,
    /// GTP-U in UDP.
    Gtp(bool),
    /// EtherIP (RFC 3378).
    EtherIp,
}

impl Tunnel {
    /// Every kind, with and without a checksum.
    pub const ALL: [Self; 12] = [
        Self::Vxlan(false),
        Self::Vxlan(true),
        Self::Geneve(false),
        Self::Geneve(true),
        Self::Gre(false),
        Self::Gre(true),
        Self::GreEthernet(false),
        Self::GreEthernet(true),
        Self::Ip,
        Self::Gtp(false),
        Self::Gtp(true),
        Self::EtherIp,
    ];

    const fn has_ethernet(self) -> bool {
        matches!(self, Self::Vxlan(_) | Self::Geneve(_) | Self::GreEthernet(_) | Self::EtherIp)
    }
}

/// The description of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stack {
    /// The VLAN tag of the outermost Ethernet header.
    pub vlan: Option<u16>,
    /// The tunnels, outermost first; whether the IP header around each is IPv6.
    pub tunnels: Vec<(bool, Tunnel)>,
    /// The innermost IP header is IPv6.
    pub v6: bool,
    /// TCP or UDP.
    pub tcp: bool,
    /// The last byte of the source address, which tells flows apart.
    pub host: u8,
    /// The ports.
    pub ports: (u16, u16),
    /// The IPv4 identification of the innermost header, and of the tunnels' headers.
    pub id: u16,
    /// As `id`, for the headers of tunnels.
    pub outer_id: u16,
    /// The IPv4 flag DF, in all headers.
    pub dont_fragment: bool,
    /// TOS or traffic class of the innermost header.
    pub tos: u8,
    /// TTL or hop limit of the innermost header.
    pub ttl: u8,
    /// The innermost IP header has options, or an extension header.
    pub ip_options: bool,
    /// The TCP sequence number.
    pub seq: u32,
    /// The TCP acknowledgement.
    pub ack: u32,
    /// The TCP flags.
    pub flags: u8,
    /// The TCP window.
    pub window: u16,
    /// The TCP options, a multiple of 4 bytes.
    pub tcp_options: Vec<u8>,
    /// The payload.
    pub payload: Vec<u8>,
}

impl Stack {
    /// A TCP segment over IPv4 without payload.
    #[must_use]
    pub fn tcp4() -> Self {
        Self {
            vlan: None,
            tunnels: Vec::new(),
            v6: false,
            tcp: true,
            host: 1,
            ports: (40_000, 80),
            id: 7,
            outer_id: 9,
            dont_fragment: true,
            tos: 0,
            ttl: 64,
            ip_options: false,
            seq: 1000,
            ack: 77,
            flags: 0x10,
            window: 500,
            tcp_options: Vec::new(),
            payload: Vec::new(),
        }
    }

    /// A frame with at most `payload` bytes of payload. Half have tunnels.
    #[must_use]
    pub fn random(rng: &mut Rng, payload: usize) -> Self {
        let mut pick = |limit: usize| rng.below(limit.max(1) as u64) as usize;
        let tunnels = match pick(6) {
            0 | 1 => 1,
            2 => 2,
            _ => 0,
        };
        let timestamp = [1, 1, 8, 10, 0, 0, 1, pick(256) as u8, 0, 0, 2, pick(256) as u8];
        let options =
            [&[][..], &timestamp[..], &[1, 1, 1, 1], &[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 9]];
        Self {
            vlan: (pick(4) == 0).then(|| pick(4096) as u16),
            tunnels: (0..tunnels)
                .map(|_| (pick(2) == 0, Tunnel::ALL[pick(Tunnel::ALL.len())]))
                .collect(),
            v6: pick(2) == 0,
            tcp: pick(3) != 0,
            host: pick(4) as u8 + 1,
            ports: (1024 + pick(4) as u16, 80),
            id: pick(65_536) as u16,
            outer_id: pick(65_536) as u16,
            dont_fragment: pick(2) == 0,
            tos: pick(256) as u8,
            ttl: pick(255) as u8 + 1,
            ip_options: pick(5) == 0,
            seq: pick(1 << 32) as u32,
            ack: pick(1 << 32) as u32,
            flags: 0x10 | [0, 0x08, 0x01, 0x80, 0xc0, 0x89][pick(6)],
            window: pick(65_536) as u16,
            tcp_options: options[pick(options.len())].to_vec(),
            payload: (0..1 + pick(payload)).map(|_| pick(256) as u8).collect(),
        }
    }

    /// The descriptions of the segments with `size` bytes each. IPv4 identifications are counted up unless they
    /// are `fixed`, in the innermost header and in those of tunnels.
    #[must_use]
    pub fn segments(&self, size: usize, fixed: [bool; 2]) -> Vec<Self> {
        let count = self.payload.len().div_ceil(size);
        let parts = self.payload.chunks(size).enumerate();
        let of = |(n, part): (usize, &[u8])| {
            let mut segment = Self { payload: part.to_vec(), ..self.clone() };
            segment.seq = self.seq.wrapping_add((n * size) as u32);
            segment.flags &= if n + 1 == count { 0xff } else { !0x09 };
            segment.flags &= if n == 0 { 0xff } else { !0x80 };
            segment.id = self.id.wrapping_add(if fixed[0] { 0 } else { n as u16 });
            segment.outer_id = self.outer_id.wrapping_add(if fixed[1] { 0 } else { n as u16 });
            segment
        };
        parts.map(of).collect()
    }

    /// The frame, with all lengths and checksums.
    #[must_use]
    pub fn frame(&self) -> Vec<u8> {
        let addresses = addresses(self.v6, self.host);
        let mut bytes = self.transport();
        let sum = transport_sum(&addresses, self.proto(), &bytes);
        put(&mut bytes, self.field(), sum);
        let mut bytes = self.ip(&addresses, self.proto(), &bytes);
        let mut v6 = self.v6;
        for (n, &(outer_v6, tunnel)) in self.tunnels.iter().enumerate().rev() {
            bytes = self.wrap(n, outer_v6, tunnel, v6, bytes);
            v6 = outer_v6;
        }
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if let Some(tci) = self.vlan {
            frame.extend([&[0x81, 0][..], &tci.to_be_bytes()].concat());
        }
        frame.extend(eth_type(v6));
        frame.extend(bytes);
        frame
    }

    /// The frame with the sum of the pseudo header in place of the innermost transport checksum. The checksums of
    /// tunnels are those of the complete frame, as senders write them.
    #[must_use]
    pub fn partial(&self) -> Vec<u8> {
        let (mut frame, len) = (self.frame(), self.transport().len());
        let addresses = addresses(self.v6, self.host);
        let pseudo = !transport_sum_of(&addresses, self.proto(), len, &[]);
        put(&mut frame, self.l4() + self.field(), pseudo);
        frame
    }

    /// The offset of the innermost transport header.
    #[must_use]
    pub fn l4(&self) -> usize {
        self.frame().len() - self.transport().len()
    }

    const fn proto(&self) -> u8 {
        if self.tcp { 6 } else { 17 }
    }

    /// The offset of the checksum in the transport header.
    const fn field(&self) -> usize {
        if self.tcp { 16 } else { 6 }
    }

    /// The transport header, with a checksum of zero, and the payload.
    fn transport(&self) -> Vec<u8> {
        let mut bytes = [self.ports.0.to_be_bytes(), self.ports.1.to_be_bytes()].concat();
        if self.tcp {
            bytes.extend([self.seq.to_be_bytes(), self.ack.to_be_bytes()].concat());
            bytes.extend([0x50 + (self.tcp_options.len() << 2) as u8, self.flags]);
            bytes.extend([&self.window.to_be_bytes()[..], &[0; 4], &self.tcp_options].concat());
        } else {
            bytes.extend(((8 + self.payload.len()) as u16).to_be_bytes());
            bytes.extend([0; 2]);
        }
        bytes.extend(&self.payload);
        bytes
    }

    /// The innermost IP packet.
    fn ip(&self, addresses: &[Vec<u8>; 2], proto: u8, upper: &[u8]) -> Vec<u8> {
        let options: &[u8] = match (self.ip_options, self.v6) {
            (true, false) => &[1, 1, 1, 0],
            (true, true) => &[proto, 0, 1, 4, 0, 0, 0, 0],
            (false, _) => &[],
        };
        if self.v6 {
            let first = if options.is_empty() { proto } else { 60 };
            return ipv6(addresses, first, self.tos, self.ttl, &[options, upper].concat());
        }
        ipv4(addresses, proto, [self.tos, self.ttl], self.id, self.dont_fragment, options, upper)
    }

    /// The packet `inside`, which begins with IP, in tunnel `n`.
    fn wrap(&self, n: usize, v6: bool, tunnel: Tunnel, inner_v6: bool, inside: Vec<u8>) -> Vec<u8> {
        let inside = match tunnel.has_ethernet() {
            true => [&[4; 12][..], &eth_type(inner_v6), &inside].concat(),
            false => inside,
        };
        let (proto, upper) = match tunnel {
            Tunnel::Vxlan(sum) => {
                (17, udp(v6, n, 4789, sum, &[&[8, 0, 0, 0, 0, 1, 2, 0], &inside[..]]))
            }
            Tunnel::Geneve(sum) => {
                let header = [2, 0, 0x65, 0x58, 0, 1, 2, 0, 1, 2, 3, 1, 5, 6, 7, 8];
                (17, udp(v6, n, 6081, sum, &[&header, &inside[..]]))
            }
            Tunnel::Gtp(sum) => {
                let len = (inside.len() as u16).to_be_bytes();
                (
                    17,
                    udp(v6, n, 2152, sum, &[&[0x30, 255, len[0], len[1], 0, 0, 0, 9], &inside[..]]),
                )
            }
            Tunnel::Ip => (if inner_v6 { 41 } else { 4 }, inside),
            Tunnel::EtherIp => (97, [&[0x30, 0], &inside[..]].concat()),
            Tunnel::Gre(sum) => (47, gre(sum, None, eth_type(inner_v6), &inside)),
            Tunnel::GreEthernet(sum) => (47, gre(sum, Some(0x1234), [0x65, 0x58], &inside)),
        };
        let addresses = addresses(v6, n as u8 + 100);
        match v6 {
            true => ipv6(&addresses, proto, 0, 63, &upper),
            false => {
                ipv4(&addresses, proto, [0, 63], self.outer_id, self.dont_fragment, &[], &upper)
            }
        }
    }
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

const fn eth_type(v6: bool) -> [u8; 2] {
    if v6 { [0x86, 0xdd] } else { [8, 0] }
}

fn addresses(v6: bool, host: u8) -> [Vec<u8>; 2] {
    let address = |last: u8| match v6 {
        true => [&[0xfd][..], &[0; 14], &[last]].concat(),
        false => vec![10, 0, 0, last],
    };
    [address(host), address(200)]
}

fn transport_sum_of(addresses: &[Vec<u8>; 2], proto: u8, len: usize, bytes: &[u8]) -> u16 {
    let tail = [0, proto, (len >> 8) as u8, len as u8];
    sums::internet(&[&addresses[0], &addresses[1], &tail, bytes])
}

fn transport_sum(addresses: &[Vec<u8>; 2], proto: u8, bytes: &[u8]) -> u16 {
    match transport_sum_of(addresses, proto, bytes.len(), bytes) {
        0 if proto == 17 => 0xffff,
        sum => sum,
    }
}

fn ipv4(
    addresses: &[Vec<u8>; 2],
    proto: u8,
    [tos, ttl]: [u8; 2],
    id: u16,
    dont_fragment: bool,
    options: &[u8],
    upper: &[u8],
) -> Vec<u8> {
    let len = ((20 + options.len() + upper.len()) as u16).to_be_bytes();
    let mut bytes = vec![0x45 + options.len() as u8 / 4, tos, len[0], len[1]];
    bytes.extend(id.to_be_bytes());
    bytes.extend([if dont_fragment { 0x40 } else { 0 }, 0, ttl, proto, 0, 0]);
    bytes.extend([&addresses[0][..], &addresses[1], options].concat());
    let sum = sums::internet(&[&bytes]);
    put(&mut bytes, 10, sum);
    bytes.extend(upper);
    bytes
}

fn ipv6(addresses: &[Vec<u8>; 2], next: u8, tos: u8, hops: u8, upper: &[u8]) -> Vec<u8> {
    let len = (upper.len() as u16).to_be_bytes();
    let head = [0x60 | tos >> 4, tos << 4, 0, 0, len[0], len[1], next, hops];
    [&head[..], &addresses[0], &addresses[1], upper].concat()
}

fn udp(v6: bool, n: usize, port: u16, has_sum: bool, parts: &[&[u8]]) -> Vec<u8> {
    let inside = parts.concat();
    let [to, len] = [port, 8 + inside.len() as u16].map(u16::to_be_bytes);
    let mut bytes = vec![0xc0, n as u8, to[0], to[1], len[0], len[1], 0, 0];
    bytes.extend(inside);
    if has_sum {
        let sum = transport_sum(&addresses(v6, n as u8 + 100), 17, &bytes);
        put(&mut bytes, 6, sum);
    }
    bytes
}

fn gre(has_sum: bool, key: Option<u32>, protocol: [u8; 2], inside: &[u8]) -> Vec<u8> {
    let flags = if has_sum { 0x80 } else { 0 } | if key.is_some() { 0x20 } else { 0 };
    let mut bytes = vec![flags, 0, protocol[0], protocol[1]];
    if has_sum {
        bytes.extend([0; 4]);
    }
    bytes.extend(key.iter().flat_map(|key| key.to_be_bytes()));
    bytes.extend(inside);
    if has_sum {
        let sum = sums::internet(&[&bytes]);
        put(&mut bytes, 4, sum);
    }
    bytes
}
