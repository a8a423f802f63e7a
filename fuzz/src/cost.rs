//! Bounds on what one input may cost: basic blocks that are executed, and bytes that are allocated.
//!
//! ```text
//!  every basic block ──> __sanitizer_cov_trace_pc: fuel -= 1 ──> below 0: the target fails there
//!  every allocation  ──> the counting allocator              ──> too many bytes: the target fails at its end
//! ```
//!
//! The bound of an input is linear in its size: [`Line`]. Both counts are exact and repeat, unlike times on
//! a shared machine. Basic blocks are counted on x86-64, in programs that were built with
//! `RUSTFLAGS=-Cllvm-args=-sanitizer-coverage-trace-pc`, as `cargo xtask ci fuzz` builds them. The standard
//! library is compiled already, so its blocks count only where it is generic; copies of memory do not count.
//! libFuzzer's own limits of time and memory stand behind these.
//!
//! Thread-safety: one input at a time; the targets have one thread.

use std::cell::Cell;

use flowyard_testkit::alloc::{Count, Counting};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A number for each input, and a number for each of its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// For each input, however small.
    pub input: u64,
    /// For each byte of it.
    pub byte: u64,
}

impl Line {
    const fn at(self, size: usize) -> u64 {
        self.input + self.byte * size as u64
    }
}

/// What an input of a target may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Basic blocks of flowyard and of the crates that it uses.
    pub blocks: Line,
    /// Bytes allocated in total; freed memory is not subtracted.
    pub bytes: Line,
}

thread_local! {
    /// The largest shares of the limits so far, in percent: blocks, bytes.
    static MOST: Cell<[u64; 2]> = const { Cell::new([0; 2]) };
}

/// Runs a target on an input. Prints a line if the input costs a larger share of a limit than all before.
///
/// # Panics
/// When the target panics, or when the input costs more than the limits.
pub fn bounded(limits: Limits, input: &[u8], target: fn(&[u8])) {
    let before = Count::of_this_thread().bytes;
    let fuel = limits.blocks.at(input.len());
    fuel::fill(fuel);
    target(input);
    let blocks = fuel - fuel::drain();
    let bytes = Count::of_this_thread().bytes - before;
    let most = limits.bytes.at(input.len());
    assert!(
        bytes <= most,
        "{bytes} bytes were allocated for an input of {} bytes; the limit is {most}",
        input.len()
    );
    let now = [100 * blocks / fuel.max(1), 100 * bytes / most.max(1)];
    let before = MOST.get();
    // A line for each tenth more, so that a run has few of them.
    if now.iter().zip(before).any(|(now, before)| *now > before + before / 10) {
        MOST.set([now[0].max(before[0]), now[1].max(before[1])]);
        let [of_blocks, of_bytes] = MOST.get();
        eprintln!(
            "cost: at most {of_blocks} % of the blocks and {of_bytes} % of the bytes; {} bytes cost \
             {blocks} blocks and {bytes} allocated bytes",
            input.len()
        );
    }
}

/// The number of basic blocks that may still be executed.
#[cfg(target_arch = "x86_64")]
mod fuel {
    use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

    /// Below 0 the fuel is used up. Outside of a target it is never used up.
    static FUEL: AtomicI64 = AtomicI64::new(i64::MAX);

    // In assembly, because a function in Rust would call itself for each of its own blocks. It is called like
    // any function, so it may change `rax` and the flags.
    std::arch::global_asm!(
        ".globl __wrap___sanitizer_cov_trace_pc",
        "__wrap___sanitizer_cov_trace_pc:",
        "dec qword ptr [rip + {fuel}]",
        "js 2f",
        "ret",
        "2:",
        "movabs rax, 0x7fffffffffffffff",
        "mov qword ptr [rip + {fuel}], rax",
        "jmp {used_up}",
        fuel = sym FUEL,
        used_up = sym used_up,
    );

    extern "C" fn used_up() {
        panic!(
            "the input takes more basic blocks than its size permits: see `LIMITS` of the target"
        );
    }

    pub(super) fn fill(fuel: u64) {
        FUEL.store(fuel.cast_signed(), Relaxed);
    }

    /// What is left.
    pub(super) fn drain() -> u64 {
        FUEL.swap(i64::MAX, Relaxed).cast_unsigned()
    }
}

/// Blocks are not counted on this processor.
#[cfg(not(target_arch = "x86_64"))]
mod fuel {
    use std::cell::Cell;

    thread_local! {
        static FUEL: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn fill(fuel: u64) {
        FUEL.set(fuel);
    }

    pub(super) fn drain() -> u64 {
        FUEL.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { blocks: Line { input: 100, byte: 0 }, bytes: Line { input: 50, byte: 2 } };

    #[test]
    fn an_input_may_allocate_what_its_size_permits() {
        let allocate = |input: &[u8]| drop(std::hint::black_box(vec![0_u8; input[0].into()]));
        bounded(LIMITS, &[50], allocate);
        bounded(LIMITS, &[60, 0, 0, 0, 0], allocate);
        let too_much = std::panic::catch_unwind(|| bounded(LIMITS, &[53], allocate)).unwrap_err();
        let text = too_much.downcast_ref::<String>().unwrap();
        assert_eq!(text, "53 bytes were allocated for an input of 1 bytes; the limit is 52");
    }

    /// The programs for libFuzzer call the function for each block; here a loop stands for one.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn fuel_is_used_up_block_by_block() {
        unsafe extern "C" {
            fn __wrap___sanitizer_cov_trace_pc();
        }
        let block = || {
            // SAFETY: the function has no arguments, and changes what any function may change.
            unsafe { __wrap___sanitizer_cov_trace_pc() }
        };
        fuel::fill(10);
        (0..7).for_each(|_| block());
        assert_eq!(fuel::drain(), 3);
        (0..100).for_each(|_| block());
        fuel::fill(5);
        (0..5).for_each(|_| block());
        assert_eq!(fuel::drain(), 0, "the last block that is permitted");
    }
}
