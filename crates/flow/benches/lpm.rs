//! The cost of a route lookup, in nanoseconds per packet.
//!
//! ```text
//! cargo bench -p flowyard-flow --bench lpm
//! ```
//!
//! The alternative for comparison is a `HashMap` for each prefix length, the longest first. Printed are
//! the median and the minimum of paired rounds.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use flowyard_flow::Table;
use flowyard_flow::table::Lpm;
use flowyard_frame::{Action, FlowKey, LANES};
use flowyard_testkit::{Rng, batch};
use ipnet::IpNet;

const BATCHES: usize = 2048;

/// A prefix as in the Internet's routing tables: three in five IPv4 prefixes are /24, the others /12 to
/// /23; three in five IPv6 prefixes are /48, the others /29 to /47.
fn prefix(rng: &mut Rng, v6: bool) -> IpNet {
    let often = rng.below(5) < 3;
    let (addr, len): (IpAddr, _) = if v6 {
        let bits = 0x2 << 124 | u128::from(rng.bits() >> 4) << 64;
        (Ipv6Addr::from_bits(bits).into(), if often { 48 } else { 29 + rng.below(19) as u8 })
    } else {
        let bits = (0x0100_0000 + rng.below(0xdf00_0000)) as u32;
        (Ipv4Addr::from_bits(bits).into(), if often { 24 } else { 12 + rng.below(12) as u8 })
    };
    IpNet::new(addr, len).map_or_else(|_| addr.into(), |net| net.trunc())
}

/// An address in `net`.
fn host(rng: &mut Rng, net: &IpNet) -> IpAddr {
    let low = u128::from(rng.bits()) << 64 | u128::from(rng.bits());
    match net {
        IpNet::V4(net) => {
            let host = low as u32 & net.hostmask().to_bits();
            Ipv4Addr::from_bits(net.network().to_bits() | host).into()
        }
        IpNet::V6(net) => {
            let host = low & net.hostmask().to_bits();
            Ipv6Addr::from_bits(net.network().to_bits() | host).into()
        }
    }
}

fn main() {
    println!("{:<22} {:>10} {:>24} {:>24}", "", "memory", "tree bitmap", "HashMap per length");
    println!("{:<22} {:>10} {:>24} {:>24}", "ns per packet", "KB", "median least", "median least");
    for (name, v6, count) in [
        ("IPv4, 1,000", false, 1000),
        ("IPv4, 100,000", false, 100_000),
        ("IPv6, 1,000", true, 1000),
        ("IPv6, 100,000", true, 100_000),
    ] {
        let mut rng = Rng::new(1);
        let mut table = Lpm::new(count);
        let mut by_length: BTreeMap<u8, HashMap<IpNet, Action>> = BTreeMap::new();
        let mut nets = Vec::new();
        while table.len() < count {
            let net = prefix(&mut rng, v6);
            let action = Action::queue(nets.len() as u16);
            by_length.entry(net.prefix_len()).or_default().insert(net, action);
            if table.put(&net, action) == Ok(None) {
                nets.push(net);
            }
        }
        let mut random = || {
            batch((0..LANES).map(|_| {
                let net = nets[rng.below(count as u64) as usize];
                let addr = host(&mut rng, &net);
                FlowKey::five_tuple(17, addr, 1, addr, 2)
            }))
        };
        let mut batches: Vec<_> = (0..BATCHES).map(|_| random()).collect();
        let mut rounds = [const { Vec::new() }; 2];
        for _ in 0..15 {
            let start = Instant::now();
            for batch in &mut batches {
                let all = batch.lanes();
                black_box(table.lookup(batch, all));
            }
            rounds[0].push(start.elapsed().as_nanos() as f64 / (BATCHES * LANES) as f64);
            let start = Instant::now();
            for batch in &batches[..BATCHES / 8] {
                for lane in batch.lanes() {
                    let Some(addr) = batch.keys[lane].dst_ip() else { continue };
                    let found = by_length
                        .iter()
                        .rev()
                        .find_map(|(&len, nets)| nets.get(&IpNet::new(addr, len).ok()?.trunc()));
                    assert_eq!(found, Some(&batch.actions[lane]));
                }
            }
            rounds[1].push(start.elapsed().as_nanos() as f64 / (BATCHES / 8 * LANES) as f64);
        }
        let [ours, hash] = rounds.map(|mut rounds| {
            rounds.sort_by(f64::total_cmp);
            format!("{:.1} {:.1}", rounds[rounds.len() / 2], rounds[0])
        });
        println!("{name:<22} {:>10} {ours:>24} {hash:>24}", table.bytes() / 1024);
    }
}
