use proptest::prelude::*;

use super::*;

/// The reference model: the paper's pseudo-code, with every order as a list and weights as rounds.
fn slow(choices: &[Choice<'_>], entries: u32, seed: u64) -> Vec<u16> {
    let mut sorted: Vec<usize> = (0..choices.len()).filter(|&i| choices[i].weight > 0).collect();
    sorted.sort_by_key(|&i| choices[i].name);
    let order = |&i: &usize| -> Vec<usize> {
        let hash = |part| {
            let mut hasher = SipHasher24::new_with_keys(seed, part);
            hasher.write(choices[i].name.as_bytes());
            hasher.finish()
        };
        let m = u64::from(entries);
        let (offset, skip) = (hash(0) % m, hash(1) % (m - 1) + 1);
        (0..m).map(|j| ((offset + j * skip) % m) as usize).collect()
    };
    let mut orders: Vec<_> = sorted.iter().map(|i| (*i, order(i).into_iter())).collect();
    let Some(heaviest) = choices.iter().map(|c| u64::from(c.weight)).max() else { return vec![] };
    let mut table = vec![None; entries as usize];
    let (mut left, mut round) = (if orders.is_empty() { 0 } else { entries }, 0);
    while left > 0 {
        round += 1;
        for (i, order) in &mut orders {
            let weight = u64::from(choices[*i].weight);
            let turns = |rounds: u64| rounds * weight / heaviest;
            if left > 0 && turns(round) > turns(round - 1) {
                let free = order.find(|&at| table[at].is_none()).unwrap();
                table[free] = Some(*i as u16);
                left -= 1;
            }
        }
    }
    table.into_iter().flatten().collect()
}

fn named(names: &[String], weights: &[u32]) -> Vec<(String, u32)> {
    names.iter().cloned().zip(weights.iter().copied()).collect()
}

fn choices(all: &[(String, u32)]) -> Vec<Choice<'_>> {
    all.iter().map(|(name, weight)| Choice { name, weight: *weight }).collect()
}

fn pool(most: usize) -> impl Strategy<Value = Vec<(String, u32)>> {
    prop::collection::hash_map("[a-z]{1,6}", 0u32..20, 0..most)
        .prop_map(|map| map.into_iter().collect())
}

/// The name of each entry's choice.
fn names<'a>(table: &Maglev, all: &'a [(String, u32)]) -> Vec<&'a str> {
    table.entries().iter().map(|&index| all[usize::from(index)].0.as_str()).collect()
}

proptest! {
    #[test]
    fn it_equals_the_model(
        all in pool(12), entries in prop::sample::select(vec![2u32, 3, 5, 7, 13, 61, 251, 1009]), seed: u64,
    ) {
        let fast = Maglev::new(&choices(&all), entries, seed).unwrap();
        prop_assert_eq!(fast.entries(), &slow(&choices(&all), entries, seed)[..]);
    }

    #[test]
    fn the_order_of_arrival_does_not_matter(all in pool(12), seed: u64, rotate in 0usize..12) {
        let table = Maglev::new(&choices(&all), 251, seed).unwrap();
        let mut other = all.clone();
        other.rotate_left(rotate % all.len().max(1));
        other.reverse();
        let again = Maglev::new(&choices(&other), 251, seed).unwrap();
        prop_assert_eq!(names(&table, &all), names(&again, &other));
        prop_assert_eq!(table.checksum(), again.checksum());
    }

    #[test]
    fn each_has_its_share(all in pool(12), seed: u64) {
        let table = Maglev::new(&choices(&all), 2039, seed).unwrap();
        let sum: f64 = all.iter().map(|(_, weight)| f64::from(*weight)).sum();
        let taking = all.iter().filter(|(_, weight)| *weight > 0).count() as f64;
        for (i, (_, weight)) in all.iter().enumerate() {
            let got = table.entries().iter().filter(|&&at| usize::from(at) == i).count() as f64;
            if *weight == 0 {
                prop_assert_eq!(got, 0.0);
                continue;
            }
            let part = f64::from(*weight) / sum;
            prop_assert!(got > 2039.0 * part - 2.0, "{got} of {}", 2039.0 * part);
            prop_assert!(got <= 2039.0 * part + taking * part + 1.0, "{got} of {}", 2039.0 * part);
        }
    }

    #[test]
    fn equal_checksums_are_equal_tables(all in pool(8), other in pool(8), seed: u64) {
        let a = Maglev::new(&choices(&all), 61, seed).unwrap();
        let b = Maglev::new(&choices(&other), 61, seed).unwrap();
        prop_assert_eq!(a.checksum() == b.checksum(), names(&a, &all) == names(&b, &other));
    }
}

/// `count` backends named as addresses.
fn backends(count: u32) -> Vec<(String, u32)> {
    let names: Vec<_> = (0..count).map(|i| format!("10.0.{}.{}", i / 256, i % 256)).collect();
    named(&names, &vec![1; count as usize])
}

/// The share of entries that changed although their old choice is still there.
fn disrupted(before: &[(String, u32)], after: &[(String, u32)], entries: u32, seed: u64) -> f64 {
    let old = Maglev::new(&choices(before), entries, seed).unwrap();
    let new = Maglev::new(&choices(after), entries, seed).unwrap();
    let stays = |name: &str| after.iter().any(|(other, _)| other == name);
    let (old, new) = (names(&old, before), names(&new, after));
    let moved = old.iter().zip(&new).filter(|(old, new)| old != new && stays(old)).count();
    moved as f64 / f64::from(entries)
}

#[test]
fn a_leaving_backend_disturbs_few_others() {
    // The paper's setting: 1000 backends. Of the entries whose backend is still there, at most 2 %
    // move when one leaves a table of 65537 entries, and fewer of 655373 (figure 14).
    for (count, entries, most) in [(10, 65_537, 0.02), (100, 65_537, 0.02), (1000, 65_537, 0.02)] {
        let all = backends(count);
        for gone in [0, all.len() / 2, all.len() - 1] {
            let mut fewer = all.clone();
            fewer.remove(gone);
            let (left, came) =
                (disrupted(&all, &fewer, entries, 7), disrupted(&fewer, &all, entries, 7));
            say(format_args!("{count} backends: {left:.4} leaving, {came:.4} coming"));
            // A new backend takes its share from the others, which is not counted as disturbance.
            let share = 1.0 / f64::from(count);
            assert!(left <= most && came <= share + most, "{count}: {left} {came}");
        }
    }
}

fn say(text: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[test]
fn a_thousand_backends_within_one_per_cent_of_each_other() {
    let all = backends(1000);
    let table = Maglev::new(&choices(&all), 655_373, 1).unwrap();
    let mut counts = vec![0u32; 1000];
    table.entries().iter().for_each(|&at| counts[usize::from(at)] += 1);
    let (least, most) = (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
    assert!(most - least <= 1, "{least} to {most}");
}

#[test]
fn errors_name_the_cause() {
    let all = backends(2);
    let error = |entries| Maglev::new(&choices(&all), entries, 0).unwrap_err().to_string();
    for entries in [0, 1, 4, 65_536, 16_777_259, 4_294_836_225, u32::MAX] {
        assert!(error(entries).contains("not a prime number"), "{entries}");
    }
    let twice = [Choice { name: "a", weight: 1 }, Choice { name: "a", weight: 0 }];
    let error = Maglev::new(&twice, 7, 0).unwrap_err();
    assert_eq!(error.to_string(), "'a' is there twice; give each choice its own name");
    let none = Maglev::new(&[Choice { name: "a", weight: 0 }], 7, 0).unwrap();
    assert_eq!((none.get(0), none.entries().len()), (None, 0));
    assert_eq!(Maglev::new(&[], 7, 0).unwrap().get(u64::MAX), None);
    assert_eq!(Maglev::new(&twice[..1], 7, 0).unwrap().get(u64::MAX), Some(0));
}

/// The index of the last choice is the largest number that an entry can hold.
#[test]
fn a_table_takes_as_many_choices_as_an_entry_has_values() {
    let names: Vec<String> = (0..=1 << 16).map(|number| format!("{number}")).collect();
    let all: Vec<_> = names.iter().map(|name| Choice { name, weight: 1 }).collect();
    let table = Maglev::new(&all[..1 << 16], Maglev::ENTRIES, 0).unwrap();
    assert!(table.entries().contains(&u16::MAX));
    let error = Maglev::new(&all, Maglev::ENTRIES, 0).unwrap_err();
    assert_eq!(error, BadMaglev::Choices { choices: 65_537 });
}
