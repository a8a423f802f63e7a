//! Transmission: sets the output port and the MAC addresses of a frame.

use flowyard_frame::{Action, Batch, To};
use flowyard_pool::Pool;
use flowyard_works::neighbour::Neighbour;
use flowyard_yard::DropReason;
use flowyard_yard::port::refuse;

use crate::Exit;

/// Sends the frame of `lane` to an output port with the MAC addresses of `exit`. `next` is the next hop if its
/// MAC address must be resolved.
#[inline]
pub(super) fn out(
    batch: &mut Batch,
    lane: usize,
    pool: &Pool,
    exit: Exit,
    next: Option<&Neighbour>,
) {
    let dst = match exit.via {
        None => Some(exit.dst),
        Some(_) => next.and_then(Neighbour::mac),
    };
    let Some(dst) = dst else { return refuse(batch, lane, DropReason::Unresolved) };
    if let Some(macs) = pool.bytes_mut(&mut batch.frames[lane]).first_chunk_mut::<12>() {
        macs[..6].copy_from_slice(&dst);
        macs[6..].copy_from_slice(&exit.src);
    }
    leave(batch, lane, exit.port);
}

/// Sends the frame of `lane` to an output port unchanged.
#[inline]
pub(super) fn leave(batch: &mut Batch, lane: usize, port: u16) {
    let mark = batch.actions[lane].mark;
    batch.actions[lane] = Action { to: To::Port(port), counter: 0, mark };
}
