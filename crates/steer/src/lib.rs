//! Steering in the kernel, on any interface and for any program: XDP decides the CPU of each frame, and CPUMAP hands
//! the frame to the kernel there.
//!
//! ```text
//!  policy ─┬─> model: the decision on a frame, in user space ──┐
//!          └─> program: maps, verifier, attach ──> XDP ────────┴─ equal for every frame
//! ```
//!
//! With [`Policy::follow`], flows follow their consumers: a program at egress, or one where threads read sockets, teaches
//! XDP the CPU, and [`settle`] says when a flow may move there. With [`Policy::elephants`], a flow that overloads its CPU gets
//! one of its own.
//!
//! The sources of the programs are in `bpf/`; `cargo xtask bpf` compiles them, and the object files are committed.
//!
//! Invariants: [`Model::decide`] and the program agree on queue, reason and hash of every frame. The program ends with
//! the process, however that ends, unless it is pinned ([`Pins`]): then the next process adopts its state.
//! Thread-safety: a [`Program`] belongs to one thread; everything else is plain data.

mod cpus;
pub mod elephants;
mod layout;
mod model;
mod pieces;
mod pins;
mod policy;
mod program;
mod replace;
mod rings;
pub mod settle;
mod sockets;
mod threads;
mod watch;

pub use cpus::online_cpus;
pub use model::{Decision, Model, Reason};
pub use pieces::Pieces;
pub use pins::{FOLDER, LAYOUT, PinError, Pins, default_folder};
pub use policy::{BadPolicy, Follow, Policy, QUEUES_MOST, RULES_MOST};
pub use program::{Attached, Counts, Error, Program};
pub use rings::Ring;
pub use sockets::{GroupCounts, Sockets, SocketsError};
pub use threads::Scheduling;
pub use watch::{Followed, Happened, Seen};
