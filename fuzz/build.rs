//! Makes the programs call [`cost`](src/cost.rs) for each basic block that they execute.
//!
//! The compiler calls `__sanitizer_cov_trace_pc` if it gets the flag (`-sanitizer-coverage-trace-pc`, which
//! `cargo xtask ci fuzz` passes). libFuzzer defines this function and ends with an error in it, so the
//! linker gives the calls another name.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        println!("cargo::rustc-link-arg-bins=-Wl,--wrap=__sanitizer_cov_trace_pc");
    }
}
