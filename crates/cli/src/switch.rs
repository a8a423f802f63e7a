//! `flowyard switch`: an OpenFlow client for the command line, with the syntax of `ovs-ofctl`.

mod ask;
mod print;
mod why;

pub(crate) use why::SCHEMA as WHY;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use clap::{Subcommand, ValueEnum};
use flowyard_openflow::flow::FlowCommand;
use flowyard_openflow::group::{GroupCommand, MeterCommand};
use flowyard_openflow::{Message, Version, ofctl};
use flowyard_operate::openflow::Endpoint;
use flowyard_operate::openflow::client::Client;
use flowyard_operate::openflow::tls::{Loaded, Tls};

use crate::stop::{Stop, bad_input};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard switch show tcp:127.0.0.1:6653
  flowyard switch dump-flows unix:/run/flowyard/switch.sock tcp,nw_dst=10.0.0.0/8
  flowyard switch add-flow tcp:127.0.0.1 'priority=7,tcp,tp_dst=80,actions=output:1'
  flowyard switch why in_port=1,udp")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,

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

#[derive(clap::Args)]
struct At {
    /// Address at which the switch listens: `tcp:HOST[:PORT]`, `tls:HOST[:PORT]` (default port 6653) or
    /// unix:PATH
    switch: Endpoint,
}

#[derive(clap::Args)]
struct Texts {
    #[command(flatten)]
    at: At,

    /// The flow, group or meter, in the syntax of ovs-ofctl; @FILE reads a file with one in each line, @-
    /// reads standard input
    text: String,
}

#[derive(clap::Args)]
struct Which {
    #[command(flatten)]
    at: At,

    /// The match of the entries, such as tcp,nw_dst=10.0.0.0/8, or the number of a group or meter; in the
    /// syntax of ovs-ofctl [default: all]
    #[arg(default_value = "", hide_default_value = true)]
    text: String,

    /// Only the flow with exactly the match and the priority of TEXT, such as priority=7,tcp
    #[arg(long)]
    strict: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Print the switch's description and its ports
    #[command(after_help = "Example:\n  flowyard switch show tcp:127.0.0.1:6653")]
    Show(At),
    /// Print flows: all, or those that a match includes
    #[command(after_help = "Example:\n  flowyard switch dump-flows tcp:127.0.0.1 table=0,tcp")]
    DumpFlows(Which),
    /// Print the total numbers of flows, packets and bytes, of all flows or of those that TEXT includes
    #[command(after_help = "Example:\n  flowyard switch dump-aggregate tcp:127.0.0.1 udp")]
    DumpAggregate(Which),
    /// Add flows
    #[command(
        after_help = "Example:\n  flowyard switch add-flow tcp:127.0.0.1 'priority=7,tcp,tp_dst=80,actions=output:1'"
    )]
    AddFlow(Texts),
    /// Change the actions of flows
    #[command(
        after_help = "Example:\n  flowyard switch mod-flows tcp:127.0.0.1 'table=1,tcp,actions=drop'"
    )]
    ModFlows {
        #[command(flatten)]
        texts: Texts,
        /// Only the flow with exactly the match and the priority of TEXT, such as priority=7,tcp
        #[arg(long)]
        strict: bool,
    },
    /// Delete flows: all, or those that a match includes
    #[command(after_help = "Example:\n  flowyard switch del-flows tcp:127.0.0.1 table=1")]
    DelFlows(Which),
    /// Print groups
    #[command(after_help = "Example:\n  flowyard switch dump-groups tcp:127.0.0.1")]
    DumpGroups(At),
    /// Print the counters of groups
    #[command(after_help = "Example:\n  flowyard switch dump-group-stats tcp:127.0.0.1")]
    DumpGroupStats(At),
    /// Add groups
    #[command(
        after_help = "Example:\n  flowyard switch add-group tcp:127.0.0.1 'group_id=1,type=select,bucket=weight:2,actions=output:1'"
    )]
    AddGroup(Texts),
    /// Change groups
    #[command(
        after_help = "Example:\n  flowyard switch mod-group tcp:127.0.0.1 'group_id=1,type=all,bucket=actions=output:2'"
    )]
    ModGroup(Texts),
    /// Delete all groups, or one
    #[command(after_help = "Example:\n  flowyard switch del-groups tcp:127.0.0.1 group_id=1")]
    DelGroups(Which),
    /// Print meters
    #[command(after_help = "Example:\n  flowyard switch dump-meters tcp:127.0.0.1")]
    DumpMeters(At),
    /// Print the counters of meters
    #[command(after_help = "Example:\n  flowyard switch meter-stats tcp:127.0.0.1")]
    MeterStats(At),
    /// Add meters
    #[command(
        after_help = "Example:\n  flowyard switch add-meter tcp:127.0.0.1 'meter=1,kbps,band=type=drop,rate=1000'"
    )]
    AddMeter(Texts),
    /// Change meters
    #[command(
        after_help = "Example:\n  flowyard switch mod-meter tcp:127.0.0.1 'meter=1,kbps,band=type=drop,rate=2000'"
    )]
    ModMeter(Texts),
    /// Delete all meters, or one
    #[command(after_help = "Example:\n  flowyard switch del-meters tcp:127.0.0.1 meter=1")]
    DelMeters(Which),
    /// Print the counters of ports
    #[command(after_help = "Example:\n  flowyard switch dump-ports tcp:127.0.0.1")]
    DumpPorts(At),
    /// Print the counters of tables
    #[command(after_help = "Example:\n  flowyard switch dump-tables tcp:127.0.0.1")]
    DumpTables(At),
    /// Show which flows a frame matches in the switch of a running instance, and whether the lookup is
    /// cached
    Why(why::Args),
    /// Print the messages that the switch sends to controllers, until interrupted
    #[command(
        after_help = "Example:\n  flowyard switch monitor tcp:127.0.0.1 -O 1.4 --watch --count 10"
    )]
    Monitor {
        #[command(flatten)]
        at: At,
        /// Also print flows when they are added, changed or deleted (needs -O 1.4)
        #[arg(long)]
        watch: bool,
        /// Exit after N messages [default: never]
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
}

/// A version of OpenFlow; `OpenFlow13` is how `ovs-ofctl` writes 1.3.
#[derive(Clone, Copy, ValueEnum)]
enum Protocol {
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

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    match &args.command {
        Command::Show(at) => ask::show(&mut args.connect(at)?),
        Command::DumpFlows(some) => {
            let filter = ofctl::filter(&some.text).map_err(bad_input)?;
            ask::flows(&mut args.connect(&some.at)?, filter)
        }
        Command::DumpAggregate(some) => {
            let filter = ofctl::filter(&some.text).map_err(bad_input)?;
            ask::aggregate(&mut args.connect(&some.at)?, filter)
        }
        Command::AddFlow(texts) => args.change(texts, flow(FlowCommand::Add)),
        Command::ModFlows { texts, strict } => {
            let strict = if *strict { FlowCommand::ModifyStrict } else { FlowCommand::Modify };
            args.change(texts, flow(strict))
        }
        Command::DelFlows(some) => {
            let strict = if some.strict { FlowCommand::DeleteStrict } else { FlowCommand::Delete };
            args.one(&some.at, flow(strict)(&some.text))
        }
        Command::DumpGroups(at) => ask::groups(&mut args.connect(at)?),
        Command::DumpGroupStats(at) => ask::group_stats(&mut args.connect(at)?),
        Command::AddGroup(texts) => args.change(texts, group(GroupCommand::Add)),
        Command::ModGroup(texts) => args.change(texts, group(GroupCommand::Modify)),
        Command::DelGroups(some) => args.one(&some.at, group(GroupCommand::Delete)(&some.text)),
        Command::DumpMeters(at) => ask::meters(&mut args.connect(at)?),
        Command::MeterStats(at) => ask::meter_stats(&mut args.connect(at)?),
        Command::AddMeter(texts) => args.change(texts, meter(MeterCommand::Add)),
        Command::ModMeter(texts) => args.change(texts, meter(MeterCommand::Modify)),
        Command::DelMeters(some) => args.one(&some.at, meter(MeterCommand::Delete)(&some.text)),
        Command::DumpPorts(at) => ask::ports(&mut args.connect(at)?),
        Command::DumpTables(at) => ask::tables(&mut args.connect(at)?),
        Command::Why(args) => why::run(args),
        Command::Monitor { at, watch, count } => {
            ask::monitor(&mut args.connect(at)?, *watch, *count)
        }
    }
}

type Read = Result<Message, ofctl::TextError>;

fn flow(command: FlowCommand) -> impl Fn(&str) -> Read {
    move |text| ofctl::flow(text, command).map(Message::FlowMod)
}

fn group(command: GroupCommand) -> impl Fn(&str) -> Read {
    move |text| ofctl::group(text, command).map(Message::GroupMod)
}

fn meter(command: MeterCommand) -> impl Fn(&str) -> Read {
    move |text| ofctl::meter(text, command).map(Message::MeterMod)
}

/// A failure at run time.
fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Stop {
    Stop::Failed(error.into())
}

impl Args {
    fn connect(&self, at: &At) -> Result<Client, Stop> {
        if at.switch.listens {
            return Err(bad_input(format!(
                "{}: this is an address to listen on; write the switch's address, such as tcp:127.0.0.1:6653",
                at.switch
            )));
        }
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

    fn one(&self, at: &At, read: Read) -> Result<(), Stop> {
        let message = read.map_err(bad_input)?;
        match self.connect(at)?.change(&[message]).map_err(failed)? {
            None => Ok(()),
            Some((_, why)) => Err(Stop::Failed(anyhow!("the switch refused the change: {why}"))),
        }
    }

    /// Sends one change, or those in a file. The file is read completely before any change is sent.
    fn change(&self, texts: &Texts, read: impl Fn(&str) -> Read) -> Result<(), Stop> {
        let Some(path) = texts.text.strip_prefix('@') else {
            return self.one(&texts.at, read(&texts.text));
        };
        let file = |error| bad_input(format!("{path}: {error}"));
        let lines = match path {
            "-" => std::io::read_to_string(std::io::stdin()).map_err(file)?,
            path => std::fs::read_to_string(path).map_err(file)?,
        };
        let lines = lines.lines().map(|line| line.split('#').next().unwrap_or("").trim_end());
        let lines: Vec<(usize, &str)> =
            (1..).zip(lines).filter(|(_, line)| !line.trim().is_empty()).collect();
        let mut messages = Vec::new();
        for (number, line) in &lines {
            let wrong = |error| bad_input(format!("{path}: line {number}: {error}"));
            messages.push(read(line).map_err(wrong)?);
        }
        match self.connect(&texts.at)?.change(&messages).map_err(failed)? {
            None => Ok(()),
            Some((place, why)) => {
                let line = lines.get(place).map_or(0, |(number, _)| *number);
                Err(Stop::Failed(anyhow!(
                    "{path}: line {line}: the switch refused the change: {why}"
                )))
            }
        }
    }
}

/// Prints a line on standard output.
fn say(line: &str) -> Result<(), Stop> {
    crate::output::text(&format!("{line}\n"))
}
