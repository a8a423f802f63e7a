//! NC-SI control frames: what a management controller (BMC) and an adapter say to each other (EtherType 0x88F8).
//!
//! ```text
//!  MC 1 | revision 1 | 0 | instance 1 | type 1 | channel 1 | length 2 (12 bits) | 0 x 8 | payload | pad | checksum 4
//! ```
//!
//! Source: DMTF DSP0222 1.0.1 and 1.1.0 (commands 0x1B, 0x51, 0x52). Types from 0x80 on are responses, 0xFF is a
//! notification (AEN). A checksum of zero is none.

/// EtherType of control frames.
pub const ETHER_TYPE: u16 = 0x88f8;
/// Bytes of the header.
pub const HEADER: usize = 16;
/// The channel number that means the package as a whole.
pub const PACKAGE: u8 = 0x1f;

/// The kind of a control frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A command with this number.
    Command(u8),
    /// The response to the command with this number.
    Response(u8),
    /// A notification (AEN).
    Notification,
}

/// A control frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Control<'a> {
    /// The management controller; 0 on a wire with one.
    pub controller: u8,
    /// The revision of the header; 1.
    pub revision: u8,
    /// The number by which a response belongs to its command; 0 in notifications.
    pub instance: u8,
    /// The kind.
    pub kind: Kind,
    /// The package, 0 to 7.
    pub package: u8,
    /// The channel in the package; [`PACKAGE`] means all.
    pub channel: u8,
    /// The payload. A response begins with its codes; a notification ends with its type.
    pub payload: &'a [u8],
    /// Whether the checksum is right; `None` if there is none.
    pub checksum: Option<bool>,
}

impl<'a> Control<'a> {
    /// The control frame in `bytes`, which follow the EtherType; `None` if they end before the payload does.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
        let len = usize::from(u16::from_be_bytes([header[6], header[7]]) & 0x0fff);
        let payload = rest.get(..len)?;
        let end = HEADER + len.next_multiple_of(4);
        let said = bytes.get(end..).and_then(<[u8]>::first_chunk::<4>);
        let said = said.map(|sum| u32::from_be_bytes(*sum)).filter(|sum| *sum != 0);
        let kind = match header[4] {
            0xff => Kind::Notification,
            number @ 0x80.. => Kind::Response(number & 0x7f),
            number => Kind::Command(number),
        };
        Some(Self {
            controller: header[0],
            revision: header[1],
            instance: header[3],
            kind,
            package: header[5] >> 5,
            channel: header[5] & PACKAGE,
            payload,
            checksum: said.map(|said| said == checksum(&bytes[..end])),
        })
    }

    /// The name of what it says, as `Get Link Status`; `None` for numbers that the standard does not give.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Command(number) | Kind::Response(number) => command(number),
            Kind::Notification => match self.payload.get(3)? {
                0 => Some("Link Status Change"),
                1 => Some("Configuration Required"),
                2 => Some("Host NC Driver Status Change"),
                _ => None,
            },
        }
    }

    /// The codes of a response: response code and reason code.
    #[must_use]
    pub fn codes(&self) -> Option<(u16, u16)> {
        let codes = self.payload.first_chunk::<4>()?;
        let two = |at: usize| u16::from_be_bytes([codes[at], codes[at + 1]]);
        matches!(self.kind, Kind::Response(_)).then(|| (two(0), two(2)))
    }
}

/// The two's complement of the sum of the 16-bit words of header and payload, which is padded to words.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| (*low).into());
    let sum = bytes.chunks(2).fold(0_u32, |sum, pair| sum.wrapping_add(word(pair)));
    sum.wrapping_neg()
}

/// The name of a command.
#[must_use]
pub const fn command(number: u8) -> Option<&'static str> {
    Some(match number {
        0x00 => "Clear Initial State",
        0x01 => "Select Package",
        0x02 => "Deselect Package",
        0x03 => "Enable Channel",
        0x04 => "Disable Channel",
        0x05 => "Reset Channel",
        0x06 => "Enable Channel Network TX",
        0x07 => "Disable Channel Network TX",
        0x08 => "AEN Enable",
        0x09 => "Set Link",
        0x0a => "Get Link Status",
        0x0b => "Set VLAN Filter",
        0x0c => "Enable VLAN",
        0x0d => "Disable VLAN",
        0x0e => "Set MAC Address",
        0x10 => "Enable Broadcast Filtering",
        0x11 => "Disable Broadcast Filtering",
        0x12 => "Enable Global Multicast Filtering",
        0x13 => "Disable Global Multicast Filtering",
        0x14 => "Set NC-SI Flow Control",
        0x15 => "Get Version ID",
        0x16 => "Get Capabilities",
        0x17 => "Get Parameters",
        0x18 => "Get Controller Packet Statistics",
        0x19 => "Get NC-SI Statistics",
        0x1a => "Get NC-SI Pass-through Statistics",
        0x1b => "Get Package Status",
        0x50 => "OEM Command",
        0x51 => "PLDM",
        0x52 => "Get Package UUID",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, channel: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 1, 0, 7, kind, channel, 0, payload.len() as u8];
        bytes.extend([0; 8]);
        bytes.extend(payload);
        bytes.resize(HEADER + payload.len().next_multiple_of(4), 0);
        let sum = checksum(&bytes);
        bytes.extend(sum.to_be_bytes());
        bytes
    }

    #[test]
    fn commands_responses_and_notifications() {
        let bytes = frame(0x0a, 2 << 5 | 5, &[]);
        let command = Control::parse(&bytes).unwrap();
        assert_eq!((command.kind, command.name()), (Kind::Command(0x0a), Some("Get Link Status")));
        assert_eq!((command.package, command.channel, command.instance), (2, 5, 7));
        assert_eq!((command.checksum, command.codes()), (Some(true), None));
        let bytes = frame(0x8e, 0, &[0, 1, 0, 4]);
        let response = Control::parse(&bytes).unwrap();
        assert_eq!((response.name(), response.codes()), (Some("Set MAC Address"), Some((1, 4))));
        let bytes = frame(0xff, PACKAGE, &[0, 0, 0, 1, 9]);
        let notification = Control::parse(&bytes).unwrap();
        assert_eq!(notification.name(), Some("Configuration Required"));
        assert_eq!((notification.payload.len(), notification.checksum), (5, Some(true)));
    }

    /// The sum of all words and the checksum is zero, as DSP0222 8.2.2.3 defines it.
    #[test]
    fn the_checksum_is_the_complement_of_the_words() {
        let bytes = frame(0x09, 0, &[0xff, 0xfe, 0x12]);
        let (words, sum) = bytes.split_at(bytes.len() - 4);
        let words: u32 =
            words.chunks(2).map(|two| u32::from(two[0]) * 256 + u32::from(two[1])).sum();
        assert_eq!(words.wrapping_add(u32::from_be_bytes(sum.try_into().unwrap())), 0);
        let mut wrong = bytes;
        wrong[HEADER] ^= 1;
        assert_eq!(Control::parse(&wrong).unwrap().checksum, Some(false));
        let end = wrong.len() - 4;
        wrong[end..].fill(0);
        assert_eq!(Control::parse(&wrong).unwrap().checksum, None, "zero is no checksum");
    }

    #[test]
    fn cut_frames_are_refused() {
        let bytes = frame(0x8e, 0, &[0, 1, 0, 4]);
        assert!((0..HEADER + 4).all(|len| Control::parse(&bytes[..len]).is_none()));
        assert_eq!(Control::parse(&bytes[..HEADER + 4]).unwrap().checksum, None);
    }
}
