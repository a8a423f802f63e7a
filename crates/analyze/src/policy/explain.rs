//! Explains the decision of a policy on one frame. The learned state is not changed.

use flowyard_adapter::linux::{Arfs, Rfs, Rps};

use super::yard::{Peek, Yard};
use super::{Atr, Backlog, Fdir, Linux, Policy, Running};
use crate::delay::Cores;
use crate::explain::Verdict;
use crate::landing::{Stage, Steered};
use crate::packet::Packet;

/// The decision of a policy, with the reason as text.
struct Decision {
    queue: u16,
    /// The core, if it is not the one that the queue interrupts.
    core: Option<u16>,
    stage: Stage,
    why: String,
}

/// The frame to explain, and what does not depend on the policy.
struct Asked<'a> {
    packet: &'a Packet,
    cores: &'a Cores,
    by_rss: Steered,
    /// The decision of RSS as text.
    rss: String,
}

impl Running {
    /// Where a received frame would land now, and why.
    pub(crate) fn explain(&mut self, packet: &Packet) -> Verdict {
        let asked = Asked {
            packet,
            cores: &self.cores,
            by_rss: Steered::by_rss(packet.hash, packet.rss_queue),
            rss: match packet.hash {
                Some(hash) => format!("RSS: hash 0x{hash:08x} leads to queue {}", packet.rss_queue),
                None => "no hash: queue 0".to_owned(),
            },
        };
        let Decision { queue, core, stage, why } = match &mut self.policy {
            Policy::Rss => asked.by_queue(asked.by_rss, asked.rss.clone()),
            Policy::Fdir(fdir) => asked.fdir(fdir),
            Policy::Atr(atr) => asked.atr(atr),
            Policy::Rps(rps) => asked.rps(rps),
            Policy::Rfs(rfs) => asked.rfs(rfs),
            Policy::Arfs(arfs) => asked.arfs(arfs),
            Policy::Yard(yard) => asked.yard(yard),
            Policy::Rebalance(rebalance) => {
                let (queue, stage) = rebalance.peek(packet);
                asked.by_queue(Steered { queue, stage }, rebalance.why(packet))
            }
        };
        let dropped = stage == Stage::Dropped;
        Verdict {
            queue: (!dropped).then_some(queue),
            core: (!dropped).then(|| core.unwrap_or(self.cores.of_queue(queue))),
            stage: stage.name().to_owned(),
            why,
        }
    }
}

impl Asked<'_> {
    /// A decision that only selects the queue.
    fn by_queue(&self, Steered { queue, stage }: Steered, why: String) -> Decision {
        Decision { queue, core: None, stage, why }
    }

    fn backlog(&self) -> Backlog<'_> {
        Backlog { cores: self.cores, now: self.packet.now }
    }

    fn fdir(&self, fdir: &mut Fdir) -> Decision {
        let at = fdir.receive(self.packet, self.by_rss);
        let rule = fdir.why(self.packet);
        self.by_queue(at, rule.unwrap_or_else(|| format!("no rule matches; {}", self.rss)))
    }

    fn atr(&self, atr: &mut Atr) -> Decision {
        let at = atr.receive(self.packet, self.by_rss);
        let why = match (at.stage, atr.off()) {
            (Stage::Filter, _) => {
                "a filter learned from transmitted packets steers here".to_owned()
            }
            (_, Some(off)) => format!("the driver turns ATR off: {off}; {}", self.rss),
            (_, None) => format!("no filter for this flow yet; {}", self.rss),
        };
        self.by_queue(at, why)
    }

    fn rps(&self, rps: &Linux<Rps>) -> Decision {
        let core = rps.steering.cpu(rps.hash(self.packet), &self.backlog());
        let (stage, why) = match core {
            Some(core) => {
                let by = by_hash(self.packet);
                (Stage::Rps, format!("the map of RPS selects core {core} by {by}; {}", self.rss))
            }
            None => (Stage::NoHash, stays(&self.rss)),
        };
        Decision { queue: self.packet.rss_queue, core, stage, why }
    }

    fn rfs(&self, rfs: &Linux<Rfs>) -> Decision {
        let queue = self.packet.rss_queue;
        let hash = rfs.hash(self.packet);
        let mut steering = rfs.steering.clone();
        let wanted = steering.wanted(hash);
        let core = steering.receive(hash, queue, &mut self.backlog());
        let (stage, why) = consumer(core, wanted, by_hash(self.packet), &self.rss);
        Decision { queue, core, stage, why }
    }

    fn arfs(&self, arfs: &Linux<Box<Arfs>>) -> Decision {
        let packet = self.packet;
        let hash = arfs.hash(packet);
        let mut steering = arfs.steering.clone();
        let filter = steering.queue(&packet.key);
        let queue = filter.unwrap_or(packet.rss_queue);
        let wanted = steering.wanted(hash);
        let core = steering.receive(&packet.key, hash, queue, packet.now, &mut self.backlog());
        let by = match filter {
            Some(queue) => format!("a filter that RFS programmed steers to queue {queue}"),
            None => format!("no filter yet; {}", self.rss),
        };
        let (stage, why) = consumer(core, wanted, by_hash(packet), &by);
        let stage = if filter.is_some() { Stage::Filter } else { stage };
        Decision { queue, core, stage, why }
    }

    fn yard(&self, yard: &mut Yard) -> Decision {
        let Peek { wanted, core, learned } = yard.peek(self.packet, self.cores);
        let by = if learned {
            format!(
                "an entry learned from packets that core {wanted} transmitted selects core {wanted}"
            )
        } else {
            format!("no entry for this flow yet; the indirection table selects core {wanted}")
        };
        let (stage, why) = match (core == wanted, learned, self.packet.key.is_ip()) {
            (false, _, _) => (
                Stage::Settling,
                format!(
                    "{by}; settle keeps the flow on core {core} until its packets there are done"
                ),
            ),
            (true, true, _) => (Stage::Filter, by),
            (true, false, true) => (Stage::Rss, by),
            (true, false, false) => (Stage::NoHash, by),
        };
        Decision { queue: core % yard.queues(), core: Some(core), stage, why }
    }
}

/// The stage and the reason of RFS. `core` is where the frame goes, `wanted` is where its flow was
/// consumed last.
fn consumer(
    core: Option<u16>,
    wanted: Option<u16>,
    by_hash: &str,
    by_queue: &str,
) -> (Stage, String) {
    let why = match (core, wanted) {
        (None, _) => return (Stage::NoHash, stays(by_queue)),
        (Some(core), Some(wanted)) if core == wanted => {
            format!("RFS: the flow was last consumed on core {core}")
        }
        (Some(core), Some(wanted)) => format!(
            "RFS: the consumer moved to core {wanted}, but core {core} still has packets of the flow"
        ),
        (Some(core), None) => {
            format!("RFS has no consumer for the flow, so the map of RPS selects core {core}")
        }
    };
    (Stage::Rfs, format!("{why}; the flow is found by {by_hash}; {by_queue}"))
}

/// The hash that Linux uses for steering, and why.
const fn by_hash(packet: &Packet) -> &'static str {
    match (packet.hash, packet.l4_hash) {
        (Some(_), true) => "the adapter's hash",
        (Some(_), false) => {
            "the kernel's own hash, because the driver does not mark that of the adapter as one that covers ports"
        }
        (None, _) => "the kernel's own hash, because the adapter gives none",
    }
}

fn stays(by_queue: &str) -> String {
    format!(
        "RPS has no core that is online: stays on the core that the queue interrupts; {by_queue}"
    )
}
