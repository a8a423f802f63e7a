//! What RFS asks of an adapter that accelerates it.

/// No hardware filter.
pub(super) const NO_FILTER: u16 = u16::MAX;

/// The rule that guards a slot with a filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ArfsFix {
    /// None: the last flow to ask owns the slot.
    Before,
    /// An active filter's slot is taken only by the same hash, and only to change its CPU.
    #[default]
    After,
}

/// The adapter's side of accelerated RFS, as the core sees it.
pub(super) trait Steer {
    /// Which kernel rule guards the slot.
    fn fix(&self) -> ArfsFix;
    /// The receive queue nearest to `cpu`.
    fn queue_of(&self, cpu: u16) -> Option<u16>;
    /// Asks for a filter to `queue`; the filter's id, or `None` if refused.
    fn steer(&mut self, queue: u16, flow_id: u32) -> Option<u16>;
}
