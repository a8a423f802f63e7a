//! Templates: the bytes of each flow and size, built once.

use std::collections::HashMap;

use crate::traffic::{Addresses, Step};

/// Frames by port, destination, and step.
pub(super) struct Templates {
    addresses: Addresses,
    frames: HashMap<(u8, u8, u16, u16, bool), Vec<u8>>,
}

impl Templates {
    pub(super) fn new(addresses: Addresses) -> Self {
        Self { addresses, frames: HashMap::new() }
    }

    /// The frame of `step` from `from` to `to`, for its tag to be written.
    pub(super) fn get(&mut self, from: u8, to: u8, step: Step) -> &mut [u8] {
        let Step { flow, size, broadcast } = step;
        self.frames.entry((from, to, flow, size, broadcast)).or_insert_with(|| {
            let mut frame = self.addresses.between(from, to, flow, size.into());
            if broadcast {
                frame[..6].fill(0xff);
            }
            frame
        })
    }
}
