//! Which queues and ports an event device needs for the queues of a yard.
//!
//! Thread-safety: plain values.

use super::device::Sched;
use crate::contract::Order;
use crate::scheduler::{Unfit, Wanted};

/// A queue of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueSetup {
    /// How it schedules.
    pub sched: Sched,
    /// 0 is the most urgent.
    pub priority: u8,
    /// Whether one port alone takes from it, and its events are done when they are taken.
    pub single_link: bool,
    /// The most frames that are in it.
    pub window: usize,
}

/// A port of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortSetup {
    /// The queue that it takes from; `None`: it only enqueues.
    pub queue: Option<u8>,
    /// Whether its queue has this port alone: see [`QueueSetup::single_link`].
    pub single_link: bool,
}

/// The queues and ports of a device for a yard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// A queue for each that is wanted.
    pub queues: Vec<QueueSetup>,
    /// The ports.
    pub ports: Vec<PortSetup>,
    pub(super) wanted: Vec<Wanted>,
    /// By queue: the port of each consumer.
    pub(super) seats: Vec<Vec<(u16, u8)>>,
    /// By core: the port by which it enqueues.
    pub(super) producers: Vec<u8>,
    /// The core that lets the scheduler of the device run.
    pub(super) scheduling: u16,
}

/// The most queues of a device: queues are linked by the bits of a word.
const QUEUES: usize = 64;
/// The most ports of a device: they are numbered by a byte.
const PORTS: usize = 255;

impl Layout {
    /// The layout for these queues, in a yard with `cores` cores.
    ///
    /// # Errors
    /// When there are too many queues or ports.
    pub fn new(cores: u16, wanted: &[Wanted]) -> Result<Self, Unfit> {
        if wanted.len() > QUEUES {
            return Err(Unfit {
                what: format!(
                    "the yard needs {} queues of an event device, which has at most {QUEUES}",
                    wanted.len()
                ),
                fix: "use fewer queues and ports, or fewer cores for each port".into(),
            });
        }
        let (mut queues, mut ports, mut seats) = (Vec::new(), Vec::new(), Vec::new());
        for (number, queue) in wanted.iter().enumerate() {
            // One consumer keeps the order of arrival without a window, which only delays it.
            let is_shared = queue.consumers.len() > 1;
            queues.push(QueueSetup {
                sched: match queue.order {
                    Order::Ordered if is_shared => Sched::Ordered,
                    Order::Unordered => Sched::Parallel,
                    Order::Direct | Order::Atomic | Order::Ordered => Sched::Atomic,
                },
                priority: queue.priority,
                single_link: queue.is_tx,
                window: queue.window,
            });
            let mut mine = Vec::new();
            for &core in &queue.consumers {
                mine.push((core, ports.len()));
                ports.push(PortSetup { queue: Some(number as u8), single_link: queue.is_tx });
            }
            seats.push(mine);
        }
        let mut producers = Vec::new();
        for core in 0..cores {
            let served = seats.iter().zip(wanted).filter(|(_, queue)| !queue.is_tx);
            let own = served.flat_map(|(seats, _)| seats).find(|seat| seat.0 == core);
            producers.push(own.map_or(ports.len(), |seat| seat.1));
            if own.is_none() {
                ports.push(PortSetup { queue: None, single_link: false });
            }
        }
        if ports.len() > PORTS {
            return Err(Unfit {
                what: format!(
                    "the yard needs {} ports of an event device, which has at most {PORTS}",
                    ports.len()
                ),
                fix: "use fewer cores, or fewer consumers for each queue".into(),
            });
        }
        let works =
            |core: &u16| wanted.iter().any(|queue| !queue.is_tx && queue.consumers.contains(core));
        Ok(Self {
            queues,
            wanted: wanted.to_vec(),
            seats: seats
                .into_iter()
                .map(|mine| mine.into_iter().map(|(core, port)| (core, port as u8)).collect())
                .collect(),
            producers: producers.into_iter().map(|port| port as u8).collect(),
            scheduling: (0..cores).find(|core| !works(core)).unwrap_or(0),
            ports,
        })
    }
}
