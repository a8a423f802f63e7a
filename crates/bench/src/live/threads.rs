//! The cost of putting a thread to sleep and waking it, with both CPUs busy.
//!
//! Pairs of real-time threads pass a token to and fro over eventfds. There are more pairs than CPUs, so that
//! no CPU is idle, and the cost of a pass is the CPU time of both CPUs divided by the number of passes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread;

use flowyard_yard::Clock;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;

use super::priority::hurry;

/// Pairs of threads per CPU.
const PAIRS: usize = 6;
/// Nanoseconds of a run.
const TIME: u64 = 20_000_000;
const RUNS: usize = 5;

fn write(fd: &OwnedFd) -> anyhow::Result<()> {
    rustix::io::write(fd, &1u64.to_ne_bytes())?;
    Ok(())
}

fn read(fd: &OwnedFd) -> anyhow::Result<()> {
    rustix::io::read(fd, &mut [0; 8])?;
    Ok(())
}

/// Nanoseconds of CPU time per pass. The two threads of a pair share a CPU if `near`.
fn pass(clock: &Clock, near: bool) -> anyhow::Result<f64> {
    let (passes, barrier) = (AtomicU64::new(0), Barrier::new(4 * PAIRS));
    let end = OnceLock::new(); // common to all: a thread that ended earlier would leave its partner waiting
    thread::scope(|scope| {
        let mut all = Vec::new();
        for n in 0..2 * PAIRS {
            let ends = [eventfd(0, EventfdFlags::CLOEXEC)?, eventfd(0, EventfdFlags::CLOEXEC)?];
            let ends = std::sync::Arc::new(ends);
            for side in 0..2 {
                let (ends, end, passes, barrier) = (ends.clone(), &end, &passes, &barrier);
                let cpu = if near { n % 2 } else { (n + side) % 2 };
                all.push(scope.spawn(move || -> anyhow::Result<()> {
                    let ready = hurry(cpu);
                    barrier.wait();
                    ready?;
                    let end = *end.get_or_init(|| clock() + TIME);
                    let mut own = 0;
                    if side == 0 {
                        write(&ends[0])?;
                    }
                    loop {
                        read(&ends[1 - side])?;
                        write(&ends[side])?;
                        own += 1;
                        if clock() > end {
                            break;
                        }
                    }
                    // The partner may be waiting again: wake it, so that it sees that the time is over.
                    write(&ends[side])?;
                    passes.fetch_add(own, Ordering::Relaxed);
                    Ok(())
                }));
            }
        }
        for thread in all {
            thread.join().map_err(|_| anyhow::anyhow!("a measuring thread panicked"))??;
        }
        anyhow::Ok(())
    })?;
    Ok(2.0 * TIME as f64 / (passes.into_inner() as f64).max(1.0))
}

/// Nanoseconds of a context switch between two threads on one CPU, neither of which sleeps.
fn switch(clock: &Clock) -> anyhow::Result<f64> {
    let barrier = Barrier::new(2);
    let run = || -> anyhow::Result<f64> {
        let ready = hurry(1);
        barrier.wait();
        ready?;
        let (end, began, mut yields) = (clock() + TIME / 4, clock(), 0u64);
        while clock() < end {
            for _ in 0..16 {
                rustix::thread::sched_yield();
            }
            yields += 16;
        }
        // Both threads count their own yields in the same time.
        Ok((clock() - began) as f64 / (2 * yields) as f64)
    };
    thread::scope(|scope| {
        let threads = [scope.spawn(run), scope.spawn(run)];
        let mut least = f64::MAX;
        for thread in threads {
            least = thread
                .join()
                .map_err(|_| anyhow::anyhow!("a measuring thread panicked"))??
                .min(least);
        }
        Ok(least)
    })
}

/// Nanoseconds of a write that wakes no thread and a read that does not wait.
fn alone(clock: &Clock) -> anyhow::Result<f64> {
    let fd = eventfd(0, EventfdFlags::CLOEXEC)?;
    let (began, times) = (clock(), 2000);
    for _ in 0..times {
        write(&fd)?;
        read(&fd)?;
        std::hint::black_box(clock()); // as in a pass
    }
    Ok((clock() - began) as f64 / f64::from(times))
}

/// Sleep and wake-up on the same CPU, the same between two CPUs, and a context switch, in nanoseconds.
pub(crate) fn measure(clock: &Clock, syscall_ns: f64) -> anyhow::Result<[f64; 3]> {
    let runs = |what: &dyn Fn() -> anyhow::Result<f64>| -> anyhow::Result<f64> {
        (0..RUNS).try_fold(f64::MAX, |least, _| Ok(least.min(what()?))) // other load only adds time
    };
    let alone = runs(&|| alone(clock))?;
    let switch = (runs(&|| switch(clock))? - syscall_ns).max(0.0);
    let wake =
        |near| Ok::<_, anyhow::Error>((runs(&|| pass(clock, near))? - alone - switch).max(0.0));
    Ok([wake(true)?, wake(false)?, switch])
}
