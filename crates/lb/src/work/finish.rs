//! Unfinished frames where they must be finished: in front of a tunnel header, and in what the balancer sends itself.
//!
//! ```text
//!  translated, forwarded      stays unfinished: the port finishes it if it must
//!  into a tunnel, ICMP        checksum completed
//!  quoted in an ICMP error    the first segment, as a router behind the port would have seen it
//! ```
//!
//! Invariant: a frame that is finished here has no offload any more.

use flowyard_frame::{Batch, Frame, proto};
use flowyard_pool::{Meta, Pool};
use flowyard_wire::segment::Cut;
use flowyard_wire::{Offload, Segment, offload};
use flowyard_yard::DropReason;
use flowyard_yard::port::refuse;

/// The most bytes of headers that a first segment has. Frames with more of them are not answered.
const HEADERS: usize = 512;

/// Completes the checksum of a frame. Returns false, and changes nothing, if the frame is to be cut, or has no such
/// checksum.
#[inline]
pub(super) fn complete(frame: &mut Frame, pool: &Pool) -> bool {
    let meta = pool.meta(frame);
    meta.offload.is_none() || complete_as(frame, pool, meta)
}

/// Completes the checksum of a message that the balancer reads or changes itself: ARP, ICMP, ICMPv6. Leaves other frames
/// as they are. Refuses a message that cannot be completed, and returns false.
#[inline]
pub(super) fn message(batch: &mut Batch, lane: usize, pool: &Pool) -> bool {
    let key = &batch.keys[lane];
    let is_other = key.is_ip() && !matches!(key.proto, proto::ICMP | proto::ICMPV6);
    let done = is_other || complete(&mut batch.frames[lane], pool);
    if !done {
        refuse(batch, lane, DropReason::Malformed);
    }
    done
}

#[cold]
fn complete_as(frame: &mut Frame, pool: &Pool, meta: Meta) -> bool {
    let done = meta.offload.segment == Segment::None
        && offload::complete(pool.bytes_mut(frame), meta.offload);
    if done {
        pool.set_meta(frame, Meta { offload: Offload::NONE, ..meta });
    }
    done
}

/// Replaces a frame that is to be cut by its first segment, and completes the checksum of another one. Returns false,
/// and changes nothing, if that is not possible.
pub(super) fn first_segment(frame: &mut Frame, pool: &Pool) -> bool {
    let meta = pool.meta(frame);
    if meta.offload.segment == Segment::None {
        return complete(frame, pool);
    }
    let Ok(cut) = Cut::new(pool.bytes(frame), meta.offload) else { return false };
    let (mut headers, len) = ([0; HEADERS], cut.headers_len());
    if !cut.write_headers(pool.bytes(frame), 0, &mut headers) {
        return false;
    }
    pool.bytes_mut(frame)[..len].copy_from_slice(&headers[..len]);
    pool.truncate(frame, cut.len(0));
    let meta = pool.meta(frame); // with the new length
    pool.set_meta(frame, Meta { offload: Offload::NONE, ..meta });
    true
}

#[cfg(test)]
mod tests {
    use flowyard_testkit::stacks::Stack;

    use super::*;

    /// A frame of `stack` in a pool, of which `segment` and a partial checksum are left.
    fn frame(stack: &Stack, pool: &mut Pool, segment_bytes: u16) -> Frame {
        let segment = if segment_bytes == 0 { Segment::None } else { Segment::Tcp4 };
        let offload = Offload {
            segment,
            flags: Offload::PARTIAL,
            segment_bytes,
            checksum_start: stack.l4() as u16,
            checksum_offset: 16,
            transport_len: if segment_bytes == 0 { 0 } else { 20 },
        };
        let bytes = stack.partial();
        let meta = Meta { wire_len: bytes.len() as u32, offload, ..Meta::default() };
        pool.copy(&bytes, meta).unwrap()
    }

    #[test]
    fn a_checksum_is_completed_and_a_long_frame_becomes_its_first_segment() {
        let stack = Stack { payload: vec![3; 1500], flags: 0x19, ..Stack::tcp4() };
        let mut pool = Pool::new(4, 2048);
        let first = stack.segments(400, [false; 2])[0].frame();
        for (size, want) in [(0, stack.frame()), (400, first)] {
            let mut one = frame(&stack, &mut pool, size);
            assert_eq!(complete(&mut one, &pool), size == 0);
            assert!(first_segment(&mut one, &pool), "{size}");
            assert_eq!(pool.bytes(&one), want);
            let Meta { wire_len, offload, .. } = pool.meta(&one);
            assert_eq!((wire_len as usize, offload), (want.len(), Offload::NONE));
            assert!(complete(&mut one, &pool) && first_segment(&mut one, &pool));
            assert_eq!(pool.bytes(&one), want, "nothing is left to do");
            pool.put(one);
        }
    }

    #[test]
    fn what_cannot_be_finished_stays_as_it_is() {
        let stack = Stack { payload: vec![3; 1500], ..Stack::tcp4() };
        let mut pool = Pool::new(4, 2048);
        for (size, start) in [(0, 2000), (400, 34 + 2), (400, 2000)] {
            let mut one = frame(&stack, &mut pool, size);
            let meta = pool.meta(&one);
            let offload = Offload { checksum_start: start, ..meta.offload };
            pool.set_meta(&mut one, Meta { offload, ..meta });
            let before = pool.bytes(&one).to_vec();
            assert!(!complete(&mut one, &pool) && !first_segment(&mut one, &pool));
            assert_eq!((pool.bytes(&one), pool.meta(&one).offload), (&before[..], offload));
            pool.put(one);
        }
    }
}
