//! For tests: a guest with its memory, the driver's side of rings, and a front end.
//!
//! The messages of the front end are those of the library `vhost`; the driver's side of the rings has no code
//! in common with the device's. Failures panic, as in a test.

mod driver;
mod front;
mod packed;
mod ram;
mod split;

pub use driver::DriverRing;
pub use front::{Adapter, Wish};
pub use packed::PackedRing;
pub use ram::{Buffer, Ram};
pub use split::SplitRing;

use std::sync::Arc;

use crate::memory::Memory;
use crate::receive::Receiver;
use crate::ring::{RingPlace, Rules};
use crate::send::Sender;
use crate::violation::Violation;

/// What both sides agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// VIRTIO_NET_F_MRG_RXBUF.
    pub mergeable: bool,
    /// VIRTIO_F_VERSION_1.
    pub modern: bool,
    /// VIRTIO_RING_F_INDIRECT_DESC.
    pub indirect: bool,
    /// VIRTIO_RING_F_EVENT_IDX.
    pub event_index: bool,
    /// VIRTIO_F_RING_PACKED.
    pub packed: bool,
}

impl Agreed {
    /// Everything that the device offers with split rings.
    pub const ALL: Self =
        Self { mergeable: true, modern: true, indirect: true, event_index: true, packed: false };
    /// The same with packed rings.
    pub const PACKED: Self = Self { packed: true, ..Self::ALL };

    const fn rules(self) -> Rules {
        Rules {
            mergeable: self.mergeable,
            modern: self.modern,
            indirect: self.indirect,
            event_index: self.event_index,
            packed: self.packed,
        }
    }

    /// The bytes of the header in front of a frame.
    #[must_use]
    pub const fn header(self) -> usize {
        self.rules().header()
    }
}

/// The device's side of rings in `ram`, without a socket.
#[derive(Clone, Debug)]
pub struct Device(Arc<Memory>);

impl Device {
    /// Maps the guest's memory.
    #[must_use]
    pub fn new(ram: &Ram) -> Self {
        Self(Arc::new(Memory::new(ram.regions()).unwrap()))
    }

    /// The half that takes the frames of the ring whose parts are at these addresses.
    ///
    /// # Errors
    /// When the ring is not possible.
    pub fn receiver(
        &self,
        size: u32,
        parts: [u64; 3],
        agreed: Agreed,
    ) -> Result<Receiver, Violation> {
        Receiver::new(&self.0, place(size, parts), agreed.rules(), 1, false)
    }

    /// The half that fills the ring whose parts are at these addresses.
    ///
    /// # Errors
    /// When the ring is not possible.
    pub fn sender(&self, size: u32, parts: [u64; 3], agreed: Agreed) -> Result<Sender, Violation> {
        Sender::new(&self.0, place(size, parts), agreed.rules(), 0)
    }
}

const fn place(size: u32, parts: [u64; 3]) -> RingPlace {
    let [descriptors, available, used] = parts;
    RingPlace { size, descriptors, available, used, base: None }
}
