//! Threads with real-time priority, on fixed CPUs.

use std::time::Duration;

use anyhow::Context;
use rustix::thread::CpuSet;

use super::quiet::Others;
use crate::sys::{RealTime, set_real_time};

/// Runs `what` on a thread with real-time priority (SCHED_RR), which threads that it starts inherit; with
/// ordinary priority where that is not permitted. Also returns the share of all CPU time that other
/// programs used meanwhile.
pub(crate) fn urgent<T: Send>(what: impl FnOnce() -> T + Send) -> anyhow::Result<(T, f64)> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                // If this fails, the measurement runs with ordinary priority.
                let _may_fail = set_real_time(rustix::thread::gettid(), RealTime::RoundRobin);
            }
            let others = Others::from(None);
            let made = what();
            (made, others.share())
        });
        let made = thread.join();
        // Let other programs run for a while.
        std::thread::sleep(Duration::from_millis(30));
        made.map_err(|_| anyhow::anyhow!("a measuring thread panicked"))
    })
}

/// Pins the calling thread to `cpu` and gives it real-time priority without time slices (SCHED_FIFO). No
/// ordinary thread runs on that CPU until it blocks, so it must run for a short time only.
pub(crate) fn hurry(cpu: usize) -> anyhow::Result<()> {
    hurry_thread(rustix::thread::gettid(), cpu)
}

/// Pins the calling thread to `cpu`, with the priority that it has.
pub(crate) fn keep(cpu: usize) -> anyhow::Result<()> {
    pin(rustix::thread::gettid(), cpu)
}

fn pin(thread: rustix::process::Pid, cpu: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(Some(thread), &set)
        .with_context(|| format!("cannot pin a thread to CPU {cpu}"))
}

/// As [`hurry`], for another thread.
pub(crate) fn hurry_thread(thread: rustix::process::Pid, cpu: usize) -> anyhow::Result<()> {
    pin(thread, cpu)?;
    set_real_time(thread, RealTime::Fifo).context("cannot give a thread real-time priority")
}
