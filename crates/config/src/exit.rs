//! The keys of an exit: by which port frames leave, and towards which next hop.

use serde::{Deserialize, Serialize};
use toml::Spanned;

/// An exit: a port and a next hop.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = "{ port = \"east\" }, the port towards the next hop")]
pub struct ExitConfig {
    /// The port.
    pub port: Spanned<String>,
    /// The MAC address of the next hop, or the IP address of a gateway. By default the backend is
    /// on the link of the port, and a client's next hop is the station from which its packets came.
    pub next_hop: Option<Spanned<String>>,
}
