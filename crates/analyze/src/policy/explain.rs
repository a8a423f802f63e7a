//! What a policy says of one frame, in words. The learned state is asked, never changed.

use super::yard::Peek;
use super::{Backlog, Policy, Running};
use crate::delay::Cores;
use crate::explain::Verdict;
use crate::landing::Stage;
use crate::packet::Packet;

impl Running {
    /// Where a received frame would land now, and why.
    pub(crate) fn explain(&mut self, packet: &Packet) -> Verdict {
        let hashed = if packet.hash.is_some() { Stage::Rss } else { Stage::NoHash };
        let by_rss = match packet.hash {
            Some(hash) => format!("RSS: hash 0x{hash:08x} leads to queue {}", packet.rss_queue),
            None => "no hash: queue 0".to_owned(),
        };
        let cores = &self.cores;
        let (queue, core, stage, why) = match &mut self.policy {
            Policy::Rss => (packet.rss_queue, None, hashed, by_rss),
            Policy::Fdir(fdir) => {
                let (queue, stage) = fdir.receive(packet, packet.rss_queue, hashed);
                (
                    queue,
                    None,
                    stage,
                    fdir.why(packet).unwrap_or(format!("no rule matches; {by_rss}")),
                )
            }
            Policy::Atr(atr) => match atr.receive(packet, packet.rss_queue, hashed) {
                (queue, Stage::Filter) => {
                    let why = "a filter learned from what the host sent names this queue";
                    (queue, None, Stage::Filter, why.to_owned())
                }
                (queue, stage) => {
                    let why = match atr.off() {
                        Some(off) => format!("the driver keeps ATR off: {off}; {by_rss}"),
                        None => format!("no filter for this flow yet; {by_rss}"),
                    };
                    (queue, None, stage, why)
                }
            },
            Policy::Rps(rps) => {
                let hash = rps.hash(packet);
                let core = hash.and_then(|hash| rps.steering.cpu(hash, &backlog(cores, packet)));
                let (stage, why) = match core {
                    Some(core) => (Stage::Rps, format!("RPS's map picks core {core}; {by_rss}")),
                    None => (Stage::NoHash, stays(&by_rss)),
                };
                (packet.rss_queue, core, stage, why)
            }
            Policy::Rfs(rfs) => {
                let hash = rfs.hash(packet);
                let mut steering = rfs.steering.clone();
                let wanted = hash.and_then(|hash| steering.wanted(hash));
                let core = hash.and_then(|hash| {
                    steering.receive(hash, packet.rss_queue, &mut backlog(cores, packet))
                });
                let (stage, why) = consumer(core, wanted, &by_rss);
                (packet.rss_queue, core, stage, why)
            }
            Policy::Arfs(arfs) => {
                let hash = arfs.hash(packet);
                let mut steering = arfs.steering.clone();
                let filter = steering.queue(&packet.key);
                let queue = filter.unwrap_or(packet.rss_queue);
                let wanted = hash.and_then(|hash| steering.wanted(hash));
                let core = hash.and_then(|hash| {
                    let mut backlog = backlog(cores, packet);
                    steering.receive(&packet.key, hash, queue, packet.now, &mut backlog)
                });
                let by = match filter {
                    Some(queue) => format!("a filter that RFS programmed names queue {queue}"),
                    None => format!("no filter yet; {by_rss}"),
                };
                let (stage, why) = consumer(core, wanted, &by);
                (queue, core, if filter.is_some() { Stage::Filter } else { stage }, why)
            }
            Policy::Yard(yard) => {
                let Peek { wanted, core, learned } = yard.peek(packet, cores);
                let by = if learned {
                    format!("an entry learned from what core {wanted} sent names it")
                } else {
                    format!(
                        "no entry for this flow yet; the indirection table leads to core {wanted}"
                    )
                };
                let (stage, why) = match (core == wanted, learned, packet.key.is_ip()) {
                    (false, _, _) => (
                        Stage::Settling,
                        format!(
                            "{by}; settle keeps the flow on core {core} until that is done with what it has of it"
                        ),
                    ),
                    (true, true, _) => (Stage::Filter, by),
                    (true, false, true) => (Stage::Rss, by),
                    (true, false, false) => (Stage::NoHash, by),
                };
                (core % yard.queues(), Some(core), stage, why)
            }
        };
        let dropped = stage == Stage::Dropped;
        Verdict {
            queue: (!dropped).then_some(queue),
            core: (!dropped).then(|| core.unwrap_or(cores.of_queue(queue))),
            stage: stage.name().to_owned(),
            why,
        }
    }
}

fn backlog<'a>(cores: &'a Cores, packet: &Packet) -> Backlog<'a> {
    Backlog { cores, now: packet.now }
}

/// The stage and the words of RFS: `core` is where the frame goes, `wanted` where its flow was
/// consumed last.
fn consumer(core: Option<u16>, wanted: Option<u16>, by_queue: &str) -> (Stage, String) {
    let why = match (core, wanted) {
        (None, _) => return (Stage::NoHash, stays(by_queue)),
        (Some(core), Some(wanted)) if core == wanted => {
            format!("RFS: its flow was consumed on core {core} last")
        }
        (Some(core), Some(wanted)) => {
            format!(
                "RFS: its consumer moved to core {wanted}, but core {core} is not drained of it"
            )
        }
        (Some(core), None) => {
            format!("RFS knows no consumer of it, so RPS's map picks core {core}")
        }
    };
    (Stage::Rfs, format!("{why}; {by_queue}"))
}

fn stays(by_queue: &str) -> String {
    format!("not IP: it stays on the core that its queue interrupts; {by_queue}")
}
