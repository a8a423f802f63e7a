//! The limits of a service: of its unestablished connections, and of the lengths of packets and segments.

use std::net::IpAddr;

use flowyard_lb::Mode;
use toml::Spanned;

use super::words::{BalanceConfig, ServiceConfig};
use crate::health::within;
use crate::names::Checked;
use crate::{Config, ConfigError};

/// The smallest MSS that Linux accepts (`TCP_MIN_MSS`).
const LEAST_MSS: u16 = 88;

/// The length of a packet that every link carries whole: RFC 791, section 3.2, and RFC 8200, section 5.
const fn least_mtu(v6: bool) -> u16 {
    if v6 { 1280 } else { 68 }
}

/// The `mss` and the `mtu` of a service with this VIP.
///
/// # Errors
/// The first that is too small. In a tunnel there must be room for a client's packet behind the header.
pub(super) fn lengths(
    config: &Config,
    service: &ServiceConfig,
    vip: IpAddr,
) -> Result<(Option<u16>, Option<u16>), ConfigError> {
    let at_least = |key: &str, given: &Option<Spanned<u16>>, least: u16| {
        let one = |given| within(config, key, Some(given), least..=u16::MAX, least);
        given.as_ref().map(one).transpose()
    };
    let mode = Mode::from(service.mode);
    let tunnel = |addr: &Spanned<String>| mode.overhead(addr.get_ref().contains(':')) as u16;
    let tunnels = service.backend.iter().map(|backend| tunnel(&backend.get_ref().addr));
    let room = tunnels.max().unwrap_or_default();
    let mss = at_least("mss", &service.mss, LEAST_MSS)?;
    Ok((mss, at_least("mtu", &service.mtu, least_mtu(vip.is_ipv6()) + room)?))
}

/// Checks the limits of unestablished connections.
pub(super) fn opening(config: &Config, balance: &BalanceConfig, all: usize) -> Checked {
    let connections = *balance.connections.get_ref();
    let opening = &balance.opening;
    if *opening.get_ref() > connections {
        let what = format!(
            "a core cannot have {} unestablished connections, because it stores {connections} connections",
            opening.get_ref()
        );
        let fix = "lower 'opening', or raise 'connections' in [balance]";
        return Err(config.error(opening.span(), what, fix));
    }
    let limit = |service: &ServiceConfig| match service.connections {
        0 => all,
        connections => all.min(connections),
    };
    let over = config.service.iter().map(Spanned::get_ref);
    let Some(service) = over.into_iter().find(|one| *one.opening.get_ref() > limit(one)) else {
        return Ok(());
    };
    let what = format!(
        "service '{}' cannot have {} unestablished connections on a core: the most are {}",
        service.name.get_ref(),
        service.opening.get_ref(),
        limit(service),
    );
    let fix =
        "lower 'opening' of the service, or raise its 'connections' or 'opening' in [balance]";
    Err(config.error(service.opening.span(), what, fix))
}
