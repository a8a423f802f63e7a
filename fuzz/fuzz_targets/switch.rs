//! libFuzzer's way into [`flowyard_fuzz::switch`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowyard_fuzz::switch(data));
