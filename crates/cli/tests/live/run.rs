//! `flowyard run` on real interfaces, with real programs on both sides.

mod far;
mod gigabyte;
mod killed;
mod openflow;
mod order;
mod programs;
mod reload;
mod take_over;
mod uplink;

flowyard_testkit::tests! {
    mod gigabyte,
    mod killed,
    mod openflow,
    mod order,
    mod programs,
    mod reload,
    mod take_over,
    mod uplink,
}
