//! Parts of a port as words, for texts and for documents.

use flowyard_openflow::port::{Port, Text};

/// The text in a field of fixed size.
pub(in crate::switch) fn text<const N: usize>(text: &Text<N>) -> String {
    let end = text.0.iter().position(|byte| *byte == 0).unwrap_or(N);
    String::from_utf8_lossy(&text.0[..end]).replace(char::is_control, " ")
}

/// Bits of the configuration of a port.
pub(in crate::switch) const CONFIG: &[(u32, &str)] = &[
    (1, "PORT_DOWN"),
    (4, "NO_RECV"),
    (0x10, "NO_FLOOD"),
    (0x20, "NO_FWD"),
    (0x40, "NO_PACKET_IN"),
];
/// Bits of the state of a port.
pub(in crate::switch) const STATE: &[(u32, &str)] =
    &[(1, "LINK_DOWN"), (2, "BLOCKED"), (4, "LIVE")];

/// The names of the bits that are set.
pub(in crate::switch) fn bits(value: u32, names: &[(u32, &'static str)]) -> Vec<&'static str> {
    names.iter().filter(|(bit, _)| value & bit != 0).map(|(_, name)| *name).collect()
}

/// A MAC address as text.
pub(in crate::switch) fn mac(address: &[u8; 6]) -> String {
    let pairs: Vec<String> = address.iter().map(|byte| format!("{byte:02x}")).collect();
    pairs.join(":")
}

/// The current speed of a port in Mbit/s; 0 if it is not known.
pub(in crate::switch) fn speed(port: &Port) -> u32 {
    port.ethernet.map_or(0, |words| words[4] / 1000)
}
