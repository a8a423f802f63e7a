//! What an analysis means, in sentences, with the commands that follow from it.
//!
//! All numbers are computed from what the host receives: the packets of each entry of the indirection table, and which flow is
//! the largest. Fragments and QUIC packets of one flow can belong to other entries than its key does.

use flowyard_adapter::profile::{FdirKind, Support};
use flowyard_frame::{FlowKey, proto};

use crate::analyzer::Analyzer;
use crate::explain::rule::rule_for;
use crate::policy::Fdir;
use crate::summary::{Finding, PolicySummary, Traffic};

/// A load of this many times the mean is even enough.
const EVEN: f64 = 1.25;

/// What RSS gives the queues.
struct View {
    /// Packets of each entry of the indirection table.
    entries: Vec<u64>,
    /// Packets without a hash, which go to queue 0.
    unhashed: u64,
    /// Packets of each queue that RSS can address.
    queues: Vec<u64>,
    flows: u64,
    packets: u64,
    bytes: u64,
    /// The flow with the most packets: its key, packets and bytes.
    largest: (FlowKey, u64, u64),
}

impl Analyzer {
    /// The findings, the most important one first.
    pub(crate) fn verdict(&self, policies: &[PolicySummary], traffic: &Traffic) -> Vec<Finding> {
        let Some(view) = self.view(traffic) else {
            return vec![Finding::new(
                "The host receives no flow in this capture (see --local), so there is nothing to steer.",
            )];
        };
        let mut findings = vec![match self.elephant(&view) {
            Some(finding) => finding,
            None => self.spread(&view),
        }];
        findings.extend(self.more_cores(&view, policies));
        findings.extend(self.locality(policies));
        findings.extend(rebalancing(policies));
        findings.extend(reordering(policies));
        findings
    }

    fn view(&self, traffic: &Traffic) -> Option<View> {
        let entries = self.entries.clone();
        let (mut flows, mut packets, mut bytes) = (0, 0, 0);
        let mut largest = (FlowKey::ZERO, 0, 0);
        for flow in self.flows.received() {
            let key = self.flows.key(flow.id);
            flows += 1;
            packets += flow.packets;
            bytes += flow.bytes;
            if (flow.packets, flow.bytes) > (largest.1, largest.2) {
                largest = (key, flow.packets, flow.bytes);
            }
        }
        if flows == 0 {
            return None;
        }
        let unhashed = traffic.received.saturating_sub(entries.iter().sum());
        let mut queues = vec![0; self.rss.as_ref().map_or(1, |rss| rss.queues().into())];
        queues[0] = unhashed;
        for (entry, load) in entries.iter().enumerate() {
            let queue = self.rss.as_ref().map_or(0, |rss| rss.reta()[entry]);
            queues[usize::from(queue)] += load;
        }
        Some(View { entries, unhashed, queues, flows, packets, bytes, largest })
    }

    /// One flow that alone overloads its queue.
    fn elephant(&self, view: &View) -> Option<Finding> {
        let (key, packets, bytes) = &view.largest;
        let queues = view.queues.len();
        let alone = ratio(*packets, queues, view.total());
        if queues < 2 || alone < EVEN {
            return None;
        }
        let shares = format!(
            "{} of the received bytes ({} of the packets)",
            percent(*bytes, view.bytes),
            percent(*packets, view.packets)
        );
        let mut finding = Finding::new(format!(
            "One flow is {shares}: {key}. A hash sends all packets of a flow to one queue, so the busiest of {queues} queues has at least {alone:.1} times the mean load, and no indirection table can change this. Give the flow a core of its own, or split it over cores in order (flowyard run; see docs/examples/elephants.toml)."
        ));
        self.add_rule(key, queues as u16 - 1, &mut finding);
        Some(finding)
    }

    /// Adds the commands that give a flow a queue of its own, or why there are none.
    fn add_rule(&self, key: &FlowKey, queue: u16, finding: &mut Finding) {
        let adapter = self.setup.adapter;
        if proto::has_ports(key.proto) && (key.sport, key.dport) == (0, 0) {
            finding.text +=
                " It consists of later fragments, which have no ports for a rule to match.";
            return;
        }
        let Some(rule) = rule_for(key, queue) else { return };
        let refusal = match adapter.fdir {
            FdirKind::NotModelled { ip_flows: Support::Yes, .. } => {
                finding.text += " Which rules the device accepts is not modelled.";
                None
            }
            FdirKind::NotModelled { ip_flows: Support::Unknown, .. } => {
                finding.text +=
                    " Whether this adapter takes rules that could name the flow is not known.";
                return;
            }
            _ if !adapter.fdir.is_modelled() => {
                finding.text += " This adapter has no rules that could name the flow.";
                return;
            }
            _ => Fdir::refusal(&rule, &self.setup),
        };
        match refusal {
            None => {
                finding.commands = vec![
                    "ethtool -K IFACE ntuple on".to_owned(),
                    format!("ethtool -X IFACE equal {queue}"),
                    format!("ethtool -N IFACE {rule}"),
                ];
            }
            Some(why) => {
                finding.text += &format!(" No rule of this adapter names only this flow: {why}.");
            }
        }
    }

    /// How evenly RSS spreads flows none of which is too large.
    fn spread(&self, view: &View) -> Finding {
        let queues = view.queues.len();
        let max = view.queues.iter().copied().max().unwrap_or(0);
        let now = ratio(max, queues, view.total());
        if queues < 2 {
            let why = if self.rss.is_some() { "one receive queue" } else { "no RSS" };
            return Finding::new(format!("All packets arrive on queue 0, because there is {why}."));
        }
        if now < EVEN {
            return Finding::new(format!(
                "RSS spreads the received packets evenly: the busiest of {queues} queues has {now:.2} times the mean load. No indirection table or rule is needed."
            ));
        }
        let mut text = format!(
            "RSS gives the busiest of {queues} queues {now:.2} times the mean load, although no flow is too large."
        );
        if view.flows < queues as u64 {
            text += &format!(" The host receives only {} flows.", view.flows);
        }
        if !self.setup.key_source.is_real() {
            text += " Which queue that is depends on the key. With the key of the port (--rss-from), this report names weights for its indirection table.";
            return Finding::new(text);
        }
        let weights = weights(&view.entries, view.unhashed, queues);
        let best = ratio(heaviest(&weights, view), queues, view.total());
        if best > 0.9 * now {
            text += &format!(
                " No weights of the indirection table do much better with these flows (the best: {best:.2}); use RPS or fewer queues."
            );
            return Finding::new(text);
        }
        text += &format!(
            " With these weights of its indirection table, the same flows give {best:.2}."
        );
        let weights: Vec<_> = weights.iter().map(ToString::to_string).collect();
        Finding { text, commands: vec![format!("ethtool -X IFACE weight {}", weights.join(" "))] }
    }

    /// Cores that no queue of RSS reaches.
    fn more_cores(&self, view: &View, policies: &[PolicySummary]) -> Option<Finding> {
        let cores = usize::from(self.setup.cores);
        let max = view.queues.iter().copied().max().unwrap_or(0);
        let rps = policies.iter().find(|policy| policy.name == "rps")?.imbalance.cores?;
        let now = ratio(max, cores, view.total());
        if view.queues.len() >= cores || rps > 0.8 * now {
            return None;
        }
        let text = format!(
            "RSS reaches {} of the {cores} cores. RPS spreads the packets over all of them in software: the busiest core then has {rps:.2} times the mean load, instead of {now:.2}.",
            view.queues.len()
        );
        Some(Finding { text, commands: vec![self.rps_cpus()] })
    }

    /// Packets that arrive on another core than the one that reads them.
    fn locality(&self, policies: &[PolicySummary]) -> Option<Finding> {
        let of = |name: &str| policies.iter().find(|policy| policy.name == name)?.locality;
        let (rss, rfs) = (of("rss").or(of("rps"))?, of("rfs")?);
        if rfs - rss < 0.2 {
            return None;
        }
        let text = format!(
            "{:.1} % of the packets arrive on the core of the thread that reads them. With RFS, this share is {:.1} %. Both figures assume that threads stay on their cores (--consumer), because a capture does not show where threads run.",
            100.0 * rss,
            100.0 * rfs
        );
        let entries = self.setup.sock_flow_entries;
        let each = self.setup.flow_cnt;
        let commands = vec![
            format!("echo {entries} > /proc/sys/net/core/rps_sock_flow_entries"),
            format!(
                "for f in /sys/class/net/IFACE/queues/rx-*/rps_flow_cnt; do echo {each} > $f; done"
            ),
            self.rps_cpus(),
        ];
        Some(Finding { text, commands })
    }

    /// The command that lets every queue use all cores for RPS.
    fn rps_cpus(&self) -> String {
        let mask = mask(self.setup.cores);
        format!("for f in /sys/class/net/IFACE/queues/rx-*/rps_cpus; do echo {mask} > $f; done")
    }
}

impl View {
    /// All packets that the host receives.
    fn total(&self) -> u64 {
        self.queues.iter().sum()
    }
}

impl Finding {
    fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), commands: Vec::new() }
    }
}

/// What moving entries of the indirection table does.
fn rebalancing(policies: &[PolicySummary]) -> Option<Finding> {
    let (policy, moves) = policies.iter().find_map(|one| Some((one, one.rebalance.as_ref()?)))?;
    let (before, after) = (moves.mean_imbalance_of_rss?, moves.mean_imbalance?);
    let busy = match moves.busy_entries {
        0 => String::new(),
        n => format!(" {n} entries that should have moved never paused long enough, and stayed."),
    };
    if moves.moves == 0 {
        return Some(Finding::new(format!(
            "No entry of the indirection table was moved: the busiest queue has on average {before:.2} times the mean load of its window.{busy}"
        )));
    }
    let mut finding = Finding::new(format!(
        "Moving entries of the indirection table while their flows pause changes the load of the busiest queue from {before:.2} to {after:.2} times the mean of its window, with {} moves; {} packets could be reordered.{busy}",
        moves.moves, policy.reorder.packets
    ));
    let time = |nanos: u64| format!("{}us", nanos / 1000);
    finding.commands = vec![format!(
        "flowyard rebalance IFACE --every {} --pause {} --even {}",
        time(moves.window_ns),
        time(moves.pause_ns),
        moves.even
    )];
    Some(finding)
}

/// Policies that could reorder packets.
fn reordering(policies: &[PolicySummary]) -> Option<Finding> {
    let (bad, good): (Vec<_>, Vec<_>) =
        policies.iter().partition(|policy| policy.reorder.packets > 0);
    if bad.is_empty() {
        return None;
    }
    let worst: Vec<_> = bad
        .iter()
        .map(|policy| format!("{} {} packets", policy.name, policy.reorder.packets))
        .collect();
    let mut text = format!("Packets could be reordered: {}.", worst.join(", "));
    if !good.is_empty() {
        let good: Vec<_> = good.iter().map(|policy| policy.name.as_str()).collect();
        text += &format!(" No packet could be reordered under {}.", good.join(", "));
    }
    Some(Finding::new(text))
}

/// Weights for `ethtool -X`, one for each queue, so that the largest load is as small as possible. Their sum
/// is the number of entries, so a queue gets as many consecutive entries as its weight.
fn weights(entries: &[u64], unhashed: u64, queues: usize) -> Vec<u32> {
    let total = entries.iter().sum::<u64>() + unhashed;
    let (mut least, mut most) = (0, total);
    while least < most {
        let cap = least + (most - least) / 2;
        match blocks(entries, unhashed, queues, cap) {
            Some(_) => most = cap,
            None => least = cap + 1,
        }
    }
    blocks(entries, unhashed, queues, most).unwrap_or_default()
}

/// Consecutive blocks of entries of at most `cap` packets each; `None` if `queues` blocks are too few.
fn blocks(entries: &[u64], unhashed: u64, queues: usize, cap: u64) -> Option<Vec<u32>> {
    let mut sizes = vec![0; queues];
    let (mut queue, mut load) = (0, unhashed);
    if unhashed > cap {
        return None;
    }
    for &entry in entries {
        while load + entry > cap {
            (queue, load) = (queue + 1, 0);
            if queue == queues || entry > cap {
                return None;
            }
        }
        load += entry;
        sizes[queue] += 1;
    }
    Some(sizes)
}

/// The largest load of a queue with these weights.
fn heaviest(weights: &[u32], view: &View) -> u64 {
    let mut at = 0;
    let loads = weights.iter().enumerate().map(|(queue, &weight)| {
        let block = &view.entries[at..at + weight as usize];
        at += weight as usize;
        block.iter().sum::<u64>() + if queue == 0 { view.unhashed } else { 0 }
    });
    loads.max().unwrap_or(0)
}

/// A load over the mean load of `parts`.
fn ratio(load: u64, parts: usize, total: u64) -> f64 {
    load as f64 * parts as f64 / total.max(1) as f64
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.0} %", 100.0 * part as f64 / whole.max(1) as f64)
}

/// The CPU mask of the first `cores` CPUs, as the kernel reads it: groups of 32 bits, the highest first.
fn mask(cores: u16) -> String {
    let (whole, rest) = (cores / 32, cores % 32);
    let first = (rest > 0).then(|| format!("{:x}", (1_u64 << rest) - 1));
    let groups: Vec<_> =
        first.into_iter().chain(std::iter::repeat_n("ffffffff".to_owned(), whole.into())).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_masks_are_what_the_kernel_reads() {
        assert_eq!(mask(1), "1");
        assert_eq!(mask(6), "3f");
        assert_eq!(mask(32), "ffffffff");
        assert_eq!(mask(40), "ff,ffffffff");
    }

    #[test]
    fn weights_make_the_largest_load_as_small_as_possible() {
        // Against every way to cut the entries into consecutive blocks.
        let mut random = flowyard_frame::Rng::new(7);
        for _ in 0..200 {
            let entries: Vec<u64> = (0..8).map(|_| random.below(100)).collect();
            let unhashed = random.below(60);
            let found = weights(&entries, unhashed, 3);
            assert_eq!(found.iter().sum::<u32>(), 8);
            let load = |sizes: &[u32]| {
                let mut at = 0;
                let each = sizes.iter().enumerate().map(|(i, &size)| {
                    at += size as usize;
                    entries[at - size as usize..at].iter().sum::<u64>()
                        + if i == 0 { unhashed } else { 0 }
                });
                each.max().unwrap()
            };
            let all = (0..=8_u32).flat_map(|a| (0..=8 - a).map(move |b| [a, b, 8 - a - b]));
            assert_eq!(load(&found), all.map(|sizes| load(&sizes)).min().unwrap());
        }
    }
}
