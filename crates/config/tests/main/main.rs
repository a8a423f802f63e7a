//! Engines built from configurations: order, conservation, allocations and clean ends, on threads
//! and under seeds. All these tests are in one program; ports on interfaces are tested in
//! `interfaces`.
#![allow(unsafe_code, reason = "a global allocator that counts")]

mod adapters;
mod alloc;
mod balance;
mod elephants;
mod event_engine;
mod eventdev;
mod front;
mod hold;
mod memif;
mod nic;
mod ports;
mod sim;
mod split;
mod switch;
mod threads;
mod urgency;
mod vhost_user;

use event_engine::engine;

flowyard_testkit::tests! {
    mod adapters,
    mod alloc,
    mod balance,
    mod elephants,
    mod eventdev,
    mod front,
    mod hold,
    mod memif,
    mod ports,
    mod sim,
    mod split,
    mod switch,
    mod threads,
    mod urgency,
    mod vhost_user,
}

/// The number of frames that switches answered in front of their queues.
fn front_totals(cores: &[flowyard_yard::Core]) -> u64 {
    let totals = cores.iter().filter_map(|core| core.work().ask(&flowyard_switch::TotalsAsked));
    totals
        .filter_map(|answer| answer.downcast_ref::<flowyard_switch::Totals>().map(|of| of.front))
        .sum()
}

fn main() -> std::process::ExitCode {
    flowyard_testkit::harness::run(tests())
}
