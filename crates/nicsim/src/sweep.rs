//! Many runs on several host cores. Each run is single-threaded and deterministic, so the results do not
//! depend on the number of threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::config::Config;
use crate::fast::Fast;
use crate::firmware::Builtin;
use crate::run::{Outcome, RunError, builtin};

/// One run of a sweep.
#[derive(Clone, Debug)]
pub struct Job {
    /// The firmware.
    pub firmware: Builtin,
    /// The configuration.
    pub config: Config,
}

/// Runs all jobs on `threads` host cores. After each run it calls `progress` with the number of runs that are
/// done and the number of all.
///
/// # Errors
/// The first error in the order of the jobs.
pub fn sweep(
    jobs: &[Job],
    threads: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<Outcome>, RunError> {
    parallel(jobs, threads, progress, |job| builtin::<Fast>(&job.config, job.firmware))
        .into_iter()
        .collect()
}

/// Computes a result for each input on `threads` host cores; the results are in the order of the inputs.
pub fn parallel<T: Sync>(
    inputs: &[T],
    threads: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
    make: impl Fn(&T) -> Result<Outcome, RunError> + Sync,
) -> Vec<Result<Outcome, RunError>> {
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let slots: Vec<Mutex<Option<Result<Outcome, RunError>>>> =
        inputs.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        // Exactly one thread takes each number.
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some(input) = inputs.get(index)
        {
            let outcome = make(input);
            if let Ok(mut slot) = slots[index].lock() {
                *slot = Some(outcome);
            }
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, inputs.len());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, 256).min(inputs.len().max(1)) {
            scope.spawn(work);
        }
    });
    let lost = || RunError::Defect("a run of the sweep was lost".into());
    slots
        .into_iter()
        .map(|slot| slot.into_inner().ok().flatten().unwrap_or_else(|| Err(lost())))
        .collect()
}
