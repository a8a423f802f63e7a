//! A port of DPDK: opened, asked, and removed with its device.
//!
//! Invariants: the queues of a port exist once. The device is removed when the port and its queues are dropped; its
//! memory lives longer.
//! Thread-safety: all functions may be called by any thread.
#![allow(unsafe_code, reason = "calls of C functions")]

use std::sync::{Arc, Mutex};

use crate::eal::{Eal, c_text, name_of};
use crate::error::text_of;
use crate::memory::{Buffers, External};
use crate::queue::Queue;
use crate::{Error, sys};

/// How a port is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The number of queues of each direction.
    pub queues: u16,
    /// The wanted number of descriptors of a receive queue; the driver may change it.
    pub rx_frames: u16,
    /// The wanted number of descriptors of a transmit queue.
    pub tx_frames: u16,
    /// The largest payload of a frame in bytes; 0: the driver's own, usually 1500.
    pub mtu: u16,
}

/// What a port can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Info {
    /// The driver, as `net_null`.
    pub driver: String,
    /// The bus, as `vdev` or `pci`.
    pub bus: String,
    /// The most queues of each direction.
    pub most_queues: u32,
    /// The most entries of the indirection table; 0: there is none.
    pub table_entries: u32,
    /// The length of the hash key in bytes; 0: unknown or none.
    pub key_bytes: u32,
    /// Whether frames can be distributed to queues by a hash of addresses and ports.
    pub hashes: bool,
    /// The smallest and the largest MTU.
    pub mtu: (u32, u32),
    /// Whether the driver reports that the device was removed.
    pub reports_removal: bool,
    /// The hardware address.
    pub mac: [u8; 6],
    /// The adapter's embedded switch, if the driver says that the port is one of a switch.
    pub domain: Option<u16>,
    rss_types: u64,
}

/// The state of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Whether it is up.
    pub is_up: bool,
    /// Its speed in million bits a second; 0 or 4294967295: unknown.
    pub mbps: u32,
}

/// Counters of a port since it was opened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Frames received and transmitted.
    pub frames: (u64, u64),
    /// Bytes received and transmitted.
    pub bytes: (u64, u64),
    /// Frames that the adapter dropped, because the receive queues were full.
    pub missed: u64,
    /// Frames received with an error, and frames that could not be transmitted.
    pub errors: (u64, u64),
    /// How often there was no buffer to receive into.
    pub no_buffer: u64,
}

/// How frames are distributed to queues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rss {
    /// The key of the Toeplitz hash.
    pub key: Vec<u8>,
    /// The queue of each entry of the indirection table.
    pub table: Vec<u16>,
}

/// An open port.
#[derive(Debug)]
pub struct Port {
    number: u16,
    device: String,
    info: Info,
    buffers: Buffers,
    mapping: Option<Mapping>,
    /// Held while a rule of the port is made or removed, and while the last queue closes the port.
    gate: Arc<Mutex<()>>,
}

/// A device without queues yet. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Found {
    number: u16,
    pub(crate) info: Info,
}

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: the port's number is valid, and nothing uses it any more.
        unsafe { sys::fy_port_remove(self.number) };
    }
}

/// External memory that the device of a port may address. When this is dropped, the port is stopped. The memory is unmapped
/// with the last port that it was mapped for, because devices can share one address space (a VFIO container).
#[derive(Debug)]
struct Mapping {
    number: u16,
    memory: Arc<External>,
}

impl Mapping {
    /// Lets the device of port `number`, which has not been started, address external memory, if it addresses memory itself.
    fn new(
        number: u16,
        (name, info): (&str, &Info),
        buffers: &Buffers,
    ) -> Result<Option<Self>, Error> {
        let Buffers::External(memory) = buffers else { return Ok(None) };
        if info.bus == "vdev" {
            return Ok(None);
        }
        let (base, bytes) = memory.range();
        // SAFETY: the memory is registered, and unmapped before it is freed.
        let map = || unsafe { sys::fy_port_dma(number, base.cast(), bytes) };
        let result = memory.mapped_ports().add(map);
        if result < 0 {
            let fix = "write memory = \"copy\" for this port";
            return Err(Error::code(
                &format!("mapping the yard's memory for '{name}'"),
                result,
                fix,
            ));
        }
        Ok(Some(Self { number, memory: Arc::clone(memory) }))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the port exists. It is stopped first, so that its device does not use the memory; so are those of all other
        // ports that are no longer users.
        unsafe { sys::fy_port_stop(self.number) };
        let (base, bytes) = self.memory.range();
        // SAFETY: the port exists, and no device uses the memory.
        self.memory
            .mapped_ports()
            .remove(|| unsafe { sys::fy_port_undma(self.number, base.cast(), bytes) });
    }
}

impl Info {
    /// What the port with this number can do.
    fn of(number: u16) -> Result<Self, Error> {
        // SAFETY: plain data, for which zeros are valid.
        let mut raw: sys::Info = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is as large as both sides assert.
        let result = unsafe { sys::fy_port_info(number, &raw mut raw) };
        if result < 0 {
            return Err(Error::code(
                "asking a DPDK port what it can do",
                result,
                "report this as a bug",
            ));
        }
        // SAFETY: a constant of DPDK.
        let usual = unsafe { sys::fy_rss_usual() };
        Ok(Self {
            driver: text_of(&raw.driver),
            bus: text_of(&raw.bus),
            most_queues: raw.max_rx_queues.min(raw.max_tx_queues),
            table_entries: raw.table_entries,
            key_bytes: raw.key_bytes,
            hashes: raw.rss_types & usual != 0,
            mtu: (raw.min_mtu, raw.max_mtu),
            reports_removal: raw.reports_removal != 0,
            mac: raw.mac,
            domain: (raw.domain != u16::MAX).then_some(raw.domain),
            rss_types: raw.rss_types & usual,
        })
    }
}

impl Port {
    /// Adds the device with these arguments, such as `net_null0,size=64` or `0000:03:00.0`, and opens its port.
    /// `choose` gets what the device can do, and returns the memory of the port.
    ///
    /// # Errors
    /// When there is no such device, it has too few queues, or `choose` or the driver refuses.
    pub fn open<E: From<Error>>(
        eal: Eal,
        device: &str,
        settings: &Settings,
        choose: impl FnOnce(&Info) -> Result<Buffers, E>,
    ) -> Result<Vec<Queue>, E> {
        let name = name_of(device).to_owned();
        eal.add(device)?;
        let text = c_text(&name)?;
        // SAFETY: the text ends with a zero.
        let number = unsafe { sys::fy_device_port(text.as_ptr()) };
        let Ok(number) = u16::try_from(number) else {
            let fix = "name a device with an ethernet port; its driver's name begins with 'net_'";
            return Err(Error::code(&format!("finding the port of '{name}'"), number, fix).into());
        };
        let mut found = Found { number, info: Info::of(number)? };
        if u32::from(settings.queues) > found.info.most_queues {
            let what = format!(
                "'{name}' ({}) has {} queues, and the port has {} cores",
                found.info.driver, found.info.most_queues, settings.queues
            );
            return Err(
                Error::new(what, "name fewer cores, or ask the driver for more queues").into()
            );
        }
        let buffers = choose(&found.info)?;
        let raw = sys::Settings {
            rss_types: found.info.rss_types,
            queues: settings.queues.into(),
            rx_frames: settings.rx_frames.into(),
            tx_frames: settings.tx_frames.into(),
            mtu: settings.mtu.into(),
        };
        // Before the port is started: its device reads and writes the memory from then on.
        let mapping = Mapping::new(number, (&name, &found.info), &buffers)?;
        // SAFETY: the pool of the buffers exists; it lives longer than the port.
        let result = unsafe { sys::fy_port_open(number, &raw, buffers.pool()) };
        if result < 0 {
            let fix =
                "check 'mtu', 'ring_frames' and the number of cores against the driver's guide";
            return Err(Error::code(&format!("opening the port '{name}'"), result, fix).into());
        }
        found.info = Info::of(number)?; // some drivers know more of an open port
        let info = found.info.clone();
        std::mem::forget(found);
        let gate = Arc::default();
        let port = Arc::new(Self { number, device: name, info, buffers, mapping, gate });
        Ok((0..settings.queues).map(|at| Queue::new(Arc::clone(&port), at)).collect())
    }

    pub(crate) const fn number(&self) -> u16 {
        self.number
    }

    pub(crate) const fn gate(&self) -> &Arc<Mutex<()>> {
        &self.gate
    }

    /// The name of its device.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// What the port can do.
    #[must_use]
    pub const fn info(&self) -> &Info {
        &self.info
    }

    /// The memory of the port.
    #[must_use]
    pub const fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// The largest payload of a frame in bytes.
    #[must_use]
    pub fn mtu(&self) -> usize {
        // SAFETY: the port is open.
        usize::try_from(unsafe { sys::fy_port_mtu(self.number) }).unwrap_or(1500)
    }

    /// The state of its link; `None` if the driver does not know.
    #[must_use]
    pub fn link(&self) -> Option<Link> {
        let mut raw = sys::Link::default();
        // SAFETY: the port is open.
        let result = unsafe { sys::fy_port_link(self.number, &raw mut raw) };
        (result == 0).then_some(Link { is_up: raw.is_up != 0, mbps: raw.mbps })
    }

    /// Its counters; `None` if the driver has none.
    #[must_use]
    pub fn stats(&self) -> Option<Stats> {
        let mut raw = sys::Stats::default();
        // SAFETY: the port is open.
        let result = unsafe { sys::fy_port_stats(self.number, &raw mut raw) };
        if result < 0 {
            return None;
        }
        Some(Stats {
            frames: (raw.rx_frames, raw.tx_frames),
            bytes: (raw.rx_bytes, raw.tx_bytes),
            missed: raw.rx_missed,
            errors: (raw.rx_errors, raw.tx_errors),
            no_buffer: raw.rx_no_buffer,
        })
    }

    /// Whether the device was removed from the machine. Then nothing can be received or transmitted any more.
    #[must_use]
    #[inline]
    pub fn is_removed(&self) -> bool {
        // SAFETY: the port is open.
        unsafe { sys::fy_port_is_removed(self.number) != 0 }
    }

    /// For tests: as if the driver had reported that the device was removed.
    #[doc(hidden)]
    pub fn pretend_removed(&self) {
        // SAFETY: the port is open.
        unsafe { sys::fy_port_pretend_removed(self.number) };
    }

    /// Sets the key and the indirection table, and reads both back.
    ///
    /// # Errors
    /// When the driver refuses one of them, or has another one afterwards.
    pub fn set_rss(&self, rss: &Rss) -> Result<(), Error> {
        let fix =
            "write rss = false for this port: then the driver distributes frames in its own way";
        let doing = |what: &str| format!("setting the {what} of '{}'", self.device);
        if !rss.key.is_empty() {
            let mut key = rss.key.clone();
            let (bytes, types) = (key.len() as u32, self.info.rss_types);
            // SAFETY: the key is as long as said.
            let result =
                unsafe { sys::fy_rss_set_key(self.number, key.as_mut_ptr(), bytes, types) };
            if result < 0 {
                return Err(Error::code(&doing("hash key"), result, fix));
            }
        }
        if !rss.table.is_empty() {
            let entries = rss.table.len() as u32;
            // SAFETY: the table is as long as said.
            let result = unsafe { sys::fy_rss_set_table(self.number, rss.table.as_ptr(), entries) };
            if result < 0 {
                return Err(Error::code(&doing("indirection table"), result, fix));
            }
        }
        let now = self.rss(rss.key.len(), rss.table.len())?;
        if now != *rss {
            let what = format!(
                "'{}' has another hash key or indirection table than it was given",
                self.device
            );
            return Err(Error::new(what, fix));
        }
        Ok(())
    }

    /// Reads the hash key, of `key` bytes, and the indirection table, of `entries` entries.
    ///
    /// # Errors
    /// When the driver cannot report them.
    pub fn rss(&self, key: usize, entries: usize) -> Result<Rss, Error> {
        let fix =
            "write rss = false for this port: then the driver distributes frames in its own way";
        let mut rss = Rss { key: vec![0; key], table: vec![0; entries] };
        if key > 0 {
            let mut types = 0;
            // SAFETY: there is room for as many bytes.
            let result = unsafe {
                sys::fy_rss_key(self.number, rss.key.as_mut_ptr(), key as u32, &raw mut types)
            };
            if result < 0 {
                return Err(Error::code(
                    &format!("reading the hash key of '{}'", self.device),
                    result,
                    fix,
                ));
            }
        }
        if entries > 0 {
            // SAFETY: there is room for as many entries.
            let result =
                unsafe { sys::fy_rss_table(self.number, rss.table.as_mut_ptr(), entries as u32) };
            if result < 0 {
                let doing = format!("reading the indirection table of '{}'", self.device);
                return Err(Error::code(&doing, result, fix));
            }
        }
        Ok(rss)
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        drop(self.mapping.take()); // it needs the device
        // SAFETY: the queues are gone, so nothing uses the port. It is stopped by the same call that removes it, so that
        // a peer cannot connect again between the two.
        unsafe { sys::fy_port_remove(self.number) };
    }
}
