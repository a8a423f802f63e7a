//! `offload`: a virtio-net header and a frame in one input; the frame is completed and cut, and its segments
//! are coalesced and cut again.

use crate::{Limits, Line};
use flowyard_wire::coalesce::{Rules, Table, Then};
use flowyard_wire::offload::complete;
use flowyard_wire::segment::Cut;
use flowyard_wire::{LinkType, Offload, Segment, Verdicts};

/// Each of at most [`SEGMENTS`] segments repeats the headers, which may be nearly all of the frame. They are written,
/// copied when they are coalesced, and written again.
pub const LIMITS: Limits =
    Limits { blocks: Line { input: 200_000, byte: 400 }, bytes: Line { input: 20_000, byte: 64 } };

/// Segments that are written of one frame.
const SEGMENTS: usize = 16;

/// Reads a virtio-net header, completes and cuts its frame, coalesces the segments, and compares what comes of
/// that with the segments.
///
/// # Panics
/// When one of these panics, or coalescing loses or changes a byte.
pub fn offload(data: &[u8]) {
    let Some((header, frame)) = data.split_first_chunk() else { return };
    let _ = Verdicts::of(LinkType::Ethernet, frame);
    let Ok(offload) = Offload::from_virtio(header, frame) else { return };
    assert!(offload.headers_len() <= frame.len(), "{offload:?}");
    let again = Offload::from_virtio(&offload.to_virtio(), frame);
    assert_eq!(again, Ok(offload), "written and read again");
    let mut whole = frame.to_vec();
    assert!(complete(&mut whole, offload), "the checksum lies in the frame: {offload:?}");
    assert_eq!(whole.len(), frame.len());
    let mut sent = vec![whole];
    if offload.segment != Segment::None {
        let Ok(cut) = Cut::new(frame, offload) else { return };
        assert_eq!(cut.count(), offload.segments(frame.len()));
        sent = (0..cut.count().min(SEGMENTS)).map(|n| segment(&cut, frame, n)).collect();
    }
    let longest = frame.len() + 100;
    let received = coalesce(&sent, Rules { udp: true, tunnels: true, longest });
    assert!(received == sent, "coalescing changed a frame: {offload:?}");
}

fn segment(cut: &Cut, frame: &[u8], n: usize) -> Vec<u8> {
    let mut out = vec![0; cut.len(n)];
    assert_eq!(cut.write(frame, n, &mut out), out.len(), "a segment is whole");
    out
}

/// Coalesces frames, and cuts what leaves.
fn coalesce(frames: &[Vec<u8>], rules: Rules) -> Vec<Vec<u8>> {
    let mut table = Table::new(rules);
    let mut slots = vec![Vec::new(); Table::FLOWS];
    let mut out = Vec::new();
    for frame in frames {
        let step = table.offer(frame, false);
        close(&mut table, step.flush, &mut slots, &mut out);
        match step.then {
            Then::Pass => out.push(frame.clone()),
            Then::Open(slot) => slots[slot] = frame.clone(),
            Then::Append { slot, payload, close: is_last } => {
                slots[slot].extend_from_slice(&frame[payload]);
                close(&mut table, if is_last { 1 << slot } else { 0 }, &mut slots, &mut out);
            }
        }
    }
    close(&mut table, u32::MAX, &mut slots, &mut out);
    out
}

fn close(table: &mut Table, mask: u32, slots: &mut [Vec<u8>], out: &mut Vec<Vec<u8>>) {
    while let Some(slot) = table.oldest(mask) {
        let mut frame = std::mem::take(&mut slots[slot]);
        let offload = table.close(slot, &mut frame).expect("the frame has the length of its parts");
        if offload.is_none() {
            out.push(frame);
            continue;
        }
        let cut = Cut::new(&frame, offload).expect("what was coalesced can be cut");
        out.extend((0..cut.count()).map(|n| segment(&cut, &frame, n)));
    }
}

#[cfg(test)]
mod tests {
    use flowyard_frame::Rng;
    use flowyard_testkit::stacks::Stack;

    use super::*;

    /// Frames of every kind, changed at random.
    #[test]
    fn changed_frames() {
        let mut rng = Rng::new(1);
        for _ in 0..3000 {
            let stack = Stack::random(&mut rng, 600);
            let l4 = stack.l4() as u8;
            let (kind, offset) = match (stack.tcp, stack.v6) {
                (true, false) => (1, 16),
                (true, true) => (4, 16),
                (false, _) => (5, 6),
            };
            let size = 20 + rng.below(200) as u8;
            let mut data = vec![1, kind, 0, 0, size, 0, l4, 0, offset, 0];
            data.extend(stack.partial());
            crate::bounded(LIMITS, &data, offload);
            for _ in 0..1 + rng.below(3) {
                let at = rng.below(data.len() as u64) as usize;
                data[at] = rng.bits() as u8;
            }
            data.truncate(data.len() - rng.below(8) as usize);
            crate::bounded(LIMITS, &data, offload);
        }
    }
}
