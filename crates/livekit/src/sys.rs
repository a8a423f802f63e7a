//! System calls: network namespaces of threads and commands, sockets of other processes, CPUs.
#![allow(unsafe_code, reason = "system calls without a safe wrapper")]

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Moves the calling thread into a new network namespace.
///
/// # Errors
///
/// As unshare(2).
pub fn unshare() -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })
}

/// Moves the calling thread into the network namespace `net`.
///
/// # Errors
///
/// As setns(2).
pub fn enter(net: &File) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::setns(net.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// Makes `command` run in the network namespace `net`, which must stay open until the command is started.
pub fn within(command: &mut Command, net: &File) {
    let fd = net.as_raw_fd();
    // SAFETY: between fork and exec, only setns(2) is called, which is safe to call there.
    unsafe {
        command.pre_exec(move || check(libc::setns(fd, libc::CLONE_NEWNET)));
    }
}

/// Creates the TAP interface `name` in the network namespace of the calling thread, with this index
/// if one is named. It exists until it is deleted.
///
/// # Errors
///
/// As the requests TUNSETIFINDEX, TUNSETIFF and TUNSETPERSIST.
pub fn tap(name: &str, index: Option<u32>, is_multi_queue: bool) -> io::Result<()> {
    let file = File::options().read(true).write(true).open("/dev/net/tun")?;
    let many = if is_multi_queue { libc::IFF_MULTI_QUEUE } else { 0 };
    // SAFETY: an interface request consists of integers, and the requests read no more than that
    // structure, or one integer.
    unsafe {
        if let Some(index) = index {
            check(libc::ioctl(file.as_raw_fd(), libc::TUNSETIFINDEX, &raw const index))?;
        }
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | many) as i16;
        check(libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request))?;
        check(libc::ioctl(file.as_raw_fd(), libc::TUNSETPERSIST, 1))
    }
}

/// Stalls the ports of this process, although they stay bound: packet sockets that receive on the
/// interface with this index get a filter that drops everything, and so do TAP queues; the maps of XDP
/// programs lose their sockets. Returns how many of these were changed.
pub fn stall(index: u32) -> usize {
    let mut nothing =
        libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    let filter = libc::sock_fprog { len: 1, filter: &raw mut nothing };
    let mut changed = 0;
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let path = entry.unwrap().path();
        let Some(fd) = path.file_name().and_then(|name| name.to_str()?.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(to) = std::fs::read_link(&path) else { continue };
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
        // SAFETY: the filter and what it names outlive the calls, which copy both; the address and
        // the key have the given sizes. No descriptor is closed here.
        changed += usize::from(unsafe {
            if to.as_os_str() == "/dev/net/tun" {
                libc::ioctl(fd, libc::TUNATTACHFILTER, &raw const filter) == 0
            } else if info.contains("map_type:\t17\n") {
                forget_sockets(fd)
            } else {
                receives_on(fd, index) && {
                    let (size, value) = (size_of::<libc::sock_fprog>(), (&raw const filter).cast());
                    let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
                    libc::setsockopt(fd, level, name, value, size as libc::socklen_t) == 0
                }
            }
        });
    }
    changed
}

/// Whether `fd` is a packet socket that receives on the interface with this index.
fn receives_on(fd: i32, index: u32) -> bool {
    // SAFETY: a socket address consists of integers, and the kernel writes no more than its size.
    let (result, address) = unsafe {
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        let mut size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        (libc::getsockname(fd, (&raw mut address).cast(), &raw mut size), address)
    };
    let is_packet = i32::from(address.sll_family) == libc::AF_PACKET;
    result == 0 && is_packet && address.sll_protocol != 0 && address.sll_ifindex == index as i32
}

/// Removes the sockets of the first queues from a map (BPF_MAP_DELETE_ELEM of bpf(2)).
fn forget_sockets(map: i32) -> bool {
    let delete = |key: u32| {
        let attr: [u64; 4] = [map as u64, (&raw const key) as u64, 0, 0];
        // SAFETY: the command reads the key, which has four bytes and outlives the call.
        unsafe { libc::syscall(libc::SYS_bpf, 3, &raw const attr, size_of_val(&attr)) == 0 }
    };
    (0..4).filter(|key| delete(*key)).count() > 0
}

/// Makes the kernel end `command` when the calling thread ends, however that happens.
pub fn end_with_parent(command: &mut Command) {
    // SAFETY: between fork and exec, only prctl(2) is called, which is safe to call there.
    unsafe {
        command.pre_exec(|| check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL)));
    }
}

/// A packet socket that sends on the interface of this name, in the network namespace of the calling thread.
///
/// # Errors
///
/// As socket(2), if_nametoindex(3) and bind(2).
pub fn packet_socket(interface: &str) -> io::Result<OwnedFd> {
    packets(interface, 0)
}

/// A packet socket that receives all frames of the interface of this name, and waits for each at most two
/// seconds.
///
/// # Errors
///
/// As [`packet_socket`].
pub fn packet_listener(interface: &str) -> io::Result<OwnedFd> {
    let socket = packets(interface, libc::ETH_P_ALL as u16)?;
    let time = libc::timeval { tv_sec: 2, tv_usec: 0 };
    set(&socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &time)?;
    big_buffer(&socket);
    Ok(socket)
}

/// Puts a virtio-net header in front of each frame of a packet socket.
///
/// # Errors
///
/// As setsockopt(2).
pub fn virtio_headers(socket: &impl AsRawFd) -> io::Result<()> {
    const PACKET_VNET_HDR: i32 = 15;
    set(socket, libc::SOL_PACKET, PACKET_VNET_HDR, &1_i32)
}

fn set<T>(socket: &impl AsRawFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let size = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer and the size are those of `value`, which the kernel only reads.
    check(unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), size)
    })
}

fn packets(interface: &str, protocol: u16) -> io::Result<OwnedFd> {
    let name = std::ffi::CString::new(interface)?;
    // SAFETY: the name ends with a zero byte, a socket address consists of integers, and the kernel reads no more than
    // its size. A new descriptor belongs to nobody else.
    unsafe {
        let index = libc::if_nametoindex(name.as_ptr());
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        let socket = OwnedFd::from_raw_fd(socket);
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = index as i32;
        let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        check(libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size))?;
        Ok(socket)
    }
}

/// Sends one frame.
///
/// # Errors
///
/// As send(2).
pub fn send(socket: &impl AsRawFd, frame: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads the bytes of the frame only.
    let sent = unsafe { libc::send(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives a socket a receive buffer of 32 MiB, for datagrams that arrive while the receiver does not run.
pub fn big_buffer(socket: &impl AsRawFd) {
    let size: i32 = 32 << 20;
    // SAFETY: the pointer and the size are those of `size`, which the kernel only reads.
    let set = unsafe {
        let (level, value) = (libc::SOL_SOCKET, std::ptr::from_ref(&size).cast());
        libc::setsockopt(socket.as_raw_fd(), level, libc::SO_RCVBUFFORCE, value, 4)
    };
    assert_eq!(set, 0);
}

/// Pins thread `thread` to CPU `cpu`.
pub fn pin(thread: i32, cpu: u32) {
    // SAFETY: a CPU set is an array of bits, all of which may be zero; the kernel only reads it.
    let set = unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu as usize, &mut cpus);
        libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &raw const cpus)
    };
    check(set).unwrap();
}

/// Duplicates descriptor `number` of process `process` into this one: pidfd_getfd(2).
///
/// # Errors
///
/// As pidfd_open(2) and pidfd_getfd(2).
pub fn descriptor_of(process: u32, number: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed, and each returned descriptor is new and owned by this process.
    unsafe {
        let owned = |fd: libc::c_long| match i32::try_from(fd) {
            Ok(fd) if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        };
        let process = owned(libc::syscall(libc::SYS_pidfd_open, process, 0))?;
        owned(libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0))
    }
}

/// The address of the peer, if `socket` is a connected IPv4 socket.
#[must_use]
pub fn peer(socket: &OwnedFd) -> Option<SocketAddr> {
    // SAFETY: a socket address consists of integers, and the kernel writes no more than its size.
    let (result, address) = unsafe {
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        let mut size = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        let to = (&raw mut address).cast();
        (libc::getpeername(socket.as_raw_fd(), to, &raw mut size), address)
    };
    check(result).ok()?;
    let ip = u32::from_be(address.sin_addr.s_addr);
    let is_ipv4 = i32::from(address.sin_family) == libc::AF_INET;
    is_ipv4.then(|| (std::net::Ipv4Addr::from(ip), u16::from_be(address.sin_port)).into())
}

/// The CPU that received the last packet of a socket.
#[must_use]
pub fn incoming_cpu(socket: &OwnedFd) -> u32 {
    let (mut cpu, mut size) = (0_u32, 4);
    // SAFETY: the kernel writes four bytes into `cpu`.
    let got = unsafe {
        let to = (&raw mut cpu).cast();
        let name = libc::SO_INCOMING_CPU;
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, to, &raw mut size)
    };
    check(got).unwrap();
    cpu
}

/// Raises the priority of thread `thread` (0 is the calling one) above that of ordinary work.
pub fn hurry(thread: u32) {
    // SAFETY: no memory is passed.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, -10) }).unwrap();
}

/// Lets thread `thread` run before all ordinary work of its CPU (SCHED_FIFO).
pub fn first(thread: i32) {
    let how = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel only reads the parameter.
    check(unsafe { libc::sched_setscheduler(thread, libc::SCHED_FIFO, &raw const how) }).unwrap();
}
