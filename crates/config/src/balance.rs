//! Resolves and checks `[balance]` and `[[service]]`.

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::str::FromStr;

use flowyard_flow::table::maglev::BadMaglev;
use flowyard_lb::quic;
use flowyard_lb::{
    Backend, BadWhat, Ceiling, Conns, Control, Exit, Mode, Persistence, Service, Timeouts,
};
use toml::Spanned;

use super::exit::ExitConfig;
use super::names::{Checked, port_name};
use super::{CheckKind, Config, ConfigError, WorkKind, cluster, hex, secret};
use flowyard_lb::{BalanceSettings, Place};

mod capacity;
mod limits;
mod sync;
mod words;

pub use capacity::{Capacity, LocalPorts, ServiceCapacity};
pub use sync::SyncConfig;
pub use words::{AnnounceConfig, BackendConfig, BalanceConfig, ServiceConfig};
use words::{DrainedConfig, FullConfig, PersistConfig, QuicConfig};

/// The longest persistence, in seconds: 31 days, as with IPVS.
pub(crate) const LONGEST_PERSISTENCE: u64 = 31 * 86_400;
/// The most networks that a service can store.
const MOST_NETWORKS: u64 = 1 << 20;

impl Config {
    /// The services of the balancer.
    ///
    /// # Errors
    /// The first setting that is wrong.
    pub fn services(&self) -> Result<Vec<Service>, ConfigError> {
        self.service.iter().map(|service| self.one_service(service.get_ref())).collect()
    }

    fn one_service(&self, service: &ServiceConfig) -> Result<Service, ConfigError> {
        let backends: Result<_, _> =
            service.backend.iter().map(|backend| self.backend(backend.get_ref())).collect();
        let quic: Result<_, _> = service.quic.iter().map(|quic| self.quic(quic)).collect();
        let vip = self.address(&service.vip)?;
        let (mss, mtu) = limits::lengths(self, service, vip)?;
        Ok(Service {
            name: service.name.get_ref().clone(),
            vip,
            proto: service.proto.into(),
            ports: service.port.get_ref().0.clone(),
            mode: service.mode.into(),
            choice: service.choice.into(),
            quic: quic?,
            mss,
            mtu,
            slow_start: service.slow_start_ms.saturating_mul(1_000_000),
            proxy: service.proxy.is_some(),
            toa: service.toa,
            answers: service.answer,
            one_packet: *service.one_packet.get_ref(),
            persist: service.persist.as_ref().map(|is| self.persistence(is)).transpose()?,
            connections: service.connections,
            opening: *service.opening.get_ref(),
            all_down: service.all_down.into(),
            on_down: service.on_down.into(),
            check: service.check.as_ref().map(|check| self.health_check(check)).transpose()?,
            backends: backends?,
        })
    }

    fn backend(&self, backend: &BackendConfig) -> Result<Backend, ConfigError> {
        let server_id = match &backend.server_id {
            None => Vec::new(),
            Some(text) => hex(text.get_ref()).ok_or_else(|| {
                let what = format!("'{}' is not a server ID", text.get_ref());
                self.error(text.span(), what, "write it in hexadecimal, as \"01ab\"")
            })?,
        };
        let addr = self.address(&backend.addr)?;
        Ok(Backend {
            name: backend.name.get_ref().clone(),
            addr,
            port: backend.port.map(NonZeroU16::get),
            weight: backend.weight,
            drain: backend.drain,
            backup: backend.backup,
            ceiling: self.ceiling(backend)?,
            exit: self.exit(&backend.exit, Some(addr))?,
            server_id,
        })
    }

    /// How connections of a service stay with backends.
    fn persistence(&self, is: &Spanned<PersistConfig>) -> Result<Persistence, ConfigError> {
        let PersistConfig { seconds, mask_ipv4, mask_ipv6, networks, drained } = is.get_ref();
        for (key, span, value, most) in [
            ("seconds", seconds.span(), *seconds.get_ref(), LONGEST_PERSISTENCE),
            ("mask_ipv4", mask_ipv4.span(), u64::from(*mask_ipv4.get_ref()), 32),
            ("mask_ipv6", mask_ipv6.span(), u64::from(*mask_ipv6.get_ref()), 128),
            ("networks", networks.span(), *networks.get_ref() as u64, MOST_NETWORKS),
        ] {
            if !(1..=most).contains(&value) {
                let what = format!("'{key}' {value} is out of range");
                return Err(self.error(span, what, format!("write 1 to {most}")));
            }
        }
        Ok(Persistence {
            timeout: *seconds.get_ref() * 1_000_000_000,
            mask_v4: *mask_ipv4.get_ref(),
            mask_v6: *mask_ipv6.get_ref(),
            networks: *networks.get_ref(),
            keeps_drained: *drained == DrainedConfig::Keep,
        })
    }

    /// The limit of connections of a backend.
    fn ceiling(&self, backend: &BackendConfig) -> Result<Option<Ceiling>, ConfigError> {
        let (most, resume) = (*backend.max_connections.get_ref(), &backend.resume_connections);
        let Some(resume) = resume else {
            return Ok((most > 0).then(|| Ceiling::new(most, None)));
        };
        let below = *resume.get_ref();
        let (what, fix) = match (most, below) {
            (0, _) => (
                "'resume_connections' has no effect, because the backend has no limit of connections".into(),
                "set 'max_connections', or leave out 'resume_connections'",
            ),
            (_, 0) => (
                "the backend could never have less than 0 connections, so it would get no new ones after its limit was reached once".into(),
                "write at least 1",
            ),
            (most, below) if below > most => (
                format!("'resume_connections' is {below}, which is more than 'max_connections' ({most})"),
                "lower 'resume_connections', or leave it out: the default is three quarters of 'max_connections'",
            ),
            _ => return Ok(Some(Ceiling::new(most, Some(below)))),
        };
        Err(self.error(resume.span(), what, fix))
    }

    fn quic(&self, quic: &Spanned<QuicConfig>) -> Result<quic::Config, ConfigError> {
        let QuicConfig { codepoint, server_id_bytes, nonce_bytes, key } = quic.get_ref();
        let key = match key {
            None => None,
            Some(text) => Some(hex(text).and_then(|key| key.try_into().ok()).ok_or_else(|| {
                let fix = "write 16 bytes in hexadecimal";
                self.error(quic.span(), "this is not an AES key", fix)
            })?),
        };
        let config = quic::Config::new(*codepoint, *server_id_bytes, *nonce_bytes, key);
        config.map_err(|error| self.split(quic.span(), &error.to_string()))
    }

    /// The port and next hop of an exit; the next hop is `addr` if none is written, and unknown without `addr`.
    fn exit(&self, exit: &ExitConfig, addr: Option<IpAddr>) -> Result<Exit, ConfigError> {
        port_name(self, exit.port.get_ref(), exit.port.span())?;
        let port = self.port_number(exit.port.get_ref()).unwrap_or_default();
        let src = self.port_macs()?.get(usize::from(port)).copied().unwrap_or_default();
        let written = exit.next_hop.as_ref().map(|text| (text, text.get_ref().parse::<IpAddr>()));
        let (via, at) = match (written, addr) {
            (Some((text, Err(_))), _) => {
                return Ok(Exit { port, src, dst: self.mac(text)?, via: None });
            }
            (Some((text, Ok(via))), _) => (via, text.span()),
            (None, Some(addr)) => (addr, exit.port.span()),
            // Clients: the MAC address from which their packets came.
            (None, None) => return Ok(Exit { port, src, dst: [0; 6], via: None }),
        };
        let mine = self.balance().address.remove(exit.port.get_ref()).unwrap_or_default();
        let same = |mine: &Spanned<String>| mine.get_ref().contains(':') == via.is_ipv6();
        if mine.is_empty() || via.is_ipv4() && !mine.iter().any(same) {
            let name = exit.port.get_ref();
            let what =
                format!("port '{name}' has no address to request the MAC address of {via} from");
            let fix = "write the MAC address as 'next_hop', or add an address of the port to 'address' in [balance]";
            return Err(self.error(at, what, fix));
        }
        Ok(Exit { port, src, dst: [0; 6], via: Some(via) })
    }

    /// The addresses of the balancer at each port.
    fn places(&self, balance: &BalanceConfig) -> Result<Vec<Place>, ConfigError> {
        let place = |mac| Place { mac, ..Place::default() };
        let mut places: Vec<Place> = self.port_macs()?.into_iter().map(place).collect();
        let at = self.balance.as_ref().map_or(0..0, Spanned::span);
        for (port, addrs) in &balance.address {
            port_name(self, port, addrs.first().map_or(at.clone(), Spanned::span))?;
            let place = &mut places[usize::from(self.port_number(port).unwrap_or_default())];
            place.addrs = addrs.iter().map(|text| self.address(text)).collect::<Result<_, _>>()?;
            place.answers = balance.answer.is_none() && !addrs.is_empty();
        }
        for port in balance.answer.iter().flatten() {
            port_name(self, port.get_ref(), port.span())?;
            let number = self.port_number(port.get_ref()).unwrap_or_default();
            places[usize::from(number)].answers = true;
        }
        Ok(places)
    }

    fn address(&self, text: &Spanned<String>) -> Result<IpAddr, ConfigError> {
        IpAddr::from_str(text.get_ref()).map_err(|_| {
            let what = format!("'{}' is not an IP address", text.get_ref());
            self.error(text.span(), what, "write it as 192.0.2.1 or 2001:db8::1")
        })
    }

    /// An error of another crate: the problem, and after "; " the fix.
    fn split(&self, span: std::ops::Range<usize>, text: &str) -> ConfigError {
        let (what, fix) = text.rsplit_once("; ").unwrap_or((text, "see docs/balance.md"));
        self.error(span, what, fix)
    }

    /// The largest number of health checks that begin in one second; 0 is no limit.
    #[must_use]
    pub fn checks_per_second(&self) -> u32 {
        self.balance().checks_per_second
    }

    /// The user that commands of health checks run as, if one is written.
    #[must_use]
    pub fn command_user(&self) -> Option<&Spanned<String>> {
        self.balance.as_ref()?.get_ref().command_user.as_ref()
    }

    /// How VIPs are announced; `None` if they are not.
    #[must_use]
    pub fn announce(&self) -> Option<&Spanned<AnnounceConfig>> {
        self.balance.as_ref()?.get_ref().announce.as_ref()
    }

    /// Whether a health check runs a command.
    #[must_use]
    pub fn runs_commands(&self) -> bool {
        let checks = self.service.iter().filter_map(|service| service.get_ref().check.as_ref());
        checks.into_iter().any(|check| check.get_ref().kind == CheckKind::Command)
    }

    pub(crate) fn balance(&self) -> BalanceConfig {
        self.balance.as_ref().map(|balance| balance.get_ref().clone()).unwrap_or_default()
    }

    /// Checks the services, without building their tables.
    ///
    /// # Errors
    /// The first service that is wrong.
    pub(crate) fn check_services(&self) -> Result<(), ConfigError> {
        let balance = self.balance();
        let seed = self.balancer_seed();
        Control::check(&self.services()?, *balance.entries.get_ref(), seed).map_err(|error| {
            let service =
                self.service.iter().rfind(|s| *s.get_ref().name.get_ref() == error.service);
            let backend =
                service.zip(error.backend).and_then(|(s, at)| s.get_ref().backend.get(at));
            let (backend, service) = (backend.map(Spanned::get_ref), service.map(Spanned::get_ref));
            let span = match (&error.what, backend, service) {
                (BadWhat::Maglev(BadMaglev::Entries { .. }), ..) => {
                    return self.split(balance.entries.span(), &error.what.to_string());
                }
                (BadWhat::Family(_) | BadWhat::Returns(..), Some(backend), _) => {
                    backend.addr.span()
                }
                (_, Some(backend), _) => backend.name.span(),
                (BadWhat::OnePacket(_), _, Some(service)) => service.one_packet.span(),
                (BadWhat::Ports | BadWhat::Overlap(_), None, Some(service)) => service.port.span(),
                (_, None, Some(service)) => service.name.span(),
                (_, None, None) => 0..0,
            };
            self.split(span, &error.to_string())
        })
    }

    /// The other settings of the balancer.
    ///
    /// # Errors
    /// The first setting that is wrong.
    pub(crate) fn balance_settings(&self) -> Result<BalanceSettings, ConfigError> {
        let balance = self.balance();
        let connections = *balance.connections.get_ref();
        let ms = |ms: u64| ms.saturating_mul(1_000_000);
        let clients = balance.clients.as_ref().map(|exit| self.exit(exit.get_ref(), None));
        let clients = clients.transpose()?;
        let returns = balance.clients.as_ref().is_some_and(|c| c.get_ref().next_hop.is_none());
        let local: Result<_, _> = balance.local.iter().map(|text| self.address(text)).collect();
        let mut pass = vec![None; self.port.len()];
        for (from, to) in &balance.pass {
            let at = self.balance.as_ref().map_or(0..0, Spanned::span);
            port_name(self, from, at)?;
            port_name(self, to.get_ref(), to.span())?;
            let from = self.port_number(from).unwrap_or_default();
            pass[usize::from(from)] = self.port_number(to.get_ref());
        }
        Ok(BalanceSettings {
            connections,
            full_drops: balance.full == FullConfig::Drop,
            opening_most: match *balance.opening.get_ref() {
                0 => connections.div_ceil(2),
                opening => opening,
            },
            timeouts: Timeouts {
                opening: ms(balance.opening_ms),
                open: ms(balance.open_ms),
                closing: ms(balance.closing_ms),
                datagrams: ms(balance.datagrams_ms),
            },
            clients: clients.unwrap_or_default(),
            returns,
            local: local?,
            pass,
            places: self.places(&balance)?,
            neighbour_fresh: ms(balance.neighbour_ms),
            replicated: balance
                .sync
                .as_ref()
                .map_or(0, |sync| *sync.get_ref().connections.get_ref()),
            secret: self.secret(),
        })
    }
}

/// The tables of the kernel that are not free: `unspec`, `compat`, `default`, `main` and `local`.
const TAKEN: [u32; 5] = [0, 252, 253, 254, 255];
/// The length of a name of an interface, with its final zero (`IFNAMSIZ`).
const NAME_BYTES: usize = 16;

fn check_announce(config: &Config, announce: &AnnounceConfig) -> Checked {
    let table = &announce.table;
    if TAKEN.contains(table.get_ref()) {
        let what = format!("table {} belongs to the kernel", table.get_ref());
        return Err(config.error(
            table.span(),
            what,
            "write a number that no other program uses, such as 7925",
        ));
    }
    let name = announce.interface.get_ref();
    if name.is_empty() || name.len() >= NAME_BYTES || name.contains(['%', '/', ' ', '\0']) {
        let what = format!("'{name}' cannot be the name of an interface");
        let fix = "write 1 to 15 bytes without spaces, '/' and '%', such as \"flowyard-vips\"";
        return Err(config.error(announce.interface.span(), what, fix));
    }
    Ok(())
}

/// Returns the first mistake.
pub(crate) fn check(config: &Config) -> Checked {
    let balances = *config.work.get_ref().kind.get_ref() == WorkKind::Balance;
    if !balances {
        let section = config.balance.as_ref().map(|b| ("[balance]", b.span()));
        let section = section.or(config.cluster.as_ref().map(|c| ("[cluster]", c.span())));
        let first = config.service.first().map(|s| ("[[service]]", s.span()));
        if let Some((section, at)) = section.or(first) {
            let what = format!("{section} is for kind = \"balance\"");
            return Err(config.error(at, what, "write that kind in [work], or leave it out"));
        }
        return Ok(());
    }
    cluster::check(config)?;
    if config.service.is_empty() && config.cluster.is_none() {
        let fix = "add a [[service]] with name, vip, proto, port and mode";
        return Err(config.error(config.work.span(), "there is no service", fix));
    }
    let balance = config.balance();
    if !(1..=Conns::MOST).contains(balance.connections.get_ref()) {
        let what = format!("a core cannot keep {} connections", balance.connections.get_ref());
        return Err(config.error(balance.connections.span(), what, "write 1 to 1073741824"));
    }
    secret::check(config, &balance)?;
    if let Some(announce) = &balance.announce {
        check_announce(config, announce.get_ref())?;
    }
    if let Some(sync) = &balance.sync {
        sync::check(config, sync)?;
    }
    let settings = config.balance_settings()?;
    config.check_services()?;
    limits::opening(config, &balance, settings.opening_most)?;
    config.service.iter().try_for_each(|service| own(config, &balance, service.get_ref()))?;
    let local =
        |v6: bool| balance.local.iter().filter(|text| text.get_ref().contains(':') == v6).count();
    // Local addresses are assigned to cores in turn; fullnat needs one on each core that works.
    let consumers = config.queue.iter().flat_map(|queue| queue.get_ref().consumers.get_ref());
    let cores = consumers.map(|core| usize::from(*core.get_ref()) + 1).max().unwrap_or(1);
    for service in &config.service {
        let (span, service) = (service.get_ref().name.span(), service.get_ref());
        let mode = Mode::from(service.mode);
        if mode.translates() && balance.clients.is_none() {
            let fix = "add 'clients = { port = ..., next_hop = ... }' to [balance]";
            return Err(config.error(
                span,
                "replies of this service have no route to clients",
                fix,
            ));
        }
        if settings.returns && mode == Mode::Dnat && *service.one_packet.get_ref() {
            let what = "replies to datagrams that are placed one by one have no next hop: without an entry, the client's MAC address is not stored";
            let fix = "write a 'next_hop' in 'clients' of [balance], or leave out 'one_packet'";
            return Err(config.error(service.one_packet.span(), what, fix));
        }
        let needs = match mode {
            Mode::FullNat => cores,
            _ => usize::from(mode.overhead(false) > 0),
        };
        let have = |backend: &BackendConfig| local(backend.addr.get_ref().contains(':'));
        let lacks = service.backend.iter().find(|backend| have(backend.get_ref()) < needs);
        if let Some(backend) = lacks {
            let span = backend.get_ref().addr.span();
            if have(backend.get_ref()) == 0 {
                let what = "packets to this backend have no source address";
                let fix = "add an address of its family to 'local' in [balance]";
                return Err(config.error(span, what, fix));
            }
            let what =
                format!("fullnat needs {needs} local addresses of this family, one for each core");
            return Err(config.error(span, what, "add some to 'local' in [balance]"));
        }
    }
    Ok(())
}

/// Checks the names of a service and of its backends, and that nothing else has its VIP.
fn own(config: &Config, balance: &BalanceConfig, service: &ServiceConfig) -> Checked {
    let backends = || service.backend.iter().map(Spanned::get_ref);
    for name in std::iter::once(&service.name).chain(backends().map(|backend| &backend.name)) {
        let text = name.get_ref();
        if text.is_empty()
            || text.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control())
        {
            let what =
                format!("'{text}' is not a name that 'flowyard lb' can address as SERVICE/BACKEND");
            let fix = "write at least one character, without blanks and '/'";
            return Err(config.error(name.span(), what, fix));
        }
    }
    let vip = config.address(&service.vip)?;
    let is_vip = |text: &&Spanned<String>| text.get_ref().parse::<IpAddr>() == Ok(vip);
    if let Some(addr) = backends().map(|backend| &backend.addr).find(is_vip) {
        let what = format!("the backend has the address of its own service, {vip}");
        let fix = "write the address of the server itself; with mode dsr or a tunnel, it has the VIP in addition";
        return Err(config.error(addr.span(), what, fix));
    }
    let name = service.name.get_ref();
    if let Some(addr) = balance.local.iter().find(is_vip) {
        let what = format!(
            "{vip} is the VIP of service '{name}', so replies could not be distinguished from requests"
        );
        return Err(config.error(addr.span(), what, "use another address in 'local'"));
    }
    if let Some(addr) = balance.address.values().flatten().find(is_vip) {
        let what =
            format!("{vip} is the VIP of service '{name}', so two ports would answer for it");
        return Err(config.error(
            addr.span(),
            what,
            "use an address of the port itself in 'address'",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
