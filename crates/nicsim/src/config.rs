//! Every knob of the machine: name, default, and where the default comes from.
//!
//! "[P]" is the paper (Willmann et al., HPCA 2005), with the section; "[I]" is a choice of ours where
//! the paper is silent (docs/nic.md lists them with reasons). A configuration is TOML with the
//! sections below, and any key may be set from the command line as `section.key=value`.
//! Thread-safety: values only.

use serde::{Deserialize, Serialize};

use crate::time::Freq;

/// A whole configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
pub struct Config {
    /// Cores and their crossbar.
    pub chip: Chip,
    /// The four assists.
    pub assist: Assist,
    /// Frame memory.
    pub sdram: Sdram,
    /// The host's bus.
    pub pci: Pci,
    /// The link.
    pub mac: Mac,
    /// Host and driver.
    pub host: Host,
    /// What the firmware is told when it starts.
    pub firmware: Firmware,
    /// The traffic.
    pub load: Load,
    /// How long.
    pub run: Run,
}

/// Cores, caches, scratchpad, crossbar.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Chip {
    /// Cores, 1 to 16. [P] abstract: 6.
    pub cores: u32,
    /// Clock of cores, scratchpad and crossbar. [P] section 6.3: 166 MHz, read as 500/3.
    pub mhz: Freq,
    /// Scratchpad banks, a power of two up to 32. [P] section 6.1: 4.
    pub banks: u32,
    /// Consecutive bytes in one bank, a power of two from 4. [I] 4: spreads a descriptor.
    pub interleave_bytes: u32,
    /// Scratchpad size. [P] section 4: 256 KB.
    pub scratchpad_kb: u32,
    /// Instruction cache of a core. [P] section 6.1: 8 KB.
    pub icache_bytes: u32,
    /// Its ways, 1 or 2. [P] section 6.1: 2.
    pub icache_ways: u32,
    /// Its line. [P] section 6.1: 32 bytes.
    pub icache_line_bytes: u32,
    /// Bytes that the instruction memory delivers in a cycle. [P] section 4: 128 bits.
    pub imem_bytes_per_cycle: u32,
    /// Cycles of a miss beside the transfer. [I] 1; Table 4 implies a penalty of about 3.4.
    pub imem_overhead_cycles: u32,
    /// Branches whose condition is late: "predict" (backward taken, forward not; a wrong one
    /// annuls one instruction) or "stall". [P] section 6.1 names both causes; [I] predict.
    pub branch: Branch,
    /// Cycles until a product can be moved from LO. [I] 1; an R4000 takes 10.
    pub mult_cycles: u32,
    /// Cycles until a quotient can be moved. [I] 1; an R4000 takes 69.
    pub div_cycles: u32,
    /// Whether `set` goes through the store buffer (true) or stalls like a load. [I] true.
    pub set_posted: bool,
}

/// What a branch does whose condition is computed one cycle too late for the decode stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Branch {
    /// Static prediction.
    Predict,
    /// Wait a cycle.
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

/// DMA and MAC assists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Assist {
    /// Cycles from one scratchpad access of an assist to its next. [P] section 4: an access takes 2.
    pub gap_cycles: u32,
    /// DMAs that one assist has under way. [I] 32.
    pub dma_outstanding: u32,
    /// From a DMA's request to its data or acknowledgement. [I] 1000; the paper does not model it.
    pub dma_latency_ns: u64,
    /// Buffer of a MAC assist. [P] section 2.3: two maximum-sized frames.
    pub mac_buffer_bytes: u32,
}

impl Default for Assist {
    fn default() -> Self {
        Self { gap_cycles: 2, dma_outstanding: 32, dma_latency_ns: 1000, mac_buffer_bytes: 3036 }
    }
}

/// GDDR SDRAM: 64 bits wide, two transfers a cycle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sdram {
    /// Clock. [P] section 4: 500 MHz.
    pub mhz: Freq,
    /// Bytes a cycle. [P] section 4: 64 bits, twice.
    pub bytes_per_cycle: u32,
    /// Cycles that every burst costs. [I] 4: command and bus turnaround.
    pub burst_overhead_cycles: u32,
    /// Cycles to open a row in a bank that the last burst did not use. [I] 12.
    pub row_miss_cycles: u32,
    /// Cycles to open another row in the bank just used. [P] section 6.2: up to 27.
    pub bank_conflict_cycles: u32,
    /// Banks. [I] 4, as in a MT44H8M32.
    pub banks: u32,
    /// Bytes of a row over both devices. [I] 4096.
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

/// The host's bus: a clock only, bandwidth and arbitration are not modelled ([P] section 5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pci {
    /// Clock. [I] 400/3: PCI-X 133.
    pub mhz: Freq,
}

impl Default for Pci {
    fn default() -> Self {
        Self { mhz: Freq::new(400_000_000, 3).unwrap_or(Freq::mhz(133)) }
    }
}

/// The link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mac {
    /// Clock of the MAC assists. [I] 156.25: 64 bits at 10 Gb/s (IEEE 802.3, clause 46).
    pub mhz: Freq,
    /// Link rate, each direction. [P] 10.
    pub link_gbps: u64,
    /// Preamble and start delimiter. [P] section 5; IEEE 802.3: 8.
    pub preamble_bytes: u32,
    /// Inter-frame gap. [P] section 5; IEEE 802.3: 12.
    pub gap_bytes: u32,
}

impl Default for Mac {
    fn default() -> Self {
        let mhz = Freq::new(156_250_000, 1).unwrap_or(Freq::mhz(156));
        Self { mhz, link_gbps: 10, preamble_bytes: 8, gap_bytes: 12 }
    }
}

/// Host and driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Host {
    /// Send buffer descriptors, a power of two. [I] 512, as the Tigon-II's standard ring.
    pub send_ring: u32,
    /// Receive buffer descriptors, a power of two, at most 512. [I] 512.
    pub recv_ring: u32,
    /// Return descriptors of each return ring, a power of two. [I] 1024.
    pub return_ring: u32,
    /// Return rings, 1 to 8: receive queues of the host. [P] one.
    pub queues: u32,
}

impl Default for Host {
    fn default() -> Self {
        Self { send_ring: 512, recv_ring: 512, return_ring: 1024, queues: 1 }
    }
}

/// What the firmware is told when it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Firmware {
    /// Work units in an event, 1 to 32. [P] Figure 5 shows 5; [I] 4.
    pub bundle: u32,
    /// Sent frames after which the host is told at the latest. [I] 8.
    pub send_coalesce: u32,
    /// Microseconds between two interrupts at least. [I] 50.
    pub interrupt_us: u32,
    /// Steering in firmware: bit 0 RSS, bit 1 Flow Director. [P] none.
    pub steer: u32,
    /// Exact-match filters installed. [P] none.
    pub filters: u32,
}

impl Default for Firmware {
    fn default() -> Self {
        Self { bundle: 4, send_coalesce: 8, interrupt_us: 50, steer: 0, filters: 0 }
    }
}

/// The traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Load {
    /// UDP payload bytes of the frames, in turn. [P] section 6.1: 1472. `[18, 18, 18, 18, 18, 18,
    /// 18, 548, 548, 548, 548, 1472]` is the simple IMIX.
    pub udp_bytes: Vec<u32>,
    /// Whether the host sends.
    pub send: bool,
    /// Whether the network sends.
    pub receive: bool,
    /// Share of line rate that arrives.
    pub receive_share: f64,
    /// UDP flows, in turn.
    pub flows: u32,
    /// VLAN tag of all frames, 0 for none: the adapter inserts it on sending and strips it on
    /// receiving.
    pub vlan: u32,
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
        }
    }
}

/// How long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Run {
    /// Time before anything is measured. [I] 300 us.
    pub warmup_us: u64,
    /// Time that is measured. [I] 5 ms.
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
    /// A value is out of its range; names key, value and range.
    #[error("{key} = {value}: {wanted}")]
    Value {
        /// `section.key`.
        key: &'static str,
        /// What it is.
        value: String,
        /// What it may be.
        wanted: &'static str,
    },
    /// TOML that cannot be read.
    #[error("{0}")]
    Toml(String),
    /// A setting that is not `section.key=value`.
    #[error("'{0}' is not section.key=value, such as chip.cores=8")]
    Setting(String),
    /// The clocks have no common unit.
    #[error(transparent)]
    Clock(#[from] crate::time::FreqError),
}

impl Config {
    /// Reads TOML.
    ///
    /// # Errors
    /// When it is no TOML, has an unknown key, or a value is out of range.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text)
            .map_err(|error| ConfigError::Toml(error.to_string().trim().to_owned()))?;
        config.check()?;
        Ok(config)
    }

    /// Sets one key from `section.key=value`, where the value is TOML or bare text. The whole is
    /// not checked yet: keys may depend on each other.
    ///
    /// # Errors
    /// When there is no such key or the value is of another kind.
    pub fn set(&mut self, setting: &str) -> Result<(), ConfigError> {
        let wrong = || ConfigError::Setting(setting.to_owned());
        let (path, value) = setting.split_once('=').ok_or_else(wrong)?;
        let (section, key) = path.trim().split_once('.').ok_or_else(wrong)?;
        let toml_error = |error: &dyn std::fmt::Display| {
            ConfigError::Toml(format!("{path}: {}", error.to_string().trim()))
        };
        let parse = |text: &str| text.parse::<toml::Table>();
        let one = parse(&format!("v = {value}"))
            .or_else(|_| parse(&format!("v = {:?}", value.trim())))
            .map_err(|error| toml_error(&error))?;
        let mut all = toml::Table::try_from(&*self).map_err(|error| toml_error(&error))?;
        let table = all.get_mut(section).and_then(toml::Value::as_table_mut).ok_or_else(wrong)?;
        if !table.contains_key(key) {
            return Err(wrong());
        }
        let value = one.get("v").cloned().ok_or_else(wrong)?;
        table.insert(key.to_owned(), value);
        *self = all.try_into().map_err(|error| toml_error(&error))?;
        Ok(())
    }

    /// Whether every value is in its range.
    ///
    /// # Errors
    /// [`ConfigError`] names the first that is not.
    pub fn check(&self) -> Result<(), ConfigError> {
        let c = &self.chip;
        range("chip.cores", c.cores, 1, 16, "from 1 to 16")?;
        power("chip.banks", c.banks, 1, 32, "a power of two from 1 to 32")?;
        power("chip.interleave_bytes", c.interleave_bytes, 4, 65536, "a power of two from 4 on")?;
        power("chip.scratchpad_kb", c.scratchpad_kb, 16, 1024, "a power of two from 16 to 1024")?;
        let line = "a power of two from 16 to 128";
        power("chip.icache_line_bytes", c.icache_line_bytes, 16, 128, line)?;
        range("chip.icache_ways", c.icache_ways, 1, 2, "1 or 2")?;
        let room = "a power of two from 1024 to 131072";
        power("chip.icache_bytes", c.icache_bytes, 1024, 131_072, room)?;
        let beat = "a power of two from 4 to 128";
        power("chip.imem_bytes_per_cycle", c.imem_bytes_per_cycle, 4, 128, beat)?;
        range("chip.imem_overhead_cycles", c.imem_overhead_cycles, 0, 100, "from 0 to 100")?;
        range("chip.mult_cycles", c.mult_cycles, 1, 100, "from 1 to 100")?;
        range("chip.div_cycles", c.div_cycles, 1, 100, "from 1 to 100")?;
        let a = &self.assist;
        range("assist.gap_cycles", a.gap_cycles, 1, 100, "from 1 to 100")?;
        range("assist.dma_outstanding", a.dma_outstanding, 1, 256, "from 1 to 256")?;
        let ns = a.dma_latency_ns.min(u32::MAX.into()) as u32;
        range("assist.dma_latency_ns", ns, 0, 1_000_000, "at most 1000000")?;
        range(
            "assist.mac_buffer_bytes",
            a.mac_buffer_bytes,
            1522,
            1 << 20,
            "from 1522 to 1048576",
        )?;
        let s = &self.sdram;
        power("sdram.bytes_per_cycle", s.bytes_per_cycle, 8, 256, "a power of two from 8 to 256")?;
        power("sdram.banks", s.banks, 1, 16, "a power of two from 1 to 16")?;
        power("sdram.row_bytes", s.row_bytes, 512, 65536, "a power of two from 512 to 65536")?;
        for (key, value) in [
            ("sdram.burst_overhead_cycles", s.burst_overhead_cycles),
            ("sdram.row_miss_cycles", s.row_miss_cycles),
            ("sdram.bank_conflict_cycles", s.bank_conflict_cycles),
        ] {
            range(key, value, 0, 1000, "at most 1000")?;
        }
        let gbps = self.mac.link_gbps.min(u32::MAX.into()) as u32;
        range("mac.link_gbps", gbps, 1, 400, "from 1 to 400")?;
        range("mac.preamble_bytes", self.mac.preamble_bytes, 0, 64, "at most 64")?;
        range("mac.gap_bytes", self.mac.gap_bytes, 0, 1 << 20, "at most 1048576")?;
        let h = &self.host;
        power("host.send_ring", h.send_ring, 32, 512, "a power of two from 32 to 512")?;
        power("host.recv_ring", h.recv_ring, 32, 512, "a power of two from 32 to 512")?;
        power("host.return_ring", h.return_ring, 512, 4096, "a power of two from 512 to 4096")?;
        range("host.queues", h.queues, 1, 8, "from 1 to 8")?;
        let f = &self.firmware;
        range("firmware.bundle", f.bundle, 1, 32, "from 1 to 32")?;
        range("firmware.send_coalesce", f.send_coalesce, 1, 64, "from 1 to 64")?;
        range("firmware.interrupt_us", f.interrupt_us, 0, 100_000, "at most 100000")?;
        range("firmware.steer", f.steer, 0, 3, "0, 1 (RSS), 2 (Flow Director) or 3 (both)")?;
        range("firmware.filters", f.filters, 0, 4096, "at most 4096")?;
        self.check_load()
    }

    fn check_load(&self) -> Result<(), ConfigError> {
        let l = &self.load;
        let none = || ConfigError::Value {
            key: "load.udp_bytes",
            value: "[]".into(),
            wanted: "at least one size",
        };
        l.udp_bytes.first().ok_or_else(none)?;
        for &size in &l.udp_bytes {
            range("load.udp_bytes", size, 18, 1472, "from 18 to 1472")?;
        }
        range("load.vlan", l.vlan, 0, 65535, "at most 65535")?;
        range("load.flows", l.flows, 1, 65536, "from 1 to 65536")?;
        if !(l.receive_share > 0.0 && l.receive_share <= 1.0) {
            let value = l.receive_share.to_string();
            let wanted = "above 0 and at most 1";
            return Err(ConfigError::Value { key: "load.receive_share", value, wanted });
        }
        let us = self.run.measure_us.min(u32::MAX.into()) as u32;
        range("run.measure_us", us, 1, 10_000_000, "from 1 to 10000000")?;
        let us = self.run.warmup_us.min(u32::MAX.into()) as u32;
        range("run.warmup_us", us, 1, 10_000_000, "from 1 to 10000000")?;
        self.base()?;
        Ok(())
    }

    /// A byte on the link, as a rate.
    pub fn byte_rate(&self) -> Freq {
        Freq::mhz(self.mac.link_gbps * 125)
    }

    /// The common time unit.
    ///
    /// # Errors
    /// When the clocks have none.
    pub fn base(&self) -> Result<crate::time::Base, crate::time::FreqError> {
        let rates = [self.chip.mhz, self.pci.mhz, self.mac.mhz, self.sdram.mhz, self.byte_rate()];
        crate::time::Base::of(&rates)
    }
}

fn range(
    key: &'static str,
    value: u32,
    from: u32,
    to: u32,
    wanted: &'static str,
) -> Result<(), ConfigError> {
    if (from..=to).contains(&value) {
        return Ok(());
    }
    Err(ConfigError::Value { key, value: value.to_string(), wanted })
}

fn power(
    key: &'static str,
    value: u32,
    from: u32,
    to: u32,
    wanted: &'static str,
) -> Result<(), ConfigError> {
    if value.is_power_of_two() {
        return range(key, value, from, to, wanted);
    }
    Err(ConfigError::Value { key, value: value.to_string(), wanted })
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
