//! An engine with two ports on simulated interfaces, and what happens to these: they are deleted, moved,
//! renamed, set down and up, and come back with the same index or another one, while calls fail.
//!
//! ```text
//!  offer ──> [w0: rings, queues, sockets] ──> engine ──> [e0] ──> sent      and the other way
//!             ^ delete, create, move, rename, up, down, MTU, offloads, stall
//! ```

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};

use flowyard_config::{Config, PortBody};
use flowyard_frame::{FlowKey, Nanos, proto};
use flowyard_ports::port::Log;
use flowyard_ports::port::live::sim::{Offered, Offloads, World};
use flowyard_testkit::{Build, Checker, Rng};
use flowyard_wire::checksum::transport_checksum;
use flowyard_yard::ask::{Ask, Question};
use flowyard_yard::sim::{Faults, Sim};
use flowyard_yard::{Counters, DropReason, Message, Parts};

/// A returned interface receives within this time.
const LIMIT: Nanos = 2_000_000_000;

/// Ticks, by core, within which a core answers a question.
const ANSWER: u64 = 60;

/// The kinds of ports.
pub(super) const KINDS: [&str; 3] = ["af_packet", "af_xdp", "tap"];

/// The interfaces of ports 0 and 1.
pub(super) const NAMES: [&str; 2] = ["w0", "e0"];

/// What happened in a case.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ran {
    pub(super) total: Counters,
    pub(super) trace: u64,
    pub(super) events: u64,
    /// Calls that the kernel was asked, and those that failed.
    pub(super) calls: u64,
    pub(super) failed: u64,
    pub(super) lost: u64,
    /// The frames that left and are longer than a buffer.
    pub(super) long: u64,
    /// The longest time until a returned port received and its frames left.
    pub(super) slowest: Nanos,
}

/// The ports of a case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) kinds: [&'static str; 2],
    /// Number of cores, which all own both ports.
    pub(super) width: usize,
    /// Whether TAP interfaces exist before the ports are opened; otherwise the ports create them.
    pub(super) exists: bool,
    /// Whether frames may be longer than a buffer; both ports are AF_XDP then.
    pub(super) is_long: bool,
}

impl Shape {
    /// The MTU that the interfaces have at first.
    const fn mtu(self) -> u32 {
        if self.is_long { 9000 } else { 1500 }
    }
}

/// One case.
pub(super) struct Case {
    pub(super) rng: Rng,
    pub(super) world: World,
    pub(super) sim: Sim,
    checker: Checker,
    shape: Shape,
    about: String,
    said: Arc<Mutex<Vec<String>>>,
    /// Frames that were offered and that the ports count: not what they never saw.
    last: [u64; 2],
    events: u64,
    is_stalled: bool,
    long: u64,
    slowest: Nanos,
}

fn text(rng: &mut Rng, seed: u64, shape: Shape) -> String {
    let Shape { kinds, width: cores, is_long, .. } = shape;
    // Small windows, because a short case spends most of its time on its pool.
    let mut text = format!("[yard]\ncores = {cores}\nseed = {seed}\nhold_frames = 64\n");
    let all: Vec<usize> = (0..cores).collect();
    for ((name, interface), kind) in ["west", "east"].into_iter().zip(NAMES).zip(kinds) {
        writeln!(text, "[[port]]\nname = \"{name}\"\nkind = \"{kind}\"").unwrap();
        writeln!(text, "interface = \"{interface}\"\ncores = {all:?}\nwindow_frames = 64").unwrap();
        if kind != "tap" {
            writeln!(text, "ring_frames = 64").unwrap();
        }
        if kind == "af_xdp" {
            writeln!(text, "match = [\"all\"]\nmulti_buffer = {is_long}").unwrap();
        } else {
            // A long frame that is dropped is one drop, but several frames of the wire, which are what is counted here.
            writeln!(text, "offload = {{ uso = false }}").unwrap();
        }
    }
    if rng.below(2) == 0 {
        let order = ["ordered", "atomic"][rng.below(2) as usize];
        writeln!(text, "[[queue]]\nname = \"q\"\norder = \"{order}\"\nwindow_frames = 64").unwrap();
        writeln!(text, "consumers = {all:?}").unwrap();
    } else {
        for core in &all {
            writeln!(text, "[[queue]]\nname = \"q{core}\"\norder = \"direct\"").unwrap();
            writeln!(text, "window_frames = 64\nconsumers = [{core}]").unwrap();
        }
    }
    text + "[work]\nkind = \"forward\"\nports = { west = \"east\", east = \"west\" }\n"
}

impl Case {
    /// A case whose ports and events are drawn from `seed`.
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let kinds = [(); 2].map(|()| KINDS[rng.below(3) as usize]);
        let width = 1 + rng.below(2) as usize;
        let exists = rng.below(2) == 0;
        let is_long = kinds == ["af_xdp"; 2] && rng.below(2) == 0;
        let shape = Shape { kinds, width, exists, is_long };
        let world = World::new(rng.bits());
        Self::open(seed, rng, shape, &world).unwrap()
    }

    /// Creates the interfaces in `world`, and opens the ports.
    ///
    /// # Errors
    /// A port cannot be opened.
    pub(super) fn open(
        seed: u64,
        mut rng: Rng,
        shape: Shape,
        world: &World,
    ) -> Result<Self, String> {
        let Shape { kinds, width, exists, .. } = shape;
        let about = text(&mut rng, seed, shape);
        for (name, kind) in NAMES.into_iter().zip(kinds) {
            if exists || kind != "tap" {
                world.create(name, kind == "tap", width, None);
                world.set_mtu(name, shape.mtu());
                world.set_up(name, true);
            }
        }
        let said = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&said);
        let log: Log =
            Arc::new(move |port, what| to.lock().unwrap().push(format!("{port}: {what}")));
        let setup = Config::parse("seed.toml", &about).unwrap().resolve().unwrap();
        let pool = setup.blueprint.pool();
        let mut parts = Parts::default();
        for (number, body) in (0..).zip(&setup.ports) {
            let PortBody::Live(port) = body else { unreachable!("both ports are live") };
            for (core, halves) in
                (0..).zip(world.open(port, &pool, &log).map_err(|error| error.to_string())?)
            {
                parts.ports.insert((number, core), halves);
            }
        }
        parts.pool = Some(pool);
        let yard = setup.build(parts, &log).unwrap();
        let stalls = [0, 50][rng.below(2) as usize];
        let faults = Faults { stall_every: stalls, stall_ns: 20_000, ..Faults::default() };
        let sim = Sim::new(yard, rng.bits(), faults);
        let (checker, last) = (Checker::new(), [0; 2]);
        let (events, is_stalled, long, slowest) = (0, false, 0, 0);
        let world = world.clone();
        Ok(Self {
            rng,
            world,
            sim,
            checker,
            shape,
            about,
            said,
            last,
            events,
            is_stalled,
            long,
            slowest,
        })
    }

    /// Offers a frame to port `at`.
    pub(super) fn offer(&mut self, at: usize) {
        let slot = self.rng.below(6);
        let flow = slot << 1 | at as u64;
        let seq = self.checker.enter(flow);
        let [client, server] = [[10, 0, 0, slot as u8], [10, 0, 1, 1]].map(Ipv4Addr::from);
        let key = FlowKey::five_tuple(proto::UDP, client.into(), 4000, server.into(), 53);
        let key = if at == 0 { key } else { key.reversed() };
        let mut payload = [flow.to_be_bytes(), seq.to_be_bytes()].concat();
        payload.resize(16 + self.rng.below(120) as usize, 0x5a);
        if self.shape.is_long && self.rng.below(3) == 0 {
            // Bytes that show when parts are exchanged.
            let more = 1700 + self.rng.below(7000) as usize;
            payload.extend((0..more).map(|at| (at / 7) as u8));
        }
        let mut frame = Build::new(&key).payload(&payload).bytes();
        if slot == 5 {
            frame.splice(12..12, [0x81, 0, 0, 7]);
        }
        match self.world.offer(NAMES[at], &frame) {
            Offered::Waits => {}
            Offered::Overrun => self.checker.drop("overrun"),
            Offered::Nobody => self.checker.drop("not delivered"),
        }
    }

    /// Ticks for a while, sometimes with a jump of time.
    pub(super) fn run(&mut self, steps: u64, jump_every: u64) {
        for _ in 0..steps {
            if jump_every > 0 && self.rng.below(jump_every) == 0 {
                self.sim.now += self.rng.below(15_000_000);
            }
            self.sim.step();
        }
        self.collect();
    }

    /// Takes what was transmitted.
    fn collect(&mut self) {
        for (name, frame) in self.world.sent() {
            let at = if frame[12..14] == [0x81, 0] { 4 } else { 0 };
            assert_eq!(at == 4, frame[at + 29] == 5 || frame[at + 33] == 5, "its tag");
            let word = |at: usize| u64::from_be_bytes(frame[at..at + 8].try_into().unwrap());
            let (flow, seq) = (word(at + 42), word(at + 50));
            let ip = |from: usize| {
                let bytes: [u8; 4] = frame[from..from + 4].try_into().unwrap();
                Ipv4Addr::from(bytes).into()
            };
            let (src, dst) = (ip(at + 26), ip(at + 30));
            assert_eq!(transport_checksum(src, dst, proto::UDP, &frame[at + 34..]), 0, "checksum");
            // A renamed interface is still the same exit.
            let exit = u64::from(!name.starts_with('w'));
            assert_eq!(exit, 1 - flow % 2, "frames leave by the other port");
            self.checker.leave_by(exit, flow, seq);
            self.last[exit as usize] += 1;
            self.long += u64::from(frame.len() > 2048);
            [exit, flow, seq].into_iter().for_each(|word| self.sim.record(word));
        }
    }

    /// Creates the interface of port `at`.
    pub(super) fn create(&self, at: usize, index: Option<u32>) {
        self.world.create(NAMES[at], self.shape.kinds[at] == "tap", self.shape.width, index);
        self.world.set_mtu(NAMES[at], self.shape.mtu());
    }

    /// Something happens to an interface.
    fn upset(&mut self) {
        let at = self.rng.below(2) as usize;
        let (name, world) = (NAMES[at], self.world.clone());
        let other = format!("{name}x");
        let index = world.index(name);
        self.events += 1;
        match self.rng.below(18) {
            0 => world.set_up(name, false),
            1 | 2 => world.set_up(name, true),
            3 => world.delete(name),
            4 => {
                // Gone and back with its index, between two looks.
                world.delete(name);
                self.create(at, index);
                world.set_up(name, self.rng.below(4) > 0);
            }
            5 => {
                world.delete(name);
                let number = 100 + self.rng.below(1000) as u32;
                self.create(at, Some(number));
                world.set_up(name, self.rng.below(4) > 0);
            }
            6 => world.move_away(name),
            7 | 8 => {
                world.move_away(name);
                world.move_back(name, self.rng.below(3) == 0);
                world.set_up(name, self.rng.below(4) > 0);
            }
            9 => {
                let _was_away = world.move_back(name, self.rng.below(3) == 0);
            }
            10 => world.rename(name, &other),
            11 => world.rename(&other, name),
            12 => world.set_mtu(name, [68, 100, self.shape.mtu()][self.rng.below(3) as usize]),
            13 => {
                let mut is_on = || self.rng.below(2) == 0;
                let (strips_tags, leaves_checksums) = (is_on(), is_on());
                let offloads = Offloads { strips_tags, leaves_checksums, coalesces: is_on() };
                world.set_offloads(name, offloads);
            }
            14 => {
                // Another one takes its name and its index.
                world.move_away(name);
                self.create(at, index);
                world.set_up(name, true);
            }
            15 => {
                // Another one takes its name for a moment, in which not all cores need to look.
                world.move_away(name);
                self.create(at, None);
                world.set_up(name, true);
                let steps = self.rng.below(6);
                self.run(steps, 1);
                world.delete(name);
                let _was_away = world.move_back(name, self.rng.below(3) == 0);
                world.set_up(name, true);
            }
            16 if index.is_none() => self.create(at, None),
            _ if !self.is_stalled && self.rng.below(4) == 0 => {
                world.stall(name);
                self.is_stalled = true;
            }
            _ => {}
        }
    }

    /// Every core answers within a bound of ticks.
    pub(super) fn ask(&mut self) -> Result<(), String> {
        let cores = self.sim.yard.cores.len() as u16;
        let (reply, replies) = sync_channel(usize::from(cores));
        for core in 0..cores {
            let ask = Ask::new(Question::Alive, reply.clone());
            assert!(self.sim.yard.mail.offer(core, Message::Ask(Box::new(ask))));
        }
        // A stalled core does not tick for up to 20 us, which is about 40 steps.
        let bound = ANSWER * u64::from(cores) + 40;
        for _ in 0..bound {
            self.sim.step();
        }
        match replies.try_iter().count() {
            count if count == usize::from(cores) => Ok(()),
            count => Err(format!("{count} of {cores} cores answered within {bound} ticks")),
        }
    }

    /// All interfaces are up, and no call fails: each port receives and transmits within the limit.
    pub(super) fn revive(&mut self) -> Result<(), String> {
        self.revive_by(1_000_000, 30)
    }

    /// As [`Case::revive`], with two frames each `step` of time, in which cores tick `ticks` times.
    pub(super) fn revive_by(&mut self, step: Nanos, ticks: u64) -> Result<(), String> {
        self.world.fail(0);
        for (at, name) in NAMES.into_iter().enumerate() {
            self.world.rename(&format!("{name}x"), name);
            let _was_away = self.world.move_back(name, self.rng.below(2) == 0);
            if self.world.index(name).is_none() {
                self.create(at, None);
            }
            self.world.set_mtu(name, self.shape.mtu());
            self.world.set_up(name, true);
        }
        self.collect();
        let (began, before) = (self.sim.now, self.last);
        loop {
            self.offer(0);
            self.offer(1);
            self.sim.now += step;
            self.run(ticks, 0);
            let passed = self.sim.now - began;
            if (0..2).all(|exit| self.last[exit] > before[exit] + 2) {
                self.slowest = self.slowest.max(passed);
                return Ok(());
            }
            if passed > LIMIT {
                let left = [0, 1].map(|exit| self.last[exit] - before[exit]);
                return Err(format!("after {passed} ns {left:?} frames left by the ports"));
            }
        }
    }

    /// Lets events happen that are drawn from the seed.
    pub(super) fn drive(mut self) -> (Ran, Result<(), String>) {
        let mut verdict = Ok(());
        self.run(200, 0);
        for _ in 0..1 + self.rng.below(3) {
            for _ in 0..1 + self.rng.below(8) {
                self.world.fail([0, 0, 3, 20, 200][self.rng.below(5) as usize]);
                (0..self.rng.below(40)).for_each(|_| {
                    let at = self.rng.below(2) as usize;
                    self.offer(at);
                });
                self.upset();
                let jumps = [0, 3, 20, 100][self.rng.below(4) as usize];
                let steps = self.rng.below(120);
                self.run(steps, jumps);
                verdict = verdict.and_then(|()| self.ask());
            }
            verdict = verdict.and(self.revive());
        }
        self.end(verdict)
    }

    /// Each frame for which an AF_PACKET or AF_XDP port had no room was counted by it, unless the call
    /// failed by which it would have been told. What a TAP drops is lost with its interface.
    fn counted(&mut self) -> Result<(), String> {
        // Ports read the kernel's counters each millisecond.
        self.sim.now += 2_000_000;
        self.run(100, 0);
        let (overruns, uncounted) = (self.world.overruns(), self.world.uncounted());
        let counted = self.sim.total().drops.get(DropReason::Overrun);
        let is_tap = self.shape.kinds.contains(&"tap");
        if (uncounted > 0 && self.world.failed() == 0)
            || (!is_tap && counted + uncounted != overruns)
        {
            return Err(format!("{overruns} overruns, {counted} counted, {uncounted} not told"));
        }
        Ok(())
    }

    /// Stops the engine, and checks that each frame left in order or was counted.
    pub(super) fn end(mut self, verdict: Result<(), String>) -> (Ran, Result<(), String>) {
        let verdict = verdict.and_then(|()| self.counted());
        self.sim.yard.cores.iter_mut().for_each(flowyard_yard::Core::stop);
        let mut verdict =
            verdict.and_then(|()| self.sim.run().map(drop).map_err(|at| at.to_string()));
        self.collect();
        let Self { world, mut sim, mut checker, about, said, events, long, slowest, .. } = self;
        let total = sim.total();
        for (reason, frames) in total.drops.iter().filter(|(why, _)| *why != DropReason::Overrun) {
            (0..frames).for_each(|_| checker.drop(reason.name()));
            sim.record(frames);
        }
        let (trace, pool) = (sim.trace(), sim.yard.pool.share());
        // A port that is opened again receives first what waits.
        let abandoned = world.abandoned();
        drop(sim);
        let lost = world.lost();
        (0..lost + world.abandoned()).for_each(|_| checker.drop("lost in the kernel"));
        let finished = checker.finish(0).map(drop).map_err(|violation| violation.to_string());
        verdict = verdict.and(finished);
        if verdict.is_ok() && abandoned != 0 {
            verdict = Err(format!("{abandoned} frames waited when a port was opened again"));
        }
        if verdict.is_ok() && pool.held() != 0 {
            verdict = Err(format!("{} frames leaked", pool.held()));
        }
        if verdict.is_ok() && world.open_objects() != 0 {
            verdict = Err(format!("{} descriptors leaked", world.open_objects()));
        }
        let verdict = verdict
            .map_err(|error| format!("{error}\n{:#?}\n{total:?}\n{about}", said.lock().unwrap()));
        let (calls, failed) = (world.calls(), world.failed());
        (Ran { total, trace, events, calls, failed, lost, long, slowest }, verdict)
    }
}
