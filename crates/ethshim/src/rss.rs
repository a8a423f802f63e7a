//! Channels and receive-side scaling of the driver: the default context, and others.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fs;

use crate::driver::{QUEUES, driver, folder, highest_queue, uses_context};
use crate::words::Words;

/// `ETH_RXFH_CONTEXT_ALLOC`.
const NEW: u32 = u32::MAX;
/// `ETH_RXFH_INDIR_NO_CHANGE`.
const SAME: u32 = u32::MAX;

const ENTRIES: usize = 128;
const KEY: usize = 40;
/// Words in front of the table and the key.
const FRONT: usize = 6;
/// Combined channels that the driver offers.
pub(crate) const MOST: u32 = 8;
/// Combined channels at first.
const CHANNELS: u32 = 4;

/// A context: the table, and the words of the key.
#[derive(Clone)]
struct Context {
    table: Vec<u32>,
    key: Vec<u32>,
}

impl Context {
    /// The table of the driver for a number of channels.
    fn table(channels: u32) -> Vec<u32> {
        (0..ENTRIES as u32).map(|entry| entry % channels).collect()
    }

    fn first(channels: u32) -> Self {
        let key = (0..KEY as u32 / 4).map(|word| 0x6d5a_56da ^ word.wrapping_mul(0x9e37_79b9));
        Self { table: Self::table(channels), key: key.collect() }
    }
}

/// The contexts by number; a line of the file `rss` is a number, the table, the key.
fn load() -> Result<BTreeMap<u32, Context>, c_int> {
    let path = folder().ok_or(libc::EOPNOTSUPP)?.join("rss");
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut all: BTreeMap<u32, Context> = text
        .lines()
        .map(|line| {
            let words: Vec<u32> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            let (table, key) = words[1..].split_at(ENTRIES);
            (words[0], Context { table: table.to_vec(), key: key.to_vec() })
        })
        .collect();
    let channels = channels()?;
    all.entry(0).or_insert_with(|| Context::first(channels));
    Ok(all)
}

/// The current number of combined channels.
pub(crate) fn channels() -> Result<u32, c_int> {
    let path = folder().ok_or(libc::EOPNOTSUPP)?.join("channels");
    let text = fs::read_to_string(path).unwrap_or_default();
    Ok(text.trim().parse().unwrap_or(CHANNELS))
}

/// As the kernel does: fewer channels are refused while a rule, a context, or a table other than the driver's uses a
/// higher queue. The driver fills its own table again.
pub(crate) fn set_channels(wanted: u32) -> Result<(), c_int> {
    let (now, mut all) = (channels()?, load()?);
    let is_drivers = all[&0].table == Context::table(now);
    let uses = |(number, one): (&u32, &Context)| {
        (*number != 0 || !is_drivers) && one.table.iter().any(|queue| *queue >= wanted)
    };
    if wanted == 0 || wanted > MOST || all.iter().any(uses) || highest_queue() >= Some(wanted) {
        return Err(libc::EINVAL);
    }
    if let Some(first) = all.get_mut(&0).filter(|_| is_drivers) {
        first.table = Context::table(wanted);
    }
    save(&all)?;
    let path = folder().ok_or(libc::EOPNOTSUPP)?.join("channels");
    fs::write(path, wanted.to_string()).map_err(|_| libc::EIO)
}

fn save(all: &BTreeMap<u32, Context>) -> Result<(), c_int> {
    let mut text = String::new();
    for (number, one) in all {
        text += &number.to_string();
        one.table.iter().chain(&one.key).for_each(|word| text += &format!(" {word}"));
        text.push('\n');
    }
    fs::write(folder().ok_or(libc::EOPNOTSUPP)?.join("rss"), text).map_err(|_| libc::EIO)
}

fn has_contexts() -> bool {
    driver().is_some_and(|name| name == "mlx5_core")
}

pub(crate) fn get(words: &Words) -> Result<(), c_int> {
    let number = words.get(1);
    if number != 0 && !has_contexts() {
        return Err(libc::EOPNOTSUPP);
    }
    let all = load()?;
    let one = all.get(&number).ok_or(libc::ENOENT)?;
    let (entries, key) = (words.get(2), words.get(3));
    if (entries != 0 && entries != ENTRIES as u32) || (key != 0 && key != KEY as u32) {
        return Err(libc::EINVAL);
    }
    words.put(2, ENTRIES as u32);
    words.put(3, KEY as u32);
    words.put(4, u32::from_ne_bytes([1, 0, 0, 0])); // Toeplitz
    let mut at = FRONT;
    for (is_wanted, list) in [(entries != 0, &one.table), (key != 0, &one.key)] {
        if is_wanted {
            list.iter().enumerate().for_each(|(word, value)| words.put(at + word, *value));
            at += list.len();
        }
    }
    Ok(())
}

pub(crate) fn set(words: &Words) -> Result<(), c_int> {
    let (number, entries, key) = (words.get(1), words.get(2), words.get(3));
    if number != 0 && !has_contexts() {
        return Err(libc::EOPNOTSUPP);
    }
    let mut all = load()?;
    let number = match number {
        NEW => (1..32).find(|number| !all.contains_key(number)).ok_or(libc::ENOSPC)?,
        number if all.contains_key(&number) => number,
        _ => return Err(libc::ENOENT),
    };
    match (number, entries) {
        (0, 0) => {
            let table = Context::table(channels()?);
            all.entry(0).and_modify(|one| one.table = table);
        }
        (_, 0) => {
            if uses_context(number) {
                return Err(libc::EBUSY);
            }
            all.remove(&number);
        }
        _ => {
            let mut one = all.get(&number).unwrap_or(&all[&0]).clone();
            let mut at = FRONT;
            if entries != SAME {
                if entries != ENTRIES as u32 {
                    return Err(libc::EINVAL);
                }
                one.table = (0..ENTRIES).map(|entry| words.get(at + entry)).collect();
                at += ENTRIES;
            }
            if key != 0 {
                if key != KEY as u32 {
                    return Err(libc::EINVAL);
                }
                one.key = (0..KEY / 4).map(|word| words.get(at + word)).collect();
            }
            if one.table.iter().any(|queue| *queue >= QUEUES) {
                return Err(libc::EINVAL);
            }
            all.insert(number, one);
        }
    }
    save(&all)?;
    words.put(1, number);
    Ok(())
}
