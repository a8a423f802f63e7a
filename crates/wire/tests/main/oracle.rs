//! Compares every packet of every capture with the fields that tshark 4.0 found in it.
//!
//! Columns are lists over all levels of a frame. For each difference to tshark there must be a reason
//! which holds for that packet (`reasons.rs`). The number of flows in each file is compared too.
#![allow(clippy::print_stdout, reason = "the test reports what it compared")]

mod fields;
mod reasons;

use std::collections::{BTreeMap, BTreeSet};

use fields::{Column, PARTIAL, Verdicts, fields};
use flowyard_testkit::captures::{Packet, manifest, packets, read_file};
use flowyard_testkit::harness::{Need, shared};
use flowyard_wire::{Headers, LinkType, Net};
use reasons::{Case, Difference, FLOWS, FLOWS_OTHERWISE, REASONS, STOPS};

flowyard_testkit::tests! {
    every_packet_agrees_with_tshark_or_differs_for_a_known_reason needs [Need::Shared("captures"), Need::Shared("oracle")],
    every_file_has_as_many_flows_as_the_manifest_says needs [Need::Shared("captures")],
}

fn every_packet_agrees_with_tshark_or_differs_for_a_known_reason() {
    let captures = shared("captures");
    let mut compared = 0;
    let mut skipped: BTreeMap<u16, usize> = BTreeMap::new();
    let mut explained: BTreeMap<&str, usize> = BTreeMap::new();
    let mut unexplained = Vec::new();
    for entry in manifest(&captures) {
        let file = read_file(&captures.join(&entry.file));
        let oracle = entry.file.replacen('/', "@", 1) + ".tsv.gz";
        let oracle = read_file(&shared("oracle").join(oracle));
        let oracle = String::from_utf8_lossy(&oracle);
        let mut rows: Vec<Vec<&str>> =
            oracle.lines().skip(1).map(|line| line.split('\t').collect()).collect();
        let packets = packets(&file);
        if rows.is_empty() {
            println!("{}: tshark refuses the file", entry.file);
            continue;
        }
        if rows.len() > packets.len() {
            // tshark lists custom blocks of a pcapng file as packets of plain data.
            rows.retain(|row| row[27] != "data");
        }
        match STOPS.iter().find(|(file, _)| *file == entry.file) {
            Some((_, why)) => {
                println!("{}: {} of {} packets, {why}", entry.file, rows.len(), packets.len());
                assert!(rows.len() < packets.len());
            }
            None => assert_eq!(rows.len(), packets.len(), "{}: packets read", entry.file),
        }
        for (packet, row) in packets.iter().zip(&rows) {
            let Packet { link, wire_len, bytes } = packet;
            let Some(link) = LinkType::from_registry(*link) else {
                *skipped.entry(*link).or_default() += 1;
                continue;
            };
            assert_eq!(row[1], bytes.len().to_string(), "{}#{}: length", entry.file, row[0]);
            compared += 1;
            let levels: Vec<_> = Headers::levels(link, bytes).collect();
            let wire_len = *wire_len as usize;
            let case = Case { levels: &levels, bytes, wire_len, protocols: row[27] };
            for difference in differences(&case, row) {
                match REASONS.iter().find(|(_, holds)| holds(&case, &difference)) {
                    Some((reason, _)) => *explained.entry(reason).or_default() += 1,
                    None => unexplained.push(format!(
                        "{}#{} {} {difference:?}, fault {:?}",
                        entry.file,
                        row[0],
                        case.protocols,
                        case.last().fault
                    )),
                }
            }
        }
    }
    println!("{compared} packets compared; skipped by link type: {skipped:?}");
    println!("fields that differ, by reason:");
    for (reason, count) in &explained {
        println!("{count:7}  {reason}");
    }
    for (reason, _) in REASONS {
        assert!(explained.contains_key(reason), "no packet needs the reason: {reason}");
    }
    assert!(compared > 100_000, "only {compared} packets compared");
    assert!(unexplained.is_empty(), "unexplained differences:\n{}", unexplained.join("\n"));
}

/// The columns in which the parser and tshark differ.
fn differences<'a>(case: &Case<'_>, row: &[&'a str]) -> Vec<Difference<'a>> {
    let (mut found, verdicts) = fields(case.levels, case.bytes);
    let list = |at: usize| -> Vec<&'a str> {
        row[at].split(',').filter(|field| !field.is_empty()).collect()
    };
    let mut differences: Vec<_> = Column::ALL
        .iter()
        .map(|&column| {
            let ours = std::mem::take(&mut found[column as usize]);
            Difference { column, ours, theirs: list(column as usize + 4) }
        })
        .filter(|difference| difference.ours != difference.theirs)
        .collect();
    // Checksums are compared only if both found the same headers; otherwise another column differs.
    let Verdicts { ip, tcp, udp, sctp } = verdicts;
    let columns = [
        (Column::IpChecksum, ip),
        (Column::TcpChecksum, tcp),
        (Column::UdpChecksum, udp),
        (Column::SctpChecksum, sctp),
    ];
    for (column, ours) in columns {
        let theirs = list(column as usize + 4);
        // tshark: 0 bad, 1 good, 2 not verified, 3 absent, 4 absent against the rules.
        let agree = |(ours, theirs): (&String, &&str)| {
            let bad = ours == "0" || *ours == PARTIAL.to_string();
            match *theirs {
                "0" | "4" => bad,
                "2" => true,
                "3" => ours == "2",
                theirs => ours == theirs,
            }
        };
        if ours.len() == theirs.len() && !ours.iter().zip(&theirs).all(agree) {
            differences.push(Difference { column, ours, theirs });
        }
    }
    differences
}

fn every_file_has_as_many_flows_as_the_manifest_says() {
    let captures = shared("captures");
    let mut wrong = Vec::new();
    let (mut files, mut flows) = (0, 0);
    for entry in manifest(&captures) {
        let file = read_file(&captures.join(&entry.file));
        let packets = packets(&file);
        if packets.iter().any(|p| LinkType::from_registry(p.link).is_none()) {
            continue; // the manifest also counts link types that the parser does not support
        }
        let ours: BTreeSet<_> = packets.iter().filter_map(flow).collect();
        (files, flows) = (files + 1, flows + ours.len());
        let known = FLOWS_OTHERWISE.iter().find(|(file, ..)| *file == entry.file);
        match known {
            Some((_, count, reason)) => {
                println!("{}: {} flows, manifest {}: {reason}", entry.file, count, entry.flows);
                if ours.len() != *count || ours.len() == entry.flows {
                    wrong.push(format!("{}: now {} flows", entry.file, ours.len()));
                }
            }
            None if ours.len() != entry.flows => {
                wrong.push(format!("{}: {} flows, not {}", entry.file, ours.len(), entry.flows));
            }
            None => {}
        }
    }
    println!("{flows} flows in {files} files");
    assert!(files > FLOWS, "only {files} files");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

type End = (Vec<u8>, u16);

/// The bidirectional 5-tuple of the outermost IP header; later fragments are separate flows.
fn flow(packet: &Packet) -> Option<(End, End, u8, bool)> {
    let link = LinkType::from_registry(packet.link)?;
    let bytes = &packet.bytes;
    let ip = Headers::levels(link, bytes).find(|h| matches!(h.net, Net::Ipv4 | Net::Ipv6))?;
    let later = ip.fragment.is_later();
    // A packet without its transport header has no 5-tuple.
    if ip.l4 == 0 || (ip.ports.is_none() && !later && matches!(ip.proto, 6 | 17 | 132)) {
        return None;
    }
    let (sport, dport) = ip.ports.unwrap_or_default();
    let a = (ip.src_octets(bytes).to_vec(), sport);
    let b = (ip.dst_octets(bytes).to_vec(), dport);
    let (a, b) = if a < b { (a, b) } else { (b, a) };
    Some((a, b, ip.proto, later))
}
