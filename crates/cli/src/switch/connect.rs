//! The options and the address for a connection to a switch.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use flowyard_openflow::Version;
use flowyard_operate::openflow::Endpoint;
use flowyard_operate::openflow::client::Client;
use flowyard_operate::openflow::tls::{Loaded, Tls};

use crate::stop::{Stop, bad_input};

/// How to connect to a switch.
#[derive(clap::Args)]
pub(super) struct Options {
    /// OpenFlow versions to offer, separated by commas
    #[arg(
        short = 'O',
        long,
        global = true,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1.3,1.4"
    )]
    protocols: Vec<Protocol>,

    /// Maximum time to wait for an answer, such as 10s
    #[arg(long, global = true, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    timeout: Duration,

    /// File with this client's certificate (PEM), for a tls: address
    #[arg(long, global = true, value_name = "FILE", requires = "private_key")]
    certificate: Option<PathBuf>,

    /// File with the private key of --certificate (PEM)
    #[arg(long, global = true, value_name = "FILE", requires = "ca_cert")]
    private_key: Option<PathBuf>,

    /// File with the certificate of the authority that signed the switch's certificate (PEM)
    #[arg(long, global = true, value_name = "FILE", requires = "certificate")]
    ca_cert: Option<PathBuf>,
}

/// The switch.
#[derive(clap::Args)]
pub(super) struct At {
    /// Address at which the switch listens: `tcp:HOST[:PORT]`, `tls:HOST[:PORT]` (default port 6653) or
    /// unix:PATH
    #[arg(value_parser = address)]
    pub(super) switch: Endpoint,
}

/// Parses an address to connect to.
fn address(text: &str) -> Result<Endpoint, String> {
    const FIX: &str = "write tcp:HOST[:PORT], tls:HOST[:PORT] or unix:PATH";
    match text.parse::<Endpoint>() {
        Ok(endpoint) if endpoint.listens => {
            Err(format!("a switch listens on such an address; {FIX}"))
        }
        Ok(endpoint) => Ok(endpoint),
        Err(error) => Err(format!("{}; {FIX}", error.why())),
    }
}

/// The options for a connection to a switch, hidden: commands that ask over the control socket do not use
/// them. The identifiers are those in [`Options`], which are then not inherited.
#[derive(clap::Args)]
pub(super) struct Unused {
    #[arg(short = 'O', long, hide = true, value_delimiter = ',')]
    protocols: Vec<Protocol>,
    #[arg(long, hide = true, value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
    #[arg(long, hide = true)]
    certificate: Option<PathBuf>,
    #[arg(long, hide = true)]
    private_key: Option<PathBuf>,
    #[arg(long, hide = true)]
    ca_cert: Option<PathBuf>,
}

/// A version of OpenFlow; `OpenFlow13` is how `ovs-ofctl` writes 1.3.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Protocol {
    #[value(name = "1.0", aliases = ["10", "OpenFlow10", "OpenFlow1.0"])]
    V10,
    #[value(name = "1.3", aliases = ["13", "OpenFlow13", "OpenFlow1.3"])]
    V13,
    #[value(name = "1.4", aliases = ["14", "OpenFlow14", "OpenFlow1.4"])]
    V14,
}

impl From<Protocol> for Version {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::V10 => Self::V10,
            Protocol::V13 => Self::V13,
            Protocol::V14 => Self::V14,
        }
    }
}

/// A failure at run time.
pub(super) fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Stop {
    Stop::Failed(error.into())
}

impl Options {
    pub(super) fn connect(&self, at: &At) -> Result<Client, Stop> {
        let tls = match (&self.certificate, &self.private_key, &self.ca_cert) {
            (Some(certificate), Some(key), Some(authority)) => {
                let files = Tls {
                    certificate: certificate.clone(),
                    key: key.clone(),
                    authority: authority.clone(),
                };
                Some(Loaded::new(&files).map_err(bad_input)?)
            }
            _ if at.switch.is_tls() => {
                let files = "--certificate, --private-key and --ca-cert";
                return Err(bad_input(format!("{}: a TLS connection needs {files}", at.switch)));
            }
            _ => None,
        };
        let versions: Vec<Version> = self.protocols.iter().copied().map(Into::into).collect();
        Client::connect(&at.switch, &versions, tls.as_ref(), self.timeout).map_err(failed)
    }
}

/// Prints a line on standard output.
pub(super) fn say(line: &str) -> Result<(), Stop> {
    crate::output::line(&format!("{line}\n"))
}
