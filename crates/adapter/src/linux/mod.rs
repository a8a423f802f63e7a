//! Software receive steering of Linux: RPS, RFS and accelerated RFS (Documentation/networking/scaling.rst).
//!
//! ```text
//!  packet on rx queue q, hash h
//!    global table[h]  = upper bits of h | CPU that last consumed the flow   (recvmsg, sendmsg)
//!       upper bits differ ------------------------> RPS: map[(h * len) >> 32]
//!       same: desired CPU
//!    device table q[slot(h)] = current CPU, tail at the last enqueue
//!       switch to the desired CPU only when the current one is unset, offline, or drained
//!       and, with aRFS, request a filter that delivers the flow to the desired CPU's queue
//! ```
//!
//! Thread-safety: plain data; races between the CPUs of the kernel are not modelled.

mod arfs;
mod backlog;
mod hash;
mod ice;
mod l4_hash;
mod rfs;
mod rps;
mod steer;

pub use arfs::{Arfs, ArfsConfig, ArfsStats};
pub use backlog::CpuQueues;
pub use hash::SoftHash;
pub use ice::{FlowMatch, ServiceTask};
pub use l4_hash::is_l4_hash;
pub use rfs::{Rfs, RfsConfig, SlotIndex};
pub use rps::Rps;
pub use steer::ArfsFix;
