//! `flowyard run` on real interfaces, with real programs on both sides, in network namespaces.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "what is shared with the yard's live tests is used in part"
)]

mod far;
mod gigabyte;
mod killed;
#[path = "../../../config/tests/live/line.rs"]
mod line;
#[path = "../common/needs.rs"]
mod needs;
#[path = "../../../config/tests/live/net.rs"]
mod net;
mod openflow;
mod order;
mod programs;
#[path = "../../../config/tests/live/sys.rs"]
mod sys;
#[path = "../../../config/tests/live/traffic.rs"]
mod traffic;
mod uplink;
mod yard;

use needs::{skipped, tell};
