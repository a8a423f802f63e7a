//! Samples the live traffic of an interface: the headers of each frame, by a packet socket.
//!
//! The socket receives copies; the traffic itself is not touched, and the interface does not become promiscuous.
//! The kernel may have coalesced segments of TCP before the socket sees them (GRO): a frame that was coalesced
//! counts as the segments that the adapter received.
#![allow(unsafe_code, reason = "recvfrom(2) with a packet address has no safe wrapper")]

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use flowyard_frame::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Bytes of a frame that are kept: the headers of two levels with options.
const KEPT: usize = 256;
/// struct `virtio_net_hdr`, which the kernel puts in front of each frame.
const FRONT: usize = 10;

/// The option by which a packet socket gets received frames only (linux/if_packet.h).
const PACKET_IGNORE_OUTGOING: i32 = 23;

/// A sampled frame.
#[derive(Clone, Copy, Debug)]
pub struct Sampled<'a> {
    /// The time at which it was read.
    pub time: Nanos,
    /// Its first bytes.
    pub bytes: &'a [u8],
    /// Its length.
    pub wire_len: u32,
    /// Whether this host sent it.
    pub sent: bool,
    /// Frames of the wire that it consists of.
    pub segments: u32,
}

/// What the frames of one socket have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Only {
    /// Nothing: all frames of the interface.
    All,
    /// The kernel processes them on this CPU, after RPS and RFS.
    Cpu(u32),
    /// The driver received them on this queue.
    Queue(u32),
    /// The driver did not store the queue.
    NoQueue,
}

/// Packet sockets on one interface.
#[derive(Debug)]
pub struct Sampler {
    sockets: Vec<OwnedFd>,
}

impl Sampler {
    /// Opens a socket for each of `kinds` on the interface with this index.
    ///
    /// # Errors
    /// When the kernel refuses; it wants CAP_NET_RAW.
    pub fn open(index: u32, kinds: &[Only]) -> io::Result<Self> {
        let sockets = kinds.iter().map(|only| socket(index, *only)).collect::<Result<_, _>>()?;
        Ok(Self { sockets })
    }

    /// Calls `each` with the number of a socket and its frames, until `is_over` returns true, which is asked at
    /// least every 50 ms. Returns the number of frames for which a socket had no room.
    ///
    /// # Errors
    /// The error of a socket, such as that the interface went down.
    pub fn run(
        &mut self,
        now: &dyn Fn() -> Nanos,
        is_over: &dyn Fn() -> bool,
        each: &mut dyn FnMut(usize, Sampled<'_>),
    ) -> io::Result<u32> {
        while !is_over() {
            let mut ready: Vec<_> =
                self.sockets.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            let wait = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            match poll(&mut ready, Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            // A burst, and then the clock again.
            self.drain(now, each)?;
        }
        self.lost()
    }

    /// Calls `each` with the number of a socket and the frames that wait there now, at most 1024 of each socket. Returns
    /// whether none waits any more.
    ///
    /// # Errors
    /// The error of a socket, such as that the interface went down.
    pub fn drain(
        &mut self,
        now: &dyn Fn() -> Nanos,
        each: &mut dyn FnMut(usize, Sampled<'_>),
    ) -> io::Result<bool> {
        let mut buffer = [0; FRONT + KEPT];
        let mut is_empty = true;
        for (number, fd) in self.sockets.iter().enumerate() {
            let mut left = 1024;
            while left > 0 {
                let Some((len, sent)) = receive(fd, &mut buffer)? else { break };
                left -= 1;
                let Some(wire_len) = len.checked_sub(FRONT) else { continue };
                let bytes = &buffer[FRONT..len.min(buffer.len())];
                let segments = segments(&buffer[..FRONT], wire_len);
                let wire_len = wire_len as u32;
                each(number, Sampled { time: now(), bytes, wire_len, sent, segments });
            }
            is_empty &= left > 0;
        }
        Ok(is_empty)
    }

    /// The number of frames for which a socket had no room, since this was asked last.
    ///
    /// # Errors
    /// The error of a socket.
    pub fn lost(&mut self) -> io::Result<u32> {
        self.sockets.iter().map(drops).sum()
    }
}

/// A packet socket that sends frames, and receives none.
#[derive(Debug)]
pub struct Outlet(OwnedFd);

impl Outlet {
    /// Opens a socket on the interface of this name, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// When there is no such interface, or the kernel refuses; it wants CAP_NET_RAW.
    pub fn open(interface: &str) -> io::Result<Self> {
        let index = crate::sys::index(interface)?;
        let fd = raw()?;
        bind(&fd, index, 0)?;
        Ok(Self(fd))
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        rustix::net::send(&self.0, frame, rustix::net::SendFlags::empty())?;
        Ok(())
    }
}

/// A packet socket that is not bound.
fn raw() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is passed.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: the call succeeded, so `fd` is open and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn socket(index: u32, only: Only) -> io::Result<OwnedFd> {
    let fd = raw()?;
    set(&fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)?;
    if only != Only::All {
        // What this host sends has no receive queue. Kernels before 4.20 copy it nevertheless.
        let _copied = set(&fd, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1_i32);
    }
    // A buffer for bursts; without the privilege, the default remains.
    let _less = set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &(16_i32 << 20));
    if let Some(mut program) = program(only) {
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // The program outlives the call, which copies it.
        set(&fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)?;
    }
    bind(&fd, index, libc::ETH_P_ALL as u16)?;
    Ok(fd)
}

/// Binds a packet socket to an interface; it receives frames of this protocol, and none of protocol 0.
fn bind(fd: &OwnedFd, index: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: an address consists of integers, for which zeros are a value.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index as i32;
    // SAFETY: the pointer and the size are those of `address`, which the kernel only reads.
    check(unsafe {
        let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size)
    })?;
    Ok(())
}

/// A filter of received frames (linux/filter.h): load a word of the frame's ancillary data, compare, return.
fn program(only: Only) -> Option<[libc::sock_filter; 4]> {
    const CPU: u32 = 36;
    const QUEUE: u32 = 24;
    const ANCILLARY: u32 = (-0x1000_i32) as u32;
    let (word, value) = match only {
        Only::All => return None,
        Only::Cpu(cpu) => (CPU, cpu),
        // The kernel stores the number of the queue plus one; zero means that the driver stored none.
        Only::Queue(queue) => (QUEUE, queue.saturating_add(1)),
        Only::NoQueue => (QUEUE, 0),
    };
    let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    Some([
        step(0x20, 0, ANCILLARY + word), // load
        step(0x15, 1, value),            // if it is not equal, skip one
        step(0x06, 0, 1 << 18),          // take the frame
        step(0x06, 0, 0),                // leave it
    ])
}

/// The length of the next frame, and whether this host sent it; `None` if there is none now.
fn receive(fd: &OwnedFd, buffer: &mut [u8]) -> io::Result<Option<(usize, bool)>> {
    // SAFETY: an address consists of integers, for which zeros are a value.
    let mut from: libc::sockaddr_ll = unsafe { zeroed() };
    let mut size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most the given sizes into the buffer and the address.
    let len = unsafe {
        let to = buffer.as_mut_ptr().cast();
        let flags = libc::MSG_TRUNC;
        let address = (&raw mut from).cast();
        libc::recvfrom(fd.as_raw_fd(), to, buffer.len(), flags, address, &raw mut size)
    };
    match usize::try_from(len) {
        Ok(len) => Ok(Some((len, from.sll_pkttype == libc::PACKET_OUTGOING))),
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            error => Err(error),
        },
    }
}

fn drops(fd: &OwnedFd) -> io::Result<u32> {
    let mut counts = [0_u32; 2];
    let mut size = size_of_val(&counts) as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes, a struct tpacket_stats, which is two numbers.
    check(unsafe {
        let to = (&raw mut counts).cast();
        let (level, name) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
        libc::getsockopt(fd.as_raw_fd(), level, name, to, &raw mut size)
    })?;
    Ok(counts[1])
}

/// How many segments a coalesced frame consists of: flags, kind, length of the headers, size of a segment, ...
fn segments(front: &[u8], wire_len: usize) -> u32 {
    let word = |at: usize| usize::from(u16::from_ne_bytes([front[at], front[at + 1]]));
    let (headers, size) = (word(2), word(4));
    if front[1] == 0 || size == 0 || wire_len <= headers {
        return 1;
    }
    (wire_len - headers).div_ceil(size) as u32
}

fn set<T: Copy>(fd: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: the pointer and the size are those of `value`, which the kernel only reads; what a filter points
    // to is valid during the call.
    check(unsafe {
        let value = std::ptr::from_ref(value).cast();
        libc::setsockopt(fd.as_raw_fd(), level, name, value, size_of::<T>() as libc::socklen_t)
    })?;
    Ok(())
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::segments;

    #[test]
    fn coalesced_frames_count_as_their_segments() {
        let front = |kind, headers: u16, size: u16| {
            let [a, b] = headers.to_ne_bytes();
            let [c, d] = size.to_ne_bytes();
            [0, kind, a, b, c, d, 0, 0, 0, 0]
        };
        assert_eq!(segments(&front(0, 0, 0), 60), 1);
        assert_eq!(segments(&front(1, 54, 1448), 54 + 3 * 1448 + 1), 4);
        assert_eq!(segments(&front(1, 54, 1448), 40), 1);
    }
}
