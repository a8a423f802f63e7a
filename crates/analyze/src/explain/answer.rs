//! Builds an [`Explanation`] from the models of the policies, without a change of their state.

use std::collections::BTreeMap;

use flowyard_adapter::Rss;
use flowyard_adapter::fdir::{Flex, Folded, Input, MaskSet, Mode, Pballoc, VlanMask};
use flowyard_adapter::profile::FdirKind;
use flowyard_flow::Quic;
use flowyard_frame::{FlowKey, Frag, proto};

use super::rule::rule_for;
use super::{
    Answers, ChosenPort, Expect, ExpectAnswer, Explanation, FdirAnswer, InputField, Question,
    Reverse, RssAnswer, TenantCopy, TenantsAnswer, Verdict,
};
use crate::analyzer::{Analyzer, Target};
use crate::hashed::Hashed;
use crate::packet::Packet;
use crate::policy::{Fdir, Policy};
use crate::setup::{Setup, Spec};

impl Analyzer {
    /// Explains where `target` goes under every policy of the setup, and why.
    #[must_use]
    pub fn explain(&mut self, target: &Target, question: &Question) -> Explanation {
        let key = target.packet.key;
        let hashed = target.hashed.as_ref();
        let answers = self.answers(&target.packet, hashed);
        let reversed = Packet { key: key.reversed(), flow: None, ..target.packet };
        Explanation {
            flow: key.to_string(),
            packet: target.of.clone(),
            adapter: self.setup.adapter.name.to_owned(),
            queues: self.setup.queues,
            cores: self.setup.cores,
            rss_key: self.rss.as_ref().map(|_| self.setup.key_text()),
            rss_key_source: self.rss.as_ref().map(|_| self.setup.key_source.to_string()),
            notes: self.notes(target),
            reverse: Reverse {
                flow: key.reversed().to_string(),
                policies: self.answers(&reversed, None),
            },
            expect: question.expect_queue.map(|queue| self.expect(queue, &key, hashed, &answers)),
            choose_port: question.choose_port.map(|queue| self.choose(queue, &key, hashed)),
            policies: answers,
            kind: target.kind.clone(),
            tenants: self.tenants_answer(&target.packet, hashed),
        }
    }

    /// Who of the tenants gets the frame, which must have addresses.
    fn tenants_answer(&self, packet: &Packet, hashed: Option<&Hashed>) -> Option<TenantsAnswer> {
        let sorting = self.sorting.as_ref()?;
        let key = &packet.key;
        if key.eth_dst == [0; 6] {
            return None;
        }
        let (_, own_queue) = self.hash_of(key, hashed);
        let answer = sorting.answer(&Packet { own_queue, ..*packet });
        let bmc = sorting.tenants.bmc.as_ref().map(|bmc| bmc.decide(key, packet.icmp_type));
        Some(TenantsAnswer {
            copies: answer
                .copies
                .into_iter()
                .map(|copy| TenantCopy { pool: copy.pool, tenant: copy.tenant, queue: copy.queue })
                .collect(),
            why: answer.why,
            management: bmc.and_then(|found| found.to_bmc).map(|by| by.name().to_owned()),
            only_management: bmc.is_some_and(|found| !found.to_host),
        })
    }

    /// Remarks on the limits of the explanation.
    fn notes(&self, target: &Target) -> Vec<String> {
        let mut notes: Vec<_> = self.setup.key_note().into_iter().collect();
        notes.extend(self.setup.quic_note());
        let key = &target.packet.key;
        if self.sorting.is_some() && key.eth_dst == [0; 6] {
            notes.push("A flow has no MAC address, so no tenant is named. Add --to-mac, or name a packet of a capture, as FILE:N.".to_owned());
        }
        let is_quic = |quic: &Quic| key.proto == proto::UDP && quic.ports().contains(&key.dport);
        if target.of.is_none() && self.setup.quic.as_ref().is_some_and(is_quic) {
            notes.push("A flow has no connection ID, so this one is explained by its addresses and ports. To explain a packet by its ID, name it in a capture, as FILE:N.".to_owned());
        }
        notes
    }

    /// The hash of a frame, and the queue that RSS selects.
    fn hash_of(&self, key: &FlowKey, hashed: Option<&Hashed>) -> (Option<u32>, u16) {
        match (hashed, &self.rss) {
            (Some(hashed), Some(rss)) => {
                let hash = hashed.hash(rss, key);
                (hash, rss.queue(hash))
            }
            _ => self.hash(key),
        }
    }

    /// The decision of every policy on a frame, as if the adapter received it.
    fn answers(&mut self, packet: &Packet, hashed: Option<&Hashed>) -> Answers {
        let (hash, rss_queue) = self.hash_of(&packet.key, hashed);
        let l4_hash = self.is_l4(&packet.key, hashed);
        let packet = Packet { received: true, hash, l4_hash, rss_queue, ..*packet };
        let mut verdicts: BTreeMap<&str, Verdict> = self
            .policies
            .iter_mut()
            .map(|policy| (policy.name(), policy.explain(&packet)))
            .collect();
        Answers {
            rss: (self.rss.as_ref()).map(|rss| rss_answer(rss, &packet, hashed, &self.setup)),
            fdir: fdir_answer(&packet, &self.setup, self.rule_mask(), verdicts.remove("fdir")),
            atr: verdicts.remove("atr"),
            rps: verdicts.remove("rps"),
            rfs: verdicts.remove("rfs"),
            arfs: verdicts.remove("arfs"),
            yard: verdicts.remove("yard"),
            rebalance: verdicts.remove("rebalance"),
        }
    }

    /// On the 82599, the mask set that the rules of the setup have fixed.
    fn rule_mask(&self) -> Option<MaskSet> {
        self.policies.iter().find_map(|running| match &running.policy {
            Policy::Fdir(fdir) => fdir.mask(),
            _ => None,
        })
    }

    fn expect(
        &self,
        queue: u16,
        key: &FlowKey,
        hashed: Option<&Hashed>,
        answers: &Answers,
    ) -> Expect {
        let answer = |(name, verdict): (&str, &Verdict)| {
            let holds = verdict.queue == Some(queue);
            let why_not = (!holds).then(|| match verdict.queue {
                Some(other) => format!("the frame goes to queue {other}: {}", verdict.why),
                None => format!("the frame is dropped: {}", verdict.why),
            });
            let fix = if holds { Vec::new() } else { self.fixes(name, queue, key, hashed) };
            (name.to_owned(), ExpectAnswer { holds, why_not, fix })
        };
        Expect { queue, policies: answers.verdicts().map(answer).collect() }
    }

    /// The changes after which the flow goes to `queue` under a policy.
    fn fixes(
        &self,
        policy: &str,
        queue: u16,
        key: &FlowKey,
        hashed: Option<&Hashed>,
    ) -> Vec<String> {
        let mut fixes = Vec::new();
        if policy == "rss"
            && let Some(rss) = &self.rss
        {
            let name = self.setup.adapter.name;
            match self.hash_of(key, hashed).0.map(|hash| rss.index(hash)) {
                _ if queue >= rss.queues() => fixes.push(format!(
                    "RSS of the {name} only uses queues 0 to {}; a filter can steer to queue {queue}",
                    rss.queues() - 1
                )),
                Some(index) => fixes.push(format!(
                    "set entry {index} of the indirection table to queue {queue}; no ethtool command sets a single entry, 'ethtool -X IFACE weight W0 W1 ...' sets all {} in blocks; other flows with this entry move as well",
                    rss.reta().len()
                )),
                None => fixes.push("the frame has no hash, so only a filter can change its queue".to_owned()),
            }
            if let ChosenPort { port: Some(port), .. } = self.choose(queue, key, hashed) {
                fixes.push(format!("connect from source port {port}"));
            }
        }
        if matches!(policy, "rss" | "fdir") && self.setup.adapter.fdir.is_modelled() {
            fixes.extend(self.rule_fix(key, queue));
        }
        if matches!(policy, "atr" | "yard" | "arfs") {
            fixes.push(self.thread_fix(policy, key, queue));
        }
        if matches!(policy, "rps" | "rfs") {
            fixes.push(
                "this policy changes only the core: the adapter selects the queue".to_owned(),
            );
        }
        fixes
    }

    /// The rule that steers the flow to `queue`, or the reason for which no rule can.
    fn rule_fix(&self, key: &FlowKey, queue: u16) -> Option<String> {
        let fragment = key.fragment() != Frag::No;
        if fragment && matches!(self.setup.adapter.fdir, FdirKind::Ixgbe { .. }) {
            return Some(
                "no rule can: Flow Director of this adapter never matches IP fragments".to_owned(),
            );
        }
        let rule = rule_for(key, queue)?;
        Some(match Fdir::refusal(&rule, &self.setup) {
            None => format!("add the rule: ethtool -N IFACE {rule}"),
            Some(why) => format!("no rule for only this flow can: {why}"),
        })
    }

    /// The core on which a thread must run so that the policy learns `queue`, or the reason for which
    /// it cannot learn it.
    fn thread_fix(&self, policy: &str, key: &FlowKey, queue: u16) -> String {
        let Setup { adapter, queues, cores, .. } = &self.setup;
        let learnt = key.proto == proto::TCP || policy == "arfs" && key.proto == proto::UDP;
        if !learnt || key.fragment() != Frag::No {
            let only = if policy == "arfs" { "TCP and UDP" } else { "TCP" };
            return format!(
                "not possible: {policy} never learns fragments, and only learns {only}"
            );
        }
        let rings = if policy == "atr" { adapter.reach(*queues).atr } else { *queues };
        if queue >= rings.min(*cores) {
            return format!(
                "not possible: with {cores} cores, {policy} steers flows only to queues 0 to {}",
                rings.min(*cores).saturating_sub(1)
            );
        }
        match policy {
            "arfs" => format!(
                "run the thread that consumes this flow on core {queue}: then the driver programs a filter for it"
            ),
            _ => format!(
                "run the thread that answers this flow on core {queue}: the filter is learned from its packets"
            ),
        }
    }

    /// The smallest unprivileged source port with which RSS selects `queue`.
    fn choose(&self, queue: u16, key: &FlowKey, hashed: Option<&Hashed>) -> ChosenPort {
        let mut chosen = ChosenPort { queue, port: None, flow: None, ports_that_fit: 0, why: None };
        let has_ports = matches!(key.proto, proto::TCP | proto::UDP | proto::SCTP);
        if !has_ports {
            chosen.why = Some("this protocol has no ports".to_owned());
            return chosen;
        }
        if let Some(Hashed::Id { .. }) = hashed {
            chosen.why = Some("the connection ID is hashed, and no port".to_owned());
            return chosen;
        }
        let lands = |sport: u16| self.hash_of(&FlowKey { sport, ..*key }, hashed).1 == queue;
        let fits: Vec<u16> = (0..=u16::MAX).filter(|&sport| lands(sport)).collect();
        chosen.ports_that_fit = fits.len() as u32;
        chosen.port = fits.iter().copied().find(|&port| port >= 1024).or(fits.first().copied());
        chosen.flow = chosen.port.map(|sport| FlowKey { sport, ..*key }.to_string());
        if chosen.port.is_none() {
            chosen.why = Some(match &self.rss {
                None => "the adapter computes no hash: all frames go to queue 0".to_owned(),
                Some(rss) if queue >= rss.queues() => {
                    format!("RSS only uses queues 0 to {}", rss.queues() - 1)
                }
                Some(rss) => self.why_no_port(rss, queue, key),
            });
        }
        chosen
    }
}

impl Analyzer {
    /// Why no source port gets `queue` from RSS, although RSS uses it.
    fn why_no_port(&self, rss: &Rss, queue: u16, key: &FlowKey) -> String {
        let hash = |sport: u16| rss.hash(&FlowKey { sport, ..*key });
        let first = hash(0);
        if (1..=u16::MAX).any(|sport| hash(sport) != first) {
            return match rss.reta().contains(&queue) {
                true => format!(
                    "the hash depends on the port, but with this key no port gets an entry of queue {queue}"
                ),
                false => format!("no entry of the indirection table has queue {queue}"),
            };
        }
        match key.proto {
            _ if key.fragment() != Frag::No => {
                "the adapter hashes only the addresses of fragments".to_owned()
            }
            proto::UDP => format!(
                "the adapter hashes only the addresses of UDP as it is set; let it hash the ports, too: --udp 4-tuple \
                 (on a port: ethtool -N IFACE rx-flow-hash udp{} sdfn)",
                if key.is_ipv6() { 6 } else { 4 }
            ),
            _ if first.is_none() => "the adapter does not hash this protocol".to_owned(),
            _ => "the adapter does not hash the ports of this protocol as it is set, or its key does not \
                  depend on them"
                .to_owned(),
        }
    }
}

impl Target {
    /// A flow in the direction that the adapter receives, without a capture.
    #[must_use]
    pub fn flow(key: FlowKey) -> Self {
        let packet = Packet::new(key, 0, 64);
        Self { packet, hashed: None, of: None, kind: Vec::new() }
    }
}

impl Answers {
    /// The verdicts that are present, with the names of their policies.
    pub fn verdicts(&self) -> impl Iterator<Item = (&'static str, &Verdict)> {
        let rss = self.rss.as_ref().map(|rss| &rss.verdict);
        let fdir = self.fdir.as_ref().map(|fdir| &fdir.verdict);
        let others = [&self.atr, &self.rps, &self.rfs, &self.arfs, &self.yard, &self.rebalance]
            .map(Option::as_ref);
        let names = ["atr", "rps", "rfs", "arfs", "yard", "rebalance"];
        [("rss", rss), ("fdir", fdir)]
            .into_iter()
            .chain(names.into_iter().zip(others))
            .filter_map(|(name, verdict)| Some((name, verdict?)))
    }
}

fn rss_answer(rss: &Rss, packet: &Packet, hashed: Option<&Hashed>, setup: &Setup) -> RssAnswer {
    let key = &packet.key;
    let explained = hashed.map_or_else(|| rss.explain(key), |hashed| hashed.explain(rss, key));
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    RssAnswer {
        hash_type: explained.hash.map(|_| explained.hash_type.to_owned()),
        input: explained
            .input
            .iter()
            .map(|field| InputField { field: field.name.to_owned(), bytes: hex(&field.bytes) })
            .collect(),
        hash: explained.hash.map(|hash| format!("0x{hash:08x}")),
        l4_hash: explained.hash.is_some() && packet.l4_hash,
        index: explained.index.map(u32::from),
        entries: rss.reta().len() as u32,
        verdict: Verdict {
            queue: Some(explained.queue),
            core: Some(setup.core_of(explained.queue)),
            stage: if explained.hash.is_some() { "rss" } else { "no_hash" }.to_owned(),
            why: explained.why,
        },
    }
}

fn fdir_answer(
    packet: &Packet,
    setup: &Setup,
    mask: Option<MaskSet>,
    ruled: Option<Verdict>,
) -> Option<FdirAnswer> {
    if !setup.adapter.fdir.is_modelled() {
        return None;
    }
    // Policies that do not use the filters of the adapter were chosen.
    let uses = |spec: &Spec| matches!(spec, Spec::Fdir(_) | Spec::Atr | Spec::Arfs);
    if !setup.policies.iter().any(uses) {
        return None;
    }
    let has_rules = setup.policies.iter().any(|spec| matches!(spec, Spec::Fdir(_)));
    let verdict = ruled.unwrap_or_else(|| Verdict {
        queue: Some(packet.rss_queue),
        core: Some(setup.core_of(packet.rss_queue)),
        stage: if packet.hash.is_some() { "rss" } else { "no_hash" }.to_owned(),
        why: "no rules are given (--policy fdir=FILE), so RSS decides".to_owned(),
    });
    let matched = match verdict.stage.as_str() {
        "rule" | "dropped" => "rule",
        _ => "none",
    };
    let mut answer = FdirAnswer {
        mode: if has_rules { "perfect" } else { "signature" }.to_owned(),
        bucket_hash: None,
        signature_hash: None,
        fdirhash: None,
        bucket: None,
        perfect_bucket_hash: None,
        matched: matched.to_owned(),
        verdict,
    };
    if let FdirKind::Ixgbe { .. } = setup.adapter.fdir {
        hashes(&packet.key, setup, has_rules.then_some(mask), &mut answer);
    }
    Some(answer)
}

/// The hashes of a flow on the 82599 in both modes. `rules` is present in perfect mode, with the mask
/// set that the rules have fixed, if any is accepted.
fn hashes(key: &FlowKey, setup: &Setup, rules: Option<Option<MaskSet>>, answer: &mut FdirAnswer) {
    let perfect_mask = MaskSet { flex: Flex::Masked, ..MaskSet::ATR };
    debug_assert_eq!(perfect_mask.vlan, VlanMask::Both);
    let folded = |mask: &MaskSet| Input::from_key(key, mask).ok().map(|input| input.folded());
    let widest = |folded: Folded, mode: Mode| folded.bucket(mode, Pballoc::K256);
    if let Some(signature) = folded(&MaskSet::ATR) {
        answer.bucket_hash = Some(format!("0x{:04x}", widest(signature, Mode::Signature)));
        answer.signature_hash = Some(format!("0x{:04x}", signature.signature()));
        answer.fdirhash = Some(format!("0x{:08x}", signature.atr_fdirhash()));
        answer.bucket = Some(format!("0x{:04x}", signature.bucket(Mode::Signature, setup.pballoc)));
    }
    if let Some(whole) = folded(&perfect_mask) {
        answer.perfect_bucket_hash = Some(format!("0x{:04x}", widest(whole, Mode::Perfect)));
    }
    if let Some(mask) = rules
        && let Some(masked) = folded(&mask.unwrap_or(perfect_mask))
    {
        answer.bucket_hash = Some(format!("0x{:04x}", widest(masked, Mode::Perfect)));
        answer.bucket = Some(format!("0x{:04x}", masked.bucket(Mode::Perfect, setup.pballoc)));
    }
}
