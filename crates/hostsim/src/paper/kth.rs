//! The KTH slides: an OpenFlow switch that uses Flow Director for its lookup.

use flowyard_report::exhibit::{Kind, Made, Spec};
use flowyard_report::{Axis, Plot, Unit, num};

use super::context::{Context, FigureError, printed};
use crate::forward::{Forwarder, line_pps, machine_pps};
use crate::profile::Profile;

/// The table sizes of the slides.
const ENTRIES: [u32; 10] = [1, 100, 1100, 2100, 3100, 4100, 5100, 6100, 7100, 8100];

struct Switch {
    map: f64,
    hash: f64,
    linear: f64,
    entry: f64,
    miss: f64,
    filter: f64,
    filter_worst: f64,
    share: f64,
}

impl Switch {
    fn of(profile: &Profile) -> Result<Self, FigureError> {
        let get = |name: &str| profile.get(name);
        Ok(Self {
            map: get("map_ns")?,
            hash: get("hash_ns")?,
            linear: get("linear_ns")?,
            entry: get("entry_ns")?,
            miss: get("map_miss_ns")?,
            filter: get("filter_ns")?,
            filter_worst: get("filter_worst_ns")?,
            share: get("sibling_share")?,
        })
    }

    /// The cost of a frame with a lookup in the hash table.
    fn by_hash(&self) -> f64 {
        self.map + self.hash
    }

    /// The cost of a frame with a lookup in the linear table, which compares all its `entries`.
    fn by_linear(&self, entries: u32) -> f64 {
        self.by_hash() + self.linear + self.entry * f64::from(entries)
    }
}

/// The inputs of the cost of a frame by each way of lookup.
const MAP: [&str; 1] = ["map_ns"];
const HASH: [&str; 2] = ["map_ns", "hash_ns"];
const LINEAR: [&str; 4] = ["map_ns", "hash_ns", "linear_ns", "entry_ns"];

/// The rate of one core under line rate of 64-byte frames, in thousand frames a second.
fn kpps(costs_ns: Vec<f64>) -> Result<f64, FigureError> {
    let done = Forwarder { offered_pps: vec![line_pps(1e10, 64)], costs_ns }.run(0.2);
    if done.is_balanced() { Ok(done.pps / 1e3) } else { Err(FigureError::Unbalanced) }
}

pub(super) fn baseline(context: &Context, spec: &Spec) -> Result<Made, FigureError> {
    let profile = context.profile("kth")?;
    let switch = Switch::of(&profile)?;
    let mut made = Made::default();
    let mut lines: [Vec<(f64, f64)>; 3] = Default::default();
    for entries in ENTRIES {
        // That a lookup by hash or by queue costs the same at every size is an assumption of the model.
        let all = [
            ("linear", switch.by_linear(entries), Kind::Predicted, &LINEAR[..]),
            ("hash", switch.by_hash(), Kind::Assumed, &HASH),
            ("port-mapping", switch.map, Kind::Assumed, &MAP),
        ];
        for (n, (name, cost, kind, inputs)) in all.into_iter().enumerate() {
            made.using(kind, profile.inputs(inputs));
            let kpps = kpps(vec![cost])?;
            made.push(
                format!("{entries} {}, {name}", if entries == 1 { "entry" } else { "entries" }),
                kpps,
            );
            lines[n].push((f64::from(entries), kpps));
        }
    }
    let gain = lines[2].iter().zip(&lines[1]).skip(1).map(|(map, hash)| map.1 / hash.1 - 1.0);
    made.using(Kind::Arithmetic, profile.inputs(&HASH));
    made.push("port-mapping over hash, mean, %", 100.0 * gain.sum::<f64>() / 9.0);
    let [linear, hash, map] = lines;
    let slides = |name: &str| printed(spec, "", &format!(" entries, {name}"));
    made.plots = vec![
        Plot::new(
            "Lookup by table size",
            Axis::log("entries", Unit::Plain("")),
            Axis::linear("thousand frames/s", Unit::Plain("")),
        )
        .line("port-mapping", map)
        .line("hash", hash)
        .line("linear", linear)
        .points("port-mapping, slides", slides("port-mapping"))
        .points("hash, slides", slides("hash"))
        .points("linear, slides", slides("linear")),
    ];
    Ok(made)
}

pub(super) fn modification(context: &Context, _: &Spec) -> Result<Made, FigureError> {
    let profile = context.profile("kth")?;
    let switch = Switch::of(&profile)?;
    let mut made = Made::default();
    let (before, after) =
        (kpps(vec![switch.by_hash()])?, kpps(vec![switch.by_hash() + switch.miss])?);
    made.using(Kind::Predicted, profile.inputs(&HASH));
    made.push("hash, original, thousand frames/s", before);
    // One assumed cost over two fitted ones.
    made.using(Kind::Arithmetic, profile.inputs(&["map_ns", "hash_ns", "map_miss_ns"]));
    made.push("hash, after a miss in port-mapping, thousand frames/s", after);
    made.push("overhead, %", 100.0 * (before / after - 1.0));
    Ok(made)
}

pub(super) fn caching(context: &Context, _: &Spec) -> Result<Made, FigureError> {
    let profile = context.profile("kth")?;
    let switch = Switch::of(&profile)?;
    let slow = switch.by_hash();
    let plain = kpps(vec![slow])?;
    // A flow of n packets: the first misses and has a filter programmed.
    let cached = |packets: u32, filter: f64| {
        let mut costs = vec![switch.map; packets as usize];
        costs[0] = slow + switch.miss + filter;
        Forwarder { offered_pps: vec![line_pps(1e10, 64)], costs_ns: costs }.run(0.5).pps / 1e3
    };
    let break_even = |filter: f64| {
        let (mut low, mut high) = (1u32, 1_000_000);
        while low < high {
            let middle = low.midpoint(high);
            if cached(middle, filter) >= plain { high = middle } else { low = middle + 1 }
        }
        f64::from(low)
    };
    let mut made = Made::default();
    let inputs = |filter| profile.inputs(&["map_ns", "hash_ns", "map_miss_ns", filter]);
    made.using(Kind::Predicted, inputs("filter_ns"));
    made.push("random flows: break-even, packets", break_even(switch.filter));
    made.using(Kind::Predicted, inputs("filter_worst_ns"));
    made.push("worst case: break-even, packets", break_even(switch.filter_worst));
    let lengths = [1, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000];
    let line = |filter| lengths.map(|n| (f64::from(n), cached(n, filter))).to_vec();
    let (random, worst) = (line(switch.filter), line(switch.filter_worst));
    made.using(Kind::Predicted, inputs("filter_ns"));
    for (length, kpps) in &random {
        made.push(format!("random flows of {length} packets, thousand frames/s"), *kpps);
    }
    made.plots = vec![
        Plot::new(
            "Flow caching by flow length",
            Axis::log("packets of a flow", Unit::Plain("")),
            Axis::linear("thousand frames/s", Unit::Plain("")),
        )
        .line("random flows", random)
        .line("worst case", worst)
        .limit_y(plain, "no caching"),
    ];
    Ok(made)
}

pub(super) fn multicore(context: &Context, _: &Spec) -> Result<Made, FigureError> {
    let profile = context.profile("kth")?;
    let switch = Switch::of(&profile)?;
    let machine = profile.machine;
    let cores = machine.all_cores();
    if machine.threads < 2 {
        let needs = "2 threads in each core";
        return Err(FigureError::Machine { profile: profile.name, needs });
    }
    let mut made = Made::default();
    let mut plot = Plot::new(
        "Cores, without and with hyper-threading",
        Axis::categories("cores", (1..=cores).map(|n| n.to_string())),
        Axis::linear("thousand frames/s", Unit::Plain("")),
    );
    let line = line_pps(1e10, 64);
    for (name, cost, inputs) in
        [("hash", switch.by_hash(), &HASH[..]), ("port-mapping", switch.map, &MAP)]
    {
        for hyper in [false, true] {
            if hyper {
                // The sign of the effect is an input: `sibling_share` above 2.
                let inputs = [inputs, &["sibling_share"]].concat();
                made.using(Kind::Assumed, profile.inputs(&inputs));
            } else {
                made.using(Kind::Predicted, profile.inputs(inputs));
            }
            let mut bars = Vec::new();
            for busy in 1..=cores {
                let ways = f64::from(if hyper { 2 * busy } else { busy });
                let mut rings = vec![Vec::new(); usize::from(machine.cpus())];
                for core in 0..busy {
                    let sibling = machine.sibling(core).filter(|_| hyper);
                    for cpu in std::iter::once(core).chain(sibling) {
                        rings[usize::from(cpu)].push(line / ways);
                    }
                }
                let other = |cpu: usize| machine.sibling(cpu as u16).map(usize::from);
                let pps = machine_pps(&rings, &[cost], switch.share, other, 0.2) / 1e3;
                let threads = if hyper { "with" } else { "without" };
                let cores = num::count(busy.into(), "core", "cores");
                made.push(format!("{name}, {cores}, {threads} hyper-threading"), pps);
                bars.push(pps);
            }
            plot = plot.bars(
                format!("{name}, hyper-threading {}", if hyper { "on" } else { "off" }),
                bars,
            );
        }
    }
    made.plots = vec![plot];
    Ok(made)
}
