//! The flows, groups and meters of `[switch]`, in the syntax of `ovs-ofctl`, with the names of the
//! configuration's ports.
//!
//! ```text
//!  meters, groups, flows ──ofctl──> messages ──Agent::preset──> changes ──> SwitchHub
//! ```
//!
//! Thread-safety: plain functions.

use flowyard_openflow::Message;
use flowyard_openflow::agent::Agent;
use flowyard_openflow::flow::FlowCommand;
use flowyard_openflow::group::{GroupCommand, MeterCommand};
use flowyard_openflow::ofctl::{self, TextError};
use toml::Spanned;

use super::{Config, ConfigError};

/// The kind of a text, and its position.
type Placed<'a> = (&'a Spanned<String>, Message);

impl Config {
    /// The texts of `[switch]`: meters, groups, then flows, because each may refer to those before
    /// it.
    fn flow_messages<'a>(
        &self,
        switch: &'a super::SwitchConfig,
    ) -> Result<Vec<Placed<'a>>, ConfigError> {
        let numbers = self.switch_ports();
        let names: Vec<(&str, u32)> =
            self.ports().map(|port| port.name.get_ref().as_str()).zip(numbers).collect();
        let meter = |text: &str| ofctl::meter(text, MeterCommand::Add).map(Message::MeterMod);
        let group =
            |text: &str| ofctl::group_with(text, GroupCommand::Add, &names).map(Message::GroupMod);
        let flow =
            |text: &str| ofctl::flow_with(text, FlowCommand::Add, &names).map(Message::FlowMod);
        let mut all = Vec::new();
        for text in &switch.meters {
            all.push((text, meter(text.get_ref()).map_err(|e| self.unread(text, &e))?));
        }
        for text in &switch.groups {
            all.push((text, group(text.get_ref()).map_err(|e| self.unread(text, &e))?));
        }
        for text in &switch.flows {
            all.push((text, flow(text.get_ref()).map_err(|e| self.unread(text, &e))?));
        }
        Ok(all)
    }

    /// The position in the file, if the text in the file has no escapes.
    fn unread(&self, text: &Spanned<String>, error: &TextError) -> ConfigError {
        let span = text.span();
        let written = self.source.text.get(span.clone()).unwrap_or("");
        let front = written.find(text.get_ref().as_str());
        let at = front.map_or(span.start, |front| span.start + front + error.column - 1);
        let found =
            if error.found.is_empty() { String::new() } else { format!("'{}': ", error.found) };
        // In a text with escapes, the column in the file is not known.
        let within = match front {
            Some(_) => String::new(),
            None => format!("column {} of the text: ", error.column),
        };
        let what = format!("{within}{found}{}", error.why);
        self.error(at..span.end.max(at), what, error.fix.clone())
    }

    /// Gives an agent with empty tables the ports of the switch, and the meters, groups and flows
    /// of `[switch]`.
    ///
    /// # Errors
    /// The first text that cannot be parsed, or that the agent refuses.
    pub fn load_switch(&self, agent: &mut Agent) -> Result<(), ConfigError> {
        let mut out = Vec::new(); // no controller is connected yet
        if let Some(hub) = self.switch_hub(agent.lookups()) {
            hub.ports().into_iter().for_each(|port| agent.port_add(port, 0, &mut out));
        }
        let switch = self.switch();
        for (text, message) in self.flow_messages(&switch)? {
            agent.preset(&message, 0, &mut out).map_err(|problem| {
                let text_of = short(text.get_ref());
                let what = format!("'{text_of}': the switch refuses it: {}", problem.why);
                self.error(text.span(), what, "change it, or what it names")
            })?;
        }
        Ok(())
    }
}

/// The start of a text, because a group may have a thousand buckets.
fn short(text: &str) -> String {
    const MOST: usize = 200;
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}..", &text[..at]),
        None => text.into(),
    }
}
