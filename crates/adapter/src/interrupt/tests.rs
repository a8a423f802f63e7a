//! The model against closed forms, within 1 %, and its invariants.

use flowyard_frame::Rng;
use proptest::prelude::*;

use super::*;

const MICRO: Nanos = 1000;

/// The interrupts a second and the mean wait in nanoseconds of `arrivals`.
fn run(mut vector: Vector, arrivals: impl Iterator<Item = (Nanos, bool)>) -> (f64, f64) {
    let (mut first, mut last) = (None, 0);
    for (now, low_latency) in arrivals {
        first.get_or_insert(now);
        last = now;
        vector.arrive(Arrival { now, bytes: 64, queue: 0, low_latency });
    }
    vector.finish();
    let seconds = (last - first.unwrap()) as f64 / 1e9;
    let waits = vector.waits()[0];
    (vector.interrupts() as f64 / seconds, waits.waited as f64 / waits.frames as f64)
}

fn fixed(interval: Nanos) -> Vector {
    Vector::new(Moderation::Fixed(interval), 1, None)
}

/// Frames at `every` nanoseconds.
fn constant(every: Nanos, frames: u64) -> impl Iterator<Item = (Nanos, bool)> {
    (0..frames).map(move |n| (n * every, false))
}

/// Frames of a Poisson process with `rate` a second, of which the share `low` asks for low latency.
fn poisson(rate: f64, low: f64, frames: u64) -> impl Iterator<Item = (Nanos, bool)> {
    let mut random = Rng::new(7);
    let mut now = 0.0;
    (0..frames).map(move |_| {
        let uniform = ((random.bits() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        now += -uniform.ln() / rate * 1e9;
        (now as Nanos, ((random.bits() >> 11) as f64) < low * (1_u64 << 53) as f64)
    })
}

fn close(found: f64, wanted: f64, what: &str) {
    assert!(
        (found - wanted).abs() <= 0.01 * wanted.abs() + 1e-9,
        "{what}: {found}, wanted {wanted}"
    );
}

/// Slower than the moderation: an interrupt for each frame, at once.
#[test]
fn slow_constant_arrivals() {
    let (rate, wait) = run(fixed(50 * MICRO), constant(60 * MICRO, 100_000));
    close(rate, 1e6 / 60.0, "rate");
    close(wait, 0.0, "wait");
}

/// The interval T is a multiple of the period d: 1/T interrupts, and waits of T-d, T-2d, ..., 0, hence (T-d)/2.
#[test]
fn fast_constant_arrivals_in_step() {
    for n in [2, 5, 50] {
        let (rate, wait) = run(fixed(50 * MICRO), constant(50 * MICRO / n, 200_000));
        close(rate, 20_000.0, "rate");
        close(wait, (50_000.0 - 50_000.0 / n as f64) / 2.0, "wait");
    }
}

/// The period divides the interval by no whole number: the waits are spread evenly over the interval, hence T/2.
#[test]
fn fast_constant_arrivals_out_of_step() {
    let (rate, wait) = run(fixed(50 * MICRO), constant(1237, 1_000_000));
    close(rate, 20_000.0, "rate");
    close(wait, 25_000.0, "wait");
}

/// Poisson arrivals of rate λ: a cycle is T, and with probability exp(-λT) also the time until the next arrival. Hence
/// 1 / (T + exp(-λT)/λ) interrupts, and a mean wait of λT²/2 for λT + exp(-λT) frames.
#[test]
fn poisson_arrivals() {
    for (rate, interval) in [
        (10_000.0, 50.0),
        (20_000.0, 50.0),
        (1_000_000.0, 50.0),
        (5_000.0, 84.0),
        (100_000.0, 2.048),
    ] {
        let nanos = interval * 1000.0;
        let (found, wait) = run(fixed(nanos as Nanos), poisson(rate, 0.0, 2_000_000));
        let (lambda, t): (f64, f64) = (rate / 1e9, nanos);
        let in_cycle = lambda * t + (-lambda * t).exp();
        close(found, rate / in_cycle, "rate");
        close(wait, lambda * t * t / 2.0 / in_cycle, "wait");
    }
}

/// Without moderation each frame has its interrupt.
#[test]
fn no_moderation() {
    let (found, wait) = run(fixed(0), poisson(50_000.0, 0.0, 500_000));
    close(found, 50_000.0, "rate");
    close(wait, 0.0, "wait");
}

/// A share p of Poisson arrivals asks for low latency (rate a = pλ, the others b): the time between interrupts is at least t
/// with probability exp(-at) up to T, and exp(-aT - bT - λ(t-T)) after. Its mean is (1-exp(-aT))/a + exp(-λT)/λ.
#[test]
fn low_latency_arrivals() {
    for share in [0.05, 0.5] {
        let (rate, t) = (100_000.0, 50e-6);
        let (found, _) = run(fixed(50 * MICRO), poisson(rate, share, 2_000_000));
        let (a, b) = (rate * share, rate * (1.0 - share));
        let cycle = (1.0 - (-a * t).exp()) / a + (-a * t - b * t).exp() / rate;
        close(found, 1.0 / cycle, "rate");
    }
    let (found, wait) = run(fixed(50 * MICRO), poisson(100_000.0, 1.0, 500_000));
    close(found, 100_000.0, "all low latency");
    close(wait, 0.0, "all low latency");
}

/// LLI moderation: with a credit in each millisecond, a stream of low-latency frames gets 1,000 additional interrupts a second.
#[test]
fn credits_limit_low_latency() {
    let mut vector = Vector::new(Moderation::Fixed(100 * MICRO), 1, Some(1000 * MICRO));
    for n in 0..1_000_000_u64 {
        vector.arrive(Arrival { now: n * MICRO, bytes: 64, queue: 0, low_latency: true });
    }
    vector.finish();
    close(vector.low_latency() as f64, 1031.0, "a credit a millisecond, and 31 at the start");
}

#[test]
fn eitr_has_nine_bits_of_two_microseconds() {
    assert_eq!([eitr_interval(0), eitr_interval(1), eitr_interval(5000)], [0, 2048, 4096]);
    assert_eq!(eitr_interval(10_000_000), 511 * 2048);
    // 956 to 488,281 interrupts a second.
    assert_eq!(
        [1_000_000_000 / eitr_interval(Nanos::MAX), 1_000_000_000 / EITR_UNIT],
        [955, 488_281]
    );
}

/// The adaptive moderation of ixgbe: few small frames get short waits, floods are bundled.
#[test]
fn ixgbe_adapts() {
    let adaptive = || Vector::new(Moderation::Ixgbe, 1, None);
    let (_, slow) = run(adaptive(), constant(1000 * MICRO, 10_000));
    close(slow, 0.0, "one frame a millisecond never waits");
    let (rate, wait) = run(adaptive(), constant(MICRO / 10, 2_000_000));
    assert!((9_000.0..150_000.0).contains(&rate) && wait < 84_000.0, "{rate} {wait}");
}

/// The driver writes microseconds in units of 2 us, and the adapter counts 2.048 us: 50 are 51.2, 10 are 10.24, 84 are 86.016.
#[test]
fn ixgbe_writes_units_of_two_microseconds() {
    let mut vector = Vector::new(Moderation::Ixgbe, 1, None);
    assert_eq!(vector.interval(), 51_200);
    vector.arrive(Arrival { now: 0, bytes: 60, queue: 0, low_latency: false });
    assert_eq!(vector.interval(), 10_240, "a single short frame");
    // A few long frames in each interval: the driver lengthens it up to its limit.
    for n in 1..1000 {
        let now = n * 5 * MICRO;
        vector.arrive(Arrival { now, bytes: 9000, queue: 0, low_latency: false });
    }
    assert_eq!(vector.interval(), 86_016);
}

/// DIM causes an interrupt when its profile's frames are there.
#[test]
fn dim_counts_frames() {
    let mut vector = Vector::new(Moderation::Dim(DimMode::Cqe), 1, None);
    for n in 0..2_000_000_u64 {
        vector.arrive(Arrival { now: n * 50, bytes: 64, queue: 0, low_latency: false });
    }
    vector.finish();
    assert!(vector.interrupts() >= 2_000_000 / 256, "{}", vector.interrupts());
    assert_eq!(vector.waits()[0].frames, 2_000_000);
}

proptest! {
    /// No frame waits longer than the interval, every frame is counted once, and interrupts keep their distance.
    #[test]
    fn waits_are_bounded(
        gaps in proptest::collection::vec((0_u64..200_000, 0_usize..3, any::<bool>()), 1..300),
        units in 0_u64..50,
        credits in proptest::option::of(1_u64..1_000_000),
    ) {
        let interval = units * EITR_UNIT;
        let mut vector = Vector::new(Moderation::Fixed(interval), 3, credits);
        let mut now = 0;
        for (gap, queue, low_latency) in &gaps {
            now += gap;
            vector.arrive(Arrival { now, bytes: 64, queue: *queue, low_latency: *low_latency });
        }
        vector.finish();
        let frames: u64 = vector.waits().iter().map(|waits| waits.frames).sum();
        prop_assert_eq!(frames, gaps.len() as u64);
        prop_assert!(vector.waits().iter().all(|waits| waits.longest <= interval));
        let most = now / interval.max(1) + 2 + vector.low_latency();
        prop_assert!(interval == 0 || vector.interrupts() <= most);
        prop_assert!(vector.interrupts() <= frames);
    }
}
