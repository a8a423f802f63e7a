//! Configuration of the connections to controllers.

use std::time::Duration;

use flowyard_openflow::Version;

use super::endpoint::Endpoint;
use super::shared::Connections;
use super::tap::Tap;
use super::tls::Tls;

/// How a switch handles frames while it has no controller (OpenFlow 1.3.5, section 6.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fail {
    /// Flow entries stay in effect; packets to the controller are dropped.
    #[default]
    Secure,
    /// Frames are forwarded as by a switch without OpenFlow: all of them while no configured controller
    /// is connected, and those that match no flow if no controller is configured.
    Standalone,
}

/// Configuration of the connections to controllers.
#[derive(Clone, Debug)]
pub struct Config {
    /// Controllers to connect to, and addresses to listen on.
    pub endpoints: Vec<Endpoint>,
    /// The number of auxiliary connections to each controller, usually 0.
    pub auxiliary: u8,
    /// The protocol versions to offer.
    pub versions: Vec<Version>,
    /// The behaviour without a controller.
    pub fail: Fail,
    /// Idle time after which an echo request is sent. The connection is closed after twice this time.
    pub probe: Duration,
    /// The time within which a controller that has opened a connection must have sent a hello that is accepted, over TLS
    /// after the handshake.
    pub hello_timeout: Duration,
    /// The first and the longest pause before connecting to a controller again.
    pub backoff: (Duration, Duration),
    /// The time after which an agent that does not respond is stuck: its connections are closed.
    pub patience: Duration,
    /// Certificates for the endpoints `tls:` and `ptls:`.
    pub tls: Option<Tls>,
    /// Where the channel keeps the messages that pass, while someone reads along.
    pub tap: Tap,
    /// Where the channel keeps the states of its connections.
    pub connections: Connections,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            auxiliary: 0,
            versions: Version::ALL.to_vec(),
            fail: Fail::Secure,
            probe: Duration::from_secs(5),
            hello_timeout: Duration::from_secs(10),
            backoff: (Duration::from_millis(500), Duration::from_secs(8)),
            patience: Duration::from_secs(5),
            tls: None,
            tap: Tap::default(),
            connections: Connections::default(),
        }
    }
}
