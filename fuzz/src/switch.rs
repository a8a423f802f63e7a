//! `switch`: any bytes as a frame, with actions that the first bytes choose. The second of two equal frames may
//! be answered from the flow cache.

use crate::{Limits, Line};
use std::sync::Arc;

use flowyard_openflow::act::{Action, Instruction};
use flowyard_openflow::change::{Change, Counts, Entry};
use flowyard_openflow::port::Port;
use flowyard_openflow::{Field, Match, Oxm};
use flowyard_switch::{Arrival, Datapath, Effects, Settings};

/// An action, from a byte for its kind and a byte for its value.
fn action(kind: u8, value: u8) -> Action {
    let fields: Vec<Field> = Field::ALL.iter().copied().filter(|field| field.settable()).collect();
    match usize::from(kind) {
        0 => Action::PopVlan,
        1 => Action::PushVlan(0x8100),
        2 => Action::PopMpls(0x800),
        3 => Action::PushMpls(0x8847),
        4 => Action::PopPbb,
        5 => Action::PushPbb(0x88e7),
        6 => Action::CopyTtlIn,
        7 => Action::CopyTtlOut,
        8 => Action::DecNwTtl,
        9 => Action::DecMplsTtl,
        10 => Action::SetNwTtl(value),
        11 => Action::SetVlanVid(value.into()),
        12 => Action::SetTpDst(value.into()),
        13 => Action::Output { port: 2, max_len: value.into() },
        other => {
            let value = u128::from(value).wrapping_mul(0x0101_0101_0101_0101_0101_0101_0101_0101);
            Action::SetField(Oxm::exact(fields[other % fields.len()], value))
        }
    }
}

fn entry(id: u64, table: u8, instructions: Vec<Instruction>) -> Change {
    Change::Flow(Arc::new(Entry {
        id,
        table,
        priority: 0,
        cookie: 0,
        flags: 0,
        matching: Match::default(),
        instructions,
        counts: [Counts::default()].into(),
    }))
}

/// A data plane of two tables is built with four changes; that is nearly all of the work and of the bytes. The frame
/// passes it twice, with at most seven actions.
pub const LIMITS: Limits =
    Limits { blocks: Line { input: 30_000, byte: 100 }, bytes: Line { input: 250_000, byte: 30 } };

/// Applies up to seven actions to a frame, of which the last is an output.
///
/// # Panics
/// When the data plane panics, or when it treats the second of two equal frames differently.
pub fn switch(data: &[u8]) {
    let Some((head, frame)) = data.split_first_chunk::<12>() else { return };
    let mut actions: Vec<Action> =
        head.as_chunks::<2>().0.iter().map(|&[kind, value]| action(kind, value)).collect();
    actions.push(Action::Output { port: 2, max_len: 0 });
    let settings = Settings { tables: 2, cache_entries: 8, ..Settings::default() };
    let Some(mut datapath) = Datapath::group(1, &settings).pop() else { return };
    let mut out = Effects::new(4);
    let (apply, write) = actions.split_at(usize::from(head[0]) % actions.len());
    let changes = [
        Change::Port(Arc::new(Port { number: 1, ..Port::default() })),
        Change::Port(Arc::new(Port { number: 2, ..Port::default() })),
        entry(1, 0, vec![Instruction::ApplyActions(apply.to_vec()), Instruction::GotoTable(1)]),
        entry(2, 1, vec![Instruction::WriteActions(write.to_vec())]),
    ];
    for (number, change) in (1..).zip(&changes) {
        datapath.apply(number, change, 0, &mut out);
    }
    let mut process = |_| {
        datapath.process(frame, Arrival::by(1), 0, &mut out);
        let sent = out.sent.iter();
        sent.map(|sent| (sent.port, out.bytes(sent, frame).to_vec())).collect::<Vec<_>>()
    };
    let [first, second] = [0, 1].map(&mut process);
    assert_eq!(first, second);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of every EtherType: every byte changed, and cut after every byte.
    #[test]
    fn changed_seeds() {
        for kind in [0x0800_u16, 0x86dd, 0x0806, 0x8847, 0x88e7, 0x8100] {
            let mut data = vec![0_u8; 100];
            data[24..26].copy_from_slice(&kind.to_be_bytes());
            (data[26], data[32], data[35]) = (0x45, 58, 6);
            for at in 0..data.len() {
                for byte in [0, 1, 6, 17, 44, 60, 0x60, 132, 255] {
                    let mut changed = data.clone();
                    changed[at] = byte;
                    for part in 0..6 {
                        changed[part * 2] = (at * 7 + part * 3) as u8 % 50;
                    }
                    switch(&changed);
                    switch(&changed[..at]);
                }
            }
        }
    }
}
