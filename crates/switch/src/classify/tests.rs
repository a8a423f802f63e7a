use flowyard_openflow::{Match, Oxm};
use proptest::prelude::*;

use super::*;

/// The simple model: a list.
#[derive(Default)]
struct List(Vec<(u32, Pattern, u32)>);

impl List {
    fn insert(&mut self, pattern: &Pattern, priority: u32, number: u32) -> Option<u32> {
        let mut same = self.0.iter_mut().filter(|(p, one, _)| *p == priority && one == pattern);
        if let Some((.., old)) = same.next() {
            return Some(std::mem::replace(old, number));
        }
        let at = self.0.partition_point(|(other, ..)| *other >= priority);
        self.0.insert(at, (priority, *pattern, number));
        None
    }

    fn remove(&mut self, pattern: &Pattern, priority: u32) -> Option<u32> {
        let at = self.0.iter().position(|(p, one, _)| *p == priority && one == pattern)?;
        Some(self.0.remove(at).2)
    }

    fn lookup(&self, key: &Key) -> Option<u32> {
        let matches = |pattern: &Pattern| {
            (0..WORDS).all(|at| key.0[at] & pattern.mask.0[at] == pattern.value.0[at])
        };
        self.0.iter().find(|(_, pattern, _)| matches(pattern)).map(|(.., number)| *number)
    }
}

/// Fields of few values, so that rules overlap and keys match.
fn fields() -> impl Strategy<Value = Vec<Oxm>> {
    let some = |field: Field, masks: Vec<u128>| {
        let value = prop_oneof![0_u128..4, (0_u128..4).prop_map(move |v| v << (field.bits() - 2))];
        let oxm = (value, prop::sample::select(masks));
        prop::option::of(oxm.prop_map(move |(v, m)| Oxm::masked(field, v, m)))
    };
    let full = u128::MAX;
    (
        some(Field::InPort, vec![full]),
        some(Field::EthDst, vec![full, 0xffff_0000_0000, 1]),
        some(Field::VlanVid, vec![full, 1, 0x1000]),
        some(Field::Ipv4Src, vec![full, 0xffff_fff0, 0xff00_0000, 0xf000_0000, 3, 0x8000_0000]),
        some(Field::Ipv4Dst, vec![full, 0xffff_0000, 0xff80_0000, 2]),
        some(Field::TcpDst, vec![full]),
        some(Field::UdpSrc, vec![full]),
        some(Field::Ipv6Dst, vec![full, full << 64, 1]),
    )
        .prop_map(|(a, b, c, d, e, f, g, h)| {
            [a, b, c, d, e, f, g, h].into_iter().flatten().collect()
        })
}

fn key(fields: &[Oxm]) -> Key {
    let mut key = Key::ZERO;
    fields.iter().for_each(|oxm| key.set(oxm.field, oxm.value));
    key
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<Oxm>, u32),
    /// Removes a rule that was inserted.
    Remove(prop::sample::Index),
    Look(Vec<Oxm>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (fields(), 0_u32..6).prop_map(|(fields, priority)| Step::Insert(fields, priority)),
        1 => any::<prop::sample::Index>().prop_map(Step::Remove),
        3 => fields().prop_map(Step::Look),
    ]
}

fn compare(lookup: Lookup, steps: &[Step]) -> Result<(), TestCaseError> {
    let (mut fast, mut slow) = (Classifier::new(lookup, 7), List::default());
    let mut rules = Vec::new();
    for (number, step) in (0..).zip(steps) {
        match step {
            Step::Insert(fields, priority) => {
                let pattern = Pattern::from(&Match(fields.clone()));
                rules.push((pattern, *priority));
                let replaced = fast.insert(&pattern, *priority, number);
                prop_assert_eq!(replaced, slow.insert(&pattern, *priority, number));
                prop_assert_eq!(fast.find(&pattern, *priority), Some(number));
                prop_assert_eq!(fast.find(&pattern, 6), None, "no rule has this priority");
                let found = fast.lookup(&pattern.value);
                prop_assert_eq!(found, slow.lookup(&pattern.value));
            }
            Step::Remove(at) if !rules.is_empty() => {
                let (pattern, priority) = rules[at.index(rules.len())];
                let gone = fast.remove(&pattern, priority);
                prop_assert_eq!(gone, slow.remove(&pattern, priority));
                prop_assert_eq!(fast.find(&pattern, priority), None);
            }
            Step::Remove(_) => {}
            Step::Look(fields) => {
                let key = key(fields);
                prop_assert_eq!(fast.lookup(&key), slow.lookup(&key));
            }
        }
        prop_assert_eq!(fast.len(), slow.0.len());
        prop_assert!(lookup == Lookup::Space || fast.tuples() <= TUPLES + 1);
    }
    // All together, except every third.
    let keys: Vec<Key> = rules.iter().map(|(pattern, _)| pattern.value).collect();
    for keys in keys.chunks(LANES) {
        let lanes = Lanes::first(keys.len()).filter(|lane| lane % 3 != 0);
        let lanes = lanes.fold(Lanes::NONE, Lanes::with);
        let mut found = vec![Some(u32::MAX); keys.len()];
        fast.lookup_all(keys, lanes, &mut found);
        for (lane, key) in keys.iter().enumerate() {
            let slow = slow.lookup(key);
            prop_assert_eq!(fast.lookup(key), slow);
            prop_assert_eq!(found[lane], if lanes.has(lane) { slow } else { Some(u32::MAX) });
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_lookup_finds_the_same_rule_as_the_list(steps in prop::collection::vec(step(), 0..300)) {
        for lookup in [Lookup::Merged, Lookup::Linear, Lookup::Hash, Lookup::Space] {
            compare(lookup, &steps)?;
        }
    }
}

/// All masks are different. Plain tuple space search has a tuple for each; the merged lookup has a limit.
#[test]
fn the_number_of_tuples_is_limited_for_any_rules() {
    let mut fast = Classifier::new(Lookup::Merged, 1);
    let mut slow = List::default();
    for number in 0..2000_u32 {
        let field = |field, mask| Oxm::masked(field, u128::MAX, mask);
        let mask = u128::from(number.wrapping_mul(0x9e37_79b9) | 1);
        let fields = [field(Field::Ipv4Src, mask), field(Field::Metadata, (mask * mask) | 5)];
        let pattern = Pattern::from(&Match(fields.to_vec()));
        let priority = number % 7;
        assert_eq!(
            fast.insert(&pattern, priority, number),
            slow.insert(&pattern, priority, number)
        );
        assert!(fast.tuples() <= TUPLES + 1);
        assert_eq!(fast.lookup(&pattern.value), slow.lookup(&pattern.value));
    }
}
