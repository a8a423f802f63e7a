//! An assist's port on the crossbar, which has one request at a time, and its ring of descriptors.

use crate::memory::Request;

/// The purpose of an assist's access to the scratchpad.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// To perform a mailbox write of the host.
    Mail,
    /// To write its progress pointer.
    Progress,
    /// To set a bit of the event register.
    Event,
    /// To read or write a word of a descriptor.
    Descriptor,
    /// To read or write a word of a DMA's data.
    Data,
}

/// A port, which has one request at a time, with a gap between requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Port {
    pending: Option<(Request, Purpose)>,
    /// The first cycle in which the next request may be presented.
    free_at: u64,
    /// The number of accesses performed.
    pub(crate) accesses: u64,
}

impl Port {
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_none()
    }

    /// Takes a request in cycle `now`; returns the cycle in which it is presented.
    pub(crate) fn ask(&mut self, request: Request, purpose: Purpose, now: u64) -> u64 {
        self.pending = Some((request, purpose));
        self.free_at.max(now + 1)
    }

    /// The pending request.
    pub(crate) fn request(&self) -> Option<Request> {
        self.pending.map(|(request, _)| request)
    }

    /// Removes the request, which was performed in cycle `now`, and returns it.
    pub(crate) fn granted(&mut self, now: u64, gap: u64) -> Option<(Request, Purpose)> {
        self.free_at = now + gap;
        self.accesses += 1;
        self.pending.take()
    }
}

/// A ring of descriptors in the scratchpad.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ring {
    base: u32,
    entries: u32,
}

impl Ring {
    /// Takes a register write of the firmware: the base, or the number of entries (a power of two).
    pub(crate) fn set(&mut self, base: Option<u32>, entries: Option<u32>) {
        self.base = base.unwrap_or(self.base);
        self.entries = entries.unwrap_or(self.entries);
    }

    /// Whether the firmware has set the number of entries.
    pub(crate) fn is_set(&self) -> bool {
        self.entries != 0
    }

    /// The address of a word of descriptor `number`, whose size is `bytes`. The ring must be set.
    pub(crate) fn addr(&self, number: u32, bytes: u32, word: usize) -> u32 {
        let slot = number & (self.entries - 1);
        self.base.wrapping_add(bytes * slot + 4 * word as u32)
    }
}
