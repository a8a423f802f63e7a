//! A connection to a switch that is opened when it is needed, and the names of the switch's ports.

use anyhow::anyhow;
use flowyard_openflow::multipart::{FlowFilter, Reply, Request};
use flowyard_openflow::ofctl::{Ports, TextError};
use flowyard_openflow::port::Port;
use flowyard_openflow::{Message, Version};
use flowyard_operate::openflow::client::{Client, name};

use super::connect::{At, Options, failed};
use super::words;
use crate::stop::{Stop, bad_input};

/// A connection to a switch.
pub(super) struct Session<'a> {
    options: &'a Options,
    at: &'a At,
    client: Option<Client>,
    ports: Option<Vec<(String, u32)>>,
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

    /// Calls `work` with the names of the switch's ports.
    pub(super) fn with_names<T>(&mut self, work: impl FnOnce(Ports<'_>) -> T) -> Result<T, Stop> {
        if self.ports.is_none() {
            let ports = self.ports()?;
            let named = |port: &Port| (words::text(&port.name), port.number);
            self.ports = Some(ports.iter().map(named).collect());
        }
        let named = self.ports.iter().flatten();
        let names: Vec<(&str, u32)> =
            named.map(|(name, number)| (name.as_str(), *number)).collect();
        Ok(work(&names))
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
