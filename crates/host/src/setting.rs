//! One setting of the machine, and its value as text: what plans change and journals restore.
//!
//! | setting | value |
//! |---|---|
//! | `channels` | `rx 0 tx 0 other 1 combined 4` |
//! | `rss.key` | `6d:5a:...` |
//! | `rss.table` | the queue of each entry, such as `0 1 2 3 0 1 2 3` |
//! | `fields.tcp4` | ethtool's letters, such as `sdfn`, or `nothing` |
//! | `irq-42.affinity`, `tx-0.xps_cpus`, `rx-0.rps_cpus` | CPUs, such as `0-3,8`, or `none` |
//! | `rx-0.rps_flow_cnt`, `rps_sock_flow_entries` | a number of entries |
//! | `rss.context-1` | the queue of each entry of an RSS context and its key, as `2 3 2 3 key 6d:5a:...`, or `none` |
//! | `rss.context-new` | the same; the driver chooses the number while the plan is applied |
//! | `rule-7` | the rule at location 7 in ethtool's words, without its location, or `none` |
//! | `rule-new-1` | the same; the driver chooses the location while the plan is applied |
//!
//! The order of the settings is the order in which they are changed: channels reset tables, so they come first;
//! RPS and RFS come last, because they act on what the adapter delivers.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cpus;
use crate::files::{self, SOCK_FLOW_ENTRIES, hex, unhex};
use crate::flow_types::{fields_of, flow_type, letters};
use crate::known::Known;
use crate::machine::{Counts, Machine};
use crate::ntuple::ANY_LOCATION;
use crate::rules::words;
use crate::state::State;

pub(crate) mod context;

/// A setting: `channels`, `rss.context-N`, `rss.context-new` (the driver chooses the number), `rss.key`, `rss.table`,
/// `fields.TYPE`, `rule-LOCATION`, `rule-new-N` (the driver chooses the location), `irq-N.affinity`, `tx-N.xps_cpus`,
/// `rps_sock_flow_entries`, `rx-N.rps_cpus`, `rx-N.rps_flow_cnt`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(into = "String", try_from = "String")]
#[schemars(with = "String")]
pub enum Setting {
    /// The numbers of channels.
    Channels,
    /// An RSS context other than the default one.
    Context(u32),
    /// An RSS context whose number the driver chooses.
    NewContext,
    /// The RSS key.
    Key,
    /// The RSS indirection table.
    Table,
    /// The hashed fields of a flow type of ethtool.
    Fields(String),
    /// The rule at a location.
    Rule(u32),
    /// A rule whose location the driver chooses; the number tells several of them apart.
    NewRule(u32),
    /// The CPUs of an interrupt.
    Affinity(u32),
    /// The CPUs that transmit by a queue.
    Xps(u32),
    /// The size of the socket flow table of RFS, of the whole machine.
    SockFlows,
    /// The CPUs to which RPS spreads the frames of a receive queue.
    Rps(u32),
    /// The size of the flow table of RFS of a receive queue.
    FlowCount(u32),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Channels => f.write_str("channels"),
            Self::Context(number) => write!(f, "rss.context-{number}"),
            Self::NewContext => f.write_str("rss.context-new"),
            Self::Key => f.write_str("rss.key"),
            Self::Table => f.write_str("rss.table"),
            Self::Fields(flow) => write!(f, "fields.{flow}"),
            Self::Rule(location) => write!(f, "rule-{location}"),
            Self::NewRule(number) => write!(f, "rule-new-{number}"),
            Self::Affinity(irq) => write!(f, "irq-{irq}.affinity"),
            Self::Xps(queue) => write!(f, "tx-{queue}.xps_cpus"),
            Self::SockFlows => f.write_str("rps_sock_flow_entries"),
            Self::Rps(queue) => write!(f, "rx-{queue}.rps_cpus"),
            Self::FlowCount(queue) => write!(f, "rx-{queue}.rps_flow_cnt"),
        }
    }
}

impl From<Setting> for String {
    fn from(setting: Setting) -> Self {
        setting.to_string()
    }
}

impl TryFrom<String> for Setting {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let numbered = |front: &str, behind: &str| -> Option<u32> {
            text.strip_prefix(front)?.strip_suffix(behind)?.parse().ok()
        };
        let fields = || text.strip_prefix("fields.").filter(|name| flow_type(name).is_some());
        let found = match &*text {
            "channels" => Some(Self::Channels),
            "rss.context-new" => Some(Self::NewContext),
            "rss.key" => Some(Self::Key),
            "rss.table" => Some(Self::Table),
            "rps_sock_flow_entries" => Some(Self::SockFlows),
            _ => fields()
                .map(|name| Self::Fields(name.to_owned()))
                .or_else(|| numbered("rss.context-", "").map(Self::Context))
                .or_else(|| numbered("rule-new-", "").map(Self::NewRule))
                .or_else(|| numbered("rule-", "").map(Self::Rule))
                .or_else(|| numbered("irq-", ".affinity").map(Self::Affinity))
                .or_else(|| numbered("tx-", ".xps_cpus").map(Self::Xps))
                .or_else(|| numbered("rx-", ".rps_cpus").map(Self::Rps))
                .or_else(|| numbered("rx-", ".rps_flow_cnt").map(Self::FlowCount)),
        };
        // A number with a plus sign or leading zeros would be another name of the same setting.
        let exact = found.filter(|setting| setting.to_string() == text);
        exact.ok_or_else(|| format!("there is no setting '{text}'"))
    }
}

/// The settings of an interface, with their values.
pub type Settings = BTreeMap<Setting, String>;

/// The value of a setting without one.
pub(crate) const NONE: &str = "none";

pub(crate) fn cpu_text(cpus: &[u32]) -> String {
    if cpus.is_empty() { NONE.to_owned() } else { cpus::list(cpus) }
}

pub(crate) fn table_text(table: &[u32]) -> String {
    table.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

pub(crate) fn counts_text(counts: Counts) -> String {
    let Counts { rx, tx, other, combined } = counts;
    format!("rx {rx} tx {tx} other {other} combined {combined}")
}

pub(crate) use context::text as context_text;

/// The settings that are known.
#[must_use]
pub fn settings_of(state: &State) -> Settings {
    let mut all = Settings::new();
    let mut add = |setting, value: Option<String>| {
        all.extend(value.map(|value| (setting, value)));
    };
    add(Setting::Channels, state.channels.value().map(|all| counts_text(all.now)));
    for one in state.contexts.value().into_iter().flatten() {
        let key = one.rss.key.value().map(String::as_str);
        add(Setting::Context(one.number), Some(context_text(&one.rss.table, key)));
    }
    let rss = state.rss.value();
    add(Setting::Key, rss.and_then(|rss| rss.key.value().cloned()));
    let table = rss.filter(|rss| !rss.table.is_empty());
    add(Setting::Table, table.map(|rss| table_text(&rss.table)));
    for (flow, fields) in &state.fields {
        add(Setting::Fields(flow.clone()), fields.value().cloned());
    }
    for one in state.rules.value().into_iter().flat_map(|rules| &rules.list) {
        add(Setting::Rule(one.location), Some(one.rule.clone()));
    }
    let cpus = |cpus: &Known<Vec<u32>>| cpus.value().map(|cpus| cpu_text(cpus));
    for one in state.interrupts.value().into_iter().flatten() {
        add(Setting::Affinity(one.irq), cpus(&one.affinity));
    }
    for one in state.tx_queues.value().into_iter().flatten() {
        add(Setting::Xps(one.queue), cpus(&one.xps_cpus));
    }
    add(Setting::SockFlows, state.sock_flow_entries.value().map(ToString::to_string));
    for one in state.rx_queues.value().into_iter().flatten() {
        add(Setting::Rps(one.queue), cpus(&one.rps_cpus));
        add(Setting::FlowCount(one.queue), one.rps_flow_cnt.value().map(ToString::to_string));
    }
    all
}

fn invalid(setting: &Setting, value: &str) -> io::Error {
    let what = format!("'{value}' is not a value of {setting}");
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

impl Setting {
    /// The file of the setting, if it is one.
    fn file(&self, interface: &str) -> Option<String> {
        let queues = || format!("{}/queues", files::folder(interface));
        Some(match self {
            Self::Affinity(irq) => format!("/proc/irq/{irq}/smp_affinity_list"),
            Self::Xps(queue) => format!("{}/tx-{queue}/xps_cpus", queues()),
            Self::Rps(queue) => format!("{}/rx-{queue}/rps_cpus", queues()),
            Self::FlowCount(queue) => format!("{}/rx-{queue}/rps_flow_cnt", queues()),
            Self::SockFlows => SOCK_FLOW_ENTRIES.to_owned(),
            _ => return None,
        })
    }

    /// The value of a setting that is not there, if it can be made: a rule or an RSS context.
    pub(crate) fn absent(&self) -> Option<&'static str> {
        let can_be_made =
            matches!(self, Self::Rule(_) | Self::NewRule(_) | Self::Context(_) | Self::NewContext);
        can_be_made.then_some(NONE)
    }

    /// Whether the name of the setting is chosen by the driver when it is made.
    pub(crate) fn is_new(&self) -> bool {
        matches!(self, Self::NewRule(_) | Self::NewContext)
    }

    /// The value now.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn get(&self, machine: &dyn Machine, interface: &str) -> io::Result<String> {
        if let Some(path) = self.file(interface) {
            let text = machine.read(&path)?;
            let cpus = match self {
                Self::Affinity(_) => cpus::from_list(&text),
                Self::Xps(_) | Self::Rps(_) => cpus::from_mask(&text),
                _ => return Ok(text.trim().to_owned()),
            };
            return cpus.map(|cpus| cpu_text(&cpus)).ok_or_else(|| invalid(self, text.trim()));
        }
        Ok(match self {
            Self::Key => hex(&machine.rss(interface, 0)?.key),
            Self::Table => table_text(&machine.rss(interface, 0)?.table),
            Self::Fields(flow) => {
                letters(machine.fields(interface, flow_type(flow).unwrap_or_default())?)
            }
            Self::Rule(location) => machine
                .rule(interface, *location)?
                .map_or_else(|| NONE.to_owned(), |listed| words::listed(&listed)),
            Self::Context(number) => context::get(machine, interface, *number)?,
            Self::NewRule(_) | Self::NewContext => NONE.to_owned(),
            _ => counts_text(machine.channels(interface)?.now),
        })
    }

    /// Changes the value.
    ///
    /// # Errors
    /// The error of the kernel; or the text is not a value of the setting.
    pub fn set(&self, machine: &mut dyn Machine, interface: &str, value: &str) -> io::Result<()> {
        let wrong = || invalid(self, value);
        if let Some(path) = self.file(interface) {
            let text = self.file_text(value).ok_or_else(wrong)?;
            return machine.write(&path, &text);
        }
        match self {
            Self::Key => machine.set_key(interface, &unhex(value).ok_or_else(wrong)?),
            Self::Table => {
                let table = table(value).filter(|table| !table.is_empty());
                machine.set_table(interface, &table.ok_or_else(wrong)?)
            }
            Self::Fields(flow) => {
                let bits = fields_of(value).ok_or_else(wrong)?;
                machine.set_fields(interface, flow_type(flow).ok_or_else(wrong)?, bits)
            }
            Self::Rule(location) if value == NONE => machine.delete_rule(interface, *location),
            Self::Rule(location) => {
                let rule = words::bytes(value).ok_or_else(wrong)?;
                machine.insert_rule(interface, &rule, *location).map(drop)
            }
            Self::Context(number) if value == NONE => machine.delete_context(interface, *number),
            Self::Channels => machine.set_channels(interface, counts(value).ok_or_else(wrong)?),
            _ => Err(wrong()),
        }
    }

    /// Makes a setting whose name the driver chooses, and returns the setting that it chose.
    ///
    /// # Errors
    /// As of [`Self::set`].
    pub(crate) fn make(
        &self,
        machine: &mut dyn Machine,
        interface: &str,
        value: &str,
    ) -> io::Result<Self> {
        let wrong = || invalid(self, value);
        match self {
            Self::NewRule(_) => {
                let rule = words::bytes(value).ok_or_else(wrong)?;
                machine.insert_rule(interface, &rule, ANY_LOCATION).map(Self::Rule)
            }
            Self::NewContext => {
                let (table, key) = context::read(value).ok_or_else(wrong)?;
                machine.create_context(interface, &table, &key).map(Self::Context)
            }
            _ => Err(wrong()),
        }
    }

    /// What is written to the setting's file for a value; `None` if it is none.
    fn file_text(&self, value: &str) -> Option<String> {
        let cpus = || if value == NONE { Some(Vec::new()) } else { cpus::from_list(value) };
        match self {
            Self::Affinity(_) => {
                cpus().filter(|cpus| !cpus.is_empty()).map(|cpus| cpus::list(&cpus))
            }
            Self::Xps(_) | Self::Rps(_) => cpus().map(|cpus| cpus::mask(&cpus)),
            _ => value.parse::<u32>().ok().map(|number| number.to_string()),
        }
    }

    /// The command of a shell that changes the setting to `value`.
    #[must_use]
    pub fn command(&self, interface: &str, value: &str) -> String {
        if let Some(path) = self.file(interface) {
            return format!("echo {} > {path}", self.file_text(value).unwrap_or_default());
        }
        match self {
            Self::Key => format!("ethtool -X {interface} hkey {value}"),
            Self::Table => table_command(interface, &table(value).unwrap_or_default()),
            Self::Fields(flow) => {
                let letters = if value == "nothing" { "r" } else { value };
                format!("ethtool -N {interface} rx-flow-hash {flow} {letters}")
            }
            Self::Rule(location) if value == NONE => {
                format!("ethtool -N {interface} delete {location}")
            }
            Self::Rule(location) => {
                format!("ethtool -N {interface} {} loc {location}", context::in_shell(value))
            }
            Self::NewRule(_) => format!("ethtool -N {interface} {}", context::in_shell(value)),
            Self::Context(number) => format!("ethtool -X {interface} context {number} delete"),
            Self::NewContext => context::command(interface, value),
            _ => {
                let Counts { rx, tx, other, combined } = counts(value).unwrap_or_default();
                let parts = [("rx", rx), ("tx", tx), ("other", other), ("combined", combined)];
                let parts = parts.iter().filter(|(_, number)| *number > 0);
                let words: Vec<_> = parts.map(|(name, n)| format!("{name} {n}")).collect();
                format!("ethtool -L {interface} {}", words.join(" "))
            }
        }
    }
}

/// The number of queues that frames can arrive on under `settings`.
pub(crate) fn queues(state: &State, settings: &Settings) -> Option<u32> {
    let counts = settings.get(&Setting::Channels).and_then(|text| counts(text));
    let queues = counts.map(|all| all.rx + all.combined).filter(|queues| *queues > 0);
    queues.or_else(|| state.queues())
}

/// The queues of the entries of a table; `None` if it is none. No adapter has more than 65536 queues.
pub(crate) fn table(value: &str) -> Option<Vec<u32>> {
    value.split(' ').map(|queue| queue.parse::<u16>().ok().map(u32::from)).collect()
}

/// The most weights that a printed command has: no command of a person has more, and few adapters have more queues.
const MOST_WEIGHTS: usize = 2048;

/// ethtool sets tables by weights only: queue q gets the next W entries. A table that is not of this form has
/// no command.
fn table_command(interface: &str, table: &[u32]) -> String {
    if table.is_empty() {
        return format!("# the table of {interface} cannot be read");
    }
    let queues = table.iter().max().map_or(0, |most| *most as usize + 1);
    if queues > MOST_WEIGHTS {
        return format!("# ethtool would need a weight for each of {queues} queues");
    }
    let is_equal = table.iter().enumerate().all(|(entry, queue)| *queue as usize == entry % queues);
    if is_equal {
        return format!("ethtool -X {interface} equal {queues}");
    }
    let mut weights = vec![0_usize; queues];
    table.iter().for_each(|queue| weights[*queue as usize] += 1);
    let words: Vec<_> = weights.iter().map(ToString::to_string).collect();
    let command = format!("ethtool -X {interface} weight {}", words.join(" "));
    if table.is_sorted() {
        return command;
    }
    format!("# ethtool cannot set single entries; nearest: {command}")
}

pub(crate) fn counts(value: &str) -> Option<Counts> {
    let words: Vec<_> = value.split(' ').collect();
    let ["rx", rx, "tx", tx, "other", other, "combined", combined] = words[..] else { return None };
    Some(Counts {
        rx: rx.parse().ok()?,
        tx: tx.parse().ok()?,
        other: other.parse().ok()?,
        combined: combined.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use crate::flow_types::FLOW_TYPES;

    #[test]
    fn every_setting_has_one_name() {
        let state = State::read(&Fake::virtio(), "eth0").unwrap();
        let all = settings_of(&state);
        assert!(all.len() > 20, "{all:?}");
        for setting in all.keys() {
            assert_eq!(Setting::try_from(setting.to_string()).as_ref(), Ok(setting));
        }
        for name in ["", "fields.foo", "rx-01.rps_cpus", "rx-+1.rps_cpus", "irq-.affinity"] {
            assert!(Setting::try_from(name.to_owned()).is_err(), "{name}");
        }
        assert_eq!(
            FLOW_TYPES.len(),
            all.keys().filter(|one| matches!(one, Setting::Fields(_))).count()
        );
    }

    #[test]
    fn values_are_read_as_they_were_written() {
        let mut fake = Fake::virtio();
        let state = State::read(&fake, "eth0").unwrap();
        for (setting, value) in settings_of(&state) {
            assert_eq!(setting.get(&fake, "eth0").unwrap(), value, "{setting}");
            setting.set(&mut fake, "eth0", &value).unwrap();
            assert_eq!(setting.get(&fake, "eth0").unwrap(), value, "{setting}");
            assert!(setting.set(&mut fake, "eth0", "?").is_err(), "{setting}");
        }
        let rps = Setting::Rps(1);
        rps.set(&mut fake, "eth0", "0,2-3").unwrap();
        assert_eq!(rps.get(&fake, "eth0").unwrap(), "0,2-3");
        assert_eq!(
            rps.command("eth0", "none"),
            "echo 0 > /sys/class/net/eth0/queues/rx-1/rps_cpus"
        );
        assert_eq!(Setting::Table.command("eth0", "0 1 0 1"), "ethtool -X eth0 equal 2");
        assert_eq!(Setting::Table.command("eth0", "0 0 1 2"), "ethtool -X eth0 weight 2 1 1");
        // A number that is no queue: its weights would need 32 GiB.
        let what = Setting::Table.set(&mut fake, "eth0", "0 4294967295").unwrap_err();
        assert_eq!(what.kind(), io::ErrorKind::InvalidInput);
        assert!(!Setting::Table.command("eth0", "0 4294967295").contains("weight"));
        assert!(Setting::Table.command("eth0", "0 65535").len() < 100);
        // More CPUs than a machine has, again and again.
        let all = vec!["0-8191"; 1000].join(",");
        assert!(rps.set(&mut fake, "eth0", &all).is_err());
    }
}
