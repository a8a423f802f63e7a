//! A programmable network adapter, cycle by cycle, running real firmware.
//!
//! The machine of Willmann, Kim, Rixner and Pai, "An Efficient Programmable 10 Gigabit Ethernet
//! Network Interface Card" (HPCA 2005):
//!
//! ```text
//!   instruction memory 128 KB
//!      | 128 bits
//!   core 0 .. core 5   (MIPS II, 8 KB instruction cache each)
//!      |  |  |  |  |
//!   ===+==+==+==+==+=== crossbar, 32 bits ===+=======+=======+======+===
//!      |       |       |       |             |       |       |      |
//!   bank 0  bank 1  bank 2  bank 3        DMA read DMA write MAC tx MAC rx
//!      scratchpad 256 KB: control data       |       |       |      |
//!                                         ===+=======+=== 128 bits =+===  SDRAM: frames
//! ```
//!
//! [`engine::Engine`] is the interface of the machine. It has two implementations: [`fast::Fast`] for use, and
//! [`reference::Reference`], a simple one that the fast one is compared with. Time is exact ([`time`]). Nothing
//! here reads a clock, a file or a random number: equal input gives equal counters, bit for bit. No input
//! causes a panic.

pub mod config;
pub mod counters;
pub mod device;
pub mod elf;
pub mod engine;
pub mod fast;
pub mod firmware;
mod icache;
pub mod isa;
pub mod memory;
pub mod paper;
pub mod profile;
pub mod reference;
pub mod run;
pub mod steer;
pub mod study;
pub mod sweep;
pub mod time;
pub mod timeline;
pub mod trace;

pub use config::Config;
pub use engine::{Engine, Parts};
pub use fast::Fast;
pub use reference::Reference;
