//! Flow Director of the 82599, X540 and X550, modelled bit by bit.
//!
//! ```text
//!  FlowKey ─mask─> Input ─fold─> Folded ──bucket hash──> bucket list ──first equal──> Hit
//!                    │              └────signature hash───────┘(signature mode)        │
//!                    └──────────full key────────────────────┘ (perfect mode)         action
//! ```
//!
//! Filters are stored in the receive packet buffer ([`Pballoc`]): a perfect filter takes 32 bytes,
//! a signature filter 8. One mask set applies to the whole port. The hash is linear over GF(2) in a
//! 32-bit XOR fold of the key, therefore different keys can have the same hash; [`Folded`] lists which.
//!
//! Sources: 82599 datasheet 7.1.2.7, DPDK's and Intel's drivers (read, not copied), and values
//! that real hardware printed in DPDK's "Niantic Flow Director" test plan.
//! Thread-safety: plain data and `&mut self`.

mod action;
mod answer;
mod error;
mod hash;
mod input;
mod memory;
mod registers;
#[cfg(test)]
mod slow_model;
mod table;
#[cfg(test)]
mod tests;

pub use action::{Action, DROP_QUEUE, Moderation, Target};
pub use answer::{Added, Hit, Limits, Outcome};
pub use error::{Error, Unmatched};
pub use hash::Folded;
pub use input::{Flex, Input, MaskSet, VlanMask};
pub use memory::{Mode, Pballoc};
pub use registers::{Accumulator, Registers};
pub use table::Table;
