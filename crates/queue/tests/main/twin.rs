//! The model of DLB 2.0 as a device under queues. It also refuses events, and gives some a second time.

use std::collections::HashMap;
use std::sync::Mutex;

use flowyard_frame::LANES;
use flowyard_queue::dlb::{self, Limits, Schedule};
use flowyard_queue::events::{Device, Event, Layout, Op, Sched};
use flowyard_testkit::Rng;

/// The model with the payloads of its events.
pub(crate) struct Twin(Mutex<State>);

struct State {
    device: dlb::Device,
    payloads: HashMap<u32, u64>,
    next: u32,
    rng: Rng,
    /// One of N enqueues is cut short, and one of N dequeues gives an event a second time; 0 for none.
    faults: u64,
    /// An event to give a second time.
    again: Option<Event>,
}

impl Twin {
    pub(crate) fn new(layout: &Layout, limits: Limits, seed: u64, faults: u64) -> Self {
        let mut device = dlb::Device::new(limits);
        device.implicit_release = false;
        for queue in &layout.queues {
            let schedule = match queue.sched {
                _ if queue.single_link => Schedule::Directed,
                Sched::Ordered => Schedule::Ordered,
                Sched::Atomic => Schedule::Atomic,
                Sched::Parallel => Schedule::Unordered,
            };
            device.queue(schedule, queue.priority).unwrap();
        }
        for port in &layout.ports {
            let number = device.port().unwrap();
            port.queue.into_iter().for_each(|queue| device.link(number, queue.into()).unwrap());
        }
        let rng = Rng::new(seed);
        let payloads = HashMap::new();
        Self(Mutex::new(State { device, payloads, next: 0, rng, faults, again: None }))
    }
}

#[expect(unsafe_code, reason = "the trait's methods")]
impl Device for Twin {
    unsafe fn enqueue(&self, port: u8, events: &[Event]) -> usize {
        let state = &mut *self.0.lock().unwrap();
        let most = match state.faults {
            0 => LANES as u64,
            n if state.rng.below(n) == 0 => state.rng.below(events.len() as u64),
            _ => LANES as u64,
        };
        let mut taken = 0;
        for event in events.iter().take(most as usize) {
            let one = dlb::Event { number: state.next, flow: event.flow };
            let (port, queue) = (usize::from(port), usize::from(event.queue));
            let went = match event.op {
                Op::New => state.device.enter(queue, one, 4096).is_ok(),
                Op::Forward => state.device.forward(port, one, queue).is_ok(),
                Op::Release => {
                    state.device.release(port, one);
                    true
                }
            };
            if !went {
                break;
            }
            if event.op != Op::Release {
                state.payloads.insert(state.next, event.payload);
            }
            state.next += 1;
            taken += 1;
        }
        taken
    }

    unsafe fn dequeue(&self, port: u8, into: &mut [Event; LANES]) -> usize {
        let state = &mut *self.0.lock().unwrap();
        let (mut count, events) = (0, state.device.take(port.into(), LANES));
        for (queue, event) in events {
            let payload = state.payloads.remove(&event.number).unwrap();
            let flow = event.flow;
            into[count] = Event { payload, flow, queue: queue as u8, op: Op::Forward };
            count += 1;
        }
        if state.faults > 0 && count > 0 && state.rng.below(state.faults) == 0 {
            state.again = Some(into[0]);
        }
        count
    }

    fn needs_run(&self) -> bool {
        true
    }

    unsafe fn run(&self) {
        let state = &mut *self.0.lock().unwrap();
        // An event that the device has given before enters once more.
        if let Some(event) = state.again.take() {
            let one = dlb::Event { number: state.next, flow: event.flow };
            if state.device.enter(event.queue.into(), one, 4096).is_ok() {
                state.payloads.insert(state.next, event.payload);
            }
            state.next += 1;
        }
        state.device.schedule();
    }
}
