//! Exact-match filters for the firmware 'steer', which the host puts into the firmware's table before the
//! start.

use crate::elf::Image;

const BUCKETS: u32 = 1024;
const PROBES: u32 = 8;

/// A filter: the flow, and the queue that its frames go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// IPv4 source address.
    pub src: [u8; 4],
    /// IPv4 destination address.
    pub dst: [u8; 4],
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// The return ring.
    pub queue: u32,
}

/// Why a filter cannot be installed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SteerError {
    /// The firmware has no filter table.
    #[error("this firmware has no symbol 'filters': exact-match filters need --firmware steer")]
    NoTable,
    /// All buckets that could hold the filter are occupied.
    #[error("filter {0}: the eight buckets that could hold it are occupied; install fewer filters")]
    Full(usize),
}

/// The filter that sends the generated flow `flow` (see `device::net`) to `queue`.
pub fn of_flow(flow: u32, queue: u32) -> Filter {
    let [a, b] = (flow as u16).to_be_bytes();
    Filter {
        src: [10, 0xc0, a, b],
        dst: [10, 1, 0, 1],
        src_port: 1024u16.wrapping_add(flow as u16),
        dst_port: 4791,
        queue,
    }
}

/// The first bucket of a filter, computed like the firmware's `bucket_of`.
fn bucket(src: u32, dst: u32, ports: u32) -> u32 {
    (src ^ dst.rotate_left(16) ^ ports).wrapping_mul(0x9e37_79b1) >> 22
}

/// The table with `filters` for `engine::Parts::preload`: byte address and words.
///
/// # Errors
/// [`SteerError`].
pub fn table(image: &Image, filters: &[Filter]) -> Result<(u32, Vec<u32>), SteerError> {
    let addr = image.symbol_addr("filters").ok_or(SteerError::NoTable)?;
    let mut words = vec![0u32; (BUCKETS * 4) as usize];
    for (number, filter) in filters.iter().enumerate() {
        let (src, dst) = (u32::from_le_bytes(filter.src), u32::from_le_bytes(filter.dst));
        let [a, b] = filter.src_port.to_be_bytes();
        let [c, d] = filter.dst_port.to_be_bytes();
        let ports = u32::from_le_bytes([a, b, c, d]);
        let first = bucket(src, dst, ports);
        let places = (0..PROBES).map(|n| (4 * ((first + n) & (BUCKETS - 1))) as usize);
        let at = places.into_iter().find(|&at| words[at + 3] == 0);
        let at = at.ok_or(SteerError::Full(number))?;
        words[at..at + 4].copy_from_slice(&[src, dst, ports, filter.queue + 1]);
    }
    Ok((addr, words))
}
