//! `ip link set DEV vf N ...`, as typed in a shell (iproute2's `ip-link(8)`).

use super::parse::Line;
use super::{Place, Tenant, Tenants};
use crate::rules::words::Word;

/// Reads the rest of a line that starts with `ip`. `None` means that an error was reported.
pub(super) fn read(line: &mut Line<'_, '_>, ip: Word<'_>, tenants: &mut Tenants) -> Option<()> {
    let is_set = (line.take("link") || line.take("l")) && (line.take("set") || line.take("s"));
    if !is_set {
        line.fault(ip, "only `ip link set` is read", "write `ip link set DEV vf N ...`");
        return None;
    }
    let _ = line.take("dev");
    let device = line.operand("ip link set")?;
    if !line.take("vf") {
        line.fault(device, "no virtual function is named", "write `ip link set DEV vf N ...`");
        return None;
    }
    let vf = line.vf()?;
    let number = line.number;
    let place = Place::Vf(vf);
    let at = match tenants.tenants.iter().position(|tenant| tenant.place == place) {
        Some(at) => at,
        None => {
            tenants.tenants.push(Tenant::new(&format!("vf{vf}"), place, number));
            tenants.tenants.len() - 1
        }
    };
    let mut some = false;
    while let Some(option) = line.word() {
        self::option(line, option, &mut tenants.tenants[at])?;
        some = true;
    }
    if !some {
        line.fault(device, "nothing is set", "add mac, vlan, spoofchk, trust, rate or state");
    }
    some.then_some(())
}

fn option(line: &mut Line<'_, '_>, option: Word<'_>, tenant: &mut Tenant) -> Option<()> {
    match option.text {
        "mac" => {
            let mac = line.mac("mac")?;
            if mac[0] & 1 == 1 {
                line.fault(
                    option,
                    "a virtual function has no group address (-EINVAL)",
                    "use a unicast address",
                );
                return None;
            }
            // `ip` replaces the address; zeros remove it.
            tenant.macs = if mac == [0; 6] { Vec::new() } else { vec![mac] };
        }
        "vlan" => vlan(line, tenant)?,
        "rate" | "max_tx_rate" => {
            tenant.rate = line.rate(option.text).map(Some)?.filter(|rate| *rate > 0);
        }
        "min_tx_rate" => {
            let rate = line.number("min_tx_rate", 10_000)?;
            if rate > 0 {
                line.fault(option, "ixgbe has no lowest rate (-EINVAL)", "remove min_tx_rate");
                return None;
            }
        }
        "spoofchk" => tenant.spoofchk = line.on("spoofchk")?,
        "trust" => tenant.trust = line.on("trust")?,
        "query_rss" => {
            let _ = line.on("query_rss")?; // who may read the RSS key; it does not change where frames go
        }
        "state" => {
            let state = line.operand("state")?;
            tenant.enabled = match state.text {
                "auto" | "enable" => true,
                "disable" => false,
                other => {
                    line.fault(
                        state,
                        format!("`{other}` is not a state"),
                        "use one of auto, enable, disable",
                    );
                    return None;
                }
            };
        }
        other => {
            line.fault(
                option,
                format!("`{other}` is not read after `vf N`"),
                "use mac, vlan, qos, proto, rate, max_tx_rate, spoofchk, trust, query_rss, state",
            );
            return None;
        }
    }
    Some(())
}

/// `vlan V [qos Q] [proto 802.1Q]`. VLAN 0 removes the port VLAN.
fn vlan(line: &mut Line<'_, '_>, tenant: &mut Tenant) -> Option<()> {
    let vid = line.number("vlan", 4094)? as u16;
    let qos = if line.take("qos") { line.number("qos", 7)? as u16 } else { 0 };
    if line.take("proto") {
        let proto = line.operand("proto")?;
        if !proto.text.eq_ignore_ascii_case("802.1q") {
            line.fault(
                proto,
                format!("ixgbe refuses the tag type `{}` (-EPROTONOSUPPORT)", proto.text),
                "use 802.1Q, or leave `proto` out",
            );
            return None;
        }
    }
    tenant.port_vlan = (vid > 0 || qos > 0).then_some(qos << 13 | vid);
    Some(())
}
