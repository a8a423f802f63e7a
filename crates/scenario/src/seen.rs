//! The results of one simulated run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use flowyard_flow::parse;
use flowyard_frame::{FlowKey, Nanos};
use flowyard_wire::{Headers, LinkType, Net, Verdict};

use flowyard_config::send::{self, Planned};
use flowyard_config::{Config, ReloadPlan};
use flowyard_lb::Hub;
use flowyard_ports::port::Collect;
use flowyard_switch::SwitchHub;
use flowyard_yard::sim::{Faults, Sim};
use flowyard_yard::work::{Around, Work};
use flowyard_yard::{Blueprint, Count, Counters, MADE, Message, Parts};

use super::Link;

/// The results for one seed.
pub(super) struct Seen {
    /// By port: the frames sent, in order, as their numbers in the plan, with their times.
    pub(super) sent: Vec<Vec<(usize, Nanos)>>,
    /// The headers of the frames sent, with their numbers in the plan.
    pub(super) looks: Vec<(usize, Look)>,
    /// By port: the bytes of those frames, and of the frames that the work made.
    pub(super) bytes: Vec<Vec<Vec<u8>>>,
    /// By port: frames that the work made.
    pub(super) made: Vec<u64>,
    /// The work on each frame, in the order in which it began.
    pub(super) worked: Vec<Worked>,
    /// The counters of each core.
    pub(super) cores: Vec<Counters>,
    /// By queue: frames that entered.
    pub(super) entered: Vec<u64>,
    /// By user-defined counter.
    pub(super) counts: Vec<Count>,
}

/// The headers of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Look {
    pub(super) eth_src: [u8; 6],
    pub(super) eth_dst: [u8; 6],
    pub(super) vlan: u16,
    /// TTL or hop limit.
    pub(super) ttl: Option<u8>,
    /// Its flow, which is that of the outer header of a tunnel.
    pub(super) flow: FlowKey,
    /// Whether the checksums of all its headers are correct.
    right: bool,
}

impl Look {
    fn at(data: &[u8]) -> Self {
        let headers = Headers::parse(LinkType::Ethernet, data);
        let key = parse::key(&headers, data, 0);
        let ip = data.get(headers.l3 as usize..).unwrap_or_default();
        let (mut level, mut right) = (Some(headers), true);
        while let Some(headers) = level {
            let bad = |verdict: Verdict| verdict == Verdict::Bad;
            right &= !bad(headers.ipv4_checksum(data)) && !bad(headers.transport_checksum(data));
            level = headers.inner(data);
        }
        let ttl = match headers.net {
            Net::Ipv4 => ip.get(8),
            Net::Ipv6 => ip.get(7),
            _ => None,
        };
        let FlowKey { eth_src, eth_dst, vlan_tci, .. } = key;
        Self {
            eth_src,
            eth_dst,
            vlan: vlan_tci & 0xfff,
            ttl: ttl.copied(),
            flow: key.flow(),
            right,
        }
    }

    /// As it is written in a `[[send]]`.
    pub(super) fn eth(&self) -> String {
        let mac = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
        let vlan = if self.vlan == 0 { String::new() } else { format!(" vlan {}", self.vlan) };
        format!("{} > {}{vlan}", mac(self.eth_src), mac(self.eth_dst))
    }
}

/// The work on one frame.
#[derive(Clone, Copy)]
pub(super) struct Worked {
    pub(super) core: u16,
    /// The frame's number in the plan.
    pub(super) frame: usize,
    pub(super) begin: Nanos,
    /// The earliest time at which it is completed.
    pub(super) done: Nanos,
}

/// The number of each frame, by port and receive time.
type Numbers = Arc<HashMap<(u16, Nanos), usize>>;

/// Does the work, and records which core did it and when.
fn noted(
    core: u16,
    work: Box<dyn Work>,
    numbers: Numbers,
    notes: Arc<Mutex<Vec<Worked>>>,
) -> Box<dyn Work> {
    Box::new(Around::new(work, move |work, batch, pool, now| {
        let done = work.work(batch, pool, now);
        let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
        for lane in batch.lanes() {
            let meta = pool.meta(&batch.frames[lane]);
            if let Some(&frame) = numbers.get(&(meta.in_port, meta.time)) {
                notes.push(Worked { core, frame, begin: now, done });
            }
        }
        done
    }))
}

/// Simulates `config` with `seed`.
///
/// # Errors
/// When the simulation stands still, or a frame is lost, unexpected or duplicated.
pub(super) fn watch(
    config: &Config,
    plan: &[Planned],
    reloads: &[(Nanos, ReloadPlan)],
    seed: u64,
    link: Option<&mut dyn Link>,
) -> Result<Seen, String> {
    let numbers = plan.iter().enumerate().map(|(at, frame)| ((frame.port, frame.time), at));
    let numbers: Numbers = Arc::new(numbers.collect());
    let notes = Arc::<Mutex<Vec<Worked>>>::default();
    let ports: Vec<_> = config.ports().map(|_| Collect::default()).collect();
    let mut parts = Parts::default();
    for (number, port) in (0..).zip(&ports) {
        parts.tx.insert(number, Box::new(port.clone()));
    }
    let setup = config.resolve().map_err(|error| error.to_string())?;
    if let Some(link) = link {
        open_links(config, setup.blueprint.clone(), link, &mut parts)?;
    }
    // The agent is called directly, without a channel, so all its messages come at the start.
    let mut agent = config.switch_agent().map_err(|error| error.to_string())?;
    let switch = config.switch_hub(agent.lookups());
    if let Some(switch) = &switch {
        config.load_switch(&mut agent).map_err(|error| error.to_string())?;
        parts.control.push(Arc::<SwitchHub>::clone(switch));
    }
    for (core, work) in (0..).zip(setup.works(None, &mut parts.control)) {
        parts.work.insert(core, noted(core, work, Arc::clone(&numbers), Arc::clone(&notes)));
    }
    let yard = config.build(parts).map_err(|error| error.to_string())?;
    if let Some(switch) = &switch {
        switch.apply(&agent.drain());
    }
    let asked = &config.sim;
    let faults = Faults {
        stall_every: asked.stall_every,
        stall_ns: asked.stall.0,
        death_every: asked.death_every,
        found_after_ns: 50_000,
    };
    let mut sim = Sim::new(yard, seed, faults);
    apply_reloads(&mut sim, reloads)?;
    let total = sim.run().map_err(|error| error.to_string())?;
    let counters: Vec<_> = sim.yard.cores.iter().map(flowyard_yard::Core::counters).collect();
    let entered = sim.yard.places.queues.iter().map(|place| place.queue.tail()).collect();
    let mut counts = vec![Count::default(); config.steer.counters.len()];
    for core in &sim.yard.cores {
        counts.iter_mut().zip(core.counts()).for_each(|(sum, more)| *sum = sum.plus(more));
    }
    let pool = sim.yard.pool.share();
    drop(sim);

    let Sent { frames: sent, looks, bytes, made } = sent_frames(config, plan, &ports, &numbers)?;
    let out = sent.iter().map(|frames| frames.len() as u64).sum::<u64>() + made.iter().sum::<u64>();
    let (given, copied, dropped) = (plan.len() as u64, total.copies, total.drops.total());
    if given + copied != out + dropped || total.rx_frames != given || pool.held() != 0 {
        return Err(format!(
            "frames are not conserved: {given} given, {} received, {copied} copied, {out} sent, {dropped} dropped, {} held",
            total.rx_frames,
            pool.held()
        ));
    }
    let worked = std::mem::take(&mut *notes.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Seen { sent, looks, bytes, made, worked, cores: counters, entered, counts })
}

/// Puts a link between each port and what it receives from and transmits to.
fn open_links(
    config: &Config,
    mut plan: Blueprint,
    link: &mut dyn Link,
    parts: &mut Parts,
) -> Result<(), String> {
    for port in &mut plan.ports {
        port.lent_frames += link.lent_frames();
    }
    if plan.frames > 0 {
        plan.frames += plan.ports.len() * link.lent_frames();
    }
    let pool = plan.try_pool().ok_or("there is not enough memory for the pool")?;
    send::receive(config, &mut parts.rx).map_err(|error| error.to_string())?;
    for number in (0..).take(plan.ports.len()) {
        if let Some(far) = parts.rx.remove(&number) {
            parts.rx.insert(number, link.rx(number, &pool, far)?);
        }
        if let Some(far) = parts.tx.remove(&number) {
            parts.tx.insert(number, link.tx(number, &pool, far)?);
        }
    }
    parts.pool = Some(pool);
    Ok(())
}

/// Replaces the tables and services at the given times.
fn apply_reloads(sim: &mut Sim, reloads: &[(Nanos, ReloadPlan)]) -> Result<(), String> {
    let hub = sim.yard.control_plane::<Hub>();
    let cores = (0..).zip(&sim.yard.cores).map(|(core, _)| core).collect::<Vec<u16>>();
    for (at, reload) in reloads {
        while sim.now < *at {
            sim.step();
        }
        if let (Some(hub), Some(services)) = (&hub, reload.services.clone()) {
            hub.set(services, sim.now).map_err(|error| error.to_string())?;
        }
        let tables = Arc::new(reload.of_cores());
        for core in &cores {
            while !sim.yard.mail.offer(*core, Message::Reload(Arc::clone(&tables))) {
                sim.step(); // the mailbox is full: the core has to read from it
            }
        }
    }
    Ok(())
}

/// The frames sent, in the form of [`Seen`].
#[derive(Default)]
struct Sent {
    frames: Vec<Vec<(usize, Nanos)>>,
    looks: Vec<(usize, Look)>,
    bytes: Vec<Vec<Vec<u8>>>,
    made: Vec<u64>,
}

/// Collects the frames that the ports sent.
///
/// # Errors
/// When a frame is unknown, sent twice by a port, or has a wrong checksum that was correct.
fn sent_frames(
    config: &Config,
    plan: &[Planned],
    ports: &[Collect],
    numbers: &Numbers,
) -> Result<Sent, String> {
    let mut sent = Sent::default();
    for (port, collected) in config.ports().zip(ports) {
        let (mut mine, mut all, mut made) = (Vec::new(), Vec::new(), 0);
        let name = port.name.get_ref();
        let mut left = vec![false; plan.len()];
        for (one, data) in collected.take().iter() {
            all.push(data.to_vec());
            if one.meta.in_port == MADE {
                made += 1;
                continue;
            }
            let Some(&number) = numbers.get(&(one.meta.in_port, one.meta.time)) else {
                return Err(format!("port {name} sent an unknown frame"));
            };
            let flow = plan[number].said;
            if std::mem::replace(&mut left[number], true) {
                return Err(format!("frame {number} ({flow}) was sent twice by port {name}"));
            }
            let look = Look::at(data);
            if !look.right && Look::at(&plan[number].bytes).right {
                return Err(format!(
                    "port {name} sent frame {number} ({flow}) with a wrong checksum"
                ));
            }
            sent.looks.push((number, look));
            mine.push((number, one.at));
        }
        sent.frames.push(mine);
        sent.bytes.push(all);
        sent.made.push(made);
    }
    Ok(sent)
}
