//! Placing threads on processors.

use rustix::thread::{CpuSet, sched_setaffinity};

/// Pins the calling thread to processor `cpu`. Returns whether that worked: the processor may not
/// exist, or may be excluded by the process's own mask.
pub(crate) fn pin(cpu: usize) -> bool {
    if cpu >= CpuSet::MAX_CPU {
        return false;
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).is_ok()
}
