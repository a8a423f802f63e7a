//! What the yard asks of the operating system: which processor a thread runs on.

/// Pins the calling thread to processor `cpu`. Whether that worked: there may be no such
/// processor, or it may not be ours.
pub(crate) fn pin(cpu: usize) -> bool {
    core_affinity::set_for_current(core_affinity::CoreId { id: cpu })
}
