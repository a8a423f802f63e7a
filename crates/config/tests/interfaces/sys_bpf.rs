//! A frame generator in the kernel, and memory for a bare socket.
#![allow(unsafe_code, reason = "system calls on pointers, and memory shared with the kernel")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use flowyard_ports::af_xdp::Umem;

/// Sends frames through an interface from inside the kernel, without a system call for each frame:
/// a test run of `bpf(2)` with live frames.
pub(crate) struct Blast {
    program: OwnedFd,
    frame: Vec<u8>,
    interface: u32,
}

/// The number of frames of one call.
const CALL: u32 = 1 << 18;

impl Blast {
    /// Sends `frame` through the interface with this index. The last byte of its source port is a random number that
    /// has the bits of `ports` only.
    pub(crate) fn new(interface: u32, frame: Vec<u8>, ports: u8) -> io::Result<Self> {
        // Pages are reused as the far side left them, so all fields that forwarding changes are
        // written again.
        let word = |at: usize, n: usize| {
            frame[at..at + n].iter().rev().fold(0, |all, byte| all << 8 | i32::from(*byte))
        };
        let code: [(u8, u8, i16, i32); 20] = [
            (0xbf, 0x16, 0, 0),                               // r6 = context
            (0x85, 0x00, 0, 7),                               // r0 = random
            (0x57, 0x00, 0, i32::from(ports)),                // r0 &= ports
            (0x47, 0x00, 0, word(35, 1) & !i32::from(ports)), // r0 |= the other bits
            (0x61, 0x62, 0, 0),                               // r2 = data
            (0x61, 0x63, 4, 0),                               // r3 = its end
            (0xbf, 0x24, 0, 0),                               // r4 = r2
            (0x07, 0x04, 0, 42),                              // r4 += 42
            (0x2d, 0x34, 9, 0),                               // if r4 > r3, not the next nine
            (0x73, 0x02, 35, 0),                              // source port
            (0x62, 0x02, 0, word(0, 4)),                      // addresses
            (0x62, 0x02, 4, word(4, 4)),
            (0x62, 0x02, 8, word(8, 4)),
            (0x72, 0x02, 22, word(22, 1)), // hops, and the header's checksum
            (0x6a, 0x02, 24, word(24, 2)),
            (0x62, 0x02, 26, word(26, 4)), // IP addresses, destination port
            (0x62, 0x02, 30, word(30, 4)),
            (0x6a, 0x02, 36, word(36, 2)),
            (0xb7, 0x00, 0, 3), // r0 = XDP_TX
            (0x95, 0x00, 0, 0), // exit
        ];
        Ok(Self { program: load(&code)?, frame, interface })
    }

    /// Sends frames; must be called in the network namespace of the interface.
    pub(crate) fn send(&self) -> io::Result<()> {
        // struct xdp_md: data, data_end, data_meta, interface, queue, egress
        let context = [0_u32, self.frame.len() as u32, 0, self.interface, 0, 0];
        // test: prog_fd, retval; data_size_in, data_size_out; data_in; data_out; repeat, duration;
        // ctx_size_in, ctx_size_out; ctx_in; ctx_out; flags (live frames), cpu; batch_size
        let mut attr = [0_u64; 10];
        attr[0] = self.program.as_raw_fd() as u64;
        attr[1] = self.frame.len() as u64;
        attr[2] = self.frame.as_ptr() as u64;
        attr[4] = CALL.into();
        attr[5] = size_of_val(&context) as u64;
        attr[6] = context.as_ptr() as u64;
        attr[8] = 2;
        attr[9] = 64;
        bpf(10, &mut attr).map(drop)
    }
}

/// An XDP program that drops every frame of an interface, until it is dropped. The interface counts them.
pub(crate) struct Sink {
    _link: OwnedFd,
    _program: OwnedFd,
}

impl Sink {
    /// On the interface with this index; must be called in its network namespace.
    pub(crate) fn new(interface: u32) -> io::Result<Self> {
        let program = load(&[(0xb7, 0x00, 0, 1), (0x95, 0x00, 0, 0)])?;
        // link_create: prog_fd, target_ifindex; attach_type (BPF_XDP), flags (in the driver)
        let mut attr = [0_u64; 6];
        attr[0] = program.as_raw_fd() as u64 | u64::from(interface) << 32;
        attr[1] = 37 | 4 << 32;
        let link = bpf(28, &mut attr)?;
        // SAFETY: the kernel has just created this descriptor for us.
        Ok(Self { _link: unsafe { OwnedFd::from_raw_fd(link) }, _program: program })
    }
}

/// Loads an XDP program: operation, registers, offset and value of each instruction.
fn load(code: &[(u8, u8, i16, i32)]) -> io::Result<OwnedFd> {
    let insn = |(code, regs, off, imm): &(u8, u8, i16, i32)| {
        let off = u64::from(*off as u16) << 16 | u64::from(*imm as u32) << 32;
        u64::from(*code) | u64::from(*regs) << 8 | off
    };
    let insns: Vec<u64> = code.iter().map(insn).collect();
    // The program type XDP and the number of instructions; pointers to the instructions and the
    // licence; the rest is zero.
    let mut attr = [0_u64; 9];
    attr[0] = 6 | (insns.len() as u64) << 32;
    attr[1] = insns.as_ptr() as u64;
    attr[2] = c"MIT".as_ptr() as u64;
    let program = bpf(5, &mut attr)?;
    // SAFETY: the kernel has just created this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(program) })
}

fn bpf<const N: usize>(command: i32, attr: &mut [u64; N]) -> io::Result<i32> {
    // SAFETY: the size is that of `attr`, and the pointers in it are to memory that outlives the
    // call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attr.as_mut_ptr(), N * 8) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

#[derive(Clone)]
#[repr(align(4096))]
struct Page(#[expect(dead_code, reason = "memory")] [u8; 4096]);

/// Memory for `pages` frames, of a page each.
pub(crate) fn umem(pages: usize) -> Umem {
    let memory: Arc<Vec<Page>> = Arc::new(vec![Page([0; 4096]); pages]);
    let base = memory.as_ptr().cast();
    // SAFETY: the vector starts on a page and lives as long as `memory` is kept; only the sockets
    // read or write it.
    unsafe { Umem::new(base, pages * 4096, 4096, 0, memory) }
}
