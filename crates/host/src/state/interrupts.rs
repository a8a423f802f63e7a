//! The interrupts of an interface: `/proc/interrupts`, `/proc/irq`, and the device's list of them.

use super::Interrupt;
use super::counters::queue_of_interrupt;
use crate::cpus;
use crate::files;
use crate::known::{Known, reason};
use crate::machine::Machine;

pub(super) fn interrupts(machine: &dyn Machine, interface: &str) -> Known<Vec<Interrupt>> {
    const TABLE: &str = "/proc/interrupts";
    let table = match machine.read(TABLE) {
        Ok(text) => text,
        Err(error) => return Known::unknown(reason(TABLE, &error)),
    };
    let owned = owned(machine, interface);
    let mut found = Vec::new();
    for line in table.lines().skip(1) {
        let Some(row) = row(line) else { continue };
        let is_ours = match &owned {
            Some(numbers) => numbers.contains(&row.irq),
            None => row.name.split(['-', '@', ' ', '/']).any(|part| part == interface),
        };
        if is_ours {
            found.push(interrupt(machine, row));
        }
    }
    if found.is_empty() {
        let why = "no interrupt of /proc/interrupts belongs to the interface: it has no adapter, or this is a \
                   container whose /proc/interrupts is empty";
        return Known::unknown(why);
    }
    Known::Value(found)
}

/// The numbers of the interrupts of the interface's device. A virtio device's are those of its parent.
fn owned(machine: &dyn Machine, interface: &str) -> Option<Vec<u32>> {
    let device = format!("{}/device", files::folder(interface));
    let listed = [format!("{device}/msi_irqs"), format!("{device}/../msi_irqs")];
    let names = listed.iter().find_map(|folder| machine.names(folder).ok())?;
    Some(names.iter().filter_map(|name| name.parse().ok()).collect())
}

/// A line of /proc/interrupts.
struct Row {
    irq: u32,
    count: u64,
    name: String,
}

fn row(line: &str) -> Option<Row> {
    let (irq, rest) = line.split_once(':')?;
    let irq = irq.trim().parse().ok()?;
    let mut words = rest.split_whitespace().peekable();
    let mut count = 0_u64;
    while let Some(number) = words.peek().and_then(|word| word.parse::<u64>().ok()) {
        count = count.saturating_add(number);
        words.next();
    }
    // The controller, the kind, and last the names of those who registered it.
    let name = words.last()?.to_owned();
    Some(Row { irq, count, name })
}

fn interrupt(machine: &dyn Machine, Row { irq, count, name }: Row) -> Interrupt {
    let file = |file: &str| {
        let path = format!("/proc/irq/{irq}/{file}");
        files::parsed(machine, &path, cpus::from_list)
    };
    let rx_queue = match queue_of_interrupt(&name) {
        Some(queue) => Known::Value(queue),
        None => Known::unknown("the name of the interrupt tells no receive queue"),
    };
    let (affinity, effective) = (file("smp_affinity_list"), file("effective_affinity_list"));
    Interrupt { irq, name, rx_queue, affinity, effective, count }
}
