use std::sync::Arc;

use flowyard_frame::To;
use flowyard_queue::{Queues, Scheduler, Service, Unfit, Wanted};

use crate::blueprint::{Blueprint, PortPlan, QueuePlan};
use crate::core::Tick;
use crate::mail::Message;
use crate::{Parts, Yard};

/// flowyard's own queues, with a scheduler beside them that always says that frames have moved.
struct Restless;

impl Service for Restless {
    fn run(&self, _core: u16) -> u32 {
        1
    }

    fn lose(&self, _core: u16) {}
}

impl Scheduler for Restless {
    fn make(&mut self, cores: u16, wanted: &[Wanted]) -> Result<Queues, Unfit> {
        let Queues { queues, .. } = Scheduler::make(&mut flowyard_queue::new, cores, wanted)?;
        Ok(Queues { queues, service: Some(Arc::new(Self)) })
    }
}

#[test]
fn a_core_is_not_busy_by_what_the_scheduler_of_a_device_moves() {
    let plan = Blueprint {
        ports: vec![PortPlan::default()],
        queues: vec![QueuePlan::default()],
        ..Blueprint::default()
    };
    let parts = Parts { queues: Box::new(Restless), ..Parts::default() };
    let mut yard = Yard::build(&plan, parts).unwrap();
    for tick in 1..=100 {
        assert_eq!(yard.cores[0].tick(tick * 1000), 1, "the core stays awake");
    }
    let counters = yard.cores[0].counters();
    assert_eq!((counters.busy_ns, counters.ticks_busy, counters.ticks_idle), (0, 0, 100));
    // What the core itself does counts.
    assert!(yard.mail.offer(0, Message::Entry { index: 0, to: To::Queue(0) }));
    assert_eq!(yard.cores[0].tick(101_000), 2);
    assert_eq!(yard.cores[0].tick(102_000), 1);
    let counters = yard.cores[0].counters();
    assert_eq!((counters.busy_ns, counters.ticks_busy), (1000, 1));
}
