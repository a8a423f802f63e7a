//! RPS selects a CPU by the hash alone: `map[(hash * len) >> 32]`.

use super::backlog::CpuQueues;

/// The RPS map of a receive queue: the CPUs of `rps_cpus`, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rps {
    /// The CPUs; empty means that RPS is off.
    pub cpus: Vec<u16>,
}

impl Rps {
    /// The CPU for `hash`, which is the adapter's hash if its driver marks it as L4
    /// ([`is_l4_hash`](super::is_l4_hash)), and [`SoftHash`](super::SoftHash) otherwise. `None` if RPS is off or the CPU
    /// is offline: then the packet stays on the CPU that took the interrupt.
    #[must_use]
    pub fn cpu(&self, hash: u32, backlog: &impl CpuQueues) -> Option<u16> {
        let slot = (u64::from(hash) * self.cpus.len() as u64) >> 32;
        let cpu = *self.cpus.get(slot as usize)?;
        backlog.online(cpu).then_some(cpu)
    }
}
