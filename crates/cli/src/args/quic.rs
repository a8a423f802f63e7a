//! The arguments that say which packets are spread by QUIC connection ID.

use flowyard_flow::Quic;

use crate::stop::{Stop, bad_input};

/// QUIC packets that are spread by their connection ID.
#[derive(clap::Args)]
pub(crate) struct QuicArgs {
    /// Spread UDP datagrams to these ports of QUIC servers by connection ID, so that a client that changes its address
    /// keeps its queue; without PORTS, port 443
    #[arg(
        long,
        value_name = "PORTS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "443",
        value_parser = ports,
        help_heading = "QUIC"
    )]
    quic: Option<Ports>,

    /// Length of the connection IDs that the servers make, in bytes: so much of an ID is hashed at most, since packets
    /// with a short header do not say how long it is
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = Quic::ID_BYTES,
        requires = "quic",
        help_heading = "QUIC"
    )]
    quic_id: u8,

    /// Hash only the server ID of this length, which is behind the first byte of the connection ID (QUIC-LB, not
    /// encrypted): all connections of a server get one queue
    #[arg(long, value_name = "BYTES", requires = "quic", help_heading = "QUIC")]
    quic_server_id: Option<u8>,
}

impl QuicArgs {
    /// What these arguments say; `None` if QUIC is spread as any other UDP.
    pub(crate) fn quic(&self) -> Result<Option<Quic>, Stop> {
        let Some(Ports(ports)) = &self.quic else { return Ok(None) };
        let quic = Quic::new(ports, self.quic_id, self.quic_server_id);
        quic.map(Some).map_err(|error| bad_input(format!("--quic: {error}")))
    }
}

/// Port numbers, separated by commas.
#[derive(Clone, Debug)]
struct Ports(Vec<u16>);

fn ports(text: &str) -> Result<Ports, String> {
    let ports: Result<_, _> = text.split(',').map(|port| port.trim().parse()).collect();
    let wrong = || format!("must be port numbers, such as 443,8443, not '{text}'");
    ports.map(Ports).map_err(|_| wrong())
}
