//! Every capture, packet by packet, against what tshark 4.0 says.
mod common;

use std::collections::BTreeMap;

use common::{Packet, manifest, packets, read_file, shared};
use flowyard_wire::{Headers, LinkType, Net, Verdict};

const COLUMNS: [&str; 18] = [
    "vlan.id",
    "mpls.label",
    "ip.src",
    "ip.dst",
    "ip.proto",
    "ip.flags.mf",
    "ip.frag_offset",
    "ipv6.src",
    "ipv6.dst",
    "ipv6.nxt",
    "ipv6.fraghdr.offset",
    "tcp.srcport",
    "tcp.dstport",
    "udp.srcport",
    "udp.dstport",
    "sctp.srcport",
    "sctp.dstport",
    "icmp.type",
];

fn ours(levels: &[Headers], bytes: &[u8]) -> Vec<Vec<String>> {
    let mut out = vec![Vec::new(); COLUMNS.len() + 5];
    for h in levels {
        let l3 = h.l3 as usize;
        let mut put = |c: usize, s: String| out[c].push(s);
        for id in h.tags.ids() {
            put(0, id.to_string());
        }
        for id in h.labels.ids() {
            put(1, id.to_string());
        }
        let (src, dst) = (h.src_ip(bytes), h.dst_ip(bytes));
        match h.net {
            Net::Ipv4 => {
                put(2, src.unwrap().to_string());
                put(3, dst.unwrap().to_string());
                put(4, bytes[l3 + 9].to_string());
                put(5, u8::from(h.fragment.more).to_string());
                put(6, (h.fragment.offset / 8).to_string());
            }
            Net::Ipv6 => {
                put(7, src.unwrap().to_string());
                put(8, dst.unwrap().to_string());
                put(9, bytes[l3 + 6].to_string());
                if h.fragment.header {
                    put(10, (h.fragment.offset / 8).to_string());
                }
            }
            _ => {}
        }
        if let Some((s, d)) = h.ports {
            let c = match h.proto {
                6 => 11,
                17 => 13,
                _ => 15,
            };
            put(c, s.to_string());
            put(c + 1, d.to_string());
        }
        if let Some(icmp) = h.icmp(bytes) {
            if h.net == Net::Ipv4 {
                put(17, icmp.kind.to_string());
            } else {
                put(18, icmp.kind.to_string());
            }
        }
        let v = |v: Verdict| {
            match v {
                Verdict::Good => "1",
                Verdict::Bad => "0",
                Verdict::Absent => "3",
                Verdict::Unknown => "2",
            }
            .to_string()
        };
        if h.net == Net::Ipv4 {
            put(19, v(h.ipv4_checksum(bytes)));
        }
        if h.ports.is_some() {
            let c = match h.proto {
                6 => 20,
                17 => 21,
                _ => 22,
            };
            put(c, v(h.transport_checksum(bytes)));
        }
    }
    out
}

#[test]
fn explore() {
    let Some(shared) = shared() else { return };
    let mut groups: BTreeMap<(String, String), (usize, String)> = BTreeMap::new();
    let (mut total, mut skipped) = (0, BTreeMap::<u16, usize>::new());
    for entry in manifest(&shared) {
        let file = read_file(&shared.join("captures").join(&entry.file));
        let oracle =
            read_file(&shared.join("oracle").join(entry.file.replacen('/', "@", 1) + ".tsv.gz"));
        let oracle = String::from_utf8_lossy(&oracle).into_owned();
        let rows: Vec<Vec<&str>> =
            oracle.lines().skip(1).map(|l| l.split('\t').collect()).collect();
        let packets = packets(&file);
        if rows.len() != packets.len() {
            println!("{}: rows {} packets {}", entry.file, rows.len(), packets.len());
        }
        for (Packet { link, wire_len, bytes }, row) in packets.iter().zip(&rows) {
            if row[1] != bytes.len().to_string() {
                println!("{}#{} caplen {} {}", entry.file, row[0], row[1], bytes.len());
                break;
            }
            let Some(link) = LinkType::from_registry(*link) else {
                *skipped.entry(*link).or_default() += 1;
                continue;
            };
            total += 1;
            let levels: Vec<_> = Headers::levels(link, bytes).collect();
            let ours = ours(&levels, bytes);
            let mut diff = Vec::new();
            for (c, ours) in ours.iter().enumerate() {
                let t: Vec<&str> = row[c + 4].split(',').filter(|s| !s.is_empty()).collect();
                if c >= 19 {
                    if t.len() != ours.len() {
                        continue;
                    }
                    let ok = t
                        .iter()
                        .zip(ours)
                        .all(|(t, o)| t == o || *t == "2" || (*t == "4" && o == "0"));
                    if ok {
                        continue;
                    }
                }
                if t == *ours {
                    continue;
                }
                let name = if c < 18 {
                    COLUMNS[c]
                } else {
                    ["icmpv6", "ipsum", "tcpsum", "udpsum", "sctpsum"][c - 18]
                };
                let kind = if t.starts_with(&ours.iter().map(|s| &s[..]).collect::<Vec<_>>()) {
                    "+"
                } else if ours.iter().zip(&t).all(|(a, b)| a == b) {
                    "-"
                } else {
                    "X"
                };
                diff.push(format!("{kind}{name}({}/{})", ours.join(","), t.join(",")));
            }
            if !diff.is_empty() {
                let last = levels.last().unwrap();
                let f = last.fault.map_or("-", |f| f.name());
                let kinds: String = {
                    let mut k: Vec<_> = diff.iter().map(|d| &d[..1]).collect();
                    k.sort();
                    k.dedup();
                    k.concat()
                };
                let e = groups
                    .entry((
                        kinds,
                        format!(
                            "{} [{}{}]",
                            row[27],
                            f,
                            if bytes.len() < *wire_len as usize { " cut" } else { "" }
                        ),
                    ))
                    .or_insert_with(|| {
                        (0, format!("{}#{} {}", entry.file, row[0], diff.join(" ")))
                    });
                e.0 += 1;
            }
        }
    }
    for (k, v) in &groups {
        println!("{:6} {} | {} | {}", v.0, k.1, k.0, v.1);
    }
    println!("total {total} skipped {skipped:?} groups {}", groups.len());
}
