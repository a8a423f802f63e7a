//! Checks that serde cannot make: unknown names, unknown cores, and sizes that are not possible.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use flowyard_flow::table::Spread;
use flowyard_frame::FlowKey;
use toml::Spanned;

use super::rule;
use super::words::hex;
use super::{Config, HashKey, LearnConfig, Order, PortConfig, PortKind, QueueConfig};
use flowyard_pool::{FRAMES, LONGEST};
use flowyard_ports::port::Pace;

use super::names::{Checked, core, queue_name, unique};

/// The largest number of ports and of queues. Their numbers have 16 bits, and a bridge has a list
/// for each port.
const MOST: usize = 4096;
/// The largest number of entries of a table.
const ENTRIES: usize = 1 << 24;

/// Returns the first mistake.
pub(super) fn check(config: &Config) -> Checked {
    yard(config)?;
    for (kind, count) in [("port", config.port.len()), ("queue", config.queue.len())] {
        if count > MOST {
            let what = format!("there are {count} {kind}s");
            return Err(config.error(0..0, what, format!("write at most {MOST}")));
        }
    }
    let (mut names, mut outputs) = (HashSet::new(), HashSet::new());
    for port in config.ports() {
        unique(config, &mut names, &port.name, "port")?;
        self::port(config, port)?;
        if let Some(output) = &port.output
            && !outputs.insert(output.get_ref())
        {
            return Err(config.shared_output(output));
        }
    }
    if config.send.is_empty()
        && !config.ports().any(|port| port.input.is_some() || port.kind.is_live())
    {
        let at = config.port.first().map_or(0..0, Spanned::span);
        return Err(config.error(
            at,
            "no port receives anything",
            "give a [[port]] an 'in' or an 'interface', or add a [[send]]",
        ));
    }
    names.clear();
    for queue in config.queues() {
        unique(config, &mut names, &queue.name, "queue")?;
        self::queue(config, queue)?;
    }
    if config.queue.is_empty() {
        let fix = "add a [[queue]] with name, order and consumers";
        return Err(config.error(0..0, "there is no queue", fix));
    }
    super::list::check(config)?;
    steer(config)?;
    learn(config)?;
    super::elephants::check(config)?;
    super::work::check(config)?;
    super::carry::check(config)?;
    super::switch::check(config)?;
    super::balance::check(config)?;
    super::ipsec::check(config)?;
    super::offload::check(config)?;
    super::dpdk::check_section(config)?;
    super::send::check(config)?;
    super::eventdev::check(config)?;
    pool(config)
}

/// Checks the number of buffers, after the other sections, which determine how many are needed.
fn pool(config: &Config) -> Checked {
    let yard = &config.yard;
    let (frames, least) = (*yard.frames.get_ref(), config.blueprint()?.least_frames());
    if frames > FRAMES {
        let what = format!("a pool cannot have {frames} buffers");
        let fix = format!("write at most {FRAMES}, or 0 for as many as the queues can hold");
        return Err(config.error(yard.frames.span(), what, fix));
    }
    if frames != 0 && frames < least {
        let what = format!("{frames} buffers are too few for these cores and ports");
        let fix = format!("write at least {least}, or 0 for as many as the queues can hold");
        return Err(config.error(yard.frames.span(), what, fix));
    }
    Ok(())
}

fn yard(config: &Config) -> Checked {
    let yard = &config.yard;
    let cores = *yard.cores.get_ref();
    if !(1..=1024).contains(&cores) {
        let what = format!("a yard cannot have {cores} cores");
        return Err(config.error(yard.cores.span(), what, "write 1 to 1024"));
    }
    let pins = yard.pin.get_ref().len();
    if pins != 0 && pins != usize::from(cores) {
        let (cpus, of) = match (pins, cores) {
            (1, _) => ("1 CPU is".to_owned(), format!("{cores} cores")),
            (_, 1) => (format!("{pins} CPUs are"), "1 core".to_owned()),
            _ => (format!("{pins} CPUs are"), format!("{cores} cores")),
        };
        let what = format!("{cpus} named for {of}");
        let fix = "name one for each core, or leave 'pin' out";
        return Err(config.error(yard.pin.span(), what, fix));
    }
    if let (Some(text), Some(at)) = (config.metrics(), &yard.metrics)
        && text.parse::<u16>().is_err()
        && text.parse::<SocketAddr>().is_err()
    {
        let fix =
            "write an IP address and port such as \"127.0.0.1:9464\", or a port from 0 to 65535";
        return Err(config.error(at.span(), format!("'{text}' is not an address"), fix));
    }
    let bytes = *yard.buffer_bytes.get_ref();
    if !(64..=LONGEST).contains(&bytes) {
        let what = format!("a buffer cannot have {bytes} bytes");
        return Err(config.error(yard.buffer_bytes.span(), what, format!("write 64 to {LONGEST}")));
    }
    if *yard.less_urgent_every.get_ref() == 1 {
        let what = "the most urgent queue of a core would be served last";
        let fix = "write 2 or more, or 0 for strict priority";
        return Err(config.error(yard.less_urgent_every.span(), what, fix));
    }
    sized(config, "[yard]", "settle_slots", 1..=ENTRIES, yard.settle_slots)?;
    let hold = *yard.hold_frames.get_ref();
    if hold != 0 && !(64..=65_536).contains(&hold) {
        let what = format!("a buffer for {hold} held frames is not possible");
        return Err(config.error(
            yard.hold_frames.span(),
            what,
            "write 64 to 65536, or 0 for none",
        ));
    }
    Ok(())
}

fn window(config: &Config, window: &Spanned<u32>) -> Checked {
    let frames = *window.get_ref();
    if (32..=1 << 20).contains(&frames) {
        return Ok(());
    }
    let what = format!("a window of {frames} frames is not possible");
    Err(config.error(window.span(), what, "write 32 (a batch) to 1048576"))
}

fn port(config: &Config, port: &PortConfig) -> Checked {
    for owner in port.owners() {
        core(config, owner)?;
    }
    window(config, &port.window_frames)?;
    super::live::check(config, port)?;
    if let Some(pace) = &port.pace
        && let Err(error) = Pace::from_str(pace.get_ref())
    {
        let text = error.to_string();
        let (what, fix) = text.split_once("; ").unwrap_or((&text, ""));
        return Err(config.error(pace.span(), what, fix));
    }
    match (&port.repeat, &port.output) {
        (Some(repeat), _) if port.kind == PortKind::Pcap => {
            let fix = "use kind = \"mem\", which reads the capture into memory first";
            Err(config.error(repeat.span(), "a pcap port cannot repeat its capture", fix))
        }
        (Some(repeat), _) if *repeat.get_ref() == 0 => {
            let fix = "write 1 or more, or leave 'in' out";
            Err(config.error(repeat.span(), "nothing would be received", fix))
        }
        (Some(repeat), _) if port.input.is_none() => {
            let fix = "add 'in = \"FILE.pcap\"', or leave 'repeat' out";
            Err(config.error(repeat.span(), "there is no capture to repeat", fix))
        }
        (_, Some(output)) if port.kind == PortKind::Mem => {
            let fix = "use kind = \"pcap\", or leave 'out' out";
            Err(config.error(
                output.span(),
                "a mem port does not store the frames that it transmits",
                fix,
            ))
        }
        _ => Ok(()),
    }
}

fn queue(config: &Config, queue: &QueueConfig) -> Checked {
    window(config, &queue.window_frames)?;
    let consumers = queue.consumers.get_ref();
    let mut seen = HashSet::new();
    for consumer in consumers {
        core(config, consumer)?;
        if !seen.insert(consumer.get_ref()) {
            let what = format!("core {} is named twice", consumer.get_ref());
            return Err(config.error(consumer.span(), what, "name each consumer once"));
        }
    }
    match (consumers.len(), queue.order) {
        (0, _) => {
            let what = "no core works on this queue, so it would fill up";
            Err(config.error(queue.consumers.span(), what, "name at least one core"))
        }
        (2.., Order::Direct) => {
            let what = "a direct queue has one consumer";
            let fix = "name one core, or use order = \"atomic\", \"ordered\" or \"unordered\"";
            Err(config.error(queue.consumers.span(), what, fix))
        }
        _ => Ok(()),
    }
}

fn steer(config: &Config) -> Checked {
    let steer = &config.steer;
    for name in &steer.spread {
        queue_name(config, name)?;
    }
    if let Err(error) = Spread::new(*steer.entries.get_ref(), config.queue.len()) {
        let text = error.to_string();
        return Err(config.error(steer.entries.span(), text, "write 128, 512 or 2048"));
    }
    if let HashKey::Written(text) = steer.hash_key.get_ref()
        && !hex(text).is_some_and(|key| (40..=256).contains(&key.len()))
    {
        let fix =
            "write \"random\", \"symmetric\", \"microsoft\", or 40 to 256 bytes in hexadecimal";
        return Err(config.error(steer.hash_key.span(), "this is not a Toeplitz key", fix));
    }
    let mut known = HashSet::new();
    for exact in &steer.exact {
        let key = FlowKey::from_str(exact.flow.get_ref()).map_err(|error| {
            let text = error.to_string();
            let (what, fix) = text.split_once("; ").unwrap_or((&text, ""));
            config.error(exact.flow.span(), what, fix)
        })?;
        if !known.insert(key.flow()) {
            let what = "there is an exact entry for this flow already";
            return Err(config.error(exact.flow.span(), what, "leave one of them out"));
        }
        rule::answer(config, "an exact entry", exact.flow.span(), &exact.into())?;
    }
    sized(config, "[steer]", "exact_entries", 0..=ENTRIES, steer.exact_entries)?;
    rule::check(config)?;
    rule::check_exact(config)
}

/// Limits the size of a table, because a failed allocation would end the program.
fn sized(
    config: &Config,
    section: &str,
    key: &str,
    fits: RangeInclusive<usize>,
    entries: usize,
) -> Checked {
    if fits.contains(&entries) {
        return Ok(());
    }
    let what = format!("{key} = {entries} is not possible");
    let fix = format!("write {} to {}", fits.start(), fits.end());
    Err(config.error_in(section, key, what, &fix))
}

/// ATR steers a flow to the core that transmits it, RFS to the core that works on it. That core
/// needs a queue of its own.
fn learn(config: &Config) -> Checked {
    if let Some(
        LearnConfig::Atr { entries, .. }
        | LearnConfig::Rfs { entries, .. }
        | LearnConfig::Cache { entries, .. },
    ) = config.learn
    {
        sized(config, "[learn]", "entries", 1..=ENTRIES, entries)?;
    }
    match config.learn {
        Some(LearnConfig::Atr { .. }) => {}
        Some(LearnConfig::Rfs { .. }) => return rfs(config),
        Some(LearnConfig::Cache { .. }) | None => return Ok(()),
    }
    for port in config.ports() {
        for owner in port.owners() {
            let core = *owner.get_ref();
            if config.home(core).is_none() {
                let what = format!("atr cannot steer to core {core}: it has no queue of its own");
                let fix =
                    format!("add a [[queue]] with consumers = [{core}], or leave [learn] out");
                return Err(config.error(owner.span(), what, fix));
            }
        }
    }
    Ok(())
}

fn rfs(config: &Config) -> Checked {
    for queue in config.queues() {
        for core in queue.consumers.get_ref() {
            if config.home(*core.get_ref()).is_none() {
                let core = (core.get_ref(), core.span());
                let what =
                    format!("rfs cannot steer to core {}: it has no queue of its own", core.0);
                let fix =
                    format!("add a [[queue]] with consumers = [{}], or leave [learn] out", core.0);
                return Err(config.error(core.1, what, fix));
            }
        }
    }
    Ok(())
}

impl Config {
    /// The first queue whose only consumer is `core`.
    pub(crate) fn home(&self, core: u16) -> Option<u16> {
        let own = |queue: &Spanned<QueueConfig>| matches!(&queue.get_ref().consumers.get_ref()[..], [one] if *one.get_ref() == core);
        self.queue.iter().position(own).map(|at| at as u16)
    }
}

impl Config {
    /// Checks the sections that a reload may change.
    ///
    /// # Errors
    /// The first mistake.
    pub fn check_tables(&self) -> Checked {
        steer(self)?;
        super::balance::check(self)
    }
}
