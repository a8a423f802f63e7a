//! Why a flow is, or is not, offloaded from the tables: the explanation for users.
//!
//! Thread-safety: plain data.

use std::fmt;

use flowyard_frame::{FlowKey, proto};
use flowyard_openflow::act::Instruction;

/// How the frames of a flow are processed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Why {
    /// The flows that its frames match: table, priority, cookie.
    pub path: Vec<(u8, u16, u64)>,
    /// The same flows as `ovs-ofctl` writes them, and the number of their frames that hit in the cache of this
    /// core.
    pub flows: Vec<(String, u64)>,
    /// Where the frame goes: a sentence for each output, and for each group with its bucket. Empty if it is
    /// dropped, or if the fields do not determine it.
    pub outputs: Vec<String>,
    /// The result for the frame: `port 2 (east)`, or `dropped (no_flow)`.
    pub result: String,
    /// The table in which no flow matches, if there is one.
    pub miss: Option<u8>,
    /// How its second frame is processed, unless lookups in the cache are paused.
    pub answer: Answer,
    /// Whether this core's cache has an entry for such a frame now. If not, the tables process the next one.
    pub is_known: bool,
    /// What is done for the flow in front of this core: by XDP, or by an adapter; empty if there is neither.
    pub ahead: Vec<String>,
    /// Present if lookups in the cache are paused.
    pub rest: Option<Rest>,
}

/// A pause of the cache: lookups do not pay for the frames that are received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rest {
    /// One of N frames is looked up.
    pub one_in: u32,
    /// Hits among the frames that were last looked up.
    pub known: u32,
    /// The number of these frames.
    pub of: u32,
}

/// How a frame is processed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// By the port mapping.
    Mapped {
        /// The port.
        port: u32,
    },
    /// By the port mapping, which drops them: the port does not exist or does not send.
    MappedNowhere {
        /// The port.
        port: u32,
    },
    /// By the cache, which has the flows; their actions are applied to each frame.
    Cached,
    /// By the cache, which has the flows; they have no actions.
    CachedDrop,
    /// By the cache, which has the result that no flow matches.
    CachedMiss,
    /// By the tables: there is no cache.
    NoCache,
    /// By the tables: before another table is looked up, a flow changes fields in a way that the key of the
    /// received frame does not determine.
    Unproven {
        /// The flow's table.
        table: u8,
        /// Its priority.
        priority: u16,
        /// The instruction.
        does: Box<Instruction>,
    },
    /// The fields do not determine the rest: an action uncovers other fields, which are in the frame's bytes.
    Unknown {
        /// The first table that is not determined.
        table: u8,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (flow, offloaded) in &self.flows {
            writeln!(f, "{flow} (offloaded: {offloaded} frames)")?;
        }
        if let Some(table) = self.miss {
            writeln!(f, "table {table}: no flow matches")?;
        }
        for output in &self.outputs {
            writeln!(f, "{output}")?;
        }
        self.answer.fmt(f)?;
        if self.answer.is_offloaded() && !self.is_known {
            f.write_str("\nthe cache has no entry for it now: the tables process the next frame")?;
        }
        for ahead in &self.ahead {
            write!(f, "\nin front: {ahead}")?;
        }
        if let Some(rest) = self.rest {
            write!(f, "\n{rest}")?;
        }
        write!(f, "\nresult: {}", self.result)
    }
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { one_in, known, of } = self;
        write!(
            f,
            "the cache is paused: {known} of the last {of} lookups hit, so only one of {one_in} frames is looked \
             up; the tables process the others"
        )
    }
}

impl Answer {
    /// Whether the frame is processed without the tables.
    #[must_use]
    pub const fn is_offloaded(&self) -> bool {
        matches!(
            self,
            Self::Mapped { .. }
                | Self::MappedNowhere { .. }
                | Self::Cached
                | Self::CachedDrop
                | Self::CachedMiss
        )
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mapped { port } => {
                write!(f, "can be offloaded: the port mapping sends it to port {port}")
            }
            Self::MappedNowhere { port } => write!(
                f,
                "can be offloaded: the port mapping drops it, because port {port} does not exist or does not send"
            ),
            Self::Cached => write!(
                f,
                "can be offloaded: the lookup can be cached; the actions still run for each frame, because they are not a \
                 single output"
            ),
            Self::CachedDrop => {
                write!(f, "can be offloaded: the lookup can be cached; there are no actions to run")
            }
            Self::CachedMiss => {
                write!(f, "can be offloaded: the lookup can be cached; no flow matches")
            }
            Self::NoCache => {
                write!(f, "not offloaded: there is no cache; set 'cache_entries' in [switch]")
            }
            Self::Unproven { table, priority, does } => write!(
                f,
                "not offloaded: the flow of priority {priority} in table {table} executes {} before \
                 the next table is looked up, and the received frame's key does not determine the fields then",
                flowyard_openflow::ofctl::instruction_texts(std::slice::from_ref(&**does), &[])
                    .join(",")
            ),
            Self::Unknown { table } => write!(
                f,
                "these fields do not determine the lookup in table {table}: an action before it uncovers other \
                 headers"
            ),
        }
    }
}

/// The fields of a frame as the text that `flowyard switch why` takes. `in_port` is the name of the port that
/// received it.
pub(crate) fn fields(key: &FlowKey, in_port: &str) -> String {
    let mac = |address: &[u8; 6]| address.map(|byte| format!("{byte:02x}")).join(":");
    let mut list = vec![
        format!("in_port={in_port}"),
        format!("dl_src={}", mac(&key.eth_src)),
        format!("dl_dst={}", mac(&key.eth_dst)),
    ];
    if key.vlan_tci & 0xfff != 0 {
        list.push(format!("dl_vlan={}", key.vlan_tci & 0xfff));
    }
    let (Some(src), Some(dst)) = (key.src_ip(), key.dst_ip()) else {
        list.push(format!("dl_type=0x{:04x}", key.eth_type));
        return list.join(",");
    };
    let (six, names) = match src.is_ipv6() {
        true => ("6", ["ipv6_src", "ipv6_dst"]),
        false => ("", ["nw_src", "nw_dst"]),
    };
    let transport = match key.proto {
        proto::TCP => Some("tcp"),
        proto::UDP => Some("udp"),
        proto::SCTP => Some("sctp"),
        _ => None,
    };
    match (transport, key.proto) {
        (Some(name), _) => list.push(format!("{name}{six}")),
        (None, proto::ICMP) if six.is_empty() => list.push("icmp".into()),
        (None, proto::ICMPV6) if !six.is_empty() => list.push("icmp6".into()),
        (None, number) => {
            list.push(format!("{},nw_proto={number}", if six.is_empty() { "ip" } else { "ipv6" }));
        }
    }
    list.push(format!("{}={src},{}={dst}", names[0], names[1]));
    if let Some(name) = transport.filter(|_| key.frag < 2) {
        list.push(format!("{name}_src={},{name}_dst={}", key.sport, key.dport));
    }
    list.join(",")
}

#[cfg(test)]
mod tests {
    use flowyard_openflow::flow::FlowCommand;
    use flowyard_openflow::ofctl;

    use super::*;

    #[test]
    fn the_fields_of_a_frame_are_a_match() {
        for (flow, text) in [
            (
                "tcp 10.0.0.1:1 > 10.0.0.2:2",
                "tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tcp_src=1,tcp_dst=2",
            ),
            (
                "udp [fe80::1]:1 > [fe80::2]:2",
                "udp6,ipv6_src=fe80::1,ipv6_dst=fe80::2,udp_src=1,udp_dst=2",
            ),
            ("icmp 10.0.0.1 > 10.0.0.2", "icmp,nw_src=10.0.0.1,nw_dst=10.0.0.2"),
            ("gre 10.0.0.1 > 10.0.0.2", "ip,nw_proto=47,nw_src=10.0.0.1,nw_dst=10.0.0.2"),
            ("proto 89 fe80::1 > fe80::2", "ipv6,nw_proto=89,ipv6_src=fe80::1,ipv6_dst=fe80::2"),
        ] {
            let said = fields(&flow.parse().expect("a flow"), "west");
            let macs = "dl_src=00:00:00:00:00:00,dl_dst=00:00:00:00:00:00";
            assert_eq!(said, format!("in_port=west,{macs},{text}"));
            let read = ofctl::flow_with(&said, FlowCommand::Delete, &[("west", 1)]);
            assert!(read.is_ok(), "{said}: {read:?}");
        }
        let arp = FlowKey { eth_type: 0x0806, vlan_tci: 0x2005, ..FlowKey::ZERO };
        assert!(
            fields(&arp, "west").ends_with(",dl_vlan=5,dl_type=0x0806"),
            "{}",
            fields(&arp, "west")
        );
    }
}
