//! ethtool's flow types, and the fields that they hash.

/// ethtool's flow types, by name and number.
pub(crate) const FLOW_TYPES: [(&str, u32); 8] = [
    ("ipv4", 0x10),
    ("tcp4", 1),
    ("udp4", 2),
    ("sctp4", 3),
    ("ipv6", 0x11),
    ("tcp6", 5),
    ("udp6", 6),
    ("sctp6", 7),
];

/// The number of a flow type.
pub(crate) fn flow_type(name: &str) -> Option<u32> {
    FLOW_TYPES.iter().find(|(other, _)| *other == name).map(|(_, number)| *number)
}

/// Bits `RXH_*` and ethtool's letters for them.
const LETTERS: [(u64, char); 10] = [
    (1 << 1, 'm'),
    (1 << 2, 'v'),
    (1 << 3, 't'),
    (1 << 4, 's'),
    (1 << 5, 'd'),
    (1 << 6, 'f'),
    (1 << 7, 'n'),
    (1 << 8, 'e'),
    (1 << 9, 'l'),
    (1 << 31, 'r'),
];

/// Hashed fields in ethtool's letters.
pub(crate) fn letters(bits: u64) -> String {
    let set = LETTERS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, letter)| *letter);
    let text: String = set.collect();
    if text.is_empty() { "nothing".to_owned() } else { text }
}

/// The bits of hashed fields in ethtool's letters; `None` if a letter has no meaning.
pub(crate) fn fields_of(text: &str) -> Option<u64> {
    if text == "nothing" {
        return Some(0);
    }
    let bit = |letter| LETTERS.iter().find(|(_, other)| *other == letter).map(|(bit, _)| *bit);
    text.chars().try_fold(0, |bits, letter| Some(bits | bit(letter)?))
}
