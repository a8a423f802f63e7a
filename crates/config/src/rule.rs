//! Rules as users write them: a match, and an action.
//!
//! ```toml
//! [[steer.rule]]
//! match = { proto = "tcp", src = "10.0.0.0/8", dst_port = 80 }
//! priority = 10
//! queue = "web"
//! ```
//!
//! A field that is not named is not compared. Of the rules that match, the one with the highest
//! priority answers, and of equal ones the first in the file.

use std::collections::HashSet;
use std::ops::Range;
use std::str::FromStr;

use flowyard_flow::table::{Exact, Rule, Wildcard};
use flowyard_frame::{Action, FlowKey, To, proto};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::names::{port_name, queue_name};
use super::{Config, ConfigError, ExactConfig, tenant};

/// One of `[[steer.rule]]`: a match, and a destination, one of `queue`, `port` or `drop = true`.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RuleConfig {
    /// The fields that are compared.
    #[serde(rename = "match")]
    pub fields: Spanned<MatchConfig>,
    /// Of the rules that match, the one with the highest priority answers.
    #[serde(default)]
    pub priority: u16,
    /// The queue to which its frames go.
    pub queue: Option<Spanned<String>>,
    /// The port by which its frames leave, without work.
    pub port: Option<Spanned<String>>,
    /// The action list that handles its frames.
    pub list: Option<Spanned<String>>,
    /// Whether its frames are dropped.
    #[serde(default)]
    pub drop: bool,
    /// The mark that its frames carry.
    #[serde(default)]
    pub mark: u32,
    /// The counter for its frames: one of `counters`.
    pub counter: Option<Spanned<String>>,
}

/// `match`: the fields that are compared. Fields that are not named may have any value.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct MatchConfig {
    /// As `tcp`, `udp`, `icmp6`, ..., or a number as `"89"`.
    pub proto: Option<Spanned<String>>,
    /// Source address, as `10.0.0.0/8`, `2001:db8::1` or `::/0` (any IPv6).
    pub src: Option<Spanned<String>>,
    /// Destination address, as `src`.
    pub dst: Option<Spanned<String>>,
    /// Source port of TCP, UDP or SCTP.
    pub src_port: Option<Spanned<u16>>,
    /// Destination port, as `src_port`.
    pub dst_port: Option<Spanned<u16>>,
    /// VLAN ID of the outermost tag; 0 is untagged.
    pub vlan: Option<Spanned<u16>>,
    /// The port at which the frame came in.
    pub in_port: Option<Spanned<String>>,
    /// As `0x0806` (ARP).
    pub ethertype: Option<Spanned<u16>>,
}

/// The action of an exact entry or of a rule.
pub(super) struct Answer<'a> {
    pub(super) queue: Option<&'a Spanned<String>>,
    pub(super) port: Option<&'a Spanned<String>>,
    pub(super) list: Option<&'a Spanned<String>>,
    pub(super) drop: bool,
    pub(super) mark: u32,
    pub(super) counter: Option<&'a Spanned<String>>,
}

macro_rules! answers {
    ($($config:ty),*) => {$(
        impl<'a> From<&'a $config> for Answer<'a> {
            fn from(from: &'a $config) -> Self {
                let (queue, port) = (from.queue.as_ref(), from.port.as_ref());
                let counter = from.counter.as_ref();
                let list = from.list.as_ref();
                Self { queue, port, list, drop: from.drop, mark: from.mark, counter }
            }
        }
    )*};
}

answers!(ExactConfig, RuleConfig);

/// The action for `answer`, which belongs to `what` at `span`.
pub(super) fn answer(
    config: &Config,
    what: &str,
    span: Range<usize>,
    answer: &Answer<'_>,
) -> Result<Action, ConfigError> {
    let to = [answer.queue.is_some(), answer.port.is_some(), answer.list.is_some(), answer.drop];
    if to.into_iter().filter(|&to| to).count() != 1 {
        let fix = "give it one of queue = \"...\", port = \"...\", list = \"...\" or drop = true";
        return Err(config.error(span, format!("{what} has one destination"), fix));
    }
    let mut to = To::DROP;
    if let Some(name) = answer.queue {
        queue_name(config, name)?;
        to = config.queue_number(name.get_ref()).map_or(to, To::Queue);
    }
    if let Some(name) = answer.port {
        port_name(config, name.get_ref(), name.span())?;
        to = config.port_number(name.get_ref()).map_or(to, To::Port);
    }
    if let Some(name) = answer.list {
        super::list::name(config, name)?;
        to = config.list_number(name.get_ref()).map_or(to, To::List);
    }
    let counter = answer.counter.map_or(Ok(0), |name| counter(config, name))?;
    Ok(Action { to, counter, mark: answer.mark })
}

/// The number of the counter with this name, from 1.
///
/// # Errors
/// When there is no such counter; the error lists those that exist.
pub fn counter(config: &Config, name: &Spanned<String>) -> Result<u16, ConfigError> {
    let mut names = config.steer.counters.iter().map(|name| name.get_ref().as_str());
    if let Some(at) = names.position(|other| other == name.get_ref()) {
        return Ok(at as u16 + 1);
    }
    let names: Vec<_> = config.steer.counters.iter().map(|n| n.get_ref().as_str()).collect();
    let fix = match &names[..] {
        [] => format!("add counters = [\"{}\"] to [steer]", name.get_ref()),
        names => format!("the 'counters' of [steer] are {}", names.join(", ")),
    };
    Err(config.error(name.span(), format!("there is no counter '{}'", name.get_ref()), fix))
}

/// Returns the first mistake in counters and rules.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let mut seen = HashSet::new();
    for (number, name) in config.steer.counters.iter().enumerate() {
        if !seen.insert(name.get_ref()) {
            let what = format!("there is a counter '{}' already", name.get_ref());
            return Err(config.error(name.span(), what, "name each counter once"));
        }
        if number == 1024 {
            return Err(config.error(
                name.span(),
                "there are more than 1024 counters",
                "use fewer",
            ));
        }
    }
    table(config).map(drop)
}

/// The rules, in the order of the file, and behind them those of the tenants.
pub(crate) fn rules(config: &Config) -> Result<Vec<Rule>, ConfigError> {
    let mut rules: Vec<_> =
        config.steer.rule.iter().map(|rule| one(config, rule)).collect::<Result<_, _>>()?;
    rules.extend(tenant::rules(config)?.into_iter().map(|(rule, _)| rule));
    Ok(rules)
}

/// The exact entries of the user.
pub(crate) fn exact(config: &Config) -> Result<Vec<(FlowKey, Action)>, ConfigError> {
    let entry = |entry: &ExactConfig| {
        let key = FlowKey::from_str(entry.flow.get_ref());
        let key =
            key.map_err(|e| config.error(entry.flow.span(), e.to_string(), "fix the flow"))?;
        // The table compares only the flow, so other fields of the text, such as a VLAN, are
        // ignored.
        let action = answer(config, "an exact entry", entry.flow.span(), &entry.into())?;
        Ok((key.flow(), action))
    };
    config.steer.exact.iter().map(entry).collect()
}

/// Finds the first exact entry that the table does not accept.
pub(crate) fn check_exact(config: &Config) -> Result<(), ConfigError> {
    let entries = exact(config)?;
    // The yard's table may be far larger. At most half of the places of a table for these entries are
    // taken, as in the yard's, so it accepts the same entries.
    let capacity = config.steer.exact_entries.min(entries.len());
    let mut table = Exact::new(capacity, &FlowKey::FLOW, config.secret().key("exact"));
    for ((key, action), entry) in entries.iter().zip(&config.steer.exact) {
        if let Err(reason) = table.put(key, *action) {
            let text = reason.to_string();
            let (what, _) = text.split_once("; ").unwrap_or((&text, ""));
            let fix = "raise 'exact_entries' in [steer], or write fewer";
            return Err(config.error(entry.flow.span(), what, fix));
        }
    }
    Ok(())
}

/// The table of the rules.
pub(crate) fn table(config: &Config) -> Result<Wildcard, ConfigError> {
    flowyard_yard::build::rules_table(&rules(config)?, config.secret()).map_err(|bad| {
        if let Some(rule) = config.steer.rule.get(bad.rule) {
            let fix = format!("change the match or the priority, or delete rule {}", bad.rule + 1);
            return config.error(rule.fields.span(), bad.reason, fix);
        }
        let behind = bad.rule - config.steer.rule.len();
        let tenant = tenant::rules(config).ok().and_then(|rules| rules.get(behind).map(|r| r.1));
        let span = tenant.map_or(0..0, |number| config.steer.tenant[number].name.span());
        config.error(span, bad.reason, "remove addresses or VLANs of this tenant")
    })
}

fn one(config: &Config, written: &RuleConfig) -> Result<Rule, ConfigError> {
    let fields = written.fields.get_ref();
    let (mut key, mut mask) = (FlowKey::ZERO, FlowKey::ZERO);
    if let Some(number) = &fields.ethertype {
        (key.eth_type, mask.eth_type) = (*number.get_ref(), 0xffff);
    }
    let (mut src, mut dst) = ((key.src, mask.src), (key.dst, mask.dst));
    for (text, slot) in [(&fields.src, &mut src), (&fields.dst, &mut dst)] {
        let Some(text) = text else { continue };
        let net = network(config, text)?;
        let (eth_type, version) = match net {
            IpNet::V4(_) => (0x0800, "IPv4"),
            IpNet::V6(_) => (0x86dd, "IPv6"),
        };
        if mask.eth_type != 0 && key.eth_type != eth_type {
            let what = format!(
                "'{}' is {version}, and the other fields of this match are not",
                text.get_ref()
            );
            return Err(config.error(text.span(), what, "write two rules, one for each"));
        }
        (key.eth_type, mask.eth_type) = (eth_type, 0xffff);
        *slot = (octets(&net), bits(&net));
    }
    ((key.src, mask.src), (key.dst, mask.dst)) = (src, dst);
    if let Some(name) = &fields.proto {
        (key.proto, mask.proto) = (protocol(config, name)?, 0xff);
        if mask.eth_type != 0 && !key.is_ip() {
            let what = "only IP frames have a protocol, and these are not IP";
            return Err(config.error(name.span(), what, "leave 'proto' or 'ethertype' out"));
        }
    }
    let ports = [
        (&fields.src_port, &mut key.sport, &mut mask.sport),
        (&fields.dst_port, &mut key.dport, &mut mask.dport),
    ];
    for (port, key_port, mask_port) in ports {
        let Some(port) = port else { continue };
        if mask.proto != 0 && !proto::has_ports(key.proto) {
            let fix = "leave it out, or write proto = \"tcp\", \"udp\" or \"sctp\"";
            return Err(config.error(port.span(), "this protocol has no ports", fix));
        }
        if *port.get_ref() == 0 {
            let what = "port 0 stands for frames without ports";
            return Err(config.error(port.span(), what, "write a port from 1 to 65535"));
        }
        (*key_port, *mask_port) = (*port.get_ref(), 0xffff);
    }
    if let Some(vlan) = &fields.vlan {
        if *vlan.get_ref() > 4095 {
            let what = format!("'{}' is not a VLAN ID", vlan.get_ref());
            return Err(config.error(vlan.span(), what, "write 0 (untagged) to 4095"));
        }
        (key.vlan_tci, mask.vlan_tci) = (*vlan.get_ref(), 0xfff);
    }
    if let Some(name) = &fields.in_port {
        port_name(config, name.get_ref(), name.span())?;
        key.in_port = config.port_number(name.get_ref()).unwrap_or_default();
        mask.in_port = 0xffff;
    }
    let action = answer(config, "a rule", written.fields.span(), &written.into())?;
    Ok(Rule { key, mask, priority: written.priority, action })
}

fn protocol(config: &Config, name: &Spanned<String>) -> Result<u8, ConfigError> {
    let text = name.get_ref().to_ascii_lowercase();
    let named = proto::NAMES.iter().find(|(known, _)| *known == text).map(|(_, number)| *number);
    // Frames without IP have the protocol 0.
    let number = named.or_else(|| text.parse().ok().filter(|number| *number > 0));
    number.ok_or_else(|| {
        let names: Vec<_> = proto::NAMES.iter().map(|(name, _)| *name).collect();
        let fix = format!("write {}, or a number from \"1\" to \"255\"", names.join(", "));
        config.error(name.span(), format!("'{}' is not a protocol", name.get_ref()), fix)
    })
}

/// Parses an address with or without a prefix length.
fn network(config: &Config, text: &Spanned<String>) -> Result<IpNet, ConfigError> {
    let parsed = text.get_ref().parse::<IpNet>();
    let parsed = parsed.or_else(|error| {
        text.get_ref().parse::<std::net::IpAddr>().map(IpNet::from).map_err(|_| error)
    });
    match parsed {
        Ok(net) if net == net.trunc() => Ok(net),
        Ok(net) => {
            let what = format!("'{net}' has bits behind its length");
            Err(config.error(text.span(), what, format!("write \"{}\"", net.trunc())))
        }
        Err(_) => {
            let what = format!("'{}' is not an address", text.get_ref());
            let fix = "write \"10.0.0.1\", \"10.0.0.0/8\" or \"2001:db8::/32\"";
            Err(config.error(text.span(), what, fix))
        }
    }
}

/// The address in the form of a key.
fn octets(net: &IpNet) -> [u8; 16] {
    let mut slot = [0; 16];
    match net {
        IpNet::V4(net) => slot[..4].copy_from_slice(&net.addr().octets()),
        IpNet::V6(net) => slot = net.addr().octets(),
    }
    slot
}

/// The mask for the address.
fn bits(net: &IpNet) -> [u8; 16] {
    let mut slot = [0; 16];
    match net {
        IpNet::V4(net) => slot[..4].copy_from_slice(&net.netmask().octets()),
        IpNet::V6(net) => slot = net.netmask().octets(),
    }
    slot
}
