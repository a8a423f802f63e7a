//! The cost of putting a thread to sleep and waking it, with both CPUs busy, and how long a thread runs while another waits.
//!
//! Pairs of threads pass a token to and fro over eventfds. There are more pairs than CPUs, so that no CPU is idle, and
//! the cost of a pass is the CPU time of both CPUs divided by the number of passes. Threads are real-time threads
//! (SCHED_FIFO), or ordinary ones (SCHED_OTHER), whose scheduler has more to do.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread;

use anyhow::Context;
use flowyard_yard::Clock;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::time::{ClockId, clock_gettime};

use super::priority::{hurry, keep};
use crate::stats::median;

/// How the measured threads are scheduled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Policy {
    /// As real-time threads, each until it sleeps.
    Fifo,
    /// As ordinary threads.
    Fair,
}

impl Policy {
    /// Pins the calling thread to `cpu`, and schedules it so.
    fn begin(self, cpu: usize) -> anyhow::Result<()> {
        match self {
            Self::Fifo => hurry(cpu),
            Self::Fair => keep(cpu),
        }
    }
}

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
fn pass(clock: &Clock, policy: Policy, near: bool) -> anyhow::Result<f64> {
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
                    let ready = policy.begin(cpu);
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

/// How often the calling thread has been switched from while it could have gone on.
fn switches() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/thread-self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    Ok(line.context("/proc/thread-self/status has no context switches")?.trim().parse()?)
}

/// Nanoseconds of a context switch between two threads on one CPU, neither of which sleeps.
fn switch(clock: &Clock, policy: Policy, syscall_ns: f64) -> anyhow::Result<f64> {
    let barrier = Barrier::new(2);
    let run = || -> anyhow::Result<[f64; 3]> {
        let ready = policy.begin(1);
        let before = switches();
        barrier.wait();
        ready?;
        let (end, began, mut yields) = (clock() + TIME / 4, clock(), 0u64);
        while clock() < end {
            for _ in 0..16 {
                rustix::thread::sched_yield();
            }
            yields += 16;
        }
        let ns = (clock() - began) as f64;
        // A thread of its own policy may go on after it has yielded.
        Ok([ns, yields as f64, (switches()? - before?) as f64])
    };
    thread::scope(|scope| {
        let threads = [scope.spawn(run), scope.spawn(run)];
        let mut all = [0.0; 3];
        for thread in threads {
            let one =
                thread.join().map_err(|_| anyhow::anyhow!("a measuring thread panicked"))??;
            all.iter_mut().zip(one).for_each(|(all, one)| *all += one);
        }
        // Both threads count their own yields in the same time.
        let [ns, yields, switches] = all;
        Ok(((ns / 2.0 - yields * syscall_ns) / switches.max(1.0)).max(0.0))
    })
}

/// Nanoseconds for which an ordinary thread runs while another waits for its CPU: two threads that never sleep look for
/// gaps in their time.
pub(crate) fn slice(clock: &Clock) -> anyhow::Result<f64> {
    /// Shorter gaps are interrupts.
    const LEAST: u64 = 200_000;
    let barrier = Barrier::new(2);
    let run = || -> anyhow::Result<Vec<f64>> {
        let ready = keep(1);
        barrier.wait();
        ready?;
        let (mut last, mut gaps) = (clock(), Vec::new());
        let end = last + 5 * TIME;
        while last < end {
            let now = clock();
            if now - last > LEAST {
                gaps.push((now - last) as f64);
            }
            last = now;
        }
        Ok(gaps)
    };
    thread::scope(|scope| {
        let threads = [scope.spawn(run), scope.spawn(run)];
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| anyhow::anyhow!("a measuring thread panicked"))??);
        }
        anyhow::ensure!(!all.is_empty(), "two threads did not share a CPU");
        Ok(median(&mut all))
    })
}

/// Nanoseconds of a `ppoll` on an epoll set that has no event: without waiting, and with a wait that a timer ends. The
/// second is what an ordinary thread that never sleeps misses, without `switch_ns` for each of the two switches.
pub(crate) fn polls(clock: &Clock, clock_ns: f64, switch_ns: f64) -> anyhow::Result<[f64; 2]> {
    const POLLS: u32 = 100;
    /// Longer than a wait costs.
    const WAIT: i64 = 100_000;
    /// Shorter gaps are the clock.
    const GAP: u64 = 400;
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let (is_ready, is_over) = (Barrier::new(2), AtomicBool::new(false));
    let sleeper = || -> anyhow::Result<f64> {
        let ready = hurry(1);
        let slack = rustix::thread::set_current_timer_slack(std::num::NonZero::new(1));
        let call = |wait: i64| {
            let wait = Timespec { tv_sec: 0, tv_nsec: wait };
            poll(&mut [PollFd::new(&set, PollFlags::IN)], Some(&wait))
        };
        let timed = |_| {
            let began = clock();
            call(0).map(|_| (clock() - began) as f64)
        };
        let times = (0..POLLS).map(timed).collect::<rustix::io::Result<Vec<f64>>>();
        is_ready.wait();
        let done = (0..POLLS).try_for_each(|_| call(WAIT).map(drop));
        is_over.store(true, Ordering::Release);
        ready?;
        slack?;
        done?;
        Ok((median(&mut times?) - clock_ns).max(0.0))
    };
    let spinner = || -> anyhow::Result<f64> {
        let ready = keep(1);
        is_ready.wait();
        ready?;
        let (mut last, mut missed) = (clock(), Vec::new());
        while !is_over.load(Ordering::Acquire) {
            let now = clock();
            if now - last > GAP {
                missed.push((now - last) as f64);
            }
            last = now;
        }
        // Most gaps are waits; a tick is in few of them.
        Ok((median(&mut missed) - clock_ns - 2.0 * switch_ns).max(0.0))
    };
    thread::scope(|scope| {
        let (sleeper, spinner) = (scope.spawn(sleeper), scope.spawn(spinner));
        let panicked = |_| anyhow::anyhow!("a measuring thread panicked");
        let (now, timed) = (sleeper.join(), spinner.join());
        Ok([now.map_err(panicked)??, timed.map_err(panicked)??])
    })
}

/// What an idle CPU costs, in nanoseconds.
pub(crate) struct Idle {
    /// A write that wakes a thread on an idle CPU, without a write that wakes nobody: the interrupt, above all.
    pub(crate) wake: f64,
    /// From the beginning of that write until the thread has read.
    pub(crate) run: f64,
    /// The CPU time of a `ppoll` that a timer ends on an idle CPU.
    pub(crate) poll: f64,
    /// From the time of that timer until the `ppoll` returns.
    pub(crate) timer: f64,
}

/// Measures what it costs that a CPU is idle, with ordinary threads.
pub(crate) fn idle(clock: &Clock, clock_ns: f64) -> anyhow::Result<Idle> {
    const TIMES: usize = 60;
    /// Long enough that the other CPU has become idle.
    const PAUSE: u64 = 150_000;
    let (other, nobody) = (eventfd(0, EventfdFlags::CLOEXEC)?, eventfd(0, EventfdFlags::CLOEXEC)?);
    let (is_over, began) = (AtomicBool::new(false), AtomicU64::new(0));
    let sleeper = || -> anyhow::Result<f64> {
        let ready = keep(1);
        let mut all = Vec::new();
        while !is_over.load(Ordering::Acquire) {
            read(&other)?;
            all.push(clock().saturating_sub(began.load(Ordering::Acquire)) as f64);
        }
        ready?;
        Ok(median(&mut all))
    };
    let waker = || -> anyhow::Result<f64> {
        let ready = keep(0);
        let timed = |fd: &OwnedFd| {
            let end = clock() + PAUSE;
            while clock() < end {}
            let now = clock();
            began.store(now, Ordering::Release);
            write(fd).map(|()| (clock() - now) as f64)
        };
        let measure = |fd| (0..TIMES).map(|_| timed(fd)).collect::<anyhow::Result<Vec<f64>>>();
        let all = measure(&other).and_then(|woke| Ok([woke, measure(&nobody)?]));
        is_over.store(true, Ordering::Release);
        write(&other)?; // wakes the sleeper, which may wait
        ready?;
        let [woke, none] = all?.map(|mut all| median(&mut all));
        Ok((woke - none).max(0.0))
    };
    let (run, wake) = thread::scope(|scope| {
        let (sleeper, waker) = (scope.spawn(sleeper), scope.spawn(waker));
        let panicked = |_| anyhow::anyhow!("a measuring thread panicked");
        let (sleeper, waker) = (sleeper.join(), waker.join());
        anyhow::Ok((sleeper.map_err(panicked)??, waker.map_err(panicked)??))
    })?;
    let timed = || -> anyhow::Result<[f64; 2]> {
        keep(1)?;
        rustix::thread::set_current_timer_slack(std::num::NonZero::new(1))?;
        let wait = Timespec { tv_sec: 0, tv_nsec: PAUSE as i64 };
        let used = || clock_gettime(ClockId::ThreadCPUTime);
        let (before, mut late) = (used(), Vec::new());
        for _ in 0..TIMES {
            let end = clock() + PAUSE;
            poll(&mut [PollFd::new(&nobody, PollFlags::ERR)], Some(&wait))?;
            late.push(clock().saturating_sub(end) as f64);
        }
        let after = used();
        let used =
            (after.tv_sec - before.tv_sec) as f64 * 1e9 + (after.tv_nsec - before.tv_nsec) as f64;
        Ok([used / TIMES as f64 - 2.0 * clock_ns, median(&mut late) - clock_ns])
    };
    let timed = thread::scope(|scope| scope.spawn(timed).join());
    let [poll, timer] = timed.map_err(|_| anyhow::anyhow!("a measuring thread panicked"))??;
    Ok(Idle { wake, run: run - clock_ns, poll: poll.max(0.0), timer: timer.max(0.0) })
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

/// Nanoseconds of a turn between two real-time threads of one CPU, one of which waits with a time limit if `limited`.
fn turn(clock: &Clock, limited: bool) -> anyhow::Result<f64> {
    const TURNS: u32 = 200;
    /// Never reached.
    const LIMIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000 };
    let ends = [eventfd(0, EventfdFlags::CLOEXEC)?, eventfd(0, EventfdFlags::CLOEXEC)?];
    let other = || -> anyhow::Result<()> {
        hurry(1)?;
        (0..TURNS).try_for_each(|_| read(&ends[0]).and_then(|()| write(&ends[1])))
    };
    let own = || -> anyhow::Result<f64> {
        hurry(1)?;
        let began = clock();
        for _ in 0..TURNS {
            write(&ends[0])?;
            if limited {
                poll(&mut [PollFd::new(&ends[1], PollFlags::IN)], Some(&LIMIT))?;
            }
            read(&ends[1])?;
        }
        Ok((clock() - began) as f64 / f64::from(TURNS))
    };
    thread::scope(|scope| {
        let (other, own) = (scope.spawn(other), scope.spawn(own));
        let panicked = |_| anyhow::anyhow!("a measuring thread panicked");
        let (other, own) = (other.join(), own.join());
        other.map_err(panicked)??;
        own.map_err(panicked)?
    })
}

/// Nanoseconds of a `ppoll` that an event ends before its time limit: what it adds to sleep and wake-up.
pub(crate) fn armed(clock: &Clock) -> anyhow::Result<f64> {
    let runs = |limited| {
        (0..RUNS)
            .try_fold(f64::MAX, |least, _| Ok::<_, anyhow::Error>(least.min(turn(clock, limited)?)))
    };
    Ok((runs(true)? - runs(false)?).max(0.0))
}

/// Sleep and wake-up on the same CPU, the same between two CPUs, and a context switch, in nanoseconds.
pub(crate) fn measure(clock: &Clock, policy: Policy, syscall_ns: f64) -> anyhow::Result<[f64; 3]> {
    let runs = |what: &dyn Fn() -> anyhow::Result<f64>| -> anyhow::Result<f64> {
        (0..RUNS).try_fold(f64::MAX, |least, _| Ok(least.min(what()?))) // other load only adds time
    };
    let alone = runs(&|| alone(clock))?;
    let switch = runs(&|| switch(clock, policy, syscall_ns))?;
    let wake = |near| {
        let pass = runs(&|| pass(clock, policy, near))?;
        Ok::<_, anyhow::Error>((pass - alone - switch).max(0.0))
    };
    Ok([wake(true)?, wake(false)?, switch])
}
