//! Opening a DPDK port: its memory, its queues, its hash.

use std::sync::{Arc, Mutex};

use flowyard_dpdk::rules::{Device as RuleDevice, PortRules};
use flowyard_dpdk::{Buffers, Copying, Eal, Info, Port, Queue, Rss, Settings};
use flowyard_pool::Pool;
use flowyard_yard::port::Halves;

use super::device::{Device, DpdkRx, DpdkTx, Home};
use super::lending::Lending;
use super::{DpdkPort, Memory, Opened, SPARE_FRAMES, is_pci};
use crate::live::OpenError;
use crate::port::Log;

/// Virtual devices that receive into external memory and transmit from it. Those that are not listed find the bytes of a
/// frame by other means than its address: AF_XDP and virtio-user share memory with the kernel or another process.
/// virtio-user shares all memory of the process, and fails when some of it is external.
const LENDS: [&str; 7] =
    ["net_null", "net_ring", "net_pcap", "net_af_packet", "net_tap", "net_memif", "net_vhost"];

/// Bytes in front of a received frame.
const HEADROOM: usize = 128;
/// The longest frame that is copied, in bytes: as in the yard's buffers, and in those of AF_XDP, which takes a buffer
/// with its metadata only if both fit into a page.
const LONGEST: usize = 16_000;
const LONGEST_XDP: usize = 2048;
/// The buffers that the driver of AF_XDP puts into the kernel's rings, however many descriptors a queue has.
const FRAMES_XDP: usize = 4096;
/// Bytes of a frame besides its payload: the header, a tag, and the checksum that some drivers count.
const HEADER: usize = 22;

impl std::convert::From<flowyard_dpdk::Error> for OpenError {
    fn from(error: flowyard_dpdk::Error) -> Self {
        Self { what: error.what, fix: error.fix }
    }
}

/// Opens both halves of `port` for each of its cores.
///
/// # Errors
/// What failed, and how to fix it.
pub fn open(port: &DpdkPort, pool: &Pool, log: &Log) -> Result<Opened, OpenError> {
    let environment = &port.environment;
    let pci = environment.devices.iter().filter(|device| is_pci(device)).cloned();
    let eal = Eal::start(&environment.options, &pci.collect::<Vec<_>>())?;
    let settings = Settings {
        queues: port.cores as u16,
        rx_frames: port.frames,
        tx_frames: port.frames,
        mtu: port.mtu,
    };
    let mut lending = None;
    let mut own = pool.share();
    let choose = |info: &Info| {
        if let Err(reason) = lends(eal, port, info, pool) {
            if port.memory == Memory::Yard {
                let what = format!(
                    "'{}' ({}) cannot use the yard's memory: {reason}",
                    port.device, info.driver
                );
                return Err(OpenError::new(what, "write memory = \"auto\" or \"copy\""));
            }
            let is_xdp = info.driver == "net_af_xdp";
            let rings = (2 * usize::from(port.frames)).max(if is_xdp { FRAMES_XDP } else { 0 });
            let queues = port.cores * (rings + SPARE_FRAMES);
            let longest = if is_xdp { LONGEST_XDP } else { LONGEST };
            let longest = pool.longest().min(longest);
            return Ok(Buffers::Copying(Arc::new(Copying::new(eal, queues, longest)?)));
        }
        let memory = Lending::of(eal, pool)?;
        lending = Some(Arc::clone(&memory));
        memory.start(&mut own, port.cores, port.frames.into())?;
        Ok(Buffers::External(Arc::clone(&memory.memory)))
    };
    let opened = Port::open(eal, &port.device, &settings, choose)
        .and_then(|queues| prepare(port, &queues, pool).map(|hash| (queues, hash)));
    let (queues, hash) = opened.inspect_err(|_| {
        if let Some(lending) = &lending {
            lending.end(&mut own, port.cores);
        }
    })?;
    let Some(first) = queues.first().map(|queue| Arc::clone(queue.port())) else {
        return Ok(Opened { halves: Vec::new(), rules: None });
    };
    let memory = if lending.is_some() { "frames are not copied" } else { "frames are copied" };
    let (driver, version) = (&first.info().driver, flowyard_dpdk::version());
    log(&port.name, &format!("{driver} of {version}: {memory}, {hash}"));
    let home = Arc::new(Home::new(port, log));
    let halves = |queue: Queue| -> Halves {
        let device = Device::new(queue, lending.clone(), pool.share(), Arc::clone(&home));
        let device = Arc::new(Mutex::new(device));
        (Box::new(DpdkRx(Arc::clone(&device))) as _, Box::new(DpdkTx(device)) as _)
    };
    let rules = Some(Box::new(PortRules::new(&first)) as Box<dyn RuleDevice + Send>);
    drop(first); // the queues keep the port open
    Ok(Opened { halves: queues.into_iter().map(halves).collect(), rules })
}

/// Whether the device can use the yard's memory; if not, why.
fn lends(eal: Eal, port: &DpdkPort, info: &Info, pool: &Pool) -> Result<(), &'static str> {
    if port.memory == Memory::Copy {
        return Err("the configuration says that frames are copied");
    }
    if pool.umem().is_none() {
        return Err("the buffers are too long");
    }
    if info.bus != "vdev" {
        let why = "it needs physical addresses, because there is no IOMMU";
        return if eal.is_virtual() { Ok(()) } else { Err(why) };
    }
    if !LENDS.contains(&info.driver.as_str()) {
        return Err("this driver supports only memory of DPDK's own");
    }
    if port.device.contains("zero-copy=yes") {
        return Err("its zero-copy mode shares memory of DPDK's own");
    }
    if port.environment.devices.iter().any(|device| device.starts_with("net_virtio_user")) {
        return Err(
            "another port is a net_virtio_user, which does not work beside external memory",
        );
    }
    Ok(())
}

/// Checks that frames fit into buffers, and sets the hash and the indirection table of a port with several queues. The
/// words describe what distributes frames.
fn prepare(port: &DpdkPort, queues: &[Queue], pool: &Pool) -> Result<String, OpenError> {
    let Some(first) = queues.first() else { return Ok(String::new()) };
    let (dpdk, info) = (first.port(), first.port().info());
    let room = match dpdk.buffers() {
        Buffers::External(_) => pool.longest().saturating_sub(HEADROOM - 64), // the metadata counts as headroom
        Buffers::Copying(memory) => memory.longest(),
    };
    if room < dpdk.mtu() + HEADER {
        let what = format!(
            "buffers of {} bytes are too short for an MTU of {}",
            pool.longest(),
            dpdk.mtu()
        );
        return Err(OpenError::new(what, "raise 'buffer_bytes' in [yard], or reduce 'mtu'"));
    }
    if port.cores == 1 {
        return Ok("one queue".into());
    }
    let Some(key) = port.hash_key.as_ref().filter(|_| info.hashes) else {
        return Ok(format!("{} queues, distributed by the driver", port.cores));
    };
    let bytes = if info.key_bytes == 0 { 40 } else { info.key_bytes as usize };
    let key: Vec<u8> =
        key.iter().copied().cycle().take(if key.is_empty() { 0 } else { bytes }).collect();
    let table = (0..info.table_entries).map(|at| (at as usize % port.cores) as u16).collect();
    let rss = Rss { key, table };
    dpdk.set_rss(&rss)?;
    Ok(format!(
        "{} queues, distributed by a hash with a key of {} bytes and a table of {} entries",
        port.cores,
        rss.key.len(),
        rss.table.len()
    ))
}
