//! The twin of Intel's DLB 2.0 (`flowyard_queue::dlb`) as a scheduler: its queues and ports with the limits of the
//! hardware, and workers that name the events that they forward (INDEPENDENT_ENQ).

use flowyard_queue::dlb::{Device, Event, Limits, Schedule};

use super::{Done, Item, Kind, Plan, Scheduler};

/// The device of a plan.
#[derive(Default)]
pub(super) struct Twin {
    device: Option<Device>,
    /// The consumer's port.
    consumer: usize,
    threshold: usize,
}

impl Scheduler for Twin {
    fn title(&self) -> String {
        "model of the limits of DLB 2.0".to_owned()
    }

    fn start(&mut self, plan: &Plan) -> Result<(), String> {
        let limits = Limits {
            credits: (plan.limit as usize).min(Limits::DLB2.credits),
            window: (plan.window as usize).clamp(64, 1024),
            ..Limits::DLB2
        };
        let mut device = Device::new(limits);
        device.independent = true;
        let refused = |what| format!("the device refuses this plan: {what:?}");
        for (stage, kind) in plan.stages.iter().enumerate() {
            let schedule = match kind {
                Kind::Ordered => Schedule::Ordered,
                Kind::Atomic => Schedule::Atomic,
                Kind::Parallel => Schedule::Unordered,
            };
            let late = plan.urgent_last && stage + 1 < plan.stages.len();
            device.queue(schedule, if late { 3 } else { 0 }).map_err(refused)?;
        }
        for _ in 0..plan.workers {
            let port = device.port().map_err(refused)?;
            for stage in 0..plan.stages.len() {
                device.link(port, stage).map_err(refused)?;
            }
        }
        let last = device.queue(Schedule::Directed, 0).map_err(refused)?;
        self.consumer = device.port().map_err(refused)?;
        device.link(self.consumer, last).map_err(refused)?;
        self.threshold = plan.threshold as usize;
        self.device = Some(device);
        Ok(())
    }

    fn enter(&mut self, events: &[(u32, u32)]) -> usize {
        let Some(device) = &mut self.device else { return 0 };
        let mut enter = |&(number, flow): &(u32, u32)| {
            device.enter(0, Event { number, flow }, self.threshold).is_ok()
        };
        events.iter().take_while(|event| enter(event)).count()
    }

    fn take(&mut self, worker: usize, most: usize) -> Vec<Item> {
        let Some(device) = &mut self.device else { return Vec::new() };
        let taken = device.take(worker, most).into_iter();
        taken.map(|(queue, event)| item(queue, event)).collect()
    }

    fn finish(&mut self, worker: usize, events: &[(Item, Done)]) -> usize {
        let Some(device) = &mut self.device else { return 0 };
        for (count, (taken, done)) in events.iter().enumerate() {
            let event = Event { number: taken.number, flow: taken.flow };
            match done {
                Done::Release => device.release(worker, event),
                Done::Forward => {
                    let next = usize::from(taken.stage) + 1;
                    if device.forward(worker, event, next).is_err() {
                        return count;
                    }
                }
            }
        }
        events.len()
    }

    fn run(&mut self) {
        if let Some(device) = &mut self.device {
            device.schedule();
        }
    }

    fn consume(&mut self) -> Vec<Item> {
        let mut items = Vec::new();
        while let Some(device) = &mut self.device {
            let some = device.take(self.consumer, 32);
            if some.is_empty() {
                break;
            }
            items.extend(some.into_iter().map(|(queue, event)| item(queue, event)));
            device.schedule();
        }
        items
    }
}

fn item(queue: usize, event: Event) -> Item {
    Item { number: event.number, flow: event.flow, stage: queue as u8 }
}
