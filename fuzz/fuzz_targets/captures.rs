#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowyard_fuzz::captures(bytes));
