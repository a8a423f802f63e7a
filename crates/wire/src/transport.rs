//! TCP, UDP, SCTP, ICMP: ports, flags, and the start of the payload.
//!
//! Ports are read even if the header is cut after them, so that a frame with a fault still has a flow if
//! its bytes suffice.

use crate::{
    Fault, Net,
    ip::proto,
    walk::{Step, Walk},
};

impl Walk<'_, '_> {
    /// The header of protocol `upper` at the cursor.
    #[inline]
    pub(crate) fn transport(&mut self, upper: u8) -> Step {
        self.h.l4 = self.at as u32;
        match upper {
            proto::TCP => self.tcp(),
            proto::UDP => self.udp(),
            proto::SCTP => self.sctp(),
            // Type, code and checksum; the rest depends on the type.
            proto::ICMP | proto::ICMPV6 => match self.left() {
                0..4 => Err(self.short(Fault::TruncatedTransport)),
                _ => {
                    self.at += 4;
                    Ok(())
                }
            },
            _ if self.h.fragment.is_fragment() => Ok(()),
            _ => self.ip_tunnel(upper),
        }
    }

    #[inline]
    fn tcp(&mut self) -> Step {
        let Some(tcp) = self.peek::<20>() else {
            return self.cut_tcp();
        };
        self.h.ports = Some(ports([tcp[0], tcp[1], tcp[2], tcp[3]]));
        self.h.tcp_flags = tcp[13];
        let header = usize::from(tcp[12] >> 4) * 4;
        if header < 20 {
            return Err(Fault::BadTcpDataOffset);
        }
        if header > self.left() {
            return Err(match self.bounded {
                true => Fault::BadTcpDataOffset,
                false => Fault::TruncatedTransport,
            });
        }
        self.at += header;
        Ok(())
    }

    /// Reads the fields that a cut TCP header still has.
    #[cold]
    fn cut_tcp(&mut self) -> Step {
        self.h.ports = self.peek().copied().map(ports);
        self.h.tcp_flags = self.bytes.get(self.at + 13).copied().unwrap_or(0);
        Err(self.short(Fault::TruncatedTransport))
    }

    #[inline]
    fn udp(&mut self) -> Step {
        let Some(udp) = self.peek::<8>() else {
            self.h.ports = self.peek().copied().map(ports);
            return Err(self.short(Fault::TruncatedTransport));
        };
        let (sport, dport) = ports([udp[0], udp[1], udp[2], udp[3]]);
        self.h.ports = Some((sport, dport));
        let length = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
        if self.h.fragment.is_fragment() {
            self.at += 8; // the length field is that of the whole datagram
            return Ok(());
        }
        match length {
            // In a jumbogram zero means more than 65535 bytes: RFC 2675 section 4.
            0 if self.ip_length_is_zero() => {}
            0..8 => return Err(Fault::BadUdpLength),
            _ if length > self.left() && self.bounded => return Err(Fault::BadUdpLength),
            _ => self.bound(self.at + length),
        }
        self.at += 8;
        self.udp_tunnel(dport)
    }

    /// Whether the IP length field is zero: a jumbogram, or captured before segmentation.
    fn ip_length_is_zero(&self) -> bool {
        let at = self.h.l3 as usize + if self.h.net == Net::Ipv4 { 2 } else { 4 };
        self.bytes.get(at..at + 2) == Some(&[0, 0])
    }

    #[inline(never)]
    fn sctp(&mut self) -> Step {
        self.h.ports = self.peek().copied().map(ports);
        if self.left() < 12 {
            return Err(self.short(Fault::TruncatedTransport));
        }
        self.at += 12;
        Ok(())
    }
}

/// Source and destination port, at the same offsets in all three protocols.
#[inline]
const fn ports(bytes: [u8; 4]) -> (u16, u16) {
    let [a, b, c, d] = bytes;
    (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
}
