//! Models of real network adapters, bit by bit: what each would do with a packet.
//!
//! ```text
//!  FlowKey ──> [ Flow Director: fdir, filled by atr, i40e or rules ] ──miss──> [ RSS: rss ] ──> queue
//!                        └──────── limits of both: profile ────────┘                            │
//!                                                  core <── [ RPS, RFS, aRFS: linux ] <──────────┘
//!  in front: who gets it       [ tenants ─> vmdq: pools and virtual functions; manage: the management controller ]
//!  behind: when the host knows [ interrupt: vectors and their moderation ]        storage: [ fcoe ]
//! ```
//!
//! Every model works on a [`flowyard_frame::FlowKey`]. In a tunnelled frame,
//! [`profile::Profile::tunnels`] decides whether the key is taken from the outer or the inner
//! header. Time is an argument. Nothing here accesses a device.
//! Thread-safety: plain data and `&mut self`; no interior mutability.
#![forbid(unsafe_code)]

pub mod atr;
pub mod capability;
pub mod fcoe;
pub mod fdir;
mod hash_fields;
pub mod i40e;
pub mod interrupt;
pub mod linux;
pub mod manage;
pub mod profile;
pub mod rss;
pub mod rules;
pub mod stats;
pub mod tenants;
pub mod vmdq;

pub use capability::Capabilities;
pub use profile::Profile;
pub use rss::{Rss, RssConfig};
pub use stats::FilterStats;
