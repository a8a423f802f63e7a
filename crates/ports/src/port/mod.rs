//! The ports of an engine: implementations of `Rx` and `Tx`.
//!
//! ```text
//!  Source (memory, capture) ──pace──> Rx ──> batch ... batch ──> Tx ──> memory, capture
//!  interface ───────────────────────> Rx ──> batch ... batch ──> Tx ──> interface
//!  memif (shared memory) ───────────> Rx ──> batch ... batch ──> Tx ──> memif
//!  vhost_user (a guest's memory) ───> Rx ──> batch ... batch ──> Tx ──> vhost_user
//!  DPDK device ─────────────────────> Rx ──> batch ... batch ──> Tx ──> DPDK device
//! ```
//!
//! Thread-safety: each half of a port is used by one core.

mod behind;
mod coalesce;
mod coalesce_tx;
mod collect;
pub mod dpdk;
mod finish;
pub mod live;
pub mod memif;
mod pace;
mod pcap;
mod source;
mod verify;
pub mod vhost_user;

pub use behind::{Behind, Step};
pub use coalesce::Coalesce;
pub use coalesce_tx::CoalesceTx;
pub use collect::{Collect, Collected, Sent};
pub use finish::Finish;
pub use live::Log;
pub use pace::{BadPace, Pace};
pub use pcap::PcapTx;
pub use source::{Repeat, SourceRx};
pub use verify::Verify;

/// If the peer of a port takes no frames for longer than this, or there is no buffer for them, frames for the port are
/// dropped.
const STUCK_LIMIT: flowyard_frame::Nanos = 100_000_000;
