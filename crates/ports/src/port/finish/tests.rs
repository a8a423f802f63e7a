//! A batch of finished and unfinished frames through ports that take all, some or none of it.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use flowyard_frame::{Rng, proto};
use flowyard_testkit::Build;
use flowyard_wire::{Headers, LinkType, Verdict};

use super::*;

/// What a port has transmitted.
type Sent = Arc<Mutex<Vec<Vec<u8>>>>;

/// A port that takes a random number of frames each time, and swaps the handles of some.
struct Uneven {
    rng: Rng,
    sent: Sent,
    /// Refuses every frame with this byte at its end.
    refuses: Option<u8>,
}

impl Tx for Uneven {
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, _now: Nanos) -> Lanes {
        let mut left = lanes;
        for lane in lanes {
            if self.rng.below(6) == 0 {
                return left;
            }
            let bytes = pool.bytes(&from.frames[lane]).to_vec();
            if self.refuses.is_some_and(|last| bytes.last() == Some(&last)) {
                refuse(from, lane, DropReason::PortDown);
            } else {
                self.sent.lock().unwrap().push(bytes);
            }
            left = left.without(Lanes(1 << lane));
        }
        left
    }
}

fn frame(tcp: bool, v6: bool, payload: &[u8], sport: u16) -> Vec<u8> {
    let ip = |n: u8| -> IpAddr { if v6 { [n; 16].into() } else { [10, 0, 0, n].into() } };
    let proto = if tcp { proto::TCP } else { proto::UDP };
    Build::new(&FlowKey::five_tuple(proto, ip(1), sport, ip(2), 80)).payload(payload).bytes()
}

/// The frame as a sender leaves it to its adapter.
fn unfinished(bytes: &mut [u8], size: u16) -> Offload {
    let found = Headers::parse(LinkType::Ethernet, bytes);
    let tcp = found.proto == proto::TCP;
    let (l4, at) = (found.l4 as usize, if tcp { 16 } else { 6 });
    bytes[l4 + at..l4 + at + 2].fill(0);
    let (src, dst) = (found.src_ip(bytes).unwrap(), found.dst_ip(bytes).unwrap());
    // Over no bytes but the pseudo header, which has the length of all.
    let whole = flowyard_wire::checksum::transport_checksum(src, dst, found.proto, &bytes[l4..]);
    let rest = flowyard_wire::checksum::Sum::ZERO.bytes(&bytes[l4..]);
    let pseudo =
        flowyard_wire::checksum::Sum::ZERO.word(u64::from(!whole)).word(u64::from(rest.finish()));
    bytes[l4 + at..l4 + at + 2].copy_from_slice(&(!pseudo.finish()).to_be_bytes());
    let kind = match (tcp, found.net) {
        (true, flowyard_wire::Net::Ipv4) => 1,
        (true, _) => 4,
        _ => 5,
    };
    let mut header = [0; Offload::VIRTIO_LEN];
    header[0] = 1;
    header[1] = if size > 0 { kind } else { 0 };
    header[4..6].copy_from_slice(&size.to_le_bytes());
    header[6..8].copy_from_slice(&(l4 as u16).to_le_bytes());
    header[8] = at as u8;
    Offload::from_virtio(&header, bytes).unwrap()
}

/// Whatever the port takes at a time, it transmits every byte of every payload in order, in frames with good checksums.
#[test]
fn what_leaves_is_finished_complete_and_in_order() {
    let mut rng = Rng::new(67);
    for round in 0..300 {
        let mut pool = Pool::new(400, 2000).with_large(40).unwrap();
        let sent = Sent::default();
        let inner = Uneven { rng: Rng::new(round), sent: Arc::clone(&sent), refuses: None };
        let carries = Carries::new(round % 3 == 1, false, false);
        let mut port = Finish::new(Box::new(inner), carries, pool.share());
        let (mut batch, mut wanted, mut cut) = (Batch::default(), Vec::new(), 0);
        for n in 0..rng.below(12) as u16 {
            let size = [0, 700, 1400][rng.below(3) as usize];
            let len = if size == 0 { rng.below(1400) } else { 1 + rng.below(40_000) } as usize;
            let payload: Vec<u8> = (0..len).map(|at| (at * 7 + usize::from(n)) as u8).collect();
            let mut bytes = frame(size > 0 || rng.below(2) == 0, rng.below(2) == 0, &payload, n);
            let is_left = size > 0 || rng.below(2) == 0;
            let offload = if is_left { unfinished(&mut bytes, size) } else { Offload::NONE };
            cut += u64::from(offload.segment != Segment::None);
            let frame = pool.copy(&bytes, Meta { offload, ..Meta::default() }).unwrap();
            let lane = batch.push(frame, FlowKey::ZERO).unwrap();
            batch.actions[lane].to = To::Port(1);
            wanted.push((n, payload));
        }
        let mut left = batch.lanes();
        for _ in 0..10_000 {
            let before = left;
            left = port.tx(&mut batch, left, &pool, 0);
            assert!(left.without(before).is_empty() && before.0 & !left.0 & left.0 == 0);
            assert!(
                before.without(left).0 < 1 << left.0.trailing_zeros().min(31),
                "a tail is left"
            );
            if left.is_empty() {
                break;
            }
        }
        assert!(left.is_empty(), "round {round}");
        let mut got: Vec<(u16, Vec<u8>)> = Vec::new();
        for bytes in sent.lock().unwrap().iter() {
            assert!(bytes.len() <= 1500 + 14, "{} bytes", bytes.len());
            let found = Headers::parse(LinkType::Ethernet, bytes);
            if !carries.csum() {
                assert_eq!(found.transport_checksum(bytes), Verdict::Good, "round {round}");
            }
            let (number, payload) = (
                u16::from_be_bytes(bytes[found.l4 as usize..][..2].try_into().unwrap()),
                &bytes[found.payload as usize..found.end as usize],
            );
            match got.last_mut() {
                Some((last, all)) if *last == number => all.extend_from_slice(payload),
                _ => got.push((number, payload.to_vec())),
            }
        }
        assert_eq!(got, wanted, "round {round}");
        assert_eq!(port.finished().frames, cut);
        pool.put_batch(&mut batch);
        drop(port);
        assert_eq!(pool.held(), 0);
    }
}

/// The checksum of SCTP is a CRC of four bytes.
#[test]
fn a_checksum_of_sctp_is_completed() {
    let mut pool = Pool::new(4, 2000);
    let sent = Sent::default();
    let inner = Uneven { rng: Rng::new(1), sent: Arc::clone(&sent), refuses: None };
    let mut port = Finish::new(Box::new(inner), Carries::NONE, pool.share());
    let ends = [1, 2].map(|n| IpAddr::from([10, 0, 0, n]));
    let key = FlowKey::five_tuple(proto::SCTP, ends[0], 7, ends[1], 80);
    let whole = Build::new(&key).payload(&[5; 90]).bytes();
    let mut bytes = whole.clone();
    bytes[34 + 8..34 + 12].fill(0);
    let (flags, checksum_start, checksum_offset) = (Offload::PARTIAL, 34, 8);
    let offload = Offload { flags, checksum_start, checksum_offset, ..Offload::NONE };
    let mut batch = Batch::default();
    batch.push(pool.copy(&bytes, Meta { offload, ..Meta::default() }).unwrap(), key).unwrap();
    batch.actions[0].to = To::Port(1);
    let mut left = batch.lanes();
    while !left.is_empty() {
        left = port.tx(&mut batch, left, &pool, 0);
    }
    let verdict = Headers::parse(LinkType::Ethernet, &whole).transport_checksum(&whole);
    assert_eq!((verdict, port.finished().checksums), (Verdict::Good, 1));
    assert_eq!(*sent.lock().unwrap(), [whole]);
    pool.put_batch(&mut batch);
}

/// A frame of which a segment is refused counts as one drop, and no segment follows.
#[test]
fn a_refused_segment_refuses_its_frame() {
    let mut pool = Pool::new(100, 2000).with_large(4).unwrap();
    let sent = Sent::default();
    let inner = Uneven { rng: Rng::new(1), sent: Arc::clone(&sent), refuses: Some(9) };
    let mut port = Finish::new(Box::new(inner), Carries::NONE, pool.share());
    let mut payload = vec![1; 4200];
    payload[2799] = 9; // the end of the second of three segments
    let mut bytes = frame(true, false, &payload, 7);
    let offload = unfinished(&mut bytes, 1400);
    let mut batch = Batch::default();
    batch
        .push(pool.copy(&bytes, Meta { offload, ..Meta::default() }).unwrap(), FlowKey::ZERO)
        .unwrap();
    batch.actions[0].to = To::Port(1);
    let mut left = batch.lanes();
    while !left.is_empty() {
        left = port.tx(&mut batch, left, &pool, 0);
    }
    assert_eq!(batch.actions[0].to, To::Drop(DropReason::PortDown.code()));
    assert!((1..=2).contains(&sent.lock().unwrap().len()));
    pool.put_batch(&mut batch);
    drop(port);
    assert_eq!(pool.held(), 0);
}

/// Frames that wait for buffers which they hold themselves do not wait for ever, and those behind them leave in order.
#[test]
fn a_frame_without_buffers_for_its_segments_is_refused_after_a_while() {
    let mut pool = Pool::new(300, 2000).with_large(2).unwrap();
    let sent = Sent::default();
    let inner = Uneven { rng: Rng::new(1), sent: Arc::clone(&sent), refuses: None };
    let mut port = Finish::new(Box::new(inner), Carries::NONE, pool.share());
    let mut batch = Batch::default();
    let plain = frame(false, false, &[3; 20], 9);
    let mut long = frame(true, false, &[1; 4200], 7);
    let offload = unfinished(&mut long, 1400);
    for (bytes, offload) in [(&long, offload), (&plain, Offload::NONE), (&long, offload)] {
        let frame = pool.copy(bytes, Meta { offload, ..Meta::default() }).unwrap();
        let lane = batch.push(frame, FlowKey::ZERO).unwrap();
        batch.actions[lane].to = To::Port(1);
    }
    let mut taken = Vec::new();
    while let Ok(frame) = pool.take(60, Meta::default()) {
        taken.push(frame);
    }
    let all = batch.lanes();
    for now in [0, STUCK_LIMIT - 1] {
        assert_eq!(port.tx(&mut batch, all, &pool, now), all, "it waits");
    }
    let mut leave = |batch: &mut Batch, pool: &Pool, now| {
        let mut left = batch.lanes();
        while !left.is_empty() {
            left = port.tx(batch, left, pool, now);
        }
        batch.lanes().map(|lane| batch.actions[lane].to).collect::<Vec<_>>()
    };
    let none = To::Drop(DropReason::NoBuffer.code());
    assert_eq!(leave(&mut batch, &pool, STUCK_LIMIT), [none, To::Port(1), none]);
    assert_eq!(*sent.lock().unwrap(), [plain]);
    // With buffers again, the next long frame leaves.
    for frame in taken {
        pool.put(frame);
    }
    pool.put_batch(&mut batch);
    let frame = pool.copy(&long, Meta { offload, ..Meta::default() }).unwrap();
    let lane = batch.push(frame, FlowKey::ZERO).unwrap();
    batch.actions[lane].to = To::Port(1);
    assert_eq!(leave(&mut batch, &pool, 2 * STUCK_LIMIT), [To::Port(1)]);
    assert_eq!(sent.lock().unwrap().len(), 4);
    pool.put_batch(&mut batch);
    drop(port);
    assert_eq!(pool.held(), 0);
}
