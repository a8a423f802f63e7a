//! Rules (rte_flow) of net_tap, in a guest whose kernel has what the driver makes of them: filters of tc.
//!
//! ```text
//! FLOWYARD_LIVE=1 cargo test -p flowyard-dpdk --features dpdk --test tap -- --nocapture
//! ```
//!
//! This program runs in the guest, too, with the argument `--inside` (module `inside`): it opens a net_tap, makes
//! rules, sends datagrams to the interface by the guest's kernel, and says by which queue each came.

mod guest;
mod inside;

fn main() -> std::process::ExitCode {
    if std::env::args().nth(1).as_deref() == Some("--inside") {
        return inside::main();
    }
    flowyard_testkit::harness::run(guest::tests())
}
