//! Queues over an event device: the model of DLB 2.0, which also refuses events, and gives some a second time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use flowyard_frame::{Batch, FlowKey, Frame, LANES, Lanes, To};
use flowyard_queue::dlb::Limits;
use flowyard_queue::events::{Layout, make};
use flowyard_queue::{Open, Order, Queue, Queues, Sink, Wanted};
use flowyard_testkit::{Checker, Rng};

use crate::common::{Pile, frame, number};
use crate::twin::Twin;

/// The tx queues as the queue behind all others.
struct Ports<'a>(&'a [Box<dyn Queue>]);

impl Queue for Ports<'_> {
    fn device_queue(&self, core: u16, from: &Batch, lane: usize) -> Option<u8> {
        let To::Port(port) = from.actions[lane].to else { return None };
        self.0[usize::from(port)].device_queue(core, from, lane)
    }

    fn enqueue(&self, _: &mut Batch, lanes: Lanes) -> Lanes {
        lanes
    }

    fn dequeue(&self, _: u16, _: &mut Batch) {}

    fn complete(&self, _: u16, _: &mut Batch, _: &dyn Queue, _: &mut dyn Sink) {}

    fn flush(&self, _: &dyn Queue) -> usize {
        0
    }

    fn open(&self, _: u16) -> Option<Open> {
        None
    }

    fn release(&self, _: u16) -> usize {
        0
    }

    fn tail(&self) -> u64 {
        0
    }

    fn head(&self) -> u64 {
        0
    }

    fn order(&self) -> Order {
        Order::Direct
    }

    fn consumers(&self) -> u16 {
        0
    }
}

const CORES: u16 = 3;
const FLOWS: u64 = 12;

/// A queue of this order for all cores, a direct queue of core 1, and two tx queues.
fn wanted(order: Order, window: usize) -> Vec<Wanted> {
    let queue = |order, consumers: &[u16], is_tx| Wanted {
        order,
        consumers: consumers.to_vec(),
        window,
        priority: 0,
        is_tx,
    };
    vec![
        queue(order, &[0, 1, 2], false),
        queue(Order::Direct, &[1], false),
        queue(Order::Direct, &[0], true),
        queue(Order::Direct, &[2], true),
    ]
}

fn twin(order: Order, (window, events): (usize, usize), seed: u64, faults: u64) -> Queues {
    make(CORES, &wanted(order, window), |layout| {
        Ok((Twin::new(layout, Limits::DLB2, seed, faults), events))
    })
    .unwrap()
}

/// A yard over the model: what the cores have in hand, and what is expected of the frames.
struct Rig {
    made: Queues,
    /// By core: its open batch, and the queue that it is of.
    open: Vec<(usize, Batch)>,
    /// By tx queue.
    leaving: Vec<Batch>,
    checker: Checker,
    dropped: u64,
    /// By flow: the frames that entered.
    entered: HashMap<u64, u32>,
    /// A core that died; core 0 then serves the direct queue.
    dead: Option<u16>,
}

impl Rig {
    fn new(made: Queues, order: Order) -> Self {
        let checker = if order == Order::Unordered { Checker::any_order() } else { Checker::new() };
        let open = (0..CORES).map(|_| (0, Batch::default())).collect();
        let leaving = vec![Batch::default(), Batch::default()];
        Self { made, open, leaving, checker, dropped: 0, entered: HashMap::new(), dead: None }
    }

    /// Core `core` enqueues frames of its flows, each of which has a queue.
    fn enter(&mut self, core: u16, rng: &mut Rng) {
        let queue = rng.below(2) as usize;
        let mut batch = Batch::default();
        let before = self.made.queues[queue].tail();
        let mut numbers = Vec::new();
        for _ in 0..=rng.below(LANES as u64 - 1) {
            let flow = 1 + rng.below(FLOWS) * 6 + u64::from(core) * 2 + queue as u64;
            let lane = batch.push(frame(0, flow as u32), FlowKey::ZERO).unwrap();
            batch.actions[lane].to = To::Queue(queue as u16);
            numbers.push(flow);
        }
        let all = batch.lanes();
        // The numbers are given to those that enter: a refused lane refuses all later ones.
        let mut later = HashMap::new();
        for lane in all {
            let ahead = later.entry(numbers[lane]).or_insert(0);
            let entered = self.entered.get(&numbers[lane]).copied().unwrap_or(0);
            batch.frames[lane].mark = entered + *ahead;
            *ahead += 1;
        }
        let refused = self.made.queues[queue].enqueue_from(core, &mut batch, all);
        let taken = all.without(refused);
        assert_eq!(taken, Lanes::first(taken.count() as usize), "the first ones");
        taken.for_each(|lane| {
            self.checker.enter(numbers[lane]);
            *self.entered.entry(numbers[lane]).or_default() += 1;
        });
        assert!(refused.into_iter().all(|lane| !batch.frames[lane].is_empty()));
        assert!(self.made.queues[queue].tail() - before >= u64::from(taken.count()));
    }

    fn serve(&mut self, core: u16, rng: &mut Rng) {
        let (queue, batch) = &mut self.open[usize::from(core)];
        if batch.is_empty() {
            let serves =
                if core == 1 || core == 0 && self.dead.is_some() { [1, 0] } else { [0, 0] };
            for at in serves {
                *queue = at;
                self.made.queues[at].dequeue(core, batch);
                if !batch.is_empty() {
                    break;
                }
            }
        }
        if batch.is_empty() || rng.below(3) == 0 {
            return; // late
        }
        for lane in batch.lanes() {
            let flow = batch.frames[lane].hash;
            batch.actions[lane].to = match rng.below(9) {
                0 => To::Drop(1),
                _ => To::Port((flow / 2 % 2) as u16),
            };
        }
        let mut pile = Pile::default();
        let tx = Ports(&self.made.queues[2..]);
        self.made.queues[*queue].complete(core, batch, &tx, &mut pile);
        assert!(batch.is_empty());
        self.drop(&pile);
    }

    fn drop(&mut self, pile: &Pile) {
        for _ in &pile.0 {
            self.checker.drop("dropped");
            self.dropped += 1;
        }
    }

    fn transmit(&mut self, port: usize) {
        let queue = &self.made.queues[2 + port];
        let batch = &mut self.leaving[port];
        queue.dequeue(if port == 0 { 0 } else { 2 }, batch);
        for lane in batch.lanes() {
            let frame = &batch.frames[lane];
            assert_eq!(batch.actions[lane].to, To::Port(port as u16));
            self.checker.leave(frame.hash.into(), frame.mark.into());
            batch.actions[lane].to = To::SENT;
        }
        let mut pile = Pile::default();
        queue.complete(0, batch, &Ports(&[]), &mut pile);
    }

    fn tick(&mut self, core: u16, rng: &mut Rng) {
        if self.dead == Some(core) {
            return;
        }
        if let Some(service) = &self.made.service {
            service.run(core);
        }
        let tx = Ports(&self.made.queues[2..]);
        self.made.queues[0].flush(&tx);
        self.made.queues[1].flush(&tx);
        self.serve(core, rng);
        match core {
            0 => self.transmit(0),
            2 => self.transmit(1),
            _ => {}
        }
    }

    fn inside(&self) -> u64 {
        self.made.queues.iter().map(|queue| queue.len() as u64).sum()
    }

    fn finish(mut self, seed: u64) {
        let mut rng = Rng::new(seed);
        for round in 0.. {
            (0..CORES).for_each(|core| self.tick(core, &mut rng));
            if self.inside() == 0 && self.open.iter().all(|(_, batch)| batch.is_empty()) {
                break;
            }
            assert!(round < 20_000, "stuck with {} frames", self.inside());
        }
        for queue in &self.made.queues {
            assert_eq!((queue.head(), queue.holder()), (queue.tail(), None));
        }
        self.checker.finish(0).unwrap();
    }
}

#[test]
fn frames_keep_their_order_and_none_is_lost() {
    for seed in 0..20 {
        for order in [Order::Direct, Order::Unordered, Order::Ordered, Order::Atomic] {
            for (window, events, faults) in [(256, 2048, 0), (64, 40, 0), (100, 512, 5)] {
                let made = twin(order, (window, events), seed, faults);
                let mut rig = Rig::new(made, order);
                let mut rng = Rng::new(seed);
                for _ in 0..300 {
                    let core = rng.below(u64::from(CORES)) as u16;
                    rig.enter(core, &mut rng);
                    rig.tick(rng.below(u64::from(CORES)) as u16, &mut rng);
                }
                assert!(rig.dropped > 0);
                rig.finish(seed);
            }
        }
    }
}

/// A core dies with a batch, and with events at its port that it has not taken: another core takes its port over.
#[test]
fn the_frames_of_a_dead_core_are_released() {
    for seed in 0..20 {
        for order in [Order::Unordered, Order::Ordered, Order::Atomic] {
            let mut rig = Rig::new(twin(order, (256, 1024), seed, 0), order);
            let mut rng = Rng::new(seed);
            for step in 0..300 {
                let core = rng.below(u64::from(CORES)) as u16;
                rig.enter(core, &mut rng);
                rig.tick(rng.below(u64::from(CORES)) as u16, &mut rng);
                if step == 150 {
                    let dead = 1;
                    rig.dead = Some(dead);
                    let tx = Ports(&rig.made.queues[2..]);
                    let (queue, batch) = &mut rig.open[usize::from(dead)];
                    let frames = batch.len();
                    batch.lanes().for_each(|lane| batch.actions[lane].to = To::Drop(9));
                    let mut pile = Pile::default();
                    if rng.below(2) == 0 {
                        rig.made.queues[*queue].complete(dead, batch, &tx, &mut pile);
                    }
                    let mut late = rig.made.queues[0].release(dead);
                    late += rig.made.queues[1].release(dead);
                    if !batch.is_empty() {
                        assert_eq!(late, frames, "the open batch is given up");
                        rig.made.queues[*queue].complete(dead, batch, &tx, &mut pile);
                    }
                    assert_eq!(pile.0.len(), frames);
                    rig.drop(&pile);
                }
            }
            rig.finish(seed);
        }
    }
}

/// A frame whose bytes a worker removed still names a buffer: it goes on, or it is dropped.
#[test]
#[expect(unsafe_code, reason = "a frame without a pool")]
fn a_frame_without_bytes_is_not_lost() {
    let made = twin(Order::Ordered, (64, 256), 1, 0);
    let run = || (0..CORES).for_each(|core| _ = made.service.as_ref().unwrap().run(core));
    let (direct, tx) = (&made.queues[1], Ports(&made.queues[2..]));
    let mut batch = Batch::default();
    (0..2).for_each(|number| assert!(batch.push(frame(number, 1), FlowKey::ZERO).is_ok()));
    assert_eq!(direct.enqueue_from(0, &mut batch, Lanes::first(2)), Lanes::NONE);
    batch.set_len(0);
    run();
    direct.dequeue(1, &mut batch);
    assert_eq!(batch.len(), 2);
    for lane in batch.lanes() {
        // SAFETY: no pool has these buffers, and nothing reads them.
        batch.frames[lane] = unsafe { Frame::from_raw_parts(1 + lane as u32, 64, 0) };
        batch.actions[lane].to = [To::Port(0), To::DROP][lane];
    }
    let mut pile = Pile::default();
    direct.complete(1, &mut batch, &tx, &mut pile);
    assert_eq!(pile.0.iter().map(|(frame, _)| frame.buf()).collect::<Vec<_>>(), [2]);
    run();
    made.queues[2].dequeue(0, &mut batch);
    assert_eq!((batch.len(), batch.frames[0].buf()), (1, 1));
}

/// Core 1 dies while the ports of all cores always have events. Core 0 takes its port over, and serves both in turn.
#[test]
fn the_port_of_a_dead_core_is_served_under_full_load() {
    // An ordered queue is to be full by the limit of a port, not by its window.
    let limits = Limits { window: 4096, ..Limits::DLB2 };
    for order in [Order::Unordered, Order::Ordered, Order::Atomic] {
        let device = |layout: &Layout| Ok((Twin::new(layout, limits, 1, 0), 4096));
        let made = make(CORES, &wanted(order, 4096), device).unwrap();
        let (queue, tx) = (&made.queues[0], Ports(&made.queues[2..]));
        let mut entered = 0;
        let mut fill = || {
            let mut batch = Batch::default();
            for _ in 0..LANES {
                // Each frame is a flow of its own, so that an atomic queue gives some to each core.
                batch.push(frame(entered, entered), FlowKey::ZERO).unwrap();
                entered += 1;
            }
            let all = batch.lanes();
            assert!(queue.enqueue_from(2, &mut batch, all).is_empty());
            made.service.iter().for_each(|service| {
                service.run(0);
            });
        };
        (0..10).for_each(|_| fill());
        assert_eq!(queue.release(1), 0, "it had no batch open");
        // The first frames are at the ports of the three cores, a third at each, and core 2 takes none.
        let mut first = Vec::new();
        for round in 0..10 {
            fill();
            let (mut batch, mut pile) = (Batch::default(), Pile::default());
            queue.dequeue(0, &mut batch);
            assert_eq!(batch.len(), LANES, "{order:?}, round {round}: core 0 always has events");
            let mut second = Batch::default();
            queue.dequeue(0, &mut second);
            assert!(second.is_empty(), "{order:?}: a core has one open batch");
            batch.lanes().for_each(|lane| batch.actions[lane].to = To::DROP);
            queue.complete(0, &mut batch, &tx, &mut pile);
            let is_first = |(frame, _): &&(_, To)| number(frame) < 3 * LANES as u32;
            first.push(pile.0.iter().filter(is_first).count());
        }
        assert_eq!(first[..2], [LANES; 2], "{order:?}: both ports in turn");
        assert_eq!(first[2..], [0; 8], "{order:?}");
    }
}

/// All slots are free again when all frames have left, and a full device refuses.
#[test]
fn a_full_device_refuses_and_recovers() {
    let made = twin(Order::Atomic, (1024, 100), 1, 0);
    let tx = Ports(&made.queues[2..]);
    for round in 0..5 {
        let mut entered = 0;
        loop {
            let mut batch = Batch::default();
            (0..LANES as u32).for_each(|lane| {
                batch.push(frame(lane, lane), FlowKey::ZERO).unwrap();
            });
            let all = batch.lanes();
            let taken = all.without(made.queues[0].enqueue_from(2, &mut batch, all));
            entered += taken.count();
            if taken != all {
                break;
            }
        }
        assert_eq!(entered, 100, "round {round}");
        assert_eq!(made.queues[0].len(), 100);
        let (mut batch, mut pile) = (Batch::default(), Pile::default());
        for _ in 0..100 {
            (0..CORES).for_each(|core| {
                made.service.iter().for_each(|service| {
                    service.run(core);
                });
                made.queues[0].dequeue(core, &mut batch);
                batch.lanes().for_each(|lane| batch.actions[lane].to = To::DROP);
                made.queues[0].complete(core, &mut batch, &tx, &mut pile);
            });
        }
        assert_eq!((pile.0.len(), made.queues[0].len()), (100, 0));
    }
}

/// On threads: flows of an ordered and of an atomic queue leave in order.
#[test]
fn threads_share_a_device() {
    for order in [Order::Ordered, Order::Atomic] {
        let made = twin(order, (256, 1024), 3, 0);
        let frames = if cfg!(miri) { 100 } else { 3_000 };
        let left = AtomicU64::new(0);
        let stop = AtomicBool::new(false);
        let core = |core: u16| {
            let (mut batch, mut pile) = (Batch::default(), Pile::default());
            let mut leaving = Batch::default();
            let (mut made_frames, mut seen) = (0, HashMap::new());
            let mut waiting = Batch::default();
            while !stop.load(SeqCst) {
                made.service.iter().for_each(|service| {
                    service.run(core);
                });
                if waiting.frames.iter().all(flowyard_frame::Frame::is_empty)
                    && made_frames < frames
                {
                    waiting.set_len(0);
                    for _ in 0..LANES {
                        let flow = u32::from(core) * 8 + made_frames % 8;
                        waiting.push(frame(made_frames, flow + 1), FlowKey::ZERO).unwrap();
                        made_frames += 1;
                    }
                }
                let lanes = waiting.lanes().filter(|&lane| !waiting.frames[lane].is_empty());
                let lanes = lanes.fold(Lanes::NONE, Lanes::with);
                made.queues[0].enqueue_from(core, &mut waiting, lanes);
                let tx = Ports(&made.queues[2..]);
                made.queues[0].flush(&tx);
                made.queues[0].dequeue(core, &mut batch);
                batch.lanes().for_each(|lane| {
                    batch.actions[lane].to = To::Port((batch.frames[lane].hash % 2) as u16);
                });
                made.queues[0].complete(core, &mut batch, &tx, &mut pile);
                let port = match core {
                    0 => 2,
                    2 => 3,
                    _ => continue,
                };
                made.queues[port].dequeue(core, &mut leaving);
                for lane in leaving.lanes() {
                    let frame = &leaving.frames[lane];
                    let before = seen.insert(frame.hash, frame.mark);
                    assert!(before.is_none_or(|before| before < frame.mark), "in order");
                    leaving.actions[lane].to = To::SENT;
                }
                let count = leaving.len() as u64;
                made.queues[port].complete(core, &mut leaving, &tx, &mut pile);
                left.fetch_add(count, SeqCst);
            }
        };
        let all = u64::from(frames.next_multiple_of(LANES as u32)) * u64::from(CORES);
        std::thread::scope(|scope| {
            let core = &core;
            (0..CORES).for_each(|id| {
                scope.spawn(move || core(id));
            });
            while left.load(SeqCst) < all {
                std::thread::yield_now();
            }
            stop.store(true, SeqCst);
        });
        assert!(made.queues.iter().all(|queue| queue.is_empty()));
    }
}
