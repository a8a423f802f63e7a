//! Numbered datagrams of several flows, and readers that move between CPUs.
//!
//! Each flow has a reader: a thread that reads one connected socket, as only such sockets follow their readers under RFS.
//! Another thread moves the readers from CPU to CPU. The sender stays on one CPU, so that what overtakes was overtaken
//! behind the interface.
//!
//! Thread-safety: counters are shared by atomics; everything else belongs to one thread.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, ensure};
use flowyard_yard::Clock;
use rustix::process::Pid;

use super::rig::Rig;
use crate::live::hosts::SERVER;
use crate::load::clients::pin;

/// The client's address.
const CLIENT: [u8; 4] = [10, 9, 0, 2];
/// Ports of the first flow: the client's, the server's.
const PORTS: [u16; 2] = [40_000, 50_000];
/// Bytes of a socket's buffer: more than any window of datagrams needs.
const BUFFER: usize = 16 << 20;
/// After one of CHECKED datagrams a reader asks for the CPU that received the last one.
const CHECKED: u64 = 8;
/// How long a reader waits before it looks whether it shall end.
const PATIENCE: Duration = Duration::from_millis(100);

/// What a reader saw.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Datagrams, each counted once.
    pub(super) received: u64,
    /// Datagrams that had been received before.
    pub(super) twice: u64,
    /// Datagrams that were received after a later one of their flow.
    pub(super) late: u64,
    /// By how many numbers at most.
    pub(super) latest: u64,
    /// Of `checked` datagrams, those that were received on the CPU on which they were read.
    pub(super) local: u64,
    pub(super) checked: u64,
    /// How often the CPU that received was another one than at the check before.
    pub(super) changes: u64,
    /// The highest number.
    pub(super) highest: u64,
}

impl Seen {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            received: self.received + other.received,
            twice: self.twice + other.twice,
            late: self.late + other.late,
            latest: self.latest.max(other.latest),
            local: self.local + other.local,
            checked: self.checked + other.checked,
            changes: self.changes + other.changes,
            highest: self.highest.max(other.highest),
        }
    }
}

/// Which numbers were seen, one bit for each.
#[derive(Default)]
pub(super) struct Numbers(Vec<u64>);

impl Numbers {
    /// Adds a number; false if it was there.
    pub(super) fn add(&mut self, number: u64) -> bool {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if self.0.len() <= word {
            self.0.resize((word + 1).next_power_of_two(), 0);
        }
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }
}

/// The order of one flow's numbers.
#[derive(Default)]
pub(super) struct Order {
    pub(super) seen: Seen,
    numbers: Numbers,
}

impl Order {
    pub(super) fn add(&mut self, number: u64) {
        if !self.numbers.add(number) {
            self.seen.twice += 1;
            return;
        }
        self.seen.received += 1;
        if number < self.seen.highest {
            self.seen.late += 1;
            self.seen.latest = self.seen.latest.max(self.seen.highest - number);
        }
        self.seen.highest = self.seen.highest.max(number);
    }
}

/// What threads share with a reader.
#[derive(Default)]
struct Shared {
    /// The reader's thread.
    thread: AtomicI32,
    /// The highest number that it has read.
    highest: AtomicU64,
    /// Datagrams that it has read.
    count: AtomicU64,
}

/// The flows, their readers, and the thread that moves these.
pub(super) struct Flows {
    senders: Vec<UdpSocket>,
    shared: Vec<Arc<Shared>>,
    readers: Vec<JoinHandle<anyhow::Result<Seen>>>,
    mover: JoinHandle<u64>,
    stop: Arc<AtomicBool>,
    end: Arc<AtomicBool>,
}

impl Flows {
    /// Starts the readers of `count` flows. Each moves to the other CPU `every` so long.
    pub(super) fn start(rig: &Rig, count: u16, every: Duration) -> anyhow::Result<Self> {
        let end = Arc::new(AtomicBool::new(false));
        let stop = Arc::new(AtomicBool::new(false));
        let (mut senders, mut shared, mut readers) = (Vec::new(), Vec::new(), Vec::new());
        for flow in 0..count {
            let client = SocketAddr::from((CLIENT, PORTS[0] + flow));
            let server = SocketAddr::from((SERVER, PORTS[1] + flow));
            let socket = |from, to| {
                let socket = UdpSocket::bind(from)?;
                rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER)?;
                socket.connect(to)?;
                anyhow::Ok(socket)
            };
            senders.push(rig.hosts.clients.within(|| socket(client, server))?);
            let socket = rig.hosts.server.within(|| socket(server, client))?;
            socket.set_read_timeout(Some(PATIENCE))?;
            let mine = Arc::new(Shared::default());
            shared.push(Arc::clone(&mine));
            let end = Arc::clone(&end);
            readers.push(thread::spawn(move || read(&socket, &mine, &end)));
        }
        let mover = {
            let (shared, stop, cpus) = (shared.clone(), Arc::clone(&stop), rig.cpus);
            thread::spawn(move || move_all(&shared, &stop, cpus, every))
        };
        Ok(Self { senders, shared, readers, mover, stop, end })
    }

    /// Sends numbers 1 to `each` on every flow from the first CPU, `burst` of a flow and then as many of the next. No more
    /// than `window` numbers of a flow are on their way; those that do not arrive within 50 ms are taken for lost.
    pub(super) fn send(
        &self,
        rig: &Rig,
        [each, burst, window]: [u64; 3],
        clock: &Clock,
    ) -> anyhow::Result<()> {
        let flow = |sender: &UdpSocket, shared: &Shared, first: u64| {
            for number in first..=each.min(first + burst - 1) {
                if number == first || number.is_multiple_of(8) {
                    wait(shared, number, window, clock);
                }
                sender.send(&number.to_be_bytes()).context("sending a datagram")?;
            }
            anyhow::Ok(())
        };
        let send = || {
            pin(None, rig.cpus[0]).context("pinning the sender")?;
            self.greet(clock)?;
            for first in (1..=each).step_by(burst as usize) {
                for (sender, shared) in self.senders.iter().zip(&self.shared) {
                    flow(sender, shared, first)?;
                }
            }
            Ok(())
        };
        thread::scope(|scope| {
            scope.spawn(send).join().map_err(|_| anyhow::anyhow!("the sender panicked"))?
        })
    }

    /// Sends an empty datagram on every flow, and waits until one arrives. Frames that wait until the neighbour's address is
    /// known, and those that are sent meanwhile, may overtake each other before they leave.
    fn greet(&self, clock: &Clock) -> anyhow::Result<()> {
        let end = clock() + 10_000_000_000;
        while self.shared.iter().any(|shared| shared.count.load(Ordering::Relaxed) == 0) {
            ensure!(clock() < end, "no datagram arrived within 10 s");
            for sender in &self.senders {
                sender.send(&[]).context("sending a datagram")?;
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Sends the number on every flow. What the interface does not take is lost.
    pub(super) fn offer(&self, number: u64) {
        for sender in &self.senders {
            let _lost = sender.send(&number.to_be_bytes());
        }
    }

    /// Datagrams that each flow's reader has read.
    pub(super) fn counts(&self) -> Vec<u64> {
        self.shared.iter().map(|shared| shared.count.load(Ordering::Relaxed)).collect()
    }

    /// Ends the readers when nothing has arrived for a while. Returns what they saw, and how often they were moved.
    pub(super) fn finish(self) -> anyhow::Result<(Seen, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        let moves = self.mover.join().map_err(|_| anyhow::anyhow!("the mover panicked"))?;
        self.end.store(true, Ordering::Relaxed);
        let mut all = Seen::default();
        for reader in self.readers {
            let seen = reader.join().map_err(|_| anyhow::anyhow!("a reader panicked"))??;
            all = all.plus(seen);
        }
        Ok((all, moves))
    }
}

/// Waits until `number` is in the window, or what is missing is lost.
fn wait(shared: &Shared, number: u64, window: u64, clock: &Clock) {
    const LOST: u64 = 50_000_000;
    let mut since = clock();
    let mut before = shared.highest.load(Ordering::Relaxed);
    while number > before + window {
        thread::sleep(Duration::from_micros(50));
        let highest = shared.highest.load(Ordering::Relaxed);
        let now = clock();
        if highest != before {
            (before, since) = (highest, now);
        } else if now - since > LOST {
            return;
        }
    }
}

/// Reads until nothing arrives and the end has come.
fn read(socket: &UdpSocket, shared: &Shared, end: &AtomicBool) -> anyhow::Result<Seen> {
    shared.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
    let (mut order, mut bytes, mut last) = (Order::default(), [0; 64], None);
    loop {
        match socket.recv(&mut bytes) {
            Ok(8) => {}
            Ok(0) => {
                shared.count.fetch_max(1, Ordering::Relaxed);
                continue;
            }
            // The interface may be down for a while.
            Ok(_) | Err(_) if !end.load(Ordering::Relaxed) => continue,
            Ok(_) | Err(_) => return Ok(order.seen),
        }
        let number = bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        order.add(number);
        let seen = &mut order.seen;
        shared.highest.store(seen.highest, Ordering::Relaxed);
        shared.count.store(seen.received, Ordering::Relaxed);
        if seen.received.is_multiple_of(CHECKED) {
            let came = rustix::net::sockopt::socket_incoming_cpu(socket)? as usize;
            seen.checked += 1;
            seen.local += u64::from(came == rustix::thread::sched_getcpu());
            seen.changes += u64::from(last.replace(came).is_some_and(|last| last != came));
        }
    }
}

/// Moves one reader after another to the other CPU. Returns how often it did so.
fn move_all(shared: &[Arc<Shared>], stop: &AtomicBool, cpus: [usize; 2], every: Duration) -> u64 {
    let mut moves = 0;
    let mut on_second = vec![false; shared.len()];
    while !stop.load(Ordering::Relaxed) {
        for (reader, on_second) in shared.iter().zip(&mut on_second) {
            thread::sleep(every / shared.len() as u32);
            *on_second = !*on_second;
            let thread = Pid::from_raw(reader.thread.load(Ordering::Relaxed));
            if thread.is_some() && pin(thread, cpus[usize::from(*on_second)]).is_ok() {
                moves += 1;
            }
        }
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_or_comes_twice_is_counted() {
        let mut order = Order::default();
        for number in [1, 2, 5, 3, 4, 6, 3, 200, 6, 199] {
            order.add(number);
        }
        let seen = order.seen;
        assert_eq!((seen.received, seen.twice, seen.late, seen.latest), (8, 2, 3, 2), "{seen:?}");
        assert_eq!(seen.highest, 200);
    }
}
