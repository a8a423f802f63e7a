//! Memory that is lent and comes back, and events.

use std::sync::Arc;

use flowyard_dpdk::{
    Buffers, Eal, Event, EventDevice, EventPort, EventQueue, External, Lent, Op, Outgoing, Port,
    Queue, Sched, Settings, Setup,
};
use flowyard_testkit::harness::Need;

/// DPDK starts here.
pub(crate) const DPDK: Need = Need::Check(starts);

flowyard_testkit::tests! {
    every_buffer_comes_back_to_its_place needs [DPDK],
    memory_that_a_driver_keeps_is_not_freed needs [DPDK],
    an_event_device_returns_every_event_in_order needs [DPDK],
    errors_name_the_device needs [DPDK],
}

pub(crate) fn eal() -> Eal {
    start().unwrap()
}

fn start() -> Result<Eal, flowyard_dpdk::Error> {
    Eal::start(&["--no-huge", "-m", "128"].map(str::to_owned), &[])
}

fn starts() -> Result<(), String> {
    start().map(drop).map_err(|error| error.what)
}

const FRAMES: usize = 600;
const BUFFER: usize = 2048;

/// Memory that begins on a page.
#[repr(C, align(4096))]
struct Page([u8; 4096]);

/// The memory of 600 buffers.
#[expect(unsafe_code, reason = "memory that lives as long as what uses it")]
fn memory() -> (Arc<External>, *mut u8, std::sync::Weak<Vec<Page>>) {
    let mut pages: Vec<Page> = Vec::new();
    pages.resize_with(FRAMES * BUFFER / 4096, || Page([0; 4096]));
    let pages = Arc::new(pages);
    let (base, weak) = (pages.as_ptr() as *mut u8, Arc::downgrade(&pages));
    // SAFETY: the vector is as long as said, begins on a page, and is kept; nobody else refers to its bytes.
    let memory = unsafe { External::new(eal(), base, BUFFER, FRAMES, pages) }.unwrap();
    (Arc::new(memory), base, weak)
}

#[expect(unsafe_code, reason = "the test owns all buffers")]
fn lend(memory: &External, places: std::ops::Range<u32>) {
    let places: Vec<u32> = places.collect();
    // SAFETY: nobody has these buffers.
    places.chunks(32).for_each(|places| unsafe { memory.lend(places) });
}

fn open(device: &str, memory: &Arc<External>) -> Queue {
    let settings = Settings { queues: 1, rx_frames: 64, tx_frames: 64, mtu: 0 };
    let choose = |_: &_| Ok::<_, flowyard_dpdk::Error>(Buffers::External(Arc::clone(memory)));
    Port::open(eal(), device, &settings, choose).unwrap().remove(0)
}

fn take_all(memory: &External) -> Vec<u32> {
    let (mut all, mut places) = (Vec::new(), [0; 32]);
    loop {
        let count = memory.take_back(&mut places);
        if count == 0 {
            all.sort_unstable();
            return all;
        }
        all.extend(&places[..count]);
    }
}

/// Buffers are transmitted into a ring and received from it: the same bytes, at the same places, in order.
#[expect(unsafe_code, reason = "the test owns all buffers")]
fn every_buffer_comes_back_to_its_place() {
    let (memory, base, _) = memory();
    lend(&memory, 0..100);
    assert_eq!((memory.lent(), memory.available()), (100, 100));
    let mut queue = open("net_ring20", &memory);
    let mut received = Vec::new();
    for round in 0..1000_u32 {
        let mut out = Outgoing::default();
        for at in 0..32 {
            let place = 100 + at + 32 * (round % 15);
            let lent = Lent { place, off: 64 + (round % 200) as u16, bytes: 60 };
            // SAFETY: the buffer is the test's, and is as long.
            unsafe {
                let to = base.add(place as usize * BUFFER + usize::from(lent.off));
                to.cast::<[u8; 60]>().write([round as u8; 60]);
            }
            assert!(out.push(lent));
        }
        // SAFETY: as above; nothing touches the buffers until they are received.
        assert_eq!(unsafe { queue.tx_lent(&memory, &out) }, 32);
        received.clear();
        let count = queue.rx(32, |frame| {
            assert_eq!(frame.piece(), Some(&[round as u8; 60][..]));
            received.push(frame.into_lent(&memory, 64).unwrap());
        });
        assert_eq!(count, 32);
        let wanted = (0..32).map(|at| Lent {
            place: 100 + at + 32 * (round % 15),
            off: 64 + (round % 200) as u16,
            bytes: 60,
        });
        assert!(received.iter().copied().eq(wanted), "round {round}: {received:?}");
    }
    assert_eq!(memory.lent(), 100);
    drop(queue);
    assert_eq!(take_all(&memory), (0..100).collect::<Vec<_>>());
    assert_eq!((memory.lent(), memory.available()), (0, 0));
}

/// What is in a ring when its device is removed does not come back.
#[expect(unsafe_code, reason = "the test owns all buffers")]
fn memory_that_a_driver_keeps_is_not_freed() {
    let (memory, _, weak) = memory();
    let mut queue = open("net_ring21", &memory);
    let mut out = Outgoing::default();
    assert!(out.push(Lent { place: 7, off: 64, bytes: 60 }));
    // SAFETY: nobody else has the buffer.
    assert_eq!(unsafe { queue.tx_lent(&memory, &out) }, 1);
    drop(queue);
    assert_eq!((memory.lent(), take_all(&memory)), (1, vec![]));
    drop(memory);
    assert!(weak.upgrade().is_some(), "the memory was freed");
    // If all came back, the memory is freed.
    let (memory, _, weak) = self::memory();
    lend(&memory, 0..64);
    let queue = open("net_null22", &memory);
    drop(queue);
    assert_eq!(take_all(&memory).len(), 64);
    drop(memory);
    assert!(weak.upgrade().is_none(), "the memory was kept");
}

#[expect(unsafe_code, reason = "the test is the only thread")]
fn an_event_device_returns_every_event_in_order() {
    let mut device = EventDevice::open(eal(), "event_sw0").unwrap();
    let info = device.info().unwrap();
    assert!(info.driver.contains("sw") && info.most.0 >= 2, "{info:?}");
    let port = |queues, single_link| EventPort {
        threshold: 1024,
        depth: 32,
        single_link,
        no_implicit_release: false,
        queues,
    };
    let setup = Setup {
        events: 1024,
        window: 256,
        queues: vec![
            EventQueue { sched: Sched::Ordered, priority: 128, single_link: false },
            EventQueue { sched: Sched::Atomic, priority: 0, single_link: true },
        ],
        ports: vec![port(1, false), port(0, false), port(2, true)],
    };
    device.start(&setup).unwrap();
    let (mut entered, mut arrived) = (0_u64, 0_u64);
    for _ in 0..100_000 {
        let mut burst = [Event::default(); 16];
        for (event, number) in burst.iter_mut().zip(entered..) {
            (event.payload, event.flow) = (number, (number % 7) as u32);
        }
        // SAFETY: the device runs and has these ports and queues; this is the only thread.
        unsafe {
            if entered < 10_000 {
                entered += device.enqueue(1, &burst) as u64;
            }
            device.schedule();
            let count = device.dequeue(0, &mut burst);
            for event in &mut burst[..count] {
                (event.op, event.queue, event.sched) = (Op::Forward, 1, Sched::Atomic);
            }
            assert_eq!(device.enqueue(0, &burst[..count]), count);
            device.schedule();
            let count = device.dequeue(2, &mut burst);
            for event in &burst[..count] {
                assert_eq!((event.payload, event.flow), (arrived, (arrived % 7) as u32));
                arrived += 1;
            }
        }
        if arrived >= 10_000 {
            break;
        }
    }
    assert_eq!(arrived, entered);
    assert!(arrived >= 10_000);
}

fn errors_name_the_device() {
    let error = EventDevice::open(eal(), "event_none0").unwrap_err().to_string();
    assert!(error.contains("adding the DPDK device 'event_none0' failed"), "{error}");
    let other = Eal::start(&["--no-huge".to_owned()], &[]).unwrap_err().to_string();
    assert!(other.contains("DPDK runs already with other options"), "{other}");
}
