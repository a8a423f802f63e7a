//! `[[list]]`: action lists, from the user's words to ops.

use std::collections::HashSet;
use std::net::IpAddr;

use flowyard_frame::To;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{Config, ConfigError, hex, names};
use flowyard_yard::apply::{List, Lists, Op};

/// `[[list]]`: the actions on a frame, and its destination, one of `queue`, `port` or `drop =
/// true`.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ListConfig {
    /// Its name.
    pub name: Spanned<String>,
    /// The actions, in this order.
    #[serde(default)]
    pub actions: Vec<Spanned<OpConfig>>,
    /// The queue to which the frame goes.
    pub queue: Option<Spanned<String>>,
    /// The port by which the frame leaves, without work.
    pub port: Option<Spanned<String>>,
    /// Whether the frame is dropped.
    #[serde(default)]
    pub drop: bool,
}

/// An action: an [`Op`] in the user's words.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OpConfig {
    /// `{ set_eth_src = "02:00:00:00:00:01" }`
    SetEthSrc(String),
    /// `{ set_eth_dst = "02:00:00:00:00:01" }`
    SetEthDst(String),
    /// `{ push_vlan = 7 }`, or `{ push_vlan = { vid = 7, pcp = 5, tpid = 0x88a8 } }`
    PushVlan(TagConfig),
    /// `"pop_vlan"`
    PopVlan,
    /// `{ set_vlan = 7 }`
    SetVlan(u16),
    /// `{ set_pcp = 5 }`
    SetPcp(u8),
    /// `"dec_ttl"`
    DecTtl,
    /// `{ set_src = "10.0.0.1" }`
    SetSrc(String),
    /// `{ set_dst = "2001:db8::1" }`
    SetDst(String),
    /// `{ set_sport = 4000 }`
    SetSport(u16),
    /// `{ set_dport = 53 }`
    SetDport(u16),
    /// `{ set_dscp = 46 }`
    SetDscp(u8),
    /// `{ set_mark = 9 }`
    SetMark(u32),
}

/// A VLAN tag: its ID alone, or all its fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(untagged, expecting = "a VLAN id, or { vid = 7, pcp = 5, tpid = 0x88a8 }")]
pub enum TagConfig {
    /// The VLAN ID.
    Id(u16),
    /// All fields.
    Whole {
        /// The VLAN ID.
        vid: u16,
        /// The priority.
        #[serde(default)]
        pcp: u8,
        /// The EtherType.
        #[serde(default = "customer")]
        tpid: u16,
    },
}

const fn customer() -> u16 {
    0x8100
}

/// Returns the first mistake.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let mut names = HashSet::new();
    for list in config.list.iter().map(Spanned::get_ref) {
        names::unique(config, &mut names, &list.name, "list")?;
        let to = [list.queue.is_some(), list.port.is_some(), list.drop];
        if to.into_iter().filter(|&to| to).count() != 1 {
            let what = "an action list has one destination";
            let fix = "give it one of queue = \"...\", port = \"...\" or drop = true";
            return Err(config.error(list.name.span(), what, fix));
        }
        if let Some(name) = &list.queue {
            names::queue_name(config, name)?;
        }
        if let Some(name) = &list.port {
            names::port_name(config, name.get_ref(), name.span())?;
        }
    }
    lists(config).map(drop)
}

/// Checks that there is a list with this name.
pub(crate) fn name(config: &Config, name: &Spanned<String>) -> Result<(), ConfigError> {
    if config.list_number(name.get_ref()).is_some() {
        return Ok(());
    }
    let names: Vec<_> = config.list.iter().map(|list| &**list.get_ref().name.get_ref()).collect();
    let fix = match &names[..] {
        [] => "add a [[list]] with name, actions and a destination".into(),
        names => format!("the lists are {}", names.join(", ")),
    };
    Err(config.error(name.span(), format!("there is no list '{}'", name.get_ref()), fix))
}

/// The action lists, by number.
pub(crate) fn lists(config: &Config) -> Result<Lists, ConfigError> {
    let list = |list: &Spanned<ListConfig>| {
        let list = list.get_ref();
        let queue = list.queue.as_ref().and_then(|name| config.queue_number(name.get_ref()));
        let port = list.port.as_ref().and_then(|name| config.port_number(name.get_ref()));
        let to = queue.map(To::Queue).or(port.map(To::Port)).unwrap_or(To::DROP);
        let op = |said: &Spanned<OpConfig>| {
            let wrong = |(what, fix)| config.error(said.span(), what, fix);
            op(said.get_ref()).map_err(wrong)
        };
        Ok(List::new(list.actions.iter().map(op).collect::<Result<Vec<_>, _>>()?, to))
    };
    Ok(Lists::new(config.list.iter().map(list).collect::<Result<Vec<_>, _>>()?))
}

/// The op for an action; an error is the problem and the fix.
type Wrong = (String, &'static str);

fn op(said: &OpConfig) -> Result<Op, Wrong> {
    Ok(match said {
        OpConfig::SetEthSrc(text) => Op::SetEthSrc(mac(text)?),
        OpConfig::SetEthDst(text) => Op::SetEthDst(mac(text)?),
        OpConfig::PushVlan(TagConfig::Id(vid)) => {
            Op::PushVlan { tpid: customer(), tci: vlan(*vid)? }
        }
        OpConfig::PushVlan(TagConfig::Whole { vid, pcp, tpid }) => match tpid {
            0x8100 | 0x88a8 => {
                Op::PushVlan { tpid: *tpid, tci: vlan(*vid)? | u16::from(self::pcp(*pcp)?) << 13 }
            }
            _ => {
                return Err((
                    format!("{tpid:#06x} is not the EtherType of a tag"),
                    "write 0x8100 or 0x88a8",
                ));
            }
        },
        OpConfig::PopVlan => Op::PopVlan,
        OpConfig::SetVlan(vid) => Op::SetVlan(vlan(*vid)?),
        OpConfig::SetPcp(pcp) => Op::SetPcp(self::pcp(*pcp)?),
        OpConfig::DecTtl => Op::DecTtl,
        OpConfig::SetSrc(text) => Op::SetSrc(ip(text)?),
        OpConfig::SetDst(text) => Op::SetDst(ip(text)?),
        OpConfig::SetSport(port) => Op::SetSport(*port),
        OpConfig::SetDport(port) => Op::SetDport(*port),
        OpConfig::SetDscp(dscp @ 0..64) => Op::SetDscp(*dscp),
        OpConfig::SetDscp(dscp) => {
            return Err((format!("there is no DSCP {dscp}"), "write 0 to 63"));
        }
        OpConfig::SetMark(mark) => Op::SetMark(*mark),
    })
}

/// Parses six bytes as `02:00:00:00:00:01`.
pub(crate) fn mac(text: &str) -> Result<[u8; 6], Wrong> {
    let bytes = hex(text).and_then(|bytes| <[u8; 6]>::try_from(bytes).ok());
    bytes.ok_or_else(|| {
        (format!("'{text}' is not a MAC address"), "write six bytes, as 02:00:00:00:00:01")
    })
}

fn ip(text: &str) -> Result<IpAddr, Wrong> {
    let wrong = |_| (format!("'{text}' is not an IP address"), "write 10.0.0.1 or 2001:db8::1");
    text.parse().map_err(wrong)
}

fn vlan(vid: u16) -> Result<u16, Wrong> {
    match vid {
        0..4095 => Ok(vid), // 4095 is reserved (IEEE 802.1Q table 9-2)
        _ => Err((format!("there is no VLAN {vid}"), "write 0 to 4094")),
    }
}

fn pcp(pcp: u8) -> Result<u8, Wrong> {
    match pcp {
        0..8 => Ok(pcp),
        _ => Err((format!("there is no priority {pcp}"), "write 0 to 7")),
    }
}

impl Config {
    /// The number of the list with this name.
    #[must_use]
    pub fn list_number(&self, name: &str) -> Option<u16> {
        let at = self.list.iter().position(|list| list.get_ref().name.get_ref() == name);
        at.map(|at| at as u16)
    }
}
