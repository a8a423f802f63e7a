//! Entries of the port mapping that are answered in front of the yard: which are put there, how they are counted, and
//! what ends them.

use std::collections::BTreeMap;
use std::sync::Mutex;

use flowyard_flow::parse;
use flowyard_frame::{Batch, FlowKey, Frame};
use flowyard_yard::front::{AFTER, Entry as Ahead, Front, Seen};

use super::*;
use crate::datapath::noted::QUIET;

/// A front that only keeps what it receives.
#[derive(Debug, Default)]
struct Book(Mutex<BTreeMap<u32, (Ahead, Seen)>>, Mutex<Vec<u32>>);

impl Book {
    /// Flow `flow` was answered.
    fn answers(&self, flow: u32, packets: u64, last: u64) {
        let mut all = self.0.lock().unwrap();
        let seen = &mut all.get_mut(&flow).unwrap().1;
        *seen = Seen { packets: seen.packets + packets, bytes: seen.bytes + 60 * packets, last };
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len() - self.1.lock().unwrap().len()
    }
}

impl Front for Book {
    fn reaches(&self, port: u16) -> bool {
        port < 3
    }

    fn put(&self, entries: &[Ahead], _now: u64) -> Option<u32> {
        let mut all = self.0.lock().unwrap();
        let number = all.len() as u32;
        all.insert(number, (entries[0], Seen::default()));
        Some(number)
    }

    fn remove(&self, flow: u32) {
        self.1.lock().unwrap().push(flow);
    }

    fn seen(&self, flow: u32, _entry: usize) -> Seen {
        self.0.lock().unwrap()[&flow].1
    }

    fn settle(&self) {}

    fn free(&self, _flow: u32) {}

    fn passed(&self, _port: u16, _core: u16) -> Option<u64> {
        None
    }

    fn time(&self) -> u64 {
        0
    }

    fn drained(&self, _time: u64) {}
}

/// Receives a frame of each source by port 1 until the mapping answers them.
fn learn(bed: &mut Bed, sources: &[u8]) {
    for _ in 0..3 {
        let mut batch = Batch::default();
        for src in sources {
            let bytes = udp(*src, 2, 9);
            let mut key = FlowKey::ZERO;
            assert!(parse::fast(&bytes, 0, &mut key));
            let mut frame = Frame::unbacked(bytes.len() as u16);
            frame.hash = 7 + u32::from(*src);
            batch.push(frame, key).unwrap();
        }
        let (lanes, place) = (batch.lanes(), |number: u32| u16::try_from(number - 1).ok());
        bed.datapath.front(&mut batch, lanes, Arrival::by(1), &place, 5);
        for _ in 0..=QUIET {
            bed.datapath.count_if_due(5);
        }
    }
}

fn bed() -> (Bed, Arc<Book>) {
    let (mut bed, book) = (Bed::new(&settings(Lookup::Merged, 64)), Arc::new(Book::default()));
    bed.datapath.set_front(Arc::clone(&book) as _);
    (bed, book)
}

#[test]
fn mapped_flows_go_in_front_and_are_counted_there() {
    let (mut bed, book) = bed();
    let flow = entry(1, 0, 5, &[Oxm::exact(Field::EthType, 0x800)], to(2));
    bed.apply(&Change::Flow(Arc::clone(&flow)));
    learn(&mut bed, &[1, 2]);
    assert_eq!((book.len(), bed.datapath.in_front()), (2, 2));
    learn(&mut bed, &[1, 2]);
    assert_eq!(book.len(), 2, "once each");
    let before = flow.counts[0].read();
    book.answers(0, 10, 77);
    book.answers(1, 5, 99);
    bed.datapath.look_ahead(100);
    bed.datapath.look_ahead(101);
    let after = flow.counts[0].read();
    assert_eq!((after.0 - before.0, after.1 - before.1, after.2), (15, 900, 99), "counted once");
    let moved: Vec<_> =
        bed.datapath.moved().iter().map(|m| (m.from, m.to, m.seen.packets)).collect();
    assert_eq!(moved, [(0, 1, 10), (0, 1, 5)]);
    assert!(bed.datapath.moved().is_empty());
}

#[test]
fn a_change_removes_what_it_affects_and_counts_it() {
    let (mut bed, book) = bed();
    let all = [Oxm::exact(Field::EthType, 0x800)];
    let of = |src: u128| [all[0], Oxm::exact(Field::Ipv4Src, 0x0a00_0000 + src)];
    let flow = entry(1, 0, 5, &of(1), to(2));
    bed.apply(&Change::Flow(Arc::clone(&flow)));
    bed.flow(2, 0, 5, &of(2), to(3));
    learn(&mut bed, &[1, 2]);
    assert_eq!(book.len(), 2);
    let before = flow.counts[0].read().0;
    book.answers(0, 7, 50);
    bed.apply(&Change::FlowGone(Arc::clone(&flow)));
    bed.datapath.ready();
    assert_eq!((book.len(), bed.datapath.in_front()), (1, 1), "the other flow stays");
    assert_eq!(
        flow.counts[0].read().0 - before,
        7,
        "what was answered before the change is counted"
    );
    // A frame that was on its way when its flow was removed is counted where it belongs.
    let ports: u64 = bed.datapath.moved().iter().map(|moved| moved.seen.packets).sum();
    book.answers(0, 1, 60);
    bed.datapath.look_ahead(5 + 2 * AFTER);
    assert_eq!(flow.counts[0].read().0 - before, 8);
    assert_eq!(ports + bed.datapath.moved().iter().map(|moved| moved.seen.packets).sum::<u64>(), 8);
    bed.port(3, 1, 0);
    bed.datapath.ready();
    assert_eq!((book.len(), bed.datapath.in_front()), (0, 0), "a port has changed");
}

#[test]
fn an_entry_that_answers_nothing_leaves_and_returns() {
    let (mut bed, book) = bed();
    bed.flow(1, 0, 5, &[Oxm::exact(Field::EthType, 0x800)], to(2));
    learn(&mut bed, &[1, 2]);
    let half_a_minute = 30_000_000_000;
    bed.datapath.look_ahead(half_a_minute);
    book.answers(0, 1, half_a_minute);
    bed.datapath.look_ahead(half_a_minute + 1000);
    assert_eq!((book.len(), bed.datapath.in_front()), (1, 1), "the other one was idle");
    learn(&mut bed, &[1, 2]);
    assert_eq!((book.len(), bed.datapath.in_front()), (2, 2));
}

#[test]
fn the_last_frame_of_a_flow_is_not_older_than_one_that_was_counted_before() {
    let (mut bed, book) = bed();
    let flow = entry(1, 0, 5, &[Oxm::exact(Field::EthType, 0x800)], to(2));
    bed.apply(&Change::Flow(Arc::clone(&flow)));
    learn(&mut bed, &[1, 2]);
    book.answers(0, 1, 90);
    bed.datapath.look_ahead(100);
    book.answers(1, 1, 80);
    bed.datapath.look_ahead(101);
    assert_eq!(flow.counts[0].read().2, 90);
}

#[test]
fn flows_that_other_fields_distinguish_stay_in_the_yard() {
    let (mut bed, book) = bed();
    let all = Oxm::exact(Field::EthType, 0x800);
    bed.flow(1, 0, 5, &[all], to(2));
    bed.flow(2, 0, 6, &[all, Oxm::exact(Field::IpDscp, 8)], to(3));
    learn(&mut bed, &[1, 2]);
    assert_eq!(book.len(), 0);
    let (mut bed, book) = self::bed();
    bed.flow(1, 0, 5, &[all], to(4));
    learn(&mut bed, &[1]);
    assert_eq!(book.len(), 0, "the port is not reached");
}
