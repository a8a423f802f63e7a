//! QUIC by connection ID: what is hashed of a packet in place of its addresses and ports.
//!
//! A client keeps its connection when its address or port changes, and with it the connection ID. Packets with a short
//! header do not say how long the ID is, so servers that use IDs of one length are assumed.

use flowyard_frame::{FlowKey, Frag, proto};
use flowyard_wire::{Headers, quic};

/// The longest connection ID of QUIC version 1, in bytes.
const LONGEST: u8 = 20;
/// The shortest nonce after a server ID: draft-ietf-quic-load-balancers-21, section 5.
const NONCE: u8 = 4;
/// The value of the first three bits of an ID that names no server.
const NO_SERVER: u8 = 7;
/// Ports of UDP whose datagrams are tunnels.
const TUNNELS: [u16; 5] = [2152, 4789, 4790, 6081, 8472];

/// The packets that are hashed by their connection ID, and the hashed part of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quic {
    ports: Vec<u16>,
    id_bytes: u8,
    server_bytes: Option<u8>,
}

/// The reason for which settings are refused; the message includes the fix.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadQuic {
    /// No port, or too many.
    #[error("there are {0} ports of QUIC servers; name 1 to {most}", most = Quic::PORTS_MOST)]
    Ports(usize),
    /// Datagrams to this port are none of QUIC.
    #[error("UDP port {0} cannot be a QUIC server's: it is 0 or that of a tunnel; name another")]
    Port(u16),
    /// The length is impossible.
    #[error("connection IDs of {0} bytes cannot be spread; write 1 to {LONGEST}")]
    Id(u8),
    /// The server ID does not fit.
    #[error(
        "a server ID of {server} bytes does not fit in a connection ID of {id} bytes: one byte is in front of it, and a nonce of at least {NONCE} bytes behind; write 1 to {most}",
        most = id.saturating_sub(NONCE + 1)
    )]
    Server {
        /// Length of the server ID.
        server: u8,
        /// Length of the connection ID.
        id: u8,
    },
}

impl Quic {
    /// The port of HTTP/3 servers.
    pub const PORT: u16 = 443;
    /// The largest number of ports.
    pub const PORTS_MOST: usize = 16;
    /// The length of IDs if nothing else is known: that of the shortest ID in a client's first packet.
    pub const ID_BYTES: u8 = 8;

    /// Packets to these ports. Servers make IDs of `id_bytes`, which is how much of an ID is hashed at most. With
    /// `server_bytes` only the server ID of that length is hashed, which is behind the first byte (QUIC-LB, not
    /// encrypted).
    ///
    /// # Errors
    /// When a value is impossible.
    pub fn new(ports: &[u16], id_bytes: u8, server_bytes: Option<u8>) -> Result<Self, BadQuic> {
        if ports.is_empty() || ports.len() > Self::PORTS_MOST {
            return Err(BadQuic::Ports(ports.len()));
        }
        if let Some(&port) = ports.iter().find(|port| **port == 0 || TUNNELS.contains(port)) {
            return Err(BadQuic::Port(port));
        }
        if id_bytes == 0 || id_bytes > LONGEST {
            return Err(BadQuic::Id(id_bytes));
        }
        match server_bytes {
            Some(server) if server == 0 || server.saturating_add(NONCE) >= id_bytes => {
                Err(BadQuic::Server { server, id: id_bytes })
            }
            _ => Ok(Self { ports: ports.to_vec(), id_bytes, server_bytes }),
        }
    }

    /// The ports of servers.
    #[must_use]
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Length of the servers' IDs.
    #[must_use]
    pub const fn id_bytes(&self) -> u8 {
        self.id_bytes
    }

    /// Length of the server ID, if only that is hashed.
    #[must_use]
    pub const fn server_bytes(&self) -> Option<u8> {
        self.server_bytes
    }

    /// The bytes of the connection ID that are hashed of the packet with these headers; `None` if it is hashed as any
    /// other frame.
    #[must_use]
    pub fn hashed<'a>(
        &self,
        key: &FlowKey,
        headers: &Headers,
        frame: &'a [u8],
    ) -> Option<&'a [u8]> {
        let is_udp = key.is_ip() && key.proto == proto::UDP && key.fragment() == Frag::No;
        // After a wrong length field the payload does not begin behind the header.
        let has_payload = headers.l4 > 0 && headers.payload == headers.l4 + 8;
        if !is_udp || !has_payload || !self.ports.contains(&key.dport) {
            return None;
        }
        self.part(frame.get(headers.payload as usize..headers.end as usize)?)
    }

    /// The hashed bytes in a UDP payload.
    fn part<'a>(&self, packet: &'a [u8]) -> Option<&'a [u8]> {
        let quic::Destination { is_long, bytes } = quic::destination(packet)?;
        let whole = usize::from(self.id_bytes);
        let Some(server) = self.server_bytes else {
            let most = if is_long { whole.min(bytes.len()) } else { whole };
            return bytes.get(..most).filter(|part| !part.is_empty());
        };
        let (first, rest) = bytes.get(..whole)?.split_first()?;
        (first >> 5 != NO_SERVER).then(|| &rest[..usize::from(server)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: [u8; 6] = [0xc0, 0, 0, 0, 1, 0];

    fn long(id: &[u8]) -> Vec<u8> {
        let mut packet = LONG.to_vec();
        packet[5] = id.len() as u8;
        [&packet[..], id, &[0xee; 20]].concat()
    }

    fn short(id: &[u8]) -> Vec<u8> {
        [&[0x40][..], id, &[0xee; 20]].concat()
    }

    #[test]
    fn both_headers_give_the_same_part() {
        let quic = Quic::new(&[443], 8, None).unwrap();
        let id = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(quic.part(&long(&id)), Some(&id[..]));
        assert_eq!(quic.part(&short(&id)), Some(&id[..]));
        // A client's first ID may be longer; a server without IDs has none.
        assert_eq!(quic.part(&long(&[9; 20])), Some(&[9; 8][..]));
        assert_eq!(quic.part(&long(&[9; 3])), Some(&[9; 3][..]));
        assert_eq!(quic.part(&long(&[])), None);
        assert_eq!(quic.part(&[0x40, 1, 2, 3]), None);
    }

    #[test]
    fn server_ids_are_behind_the_first_byte() {
        let quic = Quic::new(&[443], 8, Some(3)).unwrap();
        let id = [0x27, 1, 2, 3, 4, 5, 6, 7];
        assert_eq!(quic.part(&long(&id)), Some(&[1, 2, 3][..]));
        assert_eq!(quic.part(&short(&id)), Some(&[1, 2, 3][..]));
        assert_eq!(quic.part(&short(&[0xe7; 8])), None);
        assert_eq!(quic.part(&long(&id[..7])), None);
    }

    #[test]
    fn impossible_settings_are_refused() {
        let refused = |ports: &[u16], id, server| Quic::new(ports, id, server).unwrap_err();
        assert_eq!(refused(&[], 8, None), BadQuic::Ports(0));
        assert_eq!(refused(&[1; 17], 8, None), BadQuic::Ports(17));
        assert_eq!(refused(&[443, 4789], 8, None), BadQuic::Port(4789));
        assert_eq!(refused(&[443], 21, None), BadQuic::Id(21));
        assert_eq!(refused(&[443], 8, Some(4)), BadQuic::Server { server: 4, id: 8 });
        assert!(refused(&[443], 8, Some(4)).to_string().ends_with("write 1 to 3"));
        assert!(refused(&[443], 0, None).to_string().contains("1 to 20"));
    }
}
