//! A DPDK event device as a scheduler, by the public calls of DPDK.
//!
//! Ports: one for each worker, which is linked to all stages; the producer's, which is linked to none; the consumer's,
//! with a queue of its own. A device whose ports take from one queue alone (event_opdl) gets a port for each worker and
//! stage; its last queue must not be one with a single link.
#![allow(unsafe_code, reason = "ports of a device are used by one thread; this is the only one")]

use flowyard_dpdk::{BURST, Eal, Event, EventDevice, EventPort, EventQueue, Op, Sched, Setup};

use super::{Done, Item, Kind, Plan, Scheduler};

/// A device, as it was set up.
pub(super) struct Dpdk {
    device: Option<EventDevice>,
    eal: Eal,
    arguments: String,
    plan: Option<Plan>,
    /// Whether each worker has a port for each stage.
    is_by_stage: bool,
}

/// DPDK's RTE_EVENT_DEV_CAP_MULTIPLE_QUEUE_PORT.
const MULTIPLE_QUEUE_PORT: u32 = 1 << 8;

const fn sched(kind: Kind) -> Sched {
    match kind {
        Kind::Ordered => Sched::Ordered,
        Kind::Atomic => Sched::Atomic,
        Kind::Parallel => Sched::Parallel,
    }
}

impl Dpdk {
    pub(super) fn open(device: &str, options: &[String]) -> Result<Self, flowyard_dpdk::Error> {
        let eal = Eal::start(options, &[])?;
        let opened = Some(EventDevice::open(eal, device)?);
        Ok(Self {
            device: opened,
            eal,
            arguments: device.to_owned(),
            plan: None,
            is_by_stage: false,
        })
    }

    /// How the stage with this number schedules; the consumer's queue is atomic.
    fn sched(&self, stage: usize) -> Sched {
        let stages = self.plan.as_ref().map_or(&[][..], |plan| &plan.stages);
        stages.get(stage).map_or(Sched::Atomic, |kind| sched(*kind))
    }

    fn stages(&self) -> usize {
        self.plan.as_ref().map_or(0, |plan| plan.stages.len())
    }

    /// The port by which a worker has events of a stage.
    fn port(&self, worker: usize, stage: usize) -> u8 {
        (if self.is_by_stage { worker * self.stages() + stage } else { worker }) as u8
    }

    /// The producer's port, which is behind those of the workers.
    fn producer(&self) -> u8 {
        self.port(self.plan.as_ref().map_or(0, |plan| plan.workers), 0)
    }

    /// Gives up to `most` events of a port.
    fn dequeue(&self, port: u8, most: usize) -> Vec<Item> {
        let mut events = [Event::default(); BURST];
        let Some(device) = &self.device else { return Vec::new() };
        // SAFETY: the device runs and has the port; this is the only thread.
        let count = unsafe { device.dequeue(port, &mut events[..most.min(BURST)]) };
        Self::items(&events[..count])
    }

    fn items(events: &[Event]) -> Vec<Item> {
        let item = |event: &Event| Item {
            number: event.payload as u32,
            flow: event.flow,
            stage: event.queue,
        };
        events.iter().map(item).collect()
    }
}

impl Scheduler for Dpdk {
    fn title(&self) -> String {
        let info = self.device.as_ref().and_then(|device| device.info().ok());
        let driver = info.map_or_else(|| self.arguments.clone(), |info| info.driver);
        format!("{driver} of {}", flowyard_dpdk::version())
    }

    fn start(&mut self, plan: &Plan) -> Result<(), String> {
        // A device that ran before is made anew.
        if let (Some(device), true) = (self.device.take(), self.plan.is_some()) {
            device.remove().map_err(|error| error.to_string())?;
        }
        let opened =
            EventDevice::open(self.eal, &self.arguments).map_err(|error| error.to_string())?;
        let device = self.device.insert(opened);
        let info = device.info().map_err(|error| error.to_string())?;
        let limit = plan.limit.min(info.most_events.unwrap_or(u32::MAX));
        self.is_by_stage = info.capabilities & MULTIPLE_QUEUE_PORT == 0;
        let is_linked = !self.is_by_stage;
        let stage = |(at, kind): (usize, &Kind)| EventQueue {
            sched: sched(*kind),
            priority: if plan.urgent_last { if at == 0 { 255 } else { 0 } } else { 128 },
            single_link: false,
        };
        let mut queues: Vec<_> = plan.stages.iter().enumerate().map(stage).collect();
        queues.push(EventQueue { sched: Sched::Atomic, priority: 0, single_link: is_linked });
        let port = |threshold: u32, single_link, queues| EventPort {
            threshold: threshold.min(limit),
            depth: BURST as u32,
            single_link,
            no_implicit_release: false,
            queues,
        };
        let last = plan.stages.len();
        let mut ports = if self.is_by_stage {
            let of_one = (0..last).map(|stage| port(limit, false, 1 << stage));
            of_one.collect::<Vec<_>>().repeat(plan.workers)
        } else {
            vec![port(limit, false, (1 << last) - 1); plan.workers]
        };
        ports.push(port(plan.threshold, false, 0));
        ports.push(port(limit, is_linked, 1 << last));
        let setup = Setup { events: limit, window: plan.window, queues, ports };
        self.plan = Some(plan.clone());
        device.start(&setup).map_err(|error| error.to_string())
    }

    fn enter(&mut self, events: &[(u32, u32)]) -> usize {
        let (producer, sched) = (self.producer(), self.sched(0));
        let Some(device) = &self.device else { return 0 };
        let mut entered = 0;
        for chunk in events.chunks(BURST) {
            let mut burst = [Event::default(); BURST];
            for (to, (number, flow)) in burst.iter_mut().zip(chunk) {
                let (payload, flow) = (u64::from(*number), *flow);
                *to = Event { payload, flow, queue: 0, op: Op::New, sched, priority: 128 };
            }
            // SAFETY: the device runs and has the port; this is the only thread.
            let count = unsafe { device.enqueue(producer, &burst[..chunk.len()]) };
            entered += count;
            if count < chunk.len() {
                break;
            }
        }
        entered
    }

    fn take(&mut self, worker: usize, most: usize) -> Vec<Item> {
        if !self.is_by_stage {
            return self.dequeue(self.port(worker, 0), most);
        }
        let mut stages = (0..self.stages()).rev();
        let taken = stages.find_map(|stage| {
            let items = self.dequeue(self.port(worker, stage), most);
            (!items.is_empty()).then(|| {
                items.into_iter().map(|item| Item { stage: stage as u8, ..item }).collect()
            })
        });
        taken.unwrap_or_default()
    }

    fn finish(&mut self, worker: usize, events: &[(Item, Done)]) -> usize {
        let Some(device) = &self.device else { return 0 };
        let mut finished = 0;
        let of_one_stage = events.chunk_by(|(a, _), (b, _)| a.stage == b.stage);
        for chunk in of_one_stage.flat_map(|events| events.chunks(BURST)) {
            let port = chunk.first().map_or(0, |(item, _)| self.port(worker, item.stage.into()));
            let mut burst = [Event::default(); BURST];
            for (to, (item, done)) in burst.iter_mut().zip(chunk) {
                let next = usize::from(item.stage) + 1;
                *to = Event {
                    payload: item.number.into(),
                    flow: item.flow,
                    queue: if *done == Done::Forward { next as u8 } else { item.stage },
                    op: if *done == Done::Forward { Op::Forward } else { Op::Release },
                    sched: self.sched(if *done == Done::Forward {
                        next
                    } else {
                        item.stage.into()
                    }),
                    priority: 128,
                };
            }
            // SAFETY: as above.
            let count = unsafe { device.enqueue(port, &burst[..chunk.len()]) };
            finished += count;
            if count < chunk.len() {
                break;
            }
        }
        finished
    }

    fn run(&mut self) {
        let Some(device) = &self.device else { return };
        if device.has_service() {
            // SAFETY: no other thread lets the service run.
            unsafe { device.schedule() };
        } else {
            for port in 0..self.producer() + 2 {
                // SAFETY: as above.
                unsafe { device.maintain(port) };
            }
        }
    }

    fn consume(&mut self) -> Vec<Item> {
        let (consumer, mut items) = (self.producer() + 1, Vec::new());
        loop {
            let some = self.dequeue(consumer, BURST);
            if some.is_empty() {
                return items;
            }
            items.extend(some);
            if items.len() > 1 << 20 {
                return items; // a device that gives events without end
            }
        }
    }
}
