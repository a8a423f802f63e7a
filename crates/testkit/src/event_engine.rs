//! The engine "eventdev" in the configurations of tests, over the software device of DPDK.
//!
//! Thread-safety: each thread that runs tests has a device of its own.

use std::sync::atomic::{AtomicU32, Ordering};

/// Options of DPDK's environment for all tests of a process, which can start DPDK once.
pub const OPTIONS: [&str; 3] = ["--no-huge", "-m", "384"];

/// The number of devices that threads get; a process can have 16 event devices.
const DEVICES: u32 = 14;

/// `text`, the configuration of a yard, with the engine "eventdev" over the device of this thread.
#[must_use]
pub fn over_device(text: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static DEVICE: u32 = NEXT.fetch_add(1, Ordering::Relaxed) % DEVICES);
    let device = DEVICE.with(|device| *device);
    let lines = format!("[yard]\nengine = \"eventdev\"\nevent_device = \"event_sw{device}\"");
    let text = if text.contains("[yard]") {
        text.replacen("[yard]", &lines, 1)
    } else {
        format!("{lines}\n{text}")
    };
    if text.contains("[dpdk]") {
        return text;
    }
    format!("{text}\n[dpdk]\noptions = {OPTIONS:?}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_written_into_the_section_of_the_yard() {
        let end = "\n[dpdk]\noptions = [\"--no-huge\", \"-m\", \"384\"]\n";
        let text = over_device("[yard]\ncores = 2");
        let device = text.split('"').nth(3).unwrap().to_owned();
        assert!(device.starts_with("event_sw"), "{text}");
        let yard = format!("[yard]\nengine = \"eventdev\"\nevent_device = \"{device}\"\n");
        assert_eq!(text, format!("{yard}cores = 2{end}"));
        assert_eq!(over_device("a = 1"), format!("{yard}a = 1{end}"), "the same thread");
        assert_eq!(over_device("[yard]\n[dpdk]"), format!("{yard}[dpdk]"));
        let other = std::thread::spawn(|| over_device("[yard]\n")).join().unwrap();
        assert!(!other.starts_with(&yard), "another thread: {other}");
    }
}
