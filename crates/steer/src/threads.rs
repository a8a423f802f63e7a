//! The kernel threads of the rings: each CPU's ring is emptied by a thread `cpumap/CPU/map:ID`, which receives the
//! frames as a driver would.
//!
//! The kernel wakes such a thread for each batch of frames. With the normal scheduling policy it preempts the program
//! that runs on the CPU, so a server is interrupted twice for nearly each request. With SCHED_BATCH it runs when the
//! program waits, or its time slice ends, and then finds more frames.

use std::fs;

use aya::maps::Map;

use crate::program::{Error, Program, refused};

/// How the threads of the rings are scheduled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheduling {
    /// SCHED_BATCH: a thread waits until the program on its CPU sleeps, or its time slice ends.
    Batch,
    /// SCHED_OTHER: a thread may preempt the program on its CPU.
    Normal,
}

/// Longest name of a thread before Linux 5.17; a longer one is cut.
const COMM_BYTES: usize = 15;

impl Program {
    /// Sets how the threads of all rings are scheduled. Returns how many of the threads of this program's rings were set:
    /// fewer than there are rings if this process does not see the kernel's threads, because it is in another PID
    /// namespace.
    ///
    /// # Errors
    /// When the kernel does not permit it, or `/proc` cannot be read.
    pub fn schedule_rings(&mut self, how: Scheduling) -> Result<usize, Error> {
        let what = "setting the scheduling policy of the rings' threads";
        let Map::CpuMap(data) = self.map("cpus")? else { return Ok(0) };
        let id = data.info().map_err(|error| refused(what, &error))?.id();
        let mut cpus: Vec<u32> = self.queue_cpus().flatten().collect();
        cpus.sort_unstable();
        cpus.dedup();
        let all = threads().map_err(|error| refused(what, &error))?;
        let mut count = 0;
        for pid in cpus.iter().filter_map(|cpu| find(&all, &format!("cpumap/{cpu}/map:{id}"))) {
            set(pid, how).map_err(|error| refused(what, &error))?;
            count += 1;
        }
        Ok(count)
    }
}

/// The process that has this name; `None` if there is none, or names that were cut leave a choice.
fn find(all: &[(i32, String)], name: &str) -> Option<i32> {
    let cut = |text: &str| text.len() == COMM_BYTES && name.starts_with(text);
    let mut found = all.iter().filter(|(_, comm)| comm == name || cut(comm));
    match (found.next(), found.next()) {
        (Some((pid, _)), None) => Some(*pid),
        _ => None,
    }
}

/// The threads of rings, of all programs of the machine.
fn threads() -> std::io::Result<Vec<(i32, String)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process that has ended meanwhile has no name.
        let Ok(comm) = fs::read_to_string(entry.path().join("comm")) else { continue };
        if comm.starts_with("cpumap/") {
            all.push((pid, comm.trim_end().to_owned()));
        }
    }
    Ok(all)
}

fn set(pid: i32, how: Scheduling) -> std::io::Result<()> {
    let policy = match how {
        Scheduling::Batch => libc::SCHED_BATCH,
        Scheduling::Normal => libc::SCHED_OTHER,
    };
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads `priority`, which lives until the call returns.
    #[allow(unsafe_code, reason = "rustix has no sched_setscheduler")]
    let result = unsafe { libc::sched_setscheduler(pid, policy, &raw const priority) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_found_by_whole_names_or_unique_cut_ones() {
        let all = |names: &[&str]| -> Vec<_> {
            (1..).zip(names.iter().map(|name| (*name).to_owned())).collect()
        };
        let whole = all(&["cpumap/1/map:12", "cpumap/1/map:123", "cpumap/11/map:123"]);
        assert_eq!(find(&whole, "cpumap/1/map:12"), Some(1));
        assert_eq!(find(&whole, "cpumap/11/map:123"), Some(3));
        assert_eq!(find(&whole, "cpumap/2/map:12"), None);
        // Linux before 5.17: 15 bytes of the name.
        let cut = all(&["cpumap/12/map:1", "cpumap/3/map:7"]);
        assert_eq!(find(&cut, "cpumap/12/map:1234"), Some(1));
        assert_eq!(find(&cut, "cpumap/3/map:7"), Some(2));
        assert_eq!(find(&cut, "cpumap/3/map:71"), None);
        let several = all(&["cpumap/12/map:1", "cpumap/12/map:1"]);
        assert_eq!(find(&several, "cpumap/12/map:1234"), None);
    }
}
