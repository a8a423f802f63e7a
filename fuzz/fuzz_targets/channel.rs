//! libFuzzer's way into [`flowyard_fuzz::channel`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowyard_fuzz::channel(data));
