//! `flowyard steer` while it runs: its control socket and metrics.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flowyard_frame::FlowKey;
use flowyard_operate::control::{self, Answers, Bound, Control, ControlError};
use flowyard_operate::metrics::{self, Metrics, steer_page};
use flowyard_operate::protocol::{
    Request, Steer, SteerQueue, SteerRing, SteerWhere, StepState, Story, Trace, TraceRequest,
};
use flowyard_steer::elephants::Decision;
use flowyard_steer::{Attached, Error, Followed, Model, Pins, Policy, Program, Reason, Seen};
use rustix::time::{ClockId, clock_gettime};

use super::{Args, PolicyName, Steered, stopped};
use crate::output;
use crate::stop::{Stop, bad_input, failed};

/// The path of the control socket; `None` if there is to be none.
pub(super) fn socket(args: &Args) -> Option<PathBuf> {
    match &args.control {
        Some(path) if path == Path::new("none") => None,
        Some(path) => Some(path.clone()),
        None => control::default_path(Path::new(&format!("steer-{}.toml", args.interface))),
    }
}

/// Sockets that are bound but not served yet.
pub(super) struct Sockets {
    control: Option<Bound>,
    metrics: Option<Metrics>,
}

impl Sockets {
    /// Opens the control socket and the metrics. Without `--control`, a socket that cannot be opened is no error, unless another
    /// process steers with the same pins.
    pub(super) fn open(args: &Args) -> Result<Self, Stop> {
        let control = match socket(args).map(|path| Bound::bind(&path, None)) {
            None => None,
            Some(Ok(bound)) => Some(bound),
            Some(Err(error)) if args.control.is_some() => return Err(bad_input(error)),
            Some(Err(error @ ControlError::Taken(_))) if args.pin.is_some() => {
                return Err(bad_input(error));
            }
            Some(Err(error)) => {
                output::note(&format!("no control socket: {error}"));
                None
            }
        };
        let address = args.metrics.as_deref().map(metrics::address).transpose();
        let metrics = address.map_err(|error| bad_input(format!("--metrics: {error}")))?;
        let metrics = metrics.map(Metrics::bind).transpose();
        let metrics = metrics.map_err(|error| Stop::Failed(error.into()))?;
        Ok(Self { control, metrics })
    }

    /// Answers until the result is dropped.
    pub(super) fn serve(
        self,
        daemon: &Arc<Daemon>,
    ) -> Result<(Option<Control>, Option<Metrics>), Stop> {
        let Self { control, mut metrics } = self;
        let answers: Arc<dyn Answers> = Arc::<Daemon>::clone(daemon);
        let control = control.map(|bound| bound.serve_answers(answers)).transpose();
        let control = control.map_err(failed("serving the control socket"))?;
        if let Some(metrics) = &mut metrics {
            let (clock, state) = (Arc::clone(daemon), Arc::clone(daemon));
            let page = move || state.state().map_or_else(|_| String::new(), |s| steer_page(&s));
            metrics.serve_page(move || clock.now(), page).map_err(failed("serving metrics"))?;
            output::note(&format!("metrics: http://{}/metrics", metrics.address()));
        }
        Ok((control, metrics))
    }
}

/// A program that steers, shared by the threads that answer.
pub(super) struct Daemon {
    program: Mutex<Program>,
    model: Model,
    cpus: Vec<Option<u32>>,
    interface: String,
    policy: &'static str,
    attached: Attached,
    pins: Option<String>,
    has_rings: bool,
    /// When it was attached, by the clock of the kernel's programs.
    began: u64,
}

impl Daemon {
    /// Loads and attaches the program.
    pub(super) fn start(args: &Args, policy: &Policy, pins: Option<Pins>) -> Result<Self, Stop> {
        let folder = pins.as_ref().map(|pins| pins.folder().display().to_string());
        let model = Model::new(policy).map_err(|error| args.wrong(error))?;
        let loaded = match pins {
            Some(pins) => Program::load_pinned(policy, args.queue_frames, pins),
            None => Program::load(policy, args.queue_frames),
        };
        let mut program = loaded.map_err(stopped)?;
        let watched = program.watch_rings();
        let how = args.ring_threads.scheduling();
        let wanted = program.queue_cpus().flatten().collect::<BTreeSet<_>>().len();
        let scheduled = program.schedule_rings(how);
        let attached = program.attach(&args.interface).map_err(stopped)?;
        match scheduled {
            Ok(count) if count < wanted => output::note(
                "the kernel threads of the rings are not visible in this PID namespace, so --ring-threads has no effect",
            ),
            Ok(_) => {}
            Err(error) => output::note(&format!("--ring-threads has no effect: {error}")),
        }
        if let Err(error) = &watched {
            output::note(&format!("drops in front of CPUs are not counted: {error}"));
        }
        let cpus = program.queue_cpus().collect();
        Ok(Self {
            program: Mutex::new(program),
            model,
            cpus,
            interface: args.interface.clone(),
            policy: match args.policy {
                Some(PolicyName::Atr) => "atr",
                Some(PolicyName::Rfs) => "rfs",
                _ if args.rules.is_some() => "rules",
                _ => "rss",
            },
            attached,
            pins: folder,
            has_rings: watched.is_ok(),
            began: monotonic(),
        })
    }

    pub(super) fn attached(&self) -> Attached {
        self.attached
    }

    /// The time since it was attached, in nanoseconds.
    pub(super) fn now(&self) -> u64 {
        monotonic().saturating_sub(self.began)
    }

    fn program(&self) -> MutexGuard<'_, Program> {
        self.program.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides about elephants, and carries the decisions out; called often.
    pub(super) fn watch(&self) -> Result<Vec<Decision>, Error> {
        self.program().watch(self.now())
    }

    /// The flows that have a CPU of their own, with the CPU.
    pub(super) fn elephants(&self) -> Vec<(FlowKey, u32)> {
        self.program().elephants()
    }

    /// What was steered so far.
    pub(super) fn steered(&self) -> Result<Steered, Error> {
        let seconds = self.now() as f64 / 1e9;
        let mut program = self.program();
        Ok(Steered {
            interface: self.interface.clone(),
            attached: self.attached,
            seconds,
            pins: self.pins.clone(),
            queues: program.counts()?,
            rings: if self.has_rings { Some(program.rings()?) } else { None },
            sockets: Vec::new(),
            elephants: None,
            flows: program.happened()?,
        })
    }

    fn state(&self) -> Result<Steer, Error> {
        let steered = self.steered()?;
        let queues = steered.queues.iter().map(|one| SteerQueue {
            queue: one.queue,
            cpu: one.cpu,
            frames: one.frames.iter().map(|(reason, n)| (reason.name().to_owned(), *n)).collect(),
            bytes: one.bytes,
        });
        let rings = steered.rings.map(|all| {
            let ring = |one: &flowyard_steer::Ring| SteerRing {
                cpu: one.cpu,
                frames: one.frames,
                dropped: one.dropped,
            };
            all.iter().map(ring).collect()
        });
        Ok(Steer {
            at_s: steered.seconds,
            interface: steered.interface,
            policy: self.policy.to_owned(),
            attached: self.attached.name().to_owned(),
            pins: steered.pins,
            queues: queues.collect(),
            rings,
            learned_flows: steered.flows.learned,
            flow_moves: steered.flows.moved,
        })
    }

    /// The queue of a flow now, the stage that decides, and why.
    fn stage(&self, key: &FlowKey) -> Result<(u16, Reason, String), Error> {
        let decision = self.model.decide_key(key);
        let (queue, why) = match (decision.reason, decision.hash) {
            (Reason::Rss, Some(hash)) => {
                let queue = self.program().entry(hash)?;
                (queue, format!("hash {hash:#010x}, and the indirection table"))
            }
            (Reason::Rule, _) => (decision.queue, "a rule of --rules".to_owned()),
            (Reason::Dropped, _) => (0, "a rule of --rules drops it".to_owned()),
            _ => (decision.queue, "nothing of it is hashed".to_owned()),
        };
        if decision.reason != Reason::Rss {
            return Ok((queue, decision.reason, why));
        }
        let (own, followed) = {
            let mut program = self.program();
            (program.elephants(), program.followed(key)?)
        };
        let Some(Followed { wanted, home: Some(home) }) = followed else {
            return Ok((queue, Reason::Rss, why));
        };
        let cpu = |queue: u16| self.cpus.get(usize::from(queue)).copied().flatten();
        let has_own = own.iter().find(|(flow, _)| *flow == key.flow()).map(|(_, cpu)| *cpu);
        // Consumers on a CPU that belongs to a flow are not followed.
        let is_taken = |queue: u16| own.iter().any(|(_, taken)| cpu(queue) == Some(*taken));
        let until = "the flow moves there when none of its frames can be overtaken";
        let why_not = |why: &str| format!("{why}, and {until}");
        Ok(match (has_own, wanted.filter(|wanted| !is_taken(*wanted))) {
            (Some(own), _) if cpu(home) == Some(own) => (
                home,
                Reason::Elephant,
                format!("it overloaded a CPU, and has CPU {own} for itself"),
            ),
            (Some(own), _) => {
                let why = format!("it overloaded a CPU, and gets CPU {own} for itself");
                (home, Reason::Settling, why_not(&why))
            }
            (None, Some(wanted)) if wanted != home => {
                let why = format!("its consumer was last seen at queue {wanted}");
                (home, Reason::Settling, why_not(&why))
            }
            (None, Some(_)) => {
                (home, Reason::Filter, "its consumer was last seen there".to_owned())
            }
            (None, None) if queue != home => {
                (home, Reason::Settling, why_not(&format!("queue {queue}: {why}")))
            }
            (None, None) => (queue, Reason::Rss, why),
        })
    }

    /// Where a flow goes now.
    fn place(&self, flow: &str) -> Result<SteerWhere, String> {
        let key: FlowKey = flow.parse().map_err(|error| format!("{error}"))?;
        let (queue, stage, why) = self.stage(&key).map_err(|error| error.to_string())?;
        let goes = stage != Reason::Dropped;
        Ok(SteerWhere {
            interface: self.interface.clone(),
            flow: key.to_string(),
            queue: goes.then_some(queue),
            cpu: self.cpus.get(usize::from(queue)).copied().flatten().filter(|_| goes),
            stage: stage.name().to_owned(),
            why,
        })
    }

    /// Follows received frames of one flow.
    fn trace(&self, request: &TraceRequest, gone: &dyn Fn() -> bool) -> Result<Trace, String> {
        let Some(flow) = &request.flow else {
            return Err("'flowyard steer' has no log of dropped frames; name a flow, and see 'flowyard show steer' for drops of \
                        rules and of full rings"
                .into());
        };
        if request.both {
            return Err(
                "'flowyard steer' sees only received frames; trace the flow without --both".into(),
            );
        }
        let key: FlowKey = flow.parse().map_err(|error| format!("{error}"))?;
        let said = |error: Error| error.to_string();
        let began = self.now();
        let until = began.saturating_add((request.seconds.clamp(0.001, 3600.0) * 1e9) as u64);
        let count = request.count.clamp(1, 10_000);
        self.program().trace(Some(&key)).map_err(said)?;
        let mut frames = Vec::new();
        while frames.len() < count && self.now() < until && !gone() {
            std::thread::sleep(Duration::from_millis(5));
            match self.program().seen() {
                Ok(seen) => frames.extend(seen),
                Err(error) => {
                    let _off = self.program().trace(None);
                    return Err(said(error));
                }
            }
        }
        self.program().trace(None).map_err(said)?;
        let stories: Vec<_> = frames.iter().map(|frame| self.story(&key, frame)).collect();
        let mut trace = Trace {
            flow: key.to_string(),
            seconds: (self.now() - began) as f64 / 1e9,
            finished_frames: stories.len() as u64,
            ..Trace::default()
        };
        for story in &stories {
            *trace.outcomes.entry(story.outcome.clone()).or_default() += 1;
        }
        trace.frames = stories.into_iter().take(count).collect();
        if trace.frames.is_empty() {
            let name = &self.interface;
            trace.note = Some(format!(
                "no frame of this flow was received on {name}; the flow is written as its frames come: source, then destination"
            ));
        }
        Ok(trace)
    }

    fn story(&self, key: &FlowKey, frame: &Seen) -> Story {
        let at_s = frame.at.saturating_sub(self.began) as f64 / 1e9;
        let step = |stage: &str, text: String| StepState {
            at_s,
            core: frame.cpu as u16,
            stage: stage.to_owned(),
            text,
        };
        let (bytes, queue) = (frame.length, frame.queue);
        let hash = frame.hash.map_or_else(String::new, |hash| format!("; hash {hash:#010x}"));
        let mut steps = vec![step("rx", format!("received: {bytes} bytes of {key}{hash}"))];
        let decided = match frame.reason {
            Reason::NoHash => format!("nothing of it is hashed: queue {queue}"),
            Reason::Rss => format!("the indirection table: queue {queue}"),
            Reason::Rule => format!("a rule: queue {queue}"),
            Reason::Dropped => "a rule: drop".to_owned(),
            Reason::Elephant => format!("it has a CPU of its own: queue {queue}"),
            Reason::Filter => format!("learned, where its consumer runs: queue {queue}"),
            Reason::Settling => format!("it is to move, but is still at queue {queue}"),
            Reason::GapDrop => {
                "drop: it has to leave a ring that always has frames of it".to_owned()
            }
        };
        steps.push(step("steer", decided));
        if frame.reason == Reason::Settling {
            let why = "frames of it on the way to the old CPU could be overtaken";
            steps.push(step("settle", format!("the flow may not move yet: {why}")));
        }
        let outcome = match (frame.reason, self.cpus.get(usize::from(queue)).copied().flatten()) {
            (Reason::Dropped | Reason::GapDrop, _) => "dropped",
            (_, Some(cpu)) => {
                steps.push(step("enqueue", format!("handed to CPU {cpu}")));
                "redirected"
            }
            (_, None) => "passed",
        };
        let fix = (frame.reason == Reason::Dropped)
            .then(|| "a rule of --rules has action -1; remove it, and start again".to_owned());
        Story { outcome: outcome.to_owned(), fix, reverse: false, steps }
    }
}

impl Answers for Daemon {
    fn answer(
        &self,
        request: &Request,
        gone: &dyn Fn() -> bool,
    ) -> Result<serde_json::Value, String> {
        let json = |value: serde_json::Result<_>| value.map_err(|error| error.to_string());
        match request {
            Request::Steer => {
                json(serde_json::to_value(self.state().map_err(|error| error.to_string())?))
            }
            Request::SteerWhere { flow } => json(serde_json::to_value(self.place(flow)?)),
            Request::Trace(request) => json(serde_json::to_value(self.trace(request, gone)?)),
            _ => Err("this instance is 'flowyard steer', not a yard; ask it with 'flowyard show steer', 'flowyard top' or \
                      'flowyard trace FLOW'"
                .into()),
        }
    }
}

/// The clock of the kernel's programs, in nanoseconds.
fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
