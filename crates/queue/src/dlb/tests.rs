//! Each limit of the twin has a scenario that runs into it; and no event is lost, and no order broken, whatever is done.

use proptest::prelude::*;

use super::*;

const ALWAYS: usize = usize::MAX;

fn event(number: u32, flow: u32) -> Event {
    Event { number, flow }
}

/// A device with `ports` ports, all of which are linked to all queues, and a directed queue behind the last with a
/// port of its own; the numbers of the queues.
fn device(limits: Limits, queues: &[Schedule], ports: usize) -> (Device, Vec<usize>) {
    let mut device = Device::new(limits);
    let mut numbers: Vec<usize> =
        queues.iter().map(|schedule| device.queue(*schedule, 0).unwrap()).collect();
    for port in 0..ports {
        assert_eq!(device.port(), Ok(port));
        numbers.iter().for_each(|queue| device.link(port, *queue).unwrap());
    }
    numbers.push(device.queue(Schedule::Directed, 0).unwrap());
    let last = device.port().unwrap();
    device.link(last, numbers[queues.len()]).unwrap();
    (device, numbers)
}

/// The numbers of events that have arrived at the consumer, which is the last port.
fn consume(device: &mut Device, port: usize) -> Vec<u32> {
    device.schedule();
    let mut all = Vec::new();
    loop {
        let some = device.dequeue(port, 32);
        if some.is_empty() {
            return all;
        }
        all.extend(some.iter().map(|event| event.number));
        device.schedule();
    }
}

/// dlb2.rst: a producer that takes every credit, and workers that hold as many events as they may, stop each other.
#[test]
fn credits_dead_lock() {
    let limits = Limits { credits: 256, ..Limits::DLB2 };
    let (mut device, queues) = device(limits, &[Schedule::Unordered, Schedule::Unordered], 2);
    device.implicit_release = false;
    let mut number = 0;
    let mut enter = |device: &mut Device, threshold: usize| {
        while device.enter(queues[0], event(number, number), threshold).is_ok() {
            number += 1;
        }
    };
    // What the ports take gives its credits back, and the producer takes these, too.
    enter(&mut device, ALWAYS);
    device.schedule();
    enter(&mut device, ALWAYS);
    let mut held = Vec::new();
    for port in 0..2 {
        held.push(device.dequeue(port, 32));
        assert_eq!(held[port].len(), 32);
    }
    device.schedule();
    assert!(device.stopped(Limit::History) > 0);
    for (port, events) in held.iter().enumerate() {
        assert_eq!(device.forward(port, events[0], queues[1]), Err(Limit::Credits));
        assert!(device.dequeue(port, 32).is_empty(), "the history list is full");
    }
    assert!(device.is_dead_locked());
    assert_eq!(device.schedule(), 0);
    // A RELEASE ends it: it takes no credit, and lets the port take an event, which gives one back.
    device.release(0, held[0][0]);
    assert_eq!(device.schedule(), 1);
    assert_eq!(device.forward(0, held[0][1], queues[1]), Ok(()));
}

/// The remedy of dlb2.rst: a threshold for new events that leaves credits for what the ports hold.
#[test]
fn a_threshold_prevents_the_dead_lock() {
    let limits = Limits { credits: 256, ..Limits::DLB2 };
    let (mut device, queues) = device(limits, &[Schedule::Unordered, Schedule::Unordered], 2);
    device.implicit_release = false;
    let (mut number, mut arrived) = (0, 0);
    for _ in 0..200 {
        while device.enter(queues[0], event(number, number), 128).is_ok() {
            number += 1;
        }
        device.schedule();
        for port in 0..2 {
            for taken in device.dequeue(port, 32) {
                // The second queue's events go to the consumer. A worker knows the stage from the event.
                let to = if taken.flow == 1 << 15 { queues[2] } else { queues[1] };
                assert_eq!(device.forward(port, event(taken.number, 1 << 15), to), Ok(()));
            }
        }
        arrived += consume(&mut device, 2).len();
    }
    assert!(device.stopped(Limit::Threshold) > 0 && !device.is_dead_locked());
    assert!(arrived > 1000, "{arrived}");
}

/// dlb2.rst: when the atomic buffer is full of events of a flow that is at a port, the whole queue is blocked, though
/// other flows wait and other ports are idle.
#[test]
fn an_elephant_blocks_its_atomic_queue() {
    let (mut device, queues) = device(Limits::DLB2, &[Schedule::Atomic], 2);
    device.implicit_release = false;
    for number in 0..32 + 64 {
        device.enter(queues[0], event(number, 7), ALWAYS).unwrap();
    }
    for number in 100..110 {
        device.enter(queues[0], event(number, number), ALWAYS).unwrap();
    }
    assert_eq!(device.schedule(), 32, "one port has all of the flow that it may hold");
    assert!(device.stopped(Limit::Atomic) > 0 && device.stopped(Limit::Pinned) > 0);
    let (a, b) = (device.dequeue(0, 32), device.dequeue(1, 32));
    assert_eq!((a.len().max(b.len()), a.len().min(b.len())), (32, 0));
    // Once the flow moves on, the others are found.
    let port = usize::from(a.is_empty());
    for taken in [a, b].concat() {
        device.forward(port, taken, queues[1]).unwrap();
    }
    device.schedule();
    assert!(!device.dequeue(1 - port, 32).is_empty(), "mice reach the other port");
}

/// With a smaller elephant, which the buffer has room beside, the mice pass.
#[test]
fn mice_pass_while_the_buffer_has_room() {
    let (mut device, queues) = device(Limits::DLB2, &[Schedule::Atomic], 2);
    for number in 0..32 + 32 {
        device.enter(queues[0], event(number, 7), ALWAYS).unwrap();
    }
    for number in 100..110 {
        device.enter(queues[0], event(number, number), ALWAYS).unwrap();
    }
    assert_eq!(device.schedule(), 42);
    assert_eq!(device.stopped(Limit::Atomic), 0);
}

#[test]
fn an_ordered_queue_has_as_many_events_out_as_sequence_numbers() {
    let limits = Limits { port_history: 64, depth: 64, ..Limits::DLB2 };
    let (mut device, queues) = device(limits, &[Schedule::Ordered], 4);
    (device.independent, device.implicit_release) = (true, false);
    for number in 0..200 {
        device.enter(queues[0], event(number, 0), ALWAYS).unwrap();
    }
    assert_eq!(device.schedule(), 64);
    assert!(device.stopped(Limit::Window) > 0);
    let taken: Vec<_> = (0..4).map(|port| device.dequeue(port, 64)).collect();
    let oldest = taken.iter().position(|events| events.contains(&event(0, 0))).unwrap();
    for (port, events) in taken.iter().enumerate().rev() {
        for &one in events.iter().filter(|one| one.number != 0) {
            device.forward(port, one, queues[1]).unwrap();
        }
    }
    assert!(consume(&mut device, 4).is_empty(), "nothing overtakes the oldest");
    assert_eq!(device.schedule(), 0, "and nothing more is scheduled");
    device.forward(oldest, event(0, 0), queues[1]).unwrap();
    assert_eq!(consume(&mut device, 4), (0..64).collect::<Vec<_>>());
}

/// Without INDEPENDENT_ENQ, an event takes the place of the oldest one that its port holds: forwards in reverse come
/// out in reverse. With it, the order is restored (DPDK 24.11).
#[test]
fn forwards_in_reverse_need_independent_enqueue() {
    for independent in [false, true] {
        let (mut device, queues) = device(Limits::DLB2, &[Schedule::Ordered], 1);
        device.independent = independent;
        for number in 0..8 {
            device.enter(queues[0], event(number, 0), ALWAYS).unwrap();
        }
        device.schedule();
        for taken in device.dequeue(0, 8).into_iter().rev() {
            device.forward(0, taken, queues[1]).unwrap();
        }
        let mut expected: Vec<u32> = (0..8).collect();
        if !independent {
            expected.reverse();
        }
        assert_eq!(consume(&mut device, 1), expected);
    }
}

#[test]
fn history_lists_and_consumer_queues_end() {
    let limits = Limits { history: 48, ..Limits::DLB2 };
    let (mut small, queues) = device(limits, &[Schedule::Unordered], 2);
    (0..100).for_each(|number| small.enter(queues[0], event(number, 0), ALWAYS).unwrap());
    assert_eq!((small.schedule(), small.stopped(Limit::History) > 0), (48, true));
    let limits = Limits { depth: 8, ..Limits::DLB2 };
    let (mut shallow, queues) = device(limits, &[Schedule::Unordered], 2);
    (0..100).for_each(|number| shallow.enter(queues[0], event(number, 0), ALWAYS).unwrap());
    assert_eq!((shallow.schedule(), shallow.stopped(Limit::Depth) > 0), (16, true));
}

#[test]
fn directed_credits_are_apart() {
    let limits = Limits { directed_credits: 4, depth: 2, ..Limits::DLB2 };
    let (mut device, queues) = device(limits, &[Schedule::Unordered], 1);
    for number in 0..4 {
        device.enter(queues[1], event(number, 0), ALWAYS).unwrap();
    }
    assert_eq!(device.enter(queues[1], event(4, 0), ALWAYS), Err(Limit::DirectedCredits));
    device.enter(queues[0], event(5, 0), ALWAYS).unwrap();
    assert_eq!(consume(&mut device, 1), [0, 1, 2, 3]);
    device.enter(queues[1], event(4, 0), ALWAYS).unwrap();
}

/// The port of a directed queue holds no events, so what its worker sends on is new.
#[test]
fn an_event_of_a_directed_queue_can_be_sent_on() {
    let limits = Limits { credits: 1, directed_credits: 4, ..Limits::DLB2 };
    let (mut device, queues) = device(limits, &[Schedule::Unordered], 1);
    device.enter(queues[1], event(7, 0), ALWAYS).unwrap();
    assert_eq!(consume(&mut device, 1), [7]);
    device.forward(1, event(7, 0), queues[0]).unwrap();
    assert_eq!(device.forward(1, event(8, 0), queues[0]), Err(Limit::Credits));
    assert_eq!(consume(&mut device, 0), [7]);
}

#[test]
fn links_queues_and_ports_end() {
    let mut device = Device::new(Limits::DLB2);
    (0..32).for_each(|queue| assert_eq!(device.queue(Schedule::Atomic, 0), Ok(queue)));
    assert_eq!(device.queue(Schedule::Ordered, 0), Err(Refused::Queues));
    let port = device.port().unwrap();
    (0..8).for_each(|queue| device.link(port, queue).unwrap());
    assert_eq!(device.link(port, 8), Err(Refused::Links));
    // Directed queues and their ports do not count as load-balanced ones, in whichever order they are made.
    (1..128).for_each(|port| assert_eq!(device.port(), Ok(port)));
    assert_eq!(device.port(), Err(Refused::Ports));
    let directed = device.queue(Schedule::Directed, 0).unwrap();
    device.link(1, directed).unwrap();
    assert_eq!(device.link(2, directed), Err(Refused::Directed));
    assert_eq!(device.link(1, 0), Err(Refused::Directed), "no load-balanced queue as well");
    assert_eq!(device.link(port, directed), Err(Refused::Directed));
    assert_eq!(device.link(2, 99), Err(Refused::Unknown));
    (2..65).for_each(|port| device.link(port, 0).unwrap());
    assert_eq!(device.link(65, 0), Err(Refused::Ports), "64 load-balanced ports have links");
    for port in 65..128 {
        let queue = device.queue(Schedule::Directed, 0).unwrap();
        device.link(port, queue).unwrap();
    }
    assert_eq!(device.queue(Schedule::Directed, 0), Err(Refused::Queues));
}

/// Directed events are in flight: in their queue, as the result of an ordered queue, and at their port.
#[test]
fn directed_events_are_in_flight_and_take_no_history_entry() {
    let limits = Limits { history: 3, ..Limits::DLB2 };
    let (mut device, queues) = device(limits, &[Schedule::Ordered], 1);
    (0..2).for_each(|number| device.enter(queues[0], event(number, 0), ALWAYS).unwrap());
    device.schedule();
    let held = device.dequeue(0, 2);
    device.independent = true;
    device.forward(0, held[1], queues[1]).unwrap();
    assert_eq!(device.in_flight(), 2, "the result waits for the first event");
    device.forward(0, held[0], queues[1]).unwrap();
    assert_eq!(device.in_flight(), 2, "both are stored in the directed queue");
    assert_eq!(device.enter(queues[0], event(9, 0), 2), Err(Limit::Threshold));
    device.schedule();
    assert_eq!(device.in_flight(), 2, "at the directed port");
    (2..5).for_each(|number| device.enter(queues[0], event(number, 0), ALWAYS).unwrap());
    assert_eq!(device.schedule(), 3, "the history list has three entries");
    assert_eq!(consume(&mut device, 1).len(), 2);
    assert_eq!(device.in_flight(), 3);
}

/// Low priorities get about one schedule in a hundred.
#[test]
fn low_priorities_do_not_starve() {
    let mut device = Device::new(Limits::DLB2);
    let (urgent, other) = (
        device.queue(Schedule::Unordered, 0).unwrap(),
        device.queue(Schedule::Unordered, 3).unwrap(),
    );
    let port = device.port().unwrap();
    device.link(port, urgent).unwrap();
    device.link(port, other).unwrap();
    (0..8000).for_each(|number| {
        let queue = if number % 2 == 0 { urgent } else { other };
        device.enter(queue, event(number, number % 2), ALWAYS).unwrap();
    });
    let (mut low, mut all) = (0, 0);
    while all < 3200 {
        device.schedule();
        let taken = device.dequeue(port, 32);
        all += taken.len();
        low += taken.iter().filter(|event| event.flow == 1).count();
    }
    assert_eq!((all, low), (3200, 32), "1 % of the schedules");
    assert_eq!(device.stopped(Limit::Starvation), 32);
}

#[test]
fn a_dequeue_releases_what_was_forgotten() {
    let (mut device, queues) = device(Limits::DLB2, &[Schedule::Ordered], 1);
    (0..4).for_each(|number| device.enter(queues[0], event(number, 0), ALWAYS).unwrap());
    device.schedule();
    assert_eq!(device.dequeue(0, 2).len(), 2);
    let rest = device.dequeue(0, 2); // releases 0 and 1
    rest.into_iter().for_each(|taken| device.forward(0, taken, queues[1]).unwrap());
    assert_eq!(consume(&mut device, 1), [2, 3]);
}

mod yard_queue {
    use flowyard_frame::{Action, Batch, FlowKey, Frame, Lanes};

    use super::super::queue;
    use crate::contract::{Order, Queue};

    /// Enqueues `count` frames of a flow.
    fn enqueue(queue: &dyn Queue, count: usize, flow: u32) {
        for _ in 0..count {
            let mut batch = Batch::default();
            let mut frame = Frame::unbacked(60);
            frame.hash = flow;
            let lane = batch.push(frame, FlowKey::ZERO).unwrap();
            batch.actions[lane] = Action::queue(1);
            assert!(queue.enqueue(&mut batch, Lanes::first(1)).is_empty());
        }
    }

    fn dequeue(queue: &dyn Queue, core: u16) -> usize {
        let mut batch = Batch::default();
        queue.dequeue(core, &mut batch);
        batch.len()
    }

    #[test]
    fn an_ordered_queue_has_64_frames_out() {
        let limited = queue(Order::Ordered, 4, 256);
        enqueue(limited.as_ref(), 200, 0);
        let taken: Vec<_> = (0..4).map(|core| dequeue(limited.as_ref(), core)).collect();
        assert_eq!(taken, [32, 32, 0, 0]);
        let ours = crate::new(Order::Ordered, 4, 256);
        enqueue(ours.as_ref(), 200, 0);
        let taken: Vec<_> = (0..4).map(|core| dequeue(ours.as_ref(), core)).collect();
        assert_eq!(taken, [32, 32, 32, 32], "the window of ours is its capacity");
    }

    #[test]
    fn an_elephant_hides_the_mice_behind_it() {
        let limited = queue(Order::Atomic, 2, 256);
        enqueue(limited.as_ref(), 32 + 64, 7);
        enqueue(limited.as_ref(), 10, 9);
        assert_eq!((dequeue(limited.as_ref(), 0), dequeue(limited.as_ref(), 1)), (32, 0));
        let visible = queue(Order::Atomic, 2, 256);
        enqueue(visible.as_ref(), 32 + 60, 7);
        enqueue(visible.as_ref(), 10, 9);
        assert_eq!((dequeue(visible.as_ref(), 0), dequeue(visible.as_ref(), 1)), (32, 4));
    }
}

proptest! {
    /// Whatever the workers do: every event is in the device, at the consumer, or released; credits balance; an ordered
    /// queue keeps its order, and an atomic one that of each flow.
    #[test]
    fn nothing_is_lost_and_order_is_kept(
        ordered in any::<bool>(),
        steps in prop::collection::vec((0u8..6, 0usize..3, 0u32..4), 1..400),
    ) {
        let schedule = if ordered { Schedule::Ordered } else { Schedule::Atomic };
        let limits = Limits { credits: 40, directed_credits: 16, port_history: 6, depth: 4, window: 8,
            queue_atomic: 5, ..Limits::DLB2 };
        let (mut device, queues) = device(limits, &[schedule], 3);
        (device.independent, device.implicit_release) = (true, false);
        let mut held: Vec<Vec<Event>> = vec![Vec::new(); 3];
        let (mut number, mut entered, mut released, mut arrived) = (0, 0, 0, Vec::new());
        for (what, port, flow) in steps {
            match what {
                0 | 1 => {
                    entered += u32::from(device.enter(queues[0], event(number, flow), ALWAYS).is_ok());
                    number += 1;
                }
                2 => held[port].extend(device.dequeue(port, 3)),
                3 if !held[port].is_empty() => {
                    // The events of a flow are finished in their order, as a worker does that keeps it.
                    let taken = held[port][0];
                    if device.forward(port, taken, queues[1]).is_ok() {
                        held[port].remove(0);
                    }
                }
                4 if !held[port].is_empty() => {
                    device.release(port, held[port].remove(0));
                    released += 1;
                }
                _ => {
                    device.schedule();
                    arrived.extend(device.dequeue(3, 2));
                }
            }
            for flow in 0..4 {
                let at = held.iter().filter(|events| events.iter().any(|e| e.flow == flow)).count();
                prop_assert!(ordered || at <= 1, "flow {} is at {} ports", flow, at);
            }
        }
        for _ in 0..200 {
            device.schedule();
            for (port, held) in held.iter_mut().enumerate() {
                held.extend(device.dequeue(port, 3));
                while !held.is_empty() && device.forward(port, held[0], queues[1]).is_ok() {
                    held.remove(0);
                }
            }
            arrived.extend(device.dequeue(3, 4));
        }
        prop_assert_eq!(arrived.len() as u32 + released, entered);
        prop_assert_eq!((device.credits, device.directed_credits), (40, 16));
        let in_turn = |events: &[Event]| events.windows(2).all(|pair| pair[0].number < pair[1].number);
        for flow in 0..4 {
            let own: Vec<_> = arrived.iter().copied().filter(|event| event.flow == flow).collect();
            prop_assert!(in_turn(&own), "{:?}", own);
        }
        prop_assert!(!ordered || in_turn(&arrived), "{:?}", arrived);
    }
}
