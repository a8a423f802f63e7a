//! The settings of a real port's RSS decide, and the key is always stated.

use std::fmt::Write as _;

use crate::common::{good, json, refused, run};
use serde_json::Value;

flowyard_testkit::tests! {
    the_key_is_stated_and_a_test_key_is_warned_of,
    the_settings_of_a_real_port_decide,
    settings_that_cannot_be_used_are_refused,
}

const FLOW: &str = "tcp 10.0.0.1:40000 > 10.0.0.2:11211";

/// A key that is neither Microsoft's nor symmetric.
fn key() -> Vec<u8> {
    (0..40_u8).map(|i| i.wrapping_mul(17).wrapping_add(3)).collect()
}

/// What ethtool prints of a port with 8 queues and this key; entry i of the table has the queue (i + 3) % 8.
fn printed() -> String {
    let mut text = "RX flow hash indirection table for eth0 with 8 RX ring(s):\n".to_owned();
    for first in (0..128).step_by(8) {
        write!(text, "{first:5}: ").unwrap();
        (first..first + 8).for_each(|i| write!(text, " {:5}", (i + 3) % 8).unwrap());
        text.push('\n');
    }
    let key: Vec<_> = key().iter().map(|byte| format!("{byte:02x}")).collect();
    text + &format!(
        "RSS hash key:\n{}\nRSS hash function:\n    toeplitz: on\n    xor: off\n    crc32: off\n\
         UDP over IPV4 flows use these fields for computing Hash flow key:\nIP SA\nIP DA\n\
         L4 bytes 0 & 1 [TCP/UDP src port]\nL4 bytes 2 & 3 [TCP/UDP dst port]\n\n",
        key.join(":")
    )
}

fn the_key_is_stated_and_a_test_key_is_warned_of() {
    let text = good(&run(["explain", FLOW]));
    assert!(text.contains("RSS key: Microsoft's published test key\n  6d5a56da255b"), "{text}");
    assert!(text.contains("--rss-from FILE"), "{text}");
    let value = json(["explain", FLOW, "--json"]);
    assert_eq!(value["rss_key_source"], "Microsoft's published test key");
    assert_eq!(value["notes"].as_array().unwrap().len(), 1);
    let text = good(&run(["analyze", "captures/yard.pcap", "--policy", "rss"]));
    assert!(text.contains("RSS key: Microsoft's published test key, 6d5a56da255b"), "{text}");
    assert!(text.contains("--rss-from FILE"), "{text}");
    // An adapter without RSS has no key.
    let value = json(["explain", FLOW, "--adapter", "none", "--json"]);
    assert_eq!((&value["rss_key"], &value["notes"]), (&Value::Null, &Value::Array(vec![])));
}

fn the_settings_of_a_real_port_decide() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("eth0.rss");
    std::fs::write(&file, printed()).unwrap();
    let file = file.to_str().unwrap();
    for flow in [FLOW, "udp 10.0.0.1:40000 > 10.0.0.2:11211"] {
        let value = json(["explain", flow, "--rss-from", file, "--json"]);
        assert_eq!(value["queues"], 8, "as the file says");
        assert_eq!(value["rss_key_source"], format!("read from {file}"));
        assert_eq!(value["notes"], Value::Array(vec![]));
        let rss = &value["policies"]["rss"];
        let queue = (rss["index"].as_u64().unwrap() + 3) % 8;
        assert_eq!(rss["queue"], queue);
        // The same hash as with the key by itself; UDP ports are hashed, which ixgbe does not do by default.
        let key: String = key().iter().map(|byte| format!("{byte:02x}")).collect();
        let by_hand = json(["explain", flow, "--rss-key", &key, "--udp", "4-tuple", "--json"]);
        assert_eq!(rss["hash"], by_hand["policies"]["rss"]["hash"]);
    }
    let text = good(&run(["analyze", "captures/yard.pcap", "--rss-from", file]));
    assert!(text.contains(&format!("RSS key: read from {file}, 0314")), "{text}");
    assert!(!text.contains("--rss-from FILE"), "{text}");
}

fn settings_that_cannot_be_used_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("eth0.rss");
    std::fs::write(&file, printed()).unwrap();
    let name = file.to_str().unwrap().to_owned();
    let line = refused(&run(["explain", FLOW, "--rss-from", &name, "--rss-key", "symmetric"]));
    assert!(line.contains("--rss-from has a key, too"), "{line}");
    let line = refused(&run(["explain", FLOW, "--rss-from", &name, "--adapter", "x710"]));
    assert!(line.contains("has 128 entries; this adapter needs 512"), "{line}");
    // The key of another adapter than the default one: the user did not name x520.
    let long = format!("{}:{}", ["03"; 12].join(":"), "03:14:25:36");
    std::fs::write(&file, printed().replacen("03:14:25:36", &long, 1)).unwrap();
    let line = refused(&run(["explain", FLOW, "--rss-from", &name]));
    for part in ["a key of 52 bytes", "the default adapter x520", "--adapter"] {
        assert!(line.contains(part), "{part} in {line}");
    }
    let short = printed()
        .lines()
        .filter(|line| {
            !line.starts_with("  ")
                || line.trim_start().starts_with("0:")
                || line.trim_start().starts_with("8:")
                || line.contains("xor")
                || line.contains("toeplitz")
        })
        .fold(String::new(), |text, line| text + line + "\n");
    std::fs::write(&file, short).unwrap();
    let line = refused(&run(["explain", FLOW, "--rss-from", &name]));
    assert!(line.contains("16 entries") && line.contains("--adapter"), "{line}");
    std::fs::write(&file, "hello\n").unwrap();
    let line = refused(&run(["explain", FLOW, "--rss-from", &name]));
    assert!(line.starts_with(&format!("{name}:1: this is not the output of ethtool -x")), "{line}");
    let line = refused(&run(["explain", FLOW, "--rss-from", "/nowhere/eth0.rss"]));
    assert!(line.contains("/nowhere/eth0.rss: No such file"), "{line}");
}
