//! Where a frame goes: parse, hash, tables, settle, learners. No I/O, no threads, no clock.
//!
//! ```text
//!  bytes ──> parse ──> toeplitz ──> steer ───────────────────> settle ──> (enqueue)
//!            key       hash         exact ─ miss ─> spread     may it move?
//!                                     ^
//!                                     └── edits ── learn: what a core transmitted
//! ```
//!
//! Invariants: a lane never moves; the last table never misses; nothing on the path from bytes to
//! settled action allocates or panics, for any input.
//! Thread-safety: plain data and `&mut self`; a core owns its tables. `unsafe` is confined to vector
//! instructions, in `toeplitz/x86.rs` and `table/cuckoo.rs`.

pub mod learn;
mod mix;
pub mod parse;
pub mod quic;
mod secret;
pub mod settle;
pub mod steer;
pub mod table;
pub mod toeplitz;

pub use learn::Learn;
pub use mix::fold;
pub use quic::Quic;
pub use secret::Secret;
pub use settle::{Look, Settle, Tails};
pub use steer::Steer;
pub use table::{Reason, Refusal, Table};
