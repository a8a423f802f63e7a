//! The queue and processor of each frame, chosen by the models of crate `adapter`.

use flowyard_adapter::atr::Atr82599;
use flowyard_adapter::fdir::{self, Action, MaskSet, Mode, Pballoc, Table};
use flowyard_adapter::linux::{CpuQueues, Rfs, RfsConfig, Rps, SlotIndex};
use flowyard_adapter::{FilterStats, Rss, RssConfig};
use flowyard_flow::settle::{Settle, Tails};
use flowyard_frame::{Action as Verdict, Batch, FlowKey, Frame, Nanos, To, proto};

use super::setup::{Setup, SetupError, Steering};

/// The number of client machines in the paper.
const CLIENTS: u32 = 10;
/// The TCP port of memcached.
const PORT: u16 = 11211;

/// The adapter, and the steering that Linux adds to it.
pub(super) struct Steer {
    rss: Rss,
    atr: Option<Atr82599>,
    ep: Option<Table>,
    settle: Option<(Settle, Box<Batch>)>,
    pub(super) rps: Option<Rps>,
    pub(super) rfs: Option<Rfs>,
    /// The first source port of each client machine.
    first_port: Vec<u16>,
    /// The RSS hash of each connection.
    hashes: Vec<u32>,
}

/// The number of frames that entered each queue, and of those that the stack has processed.
pub(super) struct Counts<'a> {
    pub(super) tails: &'a [u64],
    pub(super) heads: &'a [u64],
}

impl Tails for Counts<'_> {
    fn tail(&self, home: To) -> u64 {
        if let To::Queue(queue) = home { self.tails[usize::from(queue)] } else { 0 }
    }

    fn head(&self, home: To) -> u64 {
        if let To::Queue(queue) = home { self.heads[usize::from(queue)] } else { 0 }
    }
}

/// The counters of the backlogs, for RPS and RFS.
pub(super) struct Backlogs<'a> {
    pub(super) tails: &'a [u32],
    pub(super) heads: &'a [u32],
}

impl CpuQueues for Backlogs<'_> {
    fn head(&self, cpu: u16) -> u32 {
        self.heads[usize::from(cpu)]
    }

    fn tail(&self, cpu: u16) -> u32 {
        self.tails[usize::from(cpu)]
    }

    fn online(&self, cpu: u16) -> bool {
        usize::from(cpu) < self.heads.len()
    }
}

impl Steer {
    /// The steering with the filters of all connections being made, and the time when all are made.
    pub(super) fn new(setup: &Setup, random: u64) -> Result<(Self, Nanos), SetupError> {
        let cpus = setup.machine.cpus();
        let config = RssConfig { reta: setup.reta.clone(), ..RssConfig::seeded(random) };
        let rss = Rss::new(setup.adapter, setup.queues, config)?;
        let atr = match setup.steering {
            Steering::Atr | Steering::Settled => {
                let free = 8191u16.saturating_sub(setup.filters).saturating_add(64);
                let atr = Atr82599::new(setup.queues, setup.sample_rate, Pballoc::K64)?;
                Some(atr.with_full_threshold(free)?)
            }
            _ => None,
        };
        let ep = match setup.steering {
            Steering::Ep => {
                let limits = fdir::Limits::default();
                Some(Table::new(Mode::Perfect, Pballoc::K64, MaskSet::FIVE_TUPLE, limits)?)
            }
            _ => None,
        };
        let slots = (setup.connections as usize).saturating_mul(4);
        let settle = matches!(setup.steering, Steering::Settled)
            .then(|| (Settle::new(slots, random), Box::new(Batch::default())));
        let all = Rps { cpus: (0..cpus).collect() };
        let rfs = (setup.steering == Steering::Rfs).then(|| {
            Rfs::new(RfsConfig {
                sock_flow_entries: 32768,
                flow_cnt: 32768 / u32::from(setup.queues.max(1)),
                queues: setup.queues,
                cpus,
                slot: SlotIndex::Mask,
                rps: all.clone(),
            })
        });
        let rps = (setup.steering == Steering::Rps).then_some(all);
        let first_port =
            (0..CLIENTS).map(|client| 32768 + (random >> (client * 6) & 0x1fff) as u16).collect();
        let mut steer = Self { rss, atr, ep, settle, rps, rfs, first_port, hashes: Vec::new() };
        let end = steer.connect(setup);
        Ok((steer, end))
    }

    /// The key of the arriving packets of connection `conn`. The clients have neighbouring addresses and
    /// consecutive ports, as the kernel of 2012 assigned them.
    fn key(&self, conn: u32) -> FlowKey {
        let (client, n) = (conn % CLIENTS, conn / CLIENTS);
        let port = self.first_port[client as usize].wrapping_add((n % 28000) as u16);
        // When a client machine has no ports left, another one follows.
        let source = [10, (n / 28000) as u8, 0, 11 + client as u8];
        let address = |bytes: [u8; 4]| std::net::Ipv4Addr::from(bytes).into();
        FlowKey {
            tcp_flags: FlowKey::ACK,
            ..FlowKey::five_tuple(proto::TCP, address(source), port, address([10, 0, 0, 1]), PORT)
        }
    }

    /// Makes every connection: its SYN-ACK leaves by the queue on which RSS received the SYN.
    fn connect(&mut self, setup: &Setup) -> Nanos {
        self.hashes = Vec::with_capacity(setup.connections as usize);
        for conn in 0..setup.connections {
            let key = self.key(conn);
            let hash = self.rss.hash(&key).unwrap_or(0);
            self.hashes.push(hash);
            let now = Nanos::from(conn) * 1000;
            if let Some(atr) = &mut self.atr {
                let syn = FlowKey { tcp_flags: FlowKey::SYN | FlowKey::ACK, ..key.reversed() };
                atr.transmit(self.rss.queue(Some(hash)), &syn, now);
            }
            if let Some(ep) = &mut self.ep {
                let thread = (conn % u32::from(setup.threads)) as u16;
                let queue = (thread % setup.machine.cpus()) % setup.queues;
                // When the table is full, the remaining connections go by RSS.
                let _ = ep.add(&key, conn as u16, Action::queue(queue), true);
            }
        }
        Nanos::from(setup.connections) * 1000
    }

    /// The queue that RSS chooses.
    pub(super) fn by_hash(&self, conn: u32) -> u16 {
        self.rss.queue(Some(self.hashes[conn as usize]))
    }

    pub(super) fn hash(&self, conn: u32) -> u32 {
        self.hashes[conn as usize]
    }

    /// The queue of an arriving frame.
    pub(super) fn queue(&mut self, conn: u32, now: Nanos, counts: &Counts<'_>) -> u16 {
        let hash = self.hashes[conn as usize];
        let by_hash = self.rss.queue(Some(hash));
        if self.atr.is_none() && self.ep.is_none() {
            return by_hash;
        }
        let key = self.key(conn);
        let filter = match (&mut self.atr, &mut self.ep) {
            (Some(atr), _) => atr.receive(&key, now),
            (_, Some(ep)) => ep.lookup(&key).and_then(|hit| match hit.action.to {
                fdir::Target::Queue(queue) => Some(queue),
                fdir::Target::Drop => None,
            }),
            _ => None,
        };
        let queue = filter.unwrap_or(by_hash);
        let Some((settle, batch)) = &mut self.settle else { return queue };
        batch.set_len(0);
        let mut frame = Frame::unbacked(64);
        frame.hash = hash;
        if batch.push(frame, key.flow()).is_err() {
            return queue;
        }
        batch.actions[0] = Verdict::queue(queue);
        let lanes = batch.lanes();
        settle.settle(batch, lanes, counts);
        if let To::Queue(queue) = batch.actions[0].to { queue } else { queue }
    }

    /// Notifies settle that the frame of the last [`Self::queue`] has entered its queue or was lost.
    pub(super) fn entered(&mut self, counts: &Counts<'_>) {
        if let Some((settle, _)) = &mut self.settle {
            settle.enqueued(counts);
        }
    }

    /// Lets ATR sample an answer that leaves by `ring`.
    pub(super) fn transmit(&mut self, conn: u32, ring: u16, now: Nanos) {
        let key = self.key(conn).reversed();
        if let Some(atr) = &mut self.atr {
            atr.transmit(ring, &key, now);
        }
    }

    pub(super) fn filters(&self) -> FilterStats {
        let (atr, ep) =
            (self.atr.as_ref().map(Atr82599::stats), self.ep.as_ref().map(Table::stats));
        atr.or(ep).unwrap_or_default()
    }
}
