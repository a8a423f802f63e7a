//! What the adapter would do with a frame under given settings: queue and CPU.

use std::collections::{BTreeMap, BTreeSet};

use flowyard_adapter::Rss;
use flowyard_adapter::linux::is_l4_hash;
use flowyard_adapter::rss::{FlowType, HashFields, Hfunc};
use flowyard_adapter::rules::RuleAction;
use flowyard_frame::FlowKey;

use crate::cpus;
use crate::files::unhex;
use crate::machine::Feature;
use crate::rules::{Matcher, NEW_CONTEXT};
use crate::setting::{Setting, Settings, queues, table};
use crate::state::{State, fields_in};

/// The receive side under given settings.
#[derive(Clone, Debug)]
pub struct Card {
    rss: Option<Rss>,
    /// The other contexts, by number.
    contexts: BTreeMap<u32, Rss>,
    rules: Matcher,
    /// Why the queue of a flow is not known.
    why: Option<String>,
    queues: u32,
    /// The CPU that a queue interrupts, if it is one.
    cpus: BTreeMap<u32, u32>,
    /// The driver, if it hands the hash over to Linux.
    hash_from: Option<String>,
    /// The CPUs of RPS of a queue.
    rps: BTreeMap<u32, Vec<u32>>,
}

/// Where a flow's frames are processed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// On this CPU.
    Cpu(u32),
    /// On one of these CPUs, chosen by a hash with a secret key.
    OneOf(Vec<u32>),
    /// On the CPU that the interrupt happens to run on.
    Unknown,
}

impl Card {
    /// The card of `state`, under `settings` instead of its own.
    #[must_use]
    pub fn new(state: &State, settings: &Settings) -> Self {
        let (key, table) = (settings.get(&Setting::Key), settings.get(&Setting::Table));
        let (rss, why) =
            match rss(state, settings, key.map(String::as_str), table.map(String::as_str)) {
                Ok(rss) => (Some(rss), None),
                Err(why) => (None, Some(why)),
            };
        let list = |text: &String| cpus::from_list(text).unwrap_or_default();
        let mut of_queue = BTreeMap::new();
        for one in state.interrupts.value().into_iter().flatten() {
            let Some(&queue) = one.rx_queue.value() else { continue };
            let planned = settings.get(&Setting::Affinity(one.irq)).map(list);
            let affinity = planned.as_deref().or(one.affinity.value().map(Vec::as_slice));
            let is_changed = planned.as_ref() != one.affinity.value();
            let effective = one.effective.value().filter(|_| !is_changed).map(Vec::as_slice);
            let single = |cpus: Option<&[u32]>| match cpus {
                Some([cpu]) => Some(*cpu),
                _ => None,
            };
            let cpu = single(affinity).or_else(|| single(effective));
            of_queue.extend(cpu.map(|cpu| (queue, cpu)));
        }
        // If the features are not known, the driver is taken to hand over the hash.
        let is_off = |feature: &Feature| feature.name == "rx-hashing" && !feature.on;
        let hashes = !state.features.value().is_some_and(|all| all.iter().any(is_off));
        let hash_from = state.driver.value().filter(|_| hashes).map(|driver| driver.name.clone());
        let rps = settings.iter().filter_map(|(setting, value)| match setting {
            Setting::Rps(queue) => Some((*queue, list(value))),
            _ => None,
        });
        Self {
            rss,
            contexts: contexts(state, settings),
            rules: Matcher::new(state, settings),
            why,
            queues: queues(state, settings).unwrap_or(1),
            cpus: of_queue,
            hash_from,
            rps: rps.filter(|(_, cpus)| !cpus.is_empty()).collect(),
        }
    }

    /// Why the queue of a flow is not known; `None` if it is.
    #[must_use]
    pub fn why_not(&self) -> Option<&str> {
        if self.queues == 1 { None } else { self.why.as_deref() }
    }

    /// Why no table of RSS decides the queue of a flow; `None` if one does.
    #[must_use]
    pub fn no_rss(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// The number of queues.
    #[must_use]
    pub const fn queues(&self) -> u32 {
        self.queues
    }

    /// The CPU that a queue interrupts, if it is one.
    #[must_use]
    pub fn cpu_of(&self, queue: u32) -> Option<u32> {
        self.cpus.get(&queue).copied()
    }

    /// The hash of a flow, if the adapter computes one.
    #[must_use]
    pub fn hash(&self, key: &FlowKey) -> Option<u32> {
        self.rss.as_ref()?.hash(key)
    }

    /// The hash of a flow by which RPS selects a CPU, if it is not the kernel's own: the driver must mark it as one that
    /// covers ports.
    fn rps_hash(&self, key: &FlowKey) -> Option<u32> {
        let (driver, rss) = (self.hash_from.as_deref()?, self.rss.as_ref()?);
        rss.hash(key).filter(|_| is_l4_hash(driver, rss, key))
    }

    /// The entry of the table that decides the queue of a flow; `None` if the adapter computes no hash, or a rule
    /// decides.
    #[must_use]
    pub fn entry(&self, key: &FlowKey) -> Option<usize> {
        let rss = self.rss.as_ref()?;
        let hash = rss.hash(key)?;
        self.rules.lookup(key).is_none().then(|| rss.index(hash).into())
    }

    /// Rules whose matches are not modelled.
    #[must_use]
    pub fn unknown_rules(&self) -> &[Setting] {
        &self.rules.unknown
    }

    /// What a rule does with a flow; `None` if no rule matches it.
    pub(crate) fn rule(&self, key: &FlowKey) -> Option<RuleAction> {
        self.rules.lookup(key)
    }

    /// The queues to which rules steer, and those of RSS contexts.
    pub(crate) fn queues_of_rules(&self) -> BTreeSet<u32> {
        let contexts = self.contexts.values().flat_map(Rss::reta);
        contexts.map(|queue| (*queue).into()).chain(self.rules.queues.iter().copied()).collect()
    }

    /// The queue of a flow, if it is known.
    #[must_use]
    pub fn queue(&self, key: &FlowKey) -> Option<u32> {
        match self.rules.lookup(key) {
            Some(RuleAction::Queue(queue)) => return Some(queue),
            Some(RuleAction::Context { context, queue }) => {
                let rss = self.contexts.get(&context)?;
                return Some(queue + u32::from(rss.queue(rss.hash(key))));
            }
            Some(_) => return None,
            None => {}
        }
        match &self.rss {
            Some(rss) => Some(rss.queue(rss.hash(key)).into()),
            None => (self.queues == 1).then_some(0),
        }
    }

    /// Where the frames of a flow are processed.
    #[must_use]
    pub fn place(&self, key: &FlowKey) -> Place {
        let Some(queue) = self.queue(key) else { return self.place_without_queue() };
        let Some(cpus) = self.rps.get(&queue) else {
            return self.cpus.get(&queue).map_or(Place::Unknown, |cpu| Place::Cpu(*cpu));
        };
        match (self.rps_hash(key), cpus.as_slice()) {
            (_, [cpu]) => Place::Cpu(*cpu),
            (Some(hash), cpus) => {
                let slot = (u64::from(hash) * cpus.len() as u64) >> 32;
                Place::Cpu(cpus[slot as usize])
            }
            (None, cpus) => Place::OneOf(cpus.to_vec()),
        }
    }

    /// Where the frames of a flow are processed whose queue is not known: RPS decides if it is the same for every
    /// queue.
    fn place_without_queue(&self) -> Place {
        let mut sets = (0..self.queues).map(|queue| self.rps.get(&queue));
        match sets.next().flatten() {
            Some(first) if sets.all(|set| set == Some(first)) => match first.as_slice() {
                [cpu] => Place::Cpu(*cpu),
                cpus => Place::OneOf(cpus.to_vec()),
            },
            _ => Place::Unknown,
        }
    }
}

/// The contexts other than the default one. One without a key of its own is taken to have the default one's.
fn contexts(state: &State, settings: &Settings) -> BTreeMap<u32, Rss> {
    let one = |(setting, value): (&Setting, &String)| {
        let number = match setting {
            Setting::Context(number) => *number,
            Setting::NewContext => NEW_CONTEXT,
            _ => return None,
        };
        let (table, key) = value.split_once(" key ").unwrap_or((value, ""));
        let default = settings.get(&Setting::Key).map(String::as_str);
        let key = Some(key).filter(|key| !key.is_empty()).or(default);
        Some((number, rss(state, settings, key, Some(table)).ok()?))
    };
    settings.iter().filter_map(one).collect()
}

/// RSS as the card has it, or the reason for which it cannot be predicted.
fn rss(
    state: &State,
    settings: &Settings,
    key: Option<&str>,
    entries: Option<&str>,
) -> Result<Rss, String> {
    let rss = match (state.rss.value(), state.rss.why()) {
        (Some(rss), _) => rss,
        (None, why) => return Err(why.unwrap_or_default().to_owned()),
    };
    let function = match (rss.function.value().map(String::as_str), &*rss.transformation) {
        (Some("toeplitz"), "none") => Hfunc::Toeplitz,
        (Some("toeplitz"), "symmetric-xor") => Hfunc::SymmetricXor,
        (function, transformation) => {
            let function = function.unwrap_or("unknown");
            return Err(format!(
                "the hash function is {function} with the transformation {transformation}; toeplitz is modelled, \
                 plain and with symmetric-xor"
            ));
        }
    };
    let key = key.ok_or("the driver does not give the RSS key")?;
    let key = unhex(key).ok_or("the RSS key cannot be read")?;
    let entries = entries.and_then(table);
    let entries = entries.ok_or("the driver gives no indirection table")?;
    let table = entries.iter().map(|queue| *queue as u16).collect();
    let mut fields = HashFields::ALL_PORTS;
    for flow in FlowType::ALL {
        let text = settings.get(&Setting::Fields(state.hashed_as(flow).name().to_owned()));
        let known = text.and_then(|text| fields_in(text));
        let known = known.or_else(|| profile_fields(state, flow));
        fields = fields.with(
            flow,
            known.ok_or_else(|| format!("the driver does not tell the hashed fields of {flow}"))?,
        );
    }
    Rss::of_card(&key, fields, function, table).map_err(|error| error.to_string())
}

/// The fields that the driver hashes by default, if it does not tell them and is modelled.
fn profile_fields(state: &State, flow: FlowType) -> Option<flowyard_adapter::rss::Fields> {
    let profile = state.profile()?;
    Some(profile.rss?.fields.get(flow))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use crate::setting::settings_of;
    use flowyard_frame::proto;

    /// RPS of Linux replaces a hash that the driver does not mark as one that covers ports (`skb_get_hash`).
    #[test]
    fn rps_selects_a_cpu_by_the_hash_only_if_linux_keeps_it() {
        let key =
            |proto| FlowKey::five_tuple(proto, [10, 0, 0, 1].into(), 5, [10, 0, 0, 2].into(), 6);
        let place = |driver: &str, proto, rx_hashing| {
            let fake = Fake { driver: driver.to_owned(), ..Fake::virtio() };
            let mut state = State::read(&fake, "eth0").unwrap();
            let name = "rx-hashing".to_owned();
            state.features =
                crate::Known::Value(vec![Feature { name, on: rx_hashing, changeable: false }]);
            let mut settings = settings_of(&state);
            for queue in 0..4 {
                settings.insert(Setting::Rps(queue), "0-3".to_owned());
            }
            Card::new(&state, &settings).place(&key(proto))
        };
        let is_known = |place: Place| matches!(place, Place::Cpu(_));
        assert!(is_known(place("virtio_net", proto::TCP, true)));
        assert!(is_known(place("virtio_net", proto::UDP, true)));
        let secret = Place::OneOf(vec![0, 1, 2, 3]);
        assert_eq!(place("virtio_net", proto::UDP, false), secret, "the hash is not handed over");
        assert_eq!(place("virtio_net", proto::ICMP, true), secret, "it covers no ports");
        assert_eq!(place("igb", proto::TCP, true), secret, "the driver marks it as L3");
    }

    #[test]
    fn sctp_is_hashed_as_ip_whatever_the_driver_says() {
        // virtio_net answers ETHTOOL_GRXFH for SCTP with no field, but QEMU hashes the addresses.
        let mut fake = Fake::virtio();
        fake.fields.insert(3, 0);
        fake.fields.insert(7, 0);
        let state = State::read(&fake, "eth0").unwrap();
        let card = Card::new(&state, &settings_of(&state));
        for (one, other) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let flow = |proto| {
                FlowKey::five_tuple(proto, one.parse().unwrap(), 5, other.parse().unwrap(), 6)
            };
            assert!(card.hash(&flow(proto::SCTP)).is_some());
            assert_eq!(card.hash(&flow(proto::SCTP)), card.hash(&flow(47)));
            assert_ne!(card.hash(&flow(proto::SCTP)), card.hash(&flow(proto::TCP)));
        }
    }
}
