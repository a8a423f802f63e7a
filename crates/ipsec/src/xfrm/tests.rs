use proptest::prelude::*;

use super::*;
use crate::sa::{Encap, Flags, Limits, Mode};
use crate::spd::{Direction, Template, Verdict};
use crate::suite::Suite;

/// The output of `ip -s xfrm state` of iproute2 6.1.
const STATES: &str = "\
src 192.0.2.1 dst 192.0.2.2
\tproto esp spi 0x00001000(4096) reqid 1(0x00000001) mode tunnel
\treplay-window 0 seq 0x00000000 flag decap-dscp af-unspec esn (0x00900000)
\taead rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 (160 bits) 128
\tencap type espinudp sport 4500 dport 4501 addr 0.0.0.0
\tanti-replay esn context:
\t seq-hi 0x1, seq 0x2, oseq-hi 0x3, oseq 0x4
\t replay_window 128, bitmap-length 4
\t 00000000 00000000 00000000 deadbeef 
\tlifetime config:
\t  limit: soft (INF)(bytes), hard 5000(bytes)
\t  limit: soft 900(packets), hard 1000(packets)
\t  expire add: soft 0(sec), hard 0(sec)
\t  expire use: soft 0(sec), hard 0(sec)
\tlifetime current:
\t  0(bytes), 0(packets)
\t  add 2026-11-20 10:00:00 use -
\tstats:
\t  replay-window 7 replay 0 failed 0
src fd00::1 dst fd00::2
\tproto esp spi 0x00001001 reqid 0 mode transport
\treplay-window 32
\taead rfc7539esp(chacha20,poly1305) 0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20212223 128
\tanti-replay context: seq 0x7, oseq 0x9, bitmap 0x0000007f
\tsel src ::/0 dst ::/0 
";

const POLICIES: &str = "\
src 10.1.0.0/16 dst 10.2.0.0/16 uid 0
\tdir out action allow index 0x61 priority 367231 share any flag  (0x00000000)
\tlifetime config:
\t  limit: soft (INF)(bytes), hard (INF)(bytes)
\tlifetime current:
\t  0(bytes), 0(packets)
\t  add 2026-11-20 10:00:00 use -
\ttmpl src 192.0.2.1 dst 192.0.2.2
\t\tproto esp spi 0x00000000(0) reqid 1(0x00000001) mode tunnel
\t\tlevel required share any 
\t\tenc-mask ffffffff auth-mask ffffffff comp-mask ffffffff
src 0.0.0.0/0 dst 10.9.0.1 proto tcp sport 1 dport 2 
\tdir fwd action block priority 5 ptype main 
src ::/0 dst ::/0 
\tsocket in priority 0 ptype main 
src fd00::/8 dst ::/0 proto ipv6-icmp 
\tdir in priority 0 ptype main 
";

#[test]
fn states_are_read() {
    let all = states(STATES).unwrap();
    let first = &all[0];
    assert_eq!(
        (first.src, first.dst),
        ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap())
    );
    assert_eq!((first.spi, first.reqid, first.mode, first.line), (0x1000, 1, Mode::Tunnel, 1));
    assert_eq!((first.suite, first.key.len()), (Suite::AesGcm128, 20));
    assert_eq!((first.is_extended, first.window), (true, 128));
    assert_eq!(first.encap, Some(Encap { sport: 4500, dport: 4501 }));
    assert_eq!((first.seq, first.oseq), (0x1_0000_0002, 0x3_0000_0004));
    let limits = Limits { soft_packets: 900, hard_packets: 1000, hard_bytes: 5000, ..Limits::NONE };
    assert_eq!(first.limits, limits);
    assert_eq!(first.flags, Flags { decap_dscp: true, ..Flags::default() });
    let second = &all[1];
    assert_eq!((second.suite, second.mode), (Suite::ChaCha20Poly1305, Mode::Transport));
    assert_eq!((second.is_extended, second.window, second.seq, second.oseq), (false, 32, 7, 9));
    assert_eq!(all.len(), 2);
}

#[test]
fn policies_are_read() {
    let all = policies(POLICIES).unwrap();
    let template = Template {
        src: "192.0.2.1".parse().ok(),
        dst: "192.0.2.2".parse().ok(),
        spi: 0,
        reqid: 1,
        mode: Mode::Tunnel,
    };
    let seen: Vec<_> = all.iter().map(|p| (p.direction, p.verdict, p.priority, p.line)).collect();
    let wanted = [
        (Direction::Out, Verdict::Protect(template), 367_231, 1),
        (Direction::Forward, Verdict::Discard, 5, 12),
        (Direction::In, Verdict::Bypass, 0, 16),
    ];
    assert_eq!(seen, wanted);
    let second = all[1].selector;
    assert_eq!((second.proto, second.sport, second.dport), (Some(6), Some(1), Some(2)));
    assert_eq!(second.dst, "10.9.0.1/32".parse().unwrap());
    assert_eq!(all[2].selector.proto, Some(58));
}

/// A change to the first record, and the error that it gives.
#[test]
fn what_is_not_implemented_is_an_error_with_its_line() {
    let key = "0x000102030405060708090a0b0c0d0e0f10111213";
    let changes = [
        ("proto esp", "proto ah", 2, "the protocol 'ah' is not implemented"),
        ("mode tunnel", "mode beet", 2, "the mode 'beet' is not implemented"),
        ("spi 0x00001000", "spi 0x0000001f", 1, "no 'spi' of at least 256"),
        (" 128\n\tencap", " 96\n\tencap", 4, "less than 128 bits is not implemented"),
        ("aead rfc4106(gcm(aes))", "enc cbc(aes)", 4, "'enc' is not implemented: only AEADs are"),
        ("rfc4106(gcm(aes))", "rfc4543(gcm(aes))", 4, "the algorithm is not implemented"),
        (key, "0x0001", 4, "key material of 2 bytes does not fit"),
        (key, "0x000102030405060708090a0b0c0d0e0f1011121314151617", 4, "key material of 24 bytes"),
        (
            key,
            "0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b",
            4,
            "192 bits is not implemented",
        ),
        (key, "0x00010203040506070809+a0b0c0d0e0f10111213", 4, "not readable"),
        ("espinudp", "espintcp", 5, "this encapsulation is not implemented"),
        ("replay_window 128", "replay_window 4097", 1, "larger than 4096"),
        ("flag decap-dscp", "mark 0x1/0xffffffff", 3, "'mark' is not implemented"),
        ("mode tunnel", "mode transport", 1, "transport mode with UDP encapsulation"),
        ("af-unspec esn", "af-unspec", 1, "more than 32 bits and no flag 'esn'"),
        ("src 192.0.2.1 dst 192.0.2.2", "src 192.0.2.1 dst fd00::2", 1, "different families"),
        ("hard 5000(bytes)", "hard 5000(sec)", 11, "limit is not readable"),
    ];
    for (from, to, line, what) in changes {
        assert!(STATES.contains(from), "{from}");
        let error = states(&STATES.replacen(from, to, 1)).unwrap_err();
        assert!(error.line == line && error.what.contains(what), "{from} -> {to}: {error}");
        assert!(!error.to_string().contains("0001020304"), "a key is printed: {error}");
    }
    let twice = format!("{STATES}{STATES}");
    assert!(states(&twice).unwrap_err().what.contains("line 1 has an SA with SPI 0x00001000"));
    let policies_of =
        |from: &str, to: &str| policies(&POLICIES.replacen(from, to, 1)).unwrap_err().to_string();
    assert!(
        policies_of("level required", "level use")
            .contains("line 10: a template that is not required")
    );
    assert!(policies_of("dir out", "dir up").contains("line 2: 'up' is not a direction"));
    assert!(policies_of("tmpl src 192.0.2.1", "tmpl src 0.0.0.0").contains("has no addresses"));
    assert!(policies(" dir out").unwrap_err().what.contains("a record starts"));
}

#[test]
fn keys_are_not_printed() {
    let printed = format!("{:?}", states(STATES).unwrap());
    assert!(printed.contains("hidden") && !printed.contains("1, 2, 3, 4"), "{printed}");
}

proptest! {
    #[test]
    fn any_text_is_handled(lines in prop::collection::vec(0..60_usize, 0..40), noise in "[ -~\\n\\t]{0,200}") {
        // Lines of the samples in any order, and noise.
        let all: Vec<_> = STATES.lines().chain(POLICIES.lines()).collect();
        let mixed: String = lines.iter().map(|at| format!("{}\n", all[at % all.len()])).collect();
        for text in [mixed, noise] {
            let _ = (states(&text), policies(&text));
        }
    }
}
