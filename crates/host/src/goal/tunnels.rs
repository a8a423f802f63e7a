//! Tunnels: what the adapter hashes of a tunnelled frame decides whether the connections inside spread.

use flowyard_adapter::profile::Tunnels;
use flowyard_frame::proto;

use super::wish::{Ask, Wish};
use crate::setting::Setting;

pub(super) fn wish(ask: &Ask<'_>, wish: &mut Wish) {
    let tunnelled = || ask.traffic.flows().iter().filter(|flow| flow.tunnel);
    if tunnelled().next().is_none() {
        wish.notes
            .push("The traffic has no tunnels: GRE, IP in IP, VXLAN, Geneve or GTP-U.".to_owned());
    }
    let near = ask.near();
    if ask.card.why_not().is_some() && near.len() > 1 {
        let why = "the hash of the kernel covers what is inside GRE and IP in IP, and the UDP ports of VXLAN";
        ask.spread_by_rps(&near, why, wish);
        let limit = ask.card.why_not().unwrap_or_default();
        wish.refuse("hash fields of the adapter", limit, "ETHTOOL_GRSSH");
        return;
    }
    for flow in ["udp4", "udp6"] {
        let four = flow == "udp4";
        let is_udp =
            |key: &flowyard_frame::FlowKey| key.proto == proto::UDP && key.is_ipv4() == four;
        let now = ask.settings.get(&Setting::Fields(flow.to_owned()));
        if tunnelled().any(|one| is_udp(&one.key)) && now.is_some_and(|now| now != "sdfn") {
            let why = "VXLAN and Geneve put a hash of the inner connection into the source port";
            wish.change(Setting::Fields(flow.to_owned()), "sdfn".to_owned(), why);
        }
    }
    let plain = tunnelled().filter(|flow| flow.key.proto != proto::UDP).count();
    if plain == 0 {
        return;
    }
    match ask.state.profile().map(|profile| (profile.tunnels, profile.name)) {
        Some((Tunnels::Inner, name)) => wish.notes.push(format!(
            "The {name} hashes the inner header of {plain} GRE or IP in IP flows: they spread already."
        )),
        Some((Tunnels::Outer, name)) => wish.refuse(
            "spreading GRE and IP in IP by the adapter",
            "the adapter hashes the outer addresses only, which are the same for the whole tunnel",
            &format!("flowyard adapters: the profile of {name}"),
        ),
        Some((Tunnels::Unknown, name)) => wish.refuse(
            "spreading GRE and IP in IP by the adapter",
            "it is not known which header the adapter hashes: compare by `flowyard prove` while the tunnels are used",
            &format!("flowyard adapters: the notes of {name}"),
        ),
        None => wish.refuse(
            "spreading GRE and IP in IP by the adapter",
            "it is not known which header the adapter hashes: flowyard has no model of its driver",
            "flowyard adapters",
        ),
    }
}
