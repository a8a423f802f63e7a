//! Event devices: events are scheduled from queues to ports by DPDK, in hardware or in software.
//!
//! A software device needs its service to run: [`EventDevice::schedule`] lets it run once, on the calling thread.
//! Thread-safety: a port is used by one thread at a time. [`EventDevice::enqueue`] and [`EventDevice::dequeue`] are
//! unsafe for that reason.
#![allow(unsafe_code, reason = "calls of C functions")]

pub use flowyard_queue::events::{Op, Sched};

use crate::eal::{Eal, c_text, changing, is_registered, name_of};
use crate::error::text_of;
use crate::{BURST, Error, sys};

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Event {
    /// The user's data.
    pub payload: u64,
    /// The flow; 20 bits.
    pub flow: u32,
    /// The queue that it is enqueued to, or was dequeued from.
    pub queue: u8,
    /// What it does.
    pub op: Op,
    /// How it is scheduled: as its queue.
    pub sched: Sched,
    /// 0 is the most urgent, 255 the least.
    pub priority: u8,
}

/// A queue of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventQueue {
    /// How it schedules.
    pub sched: Sched,
    /// 0 is the most urgent, 255 the least.
    pub priority: u8,
    /// Whether one port alone is linked to it.
    pub single_link: bool,
}

/// A port of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventPort {
    /// The number of events in flight in the device from which on new ones of this port are refused.
    pub threshold: u32,
    /// The most events that one dequeue gives.
    pub depth: u32,
    /// Whether it serves a queue with a single link.
    pub single_link: bool,
    /// Whether a dequeue releases nothing: see [`EventDevice::dequeue`].
    pub no_implicit_release: bool,
    /// The queues that it serves, as bits.
    pub queues: u64,
}

/// How a device is configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setup {
    /// The most events in flight.
    pub events: u32,
    /// The most ordered events in flight of a queue.
    pub window: u32,
    /// Its queues.
    pub queues: Vec<EventQueue>,
    /// Its ports.
    pub ports: Vec<EventPort>,
}

/// What a device can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventInfo {
    /// The driver.
    pub driver: String,
    /// The most events in flight; `None`: no limit.
    pub most_events: Option<u32>,
    /// DPDK's capability bits (`RTE_EVENT_DEV_CAP_...`).
    pub capabilities: u32,
    /// The most queues and ports.
    pub most: (u32, u32),
    /// The most events of one dequeue and one enqueue.
    pub depth: (u32, u32),
}

/// An event device.
#[derive(Debug)]
pub struct EventDevice {
    pub(crate) number: u8,
    name: String,
    is_started: bool,
}

pub(crate) const fn sched_code(sched: Sched) -> u8 {
    match sched {
        Sched::Ordered => 0,
        Sched::Atomic => 1,
        Sched::Parallel => 2,
    }
}

pub(crate) const fn op_code(op: Op) -> u8 {
    match op {
        Op::New => 0,
        Op::Forward => 1,
        Op::Release => 2,
    }
}

impl EventDevice {
    /// Adds the device with these arguments, such as `event_sw0`. A device that was added before is used again.
    ///
    /// # Errors
    /// When there is no such driver, or it refuses the arguments.
    pub fn open(eal: Eal, device: &str) -> Result<Self, Error> {
        let name = name_of(device).to_owned();
        let text = c_text(&name)?;
        // SAFETY: the text ends with a zero.
        let find = || unsafe { sys::fy_event_find(text.as_ptr()) };
        let mut number = find();
        if number < 0 {
            eal.add(device)?;
            number = find();
        }
        let Ok(number) = u8::try_from(number) else {
            let fix = "name an event device, such as event_sw0 or event_opdl0";
            return Err(Error::code(&format!("finding the event device '{name}'"), number, fix));
        };
        Ok(Self { number, name, is_started: false })
    }

    /// What it can do.
    ///
    /// # Errors
    /// When the device does not say it.
    pub fn info(&self) -> Result<EventInfo, Error> {
        // SAFETY: plain data, for which zeros are valid.
        let mut raw: sys::EventInfo = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is as large as both sides assert.
        let result = unsafe { sys::fy_event_device_info(self.number, &raw mut raw) };
        if result < 0 {
            let doing = format!("asking '{}' what it can do", self.name);
            return Err(Error::code(&doing, result, "report this as a bug"));
        }
        Ok(EventInfo {
            driver: text_of(&raw.driver),
            most_events: u32::try_from(raw.most_events).ok(),
            capabilities: raw.capabilities,
            most: (raw.most_queues, raw.most_ports),
            depth: (raw.dequeue_depth, raw.enqueue_depth),
        })
    }

    /// Configures the device and starts it; one that runs is stopped before.
    ///
    /// # Errors
    /// When the device refuses the setup.
    pub fn start(&mut self, setup: &Setup) -> Result<(), Error> {
        self.stop();
        let queue = |of: &EventQueue| sys::EventQueue {
            sched: sched_code(of.sched).into(),
            priority: of.priority.into(),
            single_link: of.single_link.into(),
            any_sched: 0,
        };
        let port = |of: &EventPort| sys::EventPort {
            threshold: of.threshold,
            depth: of.depth,
            single_link: of.single_link.into(),
            no_implicit_release: of.no_implicit_release.into(),
            queues: of.queues,
        };
        let queues: Vec<_> = setup.queues.iter().map(queue).collect();
        let ports: Vec<_> = setup.ports.iter().map(port).collect();
        // SAFETY: as many queues and ports as said.
        let result = unsafe {
            sys::fy_event_start(
                self.number,
                setup.events,
                setup.window,
                queues.as_ptr(),
                queues.len() as u32,
                ports.as_ptr(),
                ports.len() as u32,
            )
        };
        if result < 0 {
            let fix = "use fewer queues, ports or events; see the driver's guide";
            return Err(Error::code(&format!("starting '{}'", self.name), result, fix));
        }
        self.is_started = true;
        Ok(())
    }

    /// Stops the device. Events in it are lost.
    pub fn stop(&mut self) {
        if std::mem::take(&mut self.is_started) {
            // SAFETY: the device runs.
            unsafe { sys::fy_event_stop(self.number) };
        }
    }

    /// Stops and removes a virtual device, with all that its driver remembers. The device can be opened again under the
    /// same name, and begins anew. This is for programs with one event device at a time, such as the bench: while others
    /// exist, the functions of DPDK 22.11 that look for a device by name may read memory of removed devices. A yard
    /// therefore stops its device and leaves it; [`EventDevice::start`] then starts it with all its credits, too.
    ///
    /// # Errors
    /// When the device refuses, as hardware does: it cannot be removed.
    pub fn remove(mut self) -> Result<(), Error> {
        let text = c_text(&self.name)?;
        self.is_started = false;
        let _guard = changing();
        // SAFETY: the text ends with a zero; nobody else uses the device.
        let result = unsafe { sys::fy_event_remove(self.number, text.as_ptr()) };
        if result < 0 {
            let doing = format!("removing '{}'", self.name);
            return Err(Error::code(&doing, result, "restart flowyard"));
        }
        Ok(())
    }

    /// Whether the device needs [`EventDevice::schedule`].
    #[must_use]
    pub fn has_service(&self) -> bool {
        // SAFETY: the device exists.
        unsafe { sys::fy_event_has_service(self.number) != 0 }
    }

    /// Lets the service of a software device run once. DPDK knows the calling thread from then on.
    ///
    /// # Safety
    /// No other thread does so at the same time.
    ///
    /// # Panics
    /// When DPDK knows more than a hundred threads already.
    #[inline]
    pub unsafe fn schedule(&self) {
        assert!(is_registered(), "a thread of this process cannot be registered with DPDK");
        // SAFETY: as the caller promises.
        unsafe { sys::fy_event_schedule(self.number) };
    }

    /// Lets `port` hand on what it buffers, if the device needs that.
    ///
    /// # Safety
    /// The device runs, has the port, and no other thread uses it.
    #[inline]
    pub unsafe fn maintain(&self, port: u8) {
        // SAFETY: as the caller promises.
        unsafe { sys::fy_event_maintain(self.number, port) };
    }

    /// Enqueues events, at most [`BURST`]; returns how many, from the first on.
    ///
    /// # Safety
    /// As of [`EventDevice::maintain`]; the queues exist.
    #[inline]
    pub unsafe fn enqueue(&self, port: u8, events: &[Event]) -> usize {
        let mut raw = [sys::Event::default(); BURST];
        let mut count = 0;
        for (to, event) in raw.iter_mut().zip(events) {
            *to = sys::Event {
                payload: event.payload,
                flow: event.flow,
                queue: event.queue,
                op: op_code(event.op),
                sched: sched_code(event.sched),
                priority: event.priority,
            };
            count += 1;
        }
        // SAFETY: as many events as said; else as the caller promises.
        unsafe { sys::fy_event_enqueue(self.number, port, raw.as_ptr(), count) as usize }
    }

    /// Dequeues up to as many events as `into` has room for, at most [`BURST`]; returns how many. The events that the
    /// port dequeued before and has neither forwarded nor released are released by this, unless [`EventPort::no_implicit_release`] is set.
    ///
    /// # Safety
    /// As of [`EventDevice::maintain`].
    #[inline]
    pub unsafe fn dequeue(&self, port: u8, into: &mut [Event]) -> usize {
        let mut raw = [sys::Event::default(); BURST];
        let most = into.len().min(BURST) as u32;
        // SAFETY: there is room for as many; else as the caller promises.
        let count =
            unsafe { sys::fy_event_dequeue(self.number, port, raw.as_mut_ptr(), most) } as usize;
        for (to, event) in into.iter_mut().zip(&raw[..count]) {
            *to = Event {
                payload: event.payload,
                flow: event.flow,
                queue: event.queue,
                op: Op::Forward,
                sched: match event.sched {
                    1 => Sched::Atomic,
                    2 => Sched::Parallel,
                    _ => Sched::Ordered,
                },
                priority: event.priority,
            };
        }
        count
    }
}

impl Drop for EventDevice {
    fn drop(&mut self) {
        self.stop();
    }
}
