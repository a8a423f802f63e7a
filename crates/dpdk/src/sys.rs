//! The functions and structures of `shim/shim.h`.
//!
//! Invariants: each structure has the fields of its twin in C, in that order, and no padding; sizes are asserted on
//! both sides.
#![allow(unsafe_code, reason = "declarations of C functions")]

use std::ffi::{c_char, c_int, c_void};

macro_rules! sized {
    ($($name:ident $bytes:literal),*) => { $(const _: () = assert!(size_of::<$name>() == $bytes);)* };
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Info {
    pub(crate) driver: [u8; 64],
    pub(crate) bus: [u8; 32],
    pub(crate) rss_types: u64,
    pub(crate) rx_offloads: u64,
    pub(crate) tx_offloads: u64,
    pub(crate) max_rx_queues: u32,
    pub(crate) max_tx_queues: u32,
    pub(crate) table_entries: u32,
    pub(crate) key_bytes: u32,
    pub(crate) min_mtu: u32,
    pub(crate) max_mtu: u32,
    pub(crate) socket: i32,
    pub(crate) reports_removal: u32,
    pub(crate) mac: [u8; 6],
    pub(crate) domain: u16,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Settings {
    pub(crate) rss_types: u64,
    pub(crate) queues: u32,
    pub(crate) rx_frames: u32,
    pub(crate) tx_frames: u32,
    pub(crate) mtu: u32,
}

pub(crate) const OURS: u32 = 1;
pub(crate) const HASH: u32 = 2;
pub(crate) const MARK: u32 = 4;
pub(crate) const BAD_IP: u32 = 8;
pub(crate) const BAD_L4: u32 = 16;

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Received {
    pub(crate) mbuf: *mut c_void,
    pub(crate) data: *mut u8,
    pub(crate) first_bytes: u32,
    pub(crate) bytes: u32,
    pub(crate) hash: u32,
    pub(crate) mark: u32,
    pub(crate) flags: u32,
    pub(crate) reserved: u32,
}

#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub(crate) struct Lent {
    pub(crate) place: u32,
    pub(crate) off: u16,
    pub(crate) bytes: u16,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Bytes {
    pub(crate) data: *const u8,
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Stats {
    pub(crate) rx_frames: u64,
    pub(crate) tx_frames: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) rx_missed: u64,
    pub(crate) rx_errors: u64,
    pub(crate) tx_errors: u64,
    pub(crate) rx_no_buffer: u64,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Link {
    pub(crate) mbps: u32,
    pub(crate) is_up: u32,
    pub(crate) full_duplex: u32,
    pub(crate) reserved: u32,
}

pub(crate) const MATCH_VLAN: u32 = 1;
pub(crate) const MATCH_IPV4: u32 = 2;
pub(crate) const MATCH_IPV6: u32 = 4;
pub(crate) const MATCH_TCP: u32 = 8;
pub(crate) const MATCH_UDP: u32 = 16;
pub(crate) const DO_QUEUE: u32 = 1;
pub(crate) const DO_DROP: u32 = 2;
pub(crate) const DO_MARK: u32 = 4;
pub(crate) const DO_COUNT: u32 = 8;
pub(crate) const DO_PORT: u32 = 16;

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Rule {
    pub(crate) matches: u32,
    pub(crate) actions: u32,
    pub(crate) queue: u32,
    pub(crate) mark: u32,
    pub(crate) priority: u32,
    pub(crate) vlan: u16,
    pub(crate) vlan_mask: u16,
    pub(crate) from_port: u16,
    pub(crate) from_port_mask: u16,
    pub(crate) to_port: u16,
    pub(crate) to_port_mask: u16,
    pub(crate) from: [u8; 16],
    pub(crate) from_mask: [u8; 16],
    pub(crate) to: [u8; 16],
    pub(crate) to_mask: [u8; 16],
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Event {
    pub(crate) payload: u64,
    pub(crate) flow: u32,
    pub(crate) queue: u8,
    pub(crate) op: u8,
    pub(crate) sched: u8,
    pub(crate) priority: u8,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct EventInfo {
    pub(crate) driver: [u8; 64],
    pub(crate) most_events: i64,
    pub(crate) capabilities: u32,
    pub(crate) most_queues: u32,
    pub(crate) most_ports: u32,
    pub(crate) flows: u32,
    pub(crate) dequeue_depth: u32,
    pub(crate) enqueue_depth: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct EventQueue {
    pub(crate) sched: u32,
    pub(crate) priority: u32,
    pub(crate) single_link: u32,
    pub(crate) any_sched: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct EventPort {
    pub(crate) threshold: u32,
    pub(crate) depth: u32,
    pub(crate) single_link: u32,
    pub(crate) no_implicit_release: u32,
    pub(crate) queues: u64,
}

sized!(Info 160, Settings 24, Received 40, Lent 8, Bytes 16, Stats 64, Link 16, Rule 96, Event 16);
sized!(EventInfo 96, EventQueue 16, EventPort 24);

unsafe extern "C" {
    pub(crate) fn fy_version() -> *const c_char;
    pub(crate) fn fy_error(code: c_int) -> *const c_char;
    pub(crate) fn fy_eal_start(argc: c_int, argv: *mut *mut c_char) -> c_int;
    pub(crate) fn fy_iova_is_va() -> c_int;
    pub(crate) fn fy_thread_register() -> c_int;
    pub(crate) fn fy_thread_unregister();

    pub(crate) fn fy_pool_new(
        name: *const c_char,
        frames: u32,
        room: u32,
        error: *mut c_int,
    ) -> *mut c_void;
    pub(crate) fn fy_pool_external(
        name: *const c_char,
        base: *mut c_void,
        bytes: u64,
        buffer: u32,
        frames: u32,
        mbufs: *mut *mut c_void,
        error: *mut c_int,
    ) -> *mut c_void;
    pub(crate) fn fy_pool_free(pool: *mut c_void, base: *mut c_void, bytes: u64);
    pub(crate) fn fy_pool_available(pool: *const c_void) -> u32;
    pub(crate) fn fy_pool_put(pool: *mut c_void, mbufs: *const *mut c_void, count: u32);
    pub(crate) fn fy_pool_get(pool: *mut c_void, mbufs: *mut *mut c_void, count: u32) -> u32;
    pub(crate) fn fy_mbuf_buffer(mbuf: *const c_void) -> *mut u8;

    pub(crate) fn fy_device_add(arguments: *const c_char) -> c_int;
    pub(crate) fn fy_device_port(name: *const c_char) -> c_int;
    pub(crate) fn fy_port_info(port: u16, out: *mut Info) -> c_int;
    pub(crate) fn fy_port_open(port: u16, of: *const Settings, pool: *mut c_void) -> c_int;
    pub(crate) fn fy_port_is_removed(port: u16) -> c_int;
    pub(crate) fn fy_port_pretend_removed(port: u16);
    pub(crate) fn fy_port_stop(port: u16) -> c_int;
    pub(crate) fn fy_port_remove(port: u16) -> c_int;
    pub(crate) fn fy_port_dma(port: u16, base: *mut c_void, bytes: u64) -> c_int;
    pub(crate) fn fy_port_undma(port: u16, base: *mut c_void, bytes: u64);
    pub(crate) fn fy_port_mtu(port: u16) -> c_int;
    pub(crate) fn fy_port_link(port: u16, out: *mut Link) -> c_int;
    pub(crate) fn fy_port_stats(port: u16, out: *mut Stats) -> c_int;

    pub(crate) fn fy_rss_usual() -> u64;
    pub(crate) fn fy_rss_set_key(port: u16, key: *mut u8, bytes: u32, types: u64) -> c_int;
    pub(crate) fn fy_rss_key(port: u16, key: *mut u8, bytes: u32, types: *mut u64) -> c_int;
    pub(crate) fn fy_rss_set_table(port: u16, queues: *const u16, entries: u32) -> c_int;
    pub(crate) fn fy_rss_table(port: u16, queues: *mut u16, entries: u32) -> c_int;

    pub(crate) fn fy_rx(
        port: u16,
        queue: u16,
        pool: *const c_void,
        out: *mut Received,
        most: u32,
    ) -> u32;
    pub(crate) fn fy_gather(mbuf: *const c_void, to: *mut u8);
    pub(crate) fn fy_free(mbuf: *mut c_void);
    pub(crate) fn fy_tx_lent(
        port: u16,
        queue: u16,
        mbufs: *const *mut c_void,
        frames: *const Lent,
        count: u32,
    ) -> u32;
    pub(crate) fn fy_tx_copy(
        port: u16,
        queue: u16,
        pool: *mut c_void,
        frames: *const Bytes,
        count: u32,
    ) -> u32;

    pub(crate) fn fy_flow_proxy(port: u16, rule: *const Rule) -> u16;
    pub(crate) fn fy_flow_validate(
        port: u16,
        rule: *const Rule,
        why: *mut c_char,
        room: u32,
    ) -> c_int;
    pub(crate) fn fy_flow_create(
        port: u16,
        rule: *const Rule,
        why: *mut c_char,
        room: u32,
        code: *mut c_int,
    ) -> *mut c_void;
    pub(crate) fn fy_flow_destroy(
        port: u16,
        flow: *mut c_void,
        why: *mut c_char,
        room: u32,
    ) -> c_int;
    pub(crate) fn fy_flow_query(
        port: u16,
        flow: *mut c_void,
        hits: *mut i64,
        why: *mut c_char,
        room: u32,
    ) -> c_int;

    pub(crate) fn fy_event_find(name: *const c_char) -> c_int;
    pub(crate) fn fy_event_device_info(device: u8, out: *mut EventInfo) -> c_int;
    pub(crate) fn fy_event_start(
        device: u8,
        events: u32,
        window: u32,
        queues: *const EventQueue,
        queue_count: u32,
        ports: *const EventPort,
        port_count: u32,
    ) -> c_int;
    pub(crate) fn fy_event_stop(device: u8);
    pub(crate) fn fy_event_remove(device: u8, name: *const c_char) -> c_int;
    pub(crate) fn fy_event_has_service(device: u8) -> c_int;
    pub(crate) fn fy_event_schedule(device: u8);
    pub(crate) fn fy_event_maintain(device: u8, port: u8);
    pub(crate) fn fy_event_enqueue(device: u8, port: u8, events: *const Event, count: u32) -> u32;
    pub(crate) fn fy_event_dequeue(device: u8, port: u8, events: *mut Event, most: u32) -> u32;
}
