//! Flows, groups and meters in `[switch]`: text as `ovs-ofctl` has it, with the names of the yard's ports.
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

/// What text is, and where it stands.
type Placed<'a> = (&'a Spanned<String>, Message);

impl Config {
    /// What `[switch]` says of meters, groups and flows, in this order: each may name those before it.
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

    /// Where it stands in the file, if the text is written there as it is read.
    fn unread(&self, text: &Spanned<String>, error: &TextError) -> ConfigError {
        let span = text.span();
        let written = self.source.text.get(span.clone()).unwrap_or("");
        let front = written.find(text.get_ref().as_str());
        let at = front.map_or(span.start, |front| span.start + front + error.column - 1);
        let what = format!("column {}: '{}': {}", error.column, error.found, error.why);
        self.error(at..span.end.max(at), what, error.fix.clone())
    }

    /// Gives an agent, whose tables are empty, the ports of the switch and what `[switch]` says of meters,
    /// groups and flows.
    ///
    /// # Errors
    /// The first that cannot be read, or that the agent refuses.
    pub fn load_switch(&self, agent: &mut Agent) -> Result<(), ConfigError> {
        let mut out = Vec::new(); // no controller is connected yet
        if let Some(hub) = self.switch_hub(agent.lookups()) {
            hub.ports().into_iter().for_each(|port| agent.port_add(port, 0, &mut out));
        }
        let switch = self.switch();
        for (text, message) in self.flow_messages(&switch)? {
            agent.preset(&message, 0, &mut out).map_err(|problem| {
                let what = format!("'{}': the switch refuses it: {}", text.get_ref(), problem.why);
                self.error(text.span(), what, "change it, or what it names")
            })?;
        }
        Ok(())
    }
}
