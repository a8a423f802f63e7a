//! The number of instructions that could issue in a cycle: HPCA 2005, section 2.2, Table 2.
//!
//! A trace of the ideal firmware, without its dispatch loop, is scheduled cycle by cycle, in program order or
//! out of order, on machines of different width. The rules, with "ours" where the paper gives none:
//!
//! - in order: issue stops at the first instruction that cannot issue; out of order: that instruction is
//!   skipped, with unlimited renaming, so only true dependences count; HI/LO is one register;
//! - perfect pipeline: every result is available in the next cycle; with stalls: the result of a load is
//!   available one cycle later, and one memory access issues in a cycle;
//! - branches: in one cycle the scan may pass at most B branches or jumps that had not issued before:
//!   with PBP any number up to the width, with PBP1 one, without BP none (ours: the scan ends at the branch);
//! - memory order (ours, because the paper names none): a load does not pass a store that has not issued, since
//!   the store's address may be the load's; stores do not pass each other, since memory has no renaming.
//!   [`Order::Free`] (all addresses are known in advance) and [`Order::Program`] (accesses in program order)
//!   are the two limits, which show what the choice does.

use crate::elf::Image;
use crate::isa::{self, Class, Op};
use crate::profile::{Category, categories};

/// An instruction of the trace, with its dependences.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// The steps that produced its operands, or [`NONE`].
    from: [u32; 2],
    is_load: bool,
    is_store: bool,
    is_control: bool,
}

const NONE: u32 = u32::MAX;
/// The number of instructions after the oldest waiting one that an out-of-order core considers by default.
pub const WINDOW: usize = 4096;

/// Which memory accesses may issue before earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Any: all addresses are known in advance and differ.
    Free,
    /// A load depends on all earlier stores, and a store issues after all earlier stores.
    AfterStores,
    /// Accesses issue in program order.
    Program,
}

/// A machine of Table 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Issues in program order.
    pub in_order: bool,
    /// Instructions in a cycle.
    pub width: usize,
    /// A load latency of 2 and one memory access in a cycle.
    pub stalls: bool,
    /// The number of branches that the scan may pass in a cycle.
    pub branches: usize,
    /// Which memory accesses may issue before earlier ones.
    pub order: Order,
    /// The number of instructions after the oldest waiting one that it considers.
    pub window: usize,
}

/// A trace that can be scheduled.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    steps: Vec<Step>,
}

impl Trace {
    /// The trace of the instruction addresses that a core issued, restricted to the functions of Table 1.
    pub fn of(image: &Image, pcs: &[u32]) -> Self {
        let map = categories(image);
        let mut steps = Vec::new();
        let mut writer = [NONE; 33];
        for &pc in pcs {
            let index = (pc / 4) as usize;
            let wanted = matches!(
                map.get(index),
                Some(
                    Category::FetchSendBd
                        | Category::SendFrame
                        | Category::FetchReceiveBd
                        | Category::ReceiveFrame
                )
            );
            let Some(insn) = image.text.get(index).and_then(|&word| isa::decode(word, pc)) else {
                continue;
            };
            if !wanted {
                continue;
            }
            let hi_lo = matches!(insn.op, Op::Mfhi | Op::Mflo | Op::Mthi | Op::Mtlo);
            let multiplies = matches!(insn.op, Op::Mult | Op::Multu | Op::Div | Op::Divu);
            let read = |r: u8| if r == 0 { NONE } else { writer[usize::from(r & 31)] };
            let from = [if hi_lo { writer[32] } else { read(insn.rs) }, read(insn.rt)];
            let class = insn.class();
            let number = steps.len() as u32;
            steps.push(Step {
                from,
                is_load: class == Class::Load,
                is_store: insn.is_memory() && class != Class::Load,
                is_control: matches!(class, Class::Branch | Class::Jump),
            });
            if insn.rd != 0 {
                writer[usize::from(insn.rd & 31)] = number;
            }
            if multiplies || matches!(insn.op, Op::Mthi | Op::Mtlo) {
                writer[32] = number;
            }
        }
        Self { steps }
    }

    /// The number of instructions in the trace.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether the trace is empty.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Instructions per cycle on `machine`; 0 for an empty trace.
    pub fn ipc(&self, machine: Machine) -> f64 {
        const WAITING: u64 = u64::MAX;
        let mut issued = vec![WAITING; self.steps.len()];
        let (mut head, mut cycle) = (0, 0u64);
        while head < self.steps.len() {
            let (mut slots, mut accesses, mut passed) = (machine.width, 0, 0);
            // Whether a load or a store before the scan's position waits.
            let (mut load_waits, mut store_waits) = (false, false);
            // Whether a store issued in this cycle.
            let mut stored = false;
            let end = self.steps.len().min(head + machine.window);
            for at in head..end {
                if issued[at] != WAITING {
                    continue;
                }
                let step = &self.steps[at];
                let ready = |producer: u32| {
                    let Some(&when) = issued.get(producer as usize) else { return true };
                    let late = machine.stalls && self.steps[producer as usize].is_load;
                    when != WAITING && when + 1 + u64::from(late) <= cycle
                };
                let is_memory = step.is_load || step.is_store;
                let blocked = match machine.order {
                    Order::Free => false,
                    Order::AfterStores => store_waits || (step.is_load && stored),
                    Order::Program => load_waits || store_waits,
                };
                let port = machine.stalls && accesses == 1;
                let held = is_memory && (blocked || port);
                if ready(step.from[0]) && ready(step.from[1]) && !held {
                    issued[at] = cycle;
                    slots -= 1;
                    accesses += usize::from(is_memory);
                    stored |= step.is_store;
                } else if machine.in_order {
                    break;
                } else {
                    load_waits |= step.is_load;
                    store_waits |= step.is_store;
                }
                if step.is_control {
                    if passed == machine.branches {
                        break;
                    }
                    passed += 1;
                }
                if slots == 0 {
                    break;
                }
            }
            while head < self.steps.len() && issued[head] != WAITING {
                head += 1;
            }
            cycle += 1;
        }
        self.steps.len() as f64 / (cycle as f64).max(1.0)
    }
}

/// Table 2. Its rows are in order and out of order, each with widths 1, 2 and 4. Its columns are PBP and no BP
/// on a perfect pipeline, then PBP, PBP1 and no BP with stalls.
pub fn table(trace: &Trace, order: Order) -> [[f64; 5]; 6] {
    let mut cells = [[0.0; 5]; 6];
    for (row, (in_order, width)) in
        [(true, 1), (true, 2), (true, 4), (false, 1), (false, 2), (false, 4)]
            .into_iter()
            .enumerate()
    {
        for (column, (stalls, branches)) in
            [(false, width), (false, 0), (true, width), (true, 1), (true, 0)]
                .into_iter()
                .enumerate()
        {
            let machine = Machine { in_order, width, stalls, branches, order, window: WINDOW };
            cells[row][column] = trace.ipc(machine);
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(from: [u32; 2]) -> Step {
        Step { from, is_load: false, is_store: false, is_control: false }
    }

    #[test]
    fn a_chain_has_no_parallelism_and_independent_steps_are_limited_by_the_width() {
        let chain = Trace {
            steps: (0..100).map(|n| step([if n == 0 { NONE } else { n - 1 }, NONE])).collect(),
        };
        let free = Trace { steps: vec![step([NONE, NONE]); 100] };
        for in_order in [true, false] {
            let machine = Machine {
                in_order,
                width: 4,
                stalls: false,
                branches: 4,
                order: Order::Free,
                window: WINDOW,
            };
            assert!((chain.ipc(machine) - 1.0).abs() < 1e-9);
            assert!((free.ipc(machine) - 4.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_load_delays_its_user_by_one() {
        let mut load = step([NONE, NONE]);
        load.is_load = true;
        let trace = Trace { steps: vec![load, step([0, NONE])] };
        let order = Order::Free;
        let machine =
            Machine { in_order: true, width: 1, stalls: true, branches: 1, order, window: WINDOW };
        assert!((trace.ipc(machine) - 2.0 / 3.0).abs() < 1e-9);
    }
}
