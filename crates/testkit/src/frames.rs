//! Builds Ethernet frames from a key, with correct lengths and checksums.
//!
//! ```text
//!  eth_dst eth_src [tag ..] eth_type | IPv4, or IPv6 [fragment] | TCP, UDP, SCTP, ICMP | payload [pad]
//! ```

use flowyard_frame::{FlowKey, proto};

use crate::sums;

/// A builder of Ethernet frames. It starts from a [`FlowKey`], whose 5-tuple, TOS, TCP flags, MACs and
/// VLAN tag it uses; if the key is not IP, the frame has its EtherType and the payload.
///
/// ```
/// # use flowyard_testkit::Build;
/// # use flowyard_frame::{FlowKey, proto};
/// let [a, b] = [1, 2].map(|n| std::net::IpAddr::from([10, 0, 0, n]));
/// let key = FlowKey::five_tuple(proto::TCP, a, 40000, b, 80);
/// let frame = Build::new(&key).flags(FlowKey::SYN).vlan(7).pad(60).bytes();
/// assert_eq!((frame.len(), &frame[12..18]), (60, &[0x81, 0, 0, 7, 8, 0][..]));
/// ```
#[derive(Clone, Debug)]
pub struct Build<'a> {
    key: FlowKey,
    tags: [(u16, u16); 4],
    tag_count: usize,
    payload: &'a [u8],
    fill: usize,
    pad: usize,
    seq: u32,
    fragment: Option<(u16, bool)>,
    ttl: u8,
}

impl<'a> Build<'a> {
    /// A frame without payload.
    #[must_use]
    pub const fn new(key: &FlowKey) -> Self {
        let new = Self {
            key: *key,
            tags: [(0, 0); 4],
            tag_count: 0,
            payload: &[],
            fill: 0,
            pad: 0,
            seq: 0,
            fragment: None,
            ttl: 64,
        };
        if key.vlan_tci == 0 { new } else { new.tag(0x8100, key.vlan_tci) }
    }

    /// Replaces the key's TCP flags.
    #[must_use]
    pub const fn flags(mut self, flags: u8) -> Self {
        self.key.tcp_flags = flags;
        self
    }

    /// Adds a VLAN tag (802.1Q) after the present ones.
    #[must_use]
    pub const fn vlan(self, tci: u16) -> Self {
        self.tag(0x8100, tci)
    }

    /// Adds a tag of EtherType `tpid` (0x88a8 for 802.1ad) after the present ones.
    ///
    /// # Panics
    /// On the fifth tag.
    #[must_use]
    pub const fn tag(mut self, tpid: u16, tci: u16) -> Self {
        self.tags[self.tag_count] = (tpid, tci);
        self.tag_count += 1;
        self
    }

    /// Adds `payload` after the transport header.
    #[must_use]
    pub const fn payload(mut self, payload: &'a [u8]) -> Self {
        self.payload = payload;
        self
    }

    /// Adds zeros after the payload, inside the IP packet, so that the frame has at least `len` bytes.
    #[must_use]
    pub const fn frame_len(mut self, len: usize) -> Self {
        self.fill = len;
        self
    }

    /// Adds Ethernet padding up to `len` bytes, outside the IP packet: 60 is the minimum on a wire.
    #[must_use]
    pub const fn pad(mut self, len: usize) -> Self {
        self.pad = len;
        self
    }

    /// Sets the TCP sequence number, IPv4 identification, SCTP TSN or ICMP sequence number.
    #[must_use]
    pub const fn seq(mut self, seq: u32) -> Self {
        self.seq = seq;
        self
    }

    /// Sets the TTL or hop limit, which is 64 by default.
    #[must_use]
    pub const fn ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
        self
    }

    /// Makes the frame a fragment at `offset`, in units of 8 bytes; `more` if further fragments follow.
    /// Later fragments have no transport header, only payload. The transport checksum of a first fragment
    /// covers only this frame.
    #[must_use]
    pub const fn fragment(mut self, offset: u16, more: bool) -> Self {
        self.fragment = Some((offset & 0x1fff, more));
        self
    }

    /// The frame.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    /// Replaces the contents of `out` by the frame.
    ///
    /// # Panics
    /// When the IP packet would be longer than 65,535 bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend(self.key.eth_dst);
        out.extend(self.key.eth_src);
        for (tpid, tci) in &self.tags[..self.tag_count] {
            out.extend(tpid.to_be_bytes());
            out.extend(tci.to_be_bytes());
        }
        out.extend(self.key.eth_type.to_be_bytes());
        let l3 = out.len();
        self.ip(out);
        let l4 = out.len();
        let ports = self.fragment.is_none_or(|(offset, _)| offset == 0);
        if ports && self.key.is_ip() {
            self.transport(out);
        }
        out.extend(self.payload);
        out.resize(out.len().max(self.fill), 0);
        self.finish(out, l3, l4, ports);
        out.resize(out.len().max(self.pad), 0);
    }

    /// Writes the network header, with zero lengths and checksum.
    fn ip(&self, out: &mut Vec<u8>) {
        let key = &self.key;
        if key.is_ipv4() {
            out.extend([0x45, key.tos, 0, 0]);
            out.extend((self.seq as u16).to_be_bytes());
            let (offset, more) = self.fragment.unwrap_or_default();
            out.extend((offset | u16::from(more) << 13).to_be_bytes());
            out.extend([self.ttl, key.proto, 0, 0]);
            out.extend(&key.src[..4]);
            out.extend(&key.dst[..4]);
        } else if key.is_ipv6() {
            out.extend([0x60 | key.tos >> 4, key.tos << 4, 0, 0, 0, 0]);
            out.extend([if self.fragment.is_some() { 44 } else { key.proto }, self.ttl]);
            out.extend(key.src);
            out.extend(key.dst);
            if let Some((offset, more)) = self.fragment {
                out.extend([key.proto, 0]);
                out.extend((offset << 3 | u16::from(more)).to_be_bytes());
                out.extend(self.seq.to_be_bytes());
            }
        }
    }

    /// Writes the transport header, with zero length and checksum.
    fn transport(&self, out: &mut Vec<u8>) {
        let key = &self.key;
        let ports = [key.sport.to_be_bytes(), key.dport.to_be_bytes()];
        match key.proto {
            proto::TCP => {
                out.extend(ports.as_flattened());
                out.extend(self.seq.to_be_bytes());
                out.extend([0, 0, 0, 0, 0x50, key.tcp_flags, 0xff, 0xff, 0, 0, 0, 0]);
            }
            proto::UDP => {
                out.extend(ports.as_flattened());
                out.extend([0; 4]);
            }
            proto::SCTP => {
                out.extend(ports.as_flattened());
                out.extend([0, 0, 0, 1, 0, 0, 0, 0]); // verification tag, checksum
                out.extend([0, 3, 0, 0]); // DATA, whole message; length
                out.extend(self.seq.to_be_bytes());
                out.extend([0; 8]); // stream, sequence, payload protocol
            }
            proto::ICMP | proto::ICMPV6 => {
                let echo = if key.proto == proto::ICMP { 8 } else { 128 };
                out.extend([echo, 0, 0, 0, 0, 1]);
                out.extend((self.seq as u16).to_be_bytes());
            }
            _ => {}
        }
    }

    /// Writes lengths and checksums, after the payload is written.
    fn finish(&self, out: &mut Vec<u8>, l3: usize, l4: usize, ports: bool) {
        let key = &self.key;
        if !key.is_ip() {
            return;
        }
        if key.proto == proto::SCTP && ports {
            let chunk = (out.len() - l4 - 12) as u16;
            put(out, l4 + 14, chunk);
            out.resize(l4 + (out.len() - l4).next_multiple_of(4), 0); // chunks are padded to 4
        }
        let after_ip = out.len() - l4;
        let total = u16::try_from(out.len() - l3).expect("an IP packet has at most 65,535 bytes");
        if key.is_ipv4() {
            put(out, l3 + 2, total);
            let sum = sums::internet(&[&out[l3..l4]]);
            put(out, l3 + 10, sum);
        } else {
            put(out, l3 + 4, total - 40);
        }
        if !ports {
            return;
        }
        let (src, dst) = if key.is_ipv4() {
            (&key.src[..4], &key.dst[..4])
        } else {
            (&key.src[..], &key.dst[..])
        };
        let tail = [0, key.proto, (after_ip >> 8) as u8, after_ip as u8];
        let over_ip = |out: &[u8]| sums::internet(&[src, dst, &tail, &out[l4..]]);
        match key.proto {
            proto::TCP => {
                let sum = over_ip(out);
                put(out, l4 + 16, sum);
            }
            proto::UDP => {
                put(out, l4 + 4, after_ip as u16);
                let sum = over_ip(out);
                put(out, l4 + 6, if sum == 0 { 0xffff } else { sum }); // RFC 768: 0 is "none"
            }
            proto::SCTP => {
                let sum = sums::crc32c(&out[l4..]);
                out[l4 + 8..l4 + 12].copy_from_slice(&sum);
            }
            proto::ICMP => {
                let sum = sums::internet(&[&out[l4..]]);
                put(out, l4 + 2, sum);
            }
            proto::ICMPV6 => {
                let sum = over_ip(out);
                put(out, l4 + 2, sum);
            }
            _ => {}
        }
    }
}

fn put(out: &mut [u8], at: usize, value: u16) {
    out[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
