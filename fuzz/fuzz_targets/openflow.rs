//! libFuzzer's way into [`flowyard_fuzz::openflow`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowyard_fuzz::openflow(data));
