//! IPsec: packets are encrypted and authenticated between two gateways or two hosts (RFC 4301, RFC 4303).
//!
//! ```text
//!  text of `ip xfrm` ── xfrm ──> SaConfig, Policy ──> IpsecHub: SAs, tables of policies      shared by all cores
//!  frame ──> Ipsec (work of a core): classify ──> esp::open | esp::seal ──> Router
//! ```
//!
//! Implemented are ESP in tunnel and transport mode with AES-GCM and ChaCha20-Poly1305, IPv4 and IPv6, extended sequence
//! numbers, anti-replay, UDP encapsulation, limits of packets and bytes, and policies. Keys come from files; IKE is not
//! implemented.
//!
//! Thread-safety: each core has a work of its own; the hub is shared, and its counters are atomic.
#![forbid(unsafe_code)]

mod ecn;
pub mod esp;
mod hub;
mod icmp;
mod ip;
pub mod replay;
pub mod sa;
pub mod spd;
pub mod suite;
mod sync;
mod work;
pub mod xfrm;

pub use hub::{BadSa, IpsecHub, SaError, Settings, Totals};
pub use sa::{Sa, SaConfig};
pub use work::Ipsec;
