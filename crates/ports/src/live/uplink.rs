//! Detection of interfaces with the default route: a program that takes their frames may disconnect
//! the machine.
//!
//! The kernel lists its main routing tables as text (proc(5); kernel documentation, `ipv6_route`),
//! one route per line, for the network namespace of the calling thread.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[cfg(test)]
mod tests;

/// Flags of a route: usable, and rejecting (`linux/route.h`).
const UP: u32 = 0x0001;
const REJECT: u32 = 0x0200;

/// The default route through `interface`, if there is one: `0.0.0.0` or `::`.
///
/// Of an IPv4 multipath route the kernel lists only the first interface.
///
/// # Errors
/// When the kernel's tables cannot be read. A kernel without IPv6 has no IPv6 table; this is not an
/// error.
pub fn default_route(interface: &str) -> io::Result<Option<IpAddr>> {
    if four(&read("route")?).any(|name| name == interface) {
        return Ok(Some(Ipv4Addr::UNSPECIFIED.into()));
    }
    let six_found = six(&read("ipv6_route")?).any(|name| name == interface);
    Ok(six_found.then_some(Ipv6Addr::UNSPECIFIED.into()))
}

fn read(table: &str) -> io::Result<String> {
    match std::fs::read_to_string(format!("/proc/thread-self/net/{table}")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

/// Interfaces of IPv4 default routes. Columns: name, destination, gateway, flags, three counters,
/// mask, ...
fn four(table: &str) -> impl Iterator<Item = &str> {
    table.lines().skip(1).filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, to, flags) = (words.next()?, words.next()?, words.nth(1)?);
        let mask = words.nth(3)?;
        (all_zero(to) && all_zero(mask) && is_used(flags)).then_some(name)
    })
}

/// Interfaces of IPv6 default routes. Columns: destination, length, source, length, next hop,
/// metric, two counters, flags, name.
fn six(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (to, len, flags) = (words.next()?, words.next()?, words.nth(6)?);
        (all_zero(to) && all_zero(len) && is_used(flags)).then(|| words.next())?
    })
}

fn all_zero(hex: &str) -> bool {
    !hex.is_empty() && hex.bytes().all(|digit| digit == b'0')
}

fn is_used(flags: &str) -> bool {
    u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & UP != 0 && flags & REJECT == 0)
}
