//! Micro-benchmarks of one operation each. Results are nanoseconds per operation.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use anyhow::Context;
use flowyard_yard::Clock;
use rustix::thread::{CpuSet, sched_setaffinity};

const TIMES: u32 = 10_000;

/// Operations between two readings of the clock.
const RUN: u32 = 100;

/// Nanoseconds per operation, in the fastest of `TIMES / RUN` runs: other load can only add time.
fn each(clock: &Clock, mut what: impl FnMut()) -> f64 {
    let mut least = f64::MAX;
    for _ in 0..TIMES / RUN {
        let began = clock();
        for _ in 0..RUN {
            what();
        }
        least = least.min(clock().saturating_sub(began) as f64 / f64::from(RUN));
    }
    least
}

pub(super) fn clock(clock: &Clock) -> f64 {
    each(clock, || _ = std::hint::black_box(clock()))
}

pub(super) fn syscall(clock: &Clock) -> f64 {
    each(clock, || _ = std::hint::black_box(rustix::process::getppid()))
}

/// Pins the calling thread to `cpu`.
fn pin(cpu: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("cannot pin a thread to CPU {cpu}"))
}

/// Transfer of a cache line from one CPU to another.
pub(super) fn line(clock: &Clock) -> anyhow::Result<f64> {
    let ball = AtomicU32::new(0);
    thread::scope(|scope| {
        let other = scope.spawn(|| -> anyhow::Result<()> {
            pin(1)?;
            for turn in 0..TIMES {
                wait(&ball, 2 * turn + 1);
                ball.store(2 * turn + 2, Ordering::Release);
            }
            Ok(())
        });
        // Not on the calling thread, whose CPU affinity must not change.
        let own = scope.spawn(|| -> anyhow::Result<f64> {
            pin(0)?;
            let mut turn = 0;
            Ok(each(clock, || {
                ball.store(2 * turn + 1, Ordering::Release);
                turn += 1;
                wait(&ball, 2 * turn);
            }) / 2.0)
        });
        let (own, other) = (own.join(), other.join());
        let panicked = |_| anyhow::anyhow!("a measuring thread panicked");
        other.map_err(panicked)??;
        own.map_err(panicked)?
    })
}

/// Waits for a value. Yields now and then, in case both threads share a CPU.
fn wait(ball: &AtomicU32, value: u32) {
    let mut spins = 0u32;
    while ball.load(Ordering::Acquire) != value {
        spins += 1;
        if spins > 100_000 {
            thread::yield_now();
        }
        std::hint::spin_loop();
    }
}

/// Wake-up of one thread by another over a pipe; on another CPU if `far`.
pub(super) fn wake(clock: &Clock, far: bool) -> anyhow::Result<f64> {
    let (there_read, there_write) = rustix::pipe::pipe()?;
    let (back_read, back_write) = rustix::pipe::pipe()?;
    thread::scope(|scope| {
        let other = scope.spawn(move || -> anyhow::Result<()> {
            pin(usize::from(far))?;
            let mut byte = [0];
            // Returns 0 when the other end is closed.
            while rustix::io::read(&there_read, &mut byte)? == 1 {
                rustix::io::write(&back_write, &byte)?;
            }
            Ok(())
        });
        let own = scope.spawn(move || -> anyhow::Result<f64> {
            pin(0)?;
            let mut byte = [0];
            let mut failed = None;
            let ns = each(clock, || {
                let turn = rustix::io::write(&there_write, &byte)
                    .and_then(|_| rustix::io::read(&back_read, &mut byte));
                failed = turn.err().or(failed);
            });
            failed.map_or(Ok(ns / 2.0), |error| Err(error.into()))
        });
        let (own, other) = (own.join(), other.join());
        let panicked = |_| anyhow::anyhow!("a measuring thread panicked");
        other.map_err(panicked)??;
        own.map_err(panicked)?
    })
}

/// Steps of a spin, each of which needs the result of the one before.
const STEPS: u32 = 50_000;

/// Spins of one look, of which the fastest counts: an interrupt can only add time.
const SPINS: u32 = 7;

/// Nanoseconds that a processor spins before, so that it leaves the speed of an idle one.
const WARM: u64 = 20_000_000;

/// Nanoseconds of a spin of known length on `cpu`.
pub(super) fn spin(clock: &Clock, cpu: usize) -> anyhow::Result<f64> {
    thread::scope(|scope| {
        let own = scope.spawn(move || -> anyhow::Result<f64> {
            pin(cpu)?;
            let mut state = 1u64;
            let mut once = || {
                let began = clock();
                for _ in 0..STEPS {
                    state = std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005) ^ 1);
                }
                clock().saturating_sub(began) as f64
            };
            let began = clock();
            while clock().saturating_sub(began) < WARM {
                once();
            }
            Ok((0..SPINS).map(|_| once()).fold(f64::MAX, f64::min))
        });
        own.join().map_err(|_| anyhow::anyhow!("a measuring thread panicked"))?
    })
}
