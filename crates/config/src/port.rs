//! `[[port]]`: where frames enter and leave.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{
    BadChecksumsWord, FanoutWord, FullWord, HostQueueWord, MemoryWord, ModeWord, PortKind,
    PortOffload, RoleWord,
};

/// `[[port]]`
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PortConfig {
    /// Its name.
    pub name: Spanned<String>,
    /// Its kind.
    pub kind: PortKind,
    /// The core that owns it.
    #[serde(default = "super::core_0")]
    pub core: Spanned<u16>,
    /// The cores that own a port on an interface, each with a receive and a transmit queue of its
    /// own; in place of `core`.
    pub cores: Option<Spanned<Vec<Spanned<u16>>>>,
    /// The interface; kinds `af_packet`, `af_xdp` and `tap`.
    pub interface: Option<Spanned<String>>,
    /// `af_xdp`: the interface's queue for each core; by default 0, 1, ...
    pub queues: Option<Spanned<Vec<u32>>>,
    /// `af_xdp`: the frames that are taken from the kernel, see [`flowyard_ports::af_xdp::Rule`].
    #[serde(rename = "match")]
    pub rules: Option<Spanned<Vec<Spanned<String>>>>,
    /// `af_xdp`: whether frames are copied, and by which side.
    pub mode: Option<Spanned<ModeWord>>,
    /// `af_xdp`: whether the checksums of TCP and UDP are computed again, for frames of senders on
    /// the same machine.
    pub complete_checksums: Option<Spanned<bool>>,
    /// `af_xdp`: whether frames that are longer than a buffer are received and transmitted in several.
    pub multi_buffer: Option<Spanned<bool>>,
    /// `af_packet`: how received frames are distributed to cores.
    pub fanout: Option<Spanned<FanoutWord>>,
    /// `af_packet` and `af_xdp`: the number of frames in the kernel's rings. `memif` with role client: the
    /// number of descriptors of each ring. `dpdk`: the number of descriptors of each queue.
    pub ring_frames: Option<Spanned<u32>>,
    /// The MTU that the interface gets; `tap` and `dpdk`.
    pub mtu: Option<Spanned<u32>>,
    /// The hardware address that the interface gets, as `02:00:00:00:00:01`; `tap`.
    pub interface_mac: Option<Spanned<String>>,
    /// `tap` and `af_packet`: which unfinished frames the port passes on. All kinds: whether received frames are coalesced (`gro`).
    pub offload: Option<Spanned<PortOffload>>,
    /// `tap`: how the host chooses a queue to send by.
    pub host_queue: Option<Spanned<HostQueueWord>>,
    /// Whether the checksums of received frames are verified and counted, and wrong ones dropped. By default they are not
    /// verified.
    pub bad_checksums: Option<Spanned<BadChecksumsWord>>,
    /// `memif` and `vhost_user`: the path of the socket.
    pub socket: Option<Spanned<String>>,
    /// `memif` and `vhost_user`: which side of the connection this is.
    pub role: Option<Spanned<RoleWord>>,
    /// `memif`: the number of the interface at that socket.
    pub id: Option<Spanned<u32>>,
    /// `memif`: what the client must know.
    pub secret: Option<Spanned<String>>,
    /// `dpdk`: the device and its arguments, as `net_tap0,iface=fy0` or `0000:03:00.0`.
    pub device: Option<Spanned<String>>,
    /// `dpdk`: which memory frames are received into.
    pub memory: Option<Spanned<MemoryWord>>,
    /// `dpdk` with several cores: whether the adapter distributes frames by the hash of `[steer]`, if it can.
    pub rss: Option<Spanned<bool>>,
    /// The capture that the port receives; by default it receives nothing.
    #[serde(rename = "in")]
    pub input: Option<Spanned<PathBuf>>,
    /// The capture that the port writes; by default transmitted frames are counted and discarded.
    #[serde(rename = "out")]
    pub output: Option<Spanned<PathBuf>>,
    /// The rate at which `in` is received: `fast`, `capture`, or frames per second.
    pub pace: Option<Spanned<String>>,
    /// Kind `mem`: how often `in` is received in all.
    pub repeat: Option<Spanned<u32>>,
    /// The capacity of its tx queue in frames.
    #[serde(default = "super::window")]
    pub window_frames: Spanned<u32>,
    /// How frames that a table sends directly to the port are treated when its tx queue is full.
    #[serde(default)]
    pub full: FullWord,
    /// Its MAC address, the source of routed frames: as `02:00:00:00:00:01`. The default is
    /// 02:00:00:00 and the port's number.
    pub mac: Option<Spanned<String>>,
}
