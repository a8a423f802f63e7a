//! Which engine the yards of a test have: tests of flowyard's own queues are also run over an event device.

use std::cell::Cell;

use flowyard_testkit::event_engine::over_device;
use flowyard_testkit::harness::Need;

/// DPDK starts here.
pub(crate) const DPDK: Need = Need::Check(dpdk_starts);

#[cfg(feature = "dpdk")]
fn dpdk_starts() -> Result<(), String> {
    let options = flowyard_testkit::event_engine::OPTIONS.map(str::to_owned);
    flowyard_dpdk::Eal::start(&options, &[]).map(drop).map_err(|error| error.what)
}

#[cfg(not(feature = "dpdk"))]
fn dpdk_starts() -> Result<(), String> {
    Err("the feature dpdk".into())
}

thread_local! {
    /// Whether the yards of this thread have an event device; otherwise their queues are flowyard's own.
    static HAS_DEVICE: Cell<bool> = const { Cell::new(false) };
}

/// `text`, with the engine of the test that runs on this thread.
pub(crate) fn engine(text: &str) -> String {
    if HAS_DEVICE.get() { over_device(text) } else { text.to_owned() }
}

/// Runs a test whose yards have an event device.
pub(crate) fn over(test: fn()) {
    /// Also after a panic, which other tests of the thread follow.
    struct Own;
    impl Drop for Own {
        fn drop(&mut self) {
            HAS_DEVICE.set(false);
        }
    }
    let _own = Own;
    HAS_DEVICE.set(true);
    test();
}
