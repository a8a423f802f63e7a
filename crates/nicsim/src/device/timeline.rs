//! What the devices record for a timeline: bursts, DMAs, frames on the link and in the adapter, interrupts.

/// One thing that a device did, with its times in time units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happened {
    /// When it began.
    pub from: u64,
    /// When it ended; equal to `from` for an event without duration.
    pub until: u64,
    /// What it was.
    pub what: What,
    /// The number of the frame or DMA in its direction, from 0.
    pub number: u64,
    /// Its bytes.
    pub bytes: u32,
}

/// The kinds of events of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A frame on the link, to the adapter.
    LinkIn,
    /// A frame on the link, from the adapter.
    LinkOut,
    /// A frame that found the receive buffer full.
    Overrun,
    /// A DMA from the host, from the fetch of its descriptor to its completion.
    DmaRead,
    /// A DMA to the host.
    DmaWrite,
    /// A burst of the frame memory for the requester of this number: the assists, then the cores.
    Burst(u8),
    /// A frame on its way from the link to the host.
    Received,
    /// A frame on its way from the host to the link.
    Sent,
    /// An interrupt.
    Interrupt,
}
