//! Checks and settings of ports on interfaces.

use flowyard_memif as memif;
use flowyard_ports::af_xdp::{self, Rule, Rules};
use flowyard_ports::{af_packet, live, tap};
use flowyard_vhost as vhost;
use toml::Spanned;

use super::{
    Config, ConfigError, FanoutWord, HostQueueWord, ModeWord, PortConfig, PortKind, PortOffload,
    RoleWord,
};
use flowyard_pool::LONGEST_LENDABLE;

/// The default number of frames in a ring: of AF_XDP, and of AF_PACKET, whose frames wait only in
/// the ring.
const RING_FRAMES: u32 = 2048;
const PACKET_RING_FRAMES: u32 = 4096;
const MEMIF_RING_FRAMES: u32 = 1024;

const UPLINK_FIX: &str = "name another interface, or use --yes-this-is-my-uplink";

impl Config {
    /// Finds the first port that takes frames from the interface of the default route in the
    /// network namespace of the calling thread. A mistake there could cut off the machine.
    ///
    /// # Errors
    /// When there is one, or when the routes cannot be read.
    pub fn refuse_uplinks(&self) -> Result<(), ConfigError> {
        for port in self.ports() {
            let (PortKind::AfPacket | PortKind::AfXdp, Some(name)) = (port.kind, &port.interface)
            else {
                continue;
            };
            let wrong = |what: String| self.error(name.span(), what, UPLINK_FIX);
            match live::default_route(name.get_ref()) {
                Ok(None) => {}
                Ok(Some(to)) => {
                    let what = format!(
                        "'{}' carries the default route ({to}/0), and the machine may be cut off",
                        name.get_ref()
                    );
                    return Err(wrong(what));
                }
                Err(error) => return Err(wrong(format!("the routes cannot be read: {error}"))),
            }
        }
        Ok(())
    }
}

impl PortConfig {
    /// The cores that own the port; only a port on an interface can have more than one.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &Spanned<u16>> {
        let many = self.cores.as_ref().map_or(&[][..], |cores| cores.get_ref());
        let one = many.is_empty().then_some(&self.core);
        many.iter().chain(one)
    }

    /// Pool buffers that the port's interface may hold.
    pub(crate) fn lent_frames(&self) -> usize {
        match self.kind {
            PortKind::AfXdp => 2 * self.ring() as usize * self.owners().count(),
            PortKind::Dpdk => self.dpdk_lent_frames(),
            _ => 0,
        }
    }

    fn ring(&self) -> u32 {
        let default = if self.kind == PortKind::AfXdp { RING_FRAMES } else { PACKET_RING_FRAMES };
        self.ring_frames.as_ref().map_or(default, |frames| *frames.get_ref())
    }

    pub(crate) fn packet_settings(&self) -> af_packet::Settings {
        let word = self.fanout.as_ref().map_or(FanoutWord::Hash, |word| *word.get_ref());
        let fanout = match word {
            FanoutWord::Hash => af_packet::Fanout::Hash,
            FanoutWord::Cpu => af_packet::Fanout::Cpu,
            FanoutWord::Queue => af_packet::Fanout::Queue,
        };
        af_packet::Settings { fanout, frames: self.ring() }
    }

    pub(crate) fn xdp_settings(&self) -> af_xdp::Settings {
        let word = self.mode.as_ref().map_or(ModeWord::Auto, |word| *word.get_ref());
        let mode = match word {
            ModeWord::Auto => af_xdp::Mode::Auto,
            ModeWord::Copy => af_xdp::Mode::Copy,
            ModeWord::ZeroCopy => af_xdp::Mode::ZeroCopy,
        };
        let multi_buffer = self.is_multi_buffer();
        af_xdp::Settings { mode, frames: self.ring(), multi_buffer }
    }

    pub(crate) fn completes_checksums(&self) -> bool {
        self.complete_checksums.as_ref().is_some_and(|word| *word.get_ref())
    }

    /// Whether frames may be in several buffers of an AF_XDP port.
    pub(crate) fn is_multi_buffer(&self) -> bool {
        self.multi_buffer.as_ref().is_some_and(|word| *word.get_ref())
    }

    /// The interface's queue for the core at position `at`.
    pub(crate) fn queue_of(&self, at: usize) -> u32 {
        let named = self.queues.as_ref().and_then(|queues| queues.get_ref().get(at));
        named.copied().unwrap_or(at as u32)
    }

    pub(crate) fn tap_settings(&self) -> tap::Settings {
        let mac = self.interface_mac.as_ref().and_then(|mac| mac_of(mac.get_ref()));
        tap::Settings { mtu: self.mtu.as_ref().map(|mtu| *mtu.get_ref()), mac }
    }

    /// How the host chooses the queue of a frame that it sends to a TAP port.
    pub(crate) fn host_queue(&self, pin: &[usize]) -> tap::HostQueue {
        let cpu = |core: &Spanned<u16>| pin.get(usize::from(*core.get_ref()));
        match self.host_queue.as_ref().map(|word| *word.get_ref()).unwrap_or_default() {
            HostQueueWord::Flow => tap::HostQueue::Flow,
            HostQueueWord::Learned => tap::HostQueue::Learned,
            HostQueueWord::Cpu => {
                tap::HostQueue::Cpu(self.owners().filter_map(cpu).map(|at| *at as u32).collect())
            }
        }
    }

    fn role(&self) -> RoleWord {
        self.role.as_ref().map(|word| *word.get_ref()).unwrap_or_default()
    }

    /// The socket of a vhost-user port.
    pub(crate) fn vhost_settings(&self) -> vhost::Settings {
        let role = match self.role() {
            RoleWord::Server => vhost::Role::Server,
            RoleWord::Client => vhost::Role::Client,
        };
        let socket = self.socket.as_ref().map(|path| path.get_ref().into()).unwrap_or_default();
        vhost::Settings { role, socket }
    }

    /// The connection of a memif port. `buffer_bytes` is the length of the yard's buffers.
    pub(crate) fn memif_settings(&self, buffer_bytes: usize) -> memif::Settings {
        let text = |value: &Option<Spanned<String>>| {
            value.as_ref().map(|value| value.get_ref().clone()).unwrap_or_default()
        };
        let role = match self.role() {
            RoleWord::Server => memif::Role::Server,
            RoleWord::Client => memif::Role::Client,
        };
        let ring = self.ring_frames.as_ref().map_or(MEMIF_RING_FRAMES, |frames| *frames.get_ref());
        memif::Settings {
            role,
            socket: text(&self.socket).into(),
            id: self.id.as_ref().map_or(0, |id| *id.get_ref()),
            name: self.name.get_ref().clone(),
            secret: text(&self.secret).into_bytes(),
            queues: self.owners().count() as u16,
            log2_ring: ring.trailing_zeros() as u8,
            buffer_bytes: u32::try_from(buffer_bytes).unwrap_or(u32::MAX),
        }
    }

    /// The frames that it takes from the kernel.
    pub(crate) fn xdp_rules(&self) -> Rules {
        let words = self.rules.as_ref().map_or(&[][..], |rules| rules.get_ref());
        let rules: Vec<Rule> =
            words.iter().filter_map(|rule| rule.get_ref().parse().ok()).collect();
        let has_all = rules.contains(&Rule::default()) && !rules.iter().any(|rule| rule.kernel);
        if has_all { Rules::All } else { Rules::Any(rules) }
    }
}

/// Parses a unicast hardware address.
fn mac_of(text: &str) -> Option<[u8; 6]> {
    let mut bytes = text.split(':').map(|byte| match byte.len() {
        1 | 2 => u8::from_str_radix(byte, 16).ok(),
        _ => None,
    });
    let mut mac = [0; 6];
    for byte in &mut mac {
        *byte = bytes.next()??;
    }
    (bytes.next().is_none() && mac[0] & 1 == 0 && mac != [0; 6]).then_some(mac)
}

/// Returns the first mistake.
pub(super) fn check(config: &Config, port: &PortConfig) -> Result<(), ConfigError> {
    misplaced(config, port)?;
    if !port.kind.is_live() {
        return Ok(());
    }
    if !matches!(port.kind, PortKind::Memif | PortKind::VhostUser | PortKind::Dpdk) {
        interface(config, port)?;
    }
    if let Some(cores) = &port.cores {
        let mut seen = std::collections::HashSet::new();
        if !(1..=256).contains(&cores.get_ref().len()) {
            let what = format!("a port cannot have {} cores", cores.get_ref().len());
            return Err(config.error(cores.span(), what, "name 1 to 256"));
        }
        if let Some(twice) = cores.get_ref().iter().find(|core| !seen.insert(core.get_ref())) {
            let what = format!("core {} is named twice", twice.get_ref());
            return Err(config.error(twice.span(), what, "name each core once"));
        }
    }
    if let Some(frames) = &port.ring_frames
        && !(frames.get_ref().is_power_of_two() && (64..=65_536).contains(frames.get_ref()))
    {
        let what = format!("a ring of {} frames is not possible", frames.get_ref());
        return Err(config.error(frames.span(), what, "write a power of two, 64 to 65536"));
    }
    if let Some(mtu) = &port.mtu
        && !(68..=65_521).contains(mtu.get_ref())
    {
        let what = format!("an MTU of {} is not possible", mtu.get_ref());
        return Err(config.error(mtu.span(), what, "write 68 to 65521"));
    }
    if let Some(mac) = &port.interface_mac
        && mac_of(mac.get_ref()).is_none()
    {
        let what = format!("'{}' is not a unicast hardware address", mac.get_ref());
        return Err(config.error(mac.span(), what, "write six bytes, as 02:00:00:00:00:01"));
    }
    if let Some(word) = &port.host_queue
        && *word.get_ref() == HostQueueWord::Cpu
        && config.yard.pin.get_ref().is_empty()
    {
        let what = "the host cannot choose a queue by processor, because no core is pinned";
        return Err(config.error(word.span(), what, "add 'pin = [0, 1, ...]' to [yard]"));
    }
    match port.kind {
        PortKind::AfXdp => af_xdp(config, port),
        PortKind::Memif => memif(config, port),
        PortKind::VhostUser => socket(config, port).map(drop),
        PortKind::Dpdk => super::dpdk::check(config, port),
        _ => Ok(()),
    }
}

fn interface(config: &Config, port: &PortConfig) -> Result<(), ConfigError> {
    let Some(interface) = &port.interface else {
        let what = format!("this {} port has no interface", port.kind.name());
        return Err(config.error(port.name.span(), what, "add 'interface = \"...\"'"));
    };
    let name = interface.get_ref();
    if name.is_empty() || name.len() > 15 || name.contains(['/', '%', ' ', '\0']) {
        let what = format!("'{name}' is not a valid name of an interface");
        return Err(config.error(interface.span(), what, "write 1 to 15 letters and digits"));
    }
    Ok(())
}

/// The path of the socket of a port, at which no other port listens.
fn socket<'a>(config: &Config, port: &'a PortConfig) -> Result<&'a str, ConfigError> {
    let Some(socket) = &port.socket else {
        let what = format!("this {} port has no socket", port.kind.name());
        let fix = format!("add 'socket = \"/run/flowyard/{}.sock\"'", port.kind.name());
        return Err(config.error(port.name.span(), what, fix));
    };
    let path = socket.get_ref();
    if path.is_empty() || path.len() > 107 || path.contains('\0') {
        let what = format!("'{path}' is not a valid path of a socket");
        return Err(config.error(socket.span(), what, "write 1 to 107 characters"));
    }
    let is_server = |port: &PortConfig| port.role() == RoleWord::Server;
    let same = |other: &&PortConfig| {
        let twin = other.socket.as_ref().is_some_and(|other| other.get_ref() == path);
        twin && is_server(other) && other.name != port.name
    };
    if is_server(port) && config.ports().any(|other| same(&other)) {
        let what = format!("another port listens at '{path}'");
        return Err(config.error(socket.span(), what, "give each port a socket of its own"));
    }
    Ok(path)
}

fn memif(config: &Config, port: &PortConfig) -> Result<(), ConfigError> {
    socket(config, port)?;
    if let Some(secret) = port.secret.as_ref().filter(|secret| secret.get_ref().len() > 24) {
        let what = format!("a secret of {} bytes is not possible", secret.get_ref().len());
        return Err(config.error(secret.span(), what, "write at most 24"));
    }
    if let Some(frames) = port.ring_frames.as_ref().filter(|frames| *frames.get_ref() > 16_384) {
        let what = format!("a memif ring of {} descriptors is not possible", frames.get_ref());
        return Err(config.error(frames.span(), what, "write at most 16384"));
    }
    let settings = port.memif_settings(*config.yard.buffer_bytes.get_ref());
    let (queues, log2_ring) = (settings.queues, settings.log2_ring);
    let layout =
        memif::Layout { rings: (queues, queues), log2_ring, buffer_bytes: settings.buffer_bytes };
    if settings.role == memif::Role::Client && layout.bytes().is_none() {
        let what = "the rings of this memif port need more than 4 GiB";
        let fix = "reduce 'ring_frames', or 'buffer_bytes' in [yard]";
        return Err(config.error(port.name.span(), what, fix));
    }
    Ok(())
}

/// The words of `offload` for the kinds of ports that pass on unfinished frames; `gro` is for all kinds.
fn passing(port: &PortConfig) -> Option<&Spanned<PortOffload>> {
    let gro = |words: PortOffload| PortOffload { gro: words.gro, ..PortOffload::default() };
    port.offload.as_ref().filter(|words| {
        let words = *words.get_ref();
        words.gro.is_none() || words != gro(words)
    })
}

/// Rejects keys that only other kinds have.
fn misplaced(config: &Config, port: &PortConfig) -> Result<(), ConfigError> {
    use PortKind::{AfPacket, AfXdp, Dpdk, Mem, Memif, Pcap, Tap, VhostUser};
    let live = &[AfPacket, AfXdp, Tap][..];
    let many = &[AfPacket, AfXdp, Tap, Memif, VhostUser, Dpdk][..];
    let ring = &[AfPacket, AfXdp, Memif, Dpdk][..];
    let file = &[Mem, Pcap][..];
    // `None` for a key without a position of its own in the text.
    let keys = [
        ("cores", port.cores.as_ref().map(Spanned::span), many),
        ("interface", port.interface.as_ref().map(Spanned::span), live),
        ("queues", port.queues.as_ref().map(Spanned::span), &[AfXdp]),
        ("match", port.rules.as_ref().map(Spanned::span), &[AfXdp]),
        ("mode", port.mode.as_ref().map(Spanned::span), &[AfXdp]),
        ("complete_checksums", port.complete_checksums.as_ref().map(Spanned::span), &[AfXdp]),
        ("multi_buffer", port.multi_buffer.as_ref().map(Spanned::span), &[AfXdp]),
        ("fanout", port.fanout.as_ref().map(Spanned::span), &[AfPacket]),
        ("ring_frames", port.ring_frames.as_ref().map(Spanned::span), ring),
        ("device", port.device.as_ref().map(Spanned::span), &[Dpdk]),
        ("memory", port.memory.as_ref().map(Spanned::span), &[Dpdk]),
        ("rss", port.rss.as_ref().map(Spanned::span), &[Dpdk]),
        ("offload", passing(port).map(Spanned::span), &[AfPacket, Tap]),
        ("socket", port.socket.as_ref().map(Spanned::span), &[Memif, VhostUser]),
        ("role", port.role.as_ref().map(Spanned::span), &[Memif, VhostUser]),
        ("id", port.id.as_ref().map(Spanned::span), &[Memif]),
        ("secret", port.secret.as_ref().map(Spanned::span), &[Memif]),
        ("mtu", port.mtu.as_ref().map(Spanned::span), &[Tap, Dpdk]),
        ("interface_mac", port.interface_mac.as_ref().map(Spanned::span), &[Tap]),
        ("host_queue", port.host_queue.as_ref().map(Spanned::span), &[Tap]),
        ("in", port.input.as_ref().map(Spanned::span), file),
        ("out", port.output.as_ref().map(Spanned::span), file),
        ("pace", port.pace.as_ref().map(Spanned::span), file),
        ("repeat", port.repeat.as_ref().map(Spanned::span), file),
    ];
    for (key, span, kinds) in keys {
        if let Some(span) = span
            && !kinds.contains(&port.kind)
        {
            let kinds: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
            let what = format!("a port of kind \"{}\" has no '{key}'", port.kind.name());
            let fix = format!("leave it out; it is for kind {}", kinds.join(", "));
            return Err(config.error(span, what, fix));
        }
    }
    Ok(())
}

fn af_xdp(config: &Config, port: &PortConfig) -> Result<(), ConfigError> {
    let Some(rules) = &port.rules else {
        let what = "this af_xdp port does not name the frames it takes from the kernel";
        let fix = "add match = [\"all\"], or name the frames, as match = [\"udp to port 4789\"]";
        return Err(config.error(port.name.span(), what, fix));
    };
    if !(1..=64).contains(&rules.get_ref().len()) {
        let what = format!("{} rules are not possible", rules.get_ref().len());
        return Err(config.error(rules.span(), what, "write 1 to 64, or [\"all\"]"));
    }
    let is_not = |rule: &Spanned<String>| rule.get_ref().trim_start().starts_with("not ");
    if rules.get_ref().iter().all(is_not) {
        let fix = "add a rule without 'not' for the frames that the port takes";
        return Err(config.error(rules.span(), "every rule leaves frames to the kernel", fix));
    }
    for rule in rules.get_ref() {
        if let Err(error) = rule.get_ref().parse::<Rule>() {
            let text = error.to_string();
            let (what, fix) = text.split_once("; ").unwrap_or((&text, ""));
            return Err(config.error(rule.span(), what, fix));
        }
    }
    if let Some(queues) = &port.queues {
        let (count, cores) = (queues.get_ref().len(), port.owners().count());
        if count != cores {
            let what = format!("{count} queues are named for {cores} cores");
            return Err(config.error(queues.span(), what, "name one for each core"));
        }
        let mut seen = std::collections::HashSet::new();
        if queues.get_ref().iter().any(|queue| *queue > 255 || !seen.insert(*queue)) {
            let what = "a queue is named twice, or is more than 255";
            return Err(config.error(queues.span(), what, "name each queue once"));
        }
    }
    let bytes = &config.yard.buffer_bytes;
    if *bytes.get_ref() > LONGEST_LENDABLE {
        let what = format!("buffers of {} bytes cannot be lent to af_xdp", bytes.get_ref());
        let fix = format!("write at most {LONGEST_LENDABLE}, or use kind = \"af_packet\"");
        return Err(config.error(bytes.span(), what, fix));
    }
    Ok(())
}
