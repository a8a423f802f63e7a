use flowyard_wire::fc;
use proptest::prelude::*;

use super::*;

/// The link header of the test's frames: Ethernet with a VLAN tag.
const LINK: [u8; 18] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0, 3, 0x89, 0x06];

/// Data of a target for read exchange `ox_id`.
fn read_data(ox_id: u16) -> FcHeader {
    FcHeader {
        r_ctl: 1,
        kind: 8,
        f_ctl: FcHeader::RESPONDER | FcHeader::END_SEQUENCE | FcHeader::OFFSET,
        seq_id: 3,
        ox_id,
        rx_id: 0xffff,
        ..FcHeader::default()
    }
}

fn cut(header: FcHeader, payload: &[u8], mss: usize) -> Vec<Vec<u8>> {
    segment(&Sequence {
        link: &LINK,
        header,
        payload,
        mss,
        starts: true,
        ends: true,
        eof: Eof::T,
        counts_param: true,
    })
    .unwrap()
}

/// A frame of the segmentation, parsed.
fn parsed(frame: &[u8]) -> FcFrame<'_> {
    FcFrame::parse(&frame[LINK.len()..]).expect("a whole frame")
}

fn status(ox_id: u16) -> Vec<u8> {
    let header = FcHeader { r_ctl: 7, ..read_data(ox_id) };
    cut(header, &[0; 24], 2112).remove(0)
}

/// Bytes that tell their place.
fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

#[test]
fn a_sequence_is_cut_into_frames() {
    let data = payload(2112 * 2 + 5);
    let frames = cut(FcHeader { seq_cnt: 65_535, param: 100, ..read_data(7) }, &data, 2112);
    let frames: Vec<_> = frames.iter().map(|frame| parsed(frame)).collect();
    assert!(frames.iter().all(FcFrame::is_intact));
    assert_eq!(frames.iter().map(|f| f.header.seq_cnt).collect::<Vec<_>>(), [65_535, 0, 1]);
    assert_eq!(frames.iter().map(|f| f.header.param).collect::<Vec<_>>(), [100, 2212, 4324]);
    let marks =
        frames.iter().map(|f| (Sof::of(f.sof), Eof::of(f.eof), f.header.f_ctl & FcHeader::FILL));
    let wanted = [(Sof::I3, Eof::N, 0), (Sof::N3, Eof::N, 0), (Sof::N3, Eof::T, 3)];
    assert_eq!(
        marks.collect::<Vec<_>>(),
        wanted.map(|(sof, eof, fill)| (Some(sof), Some(eof), fill))
    );
    let ends: Vec<_> =
        frames.iter().map(|f| f.header.f_ctl & FcHeader::END_SEQUENCE != 0).collect();
    assert_eq!(ends, [false, false, true]);
}

#[test]
fn what_cannot_be_cut_is_refused() {
    let with = |mss, df_ctl, len: usize| {
        let header = FcHeader { df_ctl, ..read_data(1) };
        let data = payload(len);
        segment(&Sequence {
            link: &LINK,
            header,
            payload: &data,
            mss,
            starts: true,
            ends: true,
            eof: Eof::T,
            counts_param: false,
        })
        .map(|frames| frames.len())
    };
    assert_eq!([with(0, 0, 8), with(6, 0, 8), with(2116, 0, 8)].map(|r| r.is_err()), [true; 3]);
    assert_eq!(with(4, FcHeader::ESP, 8), Err(TooLong::Esp));
    assert_eq!((with(8, FcHeader::ESP, 8), with(8, 0, 0)), (Ok(1), Ok(1)));
}

#[test]
fn a_read_is_placed_and_its_status_ends_it() {
    let mut ddp = Ddp::new(E82599);
    ddp.set_up(5, false, 10_000, 4096, 100).unwrap();
    assert_eq!(ddp.set_up(5, false, 1, 4096, 0), Err(Refused::InUse(5)));
    let data = payload(10_000);
    for frame in cut(read_data(5), &data, 2048) {
        let frame = parsed(&frame);
        let placed = ddp.receive(&frame);
        assert_eq!(
            placed,
            Placed::Payload { bytes: frame.payload.len() as u32, header: false, ended: false }
        );
    }
    assert_eq!(ddp.receive(&parsed(&status(5))), Placed::Status { placed: 10_000 });
    assert!(!ddp.has(5));
    assert_eq!(ddp.receive(&parsed(&status(5))), Placed::Whole(NotPlaced::NoContext));
}

/// Section 7.11.3.3.11: the last frame of a write has the sequence initiative, ends the context, and leaves its header.
#[test]
fn a_write_ends_with_the_initiative() {
    let mut ddp = Ddp::new(E82599);
    ddp.set_up(9, true, 4096, 4096, 0).unwrap();
    let f_ctl = FcHeader::END_SEQUENCE | FcHeader::INITIATIVE | FcHeader::OFFSET;
    let header = FcHeader { f_ctl, rx_id: 9, ox_id: 77, ..read_data(0) };
    let data = payload(4096);
    let frames = cut(header, &data, 2048);
    let placed: Vec<_> = frames.iter().map(|frame| ddp.receive(&parsed(frame))).collect();
    assert_eq!(placed[0], Placed::Payload { bytes: 2048, header: false, ended: false });
    assert_eq!(placed[1], Placed::Payload { bytes: 2048, header: true, ended: true });
    assert!(!ddp.has(9));
}

/// The second of three frames of exchange 5 with `change` applied to its parsed form.
fn second(change: impl Fn(&mut FcFrame<'_>)) -> (Placed, Placed) {
    let mut ddp = Ddp::new(E82599);
    ddp.set_up(5, false, 5000, 4096, 0).unwrap();
    let data = payload(5000);
    let frames = cut(read_data(5), &data, 2048);
    ddp.receive(&parsed(&frames[0]));
    // The changed header needs a CRC of its own.
    let mut changed = parsed(&frames[1]);
    let was = changed;
    change(&mut changed);
    let mut bytes = frames[1].clone();
    let at = LINK.len();
    bytes[at] = changed.version << 4;
    bytes[at + 13] = changed.sof;
    bytes[at + 14..at + 38].copy_from_slice(&changed.header.bytes());
    let end = bytes.len() - fc::TRAILER;
    let crc = fc::crc(&[&bytes[at + 14..end]]);
    let crc = if changed.crc == was.crc { crc } else { changed.crc };
    bytes[end..end + 4].copy_from_slice(&crc.to_le_bytes());
    bytes[end + 4] = changed.eof;
    let placed = ddp.receive(&parsed(&bytes));
    (placed, ddp.receive(&parsed(&frames[2])))
}

/// Table 7-86, each exception of a frame in the middle of a read: what becomes of it and of the next good frame.
#[test]
fn exceptions_have_the_codes_of_the_table() {
    let good = |bytes| Placed::Payload { bytes, header: false, ended: false };
    let error = Placed::Error;
    assert_eq!(second(|_| {}), (good(2048), good(904)), "nothing changed");
    let (ooo, none) = (error(Fcerr::OutOfOrder), Placed::Whole(NotPlaced::NoContext));
    assert_eq!(
        second(|frame| frame.crc ^= 1),
        (error(Fcerr::BadCrc), ooo),
        "the gap is out of order"
    );
    assert_eq!(second(|frame| frame.version = 1), (ooo, ooo), "the context is left intact");
    assert_eq!(second(|frame| frame.header.seq_cnt = 2), (ooo, none), "the filter is invalid");
    assert_eq!(second(|frame| frame.header.param = 0), (ooo, none));
    assert_eq!(second(|frame| frame.sof = Sof::I3.code()), (ooo, none), "SOFi with the old SEQ_ID");
    let marks = error(Fcerr::EofSof);
    assert_eq!(second(|frame| frame.eof = Eof::A.code()), (marks, none));
    assert_eq!(second(|frame| frame.eof = Eof::Ni.code()), (marks, none));
    assert_eq!(second(|frame| frame.eof = 0), (marks, none));
    assert_eq!(second(|frame| frame.sof = 0), (marks, none));
    assert_eq!(
        second(|frame| frame.header.f_ctl |= 1 << 4),
        (marks, none),
        "abort sequence condition"
    );
    let esp = |frame: &mut FcFrame<'_>| frame.header.df_ctl = FcHeader::ESP;
    assert_eq!(second(esp), (Placed::Whole(NotPlaced::Esp), none));
    let gap = Placed::Whole(NotPlaced::UnexpectedEofSof);
    assert_eq!(second(|frame| frame.header.seq_id = 4), (gap, gap), "a new sequence without SOFi");
    let end = |frame: &mut FcFrame<'_>| frame.header.f_ctl |= FcHeader::END_SEQUENCE;
    assert_eq!(second(end), (gap, gap), "the end of a sequence without EOFt");
}

#[test]
fn full_buffers_and_lost_frames() {
    let mut ddp = Ddp::new(E82599);
    ddp.set_up(5, false, 3000, 4096, 0).unwrap();
    let data = payload(5000);
    let frames = cut(read_data(5), &data, 2048);
    assert!(matches!(ddp.receive(&parsed(&frames[0])), Placed::Payload { .. }));
    assert_eq!(ddp.receive(&parsed(&frames[1])), Placed::Error(Fcerr::NoDma));
    assert_eq!(ddp.end(5), Some(2048));
    ddp.set_up(5, false, 5000, 4096, 0).unwrap();
    ddp.lost(5);
    assert_eq!(ddp.receive(&parsed(&frames[0])), Placed::Error(Fcerr::PacketLost));
}

/// `ixgbe_fcoe_ddp_setup`: 512 exchanges, 256 buffers.
#[test]
fn contexts_have_the_limits_of_the_driver() {
    let mut ddp = Ddp::new(E82599);
    assert!(ddp.set_up(511, false, 1 << 20, 4096, 0).is_ok());
    assert_eq!(ddp.set_up(512, false, 1, 4096, 0), Err(Refused::Number(512, 512)));
    assert_eq!(ddp.set_up(1, false, 1 << 20, 4096, 1), Err(Refused::Buffers(257, 256)));
    assert!(Ddp::new(X550).set_up(2047, false, 1 << 22, 4096, 0).is_ok());
}

#[test]
fn the_redirection_table_spreads_by_ox_id() {
    let table = table_of_ixgbe(E82599, 8, 3);
    assert_eq!(table, [8, 9, 10, 8, 9, 10, 8, 9]);
    assert_eq!((redirected(&table, 0x123a), redirected(&[], 5)), (10, 0));
}

proptest! {
    /// Whatever is cut is put together again by direct placement, byte by byte.
    #[test]
    fn placement_gives_back_what_was_cut(len in 1_usize..20_000, fours in 1_usize..528, ox_id in 0_u16..512) {
        let data = payload(len);
        let mut ddp = Ddp::new(E82599);
        ddp.set_up(ox_id, false, len as u64, 4096, 0).unwrap();
        let mut found = Vec::new();
        for frame in cut(read_data(ox_id), &data, fours * 4) {
            let frame = parsed(&frame);
            prop_assert!(frame.is_intact());
            let is_placed = matches!(ddp.receive(&frame), Placed::Payload { .. });
            prop_assert!(is_placed, "{:?}", frame.header);
            found.extend_from_slice(frame.payload);
        }
        prop_assert_eq!(found, data);
        prop_assert_eq!(ddp.end(ox_id), Some(len as u64));
    }

    /// With frames lost, repeated or swapped, what was placed is a beginning of the data.
    #[test]
    fn faults_leave_a_prefix(order in proptest::collection::vec(0_usize..12, 1..20)) {
        let data = payload(12 * 512);
        let frames = cut(read_data(1), &data, 512);
        let mut ddp = Ddp::new(E82599);
        ddp.set_up(1, false, data.len() as u64, 4096, 0).unwrap();
        let mut found = Vec::new();
        for at in order {
            let frame = parsed(&frames[at]);
            if let Placed::Payload { .. } = ddp.receive(&frame) {
                found.extend_from_slice(frame.payload);
            }
        }
        prop_assert!(data.starts_with(&found));
    }
}
