//! An assist's port on the crossbar: one request at a time.

use crate::memory::Request;

/// Why an assist accesses the scratchpad.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// A mailbox write of the host.
    Mail,
    /// Its progress pointer.
    Progress,
    /// A bit of the event register.
    Event,
    /// A word of a descriptor.
    Descriptor,
    /// A word of a DMA's data.
    Data,
}

/// One request at a time, `gap` cycles apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Port {
    pending: Option<(Request, Purpose)>,
    /// The first cycle in which the next request may be presented.
    free_at: u64,
    /// Accesses performed.
    pub(crate) accesses: u64,
}

impl Port {
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_none()
    }

    /// Takes a request, made in cycle `now`; it is presented in the cycle that is returned.
    pub(crate) fn ask(&mut self, request: Request, purpose: Purpose, now: u64) -> u64 {
        self.pending = Some((request, purpose));
        self.free_at.max(now + 1)
    }

    /// The pending request.
    pub(crate) fn request(&self) -> Option<Request> {
        self.pending.map(|(request, _)| request)
    }

    /// The request was performed in cycle `now`.
    pub(crate) fn granted(&mut self, now: u64, gap: u64) -> Option<(Request, Purpose)> {
        self.free_at = now + gap;
        self.accesses += 1;
        self.pending.take()
    }
}
