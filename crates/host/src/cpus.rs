//! Sets of CPUs as the kernel writes them: lists (`0-3,8`) and masks (`ff,0000000f`).

/// The CPUs of a list; `None` if it is not one.
pub(crate) fn from_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (u32, u32) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        // The kernel lists each CPU once.
        if to > MOST || cpus.len() > MOST as usize {
            return None;
        }
        cpus.extend(from..=to);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

/// The CPUs of a mask: words of 32 bits in hexadecimal, the highest first.
pub(crate) fn from_mask(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for (number, word) in text.trim().rsplit(',').enumerate() {
        let bits = u32::from_str_radix(word, 16).ok()?;
        cpus.extend((0..32).filter(|bit| bits >> bit & 1 != 0).map(|bit| 32 * number as u32 + bit));
    }
    Some(cpus)
}

/// CPUs as a list: `0-3,8`; nothing for no CPU.
#[must_use]
pub fn list(cpus: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match parts.last_mut() {
            Some((_, to)) if *to + 1 == cpu => *to = cpu,
            _ => parts.push((cpu, cpu)),
        }
    }
    let part = |&(from, to): &(u32, u32)| {
        if from == to { from.to_string() } else { format!("{from}-{to}") }
    };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

/// CPUs as a mask, as the files of RPS and XPS take it: `0` for no CPU.
pub(crate) fn mask(cpus: &[u32]) -> String {
    let words = cpus.iter().max().map_or(1, |most| *most as usize / 32 + 1);
    let mut bits = vec![0_u32; words];
    cpus.iter().for_each(|&cpu| bits[cpu as usize / 32] |= 1 << (cpu % 32));
    let mut text = format!("{:x}", bits[words - 1]);
    for word in bits[..words - 1].iter().rev() {
        text += &format!(",{word:08x}");
    }
    text
}

/// No machine has a CPU with a higher number: Linux is built for 8192 at most (CONFIG_NR_CPUS).
const MOST: u32 = (1 << 13) - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_kernels_texts_are_read() {
        assert_eq!(from_list("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(from_list("\n"), Some(vec![]));
        assert_eq!((from_list("0-x"), from_list("0-4294967295")), (None, None));
        assert_eq!(from_mask("00000000,80000003\n"), Some(vec![0, 1, 31]));
        assert_eq!((from_mask("1,00000000"), from_mask("g")), (Some(vec![32]), None));
        assert_eq!((mask(&[]), mask(&[0, 33])), ("0".to_owned(), "2,00000001".to_owned()));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(cpus in proptest::collection::btree_set(0_u32..300, 0..40)) {
            let cpus: Vec<u32> = cpus.into_iter().collect();
            prop_assert_eq!(from_list(&list(&cpus)), Some(cpus.clone()));
            prop_assert_eq!(from_mask(&mask(&cpus)), Some(cpus));
        }
    }
}
