//! Frames that are not finished: switching one and then finishing it gives the frames that come of finishing it first.
//!
//! ```text
//!  long frame ──> switch ──> cut into segments      the same bytes by the same ports, the same frames for controllers
//!  long frame ──> cut into segments ──> switch
//! ```

use flowyard_testkit::Rng;
use flowyard_testkit::stacks::Stack;
use flowyard_wire::segment::Cut;
use flowyard_wire::{Headers, Offload, Segment, offload};
use proptest::prelude::*;

use super::*;
use rules::{Rules, rules};

mod counted;
mod rules;

/// A switch with these rules, a cache of this size, and this number of buffers for long frames.
fn bed(rules: &Rules, cache_entries: usize, large: usize) -> Bed {
    let ports = [(5, "a"), (7, "b"), (8, "c"), (3, "d")];
    let hub = Arc::new(SwitchHub::new(SwitchSettings {
        cores: CORES,
        datapath: Settings { tables: 2, cache_entries, long_frames: true, ..Settings::default() },
        ports: ports.map(|(number, name)| (number, [2; 6], name.to_owned())).to_vec(),
        punts: 100_000,
    }));
    let mut cores = hub.group();
    let Message::Control(message) = change_message(rules.changes()) else { panic!("another") };
    cores[0].control(&message, 0, &mut |_, _| panic!("a flow sends nothing"));
    let pool = Pool::new(4096, 2048).with_large(large).expect("large buffers");
    Bed { hub, cores, pool, changes: 0, missing: 0 }
}

/// A frame that leaves: its port, its bytes, and what is left to do then.
type Leaves = (u16, Vec<u8>, Offload);

/// Passes one frame through the first core. Returns what leaves, and the reason if nothing does.
/// All of it has a buffer.
fn pass(bed: &mut Bed, data: &[u8], left: Offload) -> Result<Vec<Leaves>, DropReason> {
    let (leaves, missing) = pass_some(bed, data, left)?;
    assert_eq!(missing, 0);
    Ok(leaves)
}

/// As [`pass`]. Also returns for how many frames there is no buffer.
fn pass_some(bed: &mut Bed, data: &[u8], left: Offload) -> Result<(Vec<Leaves>, u16), DropReason> {
    let mut batch = Batch::default();
    let meta = Meta { wire_len: data.len() as u32, offload: left, ..Meta::default() };
    let frame = bed.pool.copy(data, meta).expect("a buffer");
    let lane = batch.push(frame, FlowKey::ZERO).expect("a lane");
    batch.actions[lane] = Action::queue(0);
    bed.cores[0].work(&mut batch, &bed.pool, 9);
    let mut frame = std::mem::take(&mut batch.frames[lane]);
    let (mut leaves, mut missing) = (Vec::new(), 0);
    let pool = &mut bed.pool;
    let seen = |pool: &Pool, frame: &Frame, port: u16| {
        let meta = pool.meta(frame);
        assert_eq!(meta.wire_len as usize, frame.len());
        (port, pool.bytes(frame).to_vec(), meta.offload)
    };
    match batch.actions[lane].to {
        To::Port(port) => leaves.push(seen(pool, &frame, port)),
        To::Drop(reason) => {
            pool.put_all(frame);
            return Err(DropReason::of(reason));
        }
        _ => {
            while let Some((copy, port)) = pool.untie(&mut frame) {
                leaves.push(seen(pool, &copy, port));
                pool.put(copy);
            }
            let (port, (others, _)) = pool.last(&mut frame);
            missing = others;
            leaves.push(seen(pool, &frame, port));
        }
    }
    pool.put(frame);
    Ok((leaves, missing))
}

/// What a port says of the frame of `stack`: it is to be cut into segments of `size` bytes of payload, unless that is 0.
fn left(stack: &Stack, size: u16, is_partial: bool, fixed: u8) -> Offload {
    let partial = if is_partial { Offload::PARTIAL } else { 0 };
    let (kind, checksum_offset, transport_len) = match (stack.tcp, stack.v6) {
        (true, false) => (Segment::Tcp4, 16, 20 + stack.tcp_options.len() as u8),
        (true, true) => (Segment::Tcp6, 16, 20 + stack.tcp_options.len() as u8),
        (false, _) => (Segment::Udp, 6, 8),
    };
    let checksum_start = stack.l4() as u16;
    let alone = Offload { flags: partial, checksum_start, checksum_offset, ..Offload::NONE };
    match (size, is_partial) {
        (0, false) => Offload::NONE,
        (0, true) => alone,
        _ => {
            let flags = partial | fixed;
            Offload { segment: kind, flags, segment_bytes: size, transport_len, ..alone }
        }
    }
}

/// The frames that a port puts on a wire; none if it cannot finish the frame.
fn finished(bytes: &[u8], left: Offload) -> Vec<Vec<u8>> {
    if left.segment == Segment::None {
        let mut bytes = bytes.to_vec();
        return if offload::complete(&mut bytes, left) { vec![bytes] } else { Vec::new() };
    }
    let Ok(cut) = Cut::new(bytes, left) else { return Vec::new() };
    let one = |n: usize| {
        let mut out = vec![0; cut.len(n)];
        assert_eq!(cut.write(bytes, n, &mut out), out.len());
        out
    };
    (0..cut.count()).map(one).collect()
}

/// A sum of zero has two forms; finishing a frame writes one, and an update by the change keeps the other. A short
/// segment is padded by the switch, or by an adapter later.
fn normal(mut frame: Vec<u8>, is_long: bool) -> Vec<u8> {
    let headers = Headers::parse(LinkType::Ethernet, &frame);
    let at = headers.l4 as usize + if headers.proto == 6 { 16 } else { 6 };
    if let Some(field @ [0, 0]) = frame.get_mut(at..at + 2) {
        field.fill(0xff);
    }
    let end = headers.end as usize;
    if is_long && end > 0 && frame[end..].iter().all(|byte| *byte == 0) {
        frame.truncate(end);
    }
    frame
}

/// The frames for controllers, in any order.
fn punts(bed: &Bed, is_long: bool) -> Vec<(String, u8, Vec<u8>)> {
    let punts = bed.hub.punts();
    let text = |punt: Punt| (format!("{:?}", punt.reason), punt.table, normal(punt.frame, is_long));
    let mut all: Vec<_> = punts.try_iter().map(text).collect();
    all.sort();
    all
}

/// Switches a frame by one of two equal switches, and what comes of finishing it by the other, and compares. Returns
/// the frames that leave the first.
fn compare(twins: &mut [Bed; 2], frame: &[u8], left: Offload) -> Vec<Leaves> {
    let is_long = left.segment != Segment::None;
    let whole = pass(&mut twins[0], frame, left);
    let parts: Vec<_> =
        finished(frame, left).iter().map(|one| pass(&mut twins[1], one, Offload::NONE)).collect();
    let got = whole.iter().flatten().flat_map(|(port, bytes, left)| {
        finished(bytes, *left).into_iter().map(move |one| (*port, normal(one, is_long)))
    });
    let want = parts.iter().flatten().flatten().map(|(port, bytes, left)| {
        assert!(left.is_none());
        (*port, normal(bytes.clone(), is_long))
    });
    let (mut got, mut want): (Vec<_>, Vec<_>) = (got.collect(), want.collect());
    // By each port the segments leave in order, if each of them leaves once.
    let mut ports: Vec<u16> = whole.iter().flatten().map(|(port, ..)| *port).collect();
    let count = ports.len();
    ports.sort_unstable();
    ports.dedup();
    if ports.len() == count {
        got.sort_by_key(|(port, _)| *port);
        want.sort_by_key(|(port, _)| *port);
    } else {
        got.sort();
        want.sort();
    }
    assert!(got == want, "{left:?}\n{whole:02x?}\n{parts:02x?}");
    if let (Err(got), Some(Err(want))) = (&whole, parts.first()) {
        assert_eq!(got, want);
    }
    let [got, want] = [0, 1].map(|at| punts(&twins[at], is_long));
    let lost = twins[0].hub.punts_lost() - twins[1].hub.punts_lost();
    assert_eq!(got.len() + lost as usize, want.len());
    assert!(lost > 0 || got == want, "{got:02x?} {want:02x?}");
    // What was lost here is not lost again at the next frame.
    twins[1].hub.lost.fetch_add(lost, Ordering::Relaxed);
    whole.unwrap_or_default()
}

/// Puts an MPLS label or another tag into a frame. Returns how far the headers behind it move.
fn wrap(frame: &mut Vec<u8>, kind: usize) -> u16 {
    match kind {
        0 => {
            let at = if frame[12..14] == [0x81, 0] { 16 } else { 12 };
            frame.splice(at..at + 2, [0x88, 0x47, 0, 0, 0x71, 64]);
            4
        }
        1 => {
            frame.splice(12..12, [0x88, 0xa8, 0x20, 9]);
            4
        }
        _ => 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_frame_may_be_finished_before_or_after(
        rules in rules(),
        (cache, large) in prop::sample::select(vec![(0, 64), (64, 64), (64, 1), (64, 2)]),
        frames in prop::collection::vec(
            (any::<u64>(), any::<bool>(), 0u16..1700, any::<bool>(), 0u8..4, 0usize..12), 1..3,
        ),
    ) {
        let mut twins = [bed(&rules, cache, large), bed(&rules, cache, large)];
        for (seed, long, size, partial, fixed, around) in frames {
            let mut stack = Stack::random(&mut Rng::new(seed), if long { 40_000 } else { 3000 });
            if stack.ttl > 3 {
                stack.ttl = 64;
            }
            // Finished frames fit a buffer of the first size, and so do segments.
            if stack.payload.len() <= size.into() {
                stack.payload.truncate(1700);
            }
            let partial = partial || !stack.tcp || !stack.tunnels.is_empty();
            // Not more segments than controllers may get of a batch.
            let size = size.max((stack.payload.len() / 60) as u16 + 1);
            let size = if stack.payload.len() <= size.into() { 0 } else { size };
            let mut left = left(&stack, size, partial, fixed << 3);
            let mut frame = if partial { stack.partial() } else { stack.frame() };
            let by = wrap(&mut frame, around);
            if left != Offload::NONE {
                left.checksum_start += by;
            }
            // By the tables, and by the cache as soon as it knows the flow.
            for _ in 0..3 {
                compare(&mut twins, &frame, left);
            }
        }
    }

    /// What the offload of a frame names may be anything in it: a guest may have written it.
    #[test]
    fn any_partial_checksum_may_be_completed_before_or_after(
        rules in rules(), cache in prop::sample::select(vec![0, 64]), seed: u64, around in 0usize..6,
        (start, offset) in (1u16..200, prop::sample::select(vec![0u8, 2, 6, 8, 16, 30])), near: bool,
        damage in prop::option::of((0usize..100, any::<u8>())), sctp: bool,
    ) {
        let mut twins = [bed(&rules, cache, 4), bed(&rules, cache, 4)];
        let stack = Stack::random(&mut Rng::new(seed), 900);
        let mut frame = stack.partial();
        let by = wrap(&mut frame, around);
        if let Some((at, byte)) = damage && let Some(old) = frame.get_mut(at) {
            *old = byte;
        }
        let offset = if sctp { 8 } else { offset };
        if sctp && !stack.v6 && stack.tunnels.is_empty() && !stack.ip_options {
            let at = stack.l4() + usize::from(by) - 11;
            frame[at] = 132;
        }
        let checksum_start = if near { stack.l4() as u16 + by } else { start };
        let left = Offload {
            flags: Offload::PARTIAL, checksum_start, checksum_offset: offset, ..Offload::NONE
        };
        if let Ok(left) = Offload::from_virtio(&left.to_virtio(), &frame) {
            for _ in 0..3 {
                compare(&mut twins, &frame, left);
            }
        }
    }

    /// Ports check what they receive, but nothing here relies on it.
    #[test]
    fn no_offload_panics(
        rules in rules(), seed: u64, at in 0usize..120, byte: u8, kind in 0usize..4, flags: u8,
        (segment_bytes, checksum_start, checksum_offset, transport_len) in any::<(u16, u16, u8, u8)>(),
        near: bool,
    ) {
        let mut one = bed(&rules, 64, 4);
        let stack = Stack::random(&mut Rng::new(seed), 3000);
        let segment = [Segment::None, Segment::Tcp4, Segment::Tcp6, Segment::Udp][kind];
        let checksum_start = if near { stack.l4() as u16 } else { checksum_start };
        let left = Offload { segment, flags, segment_bytes, checksum_start, checksum_offset, transport_len };
        let mut frame = stack.partial();
        if let Some(old) = frame.get_mut(at) {
            *old = byte;
        }
        for _ in 0..2 {
            let _ = pass_some(&mut one, &frame, left);
        }
    }
}
