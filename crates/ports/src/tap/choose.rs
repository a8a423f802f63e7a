//! How the host chooses the queue of a TAP interface for the frames that it sends: an eBPF program
//! (TUNSETSTEERINGEBPF) whose result the kernel takes modulo the number of queues.
//!
//! ```text
//!  frame ──> type, addresses, ports ──> 32-bit hash ──> queue     HostQueue::Flow
//!  CPU that sends ──────────────────> its queue                   HostQueue::Cpu
//!  (no program) queue to which the flow was last written          HostQueue::Learned
//! ```
//!
//! Only the first keeps the frames of a flow in one queue. The kernel's own choice moves a flow to
//! another queue while frames of the flow may wait in the old one, and so does a thread of the host that
//! moves to another CPU.
//!
//! Invariant: the hash of a flow is the same for all frames of it, except that fragments have no ports.

use std::os::fd::OwnedFd;

use crate::af_xdp::assemble::{Assembler, R0, R1, R6, R7, R8, Size};
use crate::af_xdp::sys::{Insn, Purpose, load};
use crate::live::OpenError;

/// How the host chooses the queue of a frame that it sends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum HostQueue {
    /// By a hash of the flow. The kernel chooses as with [`HostQueue::Learned`] if it permits no
    /// program.
    #[default]
    Flow,
    /// By the queue to which a frame of the flow, in either direction, was last written.
    Learned,
    /// Queue `n` for frames sent by CPU `cpus[n]`, as XPS does for adapters (Linux, scaling.rst). Frames
    /// of other CPUs are distributed over all queues.
    Cpu(Vec<u32>),
}

impl HostQueue {
    /// Loads the program.
    ///
    /// # Errors
    /// When the kernel refuses a program that chooses by CPU.
    pub(super) fn load(&self) -> Result<Option<OwnedFd>, OpenError> {
        match self {
            Self::Flow => Ok(load(Purpose::Filter, &by_flow()).ok()),
            Self::Learned => Ok(None),
            Self::Cpu(cpus) => {
                load(Purpose::Filter, &by_cpu(cpus)).map(Some).map_err(|(error, _)| {
                    OpenError::os("loading the program that chooses a TAP queue", &error, "CAP_BPF")
                })
            }
        }
    }
}

/// A program that drops every frame.
pub(super) fn nothing() -> Option<OwnedFd> {
    let mut program = Assembler::default();
    program.move_imm(R0, 0);
    program.exit();
    load(Purpose::Filter, &program.finish()).ok()
}

/// The helper that returns the current CPU (bpf-helpers(7), bpf_get_smp_processor_id).
const PROCESSOR: i32 = 8;

fn by_cpu(cpus: &[u32]) -> Vec<Insn> {
    let mut program = Assembler::default();
    program.call(PROCESSOR);
    for (queue, cpu) in (0..).zip(cpus) {
        let [mine, next] = [program.label(), program.label()];
        program.if_equal(R0, *cpu as i32, mine);
        program.goto(next);
        program.place(mine);
        program.move_imm(R0, queue);
        program.exit();
        program.place(next);
    }
    program.exit();
    program.finish()
}

/// 2^32 divided by the golden ratio, which is odd.
const FACTOR: u32 = 0x9e37_79b1;

/// Protocols with ports in the first four bytes: TCP, UDP, SCTP.
const WITH_PORTS: [i32; 3] = [6, 17, 132];

/// Offset of the IP header.
const IP: i32 = 14;

/// R8 is the hash, and R7 an offset.
fn by_flow() -> Vec<Insn> {
    let mut program = Assembler::default();
    let [v4, v6, end] = [program.label(), program.label(), program.label()];
    program.move_reg(R6, R1);
    program.move_imm(R8, 0);
    program.load_packet(12, Size::Half);
    program.if_equal(R0, 0x0800, v4);
    program.if_equal(R0, 0x86dd, v6);
    // What is not IP, or has a VLAN tag: by the last four bytes of the MAC addresses.
    [2, 8].iter().for_each(|at| mix(&mut program, *at));
    program.goto(end);

    program.place(v4);
    [12, 16].iter().for_each(|at| mix(&mut program, IP + at));
    program.load_packet(IP + 6, Size::Half);
    program.and(R0, 0x3fff); // more fragments, and the offset
    program.if_not_equal(R0, 0, end);
    program.load_packet(IP, Size::Byte);
    program.and(R0, 15);
    program.shift_left(R0, 2);
    program.move_reg(R7, R0);
    program.load_packet(IP + 9, Size::Byte);
    ports(&mut program);
    program.goto(end);

    program.place(v6);
    (8..40).step_by(4).for_each(|at| mix(&mut program, IP + at));
    program.move_imm(R7, 40);
    program.load_packet(IP + 6, Size::Byte);
    ports(&mut program);

    program.place(end);
    program.move_reg(R0, R8);
    program.shift_right(R0, 16);
    program.exit();
    program.finish()
}

/// Mixes the word at `at` into the hash.
fn mix(program: &mut Assembler, at: i32) {
    program.load_packet(at, Size::Word);
    mix_loaded(program);
}

fn mix_loaded(program: &mut Assembler) {
    program.xor_reg(R8, R0);
    program.multiply(R8, FACTOR as i32);
}

/// Mixes the ports, R7 bytes after the start of the IP header, if R0 is a protocol that has some.
fn ports(program: &mut Assembler) {
    let [has_some, end] = [program.label(), program.label()];
    WITH_PORTS.iter().for_each(|proto| program.if_equal(R0, *proto, has_some));
    program.goto(end);
    program.place(has_some);
    program.load_packet_at(R7, IP, Size::Word);
    mix_loaded(program);
    program.place(end);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use flowyard_frame::FlowKey;
    use flowyard_testkit::Build;
    use flowyard_testkit::Rng;

    use super::*;
    use crate::af_xdp::sys::test_run;

    /// The hash of a frame, as the kernel computes it; 0 if the frame is too short.
    fn model(frame: &[u8]) -> Option<u32> {
        let word = |at: usize| Some(u32::from_be_bytes(frame.get(at..at + 4)?.try_into().ok()?));
        let half = |at: usize| Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
        let mixed = |hash: u32, at| Some((hash ^ word(at)?).wrapping_mul(FACTOR));
        let all = |words: &[usize]| words.iter().try_fold(0, |hash, at| mixed(hash, 14 + at));
        let has_ports = |at: usize| Some(matches!(frame.get(at)?, 6 | 17 | 132));
        let hash = match half(12)? {
            0x0800 => {
                let hash = all(&[12, 16])?;
                let at = 14 + usize::from(frame[14] & 15) * 4;
                if half(20)? & 0x3fff == 0 && has_ports(23)? { mixed(hash, at)? } else { hash }
            }
            0x86dd => {
                let hash = all(&[8, 12, 16, 20, 24, 28, 32, 36])?;
                if has_ports(20)? { mixed(hash, 54)? } else { hash }
            }
            _ => mixed(mixed(0, 2)?, 8)?,
        };
        Some(hash >> 16)
    }

    fn frame(key: &FlowKey) -> Vec<u8> {
        let mut frame = Vec::new();
        Build::new(key).frame_len(100).write(&mut frame);
        frame
    }

    fn flow(proto: u8, port: u16, v6: bool) -> FlowKey {
        let addr = |v4: &str, v6_addr: &str| if v6 { v6_addr } else { v4 }.parse().unwrap();
        FlowKey::five_tuple(
            proto,
            addr("10.0.0.1", "fd00::1"),
            port,
            addr("10.0.0.2", "fd00::2"),
            80,
        )
    }

    #[test]
    fn flows_are_spread() {
        for v6 in [false, true] {
            let of = |port| model(&frame(&flow(17, port, v6))).unwrap();
            for queues in [2, 3, 4, 8] {
                let counts = (0..1000).fold(vec![0; queues], |mut counts, port| {
                    counts[of(40_000 + port) as usize % queues] += 1;
                    counts
                });
                let even = 1000 / queues;
                assert!(counts.iter().all(|&n| n > even / 2 && n < 2 * even), "{counts:?}");
            }
            // A flow has one hash, whatever its payload and length.
            let mut long = frame(&flow(17, 7, v6));
            long.extend([1; 200]);
            let hashes: BTreeSet<_> = [model(&long), model(&frame(&flow(17, 7, v6)))].into();
            assert_eq!(hashes.len(), 1);
        }
    }

    #[test]
    #[ignore = "needs CAP_BPF and CAP_NET_ADMIN; the step 'live' of CI runs this test"]
    fn the_kernel_agrees() {
        let program = load(Purpose::Filter, &by_flow()).unwrap();
        let mut rng = Rng::new(1);
        for round in 0..2000 {
            let proto = [6, 17, 132, 1][rng.below(4) as usize];
            let mut bytes = frame(&flow(proto, rng.below(65_536) as u16, round % 2 == 0));
            for _ in 0..rng.below(4) {
                let at = rng.below(60) as usize; // a damaged header, or a fragment
                bytes[at] = rng.below(256) as u8;
            }
            // The kernel runs programs on frames with a whole IP header only.
            bytes.truncate(54 + rng.below(47) as usize);
            let got = test_run(&program, &bytes).unwrap();
            assert_eq!(got, model(&bytes).unwrap_or(0), "{bytes:02x?}");
        }
    }
}
