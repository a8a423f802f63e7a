//! The cost of the queues, compared with simple alternatives.
//!
//! ```text
//! cargo bench -p flowyard-queue             everything, about a minute
//! cargo bench -p flowyard-queue -- t2       only rows whose name contains "t2"
//!
//!  t1    one thread: enqueue, dequeue, complete to a direct queue, dequeue that, complete
//!  t2    first core: enqueue, and the direct queue's consumer; second core: the worker
//!  work  t1 with 2,600 cycles of work per frame, against two workers on two cores
//! ```
//!
//! The machine may be busy, so the alternatives are measured in rounds, each once in a round. Printed are
//! the median rate and the median of the ratios within a round.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use flowyard_frame::{Action, Batch, Frame, LANES, Lanes, To};
use flowyard_queue::model::Model;
use flowyard_queue::{Open, Order, Queue, Sink};

/// As many frames as a DPDK event device has in flight in the usual tests.
const WINDOW: usize = 2048;

/// Drops frames, like a port that has sent them.
struct Gone(u64);

impl Sink for Gone {
    fn drop(&mut self, frame: Frame, _: To) {
        self.0 += 1;
        black_box(frame);
    }
}

/// The simple alternative: a channel of boxed batches; a second channel returns the boxes. It has no
/// tickets, so it corresponds to a direct queue, and would reorder with two workers.
struct Channel {
    full: (Sender<Box<Batch>>, Receiver<Box<Batch>>),
    empty: (Sender<Box<Batch>>, Receiver<Box<Batch>>),
}

impl Channel {
    fn new() -> Self {
        let boxes = WINDOW / LANES;
        let (full, empty) = (bounded(boxes), bounded(boxes));
        for _ in 0..boxes {
            empty.0.send(Box::default()).expect("the channel has a place for every box");
        }
        Self { full, empty }
    }
}

impl Queue for Channel {
    fn enqueue(&self, from: &mut Batch, lanes: Lanes) -> Lanes {
        let Ok(mut boxed) = self.empty.1.try_recv() else { return lanes };
        for lane in lanes {
            let frame = std::mem::take(&mut from.frames[lane]);
            let to = boxed.push(frame, from.keys[lane]).expect("an empty batch");
            boxed.actions[to] = from.actions[lane];
        }
        self.full.0.send(boxed).expect("the channel has a place for every box");
        Lanes::NONE
    }

    fn dequeue(&self, _: u16, into: &mut Batch) {
        if let Ok(mut boxed) = self.full.1.try_recv() {
            std::mem::swap(&mut *boxed, into);
            self.empty.0.send(boxed).expect("the channel has a place for every box");
        }
    }

    fn complete(&self, _: u16, from: &mut Batch, next: &dyn Queue, dropped: &mut dyn Sink) {
        let mut left = Lanes::NONE;
        for lane in from.lanes() {
            if from.actions[lane].to.is_drop() {
                dropped.drop(std::mem::take(&mut from.frames[lane]), To::DROP);
            } else {
                left = left.with(lane);
            }
        }
        while !left.is_empty() {
            left = next.enqueue(from, left);
        }
        from.set_len(0);
    }

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
        1
    }
}

/// The queue that is measured, and the direct queue behind it.
struct Pair {
    name: &'static str,
    make: fn() -> Made,
}

type Made = (Box<dyn Queue>, Box<dyn Queue>);

fn ours(order: Order) -> Made {
    (flowyard_queue::new(order, 2, WINDOW), flowyard_queue::new(Order::Direct, 1, WINDOW))
}

fn model(order: Order) -> Made {
    (Box::new(Model::new(order, 2, WINDOW)), Box::new(Model::new(Order::Direct, 1, WINDOW)))
}

const PAIRS: [Pair; 7] = [
    Pair { name: "ordered", make: || ours(Order::Ordered) },
    Pair { name: "atomic", make: || ours(Order::Atomic) },
    Pair { name: "atomic, many flows", make: || ours(Order::Atomic) },
    Pair { name: "unordered", make: || ours(Order::Unordered) },
    Pair { name: "direct", make: || ours(Order::Direct) },
    Pair {
        name: "channel of batches",
        make: || (Box::new(Channel::new()), Box::new(Channel::new())),
    },
    Pair { name: "mutex model, ordered", make: || model(Order::Ordered) },
];

/// Makes frames of one flow, or of many.
struct Source {
    batch: Batch,
    number: u32,
    many: bool,
    burst: usize,
}

impl Source {
    fn new(burst: usize, many: bool) -> Self {
        let key = "udp 10.0.0.1:1000 > 10.0.0.2:2000".parse().expect("a flow");
        let mut batch = Batch::default();
        for _ in 0..burst {
            batch.push(Frame::unbacked(60), key).expect("the batch has free lanes");
        }
        Self { batch, number: 0, many, burst }
    }

    /// Offers one burst; returns whether all of it was taken. Refused frames are made again next time.
    fn offer(&mut self, queue: &dyn Queue) -> bool {
        for lane in 0..self.burst {
            let mut frame = Frame::unbacked(60);
            frame.mark = self.number.wrapping_add(lane as u32);
            frame.hash = if self.many { frame.mark & 255 } else { 1 };
            self.batch.frames[lane] = frame;
            self.batch.keys[lane].in_port = 1;
            self.batch.actions[lane] = Action::queue(1);
        }
        let left = queue.enqueue(&mut self.batch, Lanes::first(self.burst));
        self.number = self.number.wrapping_add(self.burst as u32 - left.count());
        left.is_empty()
    }
}

/// The consumer of the direct queue: checks the order of all frames and drops them.
struct Drain {
    batch: Batch,
    gone: Gone,
    last: u32,
    misordered: u64,
}

impl Drain {
    fn new() -> Self {
        Self { batch: Batch::default(), gone: Gone(0), last: u32::MAX, misordered: 0 }
    }

    fn take(&mut self, queue: &dyn Queue) -> u64 {
        queue.dequeue(0, &mut self.batch);
        let taken = self.batch.len();
        for lane in 0..taken {
            let number = self.batch.frames[lane].mark;
            self.misordered += u64::from(number != self.last.wrapping_add(1));
            self.last = number;
            self.batch.actions[lane].to = To::DROP;
        }
        if taken > 0 {
            queue.complete(0, &mut self.batch, queue, &mut self.gone);
        }
        taken as u64
    }
}

/// Instead of turns: work for a microsecond by the clock, as in published tests of event devices.
const BY_CLOCK: u64 = u64::MAX;

/// A worker that spends a number of cycles on each frame.
struct Worker {
    core: u16,
    batch: Batch,
    /// Turns of a loop per frame.
    turns: u64,
    turned: u64,
}

impl Worker {
    fn new(core: u16, turns: u64) -> Self {
        Self { core, batch: Batch::default(), turns, turned: 1 }
    }

    fn burn(&mut self, turns: u64) {
        for _ in 0..turns {
            self.turned = black_box(self.turned.wrapping_mul(6_364_136_223_846_793_005) ^ 1);
        }
    }

    fn tick(&mut self, queue: &dyn Queue, next: &dyn Queue) -> usize {
        queue.dequeue(self.core, &mut self.batch);
        let taken = self.batch.len();
        if taken == 0 {
            queue.flush(next);
            return 0;
        }
        if self.turns == BY_CLOCK {
            for _ in 0..taken {
                let start = Instant::now();
                while start.elapsed() < Duration::from_micros(1) {}
            }
        } else {
            self.burn(taken as u64 * self.turns);
        }
        queue.complete(self.core, &mut self.batch, next, &mut Gone(0));
        taken
    }
}

/// The time that a thread has waited for a processor, in nanoseconds; 0 if Linux does not report it.
fn waited(thread: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{thread}/schedstat")).unwrap_or_default();
    text.split(' ').nth(1).and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

fn this_thread() -> String {
    let link = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    link.to_string_lossy().into_owned()
}

fn pin(core: usize) {
    // Queried once, by the main thread: a pinned thread sees only its own core.
    static CORES: OnceLock<Vec<core_affinity::CoreId>> = OnceLock::new();
    let cores = CORES.get_or_init(|| core_affinity::get_core_ids().unwrap_or_default());
    if let Some(id) = cores.get(core) {
        core_affinity::set_for_current(*id);
    }
}

/// How one round is run.
#[derive(Clone, Copy)]
struct Run {
    burst: usize,
    /// Whether a thread on the second core works.
    second: bool,
    /// Whether the first core works.
    first: bool,
    turns: u64,
}

const LENGTH: Duration = Duration::from_millis(25);

/// The rate through the pair in million frames per second, from the try of up to ten in which the threads
/// waited least for a processor; and whether they waited for less than 3 % of the time.
fn measure(pair: &Pair, run: Run) -> (f64, bool) {
    let mut best = (f64::MAX, 0.0);
    for _ in 0..10 {
        let (rate, lost) = once(pair, run);
        if lost < best.0 {
            best = (lost, rate);
        }
        if lost < 0.03 {
            break;
        }
    }
    (best.1, best.0 < 0.03)
}

/// One try: the rate, and the share of the time that a thread waited for its processor.
fn once(pair: &Pair, run: Run) -> (f64, f64) {
    let (queue, next) = (pair.make)();
    let (queue, next) = (&*queue, &*next);
    let mut source = Source::new(run.burst, pair.name.contains("many"));
    let (mut drain, mut own) = (Drain::new(), Worker::new(0, run.turns));
    let (stop, ready, lost) =
        (AtomicBool::new(false), AtomicBool::new(!run.second), AtomicU64::new(0));
    let (frames, elapsed, waited_here) = std::thread::scope(|scope| {
        let worker = run.second.then(|| {
            scope.spawn(|| {
                pin(1);
                let me = this_thread();
                let mut worker = Worker::new(1, run.turns);
                let before = waited(&me);
                ready.store(true, Relaxed);
                while !stop.load(Relaxed) {
                    if worker.tick(queue, next) == 0 {
                        std::hint::spin_loop();
                    }
                }
                lost.store(waited(&me) - before, Relaxed);
            })
        });
        let me = this_thread();
        while !ready.load(Relaxed) {
            std::thread::yield_now();
        }
        let (mut frames, before, start) = (0, waited(&me), Instant::now());
        while start.elapsed() < LENGTH {
            for _ in 0..if run.turns > 0 { 1 } else { 64 } {
                // With work, fill the queue: one burst is too little for two workers.
                while source.offer(queue) && run.turns > 0 {}
                if run.first {
                    while own.tick(queue, next) == LANES && !run.second {}
                }
                // Take everything that both workers completed.
                loop {
                    let taken = drain.take(next);
                    frames += taken;
                    if taken < LANES as u64 || run.turns == 0 {
                        break;
                    }
                }
            }
        }
        let elapsed = start.elapsed();
        let waited_here = waited(&me) - before;
        stop.store(true, Relaxed);
        // The channel's worker may wait for space.
        while worker.as_ref().is_some_and(|worker| !worker.is_finished()) {
            drain.take(next);
        }
        (frames, elapsed, waited_here)
    });
    let ordered = queue.order() == Order::Ordered || !pair.name.contains("many") && !run.first;
    assert!(!ordered || pair.name.contains("unordered") || drain.misordered == 0, "misordered");
    let share = (waited_here.max(lost.load(Relaxed))) as f64 / elapsed.as_nanos() as f64;
    (frames as f64 / elapsed.as_secs_f64() / 1e6, share)
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// The turns of the workers' loop that take a microsecond, or 2,600 cycles of a 2.6 GHz processor.
fn turns_per_us() -> u64 {
    let one = |turns: u64| {
        let mut worker = Worker::new(0, turns);
        let start = Instant::now();
        worker.burn(turns);
        start.elapsed().as_nanos() as f64 / turns as f64
    };
    (1000.0 / median((0..21).map(|_| one(20_000)).collect())) as u64
}

fn table(title: &str, run: Run, rounds: usize, filter: &str) {
    if !title.contains(filter) {
        return;
    }
    let mut rates = vec![Vec::new(); PAIRS.len()];
    let mut busy = 0;
    for _ in 0..rounds {
        for (pair, rates) in PAIRS.iter().zip(&mut rates) {
            let (rate, quiet) = measure(pair, run);
            rates.push(rate);
            busy += usize::from(!quiet);
        }
    }
    println!("{title}: million frames per second; ratio to the channel; ratio to the model");
    let ratio = |i: usize, to: usize| {
        median(rates[i].iter().zip(&rates[to]).map(|(rate, to)| rate / to).collect())
    };
    for (i, pair) in PAIRS.iter().enumerate() {
        let (channel, model) = (ratio(i, PAIRS.len() - 2), ratio(i, PAIRS.len() - 1));
        println!("  {:22} {:8.2} {channel:7.2} {model:7.2}", pair.name, median(rates[i].clone()));
    }
    if busy > 0 {
        println!("  {busy} of {} windows were disturbed", rounds * PAIRS.len());
    }
}

/// The speed-up of two cores without a queue between them, which is less than 2 if they are two hardware
/// threads of one core.
fn bound(turns: u64) -> f64 {
    let rate = || {
        let (mut worker, mut frames, start) = (Worker::new(0, turns), 0, Instant::now());
        while start.elapsed() < LENGTH {
            worker.burn(turns);
            frames += 1;
        }
        f64::from(frames) / start.elapsed().as_secs_f64()
    };
    median(
        (0..7)
            .map(|_| {
                let alone = rate();
                let both = std::thread::scope(|scope| {
                    let other = scope.spawn(|| {
                        pin(1);
                        rate()
                    });
                    rate() + other.join().unwrap_or(0.0)
                });
                both / alone
            })
            .collect(),
    )
}

/// Two workers on two cores against one core that does everything, with a microsecond of work per frame.
fn speed_up(rounds: usize, turns: u64, filter: &str) {
    let title = match turns {
        BY_CLOCK => "work by the clock, 2,600 cycles per frame; bound 2".to_string(),
        _ => format!("work by instructions, 2,600 cycles per frame; bound {:.2}", bound(turns)),
    };
    if !title.contains(filter) {
        return;
    }
    println!("{title}: one core, two workers (M frames/s), speed-up");
    for pair in PAIRS.iter().filter(|pair| !pair.name.contains("channel")) {
        let alone = Run { burst: LANES, second: false, first: true, turns };
        let both = Run { second: true, ..alone };
        let mut rows = (Vec::new(), Vec::new(), Vec::new());
        let mut busy = 0;
        for _ in 0..rounds {
            let (one, two) = (measure(pair, alone), measure(pair, both));
            busy += usize::from(!one.1) + usize::from(!two.1);
            rows.0.push(one.0);
            rows.1.push(two.0);
            rows.2.push(two.0 / one.0);
        }
        let (one, two, ratio) = (median(rows.0), median(rows.1), median(rows.2));
        println!("  {:22} {one:6.3} {two:6.3} {ratio:6.2}   ({busy} disturbed)", pair.name);
    }
}

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let filter = args.next().unwrap_or_default();
    let rounds = args.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(7);
    pin(0);
    for burst in [32, 8, 1] {
        let run = Run { burst, second: false, first: true, turns: 0 };
        table(&format!("t1 burst {burst}"), run, rounds, &filter);
        let run = Run { second: true, first: false, ..run };
        table(&format!("t2 burst {burst}"), run, rounds, &filter);
    }
    speed_up(rounds, BY_CLOCK, &filter);
    speed_up(rounds, turns_per_us(), &filter);
}
