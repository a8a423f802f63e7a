//! The keys of `[switch]`, and their checks.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use flowyard_openflow::agent::{Agent, Limits, Memory};
use flowyard_switch::{Lookup, Settings, SwitchSettings};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::names::{Checked, port_name};
use super::{Config, ConfigError, WorkKind, free};

/// `[switch]`
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SwitchConfig {
    /// The datapath ID: up to 16 hexadecimal digits, with colons or without.
    pub datapath: Spanned<String>,
    /// The number of tables.
    pub tables: Spanned<u16>,
    /// The number of flows in each core's flow cache; 0 turns the cache off.
    pub cache_entries: Spanned<usize>,
    /// The lookup algorithm of the tables.
    pub lookup: LookupWord,
    /// The controllers to connect to: `tcp:10.0.0.1:6653`, `tls:...`, `unix:...`.
    pub controllers: Vec<Spanned<String>>,
    /// The addresses at which to listen for controllers: `ptcp:6653`, `ptls:...`, `punix:...`.
    pub listen: Vec<Spanned<String>>,
    /// The permitted versions of OpenFlow: `1.0`, `1.3`, `1.4`. The highest that both sides have is
    /// used.
    pub versions: Vec<VersionWord>,
    /// The behaviour while no controller is connected.
    pub fail: FailWord,
    /// The OpenFlow numbers of ports; other ports get 1, 2, ... in the order of the file.
    pub ports: BTreeMap<String, Spanned<u32>>,
    /// The initial meters, in the syntax of `ovs-ofctl`.
    pub meters: Vec<Spanned<String>>,
    /// The initial groups; they may refer to ports by name.
    pub groups: Vec<Spanned<String>>,
    /// The initial flows; they may refer to ports by name.
    pub flows: Vec<Spanned<String>>,
    /// PEM files for `tls:` and `ptls:`: the certificate of this side, its key, and the
    /// certificates of the authority that signs those of the other side.
    pub certificate: Option<PathBuf>,
    /// See `certificate`.
    pub key: Option<PathBuf>,
    /// See `certificate`.
    pub authority: Option<PathBuf>,
    /// The number of frames that may wait for the agent on their way to controllers.
    pub punts: Spanned<usize>,
    /// The memory that flows, groups and meters may take, in MiB.
    pub memory_mib: Spanned<usize>,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self {
            datapath: free("1".into()),
            tables: free(255),
            cache_entries: free(8192),
            lookup: LookupWord::Merged,
            controllers: Vec::new(),
            listen: Vec::new(),
            versions: vec![VersionWord::V10, VersionWord::V13, VersionWord::V14],
            fail: FailWord::Secure,
            ports: BTreeMap::new(),
            meters: Vec::new(),
            groups: Vec::new(),
            flows: Vec::new(),
            certificate: None,
            key: None,
            authority: None,
            punts: free(1024),
            memory_mib: free(1024),
        }
    }
}

/// The lookup algorithm of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LookupWord {
    /// Tuple space search with merged tuples, the fastest.
    #[default]
    Merged,
    /// A linear list, as the first OpenFlow switches had for wildcards.
    Linear,
    /// A hash table for rules with the first rule's mask, and a linear list for the others.
    Hash,
}

/// A version of OpenFlow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum VersionWord {
    /// OpenFlow 1.0.
    #[serde(rename = "1.0")]
    V10,
    /// OpenFlow 1.3.
    #[serde(rename = "1.3")]
    V13,
    /// OpenFlow 1.4.
    #[serde(rename = "1.4")]
    V14,
}

/// The behaviour while no controller is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FailWord {
    /// Flows continue and time out; frames for controllers are dropped.
    #[default]
    Secure,
    /// The switch works as a learning bridge. Without `controllers`, this applies to frames that match no
    /// flow; otherwise to all frames while none of them is connected.
    Standalone,
}

/// The capacity of an agent. Each flow takes some hundred bytes, and a cache line for each core.
const FLOWS: usize = 1 << 20;
const GROUPS: usize = 1 << 16;
const METERS: usize = 1 << 16;

/// The highest port number at which stations are learnt.
const PORT_MAX: u32 = 0xfeff;

impl Config {
    /// The settings of `[switch]`, or the defaults.
    #[must_use]
    pub fn switch(&self) -> SwitchConfig {
        self.switch.as_ref().map(|switch| switch.get_ref().clone()).unwrap_or_default()
    }

    /// The OpenFlow number of each port, by number.
    pub(crate) fn switch_ports(&self) -> Vec<u32> {
        let switch = self.switch();
        let taken: HashSet<u32> = switch.ports.values().map(|number| *number.get_ref()).collect();
        let mut free = (1..).filter(|number| !taken.contains(number));
        self.ports()
            .map(|port| match switch.ports.get(port.name.get_ref()) {
                Some(number) => *number.get_ref(),
                None => free.next().unwrap_or_default(),
            })
            .collect()
    }

    /// Whether the work is a switch.
    pub(crate) fn is_switch(&self) -> bool {
        *self.work.get_ref().kind.get_ref() == WorkKind::Switch
    }

    /// The settings of the switch, without its flows.
    pub(crate) fn switch_plan(&self) -> Result<SwitchSettings, ConfigError> {
        let ports = self.switch_ports().into_iter().zip(self.port_macs()?).zip(self.ports());
        Ok(SwitchSettings {
            cores: (*self.yard.cores.get_ref()).into(),
            datapath: self.switch_settings(),
            ports: ports
                .map(|((number, mac), port)| (number, mac, port.name.get_ref().clone()))
                .collect(),
            punts: *self.switch().punts.get_ref(),
        })
    }

    /// The settings for the switch of each core.
    fn switch_settings(&self) -> Settings {
        let switch = self.switch();
        Settings {
            tables: (*switch.tables.get_ref()).min(255) as u8,
            lookup: match switch.lookup {
                LookupWord::Merged => Lookup::Merged,
                LookupWord::Linear => Lookup::Linear,
                LookupWord::Hash => Lookup::Hash,
            },
            cache_entries: *switch.cache_entries.get_ref(),
            secret: self.secret(),
            long_frames: self.delivered().segments(),
            ..Settings::default()
        }
    }

    /// The agent of the switch, with empty tables.
    ///
    /// # Errors
    /// As [`Self::datapath`].
    pub fn switch_agent(&self) -> Result<Agent, ConfigError> {
        let tables = (*self.switch().tables.get_ref()).min(255) as u8;
        let limits = Limits { tables, flows: FLOWS, groups: GROUPS, meters: METERS };
        let mut agent =
            Agent::new(self.datapath()?, limits, usize::from(*self.yard.cores.get_ref()));
        agent.limit_memory(self.switch_memory());
        Ok(agent)
    }

    /// The memory that flows, groups and meters may take.
    #[must_use]
    pub fn switch_memory(&self) -> Memory {
        let tables = *self.switch().memory_mib.get_ref() << 20;
        let usual = Memory::default();
        Memory { tables, groups: usual.groups.min(tables), ..usual }
    }

    /// The datapath ID.
    ///
    /// # Errors
    /// When it is not a number of 64 bits in hexadecimal digits.
    pub fn datapath(&self) -> Result<u64, ConfigError> {
        let text = self.switch().datapath;
        let digits: String = text.get_ref().chars().filter(|c| *c != ':').collect();
        u64::from_str_radix(digits.trim_start_matches("0x"), 16).map_err(|_| {
            let what = format!("'{}' is not a datapath ID", text.get_ref());
            self.error(text.span(), what, "write up to 16 hexadecimal digits")
        })
    }
}

/// Returns the first mistake.
pub(super) fn check(config: &Config) -> Checked {
    let switches = *config.work.get_ref().kind.get_ref() == WorkKind::Switch;
    if let (Some(switch), false) = (&config.switch, switches) {
        let what = "[switch] is for kind = \"switch\"";
        let fix = "write that kind in [work], or leave it out";
        return Err(config.error(switch.span(), what, fix));
    }
    let switch = config.switch();
    config.datapath()?;
    if !(1..=255).contains(switch.tables.get_ref()) {
        let what = format!("a switch cannot have {} tables", switch.tables.get_ref());
        return Err(config.error(switch.tables.span(), what, "write 1 to 255"));
    }
    if *switch.cache_entries.get_ref() > 1 << 26 {
        let what = format!("a core cannot keep {} flows", switch.cache_entries.get_ref());
        return Err(config.error(switch.cache_entries.span(), what, "write 0 to 67108864"));
    }
    if !(1..=1 << 20).contains(switch.punts.get_ref()) {
        let what = format!("a queue of {} frames is not possible", switch.punts.get_ref());
        return Err(config.error(switch.punts.span(), what, "write 1 to 1048576"));
    }
    if !(1..=1 << 20).contains(switch.memory_mib.get_ref()) {
        let what = format!("tables cannot have {} MiB", switch.memory_mib.get_ref());
        return Err(config.error(switch.memory_mib.span(), what, "write 1 to 1048576"));
    }
    let mut numbers = HashSet::new();
    for (name, number) in &switch.ports {
        port_name(config, name, number.span())?;
        if !(1..=PORT_MAX).contains(number.get_ref()) {
            let what = format!("a port cannot have the number {}", number.get_ref());
            return Err(config.error(number.span(), what, format!("write 1 to {PORT_MAX}")));
        }
        if !numbers.insert(*number.get_ref()) {
            let what = format!("there is a port with the number {} already", number.get_ref());
            return Err(config.error(number.span(), what, "give each its own number"));
        }
    }
    let ends = [(&switch.controllers, ["tcp:", "tls:", "unix:"])];
    let listens = [(&switch.listen, ["ptcp:", "ptls:", "punix:"])];
    for (list, kinds) in ends.into_iter().chain(listens) {
        for text in list {
            if !kinds.iter().any(|kind| text.get_ref().starts_with(kind)) {
                let what = format!("'{}' is not an address of a controller", text.get_ref());
                let fix = format!("start it with {}", kinds.join(", "));
                return Err(config.error(text.span(), what, fix));
            }
        }
    }
    if switches {
        config.load_switch(&mut config.switch_agent()?)?;
    }
    Ok(())
}
