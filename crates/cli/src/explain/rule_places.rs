//! Where each rule of a set can live: in the adapter, in XDP, in RPS and RFS, in a yard.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use flowyard_adapter::rules::{self, Rule, RuleAction, Target};
use flowyard_frame::{FlowKey, proto};
use flowyard_steer::{Model, Policy};
use schemars::JsonSchema;
use serde::Serialize;

/// Where a rule can live.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RulePlaces {
    /// The line of the rule in its file.
    pub(crate) line: u32,
    /// The rule as written.
    pub(crate) rule: String,
    /// Whether it matches the flow.
    pub(crate) matches: bool,
    /// In the adapter, as options of `ethtool -N`.
    pub(crate) adapter: Fit,
    /// In XDP, as a line of `flowyard steer --rules`.
    pub(crate) xdp: Fit,
    /// In RPS and RFS of the kernel.
    pub(crate) rps: Fit,
    /// In a yard, as an element of `rule = [...]` in `[steer]`; `qN` stands for the name of queue N.
    pub(crate) yard: Fit,
}

/// Whether a rule can live in a place.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Fit {
    /// Whether it can.
    pub(crate) fits: bool,
    /// Its form there; `null` if it cannot.
    pub(crate) form: Option<String>,
    /// Why it cannot, and what to do; `null` if it can.
    pub(crate) why: Option<String>,
}

impl From<Result<String, String>> for Fit {
    fn from(result: Result<String, String>) -> Self {
        match result {
            Ok(form) => Self { fits: true, form: Some(form), why: None },
            Err(why) => Self { fits: false, form: None, why: Some(why) },
        }
    }
}

impl RulePlaces {
    pub(super) fn text(&self) -> String {
        let matches = if self.matches { ", which matches the flow" } else { "" };
        let mut text = format!("line {}{matches}: {}\n", self.line, self.rule);
        let places = [
            ("adapter", &self.adapter),
            ("xdp", &self.xdp),
            ("rps", &self.rps),
            ("yard", &self.yard),
        ];
        for (place, fit) in places {
            let _infallible = match (&fit.form, &fit.why) {
                (Some(form), _) => writeln!(text, "  {place:<8} yes: {form}"),
                (_, why) => {
                    writeln!(text, "  {place:<8} no: {}", why.as_deref().unwrap_or_default())
                }
            };
        }
        text
    }
}

/// Where each of `rules` can live. `engine` is that of the adapter, which has `queues` queues.
pub(super) fn fit(
    rules: &[Rule],
    flow: &FlowKey,
    adapter: &str,
    engine: Option<Target>,
    queues: u16,
) -> Vec<RulePlaces> {
    let verdicts = engine.map(|engine| rules::compile(rules, engine));
    // Rules with a location come first, in the order of locations, and then the others in the order of the file.
    let mut ranks: Vec<usize> = (0..rules.len()).collect();
    ranks.sort_by_key(|at| rules[*at].loc.unwrap_or(u32::MAX));
    let priority = |at: usize| {
        let rank = ranks.iter().position(|other| *other == at).unwrap_or_default();
        u16::MAX - u16::try_from(rank).unwrap_or(u16::MAX)
    };
    let place = |(at, rule): (usize, &Rule)| {
        RulePlaces {
        line: rule.line,
        rule: rule.text.clone(),
        matches: rule.matches(flow),
        adapter: match verdicts.as_ref().map(|all| &all[at]) {
            None => Err(format!("{adapter} has no rules, or none that are modelled")),
            Some(rules::Verdict::Refused { text, fix, .. }) => Err(format!("{text}; {fix}")),
            Some(rules::Verdict::Merged { why, .. }) => Err(why.clone()),
            Some(rules::Verdict::Accepted { .. }) => Ok(rule.options()),
        }
        .into(),
        xdp: xdp(rule, queues).into(),
        rps: Err("RPS spreads the frames of a queue by their hash, and RFS follows readers; neither has rules".to_owned())
            .into(),
        yard: yard(rule, priority(at)).into(),
    }
    };
    rules.iter().enumerate().map(place).collect()
}

fn xdp(rule: &Rule, queues: u16) -> Result<String, String> {
    let cpus: Vec<u32> = (0..u32::from(queues)).collect();
    let policy = Policy { rules: vec![rule.clone()], ..Policy::over(&cpus) };
    Model::new(&policy).map_err(|error| error.to_string())?;
    Ok(rule.options())
}

/// The rule as one of `[steer]`.
fn yard(rule: &Rule, priority: u16) -> Result<String, String> {
    let to = match rule.action {
        RuleAction::Queue(queue) => format!("queue = \"q{queue}\""),
        RuleAction::Drop => "drop = true".to_owned(),
        RuleAction::Wake | RuleAction::Vf { .. } | RuleAction::Context { .. } => {
            return Err("its action is one of adapters; use a queue, or -1 to drop".to_owned());
        }
    };
    if rule.spi.is_some() || rule.user_def.is_some() || rule.vlan_etype.is_some() {
        return Err("a yard compares no spi, user-def or vlan-etype; leave them out".to_owned());
    }
    let (key, mask) = (&rule.key, &rule.mask);
    let mut compared = FlowKey { eth_type: mask.eth_type, ..FlowKey::ZERO };
    let mut fields = Vec::new();
    if mask.eth_type == 0xffff {
        fields.push(format!("ethertype = {:#06x}", key.eth_type));
    }
    if mask.proto == 0xff {
        let name = proto::NAMES.iter().find(|(_, number)| *number == key.proto);
        let name = name.map_or_else(|| key.proto.to_string(), |(name, _)| (*name).to_owned());
        fields.push(format!("proto = \"{name}\""));
        compared.proto = 0xff;
    }
    for (name, value, bits) in [("src", key.src, mask.src), ("dst", key.dst, mask.dst)] {
        if bits == [0; 16] {
            continue;
        }
        let length = prefix(bits).ok_or_else(|| {
            format!("the mask of {name}-ip is not a prefix, and a yard compares only prefixes")
        })?;
        fields.push(if key.eth_type == 0x0800 {
            let [a, b, c, d, ..] = value;
            format!("{name} = \"{}/{length}\"", Ipv4Addr::new(a, b, c, d))
        } else {
            format!("{name} = \"{}/{length}\"", Ipv6Addr::from(value))
        });
    }
    (compared.src, compared.dst) = (mask.src, mask.dst);
    for (name, value, bits) in [("src", key.sport, mask.sport), ("dst", key.dport, mask.dport)] {
        match bits {
            0 => {}
            0xffff if value > 0 => fields.push(format!("{name}_port = {value}")),
            _ => {
                return Err(format!(
                    "a yard compares {name}-port whole, and not with a mask or with 0"
                ));
            }
        }
    }
    (compared.sport, compared.dport) = (mask.sport, mask.dport);
    if mask.vlan_tci == 0xfff {
        fields.push(format!("vlan = {}", key.vlan_tci));
        compared.vlan_tci = 0xfff;
    }
    if compared != *mask {
        return Err("a yard compares no MAC addresses, TOS, VLAN priority, or parts of a protocol number; leave them out".into());
    }
    let fields = fields.join(", ");
    let fields = if fields.is_empty() { "{}".to_owned() } else { format!("{{ {fields} }}") };
    Ok(format!("{{ match = {fields}, priority = {priority}, {to} }}"))
}

/// The length of a prefix; `None` if the ones are not in front.
fn prefix(bits: [u8; 16]) -> Option<u32> {
    let bits = u128::from_be_bytes(bits);
    (bits.leading_ones() == bits.count_ones()).then(|| bits.leading_ones())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowyard_config::Config;

    const RULES: &str = "\
flow-type tcp4 src-ip 10.0.0.0 m 0.255.255.255 dst-port 80 action 1
flow-type udp6 dst-ip fd09::1 action -1 loc 3
flow-type ip4 tos 16 action 0
flow-type tcp4 src-ip 10.0.0.1 m 0.0.255.0 action 0
flow-type tcp4 dst-port 443 vlan 7 m 0xf000 action 0
flow-type tcp4 dst-port 443 context 1
flow-type sctp4 action 0
";

    #[test]
    fn a_rule_of_a_yard_is_read_by_a_yard_and_compares_the_same() {
        let rules = rules::parse("rules", RULES).unwrap();
        let fits = fit(&rules, &FlowKey::ZERO, "x520", None, 2);
        let fit = |at: usize| fits[at].yard.form.clone().ok_or_else(|| fits[at].yard.why.clone());
        assert_eq!(
            fit(0).unwrap(),
            "{ match = { ethertype = 0x0800, proto = \"tcp\", src = \"10.0.0.0/8\", dst_port = 80 }, priority = 65534, \
             queue = \"q1\" }"
        );
        assert!(fit(1).unwrap().contains("dst = \"fd09::1/128\" }, priority = 65535, drop = true"));
        assert!(fit(2).unwrap_err().unwrap().contains("no MAC addresses, TOS"));
        assert!(fit(3).unwrap_err().unwrap().contains("the mask of src-ip is not a prefix"));
        assert!(fit(4).unwrap().contains("vlan = 7"));
        assert!(fit(5).unwrap_err().unwrap().contains("use a queue, or -1 to drop"));
        let queues = "[[queue]]\nname = \"q0\"\norder = \"direct\"\nconsumers = [0]\n[[queue]]\nname = \"q1\"\norder = \"direct\"\nconsumers = [0]\n";
        let yard =
            "[[port]]\nname = \"a\"\nkind = \"mem\"\nin = \"a.pcap\"\n[work]\nkind = \"forward\"\n";
        for one in fits.iter().filter_map(|one| one.yard.form.as_ref()) {
            let text = format!("{yard}{queues}[steer]\nrule = [{one}]\n");
            let config =
                Config::parse("y.toml", &text).unwrap_or_else(|error| panic!("{text}: {error}"));
            config.resolve().unwrap_or_else(|error| panic!("{text}: {error}"));
        }
    }
}
