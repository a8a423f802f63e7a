//! `lists`: an action list on any bytes. The first byte is the number of operations and the link type,
//! each operation is six bytes, and the rest is the frame.

use crate::{Limits, Line};
use flowyard_frame::{Frame, To};
use flowyard_pool::{Meta, Pool};
use flowyard_wire::LinkType;
use flowyard_yard::{List, Op};

fn op(&[kind, a, b, c, d, e]: &[u8; 6]) -> Op {
    let word = u16::from_be_bytes([a, b]);
    let v6 = [[a, b, c, d], [e; 4], [d, c, b, a], [0; 4]].concat();
    let v6 = <[u8; 16]>::try_from(v6).unwrap_or_default();
    match kind % 15 {
        0 => Op::SetEthSrc([a, b, c, d, e, 0]),
        1 => Op::SetEthDst([a, b, c, d, e, 0]),
        2 => Op::PushVlan { tpid: if c & 1 == 0 { 0x8100 } else { 0x88a8 }, tci: word },
        3 => Op::PopVlan,
        4 => Op::SetVlan(word & 0xfff),
        5 => Op::SetPcp(a & 7),
        6 => Op::DecTtl,
        7 => Op::SetSrc([a, b, c, d].into()),
        8 => Op::SetDst([a, b, c, d].into()),
        9 => Op::SetSrc(v6.into()),
        10 => Op::SetDst(v6.into()),
        11 => Op::SetSport(word),
        12 => Op::SetDport(word),
        13 => Op::SetDscp(a & 63),
        _ => Op::SetMark(word.into()),
    }
}

/// At most seven operations on a frame, of which each changes a header and its checksums. The pool has three buffers
/// and their bookkeeping; the frame is copied into it.
pub const LIMITS: Limits =
    Limits { blocks: Line { input: 3000, byte: 100 }, bytes: Line { input: 10_000, byte: 16 } };

/// Runs a list on a frame that has a neighbouring buffer on each side in the pool.
///
/// # Panics
/// When a byte outside the frame's buffer changes, or the frame's new length does not follow from the
/// operations.
pub fn lists(data: &[u8]) {
    let Some((first, data)) = data.split_first() else { return };
    let (ops, frame) = data.as_chunks::<6>().0.split_at(usize::from(first & 7).min(data.len() / 6));
    let link = if first & 0x80 == 0 { LinkType::Ethernet } else { LinkType::RawIp };
    let frame = [frame.as_flattened(), data.as_chunks::<6>().1].concat();
    let mut pool = Pool::new(3, 256);
    let copy =
        |pool: &mut Pool, data: &[u8], link| pool.copy(data, Meta { link, ..Meta::default() }).ok();
    let mut all: Vec<Frame> =
        (0..3).filter_map(|_| copy(&mut pool, &[0xee; 256], LinkType::Ethernet)).collect();
    all.sort_by_key(Frame::buf);
    pool.put(all.remove(1));
    let Some(mut middle) = copy(&mut pool, &frame, link) else {
        all.into_iter().for_each(|frame| pool.put(frame));
        return;
    };
    let ops: Vec<Op> = ops.iter().map(op).collect();
    let done = List::new(ops.as_slice(), To::DROP).run(&mut middle, &mut 0, &pool);
    assert!(
        all.iter().all(|frame| pool.bytes(frame) == [0xee; 256]),
        "a neighbouring buffer was changed"
    );
    let tags = |wanted: fn(&Op) -> bool| 4 * ops.iter().filter(|op| wanted(op)).count();
    let len = pool.bytes(&middle).len();
    let most = frame.len() + tags(|op| matches!(op, Op::PushVlan { .. }));
    let least = frame.len().saturating_sub(tags(|op| matches!(op, Op::PopVlan)));
    assert!((least..=most).contains(&len), "{len} {done:?} {ops:?}");
    all.into_iter().chain([middle]).for_each(|frame| pool.put(frame));
    assert_eq!(pool.held(), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_seeds() {
        let tcp = [
            &[0; 12][..],
            &[0x81, 0, 0, 7, 8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0],
            &[9; 8],
            &[0x50; 20],
        ];
        for kind in 0..15 {
            let seed = [&[2, kind, 1, 2, 3, 4, 5, 3, 0, 0, 0, 0, 0][..], &tcp.concat()].concat();
            for at in 0..seed.len() {
                lists(&seed[..at]);
                for value in (0..=255).step_by(5) {
                    let mut changed = seed.clone();
                    changed[at] = value;
                    lists(&changed);
                }
            }
        }
    }
}
