//! Opens the sockets of a port, or goes on with those of another process.

use std::sync::{Arc, Mutex};

use super::super::calls::System;
use super::super::device::{Place, Shared};
use super::super::inherit::Inherited;
use super::super::plan::XdpPort;
use super::Xdp;
use super::assembly::Assembly;
use super::common::Common;
use super::ledger::Ledger;
use crate::af_xdp::Rules;
use crate::live::{Counts, OpenError};

pub(in crate::port::live) fn open<S: System>(
    place: &Place<'_, S>,
    port: &XdpPort,
    inherited: Option<Inherited>,
) -> Result<Vec<Shared>, OpenError> {
    let interface = place.system.find(&place.port.interface)?;
    let Some(umem) = place.pool.umem() else {
        let what = "the pool's buffers cannot be lent to the kernel".into();
        return Err(OpenError { what, fix: "remove 'buffer_bytes'".into() });
    };
    let (system, port) = (place.system.clone(), port.clone());
    // With other rules, some frames that the interface counts are for the kernel, or are answered in front.
    let takes_all = port.rules == Rules::All && port.ahead.is_none();
    let counter = takes_all.then_some((|counts| counts.received) as fn(&Counts) -> u64);
    let inherited = match inherited {
        Some(inherited) => inherited.sockets(&system, &umem)?,
        None => Vec::new(),
    };
    let mut inherited = inherited.into_iter();
    let common = Arc::new(Common { system, port, umem, program: Mutex::new(None) });
    let mut devices = Vec::new();
    for at in 0..place.port.cores {
        let mut xdp = Xdp {
            common: Arc::clone(&common),
            number: place.port.number,
            queue: common.port.queues.get(at).copied().unwrap_or(at as u32),
            monitor: place.monitor(at, &interface, counter)?,
            bound: None,
            out: Ledger {
                bits: vec![0; place.pool.frames().div_ceil(64)].into(),
                filled: 0,
                sent: 0,
            },
            pool: place.pool.share(),
            assembly: Assembly::default(),
            lost: 0,
            count_at: 0,
            is_stopped: false,
            is_leaving: false,
            is_paused: false,
            openings: 0,
            handed: None,
        };
        match inherited.next() {
            Some(taken) => xdp.adopt(&interface, taken)?,
            None => xdp.bind(&interface, None)?,
        }
        devices.push(Arc::new(Mutex::new(xdp)) as Shared);
    }
    Ok(devices)
}
