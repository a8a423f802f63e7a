//! The queues of a yard over an event device.
//!
//! ```text
//!  Wanted ──> Layout ──> Setup: queues, ports ──> device, started ──> flowyard_queue::events::queues
//! ```
//!
//! NEW events are refused from a threshold on that leaves room for what all consumers have open, because a device may
//! need room for what is forwarded, too. Ports keep credits that they do not use, so that the yard counts with fewer
//! events than the device has.
//!
//! A device stays when its yard is gone, and the next yard may use it: functions of DPDK 22.11 that look for a device by
//! name read memory of devices that were removed.
//!
//! Invariant: a device is used by one yard at a time.
//! Thread-safety: a port is used under the lock of `flowyard_queue::events`.
#![allow(unsafe_code, reason = "calls of C functions")]

use std::sync::{Mutex, PoisonError};

use flowyard_frame::LANES;
use flowyard_queue::events::{Device, Event, Layout, Op, Sched, make};
use flowyard_queue::{Queues, Scheduler, Unfit, Wanted};

use crate::eal::{Eal, name_of};
use crate::event::{EventDevice, EventInfo, EventPort, EventQueue, Setup, op_code, sched_code};
use crate::{BURST, Error, sys};

const _: () = assert!(LANES == BURST, "a batch is a burst");

/// Makes the queues of a yard over an event device of DPDK.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventScheduler {
    /// The options of DPDK's environment: see [`Eal::start`].
    pub options: Vec<String>,
    /// The PCI devices that may be used.
    pub pci: Vec<String>,
    /// The device and its arguments, as `event_sw0`.
    pub device: String,
}

/// `RTE_EVENT_DEV_CAP_IMPLICIT_RELEASE_DISABLE`
const CAN_KEEP: u32 = 1 << 5;
/// Credits that a port of a software device may keep without use.
const KEPT: u32 = 64;
/// The least number of events with which a yard works: several batches.
const LEAST: u32 = 8 * BURST as u32;
/// The sequence numbers of an ordered queue: the least and the most of DLB 2.0.
const WINDOW: (u32, u32) = (64, 1024);
/// Drivers that finish events as the yard needs it.
const DRIVERS: [&str; 2] = ["event_sw", "dlb2"];

/// The names of devices that yards use.
static IN_USE: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl From<Error> for Unfit {
    fn from(Error { what, fix }: Error) -> Self {
        Self { what, fix }
    }
}

/// A device of a yard.
struct Running {
    device: EventDevice,
    name: String,
    /// By queue: its kind of schedule, as the device knows it.
    scheds: Vec<u8>,
    has_service: bool,
}

impl Scheduler for EventScheduler {
    fn make(&mut self, cores: u16, wanted: &[Wanted]) -> Result<Queues, Unfit> {
        make(cores, wanted, |layout| self.start(layout))
    }

    fn copies(&self) -> bool {
        false // they could not leave in the place of their frame
    }
}

impl EventScheduler {
    /// Starts the device for this layout; returns it with the number of frames that may be in it.
    fn start(&self, layout: &Layout) -> Result<(Running, usize), Unfit> {
        let eal = Eal::start(&self.options, &self.pci)?;
        let name = name_of(&self.device).to_owned();
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        if in_use.contains(&name) {
            return Err(Unfit {
                what: format!("another yard in this process uses the event device '{name}'"),
                fix: "name another device, as event_sw1".into(),
            });
        }
        let mut device = EventDevice::open(eal, &self.device)?;
        let started = device.info().map_err(Unfit::from).and_then(|info| {
            let (setup, frames) = plan(layout, &info, &name)?;
            device.start(&setup)?;
            Ok(frames)
        });
        let frames = started?;
        in_use.push(name.clone());
        let has_service = device.has_service();
        let scheds = layout.queues.iter().map(|queue| sched_code(queue.sched)).collect();
        Ok((Running { device, name, scheds, has_service }, frames as usize))
    }
}

/// The setup of a device for this layout, and the number of frames that may be in it.
fn plan(layout: &Layout, info: &EventInfo, name: &str) -> Result<(Setup, u32), Unfit> {
    if !DRIVERS.iter().any(|driver| info.driver.contains(driver)) {
        return Err(Unfit {
            what: format!("a yard over the driver '{}' is not implemented yet", info.driver),
            fix: "use event_sw0, or the PCI address of a DLB".into(),
        });
    }
    let (queues, ports) = (layout.queues.len() as u32, layout.ports.len() as u32);
    for (need, of, most) in [(queues, "queues", info.most.0), (ports, "ports", info.most.1)] {
        if need > most {
            return Err(Unfit {
                what: format!("the yard needs {need} {of} of '{name}', which has {most}"),
                fix: "use fewer cores, fewer consumers for each queue, or fewer queues and ports"
                    .into(),
            });
        }
    }
    let events = info.most_events.unwrap_or(8192);
    let consumers = layout.ports.iter().filter(|port| port.queue.is_some() && !port.single_link);
    let open = consumers.count() as u32 * BURST as u32;
    let threshold = events.saturating_sub(open);
    let frames = threshold.saturating_sub(KEPT * ports);
    if frames < LEAST {
        return Err(Unfit {
            what: format!(
                "'{name}' has {events} events, of which {ports} ports may keep {} and {open} may be open",
                KEPT * ports
            ),
            fix: "use fewer cores, or fewer consumers for each queue".into(),
        });
    }
    let ordered = layout.queues.iter().filter(|queue| queue.sched == Sched::Ordered);
    let window = ordered.map(|queue| queue.window).max().unwrap_or(0) as u32;
    let port = |of: &flowyard_queue::events::PortSetup| EventPort {
        threshold,
        depth: BURST as u32,
        single_link: of.single_link,
        // What a tx queue gives is done: the driver of a software device has its credit back at the next dequeue.
        no_implicit_release: info.capabilities & CAN_KEEP != 0 && !of.single_link,
        queues: of.queue.map_or(0, |queue| 1 << queue),
    };
    let queue = |of: &flowyard_queue::events::QueueSetup| EventQueue {
        sched: of.sched,
        priority: of.priority,
        single_link: of.single_link,
    };
    let setup = Setup {
        events,
        window: window.clamp(WINDOW.0, WINDOW.1).next_power_of_two(),
        queues: layout.queues.iter().map(queue).collect(),
        ports: layout.ports.iter().map(port).collect(),
    };
    Ok((setup, frames))
}

impl Device for Running {
    unsafe fn enqueue(&self, port: u8, events: &[Event]) -> usize {
        let mut raw = [sys::Event::default(); BURST];
        let mut count = 0;
        for (to, event) in raw.iter_mut().zip(events) {
            *to = sys::Event {
                payload: event.payload,
                flow: event.flow,
                queue: event.queue,
                op: op_code(event.op),
                sched: self.scheds[usize::from(event.queue)],
                priority: 0,
            };
            count += 1;
        }
        // SAFETY: as many events as said; the device runs, and as the caller promises no other thread uses the port.
        unsafe { sys::fy_event_enqueue(self.device.number, port, raw.as_ptr(), count) as usize }
    }

    unsafe fn dequeue(&self, port: u8, into: &mut [Event; LANES]) -> usize {
        let mut raw = [sys::Event::default(); BURST];
        // SAFETY: there is room for as many events; else as for `enqueue`.
        let count = unsafe {
            sys::fy_event_dequeue(self.device.number, port, raw.as_mut_ptr(), BURST as u32) as usize
        };
        for (to, event) in into.iter_mut().zip(&raw[..count]) {
            let sys::Event { payload, flow, queue, .. } = *event;
            *to = Event { payload, flow, queue, op: Op::Forward };
        }
        if count == 0 {
            // SAFETY: as above.
            unsafe { sys::fy_event_maintain(self.device.number, port) };
        }
        count
    }

    fn needs_run(&self) -> bool {
        self.has_service
    }

    unsafe fn run(&self) {
        // SAFETY: the caller promises that no other thread does.
        unsafe { self.device.schedule() };
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        self.device.stop();
        in_use.retain(|name| *name != self.name);
    }
}
