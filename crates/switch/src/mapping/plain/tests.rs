use std::collections::BTreeMap;

use flowyard_frame::{Frame, proto};
use proptest::prelude::*;

use super::*;

/// Plain keys of which many are equal under a mask.
fn key(n: u16) -> FlowKey {
    let [one, two] = [[10, 0, 0, n as u8 & 3], [10, 9, (n >> 2) as u8 & 1, 2]];
    let five = FlowKey::five_tuple(proto::UDP, one.into(), n >> 3, two.into(), 53);
    FlowKey { in_port: n & 1, eth_src: [2, 0, 0, 0, 0, n as u8 & 1], tos: n as u8 & 4, ..five }
}

fn masks() -> impl Strategy<Value = FlowKey> {
    let ports = FlowKey { sport: 0xffff, ..FlowKey::ZERO };
    let addresses = FlowKey { src: [0xff; 16], dst: [0xff; 16], ..FlowKey::ZERO };
    let other = FlowKey { in_port: 0xffff, eth_src: [0xff; 6], tos: 0xff, ..ports };
    prop_oneof![Just(FlowKey::FLOW), Just(ports), Just(addresses), Just(other)]
}

#[derive(Clone, Debug)]
enum Step {
    Put(u16, u16),
    Del(u16),
    Clear,
    /// Frames of these flows, each of this length.
    Frames(Vec<u16>, u32),
    /// Takes noted frames, of at most this number of entries at a time.
    Take(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let frames = proptest::collection::vec(0_u16..256, 1..=LANES);
    let step = prop_oneof![
        4 => (0_u16..256, any::<u16>()).prop_map(|(key, port)| Step::Put(key, port)),
        1 => (0_u16..256).prop_map(Step::Del),
        1 => Just(Step::Clear),
        4 => (frames, 60_u32..2000).prop_map(|(frames, len)| Step::Frames(frames, len)),
        1 => (1_usize..40).prop_map(Step::Take),
    ];
    proptest::collection::vec(step, 0..200)
}

/// Takes all noted frames: by path, their number, their bytes, and when the last came.
fn take(table: &mut Plain, most: usize) -> BTreeMap<u32, (u32, u32, u64)> {
    let mut all = BTreeMap::new();
    let mut into = vec![Noted::default(); most];
    loop {
        let count = table.take_noted(&mut into);
        if count == 0 {
            assert!(!table.has_noted());
            return all;
        }
        for Noted { path, frames, bytes, last } in &into[..count] {
            let before = all.insert(*path, (*frames, *bytes, *last));
            assert!(before.is_none() && *frames > 0, "an entry is noted once");
        }
    }
}

proptest! {
    /// The model is a map from masked keys to what entries say, and a map of what is noted for each path.
    #[test]
    fn a_table_is_a_map_with_counts(
        mask in masks(),
        capacity in prop_oneof![Just(4_usize), Just(40), Just(4096)],
        seed in any::<u64>(),
        steps in steps(),
    ) {
        let mut table = Plain::new(capacity, &mask, seed);
        let mut model = BTreeMap::<Words, Mapped>::new();
        let mut noted = BTreeMap::<u32, (u32, u32, u64)>::new();
        for (now, step) in (1_u64..).zip(&steps) {
            let changes = matches!(step, Step::Put(..) | Step::Del(_) | Step::Clear);
            if changes {
                prop_assert_eq!(take(&mut table, 7), std::mem::take(&mut noted));
            }
            match step {
                Step::Put(n, port) => {
                    // Each path has one entry, so that it is known for which one a frame was noted.
                    let mapped = Mapped { port: *port, path: now as u32, half: *n };
                    let words = table.masked(&key(*n));
                    let is_new = !model.contains_key(&words);
                    match table.put(&key(*n), mapped) {
                        Ok(()) => _ = model.insert(words, mapped),
                        Err(Reason::Full { .. }) => prop_assert!(is_new && model.len() == capacity),
                        Err(_) => prop_assert!(is_new, "an entry that is there has a place"),
                    }
                }
                Step::Del(n) => {
                    table.del(&key(*n));
                    model.remove(&table.masked(&key(*n)));
                }
                Step::Clear => {
                    table.clear();
                    model.clear();
                }
                Step::Frames(flows, len) => {
                    let mut batch = Batch::default();
                    for n in flows {
                        prop_assert!(batch.push(Frame::unbacked(*len as u16), key(*n)).is_ok());
                    }
                    let (some, mut places) = (Lanes(batch.lanes().0 & !(now as u32 & 0b1010)), [0; LANES]);
                    let found = table.lookup(&batch, some, &mut places);
                    for lane in batch.lanes() {
                        let wanted = model.get(&table.masked(&batch.keys[lane]));
                        let got = found.has(lane).then(|| table.mapped(places[lane]));
                        prop_assert_eq!(got.as_ref(), wanted.filter(|_| some.has(lane)));
                        if let Some(Mapped { path, .. }) = got {
                            prop_assert!(!table.note(places[lane], *len, now));
                            let (frames, bytes, last) = noted.entry(path).or_default();
                            (*frames, *bytes, *last) = (*frames + 1, *bytes + len, now);
                        }
                    }
                }
                Step::Take(most) => {
                    prop_assert_eq!(take(&mut table, *most), std::mem::take(&mut noted));
                }
            }
            prop_assert_eq!(table.len(), model.len());
            prop_assert_eq!(table.has_noted(), !noted.is_empty());
            let (mut sum, mut wanted) = (0, 0);
            table.noted().for_each(|noted| sum += noted.frames);
            noted.values().for_each(|(frames, ..)| wanted += frames);
            prop_assert_eq!(sum, wanted);
        }
        let mut shown = BTreeMap::new();
        table.each(&mut |key, mapped| _ = shown.insert(words(key), mapped));
        prop_assert_eq!(shown, model);
    }

    #[test]
    fn the_words_of_a_plain_key_are_the_whole_key(n in any::<u16>(), flags in any::<u8>(), rest in any::<u32>()) {
        let key = FlowKey { tcp_flags: flags, tunnel_id: rest, flex: rest as u16, ..key(n) };
        prop_assert_eq!(unwords(&words(&key)), key);
    }
}

/// Before the bytes of an entry could exceed their 32 bits, its frames have to be counted.
#[test]
fn many_long_frames_have_to_be_counted() {
    let mut table = Plain::new(4, &FlowKey::FLOW, 1);
    assert!(table.put(&key(1), Mapped { port: 1, path: 5, half: 0 }).is_ok());
    let mut batch = Batch::default();
    assert!(batch.push(Frame::unbacked(60), key(1)).is_ok());
    let mut places = [0; LANES];
    assert_eq!(table.lookup(&batch, Lanes(1), &mut places), Lanes(1));
    let mut frames = 1;
    while !table.note(places[0], 0x1_0000, 7) {
        frames += 1;
    }
    assert_eq!(frames, MOST);
    // The other lanes of the batch are still noted for the entry.
    for _ in 1..LANES {
        assert!(table.note(places[0], 0x1_0000, 8));
    }
    let frames = MOST + LANES as u32 - 1;
    assert_eq!(take(&mut table, 1), BTreeMap::from([(5, (frames, frames << 16, 8))]));
}
