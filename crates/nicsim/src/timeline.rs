//! A timeline of a run as a Perfetto trace: what every core executes, who holds which lock, and what the devices do.
//!
//! ```text
//!   Reference::record ─ run ─> Reference::recorded ──> Timeline ── json ──> ui.perfetto.dev, chrome://tracing
//! ```
//!
//! The format is the JSON of Chrome's trace event viewer: complete events (`X`) with times in microseconds, and the
//! names of processes and threads (`M`). Invariants: the events of one thread do not overlap unless they are of
//! overlapping things (DMAs, frames), which are therefore asynchronous events (`b`, `e`).
//! Thread-safety: values only.

use std::fmt::Write;

use crate::device::{Happened, What};
use crate::elf::Image;
use crate::engine::Access;
use crate::isa::Op;

/// A core began to execute code of another function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The cycle.
    pub cycle: u64,
    /// The core.
    pub core: usize,
    /// The address of the instruction that it issued.
    pub pc: u32,
}

/// What was recorded of a run, with the units of its times.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Changes of function, in the order in which they occurred.
    pub switches: Vec<Switch>,
    /// Accesses to the scratchpad, from which the locks are found.
    pub accesses: Vec<Access>,
    /// What the devices did.
    pub devices: Vec<Happened>,
    /// The firmware, for the names of its functions and variables.
    pub image: Image,
    /// The last cycle.
    pub end: u64,
    /// Cycles of the cores in a microsecond.
    pub cycles_per_us: f64,
    /// Time units in a microsecond.
    pub units_per_us: f64,
}

/// The processes of the trace.
const CORES: u32 = 1;
const LOCKS: u32 = 2;
const DEVICES: u32 = 3;
const FRAMES: u32 = 4;

impl Timeline {
    /// The trace as JSON.
    pub fn json(&self) -> String {
        let mut out = Events::default();
        for (pid, name) in
            [(CORES, "cores"), (LOCKS, "locks"), (DEVICES, "devices"), (FRAMES, "frames and DMAs")]
        {
            out.name(pid, None, name);
        }
        self.functions(&mut out);
        self.locks(&mut out);
        self.device_events(&mut out);
        out.finish()
    }

    fn functions(&self, out: &mut Events) {
        let us = |cycle: u64| cycle as f64 / self.cycles_per_us;
        let mut open: Vec<Option<Switch>> = Vec::new();
        let close = |out: &mut Events, at: Switch, until: u64| {
            let name = self.image.function(at.pc).map_or("?", |symbol| symbol.name.as_str());
            out.slice(CORES, at.core as u32, name, (us(at.cycle), us(until)), "");
        };
        for &at in &self.switches {
            if open.len() <= at.core {
                open.resize(at.core + 1, None);
            }
            match open[at.core].replace(at) {
                Some(before) => close(out, before, at.cycle),
                None => out.name(CORES, Some(at.core as u32), &format!("core {}", at.core)),
            }
        }
        for at in open.into_iter().flatten() {
            close(out, at, self.end);
        }
    }

    /// The locks: a core holds a word from its last `sc` that stored there until it stores zero.
    fn locks(&self, out: &mut Events) {
        let us = |cycle: u64| cycle as f64 / self.cycles_per_us;
        let mut words: Vec<(u32, Option<(usize, u64)>)> = Vec::new();
        for access in &self.accesses {
            let (addr, who) = (access.request.addr, access.who);
            let at = words.iter().position(|&(word, _)| word == addr);
            match (access.request.op, at) {
                (Op::Sc, _) if access.result == 0 => {} // another core had the word
                (Op::Sc, None) => words.push((addr, Some((who, access.cycle)))),
                (Op::Sc, Some(at)) => words[at].1 = Some((who, access.cycle)),
                (Op::Sw, Some(at)) if access.request.value == 0 => {
                    if let Some((holder, since)) = words[at].1.take_if(|held| held.0 == who) {
                        let name = format!("core {holder}");
                        out.slice(LOCKS, addr, &name, (us(since), us(access.cycle)), "");
                    }
                }
                _ => {}
            }
        }
        for (addr, _) in words {
            out.name(LOCKS, Some(addr), &self.variable(addr));
        }
    }

    /// The name of the variable at `addr`, with the offset in it.
    fn variable(&self, addr: u32) -> String {
        let symbols = self.image.symbols.iter();
        let holds = |from: u32, size: u32| (from..from + size.max(4)).contains(&addr);
        let found = symbols.into_iter().find(|s| !s.is_function && holds(s.addr, s.size));
        found.map_or_else(|| format!("{addr:#x}"), |s| format!("{}+{:#x}", s.name, addr - s.addr))
    }

    fn device_events(&self, out: &mut Events) {
        let us = |units: u64| units as f64 / self.units_per_us;
        let tracks = [
            "link in",
            "link out",
            "frame memory: DMA read",
            "frame memory: DMA write",
            "frame memory: MAC transmit",
            "frame memory: MAC receive",
            "frame memory: cores",
            "interrupts and overruns",
        ];
        for (tid, name) in tracks.into_iter().enumerate() {
            out.name(DEVICES, Some(tid as u32), name);
        }
        for event in &self.devices {
            let time = (us(event.from), us(event.until));
            let args = format!("\"number\":{},\"bytes\":{}", event.number, event.bytes);
            let (tid, name) = match event.what {
                What::LinkIn => (0, "frame"),
                What::LinkOut => (1, "frame"),
                What::Burst(who) => (2 + u32::from(who.min(4)), "burst"),
                What::Interrupt => (7, "interrupt"),
                What::Overrun => (7, "receive buffer full"),
                What::DmaRead => {
                    out.overlapping(FRAMES, "DMA read", event.number, time, &args);
                    continue;
                }
                What::DmaWrite => {
                    out.overlapping(FRAMES, "DMA write", event.number, time, &args);
                    continue;
                }
                What::Received => {
                    out.overlapping(FRAMES, "frame to host", event.number, time, &args);
                    continue;
                }
                What::Sent => {
                    out.overlapping(FRAMES, "frame to link", event.number, time, &args);
                    continue;
                }
            };
            out.slice(DEVICES, tid, name, time, &args);
        }
    }
}

/// The events of a trace as JSON text. Names are those of the firmware's symbols, so they are escaped.
#[derive(Default)]
struct Events {
    text: String,
}

impl Events {
    fn begin(&mut self) {
        self.text += if self.text.is_empty() {
            "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
        } else {
            ",\n"
        };
    }

    /// Names a process, or a thread of it.
    fn name(&mut self, pid: u32, tid: Option<u32>, name: &str) {
        self.begin();
        let (kind, tid) = if tid.is_some() { ("thread", tid) } else { ("process", None) };
        let name = serde_json::Value::from(name);
        let _ = write!(
            self.text,
            "{{\"ph\":\"M\",\"name\":\"{kind}_name\",\"pid\":{pid},\"tid\":{},\"args\":{{\"name\":{name}}}}}",
            tid.unwrap_or(0)
        );
    }

    fn slice(&mut self, pid: u32, tid: u32, name: &str, (from, until): (f64, f64), args: &str) {
        self.begin();
        let name = serde_json::Value::from(name);
        let _ = write!(
            self.text,
            "{{\"ph\":\"X\",\"name\":{name},\"pid\":{pid},\"tid\":{tid},\"ts\":{from:.4},\"dur\":{:.4},\"args\":{{{args}}}}}",
            until - from
        );
    }

    /// Two events, of the begin and the end of something that overlaps others of its kind.
    fn overlapping(
        &mut self,
        pid: u32,
        name: &str,
        id: u64,
        (from, until): (f64, f64),
        args: &str,
    ) {
        for (ph, ts) in [("b", from), ("e", until)] {
            self.begin();
            let _ = write!(
                self.text,
                "{{\"ph\":\"{ph}\",\"cat\":\"{name}\",\"name\":\"{name}\",\"id\":{id},\"pid\":{pid},\"tid\":0,\"ts\":{ts:.4},\"args\":{{{args}}}}}"
            );
        }
    }

    fn finish(mut self) -> String {
        if self.text.is_empty() {
            self.text += "{\"traceEvents\":[";
        }
        self.text + "\n]}\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Request;

    /// Two cores contend for a lock: the `sc` of the second fails, so the first holds the lock until it stores zero.
    #[test]
    fn a_failed_sc_does_not_take_the_lock() {
        let access = |cycle, who, op, value, result| {
            let request = Request { op, addr: crate::memory::SCRATCHPAD_BASE + 0x400, value };
            Access { cycle, who, request, result }
        };
        let timeline = Timeline {
            switches: Vec::new(),
            accesses: vec![
                access(1, 0, Op::Ll, 0, 0),
                access(2, 1, Op::Ll, 0, 0),
                access(3, 0, Op::Sc, 1, 1),
                access(4, 1, Op::Sc, 1, 0),
                access(9, 0, Op::Sw, 0, 0),
            ],
            devices: Vec::new(),
            image: Image::default(),
            end: 10,
            cycles_per_us: 1.0,
            units_per_us: 1.0,
        };
        let trace: serde_json::Value = serde_json::from_str(&timeline.json()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let held: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert_eq!(held.len(), 1, "{held:?}");
        let number = |key: &str| held[0][key].as_f64().unwrap();
        assert_eq!(
            (held[0]["name"].as_str(), number("ts"), number("dur")),
            (Some("core 0"), 3.0, 6.0)
        );
    }
}
