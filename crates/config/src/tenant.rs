//! Tenants as users write them, and the rules that they become.
//!
//! ```toml
//! [[steer.tenant]]
//! name = "web"
//! mac = ["02:00:00:00:00:01"]
//! vlan = [42]
//! port = "guest0"
//! ```
//!
//! A tenant is not a mechanism of its own: each of its addresses in each of its VLANs is a rule with priority 0 behind the
//! rules of the file. Frames to its addresses in other VLANs are dropped, as a VLAN filter of an adapter drops them.

use std::collections::HashMap;

use flowyard_flow::table::Rule;
use flowyard_frame::{Action, FlowKey, To};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::rule::{Answer, answer};
use super::{Config, ConfigError, list};

/// One of `[[steer.tenant]]`: addresses, VLANs, and a destination, one of `queue`, `port` or `list`.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// The name, for messages.
    pub name: Spanned<String>,
    /// Its MAC addresses, as `02:00:00:00:00:01`; also those of groups.
    pub mac: Vec<Spanned<String>>,
    /// The VLANs of its frames; 0 is untagged. Without any, the VLAN does not count.
    #[serde(default)]
    pub vlan: Vec<Spanned<u16>>,
    /// The queue to which its frames go.
    pub queue: Option<Spanned<String>>,
    /// The port by which its frames leave, without work.
    pub port: Option<Spanned<String>>,
    /// The action list that handles its frames.
    pub list: Option<Spanned<String>>,
    /// The mark that its frames carry.
    #[serde(default)]
    pub mark: u32,
    /// The counter for its frames: one of `counters`.
    pub counter: Option<Spanned<String>>,
}

/// The rules of all tenants, each with the number of its tenant.
///
/// # Errors
/// The first setting that is wrong.
pub(crate) fn rules(config: &Config) -> Result<Vec<(Rule, usize)>, ConfigError> {
    let mut rules = Vec::new();
    let mut owners = HashMap::new();
    for (number, tenant) in config.steer.tenant.iter().enumerate() {
        let action = answer(config, "a tenant", tenant.name.span(), &destination(tenant))?;
        if tenant.mac.is_empty() {
            let fix = "add mac = [\"02:00:00:00:00:01\"]";
            return Err(config.error(tenant.name.span(), "a tenant has an address", fix));
        }
        for text in &tenant.mac {
            let mac = list::mac(text.get_ref())
                .map_err(|(what, fix)| config.error(text.span(), what, fix))?;
            let vlans = vlans(config, tenant)?;
            for vlan in &vlans {
                if let Some(other) = owners.insert((mac, *vlan), &tenant.name) {
                    let what =
                        format!("'{}' has this address in this VLAN already", other.get_ref());
                    let fix = "give each tenant its own addresses, or its own VLANs";
                    return Err(config.error(text.span(), what, fix));
                }
                rules.push((rule(mac, *vlan, action), number));
            }
        }
    }
    // Behind the rules of all tenants: two may have one address in different VLANs.
    let mut dropped = Vec::new();
    for (rule, number) in &rules {
        let alone = FlowKey { vlan_tci: 0, ..rule.key };
        if rule.mask.vlan_tci != 0 && !dropped.contains(&(alone, *number)) {
            dropped.push((alone, *number));
        }
    }
    let drop = Action { to: To::DROP, counter: 0, mark: 0 };
    let mut seen = std::collections::HashSet::new();
    for (key, number) in dropped {
        if seen.insert(key.eth_dst) {
            rules.push((self::rule(key.eth_dst, None, drop), number));
        }
    }
    Ok(rules)
}

fn destination(tenant: &TenantConfig) -> Answer<'_> {
    Answer {
        queue: tenant.queue.as_ref(),
        port: tenant.port.as_ref(),
        list: tenant.list.as_ref(),
        drop: false,
        mark: tenant.mark,
        counter: tenant.counter.as_ref(),
    }
}

/// The VLANs of a tenant; `None` is any.
fn vlans(config: &Config, tenant: &TenantConfig) -> Result<Vec<Option<u16>>, ConfigError> {
    if tenant.vlan.is_empty() {
        return Ok(vec![None]);
    }
    let one = |vlan: &Spanned<u16>| match *vlan.get_ref() {
        id @ 0..=4094 => Ok(Some(id)),
        id => Err(config.error(
            vlan.span(),
            format!("there is no VLAN {id}"),
            "write 0 (untagged) to 4094",
        )),
    };
    tenant.vlan.iter().map(one).collect()
}

fn rule(mac: [u8; 6], vlan: Option<u16>, action: Action) -> Rule {
    let (mut key, mut mask) = (FlowKey::ZERO, FlowKey::ZERO);
    (key.eth_dst, mask.eth_dst) = (mac, [0xff; 6]);
    if let Some(id) = vlan {
        (key.vlan_tci, mask.vlan_tci) = (id, 0xfff);
    }
    Rule { key, mask, priority: 0, action }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration with these tenants.
    fn config(tenants: &str) -> Result<Config, ConfigError> {
        let text = format!(
            "[yard]\ncores = 1\n[[port]]\nname = \"wire\"\nkind = \"pcap\"\nin = \"a.pcap\"\ncore = 0\n[[port]]\nname = \"g0\"\nkind = \"mem\"\ncore = 0\n\
             [[queue]]\nname = \"q\"\norder = \"direct\"\nconsumers = [0]\n{tenants}\n[work]\nkind = \"forward\"\n"
        );
        Config::parse("yard.toml", &text)
    }

    fn found(config: &Config, dst: u8, tci: u16) -> To {
        let key = FlowKey { eth_dst: [2, 0, 0, 0, 0, dst], vlan_tci: tci, ..FlowKey::ZERO };
        let matching = |rule: &&Rule| key.masked(&rule.mask) == rule.key;
        let rules = super::super::rule::rules(config).unwrap();
        rules.iter().find(matching).map_or(To::Queue(9), |rule| rule.action.to)
    }

    #[test]
    fn a_tenant_is_its_rules() {
        let config = config(
            "[[steer.tenant]]\nname = \"a\"\nmac = [\"02:00:00:00:00:01\"]\nvlan = [0, 42]\nport = \"g0\"\n\
             [[steer.tenant]]\nname = \"b\"\nmac = [\"02:00:00:00:00:01\"]\nvlan = [7]\nqueue = \"q\"\n\
             [[steer.tenant]]\nname = \"c\"\nmac = [\"02:00:00:00:00:02\"]\nport = \"g0\"\n",
        )
        .unwrap();
        assert_eq!([found(&config, 1, 0), found(&config, 1, 0xe000 | 42)], [To::Port(1); 2]);
        assert_eq!([found(&config, 1, 7), found(&config, 1, 8)], [To::Queue(0), To::DROP]);
        assert_eq!([found(&config, 2, 0), found(&config, 2, 8)], [To::Port(1); 2]);
        assert_eq!(found(&config, 3, 0), To::Queue(9), "nobody's");
    }

    #[test]
    fn mistakes_are_reported_with_their_fix() {
        for (tenants, what) in [
            ("name = \"a\"\nmac = []\nport = \"g0\"", "has an address"),
            ("name = \"a\"\nmac = [\"02:00\"]\nport = \"g0\"", "is not a MAC address"),
            (
                "name = \"a\"\nmac = [\"02:00:00:00:00:01\"]\nvlan = [4095]\nport = \"g0\"",
                "no VLAN 4095",
            ),
            ("name = \"a\"\nmac = [\"02:00:00:00:00:01\"]", "one destination"),
            ("name = \"a\"\nmac = [\"02:00:00:00:00:01\"]\nport = \"g9\"", "g9"),
            (
                "name = \"a\"\nmac = [\"02:00:00:00:00:01\", \"02:00:00:00:00:01\"]\nport = \"g0\"",
                "already",
            ),
        ] {
            let error = config(&format!("[[steer.tenant]]\n{tenants}\n")).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
