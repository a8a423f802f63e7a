//! A flow that overloads its CPU gets one of its own, in order, and returns when it is calm.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use flowyard_frame::{FlowKey, proto};
use flowyard_livekit::net::alone;
use flowyard_livekit::sys;
use flowyard_steer::elephants::{Settings, What};
use flowyard_steer::{Counts, Follow, Model, Policy, Program, Reason, online_cpus};
use flowyard_testkit::{Build, harness, note};

use super::{LONG, Rig, TOOLS, policy, socket};

flowyard_testkit::tests! {
    an_elephant_ends_alone_on_a_cpu needs TOOLS,
}

/// The elephant is the first flow; the others are mice: two on its queue, and two on the other one.
const QUEUES: [u16; 5] = [0, 0, 0, 1, 1];
/// What the senders do.
const HEAVY: u64 = 0;
const CALM: u64 = 1;
const END: u64 = 2;

/// Flows from 10.9.0.1 to 10.9.0.2 that RSS sends to the queues of `QUEUES`.
fn flows(model: &Model) -> Vec<FlowKey> {
    let [a, b] = [1, 2].map(|n| IpAddr::from([10, 9, 0, n]));
    let mut ports = 20_000..;
    let mut next = |wanted: u16| {
        let keys =
            ports.by_ref().map(|port| FlowKey::five_tuple(proto::UDP, a, port, b, port + 10_000));
        let decide = |key: &FlowKey| model.decide(&Build::new(key).payload(b"numbered").bytes());
        keys.into_iter().find(|key| decide(key).queue == wanted).unwrap()
    };
    QUEUES.map(&mut next).to_vec()
}

/// Sends numbered datagrams on CPU `cpu`: eighty of the elephant for one of each mouse, and later as many. A mouse whose
/// frames were closer than 72 frames could not leave a ring that is never empty.
fn send(sockets: Vec<UdpSocket>, cpu: u32, phase: Arc<AtomicU64>) -> JoinHandle<u64> {
    spawn(move || {
        sys::pin(0, cpu);
        let mut numbers = vec![0_u64; sockets.len()];
        for turn in 0_u64.. {
            let now = phase.load(Ordering::Relaxed);
            if now == END {
                break;
            }
            for (at, (socket, number)) in sockets.iter().zip(&mut numbers).enumerate() {
                let count = match now {
                    HEAVY if at == 0 => 10,
                    HEAVY if !turn.is_multiple_of(8) => 0,
                    _ => 1,
                };
                for _ in 0..count {
                    *number += 1;
                    socket.send(&number.to_be_bytes()).unwrap();
                }
            }
            if now == CALM {
                sleep(Duration::from_millis(1));
            }
        }
        numbers.iter().sum()
    })
}

/// Reads until the senders have ended and nothing comes any more: how many datagrams, and how many came after a later one.
/// On a machine that is busy, nothing of a mouse may come for seconds while the elephant fills the queue.
fn read(socket: UdpSocket, phase: Arc<AtomicU64>) -> JoinHandle<(u64, u64)> {
    sys::big_buffer(&socket);
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    spawn(move || {
        let (mut all, mut late, mut last, mut bytes) = (0, 0, 0, [0; 64]);
        loop {
            let is_over = phase.load(Ordering::Relaxed) == END;
            match socket.recv(&mut bytes) {
                Ok(length) => assert_eq!(length, 8),
                Err(_) if is_over => break,
                Err(_) => continue,
            }
            let number = u64::from_be_bytes(*bytes.first_chunk().unwrap());
            late += u64::from(number < last);
            if number < last && late <= 3 {
                note!("number {number} came after {last}, as datagram {all}");
            }
            last = last.max(number);
            all += 1;
        }
        (all, late)
    })
}

/// Frames of each queue by reason.
fn counts(program: &mut Program) -> Vec<[u64; 4]> {
    let reasons = [Reason::Elephant, Reason::Rss, Reason::Filter, Reason::Settling];
    let all = program.counts().unwrap().into_iter();
    all.map(|one| reasons.map(|reason| one.frames.get(&reason).copied().unwrap_or_default()))
        .collect()
}

/// Watches until `is_there` holds for what each queue got in 300 ms.
fn until(
    what: &str,
    program: &mut Program,
    mut is_there: impl FnMut(&[What], &[[u64; 4]; 2]) -> bool,
) {
    let clock = flowyard_livekit::clock();
    let (mut decided, began) = (Vec::new(), clock());
    while clock() - began < 2 * LONG.as_nanos() as u64 {
        let before = counts(program);
        for _ in 0..30 {
            // The programs' own clock is of no importance here.
            for decision in program.watch(clock()).unwrap() {
                note!("{decision}");
                decided.push(decision.what);
            }
            sleep(Duration::from_millis(10));
        }
        let after = counts(program);
        let now = std::array::from_fn(|queue| {
            std::array::from_fn(|reason| after[queue][reason] - before[queue][reason])
        });
        if is_there(&decided, &now) {
            note!("{what}: elephant, rss, filter, settling by queue: {now:?}");
            return;
        }
    }
    panic!("{what}: {decided:?}: {:?}", program.counts());
}

fn an_elephant_ends_alone_on_a_cpu() {
    let _alone = alone();
    let cpus = online_cpus().unwrap();
    if cpus.len() < 2 {
        harness::ignore("there is only one CPU");
    }
    for follow in [None, Some(Follow::Readers)] {
        moves_and_returns(follow, &cpus[..2]);
    }
}

fn moves_and_returns(follow: Option<Follow>, cpus: &[u32]) {
    let rig = Rig::new();
    let settings = Settings {
        window: 50_000_000,
        busy_high: 0.9,
        waiting_frames: 32,
        dwell: 500_000_000,
        ..Settings::default()
    };
    let queues = Policy::over(cpus);
    let policy = Policy {
        table: queues.table,
        cpus: queues.cpus,
        follow,
        elephants: Some(settings),
        ..policy(13)
    };
    let keys = flows(&Model::new(&policy).unwrap());
    let mut program = rig.steer(&policy);
    program.watch_rings().unwrap();
    let ends = |key: &FlowKey| {
        let [a, b] = [1, 2].map(|n| IpAddr::from([10, 9, 0, n]));
        let (near, far) = ((a, key.sport).into(), (b, key.dport).into());
        (socket(&rig.a, near, far), socket(&rig.b, far, near))
    };
    let (senders, receivers): (Vec<_>, Vec<_>) = keys.iter().map(ends).unzip();
    let phase = Arc::new(AtomicU64::new(HEAVY));
    let readers: Vec<_> =
        receivers.into_iter().map(|socket| read(socket, Arc::clone(&phase))).collect();
    let sender = send(senders, cpus[1], Arc::clone(&phase));
    // The elephant's CPU has other work, too, and does not keep up.
    let works = Arc::clone(&phase);
    let cpu = cpus[0];
    let worker = spawn(move || {
        sys::pin(0, cpu);
        while works.load(Ordering::Relaxed) == HEAVY {
            std::hint::spin_loop();
        }
    });
    // Where readers are followed, it may have left its first CPU by then.
    let mut own = None;
    until("alone", &mut program, |decided, now| {
        let to = decided.iter().rev().find_map(|what| match what {
            What::Promote { key, to, .. } if *key == keys[0] => Some(*to),
            _ => None,
        });
        own = to;
        let Some(at) = cpus.iter().position(|cpu| Some(*cpu) == to) else { return false };
        let (its, other) = (now[at], now[1 - at]);
        // Nothing but the elephant is on its CPU, and nothing of it on the other.
        its[0] > 1000 && its[1..] == [0; 3] && other[0] == 0 && other[1] + other[2] > 20
    });
    assert_eq!(program.elephants(), [(keys[0], own.unwrap())]);
    assert!(follow.is_some() || own == Some(cpus[1]), "{own:?}");
    phase.store(CALM, Ordering::Relaxed);
    worker.join().unwrap();
    until("calm", &mut program, |decided, now| {
        let is_demoted = decided.iter().any(|what| matches!(what, What::Demote { .. }));
        let is_spread = follow.is_some() || now.iter().all(|queue| queue[1] > 0);
        is_demoted && is_spread && now.iter().all(|queue| queue[0] == 0)
    });
    phase.store(END, Ordering::Relaxed);
    let sent = sender.join().unwrap();
    let of = |reason| move |one: Counts| one.frames.get(&reason).copied().unwrap_or_default();
    let gaps: u64 = program.counts().unwrap().into_iter().map(of(Reason::GapDrop)).sum();
    let seen: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
    let all: u64 = seen.iter().map(|seen| seen.0).sum();
    note!(
        "{follow:?}: {sent} sent, {gaps} dropped for a pause; read and late by flow: {seen:?}; {:?}",
        program.rings()
    );
    assert!(seen.iter().all(|&(all, late)| all > 0 && late == 0), "{seen:?}");
    assert!(all * 10 > sent, "{all} of {sent}");
}
