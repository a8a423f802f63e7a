//! The CPUs of this machine.

/// The CPUs that are online, in ascending order.
///
/// # Errors
/// When `/sys` does not list them.
pub fn online_cpus() -> std::io::Result<Vec<u32>> {
    aya::util::online_cpus().map_err(|(_, error)| error)
}
