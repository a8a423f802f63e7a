//! The adapter of an interface of this machine, as its settings are now.

use flowyard_adapter::profile::Profile;
use flowyard_adapter::rss::{FlowType, Hfunc, Printed};
use flowyard_adapter::rules::{Rule, parse};
use flowyard_analyze::{Local, RuleFile};
use flowyard_host::{RuleState, State, addresses};

use crate::output;
use crate::stop::{Stop, bad_input};

/// The settings of an interface.
pub(super) struct Interface {
    state: State,
}

pub(super) fn read(name: &str) -> Result<Interface, Stop> {
    let state = crate::host::read(name)?;
    if let (Some(rss), true) = (state.rss.value(), state.queues() != Some(1)) {
        let known = ["none", "symmetric-xor"].contains(&rss.transformation.as_str());
        let function = rss.function.value().map_or("unknown", String::as_str);
        if function != "toeplitz" || !known {
            return Err(bad_input(format!(
                "--interface: {name} hashes by {function} with the transformation {}; toeplitz is modelled, plain and \
                 with symmetric-xor",
                rss.transformation
            )));
        }
    }
    Ok(Interface { state })
}

impl Interface {
    /// The model of the interface's adapter. One without RSS is the software model.
    pub(super) fn adapter(&self) -> Result<&'static str, Stop> {
        let driver = self.state.driver.value().map_or("", |driver| &driver.name);
        match self.state.profile() {
            _ if self.state.rss.value().is_none() => Ok("software"),
            Some(profile) => Ok(profile.name),
            None => Err(bad_input(format!(
                "--interface: there is no model of the driver '{driver}' of {}; name a similar adapter with --adapter",
                self.state.interface
            ))),
        }
    }

    /// The settings of RSS; none without RSS.
    pub(super) fn port(&self) -> Option<Printed> {
        let rss = self.state.rss.value()?;
        let digits = rss.key.value().map(|key| key.split(':'));
        let key = digits.and_then(|all| all.map(|one| u8::from_str_radix(one, 16).ok()).collect());
        let hashed_as = |flow: FlowType| self.state.hashed_as(flow).name();
        let fields = |flow: FlowType| Some((flow, self.state.fields_of(hashed_as(flow))?));
        Some(Printed {
            queues: self.state.queues().and_then(|queues| u16::try_from(queues).ok()),
            reta: rss.table.iter().map(|queue| *queue as u16).collect(),
            key,
            hfunc: Some(match rss.transformation.as_str() {
                "symmetric-xor" => Hfunc::SymmetricXor,
                _ => Hfunc::Toeplitz,
            }),
            fields: FlowType::ALL.into_iter().filter_map(fields).collect(),
        })
    }

    /// The rules that are installed. Those that cannot be predicted are reported on standard error.
    pub(super) fn rules(&self, adapter: &Profile) -> Option<RuleFile> {
        let name = &self.state.interface;
        let list = &self.state.rules.value().filter(|rules| !rules.list.is_empty())?.list;
        if !adapter.fdir.is_modelled() {
            let count = list.len();
            output::note(&format!(
                "{name}: {count} rules are installed; they are not part of the prediction, because the rules of {} \
                 are not modelled",
                adapter.name
            ));
            return None;
        }
        let (rules, unknown) = parse_rules(list);
        for location in unknown {
            output::note(&format!(
                "{name}: the rule at location {location} is not part of the prediction, because `ethtool -N` has no \
                 words for it"
            ));
        }
        Some(RuleFile { name: format!("the rules of {name}"), rules })
    }

    /// The number of cores, from 0 to the last one that is online.
    pub(super) fn cores(&self) -> Option<u16> {
        let last = self.state.cpus.value()?.iter().map(|one| one.cpu).max()?;
        u16::try_from(last + 1).ok()
    }

    /// The core that each queue interrupts; none if one of them is not known.
    pub(super) fn queue_cores(&self, queues: u16) -> Vec<u16> {
        let core = |queue: u16| u16::try_from(self.state.cpu_of(queue.into())?).ok();
        (0..queues).map(core).collect::<Option<_>>().unwrap_or_default()
    }

    /// The addresses of the interface; none if it has none.
    pub(super) fn local(&self) -> Option<Local> {
        let all: Vec<_> =
            addresses(&self.state.interface).iter().map(ToString::to_string).collect();
        if all.is_empty() { None } else { all.join(",").parse().ok() }
    }
}

/// Rules as a driver lists them, and the locations of those that no words describe.
fn parse_rules(list: &[RuleState]) -> (Vec<Rule>, Vec<u32>) {
    let (mut rules, mut unknown) = (Vec::new(), Vec::new());
    for RuleState { location, rule } in list {
        match parse("rule", &format!("{rule} loc {location}")) {
            Ok(one) if !one.is_empty() => rules.extend(one),
            _ => unknown.push(*location),
        }
    }
    (rules, unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_rules_keep_their_locations() {
        let texts = [
            "flow-type tcp4 dst-port 80 action 3",
            "raw 00ff",
            "flow-type udp4 src-ip 10.0.0.1 action -1",
        ];
        let list: Vec<_> = (7..)
            .zip(texts)
            .map(|(location, rule)| RuleState { location, rule: rule.to_owned() })
            .collect();
        let (rules, unknown) = parse_rules(&list);
        let locations: Vec<_> = rules.iter().map(|rule| rule.loc).collect();
        assert_eq!((locations, unknown), (vec![Some(7), Some(9)], vec![8]));
        assert!(rules[0].text.contains("dst-port 80"), "{:?}", rules[0].text);
    }
}
