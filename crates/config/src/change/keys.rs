//! What becomes of each key of the configuration when it changes while an instance runs.
//!
//! The test `every_key_belongs_to_a_class` compares these lists with the keys that the reader knows. A key that is not
//! listed counts as one that needs a restart.

/// What becomes of a changed key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum How {
    /// It is part of a scenario and has no effect on an instance that runs.
    Scenario,
    /// A reload applies it between two batches.
    Live,
    /// It needs a new process, which can take over from the running one without losing a frame.
    TakeOver,
    /// It needs a restart.
    Restart,
}

/// The keys that a reload applies. A name of a section or table here stands for all of its keys.
const LIVE: &[&str] = &[
    "balance.checks_per_second",
    "balance.closing_ms",
    "balance.cluster",
    "balance.datagrams_ms",
    "balance.full",
    "balance.open_ms",
    "balance.opening",
    "balance.opening_ms",
    "balance.pass",
    "balance.announce.after_ms",
    "balance.announce.withdraw_ms",
    "list",
    "service",
    "steer.exact",
    "steer.rule",
    "steer.spread",
    "steer.tenant",
    "switch.authority",
    "switch.certificate",
    "switch.controllers",
    "switch.fail",
    "switch.key",
    "switch.listen",
    "switch.memory_mib",
    "switch.versions",
    "work.age_ms",
    "work.ports",
    "work.route",
    "yard.metrics",
];

/// The keys that a new process applies which takes over.
const TAKE_OVER: &[&str] = &[
    "balance.address",
    "balance.announce.interface",
    "balance.announce.table",
    "balance.answer",
    "balance.clients",
    "balance.command_user",
    "balance.connections",
    "balance.sync",
    "balance.entries",
    "balance.local",
    "balance.neighbour_ms",
    "balance.seed",
    "cluster.ca",
    "cluster.cert",
    "cluster.class",
    "cluster.endpoints",
    "cluster.exit",
    "cluster.key",
    "cluster.kind",
    "cluster.namespace",
    "cluster.node",
    "cluster.password_file",
    "cluster.poll_ms",
    "cluster.prefix",
    "cluster.servers",
    "cluster.service",
    "cluster.state",
    "cluster.timeout_ms",
    "cluster.token_file",
    "cluster.url",
    "cluster.user",
    "elephants",
    "learn",
    "port.bad_checksums",
    "port.full",
    "port.interface",
    "port.kind",
    "port.mac",
    "port.name",
    "port.window_frames",
    "queue",
    "steer.counters",
    "steer.entries",
    "steer.exact_entries",
    "steer.hash_key",
    "steer.keep_local",
    "work.cost_ns",
    "work.stations",
    "yard.buffer_bytes",
    "yard.frames",
    "yard.hold_after_frames",
    "yard.hold_frames",
    "yard.hold_us",
    "yard.idle",
    "yard.large_frames",
    "yard.less_urgent_every",
    "yard.pin",
    "yard.queue_limits",
    "yard.seed",
    "yard.settle",
    "yard.settle_slots",
];

/// The keys that need a restart.
const RESTART: &[&str] = &[
    "dpdk",
    "ipsec",
    "offload",
    "port.complete_checksums",
    "port.core",
    "port.cores",
    "port.device",
    "port.fanout",
    "port.host_queue",
    "port.id",
    "port.in",
    "port.interface_mac",
    "port.match",
    "port.memory",
    "port.mode",
    "port.mtu",
    "port.multi_buffer",
    "port.offload",
    "port.out",
    "port.pace",
    "port.queues",
    "port.repeat",
    "port.ring_frames",
    "port.role",
    "port.rss",
    "port.secret",
    "port.socket",
    "switch.cache_entries",
    "switch.datapath",
    "switch.flows",
    "switch.groups",
    "switch.lookup",
    "switch.meters",
    "switch.ports",
    "switch.punts",
    "switch.tables",
    "work.kind",
    "yard.cores",
    "yard.engine",
    "yard.event_device",
];

/// The sections of scenarios.
const SCENARIO: &[&str] = &["expect", "reload", "send", "sim"];

/// The keys whose values are not printed. A URL may have a token in its query, and addresses of servers may have a
/// password.
const SECRET: &[&str] = &[
    "balance.seed",
    "cluster.endpoints",
    "cluster.service",
    "cluster.url",
    "port.secret",
    "service.check",
    "service.quic",
    "steer.hash_key",
    "yard.seed",
];

/// All keys with what becomes of them.
pub(super) fn all() -> impl Iterator<Item = (&'static str, How)> {
    let class = |keys: &'static [&'static str], how| keys.iter().map(move |key| (*key, how));
    let applied = class(LIVE, How::Live).chain(class(TAKE_OVER, How::TakeOver));
    applied.chain(class(RESTART, How::Restart)).chain(class(SCENARIO, How::Scenario))
}

/// What becomes of the key `path`, if it is listed.
pub(super) fn how(path: &str) -> Option<How> {
    all().find(|(key, _)| *key == path).map(|(_, how)| how)
}

/// Whether the value of the key `path` is not printed.
pub(super) fn is_secret(path: &str) -> bool {
    SECRET.contains(&path)
}
