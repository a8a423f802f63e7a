//! Both directions of a ring against simple models.

use std::collections::VecDeque;

use flowyard_vhost::guest::{Agreed, Buffer, Device, DriverRing, Ram};
use flowyard_vhost::{Got, Sent};
use proptest::prelude::*;

/// Entries of split rings.
const SIZE: u16 = 16;
/// Entries of packed rings, which need no power of two.
const PACKED: u16 = 13;

fn agreed() -> impl Strategy<Value = Agreed> {
    any::<[bool; 5]>().prop_map(|[mergeable, modern, indirect, event_index, packed]| Agreed {
        mergeable,
        modern,
        indirect,
        event_index,
        packed,
    })
}

const fn size(agreed: Agreed) -> u16 {
    if agreed.packed { PACKED } else { SIZE }
}

/// Chains that a device has used; of a packed ring, descriptors.
#[derive(Default)]
struct Used {
    /// In this step.
    now: usize,
    /// In the step before.
    before: usize,
    /// Since the device was last asked whether the driver wants a call.
    pending: usize,
}

impl Used {
    fn step(&mut self, agreed: Agreed, chains: usize, slots: usize) {
        self.before = std::mem::replace(&mut self.now, if agreed.packed { slots } else { chains });
        self.pending += self.now;
    }

    /// Whether the driver wants a call, if it asked for one after `more` in this step.
    fn is_called(&mut self, agreed: Agreed, more: Option<u16>) -> bool {
        let pending = std::mem::take(&mut self.pending);
        // Whatever place the driver has named, a whole lap has passed it.
        let is_lap = agreed.packed && pending >= PACKED.into();
        // The driver names the next place when it takes what was used. A packed ring can also ask for calls about everything.
        let is_named = agreed.event_index && (more.is_some() || !agreed.packed || self.before > 0);
        pending > 0
            && match more {
                Some(_) if !agreed.event_index => false,
                _ if is_named => is_lap || self.now > more.unwrap_or(0).into(),
                _ => true,
            }
    }
}

/// The addresses of a ring's parts in the front end.
fn parts(ram: &Ram, ring: &DriverRing) -> [u64; 3] {
    ring.parts().map(|part| ram.user(part))
}

/// Lengths of buffers, and a frame to cut into them.
fn lengths() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0_usize..120, 1..5)
}

proptest! {
    /// What the guest transmits: each frame comes whole, in order, once, however its bytes are cut into
    /// buffers, also where these lie in two regions of memory.
    #[test]
    fn frames_of_the_guest_arrive_in_order(
        agreed in agreed(),
        steps in prop::collection::vec((lengths(), any::<bool>(), 0_usize..4, 40_usize..200, prop::option::of(0_u16..4), any::<bool>(), any::<bool>()), 1..120),
    ) {
        let mut ram = Ram::new(2 * 4096 * 16, 2);
        let size = size(agreed);
        let mut ring = DriverRing::new(&mut ram, size, agreed);
        let open = |ram: &Ram, ring: &DriverRing| Device::new(ram).receiver(size.into(), parts(ram, ring), agreed).unwrap();
        let mut device = open(&ram, &ring);
        // Buffers around the border of the two regions.
        let place = 4096 * 16 - 4000;
        let mut model = VecDeque::new();
        let (mut number, mut at) = (0_u8, place);
        let mut used = Used::default();
        for (cuts, in_table, reads, room, more, restarts, asks) in steps {
            if restarts {
                used.pending = 0;
                // As after the process was killed: another device continues where this one ended.
                device = open(&ram, &ring);
            }
            let total: usize = cuts.iter().sum();
            let table = ram_table(number);
            let mut buffers = Vec::new();
            for len in &cuts {
                at = if at + len > place + 7900 { place } else { at };
                buffers.push(Buffer { at, len: *len, is_for_writing: false });
                at += len;
            }
            let bytes: Vec<u8> = (0..total).map(|byte| (byte as u8).wrapping_mul(3).wrapping_add(number)).collect();
            let is_indirect = in_table && agreed.indirect;
            let slots = if is_indirect { 1 } else { cuts.len() };
            let fits = ring.free() >= slots;
            // No buffer of a frame that waits is overwritten: at most 16 frames of 480 bytes wait.
            if total >= agreed.header() && model.len() < 12 {
                fill(&ram, &buffers, &bytes);
                let head = ring.add(&ram, &buffers, is_indirect.then_some(table));
                prop_assert_eq!(head.is_some(), fits);
                if let Some(head) = head {
                    model.push_back((head, bytes[agreed.header()..].to_vec(), slots));
                    number = number.wrapping_add(1);
                }
            }
            prop_assert!(!ring.wants_kick(&ram) || agreed.event_index && !agreed.packed, "this side polls");
            let waiting = model.iter().map(|(_, _, slots)| if agreed.packed { *slots } else { 1 });
            prop_assert_eq!(usize::from(device.begin().unwrap()), waiting.sum::<usize>());
            if let Some(more) = more {
                ring.delay_calls(&ram, more);
            }
            let mut taken = Vec::new();
            let mut slots = 0;
            let mut to = vec![0; room];
            for _ in 0..reads {
                let got = device.read(&mut to).unwrap();
                let Some((head, frame, count)) = model.pop_front() else {
                    prop_assert_eq!(got, None);
                    break;
                };
                taken.push(head);
                slots += count;
                prop_assert_eq!(ring.used(&ram), None, "nothing is shown before the end of a burst");
                let wanted = got_of(frame.len(), room);
                prop_assert_eq!(got, Some(wanted));
                if wanted == Got::Frame(frame.len()) {
                    prop_assert_eq!(&to[..frame.len()], &frame[..]);
                }
            }
            device.finish();
            used.step(agreed, taken.len(), slots);
            if asks {
                prop_assert_eq!(device.wants_call(), used.is_called(agreed, more));
            }
            ring.allow_calls(&ram);
            for head in taken {
                prop_assert_eq!(ring.used(&ram), Some((head, 0)));
            }
            prop_assert_eq!(ring.used(&ram), None);
        }
    }

    /// What the guest receives: each frame is written behind a header into the buffers that came first, over
    /// as many chains as it needs, or is refused for the right reason and takes none.
    #[test]
    fn frames_for_the_guest_fill_its_buffers(
        agreed in agreed(),
        steps in prop::collection::vec((prop::collection::vec((lengths(), any::<bool>()), 0..3), prop::collection::vec(1_usize..600, 0..4), prop::option::of(0_u16..4), (any::<bool>(), any::<bool>(), 0_u16..12)), 1..60),
    ) {
        let mut ram = Ram::new(2 * 4096 * 16, 2);
        let size = size(agreed);
        let mut ring = DriverRing::new(&mut ram, size, agreed);
        let open = |ram: &Ram, ring: &DriverRing| Device::new(ram).sender(size.into(), parts(ram, ring), agreed).unwrap();
        let mut device = open(&ram, &ring);
        let place = 4096 * 16 - 6000;
        let (mut number, mut at) = (0_u8, place);
        let mut model: VecDeque<Waiting> = VecDeque::new();
        let mut all_used = Used::default();
        for (chains, frames, more, (restarts, asks, wanted)) in steps {
            if restarts {
                all_used.pending = 0;
                device = open(&ram, &ring);
            }
            for (cuts, in_table) in chains {
                let mut buffers = Vec::new();
                for len in cuts {
                    at = if at + len > place + 12_000 { place } else { at };
                    buffers.push(Buffer { at, len, is_for_writing: true });
                    at += len;
                }
                number = number.wrapping_add(1);
                let table = (in_table && agreed.indirect).then_some(ram_table(number));
                if let Some(head) = ring.add(&ram, &buffers, table) {
                    let slots = if table.is_some() { 1 } else { buffers.len() };
                    model.push_back((head, buffers, slots));
                }
            }
            let (known, there) = (usize::from(device.begin(wanted).unwrap()), ahead(&model, agreed));
            prop_assert!(known == there || known < there && known >= wanted.into(), "{} of {}", known, there);
            if let Some(more) = more {
                ring.delay_calls(&ram, more);
            }
            let mut written = Vec::new();
            for len in frames {
                number = number.wrapping_add(1);
                let frame: Vec<u8> = (0..len).map(|byte| (byte as u8) ^ number).collect();
                let total = agreed.header() + len;
                let (wanted, needed) = fate(&model, agreed, total);
                let mut sent = device.write(&frame).unwrap();
                if sent == Sent::Full && wanted != Sent::Full {
                    // All entries that were known are used. The next look finds those behind them.
                    prop_assert!(device.begin(1).unwrap() > 0);
                    sent = device.write(&frame).unwrap();
                }
                prop_assert_eq!(sent, wanted);
                if wanted == Sent::Done {
                    let mut header = vec![0; agreed.header()];
                    if header.len() == 12 {
                        header[10] = needed as u8;
                    }
                    let used: Vec<_> = model.drain(..needed).collect();
                    written.push((used, [header, frame].concat()));
                }
            }
            device.finish();
            let all = || written.iter().flat_map(|(chains, _)| chains);
            all_used.step(agreed, all().count(), all().map(|chain| chain.2).sum());
            if asks {
                prop_assert_eq!(device.wants_call(), all_used.is_called(agreed, more));
            }
            ring.allow_calls(&ram);
            for (chains, bytes) in written {
                has_received(&ram, &mut ring, &chains, &bytes);
            }
            prop_assert_eq!(ring.used(&ram), None);
        }
    }
}

/// A chain that waits in a ring for the guest: its name, its buffers, and the descriptors of the ring in it.
type Waiting = (u16, Vec<Buffer>, usize);

/// The driver writes `bytes` into `buffers`, which are as long.
fn fill(ram: &Ram, buffers: &[Buffer], mut bytes: &[u8]) {
    for buffer in buffers {
        let (now, later) = bytes.split_at(buffer.len);
        ram.write(buffer.at, now);
        bytes = later;
    }
}

/// What the device sees ahead: chains, or descriptors of a packed ring.
fn ahead(model: &VecDeque<Waiting>, agreed: Agreed) -> usize {
    model.iter().map(|chain| if agreed.packed { chain.2 } else { 1 }).sum()
}

/// What becomes of a frame of `len` bytes.
const fn got_of(len: usize, room: usize) -> Got {
    match len {
        0 => Got::Empty,
        _ if len <= room => Got::Frame(len),
        _ => Got::TooLong,
    }
}

fn room(buffers: &[Buffer]) -> usize {
    buffers.iter().map(|buffer| buffer.len).sum()
}

/// What becomes of a frame of `total` bytes with its header, and how many chains it needs.
fn fate(model: &VecDeque<Waiting>, agreed: Agreed, total: usize) -> (Sent, usize) {
    let (mut needed, mut sum) = (0, 0);
    while sum < total && needed < model.len() && (needed == 0 || agreed.mergeable) {
        sum += room(&model[needed].1);
        needed += 1;
    }
    let may_come = agreed.mergeable && ahead(model, agreed) < usize::from(size(agreed));
    let sent = match (sum >= total, model.is_empty() || may_come) {
        (true, _) => Sent::Done,
        (false, true) => Sent::Full,
        (false, false) => Sent::TooLong,
    };
    (sent, needed)
}

/// The driver gets these chains back, with `bytes` in their buffers.
fn has_received(ram: &Ram, ring: &mut DriverRing, chains: &[Waiting], bytes: &[u8]) {
    let mut rest = bytes;
    for (head, buffers, _) in chains {
        assert_eq!(ring.used(ram), Some((*head, room(buffers).min(rest.len()))));
        for buffer in buffers {
            let (now, later) = rest.split_at(rest.len().min(buffer.len));
            let mut there = vec![0; now.len()];
            ram.read(buffer.at, &mut there);
            assert_eq!(there, now);
            rest = later;
        }
    }
    assert!(rest.is_empty());
}

/// The position of an indirect table, which no other frame that waits uses.
fn ram_table(number: u8) -> usize {
    8192 + usize::from(number) * 80
}
