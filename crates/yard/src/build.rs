//! Build: a checked configuration becomes a yard, ready to run.
//!
//! ```text
//!  Config ──┬──> places: queues, tx queues        shared by all
//!           ├──> pool                             a handle for each core
//!           └──> cores: entry, server, exits, learners, mailbox
//! ```

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use flowyard_flow::learn::atr::{Atr, Settings};
use flowyard_flow::learn::{Cache, Rfs, cache, rfs};
use flowyard_flow::table::{Exact, Rules, Spread, Wildcard};
use flowyard_flow::toeplitz::{HashTypes, MICROSOFT_KEY, SYMMETRIC_KEY, Toeplitz, random_key};
use flowyard_flow::{Learn, Settle, Steer, Table};
use flowyard_frame::{Batch, Edit, FlowKey, LANES, Lanes, To};
use flowyard_ports::mem::Frames;
use flowyard_ports::pcap::{self, Format};
use flowyard_queue::{Order, Queue};

use crate::Clock;
use crate::config::{Config, ConfigError, ExactConfig, HashKey, Idle, LearnConfig, PortConfig};
use crate::config::{PortKind, hex, list, rule};
use crate::core::{Core, Entry, Exit, Hold, HoldLimits, Learner, Server, Stage, order};
use crate::counters::{Board, Counters};
use crate::elephants::{Decider, Decisions, Sampling};
use crate::mail::{Mail, Mailbox};
use crate::places::{Fan, Place, Places};
use crate::pool::Pool;
use crate::port::live::{self, Opened};
use crate::port::{Discard, Halves, Log, Pace, PcapTx, Repeat, Rx, SourceRx, Tx};
use crate::stages::Stopwatch;
use crate::tally::Tally;
use crate::to_ports::ToPorts;
use crate::watch::Watch;
use crate::work::{self, Hub, SwitchHub, Work};

/// What a configuration cannot say. The default is everything as the configuration says.
pub struct Parts {
    /// How queues are made: the order, how many cores (numbered from 0) are possible consumers, and
    /// how many frames it holds.
    pub queue: fn(Order, u16, usize) -> Box<dyn Queue>,
    /// The real clock, for work that spins by it; without one its time is charged to the virtual
    /// clock.
    pub clock: Option<Clock>,
    /// Told of what happens at interfaces: down, gone, up again; the port's name, and what.
    pub log: Log,
    /// Ports that receive from elsewhere than the configuration says, by number.
    pub rx: BTreeMap<u16, Box<dyn Rx>>,
    /// Ports that transmit to elsewhere than the configuration says, by number.
    pub tx: BTreeMap<u16, Box<dyn Tx>>,
    /// Both halves of ports on interfaces, in place of what the configuration says, by number and
    /// core: for ports with several cores.
    pub ports: BTreeMap<(u16, u16), Halves>,
    /// Work in place of what the configuration says, by core.
    pub work: BTreeMap<u16, Box<dyn Work>>,
    /// Learners besides those of the configuration: the core, what they learn from, what the core
    /// is called in their edits. They write the tables of all cores that receive.
    pub learn: Vec<(u16, Stage, u16, Box<dyn Learn + Send>)>,
    /// Messages that a mailbox holds.
    pub mailbox: usize,
    /// The hub of a balancer, in place of one of its own.
    pub hub: Option<Arc<Hub>>,
    /// The hub of a switch, in place of one of its own: see [`SwitchHub::new`].
    pub switch: Option<Arc<SwitchHub>>,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            queue: flowyard_queue::new,
            clock: None,
            log: Arc::new(|_, _| {}),
            rx: BTreeMap::new(),
            tx: BTreeMap::new(),
            ports: BTreeMap::new(),
            work: BTreeMap::new(),
            learn: Vec::new(),
            mailbox: 1024,
            hub: None,
            switch: None,
        }
    }
}

/// A yard, built and ready.
pub struct Yard {
    /// By number.
    pub cores: Vec<Core>,
    /// Queues and tx queues.
    pub places: Arc<Places>,
    /// Every core's mailbox.
    pub mail: Mail,
    /// A handle that takes no frames: for the count of those held.
    pub pool: Pool,
    /// Names of the counters that tables use, by number from 1.
    pub counters: Vec<String>,
    pub(crate) pin: Vec<usize>,
    pub(crate) idle: Idle,
    /// What was decided about elephants.
    pub elephants: Decisions,
    /// Where control of a balancer's services leaves its plans.
    pub hub: Option<Arc<Hub>>,
    /// Where an OpenFlow agent reaches a switch.
    pub switch: Option<Arc<SwitchHub>>,
}

/// Why a yard cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A capture cannot be used.
    #[error(transparent)]
    Port(#[from] flowyard_ports::Error),
}

impl Yard {
    /// Builds what `config` describes. Captures to be received are opened, or read; sockets on
    /// interfaces are opened, and frames come from then on.
    ///
    /// # Errors
    /// When a capture or an interface cannot be opened, or a table does not take the user's entries.
    pub fn build(config: &Config, mut parts: Parts) -> Result<Self, BuildError> {
        crate::scenario::receive(config, &mut parts.rx)?;
        let count = *config.yard.cores.get_ref();
        let places = Arc::new(places(config, parts.queue));
        let rules = Arc::new(rule::table(config)?);
        let lends = config.ports().any(|port| port.lent_frames() > 0);
        let new = if lends { Pool::lendable } else { Pool::new };
        let pool = new(frames(config), *config.yard.buffer_bytes.get_ref());
        let mut live = live::open(config, &pool, &parts.log, |port| {
            parts.tx.contains_key(&port) || parts.ports.keys().any(|(number, _)| *number == port)
        })?;
        live.append(&mut parts.ports);
        let (mail, boxes) = Mail::new(count.into(), parts.mailbox);
        let hub = parts.hub.take().or_else(|| work::hub(config));
        let switch = parts.switch.take().or_else(|| work::switch_hub(config, Vec::new()));
        let works = work::of(config, parts.clock.as_ref(), hub.as_ref(), switch.as_ref());
        for (id, work) in (0..).zip(works) {
            parts.work.entry(id).or_insert(work);
        }
        if let Some(switch) = &switch {
            switch.connect(mail.clone());
        }
        let (mut cores, elephants) = (Vec::new(), Decisions::default());
        for (id, mailbox) in (0..count).zip(boxes) {
            let (places, rules) = (Arc::clone(&places), Arc::clone(&rules));
            let place = (places, rules, pool.share(), mail.clone(), mailbox);
            let mut core = core(config, id, place, &mut live, &mut parts)?;
            watch_elephants(config, &mut core, &elephants);
            cores.push(core);
        }
        let pin = config.yard.pin.get_ref().clone();
        let counters = config.steer.counters.iter().map(|name| name.get_ref().clone()).collect();
        let idle = config.yard.idle;
        Ok(Self { cores, places, mail, pool, counters, pin, idle, elephants, hub, switch })
    }
}

/// Every queue, and a tx queue for every port.
fn places(config: &Config, new: fn(Order, u16, usize) -> Box<dyn Queue>) -> Places {
    let cores = *config.yard.cores.get_ref();
    let queues = config.queues().map(|queue| Place {
        name: queue.name.get_ref().clone(),
        queue: new(queue.order.into(), cores, *queue.window_frames.get_ref() as usize),
        full: queue.full,
        consumers: queue.consumers.get_ref().iter().map(|core| *core.get_ref()).collect(),
        fan: None,
    });
    // Where a flow's frames end up tells nothing: any core may finish them.
    let shared = config.queues().any(|queue| queue.consumers.get_ref().len() > 1);
    let ports = config.ports().map(|port| {
        let direct = || new(Order::Direct, 1, *port.window_frames.get_ref() as usize);
        let consumers: Vec<u16> = port.owners().map(|core| *core.get_ref()).collect();
        let by_flow = port.kind == PortKind::Tap && shared && config.learn.is_none();
        let fan = (consumers.len() > 1).then(|| {
            let fan = Fan::new(&consumers, direct);
            if by_flow { fan.by_flow() } else { fan }
        });
        let queue = fan.clone().map_or_else(direct, |fan| Box::new(fan) as Box<dyn Queue>);
        Place { name: port.name.get_ref().clone(), queue, full: port.full, consumers, fan }
    });
    let lists = work::lists(config);
    Places { queues: queues.collect(), ports: ports.collect(), lists }
}

/// Buffers of the pool.
fn frames(config: &Config) -> usize {
    let queues = config.queues().map(|queue| *queue.window_frames.get_ref());
    let ports = config.ports().flat_map(|port| {
        port.owners().map(|_| *port.window_frames.get_ref()) // a tx queue for each
    });
    match *config.yard.frames.get_ref() {
        0 => config.least_frames() + queues.chain(ports).map(|n| n as usize).sum::<usize>(),
        frames => frames,
    }
}

/// What a core has to do with others.
type Around = (Arc<Places>, Arc<Wildcard>, Pool, Mail, Mailbox);

fn core(
    config: &Config,
    id: u16,
    (places, rules, pool, mail, mailbox): Around,
    live: &mut Opened,
    parts: &mut Parts,
) -> Result<Core, BuildError> {
    let own = |port: &PortConfig| port.owners().any(|core| *core.get_ref() == id);
    let (mut ports, mut exits) = (Vec::new(), Vec::new());
    for (number, port) in (0..).zip(config.ports()) {
        if own(port) {
            let (live_rx, live_tx) = live.remove(&(number, id)).unzip();
            let given = parts.rx.remove(&number).or(live_rx).map(Ok);
            ports.extend(given.or_else(|| rx(number, port)).transpose()?.map(|rx| (number, rx)));
            let tx = parts.tx.remove(&number).or(live_tx).unwrap_or_else(|| tx(port));
            exits.push(Exit { port: number, tx, batch: Batch::default(), left: Lanes::NONE });
        }
    }
    let work = parts.work.remove(&id).unwrap_or_else(|| Box::new(work::Forward::new(&[])));
    let board = Arc::<Board>::default();
    let entry = entry(config, &rules, ports)?;
    Ok(Core {
        id,
        to_ports: ToPorts::new(Arc::clone(&places), id, pool.share(), Arc::clone(&board)),
        places,
        pool,
        server: Server { queues: urgency(config, id), work, batch: Batch::default(), open: None },
        learners: learners(config, id, !exits.is_empty(), entry.cache, parts),
        entry,
        refused: Vec::with_capacity(4),
        exits,
        mailbox,
        mail,
        counters: Counters::default(),
        stopwatch: Stopwatch::new(parts.clock.clone()),
        sampling: None,
        decider: None,
        watch: Watch::new(id),
        board,
        last: (0, false),
    })
}

/// The queues that core `id` works on, the most urgent first.
fn urgency(config: &Config, id: u16) -> Vec<u16> {
    let mut mine: Vec<(u8, u16)> = (0..)
        .zip(config.queues())
        .filter(|(_, queue)| queue.consumers.get_ref().iter().any(|core| *core.get_ref() == id))
        .map(|(number, queue)| (queue.priority, number))
        .collect();
    mine.sort_unstable();
    mine.into_iter().map(|(_, number)| number).collect()
}

fn entry(
    config: &Config,
    rules: &Arc<Wildcard>,
    ports: Vec<(u16, Box<dyn Rx>)>,
) -> Result<Entry, BuildError> {
    let (yard, steer) = (&config.yard, &config.steer);
    let user = user(config)?;
    let rules = Arc::clone(rules);
    let cache = cached(config)?;
    let mask = cache.unwrap_or(FlowKey::FLOW);
    let learnt = Exact::new(learnt_entries(config), &mask, yard.seed ^ 1);
    let view = Rules::new(Arc::clone(&rules), &mask);
    let most = config.elephants.as_ref().map_or(1, |elephants| *elephants.promoted_max.get_ref());
    let promoted = Exact::new(most, &FlowKey::FLOW, yard.seed ^ 2);
    let tables: Vec<Box<dyn Table + Send>> =
        vec![Box::new(user), Box::new(learnt), Box::new(view), Box::new(promoted)];
    let size = *steer.entries.get_ref();
    let wrong = |text: String| config.error(steer.entries.span(), text, "see [steer]");
    let mut last = Spread::new(size, config.queue.len()).map_err(|e| wrong(e.to_string()))?;
    for (index, to) in (0..size).zip(spread(config).into_iter().cycle()) {
        last.set(index, to).map_err(|error| wrong(error.to_string()))?;
    }
    let mut walk = Steer::new(tables, last);
    walk.set_order(order(cache.is_some(), !rules.is_empty(), config.elephants.is_some()));
    let hash = match steer.hash_key.get_ref() {
        HashKey::Random => Toeplitz::new(&random_key(yard.seed)),
        HashKey::Symmetric => Toeplitz::new(&SYMMETRIC_KEY),
        HashKey::Microsoft => Toeplitz::new(&MICROSOFT_KEY),
        HashKey::Written(text) => Toeplitz::new(&hex(text).unwrap_or_default()),
    };
    let hold = HoldLimits {
        frames: *yard.hold_frames.get_ref(),
        after: yard.hold_after_frames,
        longest: yard.hold_us.saturating_mul(1000),
    };
    Ok(Entry {
        hold: Hold::new(if ports.is_empty() { HoldLimits { frames: 0, ..hold } } else { hold }),
        ports,
        ended: Vec::with_capacity(config.port.len()),
        hash: hash.map_err(|error| wrong(error.to_string()))?,
        types: HashTypes::default(),
        steer: walk,
        cache,
        splits: config.elephants.is_some(),
        tally: Tally::new(steer.counters.len()),
        lists: Arc::new(list::lists(config)?),
        spent: Lanes::NONE,
        settle: yard.settle.then(|| Settle::new(yard.settle_slots, yard.seed)),
        batch: Batch::default(),
        homes: [To::Drop; LANES],
        waiting: Lanes::NONE,
        pressed: false,
    })
}

/// Eyes for flows that are to be split; and on one core who decides.
fn watch_elephants(config: &Config, core: &mut Core, log: &Decisions) {
    let Some(elephants) = &config.elephants else { return };
    let Some(split) = config.queue_number(elephants.queue.get_ref()) else { return };
    let entries = core.entry.steer.spread.entries();
    let (id, sizes) = (core.id, (entries.len(), config.queue.len()));
    let decides = *elephants.core.get_ref();
    let seed = config.yard.seed ^ u64::from(id) << 32;
    let sampling = Sampling::new(elephants, sizes, config.home(id), decides, seed);
    if id == decides {
        let around = (*config.yard.cores.get_ref(), receivers(config));
        core.decider =
            Some(Box::new(Decider::new(config, elephants, split, around, entries, log.clone())));
    }
    core.sampling = Some(Box::new(sampling));
}

/// The table of the user's exact entries.
pub(crate) fn user(config: &Config) -> Result<Exact, ConfigError> {
    let mut user = Exact::new(config.steer.exact_entries, &FlowKey::FLOW, config.yard.seed);
    for (edit, entry) in exact(config)?.iter().zip(&config.steer.exact) {
        if let Edit::Put(key, action) = edit
            && let Err(reason) = user.put(key, *action)
        {
            let mend = "raise 'exact_entries' in [steer], or write fewer";
            return Err(config.error(entry.flow.span(), reason.to_string(), mend));
        }
    }
    Ok(user)
}

/// The user's exact entries.
pub(crate) fn exact(config: &Config) -> Result<Vec<Edit>, ConfigError> {
    let edit = |entry: &ExactConfig| {
        let key = FlowKey::from_str(entry.flow.get_ref());
        let key =
            key.map_err(|e| config.error(entry.flow.span(), e.to_string(), "mend the flow"))?;
        // The table's mask is the flow: what else the text says (a VLAN) does not count.
        Ok(Edit::Put(key.flow(), rule::exact_action(config, entry)?))
    };
    config.steer.exact.iter().map(edit).collect()
}

/// The indirection table, before it is repeated to its size.
pub(crate) fn spread(config: &Config) -> Vec<To> {
    let named = config.steer.spread.iter();
    let named: Vec<_> = named.filter_map(|name| config.queue_number(name.get_ref())).collect();
    let all = (0..config.queue.len() as u16).collect();
    let queues = if named.is_empty() { all } else { named };
    queues.into_iter().map(To::Queue).collect()
}

/// What the learnt table matches on, if it is the cache of the rules: all that they look at. Rules
/// of a reload may look at more; what they answer then is not sure, and not copied.
fn cached(config: &Config) -> Result<Option<FlowKey>, ConfigError> {
    let Some(LearnConfig::Cache { .. }) = config.learn else { return Ok(None) };
    Ok(Some(FlowKey::FLOW.union(&rule::mask(&rule::rules(config)?))))
}

/// More than one core may teach.
fn learnt_entries(config: &Config) -> usize {
    match config.learn {
        Some(LearnConfig::Atr { entries, .. }) => {
            let teachers: usize = config.ports().map(|port| port.owners().count()).sum();
            entries.saturating_mul(teachers)
        }
        Some(LearnConfig::Rfs { entries, .. }) => {
            entries.saturating_mul(usize::from(*config.yard.cores.get_ref()))
        }
        Some(LearnConfig::Cache { entries, .. }) => entries,
        None => 8192,
    }
}

fn rx(number: u16, port: &PortConfig) -> Option<Result<Box<dyn Rx>, flowyard_ports::Error>> {
    let path = port.input.as_ref()?;
    let pace = port.pace.as_ref().and_then(|pace| pace.get_ref().parse().ok());
    let pace = pace.unwrap_or(Pace::Fast);
    Some(pcap::open(path).and_then(|mut reader| {
        Ok(Box::new(if port.kind == PortKind::Mem {
            let times = port.repeat.as_ref().map_or(1, |repeat| *repeat.get_ref());
            let frames = Frames::read_all(&mut reader)?;
            SourceRx::new(number, Box::new(Repeat::new(frames, times)), pace)
        } else {
            SourceRx::new(number, Box::new(reader), pace)
        }) as Box<dyn Rx>)
    }))
}

fn tx(port: &PortConfig) -> Box<dyn Tx> {
    match &port.output {
        Some(path) => Box::new(PcapTx::new(path.get_ref().clone(), Format::PcapNanos)),
        None => Box::new(Discard),
    }
}

/// Cores that own ports.
fn receivers(config: &Config) -> Vec<u16> {
    let owners = config.ports().flat_map(PortConfig::owners);
    let mut cores: Vec<u16> = owners.map(|core| *core.get_ref()).collect();
    cores.sort_unstable();
    cores.dedup();
    cores
}

/// Learners of core `id`; each writes the tables of all cores that receive.
fn learners(
    config: &Config,
    id: u16,
    transmits: bool,
    cache: Option<FlowKey>,
    parts: &mut Parts,
) -> Vec<Learner> {
    let teaches = receivers(config);
    let learner = |stage, home, learn| {
        let (teaches, edits) = (teaches.clone(), Vec::with_capacity(256));
        Learner { stage, learn, home, teaches, edits }
    };
    let mut all = Vec::new();
    if let (Some(LearnConfig::Atr { entries, sample_every, idle_ms, udp }), Some(home), true) =
        (&config.learn, config.home(id), transmits)
    {
        let idle = idle_ms.saturating_mul(1_000_000);
        let settings = Settings { entries: *entries, sample_every: *sample_every, idle, udp: *udp };
        let homes = config.queue.len() as u16;
        let atr = Atr::new(homes, settings, config.yard.seed);
        all.push(learner(Stage::Tx, home, Box::new(atr)));
    }
    if let (Some(LearnConfig::Rfs { entries, sample_every, idle_ms }), Some(home)) =
        (&config.learn, config.home(id))
    {
        let (entries, idle) = (*entries, idle_ms.saturating_mul(1_000_000));
        let settings = rfs::Settings { entries, sample_every: *sample_every, idle };
        let seed = config.yard.seed.wrapping_add(id.into());
        all.push(learner(Stage::Work, home, Box::new(Rfs::new(settings, seed))));
    }
    if let (Some(LearnConfig::Cache { entries, replace_every }), Some(mask), true) =
        (&config.learn, cache, transmits)
    {
        let settings = cache::Settings { entries: *entries, replace_every: *replace_every };
        let cache = Box::new(Cache::new(settings, &mask, config.yard.seed));
        // Its own core alone: by mail, edits could come after a change of the rules.
        all.push(Learner { teaches: vec![id], ..learner(Stage::Rules, id, cache) });
    }
    let (mine, others) = std::mem::take(&mut parts.learn).into_iter().partition(|l| l.0 == id);
    parts.learn = others;
    let mine: Vec<_> = mine;
    all.extend(mine.into_iter().map(|(_, stage, home, learn)| learner(stage, home, learn)));
    all
}
