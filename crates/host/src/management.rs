//! The connection that gives the command: that of SSH, or one of a process from which the command was started.
//!
//! ```text
//!  flowyard <── sudo <── bash <── sshd: SSH_CONNECTION in one of their environments,
//!                                       or a TCP socket among their descriptors, as /proc/net/tcp lists it
//! ```
//!
//! `sudo` removes `SSH_CONNECTION`, and agents that run commands never set it, so the processes are asked as well.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowyard_frame::{FlowKey, proto};

use crate::files;
use crate::machine::{Carried, Machine, Management};
use crate::sys;

/// No chain of parents is longer; processes may end and their numbers be used again while they are read.
const MOST_PARENTS: usize = 64;

/// How the machine is managed over the interface.
pub(crate) fn of(machine: &dyn Machine, interface: &str) -> Vec<Management> {
    let mut known = connections();
    // A connection to another network namespace, or through a proxy, does not tell over which interface it comes.
    let every: Vec<IpAddr> =
        crate::here::interfaces().iter().flat_map(|name| sys::addresses(name)).collect();
    let is_to =
        |flow: &FlowKey, some: &[IpAddr]| flow.dst_ip().is_some_and(|ip| some.contains(&ip));
    known.retain(|(_, flow)| is_to(flow, &every));
    let is_known = !known.is_empty();
    let mut mine = Vec::new();
    uppers(machine, interface, &mut mine);
    let mut addresses: Vec<IpAddr> = mine.iter().flat_map(|name| sys::addresses(name)).collect();
    // An address of the loopback interface can be reached over every other one.
    addresses.extend(sys::addresses("lo").into_iter().filter(|address| !address.is_loopback()));
    known.retain(|(_, flow)| is_to(flow, &addresses));
    let mut all: Vec<_> = known
        .into_iter()
        .map(|(what, flow)| Management { what, carried: Carried::Flow(flow) })
        .collect();
    let route = mine.iter().find_map(|name| match flowyard_ports::live::default_route(name) {
        Ok(Some(_)) => Some(format!("the default route is over {name}")),
        Ok(None) => None,
        Err(error) => Some(format!("the routes cannot be read ({error})")),
    });
    all.extend(route.map(|what| match is_known {
        true => Management { what, carried: Carried::Route },
        false => Management {
            what: what + ", and the connection that gives this command is not known",
            carried: Carried::AnyFlow,
        },
    }));
    all
}

/// The interface, and those above it: VLANs, bridges, bonds.
fn uppers(machine: &dyn Machine, interface: &str, all: &mut Vec<String>) {
    if all.iter().any(|name| name == interface) {
        return;
    }
    all.push(interface.to_owned());
    for name in machine.names(&files::folder(interface)).unwrap_or_default() {
        if let Some(upper) = name.strip_prefix("upper_") {
            uppers(machine, upper, all);
        }
    }
}

/// The connections of this process and its parents, with what they are.
fn connections() -> Vec<(String, FlowKey)> {
    let mut all: Vec<(String, FlowKey)> = Vec::new();
    let sockets = [("tcp", 4), ("tcp6", 16)].map(|(table, bytes)| {
        let path = format!("/proc/thread-self/net/{table}");
        established(&fs::read_to_string(path).unwrap_or_default(), bytes)
    });
    let sockets = sockets.concat();
    for pid in parents() {
        let environment = match pid == std::process::id() {
            true => std::env::var("SSH_CONNECTION").ok(),
            false => fs::read(format!("/proc/{pid}/environ")).ok().and_then(|text| of_ssh(&text)),
        };
        let mut found: Vec<_> = environment
            .and_then(|value| ssh_flow(&value))
            .map(|flow| (format!("the SSH connection {flow}"), flow))
            .into_iter()
            .collect();
        let owned = descriptors(pid).unwrap_or_default();
        for (_, flow) in sockets.iter().filter(|(inode, _)| owned.contains(inode)) {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            found
                .push((format!("the connection {flow} of {} (process {pid})", name.trim()), *flow));
        }
        for one in found {
            if !all.iter().any(|(_, flow)| *flow == one.1) {
                all.push(one);
            }
        }
    }
    all
}

/// This process, its parent, and so on.
fn parents() -> Vec<u32> {
    let mut all = vec![std::process::id()];
    while let Some(&last) = all.last()
        && all.len() < MOST_PARENTS
    {
        // The name is in parentheses and may contain anything; behind it are the state and the parent.
        let stat = fs::read_to_string(format!("/proc/{last}/stat")).unwrap_or_default();
        let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
        match behind.split_whitespace().nth(1).and_then(|parent| parent.parse().ok()) {
            Some(parent) if parent > 0 => all.push(parent),
            _ => break,
        }
    }
    all
}

/// The value of SSH_CONNECTION in the environment of another process.
fn of_ssh(environment: &[u8]) -> Option<String> {
    let value = |one: &[u8]| one.strip_prefix(b"SSH_CONNECTION=").map(<[u8]>::to_vec);
    String::from_utf8(environment.split(|byte| *byte == 0).find_map(value)?).ok()
}

/// The received direction of an SSH connection: the client's address and port, the server's address and port.
fn ssh_flow(value: &str) -> Option<FlowKey> {
    let words: Vec<_> = value.split(' ').collect();
    let [client, client_port, server, server_port] = words[..] else { return None };
    // A link-local address has the interface behind it.
    let ip = |text: &str| -> Option<IpAddr> { Some(plain(text.split('%').next()?.parse().ok()?)) };
    Some(FlowKey::five_tuple(
        proto::TCP,
        ip(client)?,
        client_port.parse().ok()?,
        ip(server)?,
        server_port.parse().ok()?,
    ))
}

/// The sockets of a process.
fn descriptors(pid: u32) -> io::Result<Vec<u64>> {
    let inode = |entry: fs::DirEntry| -> Option<u64> {
        let to = fs::read_link(entry.path()).ok()?;
        to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.flatten().filter_map(inode).collect())
}

/// The established connections in a table of the kernel, with the number of the socket. Columns: number, local
/// address, remote address, state, queues, timer, retransmissions, user, timeout, socket, ...
fn established(table: &str, bytes: usize) -> Vec<(u64, FlowKey)> {
    const ESTABLISHED: &str = "01";
    let read = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, remote) = (words.next()?, words.next()?);
        let state = words.next()?;
        let inode = words.nth(5)?.parse().ok()?;
        let ((local, port), (remote, remote_port)) = (end(local, bytes)?, end(remote, bytes)?);
        let flow = FlowKey::five_tuple(proto::TCP, remote, remote_port, local, port);
        (state == ESTABLISHED && !local.is_loopback()).then_some((inode, flow))
    };
    table.lines().skip(1).filter_map(read).collect()
}

/// An address and a port: words of the machine's byte order, and a number, in hexadecimal.
fn end(text: &str, bytes: usize) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let words: Option<Vec<u8>> = (0..bytes / 4)
        .map(|word| u32::from_str_radix(address.get(8 * word..8 * word + 8)?, 16).ok())
        .map(|word| word.map(u32::to_ne_bytes))
        .collect::<Option<Vec<_>>>()
        .map(|words| words.concat());
    let words = words?;
    let address = match <[u8; 4]>::try_from(words.as_slice()) {
        Ok(four) => Ipv4Addr::from(four).into(),
        Err(_) => plain(Ipv6Addr::from(<[u8; 16]>::try_from(words.as_slice()).ok()?).into()),
    };
    Some((address, u16::from_str_radix(port, 16).ok()?))
}

/// An IPv4 address that is written as an IPv6 address is an IPv4 address in frames.
fn plain(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_connections_are_flows_that_arrive() {
        let flow = |text: &str| ssh_flow(text).map(|flow| flow.to_string());
        let four = "tcp 192.0.2.1:50000 > 192.0.2.2:22";
        assert_eq!(flow("192.0.2.1 50000 192.0.2.2 22").as_deref(), Some(four));
        assert_eq!(flow("::ffff:192.0.2.1 50000 ::ffff:192.0.2.2 22").as_deref(), Some(four));
        let six = "tcp [fe80::1]:50000 > [fe80::2]:22";
        assert_eq!(flow("fe80::1%eth0 50000 fe80::2%eth0 22").as_deref(), Some(six));
        for text in ["", "192.0.2.1 50000 192.0.2.2", "a 1 b 2", "192.0.2.1 x 192.0.2.2 22"] {
            assert_eq!(flow(text), None, "{text}");
        }
        let environment = b"A=1\0SSH_CONNECTION=192.0.2.1 50000 192.0.2.2 22\0B=2\0";
        assert_eq!(of_ssh(environment).as_deref(), Some("192.0.2.1 50000 192.0.2.2 22"));
        assert_eq!(of_ssh(b"XSSH_CONNECTION=1\0"), None);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn tables_of_the_kernel_are_read() {
        let four = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0200000A:0016 0100000A:C350 01 00000000:00000000 00:00000000 00000000     0        0 199 1\n   \
            1: 0200000A:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 200 1\n   \
            2: 0100007F:0016 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 201 1\n";
        let read = |table, bytes| -> Vec<(u64, String)> {
            let all = established(table, bytes).into_iter();
            all.map(|(inode, flow)| (inode, flow.to_string())).collect()
        };
        let tcp = "tcp 10.0.0.1:50000 > 10.0.0.2:22".to_owned();
        assert_eq!(read(four, 4), [(199, tcp.clone())]);
        let six = "head\n   0: 0000000000000000FFFF00000200000A:0016 0000000000000000FFFF00000100000A:C350 01 \
            00000000:00000000 00:00000000 00000000     0        0 199 1\n";
        assert_eq!(read(six, 16), [(199, tcp)]);
        assert_eq!(read("head\n 0: zz zz 01\n\n 0: 0200000A:0016\n", 4), []);
    }

    #[test]
    fn the_process_has_parents() {
        let all = parents();
        assert_eq!(all[0], std::process::id());
        assert!(all.len() > 1, "{all:?}");
    }
}
