//! `[offload]`: which flows are answered in front of the ports, and where.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowyard_frame::{Batch, FlowKey};
use flowyard_front::adapters::Users;
use flowyard_front::{Kernel, OfPort, Settings};
use flowyard_pool::Pool;
use flowyard_ports::port::live::{LiveKind, LivePort};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use flowyard_yard::{Blueprint, Rx};

use super::{Config, ConfigError, PortConfig, PortKind, WorkKind, rule};

/// `[offload]`
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct OffloadConfig {
    /// Whether XDP answers, on the interfaces of `af_xdp` ports.
    pub xdp: bool,
    /// Whether adapters get rules, on `dpdk` ports: for the entries of `[steer]`, the flows of a switch, the connections of
    /// a balancer, and flows that are split over cores.
    pub rules: bool,
    /// The most flows that XDP answers, or that all adapters together mark. For XDP, a connection is one flow; for adapters,
    /// each direction of a connection is one, and an elephant is one on each port.
    pub flows: Spanned<u32>,
}

impl Default for OffloadConfig {
    fn default() -> Self {
        Self { xdp: false, rules: false, flows: Spanned::new(0..0, 65_536) }
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

impl Config {
    /// The most flows of works in the adapters; `None` if they get no rules.
    pub(crate) fn adapter_flows(&self) -> Option<u32> {
        let offload = self.offload.as_ref()?.get_ref();
        offload.rules.then_some(*offload.flows.get_ref())
    }

    /// The user's entries, as they are offered to adapters; `None` if these get no rules.
    ///
    /// # Errors
    /// The first entry that is wrong.
    pub(crate) fn offered(&self) -> Result<Option<Users>, ConfigError> {
        if self.adapter_flows().is_none() {
            return Ok(None);
        }
        Ok(Some(Users { exact: rule::exact(self)?, rules: rule::rules(self)? }))
    }
}

/// The core that alone serves queue `queue`.
pub(crate) fn core_of(blueprint: &Blueprint, queue: u16) -> Option<u16> {
    match &blueprint.queues.get(usize::from(queue))?.consumers[..] {
        [core] => Some(*core),
        _ => None,
    }
}

/// Discards what a port received before the rules of its adapter were made: later frames of these flows may come by
/// another queue, and must not overtake.
pub(crate) fn discard(rx: &mut dyn Rx, pool: &mut Pool, most: usize) {
    let mut seen = 0;
    while seen <= most {
        let mut batch = Batch::default();
        rx.rx(&mut batch, pool, 0);
        if batch.is_empty() {
            return;
        }
        seen += batch.len();
        batch.drain().for_each(|frame| pool.put(frame));
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
    if offload.rules {
        return check_rules(config, section.span(), offload);
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
    let joins = |port: &PortConfig| port.is_multi_buffer().then(|| port.multi_buffer.clone())?;
    if let Some(word) = config.ports().find_map(joins) {
        let what = "XDP answers only frames that are in one buffer";
        return Err(config.error(word.span(), what, "remove multi_buffer = true, or [offload]"));
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

/// Checks `rules = true`.
fn check_rules(
    config: &Config,
    span: std::ops::Range<usize>,
    offload: &OffloadConfig,
) -> Result<(), ConfigError> {
    if offload.xdp {
        let what = "XDP and rules in adapters cannot be used together";
        return Err(config.error(span, what, "remove xdp = true, or rules = true"));
    }
    if !config.yard.settle {
        let what = "without 'settle', frames that a mark sends elsewhere would overtake others";
        return Err(config.error(span, what, "remove settle = false, or [offload]"));
    }
    let mut kinds = config.ports().map(|port| port.kind);
    // Ports in memory are for tests, which give them an adapter.
    if !kinds.any(|kind| matches!(kind, PortKind::Dpdk | PortKind::Mem)) {
        let what = "no port is of kind \"dpdk\", so there is no adapter that takes rules";
        return Err(config.error(span, what, "remove rules = true, or add such a port"));
    }
    Ok(())
}
