//! A DPDK event device as a scheduler, by the public calls of DPDK.
//!
//! Ports: one for each worker, which is linked to all stages; the producer's, which is linked to none; the consumer's,
//! with a queue of its own.
#![allow(unsafe_code, reason = "ports of a device are used by one thread; this is the only one")]

use flowyard_dpdk::{BURST, Eal, Event, EventDevice, EventPort, EventQueue, Op, Sched, Setup};

use super::{Done, Item, Kind, Plan, Scheduler};

/// A device, as it was set up.
pub(super) struct Dpdk {
    device: Option<EventDevice>,
    eal: Eal,
    arguments: String,
    plan: Option<Plan>,
}

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
        Ok(Self { device: opened, eal, arguments: device.to_owned(), plan: None })
    }

    /// How the stage with this number schedules; the consumer's queue is atomic.
    fn sched(&self, stage: usize) -> Sched {
        let stages = self.plan.as_ref().map_or(&[][..], |plan| &plan.stages);
        stages.get(stage).map_or(Sched::Atomic, |kind| sched(*kind))
    }

    fn workers(&self) -> u8 {
        self.plan.as_ref().map_or(0, |plan| plan.workers as u8)
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
        let stage = |(at, kind): (usize, &Kind)| EventQueue {
            sched: sched(*kind),
            priority: if plan.urgent_last { if at == 0 { 255 } else { 0 } } else { 128 },
            single_link: false,
        };
        let mut queues: Vec<_> = plan.stages.iter().enumerate().map(stage).collect();
        queues.push(EventQueue { sched: Sched::Atomic, priority: 0, single_link: true });
        let port = |threshold: u32, single_link, queues| EventPort {
            threshold: threshold.min(limit),
            depth: BURST as u32,
            single_link,
            queues,
        };
        let last = plan.stages.len();
        let mut ports = vec![port(limit, false, (1 << last) - 1); plan.workers];
        ports.push(port(plan.threshold, false, 0));
        ports.push(port(limit, true, 1 << last));
        let setup = Setup { events: limit, window: plan.window, queues, ports };
        self.plan = Some(plan.clone());
        device.start(&setup).map_err(|error| error.to_string())
    }

    fn enter(&mut self, events: &[(u32, u32)]) -> usize {
        let (producer, sched) = (self.workers(), self.sched(0));
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
        let mut events = [Event::default(); BURST];
        let most = most.min(BURST);
        let Some(device) = &self.device else { return Vec::new() };
        // SAFETY: as above.
        let count = unsafe { device.dequeue(worker as u8, &mut events[..most]) };
        Self::items(&events[..count])
    }

    fn finish(&mut self, worker: usize, events: &[(Item, Done)]) -> usize {
        let Some(device) = &self.device else { return 0 };
        let mut finished = 0;
        for chunk in events.chunks(BURST) {
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
            let count = unsafe { device.enqueue(worker as u8, &burst[..chunk.len()]) };
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
            for port in 0..self.workers() + 2 {
                // SAFETY: as above.
                unsafe { device.maintain(port) };
            }
        }
    }

    fn consume(&mut self) -> Vec<Item> {
        let (consumer, mut items) = (self.workers() + 1, Vec::new());
        let Some(device) = &self.device else { return items };
        loop {
            let mut events = [Event::default(); BURST];
            // SAFETY: as above.
            let count = unsafe { device.dequeue(consumer, &mut events) };
            if count == 0 {
                return items;
            }
            items.extend(Self::items(&events[..count]));
            if items.len() > 1 << 20 {
                return items; // a device that gives events without end
            }
        }
    }
}
