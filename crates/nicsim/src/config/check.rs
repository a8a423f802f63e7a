//! The accepted range of every key.

use super::{Config, ConfigError, MAX_RUN_US};

impl Config {
    /// Whether every value is in its range.
    ///
    /// # Errors
    /// [`ConfigError`] names the first key whose value is not.
    pub fn check(&self) -> Result<(), ConfigError> {
        let c = &self.chip;
        range("chip.cores", c.cores, 1, 16, "from 1 to 16")?;
        power("chip.banks", c.banks, 1, 32, "a power of two from 1 to 32")?;
        power("chip.interleave_bytes", c.interleave_bytes, 4, 65536, "a power of two from 4 on")?;
        power("chip.scratchpad_kb", c.scratchpad_kb, 16, 1024, "a power of two from 16 to 1024")?;
        let line = "a power of two from 16 to 128";
        power("chip.icache_line_bytes", c.icache_line_bytes, 16, 128, line)?;
        range("chip.icache_ways", c.icache_ways, 1, 2, "1 or 2")?;
        let size = "a power of two from 1024 to 131072";
        power("chip.icache_bytes", c.icache_bytes, 1024, 131_072, size)?;
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
        let most = if h.queues == 1 { u32::MAX } else { 0 };
        let wanted = "0 when there are several return rings";
        range("host.short_buffer_every", h.short_buffer_every, 0, most, wanted)?;
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
        range("run.measure_us", us, 1, MAX_RUN_US as u32, "from 1 to 10000000")?;
        let us = self.run.warmup_us.min(u32::MAX.into()) as u32;
        range("run.warmup_us", us, 1, MAX_RUN_US as u32, "from 1 to 10000000")?;
        self.base()?;
        Ok(())
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
