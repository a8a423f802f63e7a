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
        self.error(at..span.end.max(at), what, error.mend.clone())
    }

    /// Gives an agent, whose tables are empty, the ports of the switch and what `[switch]` says of meters,
    /// groups and flows.
    ///
    /// # Errors
    /// The first that cannot be read, or that the agent refuses.
    pub fn load_switch(&self, agent: &mut Agent) -> Result<(), ConfigError> {
        let mut out = Vec::new(); // nobody is there to be told
        if let Some(hub) = crate::work::switch_hub(self, agent.lookups()) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(switch: &str) -> Result<Config, ConfigError> {
        let text = format!(
            "[[port]]\nname = \"west\"\nkind = \"mem\"\n[[port]]\nname = \"east\"\nkind = \"mem\"\n[[queue]]\n\
             name = \"q\"\norder = \"direct\"\nconsumers = [0]\n[work]\nkind = \"switch\"\n[switch]\n{switch}\n"
        );
        Config::parse("yard.toml", &text)
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (switch, line, column, what) in [
            ("flows = ['in_port=west,actions=output:nord']", 14, 39, "column 29: 'nord'"),
            (
                "flows = [\n  \"actions=output:1\",\n  \"tcp,udp_src=x,actions=1\",\n]",
                16,
                16,
                "'x'",
            ),
            ("flows = ['actions=group:7']", 14, 10, "no such group"),
            ("meters = ['meter=1,kbps']\nmeters = []", 15, 1, "duplicate"),
            ("groups = ['group_id=1,type=most']", 14, 28, "no such type"),
            ("meters = ['meter=1,kbps,band=type=drop']", 14, 29, "a band without rate"),
            ("tables = 2\nflows = ['table=2,actions=drop']", 15, 10, "no such table"),
        ] {
            let error = parse(switch).expect_err(switch);
            assert_eq!((error.line, error.column), (line, column), "{error}");
            assert!(error.what.contains(what), "{error}");
        }
    }

    #[test]
    fn an_agent_has_what_is_written_in_order() {
        let config = parse(
            "ports = { east = 7 }\nflows = ['in_port=east,actions=meter:1,group:1']\n\
             groups = ['group_id=1,type=ff,bucket=watch_port:east,output:west']\n\
             meters = ['meter=1,pktps,band=type=drop,rate=5']",
        )
        .expect("it is sound");
        let mut agent = config.switch_agent().expect("an agent");
        config.load_switch(&mut agent).expect("all is taken");
        assert_eq!((agent.flows(), agent.ports().len()), (1, 2));
        assert_eq!(agent.drain().len(), 5); // two ports, a meter, a group, a flow
    }
}
