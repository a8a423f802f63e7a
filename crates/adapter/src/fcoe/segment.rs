//! Segmentation of an FC sequence on transmission (X550 333369-009, section 7.11.2): one header and one payload become frames.

use flowyard_wire::fc::{self, Eof, FcHeader, Sof};

/// A sequence to send: what the driver gives the adapter in one context descriptor and its buffers.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    /// Bytes in front of the FCoE header: Ethernet, VLAN, EtherType.
    pub link: &'a [u8],
    /// The header; of the first frame SEQ_CNT and PARAM, of the last one the bits of F_CTL that end a sequence.
    pub header: FcHeader,
    /// The payload of all frames.
    pub payload: &'a [u8],
    /// The payload of each frame but the last: a multiple of four, at most 2112.
    pub mss: usize,
    /// ORIS: the first frame starts the sequence (SOFi), else it goes on (SOFn).
    pub starts: bool,
    /// ORIE: the last frame ends the sequence.
    pub ends: bool,
    /// The end of the last frame, if it ends the sequence.
    pub eof: Eof,
    /// PARINC: the parameter grows by the payload.
    pub counts_param: bool,
}

/// A sequence that the adapter cannot cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TooLong {
    /// The frame size is no multiple of four, zero, or above what FC allows.
    #[error("a frame has 4 to 2112 bytes of payload, in fours, not {0}; choose another size")]
    FrameSize(usize),
    /// Frames with an ESP header are not cut.
    #[error(
        "a sequence with an ESP header must fit in one frame; send it unencrypted or in frames"
    )]
    Esp,
}

/// The largest payload of an FC frame.
const MOST: usize = 2112;

/// The frames of `sequence`, in order.
///
/// # Errors
/// If its frame size is wrong, or it cannot be cut.
pub fn segment(sequence: &Sequence<'_>) -> Result<Vec<Vec<u8>>, TooLong> {
    let Sequence { header, payload, mss, .. } = *sequence;
    if mss == 0 || mss % 4 != 0 || mss > MOST {
        return Err(TooLong::FrameSize(mss));
    }
    let frames = payload.len().div_ceil(mss).max(1);
    if frames > 1 && header.df_ctl & FcHeader::ESP != 0 {
        return Err(TooLong::Esp);
    }
    Ok((0..frames).map(|number| frame(sequence, number, number + 1 == frames)).collect())
}

fn frame(sequence: &Sequence<'_>, number: usize, is_last: bool) -> Vec<u8> {
    let from = number * sequence.mss;
    let to = sequence.payload.len().min(from + sequence.mss);
    let payload = &sequence.payload[from..to];
    let fill = payload.len().next_multiple_of(4) - payload.len();
    let ends = is_last && sequence.ends;
    let mut header = sequence.header;
    // Table 7-79: bits that only the last frame has. Fill bytes are those of the last frame, also without ORIE.
    let of_last = FcHeader::CONTINUE | FcHeader::INITIATIVE | FcHeader::END_SEQUENCE;
    header.f_ctl &= !FcHeader::FILL;
    header.f_ctl |= fill as u32;
    if !ends {
        header.f_ctl &= !of_last;
    }
    // Table 7-80: optional headers are only in the first frame, whose payload has them.
    if number > 0 || !sequence.starts {
        header.df_ctl &= !0x33;
    }
    header.seq_cnt = header.seq_cnt.wrapping_add(number as u16);
    if sequence.counts_param {
        header.param = header.param.wrapping_add((number * sequence.mss) as u32);
    }
    let sof = if number == 0 && sequence.starts { Sof::I3 } else { Sof::N3 };
    let eof = if ends { sequence.eof } else { Eof::N };
    let mut fcoe = [0; fc::FCOE_HEADER];
    fcoe[fc::FCOE_HEADER - 1] = sof.code();
    let (header, padding) = (header.bytes(), &[0; 3][..fill]);
    let crc = fc::crc(&[&header, payload, padding]).to_le_bytes();
    let trailer = [eof.code(), 0, 0, 0];
    [sequence.link, &fcoe, &header, payload, padding, &crc, &trailer].concat()
}
