//! Comparison with os-ken: its own test vectors (Apache-2.0, inside its Python package) and its codec.
//!
//! `FLOWYARD_OS_KEN_PYTHON`, or else `python3`, must be able to import os-ken (`pip install os-ken`).

use std::io::Write;
use std::process::{Command, Stdio};

use flowyard_openflow::{Message, Version, decode, encode, make, problem};
use flowyard_testkit::harness::{self, Need};

flowyard_testkit::tests! {
    vectors_decode_and_encode_to_the_same_bytes needs [Need::OsKen],
    os_ken_encodes_random_messages_to_the_same_bytes needs [Need::OsKen],
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let pair = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap_or(0);
    (0..text.len() / 2).map(|at| pair(at * 2)).collect()
}

/// A name and a message.
type Vector = (String, Vec<u8>);

/// Passes these messages to the script. Returns the script's vectors, and an answer to each
/// message.
fn ask(messages: &[Vec<u8>]) -> (Vec<Vector>, Vec<String>) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/main/ask_os_ken.py");
    let mut command = Command::new(harness::os_ken_python());
    command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines: Vec<String> = messages.iter().map(|wire| hex(wire)).collect();
    let mut stdin = child.stdin.take().unwrap();
    let feed = std::thread::spawn(move || {
        // The script may exit before it has read everything.
        let _ = stdin.write_all((lines.join("\n") + "\n").as_bytes());
    });
    let output = child.wait_with_output().unwrap();
    feed.join().unwrap();
    assert!(output.status.success(), "{}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    let (vectors, answers) = text.split_once("end\n").unwrap();
    let vector = |line: &str| {
        let (name, wire) = line.strip_prefix("vector ")?.split_once(' ')?;
        Some((name.to_owned(), unhex(wire)))
    };
    let vectors = vectors.lines().filter_map(vector).collect();
    (vectors, answers.lines().map(str::to_owned).collect())
}

/// Each vector is decoded and encoded to the same bytes. Vectors with Nicira's extensions are
/// refused.
fn vectors_decode_and_encode_to_the_same_bytes() {
    let (vectors, _) = ask(&[]);
    assert!(vectors.len() > 100, "{}", vectors.len());
    let (mut same, mut refused) = (0, Vec::new());
    let mut wrong = Vec::new();
    for (name, wire) in &vectors {
        let (_, message) = match decode(wire) {
            Ok(found) => found,
            Err(rejected) => {
                refused.push((name, rejected.problem));
                continue;
            }
        };
        let version = Version::of(wire[0]).unwrap();
        let mut again = Vec::new();
        let done = encode(
            &message,
            version,
            u32::from_be_bytes([wire[4], wire[5], wire[6], wire[7]]),
            &mut again,
        );
        // In 1.0 several values of the wildcards have the same meaning, so the messages are
        // compared, not the bytes.
        let means = || wire[0] == 1 && decode(&again).map(|(_, m)| m) == Ok(message.clone());
        if done.is_ok() && (again == *wire || means()) {
            same += 1;
        } else {
            wrong.push(format!("{name} {done:?}\n {}\n {}\n {message:?}", hex(wire), hex(&again)));
        }
    }
    flowyard_testkit::note!("{same} same, {} refused", refused.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let known = |(name, problem): &(&String, problem::Problem)| {
        REFUSED.iter().any(|(known, why)| name.starts_with(known) && why == problem)
    };
    let new: Vec<_> = refused.iter().filter(|found| !known(found)).collect();
    assert!(new.is_empty(), "{new:#?}");
}

/// Vectors that this codec refuses, with the reason.
const REFUSED: &[(&str, problem::Problem)] = &[
    // Nicira's fields, which have other classes.
    ("of13/libofproto-OFP13-", problem::MATCH_BAD_FIELD),
    ("of13/ovs-ofctl-of13-", problem::MATCH_BAD_FIELD),
    // Actions that set the input port and metadata, which is not allowed.
    ("of13/4-12-ofp_flow_stats_reply", problem::ACTION_BAD_SET_TYPE),
    ("of13/4-2-ofp_flow_mod", problem::ACTION_BAD_SET_TYPE),
    // A field of an experimenter.
    ("of13/4-59-ofp_packet_in", problem::MATCH_BAD_FIELD),
    ("of13/4-60-ofp_flow_mod", problem::MATCH_BAD_FIELD),
    // Asynchronous messages of an experimenter.
    ("of14/5-41-ofp_get_async_reply", problem::ASYNC_UNSUPPORTED),
    ("of14/5-42-ofp_set_async", problem::ASYNC_UNSUPPORTED),
];

/// os-ken decodes random messages and encodes them to the same bytes.
fn os_ken_encodes_random_messages_to_the_same_bytes() {
    let mut sent: Vec<(Message, Vec<u8>)> = Vec::new();
    for version in Version::ALL {
        for seed in 0..400 {
            let message = make(version, seed).unwrap();
            let mut wire = Vec::new();
            if encode(&message, version, 9, &mut wire).is_ok() {
                sent.push((message, wire));
            }
        }
    }
    let wires: Vec<Vec<u8>> = sent.iter().map(|(_, wire)| wire.clone()).collect();
    let (_, answers) = ask(&wires);
    assert_eq!(answers.len(), sent.len());
    let mut counts = std::collections::BTreeMap::new();
    let mut other = Vec::new();
    for ((message, wire), answer) in sent.iter().zip(&answers) {
        let word = answer.split(' ').next().unwrap_or("");
        *counts.entry(word.to_owned()).or_insert(0) += 1;
        if word == "other" {
            other.push(format!("{answer}\n  {}\n  {message:?}", hex(wire)));
        }
    }
    flowyard_testkit::note!("{counts:?}");
    assert!(counts.get("same").is_some_and(|same| *same > 300), "{counts:?}");
    assert!(other.is_empty(), "{}", other.join("\n"));
}
