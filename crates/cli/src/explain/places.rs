//! `flowyard explain --where`: the places that a frame of a flow passes, and which of them decides on which CPU it is
//! received.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use flowyard_analyze::{Explanation, Verdict};
use flowyard_frame::FlowKey;
use flowyard_host::{RxQueue, State};
use flowyard_operate::client::{Client, ClientError};
use flowyard_operate::control;
use flowyard_operate::protocol::{Request, SteerWhere, Tables};
use flowyard_report::{Cell, Column, Table, Tone};
use schemars::JsonSchema;
use serde::Serialize;

use super::rule_places::RulePlaces;
use crate::output::style;
use crate::show::refused;
use crate::stop::Stop;

/// Name and version of the JSON document; see docs/schema.
pub(crate) const SCHEMA: &str = "flowyard.where/1";

/// Which place decides where the frames of a flow are received, and where each rule of a set can live.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Where {
    /// The flow, as it is received.
    pub(crate) flow: String,
    /// The interface; `null` if the adapter is only a model.
    pub(crate) interface: Option<String>,
    /// The places, in the order in which a frame passes them.
    pub(crate) places: Vec<Place>,
    /// The place that decides; `null` if that is not known.
    pub(crate) decides: Option<String>,
    /// The CPU that it gives; `null` if that is not known.
    pub(crate) cpu: Option<u32>,
    /// Where each rule of `--rules` can live.
    pub(crate) rules: Vec<RulePlaces>,
}

/// A place that can choose the queue or the CPU of a frame.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Place {
    /// `adapter`: its rules and RSS; `xdp`: `flowyard steer`; `rps` and `rfs` of the kernel; `yard`: a running yard.
    pub(crate) place: String,
    /// Whether it acts on frames of this flow; `null` if that is not known.
    pub(crate) acts: Option<bool>,
    /// The queue that it gives; `null` if it gives none, or that is not known.
    pub(crate) queue: Option<u32>,
    /// The CPU that it gives; `null` if it gives none, or that is not known.
    pub(crate) cpu: Option<u32>,
    /// What it decides, and why; or why it does not act.
    pub(crate) why: String,
}

impl Place {
    fn new(place: &str, acts: Option<bool>, why: impl Into<String>) -> Self {
        Self { place: place.to_owned(), acts, queue: None, cpu: None, why: why.into() }
    }
}

/// The places of an interface, or of a modelled adapter only.
pub(super) fn locate(
    key: &FlowKey,
    explained: &Explanation,
    interface: Option<&str>,
    socket: Option<&Path>,
) -> Result<Where, Stop> {
    let state = interface.map(crate::host::read).transpose()?;
    let adapter = adapter(explained, state.as_ref());
    let mut places = vec![];
    let queue = adapter.queue;
    places.push(adapter);
    let asked = asked(key, interface, socket)?;
    let is_redirected = asked.iter().any(|one| one.place == "xdp" && one.cpu.is_some());
    let (xdp, yard): (Vec<_>, Vec<_>) = asked.into_iter().partition(|one| one.place == "xdp");
    places.extend(xdp);
    if let Some(state) = &state {
        // A redirected frame has no number of a queue any more, and no hash.
        let queue = if is_redirected { Some(0) } else { queue };
        let hash = if is_redirected { None } else { hash_of(explained, state) };
        places.push(rps(state, queue, hash));
        places.push(rfs(state, queue));
    }
    places.extend(yard);
    // The last place that acts overrules those before it. One that may act leaves it open.
    let last = places.iter().rev().find(|one| one.acts != Some(false));
    let decides = last.filter(|one| one.acts == Some(true));
    Ok(Where {
        flow: key.to_string(),
        interface: interface.map(str::to_owned),
        decides: decides.map(|one| one.place.clone()),
        cpu: decides.and_then(|one| one.cpu),
        places,
        rules: Vec::new(),
    })
}

/// What the adapter does by its rules or by RSS.
fn adapter(explained: &Explanation, state: Option<&State>) -> Place {
    let by_rule = explained.policies.fdir.as_ref().filter(|fdir| fdir.matched == "rule");
    let verdict = by_rule.map(|fdir| &fdir.verdict);
    let rss = explained.policies.rss.as_ref().map(|rss| &rss.verdict);
    let cpu = |queue: u32| state.and_then(|state| state.cpu_of(queue));
    let Some(Verdict { queue, stage, why, .. }) = verdict.or(rss) else {
        let why = "it has neither rules nor RSS; frames are received on the CPU of its only queue's interrupt, or on the \
                   CPU that sends them (veth, loopback)";
        return Place { queue: Some(0), cpu: cpu(0), ..Place::new("adapter", Some(true), why) };
    };
    let Some(queue) = queue.map(u32::from) else {
        return Place::new("adapter", Some(true), format!("{stage}: {why}"));
    };
    let cpu = cpu(queue);
    let unknown = match cpu {
        None => "; which CPU the queue's interrupt has is not known",
        Some(_) => "",
    };
    let why = format!("{stage}: {why}{unknown}");
    Place { queue: Some(queue), cpu, ..Place::new("adapter", Some(true), why) }
}

/// The hash that the adapter passes on with a frame, if it does and Linux keeps it.
fn hash_of(explained: &Explanation, state: &State) -> Option<u32> {
    let features = state.features.value()?;
    features.iter().find(|one| one.name == "rx-hashing" && one.on)?;
    let rss = explained.policies.rss.as_ref().filter(|rss| rss.l4_hash)?;
    let hash = rss.hash.as_deref()?;
    u32::from_str_radix(hash.trim_start_matches("0x"), 16).ok()
}

/// What running processes say: `flowyard steer` of the interface, or the yard whose socket is named.
fn asked(
    key: &FlowKey,
    interface: Option<&str>,
    socket: Option<&Path>,
) -> Result<Vec<Place>, Stop> {
    let default =
        interface.and_then(|name| control::default_path(Path::new(&format!("steer-{name}.toml"))));
    let Some(path) = socket.map(Path::to_owned).or(default) else { return Ok(Vec::new()) };
    let mut client = match Client::connect(Some(&path)) {
        Ok(client) => client,
        Err(error) if socket.is_some() => return Err(refused(error)),
        Err(_) => return Ok(vec![quiet(interface)]),
    };
    let flow = key.to_string();
    match client.ask::<SteerWhere>(&Request::SteerWhere { flow: flow.clone() }) {
        Ok(found) if interface.is_none_or(|name| name == found.interface) => {
            Ok(vec![steered(&found)])
        }
        Ok(found) => Err(crate::stop::bad_input(format!(
            "--control: {} steers {}, not {}",
            path.display(),
            found.interface,
            interface.unwrap_or_default()
        ))),
        Err(ClientError::Refused(_)) => {
            let tables = client.ask(&Request::Tables { entries: 100_000 }).map_err(refused)?;
            Ok(vec![quiet(interface), yard(&flow, &tables)])
        }
        Err(error) => Err(refused(error)),
    }
}

/// No process of `flowyard steer` answers for the interface.
fn quiet(interface: Option<&str>) -> Place {
    let pins = interface.map(flowyard_steer::default_folder).filter(|folder| folder.exists());
    match pins {
        Some(folder) => Place::new(
            "xdp",
            None,
            format!(
                "{} has pinned programs that steer, and no process to ask; start 'flowyard steer {} --pin' again",
                folder.display(),
                interface.unwrap_or_default()
            ),
        ),
        None => Place::new(
            "xdp",
            Some(false),
            "no 'flowyard steer' answers for it; --control PATH names its socket if it has another one",
        ),
    }
}

fn steered(found: &SteerWhere) -> Place {
    let (queue, cpu) = (found.queue.map(u32::from), found.cpu);
    let acts = cpu.is_some() || found.stage == "dropped";
    let what = if found.stage == "dropped" { "drops it: " } else { "" };
    let stays =
        if acts { "" } else { "; the queue has no CPU, so frames stay where they are received" };
    let why = format!("{what}{}: {}{stays}", found.stage, found.why);
    Place { queue, cpu, ..Place::new("xdp", Some(acts), why) }
}

/// What the tables of a running yard have for the flow.
fn yard(flow: &str, tables: &Tables) -> Place {
    for core in &tables.cores {
        for table in &core.tables {
            if let Some(entry) = table.listed.iter().find(|entry| entry.flow == flow) {
                let why = format!("table {} of core {}: {}", table.name, core.core, entry.to);
                return Place::new("yard", Some(true), why);
            }
        }
    }
    let has_rules = |name: &str| {
        let mut all = tables.cores.iter().flat_map(|core| &core.tables);
        all.any(|table| table.name == name && table.entries.unwrap_or(0) > 0)
    };
    let why = match has_rules("rules") {
        true => {
            "no entry for exactly this flow; its rules or its indirection table decide: 'flowyard trace FLOW' shows which"
        }
        false => "no entry for exactly this flow, and no rules: its indirection table decides",
    };
    Place::new(
        "yard",
        Some(true),
        format!("{why}; frames that its ports take never reach the kernel"),
    )
}

fn rx_queue(state: &State, queue: Option<u32>) -> Option<&RxQueue> {
    let queues = state.rx_queues.value()?;
    queues.iter().find(|one| Some(one.queue) == queue)
}

/// RPS: a CPU by the hash that the adapter gave, or by one with a secret that the kernel drew.
fn rps(state: &State, queue: Option<u32>, hash: Option<u32>) -> Place {
    let cpus = rx_queue(state, queue).and_then(|one| one.rps_cpus.value());
    let Some(cpus) = cpus else {
        return Place::new(
            "rps",
            None,
            "its settings are not known ('flowyard host IFACE' says why)",
        );
    };
    let number = queue.unwrap_or_default();
    let list = flowyard_host::cpu_list(cpus);
    match (cpus.as_slice(), hash) {
        ([], _) => Place::new("rps", Some(false), format!("off for queue {number}")),
        ([cpu], _) => Place {
            cpu: Some(*cpu),
            ..Place::new("rps", Some(true), format!("queue {number} has only CPU {cpu}"))
        },
        (cpus, Some(hash)) => {
            let at = (u64::from(hash) * cpus.len() as u64) >> 32;
            let why = format!(
                "queue {number} spreads over CPUs {list}, by the adapter's hash {hash:#010x}"
            );
            Place { cpu: cpus.get(at as usize).copied(), ..Place::new("rps", Some(true), why) }
        }
        (_, None) => {
            let why = format!(
                "queue {number} spreads over CPUs {list}, by a hash whose secret only the kernel knows"
            );
            Place::new("rps", Some(true), why)
        }
    }
}

/// RFS: the CPU that last read the socket, which only the kernel knows.
fn rfs(state: &State, queue: Option<u32>) -> Place {
    let entries = rx_queue(state, queue).and_then(|one| one.rps_flow_cnt.value());
    if entries == Some(&0) {
        return Place::new("rfs", Some(false), "off");
    }
    let (Some(entries), Some(all)) = (entries, state.sock_flow_entries.value()) else {
        return Place::new(
            "rfs",
            None,
            "its settings are not known ('flowyard host IFACE' says why)",
        );
    };
    match (entries, all) {
        (0, _) | (_, 0) => Place::new("rfs", Some(false), "off"),
        _ => Place::new(
            "rfs",
            Some(true),
            "the CPU on which a thread last read the socket, which the kernel does not tell",
        ),
    }
}

/// The document as text.
pub(super) fn text(found: &Where) -> String {
    let mut text = format!("{}\n", found.flow);
    let on = found.interface.as_deref().map_or(String::new(), |name| format!(" on {name}"));
    let _infallible = match (&found.decides, found.cpu) {
        (Some(place), Some(cpu)) => writeln!(text, "decided by {place}{on}: CPU {cpu}\n"),
        (Some(place), None) => writeln!(text, "decided by {place}{on}; its CPU is not known\n"),
        (None, _) => writeln!(text, "what decides{on} is not known\n"),
    };
    let mut table = Table::new("")
        .column(Column::text("place"))
        .column(Column::text("acts"))
        .column(Column::number("queue"))
        .column(Column::number("CPU"))
        .column(Column::text("what, and why"));
    let number = |n: Option<u32>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    for one in &found.places {
        let is_it = found.decides.as_deref() == Some(&one.place);
        let acts = match one.acts {
            Some(true) if is_it => "decides",
            Some(true) => "overruled",
            Some(false) => "no",
            None => "not known",
        };
        table.push([
            Cell::new(&*one.place).tone(if is_it { Tone::Strong } else { Tone::Plain }),
            Cell::new(acts),
            Cell::new(number(one.queue)),
            Cell::new(number(one.cpu)),
            Cell::new(&*one.why),
        ]);
    }
    text += &table.to_text(&style());
    for rule in &found.rules {
        text.push('\n');
        text += &rule.text();
    }
    text
}

/// The options of `--where`.
#[derive(clap::Args)]
pub(crate) struct WhereArgs {
    /// Say which place decides on which CPU the flow is received: the adapter's rules or RSS, `flowyard steer`, RPS, RFS,
    /// or a yard, and the queue and CPU that each gives
    #[arg(long = "where", help_heading = "Places")]
    pub(super) is_wanted: bool,

    /// With --where: rules as `ethtool -N` takes them; says for each in which places it can live, in which form, and why
    /// not in the others
    #[arg(long, value_name = "FILE", requires = "is_wanted", help_heading = "Places")]
    pub(super) rules: Option<PathBuf>,

    /// With --where: control socket of 'flowyard steer', or of a yard, to ask [default: that of 'flowyard steer' for
    /// --interface]
    #[arg(long, value_name = "PATH", requires = "is_wanted", help_heading = "Places")]
    pub(super) control: Option<PathBuf>,
}
