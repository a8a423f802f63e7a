//! `flowyard switch`: a controller for a moment, in the syntax that people type for `ovs-ofctl`.

mod ask;
mod print;
mod why;

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use clap::Subcommand;
use flowyard_openflow::flow::FlowCommand;
use flowyard_openflow::group::{GroupCommand, MeterCommand};
use flowyard_openflow::{Message, Version, ofctl};
use flowyard_operate::openflow::Endpoint;
use flowyard_operate::openflow::client::Client;
use flowyard_operate::openflow::tls::{Loaded, Tls};

use crate::stop::{Stop, bad_input};

/// Asks a switch, changes it, watches it.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,

    /// OpenFlow versions that may be spoken
    #[arg(short = 'O', long, global = true, value_name = "LIST", value_delimiter = ',', default_value = "1.3,1.4", value_parser = version)]
    protocols: Vec<Version>,

    /// How long to wait for an answer
    #[arg(long, global = true, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    timeout: Duration,

    /// This side's certificate (PEM), for tls:
    #[arg(long, global = true, value_name = "FILE", requires = "private_key")]
    certificate: Option<PathBuf>,

    /// Its private key (PEM)
    #[arg(long, global = true, value_name = "FILE", requires = "ca_cert")]
    private_key: Option<PathBuf>,

    /// The certificate of who signs the switch's (PEM)
    #[arg(long, global = true, value_name = "FILE", requires = "certificate")]
    ca_cert: Option<PathBuf>,
}

/// Where the switch listens.
#[derive(clap::Args)]
struct At {
    /// Where the switch listens: tcp:HOST:PORT, tls:HOST:PORT (6653 if left out) or unix:PATH
    switch: Endpoint,
}

/// A group, a flow or a meter as text, or a file of them.
#[derive(clap::Args)]
struct Texts {
    #[command(flatten)]
    at: At,

    /// As ovs-ofctl writes it; `@FILE` is a file with one on each line, `@-` standard input
    text: String,
}

/// What is deleted or shown; all without.
#[derive(clap::Args)]
struct Which {
    #[command(flatten)]
    at: At,

    /// Which, as ovs-ofctl writes it [default: all]
    #[arg(default_value = "")]
    text: String,

    /// Only the one with exactly this match and priority
    #[arg(long)]
    strict: bool,
}

#[derive(Subcommand)]
enum Command {
    /// What the switch is, and its ports
    Show(At),
    /// Flows, all or those within a match
    DumpFlows(Which),
    /// How many flows, packets and bytes
    DumpAggregate(Which),
    /// Add flows
    AddFlow(Texts),
    /// Give flows other actions
    ModFlows {
        #[command(flatten)]
        texts: Texts,
        /// Only the one with exactly this match and priority
        #[arg(long)]
        strict: bool,
    },
    /// Delete flows, all or those within a match
    DelFlows(Which),
    /// Groups
    DumpGroups(At),
    /// Counters of groups
    DumpGroupStats(At),
    /// Add groups
    AddGroup(Texts),
    /// Change groups
    ModGroup(Texts),
    /// Delete groups, all or one
    DelGroups(Which),
    /// Meters
    DumpMeters(At),
    /// Counters of meters
    MeterStats(At),
    /// Add meters
    AddMeter(Texts),
    /// Change meters
    ModMeter(Texts),
    /// Delete meters, all or one
    DelMeters(Which),
    /// Counters of ports
    DumpPorts(At),
    /// Counters of tables
    DumpTables(At),
    /// Say which flows of a running yard's switch a frame meets, and whether its cache answers the next
    Why(why::Args),
    /// Print what the switch tells its controllers, until interrupted
    Monitor {
        #[command(flatten)]
        at: At,
        /// Also flows that come, change and go (OpenFlow 1.4)
        #[arg(long)]
        watch: bool,
        /// Stop after so many messages
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
}

fn version(text: &str) -> Result<Version, String> {
    match text.trim_start_matches("OpenFlow").replace('.', "").as_str() {
        "10" => Ok(Version::V10),
        "13" => Ok(Version::V13),
        "14" => Ok(Version::V14),
        _ => Err("write 1.0, 1.3 or 1.4".into()),
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

/// A failure on the way.
fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Stop {
    Stop::Failed(error.into())
}

impl Args {
    fn connect(&self, at: &At) -> Result<Client, Stop> {
        if at.switch.listens {
            return Err(bad_input(format!(
                "{}: a place to listen at; write where the switch listens, such as tcp:127.0.0.1:6653",
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
                return Err(bad_input(format!("{}: TLS needs {files}", at.switch)));
            }
            _ => None,
        };
        Client::connect(&at.switch, &self.protocols, tls.as_ref(), self.timeout).map_err(failed)
    }

    fn one(&self, at: &At, read: Read) -> Result<(), Stop> {
        let message = read.map_err(bad_input)?;
        match self.connect(at)?.change(&[message]).map_err(failed)? {
            None => Ok(()),
            Some((_, why)) => Err(Stop::Failed(anyhow!("the switch refused: {why}"))),
        }
    }

    /// Reads all before it sends any.
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
                Err(Stop::Failed(anyhow!("{path}: line {line}: the switch refused: {why}")))
            }
        }
    }
}

/// A line on standard output.
fn say(line: &str) -> Result<(), Stop> {
    let mut out = stdout().lock();
    out.write_all(line.as_bytes())?;
    out.write_all(b"\n")?;
    Ok(())
}
