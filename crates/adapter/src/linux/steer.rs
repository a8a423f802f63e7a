//! The interface between RFS and an adapter that accelerates it.

/// The filter id of a slot without a hardware filter.
pub(super) const NO_FILTER: u16 = u16::MAX;

/// The kernel's rule for overwriting a slot whose flow has a hardware filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ArfsFix {
    /// No rule: the last flow that requests a filter takes the slot (kernels before July 2025).
    Before,
    /// The slot of an active filter is only overwritten by the same hash, and only to change the CPU.
    #[default]
    After,
}

/// The adapter's part of accelerated RFS, called by the kernel's network core.
pub(super) trait Steer {
    /// The kernel's rule for overwriting slots.
    fn fix(&self) -> ArfsFix;
    /// The receive queue that is nearest to `cpu`, if there is one.
    fn queue_of(&self, cpu: u16) -> Option<u16>;
    /// Requests a filter to `queue`. Returns the id of the filter, or `None` if it is refused.
    fn steer(&mut self, queue: u16, flow_id: u32) -> Option<u16>;
}
