//! Answers and metrics of an IPsec gateway.

use flowyard_ipsec::IpsecHub;
use flowyard_yard::Handle;

use crate::protocol::{SaState, Sas};

/// The answer if the engine does not run IPsec.
const NO_IPSEC: &str = "the running configuration has no security associations; write kind = \"ipsec\" in [work] (see docs/ipsec.md)";

/// The security associations, without keys.
///
/// # Errors
/// The engine does not run IPsec.
pub fn sas(yard: &Handle) -> Result<Sas, String> {
    let hub = yard.control_plane::<IpsecHub>().ok_or(NO_IPSEC)?;
    let named = |values: Vec<(&'static str, u64)>| {
        values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    };
    let limit = |limit: u64| Some(limit).filter(|limit| *limit != u64::MAX);
    let sa = |(number, sa): (usize, &flowyard_ipsec::Sa)| {
        let (config, is_in) = (&sa.config, hub.is_inbound(number));
        SaState {
            direction: if is_in { "in" } else { "out" }.to_owned(),
            src: config.src.to_string(),
            dst: config.dst.to_string(),
            spi: config.spi,
            reqid: config.reqid,
            mode: config.mode.name().to_owned(),
            suite: config.suite.name().to_owned(),
            is_udp: config.encap.is_some(),
            is_extended: config.is_extended,
            number: if is_in { sa.window.top() } else { sa.sent() },
            window: config.window,
            is_usable: sa.is_usable(),
            hard_packets: limit(config.limits.hard_packets),
            hard_bytes: limit(config.limits.hard_bytes),
            counters: named(sa.counts.read().values()),
        }
    };
    Ok(Sas {
        sas: hub.sas().iter().enumerate().map(sa).collect(),
        counters: named(hub.totals.values()),
    })
}
