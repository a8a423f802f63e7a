//! `[offload]`: which flows are answered in front of the ports, and where.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowyard_frame::FlowKey;
use flowyard_front::{Kernel, OfPort, Settings};
use flowyard_ports::port::live::{LiveKind, LivePort};
use serde::Deserialize;
use toml::Spanned;

use super::{Config, ConfigError, PortKind, WorkKind};

/// `[offload]`
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OffloadConfig {
    /// Whether XDP answers, on the interfaces of `af_xdp` ports.
    pub xdp: bool,
    /// The most flows that are answered there.
    pub flows: Spanned<u32>,
}

impl Default for OffloadConfig {
    fn default() -> Self {
        Self { xdp: false, flows: Spanned::new(0..0, 65_536) }
    }
}

/// The most ports that take part.
const PORTS: usize = 32;

impl Config {
    /// What XDP is to answer; `None` if it answers nothing.
    pub(crate) fn offload(&self) -> Option<Settings> {
        let offload = self.offload.as_ref()?.get_ref();
        if !offload.xdp {
            return None;
        }
        let mut queues = BTreeMap::new();
        for (number, port) in (0..).zip(self.ports()) {
            for (at, core) in port.owners().enumerate().filter(|_| port.kind == PortKind::AfXdp) {
                queues.insert((number, *core.get_ref()), port.queue_of(at));
            }
        }
        let (mask, changes) = match self.is_switch() {
            true => (flowyard_switch::MASK, 0),
            false => (FlowKey::FLOW, FlowKey::SYN | FlowKey::FIN | FlowKey::RST),
        };
        Some(Settings { flows: *offload.flows.get_ref(), mask, changes, queues })
    }
}

/// The port behind `front`, if it takes part.
pub(crate) fn behind(port: &LivePort, front: Option<&Arc<Kernel>>) -> LivePort {
    let mut port = port.clone();
    if let (LiveKind::AfXdp(xdp), Some(front)) = (&mut port.kind, front) {
        xdp.ahead = Some(Arc::new(OfPort::new(Arc::clone(front), port.number)));
    }
    port
}

/// Returns the first mistake.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let Some(section) = &config.offload else { return Ok(()) };
    let offload = section.get_ref();
    if !(1..=1 << 22).contains(offload.flows.get_ref()) {
        let what = format!("{} flows are not possible", offload.flows.get_ref());
        return Err(config.error(offload.flows.span(), what, "write 1 to 4194304"));
    }
    if !offload.xdp {
        return Ok(());
    }
    let kind = *config.work.get_ref().kind.get_ref();
    if !matches!(kind, WorkKind::Balance | WorkKind::Switch) {
        let (what, fix) = (
            "this work has no flows that XDP can answer",
            "remove [offload]; it is for the kinds balance and switch",
        );
        return Err(config.error(section.span(), what, fix));
    }
    if !config.yard.settle {
        let what = "without 'settle', the yard does not know which frames of a flow it has";
        return Err(config.error(section.span(), what, "remove settle = false, or [offload]"));
    }
    let mut ports = config.ports().enumerate().filter(|(_, port)| port.kind == PortKind::AfXdp);
    match ports.next() {
        None => {
            let what = "no port is of kind \"af_xdp\", so XDP has nothing to answer";
            let fix = "write kind = \"af_xdp\" for the ports of clients and backends, or remove [offload]";
            Err(config.error(section.span(), what, fix))
        }
        Some(_) if ports.any(|(at, _)| at >= PORTS) => {
            let what = format!("only the first {PORTS} ports can take part");
            Err(config.error(section.span(), what, "name the af_xdp ports first"))
        }
        Some(_) => Ok(()),
    }
}
