//! Locality: interrupts on the adapter's NUMA node, transmit queues near their CPUs (XPS), and RFS, which
//! processes a connection where the application reads it.

use super::wish::{Ask, Wish};
use crate::setting::{Setting, cpu_text};

/// The size that Documentation/networking/scaling.rst suggests for a machine with moderate load.
const FLOWS: u32 = 32_768;

pub(super) fn wish(ask: &Ask<'_>, wish: &mut Wish) {
    let near = ask.near();
    let fewer = super::channels::fewer(ask, near.len() as u32, wish);
    let ask = &Ask { planned: fewer, ..*ask };
    ask.one_cpu_each(&near, "a CPU on the adapter's NUMA node for each queue", wish);
    transmit(ask, wish);
    let entries = ask.state.sock_flow_entries.value().copied();
    if entries.is_none_or(|entries| entries < FLOWS) {
        let why = "RFS finds the CPU of the application in this table";
        wish.change(Setting::SockFlows, FLOWS.to_string(), why);
    }
    wish.notes.push(NOTE.to_owned());
    let all = ask.state.rx_queues.value().into_iter().flatten();
    let queues: Vec<_> = all.filter(|one| ask.keeps(one.queue)).collect();
    let each = (FLOWS as usize / queues.len().max(1)).next_power_of_two() as u32;
    for one in queues {
        if one.rps_flow_cnt.value().is_some_and(|now| *now < each) {
            let why = "RFS remembers the CPU of each flow of the queue";
            wish.change(Setting::FlowCount(one.queue), each.to_string(), why);
        }
    }
}

/// A remark on what the prediction leaves out.
const NOTE: &str = "RFS then moves the frames of a connection to the CPU where its application reads them; the predicted \
                    load is that before RFS.";

/// CPU c transmits by queue c modulo the number of transmit queues.
fn transmit(ask: &Ask<'_>, wish: &mut Wish) {
    let all = ask.state.tx_queues.value().into_iter().flatten();
    let queues: Vec<_> = all.filter(|one| ask.keeps(one.queue)).collect();
    let all: Vec<u32> = ask.state.cpus.value().into_iter().flatten().map(|one| one.cpu).collect();
    for one in &queues {
        let mine: Vec<u32> =
            all.iter().copied().filter(|cpu| cpu % queues.len() as u32 == one.queue).collect();
        if queues.len() > 1 && !mine.is_empty() {
            let why = "each CPU transmits by one queue, without a lock that CPUs share";
            wish.change(Setting::Xps(one.queue), cpu_text(&mine), why);
        }
    }
}
