//! The system call for real-time priority.
//!
//! Not the crate thread-priority: it addresses a thread by its `pthread_t`, and memcached's threads belong to
//! another process. rustix does not have the call.
#![allow(
    unsafe_code,
    reason = "sched_setscheduler(2) has no safe wrapper that takes a thread number"
)]

use std::io;

use rustix::process::Pid;

/// A real-time policy of Linux; see sched(7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RealTime {
    /// Runs until it blocks (`SCHED_FIFO`).
    Fifo,
    /// Shares the CPU with threads of equal priority in time slices (`SCHED_RR`).
    RoundRobin,
}

/// Gives `thread` the lowest real-time priority under `policy`. Threads that it starts later inherit it.
pub(crate) fn set_real_time(thread: Pid, policy: RealTime) -> io::Result<()> {
    let policy = match policy {
        RealTime::Fifo => libc::SCHED_FIFO,
        RealTime::RoundRobin => libc::SCHED_RR,
    };
    // SAFETY: all fields are integers, for which zero is a valid value; musl has more than sched_priority.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = 1;
    // SAFETY: `parameters` is initialised and outlives the call, which only reads it.
    let done = unsafe {
        libc::sched_setscheduler(thread.as_raw_nonzero().get(), policy, &raw const parameters)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
