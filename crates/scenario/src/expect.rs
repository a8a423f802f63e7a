//! Compares `[expect]` with the results of a run.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use flowyard_frame::{FlowKey, Nanos};
use toml::Spanned;

use super::seen::{Look, Seen};
use flowyard_config::send::Planned;
use flowyard_config::send_words::{self as words, Amount, ExpectConfig, FlowExpect, SendConfig};
use flowyard_config::{Config, ConfigError, Order};
use flowyard_yard::{Counters, DropReason};

mod looks;

/// A position in the file, and the difference.
type Differ = (Range<usize>, String);

/// All differences.
pub(super) fn compare(config: &Config, plan: &[Planned], seen: &Seen) -> Vec<Differ> {
    let Some(expect) = &config.expect else { return Vec::new() };
    let (whole, expect) = (expect.span(), expect.get_ref());
    let total = seen.cores.iter().fold(Counters::default(), Counters::plus);
    let mut all = Differs { list: Vec::new(), whole };

    let ports = config.ports().map(|port| port.name.get_ref().as_str());
    let sent = ports.zip(seen.sent.iter().map(|sent| sent.len() as u64));
    all.all_named("sent", &expect.sent, sent);
    let names = config.ports().map(|port| port.name.get_ref().as_str());
    all.all_named("made", &expect.made, names.zip(seen.made.iter().copied()));
    let drops = DropReason::ALL.iter().map(|&reason| (reason.name(), total.drops.get(reason)));
    all.all_named("drops", &expect.drops, drops);
    for (queue, &entered) in config.queues().zip(&seen.entered) {
        let name = queue.name.get_ref();
        all.amount(&format!("queue.{name}"), expect.queue.get(name), entered);
    }
    for (number, (core, counters)) in expect.core.iter().zip(&seen.cores).enumerate() {
        let mut one = |what: &str, amount: &Option<Spanned<Amount>>, got| {
            all.amount(&format!("core {number}: {what}"), amount.as_ref(), got);
        };
        one("received", &core.received, counters.rx_frames);
        one("worked", &core.worked, counters.work_frames);
        one("sent", &core.sent, counters.tx_frames);
    }
    all.amount("copies", expect.copies.as_ref(), total.copies);
    all.amount("settle_moved", expect.settle_moved.as_ref(), total.settle_moved);
    all.amount("settle_held", expect.settle_held.as_ref(), total.settle_held);
    all.amount("promoted", expect.promoted.as_ref(), total.promoted);
    all.amount("demoted", expect.demoted.as_ref(), total.demoted);
    all.amount("rebalanced", expect.rebalanced.as_ref(), total.rebalanced);
    all.amount("refused", expect.refused.as_ref(), total.refused);
    all.amount("exact_hit", expect.exact_hit.as_ref(), total.exact_hit);
    all.amount("rule_hit", expect.rule_hit.as_ref(), total.rule_hit);
    let names = || config.steer.counters.iter().map(|name| name.get_ref().as_str());
    all.all_named(
        "counters",
        &expect.counters,
        names().zip(seen.counts.iter().map(|count| count.frames)),
    );
    for (name, count) in names().zip(&seen.counts) {
        all.amount(&format!("counter_bytes.{name}"), expect.counter_bytes.get(name), count.bytes);
    }
    let last = seen.sent.iter().flatten().map(|(_, at)| at / 1000).max().unwrap_or_default();
    all.amount("last_sent_us", expect.last_sent_us.as_ref(), last);

    if !matches!(&expect.in_order, Some(asked) if !asked.get_ref())
        && let Some(what) = disorder(config, plan, seen)
    {
        all.add(expect.in_order.as_ref().map(Spanned::span), what);
    }
    if let Some(pinned) = &expect.pinned {
        let got = shared(plan, seen);
        if got.is_none() != *pinned.get_ref() {
            let got =
                got.unwrap_or_else(|| "no two cores worked on the same flow at a time".into());
            all.add(
                Some(pinned.span()),
                format!("pinned: expected {}, got: {got}", pinned.get_ref()),
            );
        }
    }
    relations(expect, plan, seen, &mut all);
    for frame in &expect.frame {
        looks::compare(config, frame, seen, &mut all);
    }
    for flow in &expect.flow {
        one_flow(config, flow, plan, seen, &mut all);
    }
    all.list
}

/// The position of `in_order = false`, if the file has it.
pub(super) fn reordering(config: &Config) -> Option<Range<usize>> {
    let asked = config.expect.as_ref()?.get_ref().in_order.as_ref()?;
    (!asked.get_ref()).then(|| asked.span())
}

/// Describes a frame that left after a later frame of its flow, by the same port. `None` if there
/// is none, or if neither the file nor the configuration requires order.
pub(super) fn disorder(config: &Config, plan: &[Planned], seen: &Seen) -> Option<String> {
    let asked = config.expect.as_ref().is_some_and(|expect| expect.get_ref().in_order.is_some());
    let promised = config.yard.settle && config.queues().all(|q| q.order != Order::Unordered);
    if !asked && !promised {
        return None;
    }
    for (port, sent) in config.ports().zip(&seen.sent) {
        let mut latest: HashMap<(u16, FlowKey), usize> = HashMap::new();
        for &(number, at) in sent {
            let frame = &plan[number];
            let last = latest.entry((frame.port, frame.flow)).or_insert(number);
            if number < *last {
                let nth = |number: usize| {
                    let mine =
                        |other: &&Planned| (other.port, other.flow) == (frame.port, frame.flow);
                    plan[..number].iter().filter(mine).count() + 1
                };
                return Some(format!(
                    "in_order: expected true, got false: of {}, frame {} left {} at {at} ns, after frame {}",
                    frame.flow,
                    nth(number),
                    port.name.get_ref(),
                    nth(*last),
                ));
            }
            *last = number;
        }
    }
    None
}

/// Describes a flow that two cores worked on at the same time.
fn shared(plan: &[Planned], seen: &Seen) -> Option<String> {
    let mut open: HashMap<(u16, FlowKey), (u16, Nanos)> = HashMap::new();
    for work in &seen.worked {
        let frame = &plan[work.frame];
        let (core, done) = open.entry((frame.port, frame.flow)).or_insert((work.core, work.done));
        if *core != work.core && work.begin < *done {
            let flow = frame.flow;
            return Some(format!(
                "core {} takes {flow} at {} ns, while core {core} works on it until {done} ns",
                work.core, work.begin
            ));
        }
        (*core, *done) = (work.core, work.done.max(*done));
    }
    None
}

/// Compares `before` and `together`.
fn relations(expect: &ExpectConfig, plan: &[Planned], seen: &Seen, all: &mut Differs) {
    for pair in &expect.before {
        let last = |flow: &str| {
            let mine = seen.sent.iter().flatten().filter(|(number, _)| is(plan, *number, flow));
            mine.map(|(_, at)| *at).max()
        };
        let [first, second] = pair.get_ref();
        let (a, b) = (last(first), last(second));
        if a.is_none() || b.is_none() || a >= b {
            let tell = |at: Option<Nanos>| at.map_or("never".into(), |at| format!("at {at} ns"));
            let what = format!(
                "before: expected the last of {first} to leave first, got {} and {}",
                tell(a),
                tell(b)
            );
            all.add(Some(pair.span()), what);
        }
    }
    for flows in &expect.together {
        let cores: BTreeSet<_> =
            flows.get_ref().iter().flat_map(|f| cores(plan, seen, f)).collect();
        if cores.len() != 1 {
            let what = format!("together: expected one core for all, got cores {cores:?}");
            all.add(Some(flows.span()), what);
        }
    }
}

/// Compares the results of one flow.
fn one_flow(
    config: &Config,
    expect: &FlowExpect,
    plan: &[Planned],
    seen: &Seen,
    all: &mut Differs,
) {
    let flow = expect.flow.get_ref();
    let mine = |number: usize| is(plan, number, flow);
    let by_port =
        seen.sent.iter().map(|sent| sent.iter().filter(|(number, _)| mine(*number)).count() as u64);
    let by_port: Vec<_> = by_port.collect();
    all.amount(&format!("flow {flow}: sent"), expect.sent.as_ref(), by_port.iter().sum());
    if let Some(port) = &expect.port {
        let names = config.ports().map(|port| port.name.get_ref().as_str()).zip(&by_port);
        let got: Vec<_> = names.filter(|(_, frames)| **frames > 0).map(|(name, _)| name).collect();
        if got != [port.get_ref()] {
            let what = format!("flow {flow}: port: expected {}, got {got:?}", port.get_ref());
            all.add(Some(port.span()), what);
        }
    }
    let looks = seen.looks.iter().filter(|(number, _)| mine(*number));
    headers(expect, &looks.map(|(_, look)| look).collect::<Vec<_>>(), all);
    workers(expect, plan, seen, all);
}

/// Compares the headers of one flow's frames.
fn headers(expect: &FlowExpect, looks: &[&Look], all: &mut Differs) {
    let name = |what: &str| format!("flow {}: {what}", expect.flow.get_ref());
    if let Some(text) = &expect.eth
        && let Ok(FlowKey { eth_src, eth_dst, vlan_tci, .. }) = words::eth(text.get_ref())
    {
        let same = |look: &Look| {
            (look.eth_src, look.eth_dst) == (eth_src, eth_dst)
                && (vlan_tci == 0 || look.vlan == vlan_tci)
        };
        let other = looks.iter().find(|look| !same(look));
        if looks.is_empty() || other.is_some() {
            let got: Vec<_> = other.map(|look| look.eth()).into_iter().collect();
            let what = format!("{}: expected {}, got {got:?}", name("eth"), text.get_ref());
            all.add(Some(text.span()), what);
        }
    }
    if let Some(ttl) = &expect.ttl {
        let got: BTreeSet<_> = looks.iter().map(|look| look.ttl).collect();
        if got != BTreeSet::from([Some(*ttl.get_ref())]) {
            let what = format!("{}: expected {}, got {got:?}", name("ttl"), ttl.get_ref());
            all.add(Some(ttl.span()), what);
        }
    }
    if let Some(text) = &expect.becomes
        && let Ok(wanted) = words::key(text.get_ref())
    {
        // Ports of several flows, or of a pool, are 0 in the expected flow.
        let some = |port: u16, wanted: u16| if wanted == 0 { 0 } else { port };
        let mask = |key: FlowKey| FlowKey {
            sport: some(key.sport, wanted.sport),
            dport: some(key.dport, wanted.dport),
            ..key
        };
        let got: BTreeSet<String> = looks.iter().map(|look| mask(look.flow).to_string()).collect();
        if got != BTreeSet::from([wanted.flow().to_string()]) {
            let what = format!("{}: expected {}, got {got:?}", name("becomes"), text.get_ref());
            all.add(Some(text.span()), what);
        }
    }
    let hops: BTreeSet<_> = looks.iter().map(|look| look.eth_dst).collect();
    all.amount(&name("next_hops"), expect.next_hops.as_ref(), hops.len() as u64);
}

/// Compares the cores that worked on one flow.
fn workers(expect: &FlowExpect, plan: &[Planned], seen: &Seen, all: &mut Differs) {
    let flow = expect.flow.get_ref();
    let name = |what: &str| format!("flow {flow}: {what}");
    let on = cores(plan, seen, flow);
    all.amount(&name("cores"), expect.cores.as_ref(), on.len() as u64);
    let works = || seen.worked.iter().filter(|work| is(plan, work.frame, flow));
    if let Some(each) = &expect.cores_each {
        // A flow on which no core worked counts as one with 0 cores.
        let sent = (0..plan.len()).filter(|number| is(plan, *number, flow));
        let sent = sent.map(|number| (plan[number].flow.sport, BTreeSet::new()));
        let mut by_flow: BTreeMap<u16, BTreeSet<u16>> = sent.collect();
        for work in works() {
            by_flow.entry(plan[work.frame].flow.sport).or_default().insert(work.core);
        }
        for (sport, on) in by_flow {
            let what = format!("flow {flow}, source port {sport}: cores_each");
            all.amount(&what, Some(each), on.len() as u64);
        }
    }
    if let Some(wanted) = &expect.worked_by
        && on != wanted.get_ref().iter().copied().collect()
    {
        let what =
            format!("{}: expected cores {:?}, got {on:?}", name("worked_by"), wanted.get_ref());
        all.add(Some(wanted.span()), what);
    }
    if let Some(wanted) = &expect.last_on {
        let got = works().max_by_key(|work| work.frame).map(|work| work.core);
        if got != Some(*wanted.get_ref()) {
            let what =
                format!("{}: expected core {}, got {got:?}", name("last_on"), wanted.get_ref());
            all.add(Some(wanted.span()), what);
        }
    }
}

/// Whether frame `number` was sent as `flow`.
fn is(plan: &[Planned], number: usize, flow: &str) -> bool {
    words::key(flow).is_ok_and(|key| plan[number].said == key)
}

/// The cores that worked on `flow`.
fn cores(plan: &[Planned], seen: &Seen, flow: &str) -> BTreeSet<u16> {
    let mine = seen.worked.iter().filter(|work| is(plan, work.frame, flow));
    mine.map(|work| work.core).collect()
}

/// The differences found so far.
struct Differs {
    list: Vec<Differ>,
    /// The position of `[expect]`, for results that it does not name.
    whole: Range<usize>,
}

impl Differs {
    fn add(&mut self, at: Option<Range<usize>>, what: String) {
        self.list.push((at.unwrap_or_else(|| self.whole.clone()), what));
    }

    /// A result without an expectation is not compared.
    fn amount(&mut self, what: &str, expected: Option<&Spanned<Amount>>, got: u64) {
        if let Some(amount) = expected
            && !amount.get_ref().holds(got)
        {
            let what = format!("{what}: expected {}, got {got}", amount.get_ref());
            self.add(Some(amount.span()), what);
        }
    }

    /// The expected number is 0 for names that are not listed.
    fn all_named<'a>(
        &mut self,
        what: &str,
        expected: &BTreeMap<String, Spanned<Amount>>,
        got: impl Iterator<Item = (&'a str, u64)>,
    ) {
        for (name, got) in got {
            match expected.get(name) {
                Some(amount) => self.amount(&format!("{what}.{name}"), Some(amount), got),
                None if got == 0 => {}
                None => self.add(None, format!("{what}.{name}: expected 0 (not named), got {got}")),
            }
        }
    }
}

/// Returns the first mistake: unknown names, and expectations that cannot fail.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let Some(expect) = &config.expect else { return Ok(()) };
    let (whole, expect) = (expect.span(), expect.get_ref());
    if config.sim.seeds == 0 || config.sim.seeds > 10_000 {
        let what = format!("{} seeds are not possible", config.sim.seeds);
        return Err(config.error(whole, what, "write 1 to 10000"));
    }
    for (name, amount) in expect.sent.iter().chain(&expect.made) {
        flowyard_config::names::port_name(config, name, amount.span())?;
    }
    for (name, amount) in &expect.queue {
        let name = Spanned::new(amount.span(), name.clone());
        flowyard_config::names::queue_name(config, &name)?;
    }
    for (name, amount) in &expect.drops {
        let known = || DropReason::ALL.iter().map(|reason| reason.name());
        if !known().any(|reason| reason == name) {
            let fix = format!("choose one of {}", known().collect::<Vec<_>>().join(", "));
            return Err(config.error(
                amount.span(),
                format!("there is no drop reason '{name}'"),
                fix,
            ));
        }
    }
    for (name, amount) in expect.counters.iter().chain(&expect.counter_bytes) {
        flowyard_config::counter(config, &Spanned::new(amount.span(), name.clone()))?;
    }
    for becomes in expect.flow.iter().filter_map(|flow| flow.becomes.as_ref()) {
        if let Err(text) = words::key(becomes.get_ref()) {
            let (what, fix) = text.split_once("; ").unwrap_or((&text, "write a flow"));
            return Err(config.error(becomes.span(), what, fix));
        }
    }
    let cores = usize::from(*config.yard.cores.get_ref());
    if expect.core.len() > cores {
        let what = format!("[expect] lists {} cores, but there are {cores}", expect.core.len());
        return Err(config.error(whole, what, "write one entry for each core, from core 0"));
    }
    if let (Some(pinned), false) = (&expect.pinned, config.work.get_ref().cost_ns() > 0) {
        let what = "without a cost, no two cores work at a time";
        return Err(config.error(pinned.span(), what, "give [work] a cost_ns"));
    }
    let pairs =
        expect.before.iter().flat_map(|pair| pair.get_ref().iter().map(|f| (f, pair.span())));
    let sets = expect.together.iter().flat_map(|all| all.get_ref().iter().map(|f| (f, all.span())));
    let flows = expect.flow.iter().map(|flow| (flow.flow.get_ref(), flow.flow.span()));
    for (flow, span) in pairs.chain(sets).chain(flows) {
        let key = words::key(flow);
        let sent = |send: &Spanned<SendConfig>| words::key(send.get_ref().flow.get_ref());
        if key.is_err() || !config.send.iter().any(|send| sent(send) == key) {
            let what = format!("no [[send]] has the flow '{flow}'");
            return Err(config.error(span, what, "write it as in the [[send]]"));
        }
    }
    for text in expect.flow.iter().filter_map(|flow| flow.eth.as_ref()) {
        words::eth(text.get_ref()).map_err(|error| {
            let (what, fix) = error.split_once("; ").unwrap_or((&error, ""));
            config.error(text.span(), what, fix)
        })?;
    }
    looks::check(config, expect)?;
    for port in expect.flow.iter().filter_map(|flow| flow.port.as_ref()) {
        flowyard_config::names::port_name(config, port.get_ref(), port.span())?;
    }
    Ok(())
}
