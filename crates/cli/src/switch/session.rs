//! A connection to a switch that is opened when it is needed, and the names of the switch's ports.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;

use anyhow::anyhow;
use flowyard_openflow::multipart::{FlowFilter, Reply, Request};
use flowyard_openflow::ofctl::{Ports, TextError};
use flowyard_openflow::port::{Port, PortReason};
use flowyard_openflow::{Message, Version};
use flowyard_operate::openflow::client::{Client, name};

use super::connect::{At, Options, failed};
use super::words;
use crate::stop::{Stop, bad_input};

/// How a command writes ports.
#[derive(clap::Args)]
pub(super) struct Named {
    /// Write names of ports in place of their numbers [default: if text is printed on a terminal]
    #[arg(long)]
    names: bool,

    /// Write numbers of ports, also on a terminal
    #[arg(long, conflicts_with = "names")]
    no_names: bool,
}

impl Named {
    /// Whether names are written. JSON documents are the same on a terminal and elsewhere.
    pub(super) fn wanted(&self, json: bool) -> bool {
        let on_terminal = || std::io::stdout().is_terminal();
        self.names || (!self.no_names && !json && on_terminal())
    }
}

/// The names of a switch's ports.
#[derive(Clone, Default)]
pub(super) struct PortNames(BTreeMap<u32, String>);

impl PortNames {
    pub(super) fn list(&self) -> Vec<(&str, u32)> {
        self.0.iter().map(|(number, name)| (name.as_str(), *number)).collect()
    }

    /// Takes the name of a port that was added or changed. That of a deleted port stays: flows name it.
    pub(super) fn learn(&mut self, message: &Message) {
        if let Message::PortStatus(status) = message
            && status.reason != PortReason::Delete
        {
            self.0.insert(status.port.number, words::text(&status.port.name));
        }
    }
}

/// A connection to a switch.
pub(super) struct Session<'a> {
    options: &'a Options,
    at: &'a At,
    client: Option<Client>,
    ports: Option<PortNames>,
}

/// A text that cannot be parsed, and the file and line where it stands.
pub(super) struct Wrong {
    pub(super) place: String,
    pub(super) error: TextError,
}

impl From<TextError> for Wrong {
    fn from(error: TextError) -> Self {
        Self { place: String::new(), error }
    }
}

/// Concatenates the lists of a multipart answer.
macro_rules! all {
    ($client:expr, $request:expr, $kind:path) => {
        crate::switch::session::bodies($client, $request)?
            .into_iter()
            .flat_map(|body| match body {
                $kind(list) => list,
                _ => Vec::new(),
            })
            .collect::<Vec<_>>()
    };
}
pub(super) use all;

/// The bodies of a multipart answer.
pub(super) fn bodies(client: &mut Client, body: Request) -> Result<Vec<Reply>, Stop> {
    let request = Message::MultipartRequest { more: false, body };
    let answers = client.ask(&request).map_err(failed)?;
    let body = |message| match message {
        Message::MultipartReply { body, .. } => Some(body),
        _ => None,
    };
    Ok(answers.into_iter().filter_map(body).collect())
}

/// How many of the flows that `filter` selects the switch cannot write in the version of the connection, as a
/// clause. `written` is the number of those that it has written. A switch that refuses the question is taken at its
/// word.
pub(super) fn unwritten(client: &mut Client, filter: FlowFilter, written: usize) -> Option<String> {
    let flows =
        bodies(client, Request::Aggregate(filter)).ok()?.into_iter().find_map(
            |body| match body {
                Reply::Aggregate { flows, .. } => Some(flows as usize),
                _ => None,
            },
        )?;
    let missing = flows.checked_sub(written).filter(|missing| *missing > 0)?;
    let flow = if flows == 1 { "flow" } else { "flows" };
    Some(format!(
        "{missing} of {flows} {flow} cannot be written in OpenFlow {}",
        name(client.version())
    ))
}

/// The option with which the flows that [`unwritten`] counts may be written.
pub(super) fn other_version(client: &Client) -> &'static str {
    if client.version() == Version::V10 { "-O 1.4" } else { "-O 1.0" }
}

impl<'a> Session<'a> {
    pub(super) const fn new(options: &'a Options, at: &'a At) -> Self {
        Self { options, at, client: None, ports: None }
    }

    /// The connection, which is opened first if it is not open.
    pub(super) fn client(&mut self) -> Result<&mut Client, Stop> {
        let client = match self.client.take() {
            Some(client) => client,
            None => self.options.connect(self.at)?,
        };
        Ok(self.client.insert(client))
    }

    /// The ports of the switch.
    pub(super) fn ports(&mut self) -> Result<Vec<Port>, Stop> {
        let client = self.client()?;
        if client.version() != Version::V10 {
            return Ok(all!(client, Request::PortDesc, Reply::PortDesc));
        }
        let answers = client.ask(&Message::FeaturesRequest).map_err(failed)?;
        let ports = answers.into_iter().flat_map(|answer| match answer {
            Message::FeaturesReply(features) => features.ports,
            _ => Vec::new(),
        });
        Ok(ports.collect())
    }

    /// Sends one change.
    pub(super) fn only(&mut self, message: Message) -> Result<(), Stop> {
        match self.client()?.change(&[message]).map_err(failed)?.first() {
            None => Ok(()),
            Some(refused) => {
                Err(Stop::Failed(anyhow!("the switch refused the change: {}", refused.why)))
            }
        }
    }

    /// The names of the switch's ports, for which it is asked once.
    pub(super) fn names(&mut self) -> Result<PortNames, Stop> {
        if let Some(names) = &self.ports {
            return Ok(names.clone());
        }
        let named = |port: &Port| (port.number, words::text(&port.name));
        let names = PortNames(self.ports()?.iter().map(named).collect());
        Ok(self.ports.insert(names).clone())
    }

    /// Calls `work` with the names of the switch's ports.
    pub(super) fn with_names<T>(&mut self, work: impl FnOnce(Ports<'_>) -> T) -> Result<T, Stop> {
        Ok(work(&self.names()?.list()))
    }

    /// Parses a text that may contain names of ports. The switch is asked for them only if the text cannot
    /// be parsed without.
    pub(super) fn parse<T, E: Into<Wrong>>(
        &mut self,
        parse: impl Fn(Ports<'_>) -> Result<T, E>,
    ) -> Result<T, Stop> {
        let wrong = match parse(&[]).map_err(Into::into) {
            Ok(parsed) => return Ok(parsed),
            Err(wrong) if wrong.error.may_be_port => self.with_names(|names| parse(names))?,
            Err(wrong) => Err(wrong)?,
        };
        wrong.map_err(|error| error.into().into())
    }
}

impl From<Wrong> for Stop {
    fn from(Wrong { place, error }: Wrong) -> Self {
        bad_input(format!("{place}{error}"))
    }
}
