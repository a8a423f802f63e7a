//! Limits shared by all captures.

/// Maximum number of captured bytes of a packet: 256 KiB, as in libpcap (`MAXIMUM_SNAPLEN`). This
/// is enough for segmentation offload and jumbograms; a larger value is a damaged length field.
pub const MAX_PACKET: usize = 262_144;
