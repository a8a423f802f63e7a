//! The cases of os-ken's switch tester, without a channel: the flows, groups and meters of each case are
//! given directly to a data plane, which processes the frames; another data plane counts the frames sent.
//!
//! `FLOWYARD_OS_KEN_PYTHON`, or else `python3`, must be able to import os-ken 3 (`pip install
//! os-ken==3.1.1`).

use std::process::Command;

use flowyard_openflow::{Message, decode};
use flowyard_switch::{Lookup, Settings};
use flowyard_testkit::harness::{self, Need};

use crate::common::Switch;

flowyard_testkit::tests! {
    openflow_1_0 needs [Need::OsKen],
    openflow_1_3 needs [Need::OsKen],
    openflow_1_4 needs [Need::OsKen],
}

/// The ports of received and of expected frames.
const IN: u32 = 1;
const OUT: u32 = 2;

fn unhex(text: &str) -> Vec<u8> {
    let pair = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap_or(0);
    (0..text.len() / 2).map(|at| pair(at * 2)).collect()
}

fn message(text: &str) -> Message {
    decode(&unhex(text)).expect("os-ken's message").1
}

fn cases(version: &str) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/main/cases_os_ken.py");
    let mut command = Command::new(harness::os_ken_python());
    let output = command.arg(script).arg(version).output().expect("Python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the cases are UTF-8")
}

/// Runs a case. The error says what is wrong.
fn run(lines: &[&str], settings: &Settings) -> Result<(), String> {
    let mut switch = Switch::new(settings);
    let (mut frame, mut sent, mut load, mut wanted) = (Vec::new(), None, None, Vec::new());
    for line in lines {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "mod" => switch.change(&message(rest)),
            "in" => {
                frame = unhex(rest);
                // The first is answered by the tables, the second by the cache.
                let first = switch.frame(IN, &frame, 0);
                let second = switch.frame(IN, &frame, 0);
                if first != second {
                    return Err(format!("not the same the second time: {first:?}, {second:?}"));
                }
                sent = Some(second);
            }
            "out" => {
                let wanted = vec![(OUT, unhex(rest))];
                let got = sent.as_ref().map(|s| s.sent.clone()).unwrap_or_default();
                if got != wanted {
                    return Err(format!(
                        "in {frame:02x?}\n    out {got:02x?}\n wanted {wanted:02x?}"
                    ));
                }
            }
            "punt" => {
                let got = sent.as_ref().map(|s| s.punts.clone()).unwrap_or_default();
                if got != [unhex(rest)] {
                    return Err(format!("punts {got:02x?}"));
                }
            }
            "miss" => {
                for table in rest.split(' ').filter_map(|word| word.parse::<usize>().ok()) {
                    let (looked, matched, _) = switch.lookups[table][0].read();
                    if looked == 0 || matched != 0 {
                        return Err(format!("table {table}: {looked} lookups, {matched} matched"));
                    }
                }
            }
            "packets" => load = Some(rest),
            "through" => wanted.push(rest),
            _ => return Err(format!("'{line}'")),
        }
    }
    load.map_or(Ok(()), |load| through(&mut switch, load, &wanted))
}

/// Sends frames at a rate, and compares the rates that the flows of counting switches measure.
fn through(switch: &mut Switch, load: &str, wanted: &[&str]) -> Result<(), String> {
    let words: Vec<&str> = load.split(' ').collect();
    let (rate, seconds): (u64, u64) =
        (words[0].parse().map_err(|_| "rate")?, words[1].parse().map_err(|_| "time")?);
    let frames: Vec<Vec<u8>> = words[2..].iter().map(|word| unhex(word)).collect();
    let wanted: Vec<Vec<&str>> = wanted.iter().map(|line| line.split(' ').collect()).collect();
    let counter = |words: &Vec<&str>| {
        let mut counter = Switch::new(&Settings::default());
        counter.change(&message(words[2]));
        counter
    };
    let mut counters: Vec<Switch> = wanted.iter().map(counter).collect();
    let count = if frames.len() == 1 { rate * seconds } else { frames.len() as u64 };
    for number in 0..count {
        let now = 1_000_000_000 + number * 1_000_000_000 / rate;
        let frame = &frames[number as usize % frames.len()];
        for (port, bytes) in switch.frame(IN, frame, now).sent {
            counters.iter_mut().for_each(|one| drop(one.frame(port, &bytes, now)));
        }
    }
    let elapsed = count as f64 / rate as f64;
    for (words, counter) in wanted.iter().zip(&counters) {
        let (packets, bytes, _) = counter.first().counts[0].read();
        let (got, wanted) = match (words[0], words[1]) {
            ("-", pps) => (packets as f64 / elapsed, pps.parse::<f64>()),
            (kbps, _) => (bytes as f64 * 8.0 / 1000.0 / elapsed, kbps.parse::<f64>()),
        };
        let wanted = wanted.map_err(|error| error.to_string())?;
        if (got - wanted).abs() > wanted / 10.0 {
            return Err(format!("{got} a second, not {wanted}"));
        }
    }
    Ok(())
}

/// Checks that every case passes, except `count` cases of the `failing` files.
fn all(version: &str, of: usize, failing: &[&str], count: usize) {
    let text = cases(version);
    let lines: Vec<&str> = text.lines().collect();
    let cases: Vec<&[&str]> = lines.chunk_by(|_, next| !next.starts_with("case ")).collect();
    assert_eq!(cases.len(), of);
    for lookup in [Lookup::Merged, Lookup::Linear] {
        let settings = Settings { lookup, ..Settings::default() };
        let (mut wrong, mut known) = (Vec::new(), 0);
        for case in &cases {
            let load = case.iter().any(|line| line.starts_with("packets"));
            if load && lookup != Lookup::Merged {
                continue; // a rate does not depend on the lookup
            }
            let Err(why) = run(&case[1..], &settings) else { continue };
            if failing.iter().any(|file| case[0].contains(file)) {
                known += 1;
            } else {
                wrong.push(format!("{}\n    {why}", case[0]));
            }
        }
        assert!(wrong.is_empty(), "{} of {of} failed\n{}", wrong.len(), wrong.join("\n"));
        assert_eq!(known, count, "cases that are known to fail");
    }
}

/// os-ken computes the expected checksum over Python's text form of the bytes, so that no switch can
/// send it.
const SCTP: &[&str] = &["17_SCTP_SRC_IPv", "18_SCTP_DST_IPv"];

fn openflow_1_0() {
    all("of10", 192, &[], 0);
}

fn openflow_1_3() {
    all("of13", 991, SCTP, 16);
}

fn openflow_1_4() {
    all("of14", 1003, SCTP, 16);
}
