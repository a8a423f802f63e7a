//! `text`: any text as every kind of one-line text that the commands read.

use crate::{Limits, Line};
use std::fmt::{Debug, Display};
use std::str::FromStr;

use flowyard_adapter::fdir::Pballoc;
use flowyard_adapter::rss;
use flowyard_adapter::rules::{self, Driver, RuleTable, Target};
use flowyard_adapter::tenants;
use flowyard_adapter::vmdq::L2;
use flowyard_analyze::{Consumers, Local};
use flowyard_config::import::{self, Format};
use flowyard_config::{Endpoint, Url};
use flowyard_frame::FlowKey;
use flowyard_nicsim::time::Freq;
use flowyard_openflow::flow::FlowCommand;
use flowyard_openflow::group::{GroupCommand, GroupType, MeterCommand};
use flowyard_openflow::ofctl;
use flowyard_ports::af_xdp::Rule;
use flowyard_ports::port::Pace;
use flowyard_rfc2544::traffic::Genome;

/// About twenty parsers read the text. A word that none of them knows is compared with the names of similar length,
/// some hundred, for the text of an error: 54,000 blocks for a single word. Filter rules are compiled for
/// six adapters, which compares each rule with each, and at most 64 of them.
pub const LIMITS: Limits = Limits {
    blocks: Line { input: 200_000, byte: 10_000 },
    bytes: Line { input: 150_000, byte: 5000 },
};

/// Reads `bytes` as each kind of text.
///
/// # Panics
/// When a parser panics, or when a value is written in a form that is not read back as the same value.
pub fn text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    same_again::<FlowKey>(text);
    same_again::<Consumers>(text);
    same_again::<Local>(text);
    same_again::<Genome>(text);
    same_again::<Endpoint>(text);
    same_again::<Url>(text);
    let _ = (text.parse::<Freq>(), text.parse::<Rule>(), text.parse::<Pace>());
    let _ = rss::parse_ethtool("fuzz", text);
    openflow(text);
    rule_file(text);
    tenant_file(text);
    services(text);
}

/// Services of IPVS and keepalived, which are written as TOML.
fn services(text: &str) {
    for format in [Format::Ipvsadm, Format::Keepalived] {
        if let Ok(imported) = import::read(text, format) {
            let written = imported.toml("east");
            assert!(toml::from_str::<toml::Table>(&written).is_ok(), "{written}");
        }
    }
}

/// What is read is written in a form that is read as the same.
fn same_again<T: FromStr + Display + PartialEq + Debug>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        let written = value.to_string();
        assert_eq!(written.parse::<T>().ok(), Some(value), "{written}");
    }
}

/// Flows, groups and meters as `ovs-ofctl` writes them.
fn openflow(text: &str) {
    let _ = (ofctl::filter(text), ofctl::flow(text, FlowCommand::Delete));
    let _ = (ofctl::group(text, GroupCommand::Add), ofctl::meter(text, MeterCommand::Add));
    let _ = (ofctl::packet_out(text, &[]), ofctl::bucket_edit(text, GroupType::Select, &[]));
    if let Ok(flow) = ofctl::flow(text, FlowCommand::Add) {
        let written = ofctl::flow_mod_text(&flow);
        assert_eq!(ofctl::flow(&written, FlowCommand::Add).as_ref(), Ok(&flow), "{written}");
    }
}

/// A file of filter rules, compiled for every adapter.
fn rule_file(text: &str) {
    let rules = match rules::parse("fuzz", text) {
        Ok(rules) => rules,
        Err(errors) => return assert!(!errors.is_empty()),
    };
    if rules.len() > 64 {
        return;
    }
    let key = FlowKey { eth_type: 0x0800, proto: 6, ..FlowKey::ZERO };
    for target in [
        Target::E82599 { pballoc: Pballoc::K64, driver: Driver::InTree },
        Target::E82599 { pballoc: Pballoc::K256, driver: Driver::OutOfTree },
        Target::I40e { guaranteed: 512, best_effort: 7168 },
        Target::Ice,
        Target::Virtio,
        Target::Software,
    ] {
        let verdicts = rules::compile(&rules, target);
        assert_eq!(verdicts.len(), rules.len());
        let table = RuleTable::new(target, rules::accepted(&rules, &verdicts));
        let _ = table.lookup(&key);
        let _ = rules::overlaps(&rules, target);
    }
}

/// A file of tenants, its switch, and who gets some frames.
fn tenant_file(text: &str) {
    let tenants = match tenants::parse("fuzz", text) {
        Ok(tenants) => tenants,
        Err(errors) => return assert!(!errors.is_empty()),
    };
    for has_promiscuous in [false, true] {
        let Ok((card, _)) = tenants.card(has_promiscuous) else { continue };
        for dst in [[0xff; 6], [2, 0, 0, 0, 0, 1], [1, 0, 0x5e, 0, 0, 1]] {
            for tci in [None, Some(42)] {
                let frame = L2 { dst, src: [2, 0, 0, 0, 0, 2], tci, eth_type: 0x0800 };
                let answer = tenants.answer(&card, &frame, 15);
                assert!(!answer.why.is_empty());
                assert!(answer.copies.iter().all(|copy| copy.queue < 128), "{answer:?}");
                let sent = card.transmit(0, &frame);
                assert!(sent.dropped.is_none() || (sent.pools == 0 && !sent.to_network));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn changed_seeds() {
        for seed in [
            "tcp 10.0.0.1:80 > 10.0.0.2:90",
            "11211=3,80=0",
            "10.0.0.0/8,2001:db8::/64",
            "64x7,594x4,1518",
            "https://[2001:db8::1]:8443/x?y=z",
            "333.25/2MHz",
            "udp from 10.0.0.0/8 to port 53",
            "priority=5,tcp,tp_dst=80,actions=set_field:10.0.0.9->ip_dst,output:2",
            "group_id=1,type=select,bucket=weight:2,actions=output:1",
            "flow-type tcp4 dst-port 80 action 3",
            "flow-type tcp4 dst-port 80 vf 1 queue 1 count 3 moderation low-latency value 9",
            "tenant web pool 1 mac 02:00:00:00:00:01 vlan 42 queues 2 multicast all",
            "ip link set eth0 vf 3 mac 02:00:00:00:00:01 vlan 42 qos 3 spoofchk off trust on",
            "bmc mac 02:00:00:00:00:99 vlan 5 port 443 arp on exclusive on",
            "mirror vlan 42 to pool 9",
        ] {
            for at in (0..=seed.len()).filter(|&at| seed.is_char_boundary(at)) {
                super::text(&seed.as_bytes()[..at]);
                for with in
                    ["", "0", "9", " ", ",", "/", "-", ":", "=", "x", "99999999999999999999"]
                {
                    let (before, after) = seed.split_at(at);
                    super::text(format!("{before}{with}{after}").as_bytes());
                    let rest = after.get(1..).unwrap_or_default();
                    super::text(format!("{before}{with}{rest}").as_bytes());
                }
            }
        }
    }
}
