//! The sockets of a process that share a port, and the CPU of the thread that waits for each, by `/proc`.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketType, getpeername, getsockname, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// A socket that shares its port with others.
#[derive(Debug)]
pub(super) struct Member {
    /// A descriptor of it. A kept one would keep the socket open after its process has closed it.
    pub(super) socket: OwnedFd,
    pub(super) cookie: u64,
    pub(super) is_tcp: bool,
    pub(super) address: SocketAddr,
    /// The CPU on which the thread that waits for it ran last; `None` if no thread is seen waiting.
    pub(super) cpu: Option<u32>,
}

/// The processes that are scanned, and what is known of their sockets.
#[derive(Debug)]
pub(super) struct Scan {
    process: u32,
    port: u16,
    /// Inodes of sockets that are no members and never will be.
    others: HashSet<u64>,
}

impl Scan {
    pub(super) fn new(process: u32, port: u16) -> Self {
        Self { process, port, others: HashSet::new() }
    }

    /// The sockets of the process and its descendants.
    ///
    /// # Errors
    /// When the process is gone, or may not be looked at.
    pub(super) fn members(&mut self) -> io::Result<Vec<Member>> {
        let mut found = BTreeMap::new();
        let mut waiting = BTreeMap::new();
        let mut seen = HashSet::new();
        for (number, process) in family(self.process).into_iter().enumerate() {
            let one = self.of_process(process, &mut found, &mut seen);
            match one {
                // A child may end at any time.
                Err(error) if number == 0 => return Err(error),
                _ => waiting.extend(waiters(process)),
            }
        }
        self.others.retain(|inode| seen.contains(inode));
        for (inode, member) in &mut found {
            member.cpu = waiting.get(inode).copied();
        }
        Ok(found.into_values().collect())
    }

    fn of_process(
        &mut self,
        process: u32,
        found: &mut BTreeMap<u64, Member>,
        seen: &mut HashSet<u64>,
    ) -> io::Result<()> {
        let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::NotFound)?;
        let handle = pidfd_open(pid, PidfdFlags::empty())?;
        for entry in std::fs::read_dir(format!("/proc/{process}/fd"))? {
            let Some(number) =
                entry.ok().and_then(|entry| entry.file_name().to_str()?.parse().ok())
            else {
                continue;
            };
            let Some(inode) = inode(process, number) else { continue };
            seen.insert(inode);
            if self.others.contains(&inode) || found.contains_key(&inode) {
                continue;
            }
            let socket = match pidfd_getfd(&handle, number, PidfdGetfdFlags::empty()) {
                Ok(socket) => socket,
                Err(rustix::io::Errno::BADF) => continue, // closed meanwhile
                Err(error) => return Err(error.into()),
            };
            match self.judge(socket) {
                Judged::Member(member) => drop(found.insert(inode, member)),
                Judged::Never => drop(self.others.insert(inode)),
                Judged::NotNow => {}
            }
        }
        Ok(())
    }

    fn judge(&self, socket: OwnedFd) -> Judged {
        let family = sockopt::socket_domain(&socket).ok();
        if !matches!(family, Some(AddressFamily::INET | AddressFamily::INET6)) {
            return Judged::Never;
        }
        if getpeername(&socket).is_ok_and(|peer| peer.is_some()) {
            return Judged::Never; // a connection
        }
        let is_tcp = match sockopt::socket_type(&socket) {
            Ok(SocketType::STREAM) => true,
            Ok(SocketType::DGRAM) => false,
            _ => return Judged::Never,
        };
        let address = getsockname(&socket).ok().and_then(|own| SocketAddr::try_from(own).ok());
        let shares = sockopt::socket_reuseport(&socket).unwrap_or(false);
        let listens = !is_tcp || sockopt::socket_acceptconn(&socket).unwrap_or(false);
        match (address, sockopt::socket_cookie(&socket)) {
            (Some(address), Ok(cookie)) if shares && listens && address.port() == self.port => {
                Judged::Member(Member { socket, cookie, is_tcp, address, cpu: None })
            }
            _ => Judged::NotNow, // it may be bound later
        }
    }
}

/// What a socket is.
enum Judged {
    Member(Member),
    NotNow,
    Never,
}

/// The inode of a socket by its number in a process.
fn inode(process: u32, descriptor: i32) -> Option<u64> {
    let link = std::fs::read_link(format!("/proc/{process}/fd/{descriptor}")).ok()?;
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// A process and its descendants.
fn family(process: u32) -> Vec<u32> {
    let (mut all, mut at) = (vec![process], 0);
    let mut known = BTreeSet::from([process]);
    while let Some(&one) = all.get(at) {
        at += 1;
        for thread in threads(one) {
            let path = format!("/proc/{one}/task/{thread}/children");
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let children = text.split_whitespace().filter_map(|child| child.parse().ok());
            all.extend(children.filter(|child| known.insert(*child)));
        }
    }
    all
}

fn threads(process: u32) -> Vec<u32> {
    let entries = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// By inode: the CPU of the thread that waits for the socket, in a call that reads it or accepts from it, or in an epoll
/// set that has it.
fn waiters(process: u32) -> BTreeMap<u64, u32> {
    let mut found = BTreeMap::new();
    for thread in threads(process) {
        let call = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/syscall"));
        let Some((descriptor, waits)) = call.ok().as_deref().and_then(waits) else { continue };
        let stat = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/stat"));
        let Some(cpu) = stat.ok().as_deref().and_then(last_cpu) else { continue };
        let descriptors = match waits {
            Waits::Socket => vec![descriptor],
            Waits::Epoll => {
                let path = format!("/proc/{process}/fdinfo/{descriptor}");
                watched(&std::fs::read_to_string(path).unwrap_or_default())
            }
        };
        found.extend(descriptors.into_iter().filter_map(|one| Some((inode(process, one)?, cpu))));
    }
    found
}

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waits {
    Socket,
    Epoll,
}

/// The descriptor that a thread waits for, of the text of `/proc/PID/task/TID/syscall`: number, arguments, ...
fn waits(text: &str) -> Option<(i32, Waits)> {
    const READS: [i64; 7] = [
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_recvmmsg,
        libc::SYS_accept,
        libc::SYS_accept4,
    ];
    let mut words = text.split_whitespace();
    let call: i64 = words.next()?.parse().ok()?; // "running" if the thread does not wait
    let first = i64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    let waits = match call {
        call if READS.contains(&call) => Waits::Socket,
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => Waits::Epoll,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => Waits::Epoll,
        _ => return None,
    };
    Some((i32::try_from(first).ok()?, waits))
}

/// The CPU on which a thread ran last, of the text of `/proc/PID/task/TID/stat`: field 39, and the name in field 2 may
/// contain blanks.
fn last_cpu(text: &str) -> Option<u32> {
    let (_, after) = text.rsplit_once(')')?;
    after.split_whitespace().nth(36)?.parse().ok()
}

/// The descriptors in an epoll set, of the text of `/proc/PID/fdinfo/FD`.
fn watched(text: &str) -> Vec<i32> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("tfd:"));
    lines.filter_map(|rest| rest.split_whitespace().next()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_threads_name_their_descriptor() {
        let recv = format!("{} 0x5 0x7ffe 0x800 0x0 0x0 0x0 0x7ffe 0x7f", libc::SYS_recvfrom);
        assert_eq!(waits(&recv), Some((5, Waits::Socket)));
        let epoll =
            format!("{} 0x1c 0x7ffe 0x200 0xffffffffffffffff 0x0 0x8", libc::SYS_epoll_pwait);
        assert_eq!(waits(&epoll), Some((28, Waits::Epoll)));
        assert_eq!(waits("running\n"), None);
        assert_eq!(waits(&format!("{} 0x5", libc::SYS_write)), None);
        assert_eq!(waits(""), None);
    }

    #[test]
    fn the_last_cpu_is_field_39() {
        let fields: Vec<String> = (3..53).map(|field| field.to_string()).collect();
        let text = format!("77 (a name) of (two) {}", fields.join(" "));
        assert_eq!(last_cpu(&text), Some(39));
        assert_eq!(last_cpu("77 (short) S 1"), None);
    }

    #[test]
    fn epoll_sets_list_their_descriptors() {
        let text = "pos:\t0\nflags:\t02\ntfd:        5 events:       19 data:        5\ntfd:       12 events: 1\n";
        assert_eq!(watched(text), [5, 12]);
    }
}
