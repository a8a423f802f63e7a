//! The engine "eventdev" in the configurations of tests. The programs `main` and `dpdk` share this file.

/// EAL options of all tests of a process: DPDK is started once in it.
pub(crate) const OPTIONS: [&str; 3] = ["--no-huge", "-m", "384"];

/// Whether DPDK starts with the options of the tests.
///
/// # Errors
/// Why it does not.
#[cfg(feature = "dpdk")]
pub(crate) fn dpdk_starts() -> Result<(), String> {
    let options = OPTIONS.map(str::to_owned);
    flowyard_dpdk::Eal::start(&options, &[]).map(drop).map_err(|error| error.what)
}

#[cfg(not(feature = "dpdk"))]
pub(crate) fn dpdk_starts() -> Result<(), String> {
    Err("the feature dpdk".into())
}

/// The number of the device event_sw of this thread: each thread that runs tests has a device of its own. A process can
/// have 16 event devices.
pub(crate) fn device() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};

    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static MINE: u32 = NEXT.fetch_add(1, Ordering::Relaxed) % 14);
    MINE.with(|device| *device)
}

/// `text` with the engine "eventdev" over the device of this thread.
pub(crate) fn over_device(text: &str) -> String {
    let words = OPTIONS.map(|option| format!("{option:?}")).join(", ");
    let device = device();
    let lines = format!("[yard]\nengine = \"eventdev\"\nevent_device = \"event_sw{device}\"");
    let text = if text.contains("[yard]") { text.to_owned() } else { format!("[yard]\n{text}") };
    let text = text.replacen("[yard]", &lines, 1);
    if text.contains("[dpdk]") { text } else { format!("{text}\n[dpdk]\noptions = [{words}]\n") }
}
