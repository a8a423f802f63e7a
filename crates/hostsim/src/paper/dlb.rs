//! The DLB guide: one elephant flow over 1 to 8 workers, with and without mice.

use flowyard_report::exhibit::{Input, Kind, Made, Spec};
use flowyard_report::{Axis, Plot, Unit};

use super::context::{Context, FigureError, printed};
use crate::forward::line_pps;
use crate::pipeline::{Flow, Pipeline, Role, Stages};
use crate::profile::Profile;

const WORKERS: usize = 10;

/// The costs of a load balancer in nanoseconds, and the rate of its link in bits a second.
struct Balancer {
    single: f64,
    rx: f64,
    tx: f64,
    line: f64,
}

/// The cost of a frame in a queue between cores: for the producer, for a worker, and for the consumer.
#[derive(Clone, Copy)]
struct Device {
    produce: f64,
    worker: f64,
    consume: f64,
}

/// The inputs of the rate of one core, of the hardware queue, and of the other queues.
const ALONE: [&str; 2] = ["single_ns", "line_gbps"];
const HARDWARE: [&str; 6] =
    ["single_ns", "rx_ns", "tx_ns", "hw_worker_ns", "hw_end_ns", "line_gbps"];
const SOFTWARE: [&str; 6] =
    ["single_ns", "rx_ns", "tx_ns", "sw_schedule_ns", "sw_worker_ns", "line_gbps"];
const OURS: [&str; 4] = ["single_ns", "rx_ns", "tx_ns", "line_gbps"];
const HERE: [&str; 3] = ["yard_far_enqueue_ns", "yard_far_dequeue_ns", "yard_far_complete_ns"];

impl Balancer {
    fn of(profile: &Profile) -> Result<Self, FigureError> {
        let get = |name: &str| profile.get(name);
        Ok(Self {
            single: get("single_ns")?,
            rx: get("rx_ns")?,
            tx: get("tx_ns")?,
            line: get("line_gbps")? * 1e9,
        })
    }

    fn work(&self) -> f64 {
        self.single - self.rx - self.tx
    }

    /// One core that receives, works and transmits.
    fn alone(&self, offered_pps: f64) -> Result<Flow, FigureError> {
        let stages = Stages { rx: self.rx, work: self.work(), tx: self.tx, ..Stages::default() };
        let role = Role { receives: true, works: true, transmits: true, stages };
        run(&Pipeline { offered_pps: Some(offered_pps), ..Pipeline::yard(vec![role]) })
    }

    /// A producer, `workers`, and a consumer.
    fn split(&self, workers: usize, device: Device, offered_pps: f64) -> Result<Flow, FigureError> {
        let stages = Stages {
            rx: self.rx,
            enqueue: device.produce,
            work: self.work(),
            dequeue: device.worker / 2.0,
            complete: device.worker / 2.0,
            tx: self.tx + device.consume,
        };
        let role = Role { stages, ..Role::default() };
        let mut roles = vec![Role { receives: true, ..role }, Role { transmits: true, ..role }];
        roles.extend(vec![Role { works: true, ..role }; workers]);
        let window = 2048; // the guide gives no window; this is enough for ten workers
        run(&Pipeline {
            offered_pps: Some(offered_pps),
            window,
            tx_window: window,
            ..Pipeline::yard(roles)
        })
    }
}

fn run(pipeline: &Pipeline) -> Result<Flow, FigureError> {
    let flow = pipeline.run();
    if flow.is_balanced() { Ok(flow) } else { Err(FigureError::Unbalanced) }
}

fn hardware(profile: &Profile) -> Result<Device, FigureError> {
    let get = |name: &str| profile.get(name);
    let end = get("hw_end_ns")?;
    Ok(Device { produce: end, worker: get("hw_worker_ns")?, consume: end })
}

/// A queue between cores: its name, its costs, and the inputs of a rate through it.
type Queue = (&'static str, Device, Vec<Input>);

/// The queues by name: the hardware, a software event device, and this machine's ordered queue.
fn devices(profile: &Profile, context: &Context) -> Result<Vec<Queue>, FigureError> {
    let get = |name: &str| profile.get(name);
    let mut devices = vec![("hardware queue", hardware(profile)?, profile.inputs(&HARDWARE))];
    let (schedule, worker) = (get("sw_schedule_ns")?, get("sw_worker_ns")?);
    let software = Device { produce: schedule, worker, consume: worker / 2.0 };
    devices.push(("DPDK event_sw", software, profile.inputs(&SOFTWARE)));
    if let Some(here) = &context.here {
        let get = |name: &str| here.get(name);
        let worker = get("yard_far_dequeue_ns")? + get("yard_far_complete_ns")?;
        let produce = get("yard_far_enqueue_ns")?;
        let ours = Device { produce, worker, consume: 0.0 };
        let inputs = [profile.inputs(&OURS), here.inputs(&HERE)].concat();
        devices.push(("flowyard's ordered queue, here", ours, inputs));
    }
    Ok(devices)
}

pub(super) fn workers(context: &Context, spec: &Spec) -> Result<Made, FigureError> {
    let profile = context.profile("dlb")?;
    let balancer = Balancer::of(&profile)?;
    let mut made = Made::default();
    let mut plots = Vec::new();
    for size in [64u64, 512] {
        let offered = line_pps(balancer.line, size);
        let baseline = balancer.alone(offered)?.pps / 1e6;
        made.using(Kind::Predicted, profile.inputs(&ALONE));
        made.push(format!("{size} B, original, any number of cores"), baseline);
        let mut plot = Plot::new(
            format!("One flow of {size}-byte frames"),
            Axis::linear("workers (and two cores more)", Unit::Plain(""))
                .ticks_at((1..=WORKERS).map(|n| n as f64).collect::<Vec<_>>()),
            Axis::linear("Mpps", Unit::Plain("")),
        )
        .line("original, one core works", vec![(1.0, baseline), (WORKERS as f64, baseline)]);
        for (name, device, inputs) in devices(&profile, context)? {
            let mut points = Vec::new();
            made.using(Kind::Predicted, inputs);
            for workers in 1..=WORKERS {
                let pps = balancer.split(workers, device, offered)?.pps / 1e6;
                made.push(format!("{size} B, {name}, {workers}+2"), pps);
                points.push((workers as f64, pps));
                if (workers, name) == (8, "hardware queue") {
                    made.push(
                        format!("{size} B, {name}, 8+2 over original, times"),
                        pps / baseline,
                    );
                    let gbps = pps * size as f64 * 8.0 / 1e3;
                    made.push(format!("{size} B, {name}, 8+2: Gb/s of frames"), gbps);
                }
            }
            plot = plot.line(name, points);
        }
        let guide = printed(spec, &format!("{size} B, hardware queue, "), "+2");
        plots.push(plot.points("the guide's text, hardware", guide));
    }
    made.plots = plots;
    Ok(made)
}

/// Mice on the core of the original process, with the elephant on the pipeline or on the same core.
pub(super) fn mice(context: &Context, _: &Spec) -> Result<Made, FigureError> {
    let profile = context.profile("dlb")?;
    let balancer = Balancer::of(&profile)?;
    let device = hardware(&profile)?;
    let mut made = Made::default();
    let line = line_pps(balancer.line, 64);
    let mice = 2e6;
    let quiet = balancer.split(8, device, line)?.pps;
    let beside = balancer.split(8, device, line - mice)?.pps;
    made.using(Kind::Predicted, profile.inputs(&HARDWARE));
    made.push("elephant, 8+2, without mice, Mpps", quiet / 1e6);
    made.push("elephant, 8+2, with 2 Mpps of mice, Mpps", beside / 1e6);
    // The mice are assumed to share only the link, which has room for both.
    made.push_as(Kind::Assumed, "elephant, with mice over without", beside / quiet);
    made.using(Kind::Predicted, profile.inputs(&ALONE));
    let alone = balancer.alone(mice)?.pps;
    made.push("mice, elephant on the pipeline: delivered, %", 100.0 * alone / mice);
    // Without the pipeline both share the ring of one core, so both lose the same share.
    let together = balancer.alone(line)?.pps;
    made.push("mice, elephant on their core: delivered, %", 100.0 * together / line);
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(workers: usize, change: impl Fn(Device) -> Device) -> f64 {
        let profile = Profile::named("dlb").unwrap();
        let device = change(hardware(&profile).unwrap());
        Balancer::of(&profile).unwrap().split(workers, device, line_pps(1e11, 64)).unwrap().pps
    }

    /// Settings that the guide does not list.
    #[test]
    fn an_expensive_end_limits_the_gain_and_a_cheaper_worker_raises_it() {
        let as_printed = |workers| rate(workers, |device| device);
        let half = |workers| rate(workers, |d| Device { worker: d.worker / 2.0, ..d });
        // A worker processes a frame in 363.6 ns as printed, and in 318.4 ns here.
        assert!((half(4) / as_printed(4) - 363.6 / 318.4).abs() < 0.02);
        // 25 ns to receive and 150 ns to enqueue: 5.7 M/s, which two workers already reach.
        let producer = |workers| rate(workers, |d| Device { produce: 150.0, ..d });
        assert!((producer(1) / as_printed(1) - 1.0).abs() < 0.02);
        assert!((producer(8) * 175.0 / 1e9 - 1.0).abs() < 0.02, "{}", producer(8));
        assert!((producer(8) / producer(4) - 1.0).abs() < 0.02);
        // 20 ns to transmit and 180 ns to dequeue: the consumer is the limit.
        let consumer = |workers| rate(workers, |d| Device { consume: 180.0, ..d });
        assert!((consumer(8) * 200.0 / 1e9 - 1.0).abs() < 0.02, "{}", consumer(8));
        assert!((consumer(8) / consumer(4) - 1.0).abs() < 0.02);
    }
}
