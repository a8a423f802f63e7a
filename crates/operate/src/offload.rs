//! Rules in the adapters of ports: the answer to `offload`.
//!
//! Thread-safety: plain functions over a [`Handle`]; any thread may call them.

use flowyard_front::Adapters;
use flowyard_front::adapters::{AdapterState, EntryState, State};
use flowyard_yard::Handle;

use crate::protocol::{Offload, OffloadEntry, OffloadKind, OffloadPort, OffloadRefused};

/// What the adapters do.
///
/// # Errors
/// When adapters get no rules.
pub fn offload(yard: &Handle) -> Result<Offload, String> {
    let adapters = yard.control_plane::<Adapters>();
    let all = adapters
        .ok_or("adapters get no rules; write rules = true in [offload] (see docs/dpdk.md)")?;
    let all = all.states();
    let refused = all.refused.into_iter();
    Ok(Offload {
        ports: all.ports.into_iter().map(port).collect(),
        waiting_flows: all.waiting,
        refused_flows: refused.map(|(reason, flows)| OffloadRefused { reason, flows }).collect(),
    })
}

fn port(of: AdapterState) -> OffloadPort {
    let entry = |one: EntryState| OffloadEntry {
        entry: one.what,
        matches: one.flow,
        is_in_adapter: !matches!(one.state, State::Software(_)),
        state: one.state.to_string(),
        frames: one.frames,
    };
    let accepts = of.accepts.into_iter();
    OffloadPort {
        port: of.port,
        entries: of.entries.into_iter().map(entry).collect(),
        dropped_frames: of.dropped,
        forwarded_frames: of.forwarded,
        marked_flows: of.flows,
        accepts: accepts
            .map(|(matches, does, refused)| OffloadKind { matches, does, refused })
            .collect(),
    }
}
