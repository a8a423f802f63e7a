//! Published values of checksums, from the shared vectors.

use flowyard_testkit::harness::{Need, shared};
use flowyard_wire::checksum::crc32c;
use serde_json::Value;

const VECTORS: &str = "vectors/offload_vectors.json";

flowyard_testkit::tests! {
    crc32c_has_the_published_values needs [Need::Shared(VECTORS)],
}

fn crc32c_has_the_published_values() {
    let text = std::fs::read_to_string(shared(VECTORS)).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let vectors = json["crc32c"]["vectors"].as_array().unwrap();
    for vector in vectors {
        let bytes = hex(vector["hex"].as_str().unwrap());
        let crc = crc32c(&[&bytes]);
        assert_eq!(format!("{crc:08x}"), vector["crc"].as_str().unwrap(), "{vector}");
        if let Some(wire) = vector["wire"].as_str() {
            assert_eq!(crc.to_le_bytes().to_vec(), hex(wire), "{vector}");
        }
        for cut in 0..bytes.len() {
            assert_eq!(crc32c(&[&bytes[..cut], &bytes[cut..]]), crc, "{vector} cut at {cut}");
        }
    }
    assert!(vectors.len() >= 6, "only {} vectors", vectors.len());
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().map(|c| c.to_digit(16).unwrap() as u8).collect();
    digits.as_chunks::<2>().0.iter().map(|[high, low]| high << 4 | low).collect()
}
