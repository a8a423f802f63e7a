//! Fibre Channel over Ethernet: the FC frame between the FCoE header and its end (EtherType 0x8906).
//!
//! ```text
//!  version 4 | reserved 100 | SOF | FC header 24 | [optional headers] | payload | fill 0-3 | CRC 4 | EOF | reserved 3
//!                                   └────────────── CRC ─────────────────────────────────┘
//! ```
//!
//! Sources: FC-BB-5 (encapsulation), FC-FS-3 (header), RFC 3643 (codes of SOF and EOF). The CRC has the polynomial of
//! Ethernet's frame check sequence, and is written with its low byte first, as Linux writes it (`fcoe_xmit`).

/// EtherType of FCoE.
pub const ETHER_TYPE: u16 = 0x8906;
/// EtherType of the FCoE initialization protocol (FIP).
pub const FIP: u16 = 0x8914;
/// Bytes of the FCoE header: version, reserved, SOF.
pub const FCOE_HEADER: usize = 14;
/// Bytes of the FC header.
pub const HEADER: usize = 24;
/// Bytes after the payload: CRC, EOF, reserved.
pub const TRAILER: usize = 8;

/// Start of frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of FC-FS")]
pub enum Sof {
    F,
    I4,
    I2,
    I3,
    N4,
    N2,
    N3,
    C4,
}

impl Sof {
    /// The codes of RFC 3643.
    pub const ALL: [(u8, Self); 8] = [
        (0x28, Self::F),
        (0x29, Self::I4),
        (0x2d, Self::I2),
        (0x2e, Self::I3),
        (0x31, Self::N4),
        (0x35, Self::N2),
        (0x36, Self::N3),
        (0x39, Self::C4),
    ];

    /// The start with this code.
    #[must_use]
    pub fn of(code: u8) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == code).map(|(_, sof)| *sof)
    }

    /// Its code.
    #[must_use]
    pub fn code(self) -> u8 {
        Self::ALL.iter().find(|(_, sof)| *sof == self).map_or(0, |(code, _)| *code)
    }

    /// Whether it starts a sequence.
    #[must_use]
    pub const fn is_first(self) -> bool {
        matches!(self, Self::I2 | Self::I3 | Self::I4)
    }
}

/// End of frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of FC-FS")]
pub enum Eof {
    N,
    T,
    Rt,
    Dt,
    Ni,
    Dti,
    Rti,
    A,
}

impl Eof {
    /// The codes of RFC 3643.
    pub const ALL: [(u8, Self); 8] = [
        (0x41, Self::N),
        (0x42, Self::T),
        (0x44, Self::Rt),
        (0x46, Self::Dt),
        (0x49, Self::Ni),
        (0x4e, Self::Dti),
        (0x4f, Self::Rti),
        (0x50, Self::A),
    ];

    /// The end with this code.
    #[must_use]
    pub fn of(code: u8) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == code).map(|(_, eof)| *eof)
    }

    /// Its code.
    #[must_use]
    pub fn code(self) -> u8 {
        Self::ALL.iter().find(|(_, eof)| *eof == self).map_or(0, |(code, _)| *code)
    }
}

/// The FC header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FcHeader {
    /// Routing control: routing in the high four bits, information in the low ones.
    pub r_ctl: u8,
    /// Destination, 24 bits.
    pub d_id: u32,
    /// Class-specific control.
    pub cs_ctl: u8,
    /// Source, 24 bits.
    pub s_id: u32,
    /// Type: 0x08 is FCP (SCSI).
    pub kind: u8,
    /// Frame control, 24 bits; see the constants.
    pub f_ctl: u32,
    /// Sequence.
    pub seq_id: u8,
    /// Data field control: which optional headers follow.
    pub df_ctl: u8,
    /// The frame's number in the sequence or exchange.
    pub seq_cnt: u16,
    /// The originator's number of the exchange.
    pub ox_id: u16,
    /// The responder's number of the exchange.
    pub rx_id: u16,
    /// Parameter: the offset of the payload, if F_CTL has [`FcHeader::OFFSET`].
    pub param: u32,
}

impl FcHeader {
    /// F_CTL: the frame is from the responder of the exchange.
    pub const RESPONDER: u32 = 1 << 23;
    /// F_CTL: last sequence of the exchange.
    pub const LAST_SEQUENCE: u32 = 1 << 20;
    /// F_CTL: last frame of the sequence.
    pub const END_SEQUENCE: u32 = 1 << 19;
    /// F_CTL: the receiver may send next.
    pub const INITIATIVE: u32 = 1 << 16;
    /// F_CTL: what to continue with; its two bits.
    pub const CONTINUE: u32 = 3 << 6;
    /// F_CTL: the abort sequence condition; its two bits.
    pub const ABORT: u32 = 3 << 4;
    /// F_CTL: the parameter is the offset of the payload.
    pub const OFFSET: u32 = 1 << 3;
    /// F_CTL: number of fill bytes.
    pub const FILL: u32 = 3;
    /// DF_CTL: an ESP header follows.
    pub const ESP: u8 = 0x40;

    /// The header in `bytes`; `None` if they end before it does.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<HEADER>()?;
        let three = |at: usize| u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]]);
        let two = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        Some(Self {
            r_ctl: bytes[0],
            d_id: three(1),
            cs_ctl: bytes[4],
            s_id: three(5),
            kind: bytes[8],
            f_ctl: three(9),
            seq_id: bytes[12],
            df_ctl: bytes[13],
            seq_cnt: two(14),
            ox_id: two(16),
            rx_id: two(18),
            param: u32::from_be_bytes([bytes[20], bytes[21], bytes[22], bytes[23]]),
        })
    }

    /// The header as bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = self.r_ctl;
        bytes[1..4].copy_from_slice(&self.d_id.to_be_bytes()[1..]);
        bytes[4] = self.cs_ctl;
        bytes[5..8].copy_from_slice(&self.s_id.to_be_bytes()[1..]);
        bytes[8] = self.kind;
        bytes[9..12].copy_from_slice(&self.f_ctl.to_be_bytes()[1..]);
        bytes[12] = self.seq_id;
        bytes[13] = self.df_ctl;
        bytes[14..16].copy_from_slice(&self.seq_cnt.to_be_bytes());
        bytes[16..18].copy_from_slice(&self.ox_id.to_be_bytes());
        bytes[18..20].copy_from_slice(&self.rx_id.to_be_bytes());
        bytes[20..].copy_from_slice(&self.param.to_be_bytes());
        bytes
    }

    /// Whether the frame has the data of a SCSI command (R_CTL: device data, solicited data).
    #[must_use]
    pub const fn is_data(&self) -> bool {
        self.r_ctl == 0x01
    }

    /// Whether the frame has the status of a SCSI command (R_CTL: device data, command status).
    #[must_use]
    pub const fn is_status(&self) -> bool {
        self.r_ctl == 0x07
    }

    /// The number of the exchange that a receiver looks up: its own. The responder's frames go to the originator.
    #[must_use]
    pub const fn exchange(&self) -> u16 {
        if self.f_ctl & Self::RESPONDER != 0 { self.ox_id } else { self.rx_id }
    }

    /// The length of the optional headers that DF_CTL names, without ESP, whose length it does not say.
    #[must_use]
    pub const fn optional(&self) -> usize {
        let network = if self.df_ctl & 0x20 != 0 { 16 } else { 0 };
        let association = if self.df_ctl & 0x10 != 0 { 32 } else { 0 };
        let device = match self.df_ctl & 3 {
            0 => 0,
            bits => 8 << bits,
        };
        network + association + device
    }
}

/// An FC frame in FCoE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FcFrame<'a> {
    /// The version of FCoE; 0 is the only one that exists.
    pub version: u8,
    /// The code of the start of frame; [`Sof::of`].
    pub sof: u8,
    /// The header.
    pub header: FcHeader,
    /// Payload without optional headers and fill bytes.
    pub payload: &'a [u8],
    /// The CRC that the frame has.
    pub crc: u32,
    /// The code of the end of frame; [`Eof::of`].
    pub eof: u8,
    /// Header, payload and fill: what the CRC covers.
    covered: &'a [u8],
}

impl<'a> FcFrame<'a> {
    /// The FC frame in `bytes`, which follow the EtherType and end with the frame. `None` if they are too short for
    /// their headers and fill bytes. FCoE has no length, so bytes after the frame would be taken for its end: an Ethernet frame
    /// with FCoE is never padded.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (fcoe, rest) = bytes.split_first_chunk::<FCOE_HEADER>()?;
        let (covered, trailer) = rest.split_last_chunk::<TRAILER>()?;
        let header = FcHeader::read(covered)?;
        let fill = (header.f_ctl & FcHeader::FILL) as usize;
        let from = HEADER + header.optional();
        let payload = covered.get(from..covered.len().checked_sub(fill)?)?;
        let [c0, c1, c2, c3, eof, ..] = *trailer;
        Some(Self {
            version: fcoe[0] >> 4,
            sof: fcoe[FCOE_HEADER - 1],
            header,
            payload,
            crc: u32::from_le_bytes([c0, c1, c2, c3]),
            eof,
            covered,
        })
    }

    /// Whether the CRC is that of the frame.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.crc == crc(&[self.covered])
    }
}

/// The CRC of an FC frame over its header, payload and fill bytes, given in pieces.
#[must_use]
pub fn crc(pieces: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    pieces.iter().for_each(|piece| hasher.update(piece));
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> FcHeader {
        FcHeader {
            r_ctl: 1,
            d_id: 0x0a_0b0c,
            cs_ctl: 2,
            s_id: 0x01_0203,
            kind: 8,
            f_ctl: FcHeader::RESPONDER | FcHeader::OFFSET | 2,
            seq_id: 9,
            df_ctl: 0,
            seq_cnt: 0x0102,
            ox_id: 0x0304,
            rx_id: 0xffff,
            param: 0x0506_0708,
        }
    }

    fn frame() -> Vec<u8> {
        let mut fcoe = [0; FCOE_HEADER];
        fcoe[13] = Sof::N3.code();
        let body = [&header().bytes()[..], b"sixteen bytes dat", &[0; 2]].concat();
        let crc = crc(&[&body]).to_le_bytes();
        [&fcoe[..], &body, &crc, &[Eof::T.code(), 0, 0, 0]].concat()
    }

    #[test]
    fn a_frame_is_read() {
        let bytes = frame();
        let frame = FcFrame::parse(&bytes).unwrap();
        assert_eq!((frame.header, frame.payload), (header(), &b"sixteen bytes dat"[..]));
        assert_eq!((Sof::of(frame.sof), Eof::of(frame.eof)), (Some(Sof::N3), Some(Eof::T)));
        assert!(frame.is_intact() && frame.version == 0);
        assert_eq!(
            frame.header.exchange(),
            0x0304,
            "a responder's frame belongs to the originator's number"
        );
    }

    #[test]
    fn each_changed_bit_breaks_the_crc() {
        let good = frame();
        for at in FCOE_HEADER..good.len() - 4 {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(!FcFrame::parse(&bad).is_some_and(|frame| frame.is_intact()), "{at}.{bit}");
            }
        }
    }

    #[test]
    fn cut_frames_are_refused() {
        let whole = frame();
        assert!(
            (0..FCOE_HEADER + HEADER + TRAILER).all(|len| FcFrame::parse(&whole[..len]).is_none())
        );
    }

    #[test]
    fn optional_headers_are_no_payload() {
        let of = |df_ctl| FcHeader { df_ctl, ..header() }.optional();
        assert_eq!([0, 1, 2, 3, 0x20, 0x31].map(of), [0, 16, 32, 64, 16, 64]);
        let mut bytes = frame();
        bytes[FCOE_HEADER + 13] = 1;
        assert_eq!(FcFrame::parse(&bytes).unwrap().payload, b"t");
        bytes[FCOE_HEADER + 13] = 0x10;
        assert_eq!(FcFrame::parse(&bytes), None, "no room for the header");
    }

    #[test]
    fn codes_are_those_of_rfc_3643() {
        assert_eq!((Sof::I3.code(), Sof::N3.code()), (0x2e, 0x36));
        assert_eq!((Eof::N.code(), Eof::T.code(), Eof::A.code()), (0x41, 0x42, 0x50));
        assert!(Sof::ALL.iter().all(|(code, sof)| Sof::of(*code) == Some(*sof)));
        assert_eq!((Sof::of(0), Eof::of(0)), (None, None));
    }
}
