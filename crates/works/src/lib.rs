//! Works: what an engine does with frames.
//!
//! | work | decides by | sends to |
//! |---|---|---|
//! | [`Forward`] | the port a frame came in by | a fixed port |
//! | [`Bridge`] | destination MAC address | the port where that was last seen; unknown: all others |
//! | [`Router`] | destination IP address | port and next hop of the longest prefix |
//! | [`burn()`] | the work that it wraps | the same, and the core is busy for a set time |
//!
//! [`neighbour`] resolves the MAC addresses of next hops by ARP and neighbour discovery; the load
//! balancer uses it. The load balancer and the OpenFlow switch are crates of their own.
//!
//! Thread-safety: each core has a work of its own. Each work describes the state that its cores
//! share.
#![forbid(unsafe_code)]

mod bridge;
mod burn;
mod forward;
pub mod neighbour;
mod route;

pub use bridge::{Age, Bridge, floods};
pub use burn::burn;
pub use forward::{Forward, PortMap};
pub use route::{Hop, NewRoutes, Router, Routes};
