//! Rules evaluated directly, compiled and run by a small interpreter, and run by the kernel.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::af_xdp::sys::{Purpose, load, test_run};

/// The value returned for matching frames (XDP_DROP).
const OURS: i32 = 1;

/// Reference implementation: matches an Ethernet frame field by field.
fn matches(rule: &Rule, frame: &[u8]) -> bool {
    let half = |at: usize| frame.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    let rule = &Rule { kernel: false, ..*rule };
    if *rule == Rule::default() {
        return true;
    }
    let mut arp = None;
    let mut l3 = 14;
    let Some(mut ether_type) = half(12) else { return false };
    for _ in 0..2 {
        if matches!(ether_type, 0x8100 | 0x88a8) {
            let Some(inner) = half(l3 + 2) else { return false };
            (ether_type, l3) = (inner, l3 + 4);
        }
    }
    let mut ip: Option<(u8, IpAddr, IpAddr)> = None;
    let mut l4 = None;
    if ether_type == IPV4 && frame.len() >= l3 + 20 {
        let addr = |at: usize| Ipv4Addr::from(*frame[at..].first_chunk::<4>().unwrap());
        ip = Some((frame[l3 + 9], addr(l3 + 12).into(), addr(l3 + 16).into()));
        let words = usize::from(frame[l3] & 0xf);
        let is_fragment = half(l3 + 6).unwrap() & 0x3fff != 0;
        l4 = (!is_fragment && words >= 5).then_some(l3 + 4 * words);
    } else if ether_type == IPV6 && frame.len() >= l3 + 40 {
        let addr = |at: usize| Ipv6Addr::from(*frame[at..].first_chunk::<16>().unwrap());
        ip = Some((frame[l3 + 6], addr(l3 + 8).into(), addr(l3 + 24).into()));
        l4 = Some(l3 + 40);
    } else if ether_type == ARP && frame.len() >= l3 + 28 {
        let addr = |at: usize| IpAddr::from(*frame[at..].first_chunk::<4>().unwrap());
        arp = Some((addr(l3 + 14), addr(l3 + 24)));
    }
    let ends = match rule.ether_type {
        Some(ARP) => arp,
        _ => ip.map(|(_, from, to)| (from, to)),
    };
    let has_ports = ip.is_some_and(|(proto, ..)| matches!(proto, 6 | 17 | 132));
    let ports = l4.filter(|_| has_ports).and_then(|at| Some((half(at)?, half(at + 2)?)));
    rule.ether_type.is_none_or(|want| want == ether_type)
        && rule.protocol.is_none_or(|want| ip.is_some_and(|(proto, ..)| proto == want))
        && rule.from.is_none_or(|want| ends.is_some_and(|(from, _)| want.has(from)))
        && rule.to.is_none_or(|want| ends.is_some_and(|(_, to)| want.has(to)))
        && rule.from_port.is_none_or(|want| ports.is_some_and(|(from, _)| from == want))
        && rule.to_port.is_none_or(|want| ports.is_some_and(|(_, to)| to == want))
}

/// Addresses of the packet and of the end of the stack in the interpreter below.
const PACKET: u64 = 0x1_0000;
const STACK: u64 = 0x9_0000;

/// Interprets `program` on `frame` (RFC 9669); stops at the first access out of bounds.
fn run(program: &[Insn], frame: &[u8]) -> Option<u64> {
    let (mut regs, mut stack) = ([0u64; 11], [0u8; 64]);
    (regs[1], regs[10]) = (1, STACK);
    let mut at = 0;
    for _ in 0..10_000 {
        let Insn { code, regs: pair, off, imm } = *program.get(at)?;
        let (dst, src) = (usize::from(pair & 0xf), usize::from(pair >> 4));
        let operand = if code & 8 != 0 { regs[src] } else { i64::from(imm) as u64 };
        let size = [4, 2, 1, 8][usize::from(code >> 3 & 3)];
        let place = |base: u64| base.wrapping_add_signed(off.into());
        at += 1;
        match (code & 7, code & 0xf0) {
            (1, _) if regs[src] == 1 => {
                regs[dst] = if off == DATA { PACKET } else { PACKET + frame.len() as u64 };
            }
            (1, _) => {
                let (base, memory) = match place(regs[src]) {
                    from @ PACKET..STACK if regs[src] < STACK - 64 => (from - PACKET, frame),
                    from => (from.checked_sub(STACK - 64)?, &stack[..]),
                };
                let bytes = memory.get(base as usize..base as usize + size)?;
                let mut wide = [0; 8];
                wide[..size].copy_from_slice(bytes);
                regs[dst] = u64::from_le_bytes(wide);
            }
            (2 | 3, _) => {
                let value = if code & 7 == 2 { i64::from(imm) as u64 } else { regs[src] };
                let to = place(regs[dst]).checked_sub(STACK - 64)? as usize;
                stack.get_mut(to..to + size)?.copy_from_slice(&value.to_le_bytes()[..size]);
            }
            (7, 0xb0) => regs[dst] = operand,
            (7, 0x00) => regs[dst] = regs[dst].wrapping_add(operand),
            (7, 0x60) => regs[dst] <<= operand,
            (4, 0x50) => regs[dst] = u64::from(regs[dst] as u32 & operand as u32),
            (5, 0x90) => return Some(regs[0]),
            (5 | 6, jump) => {
                let (a, b) = match code & 7 {
                    5 => (regs[dst], operand),
                    _ => (u64::from(regs[dst] as u32), u64::from(operand as u32)),
                };
                let taken = match jump {
                    0x00 => true,
                    0x10 => a == b,
                    0x50 => a != b,
                    0x20 => a > b,
                    0xa0 => a < b,
                    _ => return None,
                };
                at = if taken { at.checked_add_signed(off.into())? } else { at };
            }
            _ => return None,
        }
    }
    None
}

prop_compose! {
    /// A prefix from few addresses, so that frames match often.
    fn prefixes()(v6 in any::<bool>(), end in 0u8..4, bits in 0u8..=128) -> Prefix {
        if v6 {
            Prefix { addr: Ipv6Addr::from([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]).into(), bits }
        } else {
            Prefix { addr: Ipv4Addr::new(10, 0, 0, end).into(), bits: bits % 33 }
        }
    }
}

prop_compose! {
    fn rules()(
        kernel in prop::bool::weighted(0.3),
        ether_type in prop::option::weighted(0.3, prop::sample::select(vec![IPV4, IPV6, 0x0806])),
        protocol in prop::option::weighted(0.4, prop::sample::select(vec![0u8, 1, 6, 17, 132])),
        from in prop::option::weighted(0.3, prefixes()),
        to in prop::option::weighted(0.3, prefixes()),
        from_port in prop::option::weighted(0.3, 0u16..3),
        to_port in prop::option::weighted(0.3, 0u16..3),
    ) -> Rule {
        let rule = Rule { kernel, ether_type, protocol, from, to, from_port, to_port };
        Rule { kernel: kernel && Rule { kernel: false, ..rule } != Rule::default(), ..rule }
    }
}

prop_compose! {
    /// Frames with varied headers, some truncated.
    fn frames()(
        tags in prop::collection::vec(prop::sample::select(vec![0x8100u16, 0x88a8]), 0..3),
        ether_type in prop::sample::select(vec![IPV4, IPV6, 0x0806]),
        protocol in prop::sample::select(vec![0u8, 1, 6, 17, 132]),
        ends in (0u8..4, 0u8..4),
        ports in (0u16..3, 0u16..3),
        words in prop::sample::select(vec![5u8, 5, 5, 6, 15, 4, 0]),
        fragment in prop::sample::select(vec![0u16, 0, 0, 0x4000, 0x2000, 0x0010]),
        cut in prop::option::weighted(0.2, 14usize..80),
    ) -> Vec<u8> {
        let mut frame = vec![2; 12];
        for tag in tags {
            frame.extend([tag.to_be_bytes(), [0, 5]].concat());
        }
        frame.extend(ether_type.to_be_bytes());
        if ether_type == IPV6 {
            frame.extend([0x60, 0, 0, 0, 0, 8, protocol, 64]);
            for end in [ends.0, ends.1] {
                frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]);
            }
        } else {
            frame.extend([0x40 | words, 0, 0, 40, 0, 1]);
            frame.extend(fragment.to_be_bytes());
            frame.extend([64, protocol, 0, 0, 10, 0, 0, ends.0, 10, 0, 0, ends.1]);
            frame.extend(vec![1; 4 * usize::from(words.saturating_sub(5))]);
        }
        frame.extend([ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat());
        frame.extend([7; 8]);
        frame.truncate(cut.unwrap_or(frame.len()).max(14));
        frame
    }
}

/// The expected result for each frame: `OURS` or `PASS`.
fn expected(rules: &[Rule], frames: &[Vec<u8>]) -> Vec<i32> {
    let any = |kernel, frame: &Vec<u8>| {
        rules.iter().filter(|rule| rule.kernel == kernel).any(|rule| matches(rule, frame))
    };
    let ours = |frame: &Vec<u8>| !any(true, frame) && any(false, frame);
    frames.iter().map(|frame| if ours(frame) { OURS } else { PASS }).collect()
}

proptest! {
    #[test]
    fn the_program_equals_the_reference(
        rules in prop::collection::vec(rules(), 1..4),
        frames in prop::collection::vec(frames(), 1..20),
    ) {
        let program = Rules::Any(rules.clone()).program(Ours::Return(OURS), None);
        let got: Vec<i32> =
            frames.iter().map(|frame| run(&program, frame).map_or(-1, |r| r as i32)).collect();
        prop_assert_eq!(got, expected(&rules, &frames));
    }
}

#[test]
fn the_kernel_keeps_what_is_for_its_own_address() {
    let rules = ["not arp to 10.0.1.253", "not to 10.0.1.253", "arp", "tcp from port 80"];
    let rules = Rules::Any(rules.map(|text| text.parse().unwrap()).to_vec());
    let program = rules.program(Ours::Return(OURS), None);
    let arp = |target: u8| {
        let mut frame = vec![2; 12];
        frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
        frame.extend([2, 2, 2, 2, 2, 2, 10, 0, 1, 1, 2, 2, 2, 2, 2, 2, 10, 0, 1, target]);
        frame
    };
    let tcp = |to: u8| {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 1, 1, 10, 0, 1, to]);
        frame.extend([0, 80, 200, 0]);
        frame
    };
    for (frame, result) in [(arp(253), PASS), (arp(254), OURS), (tcp(253), PASS), (tcp(254), OURS)]
    {
        assert_eq!(run(&program, &frame), Some(result as u64), "{frame:?}");
    }
}

/// The verifier accepts every program, and the kernel returns the same results as the interpreter.
#[test]
#[ignore = "needs CAP_BPF and CAP_NET_ADMIN; the step 'live' of CI runs this test"]
fn the_kernel_agrees() {
    let all = load(Purpose::Xdp, &Rules::All.program(Ours::Return(OURS), None)).unwrap();
    assert_eq!(test_run(&all, &[0; 14]).unwrap(), OURS as u32);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(64)
    });
    let cases = (prop::collection::vec(rules(), 1..64), prop::collection::vec(frames(), 20));
    runner
        .run(&cases, |(mut rules, frames)| {
            rules[0].kernel = false; // a configuration has at least one such rule
            let program =
                load(Purpose::Xdp, &Rules::Any(rules.clone()).program(Ours::Return(OURS), None));
            let program =
                program.map_err(|(error, log)| TestCaseError::fail(format!("{error}: {log}")))?;
            let got: Vec<i32> =
                frames.iter().map(|frame| test_run(&program, frame).unwrap() as i32).collect();
            prop_assert_eq!(got, expected(&rules, &frames));
            Ok(())
        })
        .unwrap();
}

#[test]
fn rules_are_read() {
    let read = |text: &str| text.parse::<Rule>();
    assert_eq!(read("all"), Ok(Rule::default()));
    assert_eq!(read(" arp "), Ok(Rule { ether_type: Some(0x0806), ..Rule::default() }));
    let want = Rule {
        protocol: Some(proto::UDP),
        from: Some(Prefix { addr: Ipv4Addr::new(10, 0, 0, 0).into(), bits: 8 }),
        to: Some(Prefix { addr: Ipv4Addr::new(10, 1, 0, 1).into(), bits: 32 }),
        to_port: Some(53),
        ..Rule::default()
    };
    assert_eq!(read("udp from 10.0.0.0/8 to 10.1.0.1 to port 53"), Ok(want));
    let want = Rule { ether_type: Some(0x88f7), from_port: Some(80), ..Rule::default() };
    assert_eq!(read("from port 80 type 0x88f7"), Ok(want));
    let own = Some(Prefix { addr: Ipv4Addr::new(10, 0, 1, 253).into(), bits: 32 });
    let want = Rule { kernel: true, to: own, ..Rule::default() };
    assert_eq!(read("not to 10.0.1.253"), Ok(want));
    assert_eq!(read("not arp to 10.0.1.253"), Ok(Rule { ether_type: Some(ARP), ..want }));
    for (text, message) in [
        ("not all", "'all' conflicts with the rest"),
        ("not ip ipv6", "'ipv6' conflicts"),
        ("arp to fd00::1", "ARP has IPv4 addresses only"),
        ("", "the rule is empty; write \"all\""),
        ("tpc", "unknown word 'tpc'; write"),
        ("tcp udp", "'udp' conflicts with the rest of 'tcp udp'"),
        ("all tcp", "'all' conflicts with the rest"),
        ("to port 70000", "'70000' is not a port"),
        ("to", "'' is neither an address"),
        ("to 10.0.0.1/33", "'10.0.0.1/33' is neither"),
        ("from 10.0.0.1 to fd00::1", "one address is IPv4 and the other IPv6"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.starts_with(message), "{text}: {error}");
    }
}
