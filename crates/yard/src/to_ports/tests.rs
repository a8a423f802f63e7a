use std::sync::atomic::AtomicBool;

use flowyard_frame::FlowKey;
use flowyard_queue::model::Model;

use super::*;
use crate::places::{Full, Place};
use flowyard_pool::Meta;

/// Three ports, the tx queue of port 1 with room for two frames; a queue of each order that
/// completes into them.
struct Yard {
    places: Arc<Places>,
    to_ports: ToPorts,
    board: Arc<Board>,
    pool: Pool,
}

fn yard(buffers: usize) -> Yard {
    let place = |name: &str, queue| Place {
        name: name.into(),
        queue,
        full: Full::Hold,
        consumers: vec![0],
        fan: None,
        numbered: None,
    };
    let port = |window| place("p", flowyard_queue::new(Order::Direct, 1, window));
    let orders = [Order::Direct, Order::Unordered, Order::Ordered, Order::Atomic];
    let fast = orders.map(|order| place("q", flowyard_queue::new(order, 2, 64)));
    let slow = orders.map(|order| place("m", Box::new(Model::new(order, 2, 64)) as _));
    let places = Arc::new(Places {
        queues: fast.into_iter().chain(slow).collect(),
        ports: vec![port(64), port(2), port(64)],
        lists: vec![vec![1, 2], vec![0, 2], vec![0, 1], vec![2], vec![0, 1, 2]],
        copies: true,
        overloaded: Vec::new(),
        over: AtomicBool::new(false),
    });
    let (pool, board) = (Pool::new(buffers, 64), Arc::<Board>::default());
    let to_ports = ToPorts::new(Arc::clone(&places), 0, pool.share(), Arc::clone(&board));
    Yard { places, to_ports, board, pool }
}

impl Yard {
    fn frame(&mut self, batch: &mut Batch, number: u8, to: To) {
        let frame = self.pool.copy(&[number; 40], Meta { time: 5, ..Meta::default() }).unwrap();
        let lane = batch.push(frame, FlowKey { sport: number.into(), ..FlowKey::ZERO }).unwrap();
        batch.frames[lane].hash = 77;
        batch.actions[lane] = Action { to, counter: 0, mark: 3 };
    }

    /// Copies, and those for which there was no buffer.
    fn copies(&self) -> (u64, u64) {
        let (copies, failed) = self.to_ports.copies();
        (copies, failed.get(DropReason::NoBuffer))
    }

    /// The numbers of up to 32 frames that wait in the tx queue of `port`, which are then gone.
    fn sent(&mut self, port: u16) -> Vec<u8> {
        let mut batch = Batch::default();
        let queue = &self.places.ports[usize::from(port)].queue;
        queue.dequeue(0, &mut batch);
        let mut numbers = Vec::new();
        for lane in batch.lanes() {
            let (frame, key) = (&batch.frames[lane], self.pool.key(&batch, lane));
            let (bytes, meta) = (self.pool.bytes(frame), self.pool.meta(frame));
            assert_eq!(bytes, [key.sport as u8; 40], "bytes and key are the original's");
            assert_eq!((frame.hash, meta.time, meta.copied), (77, 5, 0));
            assert_eq!(batch.actions[lane], Action { to: To::Port(port), counter: 0, mark: 3 });
            numbers.push(bytes[0]);
            batch.actions[lane].to = To::DROP;
        }
        queue.complete(0, &mut batch, &self.to_ports, &mut Forget(&mut self.pool));
        numbers
    }
}

struct Forget<'a>(&'a mut Pool);

impl Sink for Forget<'_> {
    fn drop(&mut self, frame: flowyard_frame::Frame, _to: To) {
        self.0.put(frame);
    }
}

#[test]
fn copies_stand_in_the_place_of_their_original() {
    let mut yard = yard(256);
    let mut batch = Batch::default();
    let all = [To::Port(2), To::Ports(1), To::Port(2), To::Ports(3), To::Port(0), To::Ports(1)];
    for (number, to) in (0..).zip(all) {
        yard.frame(&mut batch, number, to);
    }
    let lanes = batch.lanes();
    assert_eq!(yard.to_ports.enqueue(&mut batch, lanes), Lanes::NONE);
    assert!(batch.frames.iter().all(|frame| frame.buf() == 0), "all handles are taken");
    assert_eq!(yard.sent(2), [0, 1, 2, 3, 5]);
    assert_eq!(yard.sent(0), [1, 4, 5]);
    assert_eq!((yard.copies(), yard.board.copies()), ((2, 0), 2));
    assert!(yard.sent(1).is_empty());
}

/// A tx queue that is full stops a frame half way: it goes on where it was, and nothing comes twice
/// or overtakes it, whatever queue it came through.
#[test]
fn a_full_port_is_waited_for_by_every_order() {
    for queue in 0..8 {
        let mut yard = yard(256);
        let places = Arc::clone(&yard.places);
        let place = &places.queues[queue];
        let queue = &place.queue;
        let mut batch = Batch::default();
        for number in 0..6 {
            let list = To::Ports([2, 0, 4][usize::from(number) % 3]); // port 1 last, first, between
            yard.frame(&mut batch, number, list);
        }
        let lanes = batch.lanes();
        assert_eq!(place.enqueue(0, &yard.pool, &mut batch, lanes), Lanes::NONE);
        batch.set_len(0);
        queue.dequeue(0, &mut batch);
        assert_eq!(batch.len(), 6);
        queue.complete(0, &mut batch, &yard.to_ports, &mut Forget(&mut yard.pool));
        let (mut first, mut middle, mut last) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..10 {
            first.extend(yard.sent(0));
            last.extend(yard.sent(2));
            for _ in 0..2 {
                queue.flush(&yard.to_ports); // the second finds it full still
            }
            let two = yard.sent(1);
            assert!(two.len() <= 2);
            middle.extend(two);
        }
        let order = queue.order();
        if order == Order::Unordered {
            [&mut first, &mut middle, &mut last].into_iter().for_each(|sent| sent.sort_unstable());
        }
        assert_eq!((&first[..], &last[..]), (&[0, 2, 3, 5][..], &[1, 2, 4, 5][..]), "{order:?}");
        assert_eq!(middle, [0, 1, 2, 3, 4, 5], "{order:?}");
        assert_eq!((yard.copies(), yard.board.copies()), ((8, 0), 8), "{order:?}");
        let Yard { to_ports, pool, .. } = yard;
        drop(to_ports);
        assert_eq!(pool.held(), 0, "{order:?}");
    }
}

#[test]
fn without_a_buffer_only_the_copy_is_lost() {
    let mut yard = yard(2);
    let mut batch = Batch::default();
    yard.frame(&mut batch, 1, To::Ports(1));
    yard.frame(&mut batch, 2, To::Ports(1));
    let lanes = batch.lanes();
    assert_eq!(yard.to_ports.enqueue(&mut batch, lanes), Lanes::NONE);
    assert_eq!((yard.sent(0), yard.sent(2)), (vec![], vec![1, 2]));
    assert_eq!((yard.copies(), yard.board.copies()), ((2, 2), 2));
}

/// Frames that no queue ever carried have no keys in the pool. Those that wait for a port do.
#[test]
fn frames_of_a_batch_opened_at_once_keep_their_keys_when_they_wait() {
    let mut yard = yard(256);
    let places = Arc::clone(&yard.places);
    let queue = &places.queues[0].queue;
    let mut batch = Batch::default();
    // Port 1, also of the first list, has room for two frames.
    let ports = [1, 1, 1, 0, 2].map(To::Port);
    for (number, to) in (1..).zip(ports.into_iter().chain([To::Ports(0), To::Port(0)])) {
        yard.frame(&mut batch, number, to);
    }
    assert!(queue.open_at_once(0, batch.len()));
    queue.complete(0, &mut batch, &yard.to_ports, &mut Forget(&mut yard.pool));
    // `sent` compares the keys.
    assert_eq!((yard.sent(1), yard.sent(0)), (vec![1, 2], vec![]));
    assert_eq!(queue.flush(&yard.to_ports), 5);
    assert_eq!((yard.sent(1), yard.sent(0), yard.sent(2)), (vec![3, 6], vec![4, 7], vec![5, 6]));
}

/// The buffer of a frame that a work cut to nothing is not lost, whether the frame goes on or is dropped.
#[test]
fn a_frame_without_bytes_keeps_its_buffer() {
    for queue in 0..8 {
        let mut yard = yard(8);
        let places = Arc::clone(&yard.places);
        let place = &places.queues[queue];
        let mut batch = Batch::default();
        (0..3).for_each(|number| yard.frame(&mut batch, number, To::Port(0)));
        let lanes = batch.lanes();
        assert_eq!(place.enqueue(0, &yard.pool, &mut batch, lanes), Lanes::NONE);
        batch.set_len(0);
        place.queue.dequeue(0, &mut batch);
        [0, 1].into_iter().for_each(|lane| yard.pool.set_len(&mut batch.frames[lane], 0));
        batch.actions[1].to = To::DROP;
        place.queue.complete(0, &mut batch, &yard.to_ports, &mut Forget(&mut yard.pool));
        let order = place.queue.order();
        assert_eq!(yard.pool.held(), 2, "{order:?}: one is dropped");
        places.ports[0].queue.dequeue(0, &mut batch);
        let lengths: Vec<_> = batch.frames[..batch.len()].iter().map(Frame::len).collect();
        assert_eq!(lengths, [0, 40], "{order:?}");
        batch.lanes().for_each(|lane| batch.actions[lane].to = To::DROP);
        let port = &places.ports[0].queue;
        port.complete(0, &mut batch, &yard.to_ports, &mut Forget(&mut yard.pool));
        assert_eq!(yard.pool.held(), 0, "{order:?}");
    }
}

/// Frames that are missing in a chain count as copies and as drops with the reason of the work, once.
#[test]
fn what_is_missing_in_a_chain_is_counted_by_its_reason() {
    let mut yard = yard(256);
    let mut batch = Batch::default();
    for number in 0..4 {
        yard.frame(&mut batch, number, To::CHAIN);
        let other = yard.pool.copy(&[9; 40], Meta { time: 5, ..Meta::default() }).unwrap();
        yard.pool.tie(&mut batch.frames[usize::from(number)], other, 0);
        let missing = (u16::from(number), DropReason::SaExpired.code());
        yard.pool.set_last(&mut batch.frames[usize::from(number)], 1, missing);
    }
    let lanes = batch.lanes();
    // Port 1 has room for two frames: the others wait, with their counts.
    let mut left = yard.to_ports.enqueue(&mut batch, lanes);
    assert_eq!(left.count(), 2);
    let mut rounds = 0;
    while !left.is_empty() {
        assert_eq!(yard.sent(1).len(), 2);
        left = yard.to_ports.enqueue(&mut batch, left);
        rounds += 1;
    }
    assert_eq!(rounds, 1);
    let (copies, failed) = yard.to_ports.copies();
    assert_eq!((copies, failed.total(), failed.get(DropReason::SaExpired)), (4 + 6, 6, 6));
}

#[test]
fn a_list_of_nobody_is_no_exit() {
    let yard = yard(2);
    let exits = [To::Port(2), To::Port(3), To::Ports(3), To::Ports(5), To::Queue(0), To::DROP];
    let is = exits.map(|to| yard.places.is_exit(to));
    assert_eq!(is, [true, false, true, false, false, false]);
}
