//! The configuration of the machine: every key with its default and the source of the default.
//!
//! "Paper" is Willmann et al., HPCA 2005, with the section; "Ours" is a choice of ours because the paper gives
//! no value (docs/nic.md lists these with reasons). A configuration is TOML with the sections below, and any
//! key can be set on the command line as `section.key=value`.
//! Thread-safety: values only.

use flowyard_report::toml_error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::Freq;

mod check;
mod keys;

pub use keys::{Key, keys};

/// A whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The cores and their crossbar.
    pub chip: Chip,
    /// The four assists.
    pub assist: Assist,
    /// The frame memory.
    pub sdram: Sdram,
    /// The host's bus.
    pub pci: Pci,
    /// The link.
    pub mac: Mac,
    /// The host and its driver.
    pub host: Host,
    /// The parameters that the firmware reads when it starts.
    pub firmware: Firmware,
    /// The traffic.
    pub load: Load,
    /// The duration of the run.
    pub run: Run,
}

/// The cores, caches, scratchpad and crossbar.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Chip {
    /// Number of cores, 1 to 16. Paper, abstract: 6.
    pub cores: u32,
    /// The clock of cores, scratchpad and crossbar. Paper, section 6.3: 166 MHz, read as 500/3.
    #[schemars(with = "String")]
    pub mhz: Freq,
    /// Number of scratchpad banks, a power of two up to 32. Paper, section 6.1: 4.
    pub banks: u32,
    /// Consecutive bytes in one bank, a power of two from 4. Ours: 4, which spreads a descriptor over banks.
    pub interleave_bytes: u32,
    /// The size of the scratchpad. Paper, section 4: 256 KB.
    pub scratchpad_kb: u32,
    /// The size of a core's instruction cache. Paper, section 6.1: 8 KB.
    pub icache_bytes: u32,
    /// The ways of the instruction cache, 1 or 2. Paper, section 6.1: 2.
    pub icache_ways: u32,
    /// The line of the instruction cache. Paper, section 6.1: 32 bytes.
    pub icache_line_bytes: u32,
    /// Bytes that the instruction memory delivers in a cycle. Paper, section 4: 128 bits.
    pub imem_bytes_per_cycle: u32,
    /// Cycles of a miss in addition to the transfer. Ours: 1; Table 4 implies a penalty of about 3.4.
    pub imem_overhead_cycles: u32,
    /// Branches whose condition is late: "predict" (backward taken, forward not taken; a wrong prediction
    /// annuls one instruction) or "stall". Paper, section 6.1 names both causes; Ours: predict.
    pub branch: Branch,
    /// Cycles until a product can be moved from LO. Ours: 1; an R4000 takes 10.
    pub mult_cycles: u32,
    /// Cycles until a quotient can be moved. Ours: 1; an R4000 takes 69.
    pub div_cycles: u32,
    /// Whether `set` goes through the store buffer (true) or stalls like a load. Ours: true.
    pub set_posted: bool,
}

/// The treatment of a branch whose condition is computed one cycle too late for the decode stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Branch {
    /// Static prediction.
    Predict,
    /// Wait one cycle.
    Stall,
}

impl Default for Chip {
    fn default() -> Self {
        Self {
            cores: 6,
            mhz: Freq::new(500_000_000, 3).unwrap_or(Freq::mhz(166)),
            banks: 4,
            interleave_bytes: 4,
            scratchpad_kb: 256,
            icache_bytes: 8192,
            icache_ways: 2,
            icache_line_bytes: 32,
            imem_bytes_per_cycle: 16,
            imem_overhead_cycles: 1,
            branch: Branch::Predict,
            mult_cycles: 1,
            div_cycles: 1,
            set_posted: true,
        }
    }
}

/// The DMA and MAC assists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Assist {
    /// Cycles from one scratchpad access of an assist to the next. Paper, section 4: an access takes 2.
    pub gap_cycles: u32,
    /// The largest number of DMAs that one assist has outstanding. Ours: 32.
    pub dma_outstanding: u32,
    /// The time from a DMA's request to its data or acknowledgement. Ours: 1000; the paper does not model it.
    pub dma_latency_ns: u64,
    /// The buffer of a MAC assist. Paper, section 2.3: two maximum-sized frames.
    pub mac_buffer_bytes: u32,
}

impl Default for Assist {
    fn default() -> Self {
        Self { gap_cycles: 2, dma_outstanding: 32, dma_latency_ns: 1000, mac_buffer_bytes: 3036 }
    }
}

/// The GDDR SDRAM: 64 bits wide, two transfers in a cycle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sdram {
    /// The clock. Paper, section 4: 500 MHz.
    #[schemars(with = "String")]
    pub mhz: Freq,
    /// Bytes transferred in a cycle. Paper, section 4: 64 bits, twice.
    pub bytes_per_cycle: u32,
    /// Cycles that every burst takes in addition. Ours: 4, for command and bus turnaround.
    pub burst_overhead_cycles: u32,
    /// Cycles to open a row in a bank that the last burst did not use. Ours: 12.
    pub row_miss_cycles: u32,
    /// Cycles to open another row in the bank just used. Paper, section 6.2: up to 27.
    pub bank_conflict_cycles: u32,
    /// Number of banks. Ours: 4, as in an MT44H8M32.
    pub banks: u32,
    /// Bytes of a row over both devices. Ours: 4096.
    pub row_bytes: u32,
}

impl Default for Sdram {
    fn default() -> Self {
        Self {
            mhz: Freq::mhz(500),
            bytes_per_cycle: 16,
            burst_overhead_cycles: 4,
            row_miss_cycles: 12,
            bank_conflict_cycles: 27,
            banks: 4,
            row_bytes: 4096,
        }
    }
}

/// The host's bus. It has only a clock; bandwidth and arbitration are not modelled (Paper, section 5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Pci {
    /// The clock. Ours: 400/3, which is PCI-X 133.
    #[schemars(with = "String")]
    pub mhz: Freq,
}

impl Default for Pci {
    fn default() -> Self {
        Self { mhz: Freq::new(400_000_000, 3).unwrap_or(Freq::mhz(133)) }
    }
}

/// The link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Mac {
    /// The clock of the MAC assists. Ours: 156.25: 64 bits at 10 Gb/s (IEEE 802.3, clause 46).
    #[schemars(with = "String")]
    pub mhz: Freq,
    /// The link rate in each direction. Paper: 10.
    pub link_gbps: u64,
    /// Preamble and start delimiter. Paper, section 5; IEEE 802.3: 8.
    pub preamble_bytes: u32,
    /// Inter-frame gap. Paper, section 5; IEEE 802.3: 12.
    pub gap_bytes: u32,
}

impl Default for Mac {
    fn default() -> Self {
        let mhz = Freq::new(156_250_000, 1).unwrap_or(Freq::mhz(156));
        Self { mhz, link_gbps: 10, preamble_bytes: 8, gap_bytes: 12 }
    }
}

/// The host and its driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Host {
    /// Send buffer descriptors, a power of two. Ours: 512, as the Tigon-II's standard ring.
    pub send_ring: u32,
    /// Receive buffer descriptors, a power of two, at most 512. Ours: 512.
    pub recv_ring: u32,
    /// Return descriptors of each return ring, a power of two. Ours: 1024.
    pub return_ring: u32,
    /// Return rings, 1 to 8, which are the receive queues of the host. Paper: one.
    pub queues: u32,
    /// Every this many receive buffers, the driver posts one that is too short, 0 for none; the firmware must drop
    /// its frame and must not write to it. With one return ring only. Ours: 0.
    pub short_buffer_every: u32,
}

impl Default for Host {
    fn default() -> Self {
        Self { send_ring: 512, recv_ring: 512, return_ring: 1024, queues: 1, short_buffer_every: 0 }
    }
}

/// The parameters that the firmware reads when it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Firmware {
    /// The largest number of work units in an event, 1 to 32. Paper, Figures 4 and 5: 5.
    pub bundle: u32,
    /// The number of sent or received frames after which the host is notified at the latest. Ours: 8.
    pub send_coalesce: u32,
    /// The minimum time between two interrupts in microseconds. Ours: 50.
    pub interrupt_us: u32,
    /// Steering in firmware: bit 0 is RSS, bit 1 is Flow Director. Paper: none.
    pub steer: u32,
    /// Number of exact-match filters installed. Paper: none.
    pub filters: u32,
}

impl Default for Firmware {
    fn default() -> Self {
        Self { bundle: 5, send_coalesce: 8, interrupt_us: 50, steer: 0, filters: 0 }
    }
}

/// The traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Load {
    /// UDP payload bytes of the frames, used in turn. Paper, section 6.1: 1472. `[18, 18, 18, 18, 18, 18,
    /// 18, 548, 548, 548, 548, 1472]` is the simple IMIX.
    pub udp_bytes: Vec<u32>,
    /// Whether the host sends.
    pub send: bool,
    /// Whether the network sends.
    pub receive: bool,
    /// The share of line rate that arrives.
    pub receive_share: f64,
    /// Number of UDP flows, used in turn.
    pub flows: u32,
    /// The VLAN tag of all frames, 0 for none. The adapter inserts it when sending and removes it when
    /// receiving.
    pub vlan: u32,
    /// Every this many received frames, one is damaged on the link, 0 for none; the MAC marks it. Ours: 0.
    pub damage_every: u32,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            udp_bytes: vec![1472],
            send: true,
            receive: true,
            receive_share: 1.0,
            flows: 16,
            vlan: 0,
            damage_every: 0,
        }
    }
}

/// The longest measured time, and the longest time before it, in microseconds.
pub const MAX_RUN_US: u64 = 10_000_000;

/// The duration of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Run {
    /// Time before the measurement. Ours: 300 us.
    pub warmup_us: u64,
    /// Measured time. Ours: 5 ms.
    pub measure_us: u64,
}

impl Default for Run {
    fn default() -> Self {
        Self { warmup_us: 300, measure_us: 5000 }
    }
}

/// What is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A value is out of its range.
    #[error("{key} = {value}: {wanted}")]
    Value {
        /// `section.key`.
        key: &'static str,
        /// Its value.
        value: String,
        /// The accepted values.
        wanted: &'static str,
    },
    /// The text of a file is not valid TOML, or does not fit the keys.
    #[error("{line}:{column}: {what}")]
    At {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// What is wrong.
        what: String,
    },
    /// A value does not fit its key.
    #[error("{0}")]
    Toml(String),
    /// A setting is not `section.key=value`.
    #[error("'{0}' is not section.key=value, such as chip.cores=8")]
    Setting(String),
    /// There is no such key.
    #[error(
        "the key '{key}' is unknown; the nearest are {near}; `flowyard nic keys` lists all keys"
    )]
    Unknown {
        /// The unknown key.
        key: String,
        /// The keys with the most similar names.
        near: String,
    },
    /// The clocks have no common time unit.
    #[error(transparent)]
    Clock(#[from] crate::time::FreqError),
}

impl Config {
    /// Reads TOML.
    ///
    /// # Errors
    /// When the text is not TOML, has an unknown key, or a value is out of range.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text).map_err(|error| {
            let (line, column) = toml_error::place(text, &error);
            ConfigError::At { line, column, what: toml_error::words(&error) }
        })?;
        config.check()?;
        Ok(config)
    }

    /// Whether the TOML `text` has the key `path`, which is `section.key`.
    #[must_use]
    pub fn has_key(text: &str, path: &str) -> bool {
        let table = text.parse::<toml::Table>().unwrap_or_default();
        let pair = path.split_once('.');
        pair.is_some_and(|(section, key)| table.get(section).and_then(|at| at.get(key)).is_some())
    }

    /// Sets one key from `section.key=value`, where the value is TOML or unquoted text. The configuration is
    /// not checked, because keys may depend on each other: see [`Config::check`].
    ///
    /// # Errors
    /// When there is no such key, or the value has the wrong type.
    pub fn set(&mut self, setting: &str) -> Result<(), ConfigError> {
        let wrong = || ConfigError::Setting(setting.to_owned());
        let (path, value) = setting.split_once('=').ok_or_else(wrong)?;
        let path = path.trim();
        let unknown = || ConfigError::Unknown { key: path.to_owned(), near: keys::nearest(path) };
        let (section, key) = path.split_once('.').ok_or_else(unknown)?;
        let other = |error: &dyn std::fmt::Display| {
            ConfigError::Toml(format!("{path}: {}", error.to_string().trim()))
        };
        let parse = |text: &str| text.parse::<toml::Table>();
        let one = parse(&format!("v = {value}"))
            .or_else(|_| parse(&format!("v = {:?}", value.trim())))
            .map_err(|error| ConfigError::Toml(format!("{path}: {}", toml_error::words(&error))))?;
        let mut all = toml::Table::try_from(&*self).map_err(|error| other(&error))?;
        let table = all.get_mut(section).and_then(toml::Value::as_table_mut).ok_or_else(unknown)?;
        if !table.contains_key(key) {
            return Err(unknown());
        }
        let value = one.get("v").cloned().ok_or_else(wrong)?;
        table.insert(key.to_owned(), value);
        *self = all.try_into().map_err(|error: toml::de::Error| {
            ConfigError::Toml(format!("{path} {}", toml_error::words(&error)))
        })?;
        Ok(())
    }

    /// The rate of bytes on the link.
    pub fn byte_rate(&self) -> Freq {
        Freq::mhz(self.mac.link_gbps * 125)
    }

    /// The common time unit of all clocks.
    ///
    /// # Errors
    /// When the clocks have no common unit.
    pub fn base(&self) -> Result<crate::time::Base, crate::time::FreqError> {
        let rates = [self.chip.mhz, self.pci.mhz, self.mac.mhz, self.sdram.mhz, self.byte_rate()];
        crate::time::Base::of(&rates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_sound_and_survives_toml() {
        let config = Config::default();
        config.check().unwrap();
        let text = toml::Table::try_from(&config).unwrap().to_string();
        assert_eq!(Config::parse(&text).unwrap(), config);
    }

    #[test]
    fn keys_are_set_by_name() {
        let mut config = Config::default();
        for setting in
            ["chip.cores=8", "chip.mhz=500/3", "chip.mhz=175", "load.udp_bytes=[18, 1472]"]
        {
            config.set(setting).unwrap();
        }
        assert_eq!((config.chip.cores, config.chip.mhz), (8, Freq::mhz(175)));
        assert_eq!(config.load.udp_bytes, [18, 1472]);
        for wrong in ["chip.core=8", "chip=8", "cores", "chip.cores=many", "x.y=1"] {
            assert!(config.set(wrong).is_err(), "{wrong}");
        }
        let error = config.set("chip.cors=8").unwrap_err().to_string();
        assert!(
            error.starts_with("the key 'chip.cors' is unknown; the nearest are chip.cores,"),
            "{error}"
        );
        let error = config.set("cores=8").unwrap_err().to_string();
        assert!(error.contains("chip.cores"), "{error}");
        let error = config.set("chip.cores").unwrap_err().to_string();
        assert!(error.contains("is not section.key=value"), "{error}");
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        for (setting, part) in [
            ("host.send_ring=500", "host.send_ring = 500: a power of two"),
            ("chip.cores=17", "chip.cores = 17: from 1 to 16"),
            ("chip.banks=3", "chip.banks = 3"),
            ("load.udp_bytes=[]", "at least one size"),
            ("load.receive_share=0.0", "above 0"),
        ] {
            let mut config = Config::default();
            config.set(setting).unwrap();
            let error = config.check().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
