//! Generated rules, through `ethtool -N` and through flowyard.

use std::fmt::Write;
use std::process::Output;

use flowyard_adapter::rules::{FlowType, Rule, parse};
use flowyard_frame::Rng;
use flowyard_host::ntuple::{Request, SIZE};

use crate::{Fake, INTERFACE};

flowyard_testkit::tests! {
    flowyard_passes_the_bytes_that_ethtool_passes,
    each_reads_the_rules_of_the_other,
    a_driver_refuses_both_alike,
    each_deletes_the_rules_of_the_other,
}

/// Rules whose bytes are compared.
const RULES: usize = 2000;

/// A rule in the words of ethtool, without its location.
fn generated(random: &mut Rng) -> String {
    let (name, kind) = FlowType::ALL[random.below(13) as usize];
    let mut text = format!("flow-type {name}");
    let mut random = |most: u64| random.below(most);
    let ip6 = |n: u64| format!("2001:db8:{:x}::{:x}", n & 0xffff, n >> 16 & 0xffff);
    let ip4 = |n: u64| std::net::Ipv4Addr::from(n as u32).to_string();
    let mac = |n: u64| {
        (0..6).map(|i| format!("{:02x}", n >> (8 * i) & 0xff)).collect::<Vec<_>>().join(":")
    };
    let any = u64::MAX >> 8;
    let mut add = |text: &mut String, name: &str, chance: u64, value: &dyn Fn(u64) -> String| {
        if random(chance) == 0 {
            let _ = write!(text, " {name} {}", value(random(any)));
            if random(3) == 0 {
                let _ = write!(text, " m {}", value(random(any)));
            }
        }
    };
    let short = |n: u64| (n & 0xffff).to_string();
    let byte = |n: u64| (n & 0xff).to_string();
    if kind == FlowType::Ether {
        add(&mut text, "src", 2, &mac);
        add(&mut text, "dst", 2, &mac);
        add(&mut text, "proto", 2, &|n| format!("{:#x}", n & 0xffff));
    } else if kind.is_ipv4() {
        add(&mut text, "src-ip", 2, &ip4);
        add(&mut text, "dst-ip", 2, &ip4);
        add(&mut text, "tos", 4, &byte);
    } else {
        add(&mut text, "src-ip", 2, &ip6);
        add(&mut text, "dst-ip", 2, &ip6);
        add(&mut text, "tclass", 4, &byte);
    }
    match kind {
        FlowType::Ip4 | FlowType::Ip6 => {
            add(&mut text, "l4proto", 3, &byte);
            add(&mut text, "l4data", 3, &|n| format!("{:#x}", n as u32));
        }
        FlowType::Ah4 | FlowType::Esp4 | FlowType::Ah6 | FlowType::Esp6 => {
            add(&mut text, "spi", 2, &|n| (n as u32).to_string());
        }
        FlowType::Ether => {}
        _ => {
            add(&mut text, "src-port", 2, &short);
            add(&mut text, "dst-port", 2, &short);
        }
    }
    add(&mut text, "vlan", 4, &|n| format!("{:#x}", n & 0xffff));
    add(&mut text, "vlan-etype", 6, &|n| format!("{:#x}", n & 0xffff));
    add(&mut text, "user-def", 5, &|n| format!("{n:#x}"));
    if kind != FlowType::Ether {
        add(&mut text, "dst-mac", 6, &mac);
    }
    text += &match random(8) {
        0 => " action -1".to_owned(),
        1 => " action -2".to_owned(),
        2 => format!(" vf {} queue {}", random(255), random(64)),
        3 => format!(" context {} queue {}", random(1000), random(64)),
        4 => format!(" context {}", random(1000)),
        5 => String::new(),
        _ => format!(" action {}", random(64)),
    };
    text
}

/// What ethtool says about a rule that was refused. Its exit status is 0 also then (ethtool 6.1).
fn refusal(output: &Output) -> Option<String> {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success() || !said.is_empty()).then_some(said)
}

fn rule(text: &str) -> Rule {
    parse("generated", text).unwrap().remove(0)
}

fn flowyard_passes_the_bytes_that_ethtool_passes() {
    let mut random = Rng::new(18);
    let texts: Vec<String> = (0..RULES)
        .map(|n| {
            let text = generated(&mut random);
            // Every third rule leaves the location to the driver.
            if n % 3 == 0 { text } else { format!("{text} loc {n}") }
        })
        .collect();
    let (theirs, ours) = (Fake::new("any"), Fake::new("any"));
    for text in &texts {
        let output = theirs.ethtool_add(text);
        assert_eq!(refusal(&output), None, "{text}");
    }
    let printed = ours.flowyard(&["add"], &texts.join("\n"));
    assert!(!printed.contains("error"), "{printed}");
    let meant = |fake: &Fake| -> Vec<Request> {
        let bytes = fake.file("passed");
        let all = bytes.as_chunks::<SIZE>().0.iter();
        all.map(|bytes| Request::from_bytes(*bytes).meant()).collect()
    };
    let (theirs_passed, ours_passed) = (meant(&theirs), meant(&ours));
    assert_eq!((theirs_passed.len(), ours_passed.len()), (RULES, RULES));
    for ((text, theirs), ours) in texts.iter().zip(&theirs_passed).zip(&ours_passed) {
        assert_eq!(theirs, ours, "{text}");
    }
    // Both read all of them, and see the same.
    assert_eq!(theirs.file("rules"), ours.file("rules"));
    assert_eq!(theirs.flowyard(&["list"], ""), ours.flowyard(&["list"], ""));
}

/// Rules that the three models take, in part.
const OF_MODELS: [&str; 12] = [
    "flow-type tcp4 src-ip 10.0.0.1 dst-ip 10.0.0.2 src-port 1000 dst-port 80 action 3 loc 1",
    "flow-type tcp4 src-ip 10.0.0.1 dst-ip 10.0.0.2 src-port 1001 dst-port 80 action 4",
    "flow-type tcp4 src-ip 10.0.0.1 dst-ip 10.0.0.2 src-port 1001 dst-port 80 action 4 loc 9",
    "flow-type udp4 src-ip 10.0.0.1 dst-ip 10.0.0.2 src-port 53 dst-port 53 action -1 loc 3",
    "flow-type tcp4 dst-port 443 action 5 loc 4",
    "flow-type sctp4 src-ip 10.0.0.1 dst-ip 10.0.0.3 src-port 5 dst-port 6 action 2 loc 5",
    "flow-type tcp6 src-ip 2001:db8::1 dst-ip 2001:db8::2 src-port 7 dst-port 8 action 1 loc 6",
    "flow-type ip4 src-ip 10.0.0.9 action 1 loc 7",
    "flow-type ether dst 02:00:00:00:00:01 proto 0x88cc action 1 loc 8",
    "flow-type udp4 src-ip 10.0.0.1 m 0.0.0.255 dst-port 99 action 2 loc 10",
    "flow-type esp4 spi 9 action 2 loc 11",
    "flow-type tcp4 src-ip 10.0.0.1 dst-ip 10.0.0.2 src-port 1002 dst-port 80 action 4 loc 100000",
];

fn each_reads_the_rules_of_the_other() {
    for model in ["ixgbe", "i40e", "ice"] {
        let (theirs, ours) = (Fake::new(model), Fake::new(model));
        let taken: Vec<&str> = OF_MODELS
            .into_iter()
            .filter(|text| refusal(&theirs.ethtool_add(text)).is_none())
            .collect();
        assert!((3..OF_MODELS.len()).contains(&taken.len()), "{model}: {taken:?}");
        ours.flowyard(&["add"], &taken.join("\n"));
        assert_eq!(theirs.file("rules"), ours.file("rules"), "{model}");
        // ethtool prints what flowyard has installed as it prints its own rules.
        let print =
            |fake: &Fake| String::from_utf8(fake.ethtool(&["-n", INTERFACE]).stdout).unwrap();
        let printed = print(&ours);
        assert_eq!(print(&theirs), printed, "{model}");
        assert!(printed.contains(&format!("Total {} rules", taken.len())), "{model}: {printed}");
        // flowyard reads what ethtool has installed.
        let listed = theirs.flowyard(&["list"], "");
        let size = if model == "ixgbe" { 2046 } else { 0 };
        for text in taken {
            let want = Rule { line: 0, text: String::new(), ..rule(text) };
            let found = listed.lines().map(rule).any(|rule| {
                let loc = want.loc.or(rule.loc);
                Rule { line: 0, text: String::new(), ..rule } == Rule { loc, ..want.clone() }
            });
            assert!(found, "{model}: {text}\n{listed}");
        }
        if size > 0 {
            assert!(listed.contains("loc 2045"), "the highest free location: {listed}");
        }
    }
}

fn a_driver_refuses_both_alike() {
    for model in ["ixgbe", "i40e", "ice"] {
        let (theirs, ours) = (Fake::new(model), Fake::new(model));
        for text in OF_MODELS {
            let said = refusal(&theirs.ethtool_add(text));
            let answer = ours.flowyard(&["add"], text);
            assert_eq!(said.is_some(), answer.starts_with("error"), "{model}: {text}");
            let said = said.unwrap_or_default();
            for (errno, words) in [(95, "not supported"), (22, "Invalid argument")] {
                let same = answer.trim() == format!("error {errno}");
                assert_eq!(same, said.contains(words), "{model}: {text}: {said}{answer}");
            }
        }
    }
}

fn each_deletes_the_rules_of_the_other() {
    let fake = Fake::new("ice");
    assert_eq!(refusal(&fake.ethtool_add(OF_MODELS[0])), None);
    assert_eq!(fake.flowyard(&["add"], OF_MODELS[3]).trim(), "3");
    fake.flowyard(&["delete", "1"], "");
    assert!(fake.ethtool(&["-N", INTERFACE, "delete", "3"]).status.success());
    assert_eq!(fake.flowyard(&["list"], ""), "");
    assert!(!fake.ethtool(&["-N", INTERFACE, "delete", "3"]).status.success());
}
