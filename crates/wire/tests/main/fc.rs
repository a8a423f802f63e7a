//! The CRC of Fibre Channel frames, against published values.

use flowyard_testkit::harness::{Need, shared};
use flowyard_wire::fc;

const VECTORS: &str = "vectors/offload_vectors.json";

flowyard_testkit::tests! {
    crc_of_the_catalogue,
    the_vectors needs [Need::Shared(VECTORS)],
}

/// CRC-32/ISO-HDLC's check value.
fn crc_of_the_catalogue() {
    assert_eq!(fc::crc(&[b"123456789"]), 0xcbf4_3926);
    assert_eq!(fc::crc(&[b"1234", b"", b"56789"]), 0xcbf4_3926, "pieces are one frame");
}

fn the_vectors() {
    let text = std::fs::read(shared(VECTORS)).expect("vectors");
    let json: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let vectors = json["crc32_ethernet_fc"]["vectors"].as_array().expect("a list");
    for vector in vectors {
        let mut bytes: Vec<u8> = match (&vector["hex"], &vector["ascii"]) {
            (serde_json::Value::String(hex), _) => {
                let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
                (0..hex.len()).step_by(2).map(byte).collect()
            }
            (_, ascii) => ascii.as_str().expect("ascii").as_bytes().to_vec(),
        };
        if let Some(len) = vector["pad_to"].as_u64() {
            bytes = bytes.iter().copied().cycle().take(len as usize).collect();
        }
        assert_eq!(vector["crc"], format!("{:08x}", fc::crc(&[&bytes])), "{vector}");
    }
    assert_eq!(vectors.len(), 3);
}
