use flowyard_frame::{Batch, LANES, Lanes};

use super::*;

const META: Meta = Meta {
    time: 7,
    wire_len: 99,
    in_port: 3,
    link: LinkType::RawIp,
    copied: 0,
    segments_sent: 0,
    offload: Offload::NONE,
};

#[test]
fn a_frame_has_its_bytes_and_its_meta() {
    let mut pool = Pool::new(4, 100);
    assert_eq!((pool.longest(), pool.frames(), pool.held()), (128, 4, 0));
    let mut a = pool.copy(b"first", META).unwrap();
    let b = pool.copy(&[9; 128], Meta::default()).unwrap();
    pool.bytes_mut(&mut a)[0] = b'F';
    assert_eq!((pool.bytes(&a), pool.meta(&a)), (&b"First"[..], META));
    assert_eq!((pool.bytes(&b), pool.meta(&b)), (&[9; 128][..], Meta::default()));
    assert_eq!(pool.held(), 2);
    pool.put(a);
    pool.put(b);
    assert_eq!(pool.held(), 0);
}

#[test]
fn it_says_why_it_has_no_buffer() {
    let mut pool = Pool::new(2, 64);
    assert_eq!(pool.take(65, META).unwrap_err(), NoBuffer::TooLong);
    let frames = [pool.take(64, META).unwrap(), pool.take(0, META).unwrap()];
    assert_ne!(frames[0].buf(), frames[1].buf());
    assert_eq!(pool.take(1, META).unwrap_err(), NoBuffer::Empty);
    assert!(!pool.has(1));
    frames.into_iter().for_each(|frame| pool.put(frame));
    assert!(pool.has(2) && !pool.has(3));
}

#[test]
fn whatever_the_handle_says_the_bytes_lie_in_a_buffer() {
    let pool = Pool::new(2, 64);
    assert_eq!(pool.bytes(&Frame::default()), b"");
    for (off, len) in [(0, 1000), (65, 64), (u16::MAX, u16::MAX)] {
        // SAFETY: the pool has not handed out this buffer, and does not before the frame is gone.
        let frame = unsafe { pool.arena.frame(2, off, len) };
        assert!(pool.bytes(&frame).len() <= 64);
    }
}

/// Batches are copied and taken back as single frames are, whatever their lengths.
#[test]
fn a_batch_is_copied_as_its_frames_are() {
    let mut pool = Pool::new(80, 100);
    let (mut rng, mut batch, mut held) =
        (flowyard_frame::Rng::new(4), Batch::default(), Vec::new());
    for round in 0..if cfg!(miri) { 20 } else { 2000 } {
        let frames: Vec<Vec<u8>> = (0..rng.below(40))
            .map(|n| {
                let len = *[0, 1, 31, 32, 33, 60, 64, 65, 128, 129]
                    .get(rng.below(12) as usize)
                    .unwrap_or(&60);
                (0..len).map(|at| (at + n as usize + round) as u8).collect()
            })
            .collect();
        let free = (pool.frames() - pool.held()).min(LANES - batch.len());
        let good: Vec<_> = frames.iter().filter(|data| (1..=128).contains(&data.len())).collect();
        let before = batch.len();
        let copied = pool.copy_batch(&mut batch, frames.iter().map(|data| (META, &data[..])));
        assert_eq!(batch.len() - before, good.len().min(free), "round {round}");
        for (lane, data) in (before..batch.len()).zip(&good) {
            let frame = &batch.frames[lane];
            assert_eq!((pool.bytes(frame), pool.meta(frame)), (&data[..], META));
        }
        if good.len() <= free {
            let count = |which: fn(usize) -> bool| {
                frames.iter().filter(|data| which(data.len())).count() as u32
            };
            let expected =
                Copied { too_long: count(|len| len > 128), empty: count(|len| len == 0) };
            assert_eq!(copied, expected, "round {round}");
        }
        match rng.below(3) {
            0 => held.extend(batch.drain()), // a frame, or several, that others have
            1 => held.drain(..).for_each(|frame| pool.put(frame)),
            _ => {
                if !batch.is_empty() {
                    held.push(std::mem::take(&mut batch.frames[0])); // an empty handle is left
                }
                pool.put_batch(&mut batch);
                assert!(batch.is_empty());
            }
        }
        assert_eq!(pool.held(), held.len() + batch.len(), "round {round}");
    }
}

/// Frames that a port writes into buffers are those that it wrote, also if it fails on the way.
#[test]
fn a_batch_is_filled_by_a_port() {
    let mut pool = Pool::new(40, 100);
    let (mut rng, mut batch) = (flowyard_frame::Rng::new(5), Batch::default());
    let mut failures = 0;
    for round in 0..if cfg!(miri) { 20 } else { 2000 } {
        let (before, mut written) = (batch.len(), Vec::new());
        let free = (pool.frames() - pool.held()).min(LANES - before);
        let result = pool.fill_batch(&mut batch, META, |room| {
            assert_eq!(room.len(), 128);
            room.fill(round as u8); // also what is not a frame in the end
            Ok(match rng.below(20) {
                0 => Filled::End,
                1 | 2 => Filled::Nothing,
                3 => return Err(round),
                len => {
                    room[0] = written.len() as u8;
                    written.push(7 * len as usize - 20);
                    Filled::Frame(7 * len as usize - 20)
                }
            })
        });
        assert!(written.len() <= free, "round {round}");
        assert!(result.is_ok() || result == Err(round));
        failures += u32::from(result.is_err());
        assert_eq!(batch.len(), before + written.len(), "round {round}");
        for (number, len) in written.iter().enumerate() {
            let frame = &batch.frames[before + number];
            let (bytes, meta) = (pool.bytes(frame), pool.meta(frame));
            assert_eq!((bytes.len(), bytes[0]), (*len, number as u8), "round {round}");
            assert!(bytes[1..].iter().all(|byte| *byte == round as u8), "round {round}");
            assert_eq!(meta, Meta { wire_len: *len as u32, ..META });
        }
        assert_eq!(pool.held(), batch.len(), "round {round}");
        if rng.below(3) == 0 || batch.len() == LANES {
            pool.put_batch(&mut batch);
        }
    }
    assert!(failures > 0);
    // Without buffers nothing is asked of the port.
    let frames: Vec<_> = std::iter::from_fn(|| pool.take(1, META).ok()).collect();
    pool.put_batch(&mut batch);
    let all: Vec<_> = std::iter::from_fn(|| pool.take(1, META).ok()).collect();
    let fill = |_: &mut [u8]| -> Result<Filled, ()> { panic!("no buffer is free") };
    pool.fill_batch(&mut batch, META, fill).unwrap();
    frames.into_iter().chain(all).for_each(|frame| pool.put(frame));
    assert_eq!((batch.len(), pool.held()), (0, 0));
}

#[test]
fn a_lost_frame_is_found() {
    let mut pool = Pool::new(100, 64);
    let mut other = pool.share();
    let frames: Vec<_> = (0..50).map(|_| other.take(1, META).unwrap()).collect();
    frames.into_iter().skip(1).for_each(|frame| pool.put(frame));
    drop(other); // its free list goes back
    assert_eq!(pool.held(), 1, "the first frame was forgotten");
}

/// Frames go from core to core through a queue; every buffer is somewhere all the time.
#[test]
fn cores_exchange_buffers() {
    let rounds = if cfg!(miri) { 60 } else { 20_000 };
    let pool = Pool::new(256, 64);
    let (to_b, at_b) = std::sync::mpsc::sync_channel::<Frame>(64);
    let (to_a, at_a) = std::sync::mpsc::sync_channel::<Frame>(64);
    let (mut a, mut b) = (pool.share(), pool.share());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for i in 0..rounds as u64 {
                if let Ok(frame) = a.copy(&i.to_le_bytes(), META) {
                    to_b.send(frame).unwrap();
                }
                at_a.try_iter().for_each(|frame| a.put(frame));
            }
            drop(to_b);
            at_a.iter().for_each(|frame| a.put(frame));
        });
        scope.spawn(move || {
            let mut last = None;
            for (i, mut frame) in at_b.iter().enumerate() {
                let number = u64::from_le_bytes(b.bytes(&frame).try_into().unwrap());
                assert!(last < Some(number), "{last:?} {number}");
                last = Some(number);
                b.bytes_mut(&mut frame).fill(0xee);
                // Half go home, half stay here: chains move both ways over the stack.
                if i % 2 == 0 { b.put(frame) } else { to_a.send(frame).unwrap() }
            }
        });
    });
    assert_eq!(pool.held(), 0);
}

#[test]
fn buffers_can_be_lent_and_come_back() {
    assert!(Pool::new(4, 2048).umem().is_none(), "33 lines are no chunk");
    for (bytes, longest) in [(64, 1984), (1728, 1984), (1729, 4032), (LONGEST_LENDABLE, 4032)] {
        let mut pool = Pool::lendable(70, bytes);
        assert!(pool.umem().is_some());
        assert_eq!(pool.longest(), longest);
        let chunk = longest as u64 + 64;
        let mut out = std::collections::BTreeSet::new();
        while let Ok(mut frame) = pool.take(8, Meta::default()) {
            let buf = frame.buf();
            let place = u64::from(pool.arena.numbers.place(buf).unwrap());
            pool.bytes_mut(&mut frame).fill(buf as u8);
            let addr = pool.lend(frame);
            assert_eq!((addr / chunk, addr % chunk), (place, 64));
            assert_eq!(pool.buffer_at(addr + 500), place);
            assert!(out.insert(addr), "lent once");
        }
        assert_eq!((out.len(), pool.held()), (70, 70));
        for (n, addr) in (0..).zip(out) {
            let meta = Meta { wire_len: 5, ..Meta::default() };
            // SAFETY: each address was lent above, and comes back once.
            let frame = unsafe {
                match n % 3 {
                    0 => pool.unlend(addr, 8, meta),
                    1 => pool.unlend_sent(addr + 300, 8),
                    _ => pool.unlend_buffer(pool.buffer_at(addr)),
                }
            };
            let want = vec![frame.buf() as u8; if n % 3 == 2 { 0 } else { 8 }];
            assert_eq!(pool.bytes(&frame), want);
            assert_eq!(pool.meta(&frame).wire_len, if n % 3 == 0 { 5 } else { 0 });
            pool.put(frame);
        }
        assert_eq!(pool.held(), 0);
    }
}

#[test]
fn a_frame_can_be_made_shorter() {
    let mut pool = Pool::new(2, 128);
    let mut frame = pool.take(pool.longest(), Meta::default()).unwrap();
    (frame.hash, frame.mark) = (3, 4);
    pool.bytes_mut(&mut frame)[..3].copy_from_slice(&[7, 8, 9]);
    pool.set_len(&mut frame, 3);
    assert_eq!((pool.bytes(&frame), frame.hash, frame.mark), (&[7, 8, 9][..], 3, 4));
    pool.set_len(&mut frame, 70_000);
    assert_eq!(pool.bytes(&frame).len(), 128, "no longer than its buffer");
    pool.put(frame);
}

#[test]
fn bytes_are_put_in_and_taken_out() {
    let mut pool = Pool::new(3, 64);
    let near = [pool.copy(&[0xaa; 64], META).unwrap(), pool.copy(&[0xbb; 64], META).unwrap()];
    let text: Vec<u8> = (1..=60).collect();
    let mut frame = pool.copy(&text, META).unwrap();
    (frame.hash, frame.mark) = (5, 6);
    let mut model = text;
    let mut wire_len = META.wire_len as usize;
    // In, out, in elsewhere; too much; room in front and behind, both needed.
    for (is_in, at, n) in [
        (true, 12, 4),
        (true, 0, 1),
        (false, 12, 4),
        (true, 61, 1),
        (true, 60, 4),
        (false, 63, 2),
        (false, 0, 3),
        (true, 30, 2),
        (false, 61, 1),
        (true, 62, 4),
        (false, 2, 58),
        (true, 1, 60),
        (true, 0, usize::MAX),
        (false, usize::MAX, 1),
    ] {
        let possible = if is_in {
            at <= model.len() && n <= 64 - model.len()
        } else {
            at <= model.len() && n <= model.len() - at
        };
        let done =
            if is_in { pool.insert(&mut frame, at, n) } else { pool.remove(&mut frame, at, n) };
        assert_eq!(done, possible, "{is_in} {at} {n}");
        if done && is_in {
            model.splice(at..at, vec![0; n]);
            wire_len += n;
        } else if done {
            model.drain(at..at + n);
            wire_len -= n;
        }
        assert_eq!(pool.bytes(&frame), model, "{is_in} {at} {n}");
        assert_eq!(pool.meta(&frame), Meta { wire_len: wire_len as u32, ..META });
    }
    assert_eq!((frame.hash, frame.mark), (5, 6));
    assert_eq!((pool.bytes(&near[0]), pool.bytes(&near[1])), (&[0xaa; 64][..], &[0xbb; 64][..]));
    let mut none = Frame::default();
    assert!(!pool.insert(&mut none, 0, 4) && !pool.remove(&mut none, 0, 4));
    near.into_iter().chain([frame]).for_each(|frame| pool.put(frame));
}

#[test]
fn a_frame_of_another_pool_names_nothing() {
    let (mut mine, mut other) = (Pool::new(4, 64), Pool::new(4, 64));
    let (mut a, mut b) = (mine.copy(b"mine", META).unwrap(), other.copy(b"other", META).unwrap());
    assert_eq!((mine.bytes(&b), other.bytes(&a)), (&b""[..], &b""[..]));
    assert!(mine.bytes_mut(&mut b).is_empty() && !mine.insert(&mut b, 0, 1));
    mine.set_meta(&mut b, Meta { wire_len: 7, ..META });
    assert_eq!(mine.meta(&b), Meta::default());
    assert_eq!((other.bytes(&b), mine.bytes(&a)), (&b"other"[..], &b"mine"[..]));
    other.tie(&mut a, Frame::default(), 1); // ignored: it has no place for the chain
    assert!(mine.untie(&mut a).is_none());
    mine.put(a);
    other.put(b);
    assert_eq!((mine.held(), other.held()), (0, 0));
}

/// Frames of both sizes, beside a list of what they hold: what is taken, changed, copied, tied and given back.
#[test]
fn frames_of_both_sizes_are_what_they_would_be_in_one() {
    let rounds = if cfg!(miri) { 20 } else { 3000 };
    let mut pool = Pool::new(3000, 128).with_large(8).unwrap();
    assert_eq!((pool.longest(), pool.longest_large(), pool.held()), (128, LONGEST, 0));
    let mut other = pool.share();
    let mut rng = flowyard_frame::Rng::new(67);
    let mut held: Vec<(Frame, Vec<u8>, Meta)> = Vec::new();
    for round in 0..rounds {
        let large = held.iter().filter(|(frame, ..)| pool.buffer(frame).is_none()).count();
        match rng.below(5) {
            0 | 1 => {
                let len = [1, 60, 128, 129, 3000, LONGEST][rng.below(6) as usize];
                let data: Vec<u8> = (0..len).map(|at| (at + round) as u8).collect();
                let meta = Meta { wire_len: len as u32, in_port: round as u16, ..META };
                match if rng.below(2) == 0 { &mut pool } else { &mut other }.copy(&data, meta) {
                    Ok(frame) => held.push((frame, data, meta)),
                    // Some wait in the list of the other handle.
                    Err(NoBuffer::Empty) => assert!(large >= 4 && len > 128, "{large} {len}"),
                    Err(NoBuffer::TooLong) => panic!("{len} bytes"),
                }
            }
            2 if !held.is_empty() => {
                let which = rng.below(held.len() as u64) as usize;
                let (frame, data, meta) = &mut held[which];
                let at = rng.below(data.len() as u64 + 1) as usize;
                let n = 1 + rng.below(8) as usize;
                if rng.below(2) == 0 {
                    let room = if pool.buffer(frame).is_some() { 128 } else { LONGEST };
                    assert_eq!(pool.insert(frame, at, n), data.len() + n <= room);
                    if data.len() + n <= room {
                        data.splice(at..at, vec![0; n]);
                        meta.wire_len += n as u32;
                    }
                } else if pool.remove(frame, at, n) {
                    data.drain(at..at + n);
                    meta.wire_len -= n as u32;
                }
            }
            3 if held.len() > 1 => {
                let ((mut frame, data, meta), (tied, tied_data, _)) =
                    (held.swap_remove(0), held.swap_remove(0));
                pool.tie(&mut frame, tied, 3);
                let (tied, port) = other.untie(&mut frame).unwrap();
                assert_eq!((pool.bytes(&tied), port), (&tied_data[..], 3));
                other.put(tied);
                held.push((frame, data, meta));
            }
            _ => {
                let mut batch = Batch::default();
                for _ in 0..rng.below(4) {
                    if let Some((frame, ..)) = held.pop() {
                        batch.push(frame, flowyard_frame::FlowKey::ZERO).unwrap();
                    }
                }
                if rng.below(2) == 0 { &mut pool } else { &mut other }.put_batch(&mut batch);
            }
        }
        for (frame, data, meta) in &held {
            assert_eq!((pool.bytes(frame), pool.meta(frame)), (&data[..], *meta), "round {round}");
        }
    }
    held.into_iter().for_each(|(frame, ..)| other.put(frame));
    drop(other);
    assert_eq!(pool.held(), 0);
}

#[test]
fn long_frames_have_keys_and_are_not_lent() {
    let mut pool = Pool::lendable(4, 2000).with_large(2).unwrap();
    let mut batch = Batch::default();
    let key = flowyard_frame::FlowKey { sport: 5, ..flowyard_frame::FlowKey::ZERO };
    batch.push(pool.take(60_000, META).unwrap(), key).unwrap();
    pool.store_keys(&mut batch, Lanes::first(1));
    batch.keys_in_pool = true;
    assert_eq!(pool.key(&batch, 0), key);
    assert_eq!(pool.address(&batch.frames[0]), None);
    let copy = pool.copy_of(&batch.frames[0]).unwrap();
    assert_eq!(pool.copy_of(&copy).unwrap_err(), NoBuffer::Empty);
    assert_eq!(pool.held(), 2);
    pool.put(copy);
    pool.put_batch(&mut batch);
    assert_eq!(pool.held(), 0);
    assert_eq!(Pool::new(1, 64).take_large(60, META).unwrap_err(), NoBuffer::TooLong);
}

/// The place of a partial checksum moves with the bytes in front of it, and with no others.
#[test]
fn an_offload_names_the_same_byte_after_bytes_were_added_or_removed() {
    let mut pool = Pool::new(1, 256);
    let flags = Offload::PARTIAL;
    let offload = Offload { flags, checksum_start: 34, checksum_offset: 16, ..Offload::NONE };
    let mut frame = pool.copy(&[7; 100], Meta { offload, ..META }).unwrap();
    pool.bytes_mut(&mut frame)[34] = 1;
    let start = |frame: &Frame| usize::from(pool.meta(frame).offload.checksum_start);
    for (is_in, at, n, want) in [
        (true, 12, 4, 38),
        (true, 38, 2, 40),
        (true, 41, 8, 40),
        (false, 0, 40, 40),
        (false, 12, 4, 36),
    ] {
        let is_possible = is_in || at + n != want;
        let done =
            if is_in { pool.insert(&mut frame, at, n) } else { pool.remove(&mut frame, at, n) };
        assert_eq!(done, is_possible, "{is_in} {at} {n}");
        assert_eq!((start(&frame), pool.bytes(&frame)[want]), (want, 1), "{is_in} {at} {n}");
    }
    assert!(pool.overwrite(&mut frame, &[1; 90]));
    assert_eq!(pool.meta(&frame).offload, Offload::NONE);
    pool.put(frame);
}
