//! The values of the programs' maps as bytes: the structures of `bpf/steer.c`, integers in the machine's order.

use flowyard_adapter::rss::{Fields, FlowType, Hfunc};
use flowyard_flow::Quic;
use flowyard_flow::toeplitz::Toeplitz;
use flowyard_frame::{FlowKey, Nanos};
use zerocopy::IntoBytes;

use crate::model::{Decision, Reason};
use crate::policy::{Follow, Policy, Ranked, is_exact};

/// `struct config`.
pub(crate) type Config = [u8; 44];
/// `struct key`.
pub(crate) type Key = [u8; 64];
/// `struct action`: rank, queue.
pub(crate) type Action = [u32; 2];
/// `struct rule`: key, mask, action.
pub(crate) type Rule = [u8; 136];
/// `struct toeplitz`.
pub(crate) type Parts = [[u32; 256]; INPUT_MOST];
/// `struct counts`: frames by reason, and bytes.
pub(crate) type Counted = [u64; 9];
/// `struct forms`: three words, and ports.
pub(crate) type Forms = [u8; 12 + 2 * Quic::PORTS_MOST];
/// `struct watched`: flow; at [`IS_ON`] whether it is traced, at [`MAP_ID`] the identifier of the map of CPUs.
pub(crate) type Watched = [u8; 72];
/// `struct ring`.
pub(crate) type Ring = [u64; 2];
/// `struct last`.
pub(crate) type Last = [u8; 480];
/// `struct flow`: wanted queue, queue now, CPU that sent and CPU that received its last frame, the frame's number, the time of a FIN, and
/// two times that only XDP reads.
pub(crate) type Flow = [u8; 48];
/// `struct sent`: the number of the last frame, and when it was sent.
pub(crate) type Sent = [u64; 2];
/// `struct left`: the number of the last frame comes first.
pub(crate) type Left = [u64; 4];
/// `struct sampling`.
pub(crate) type Sampling = [u8; 144];
/// `struct sketch`.
pub(crate) type Sketch = [u8; 256 * WAY];

/// The longest input of the hash: two IPv6 addresses and two ports.
const INPUT_MOST: usize = 36;
/// In place of a queue or a CPU: drop, or leave the frame where it is.
pub(crate) const STAY: u32 = u32::MAX;
/// The length of `struct way`.
const WAY: usize = 64;
/// How long a flow stays where it is after a FIN.
const LINGER: Nanos = 1_000_000_000;
/// Where the last decision is in [`Last`]: hash, whether there is one, queue, reason.
const LAST_AT: usize = 456;
/// Where the fields of [`Watched`] are.
pub(crate) const IS_ON: usize = 64;
pub(crate) const MAP_ID: usize = 68;

pub(crate) fn config(policy: &Policy, ranked: &[Ranked<'_>], cpus: u32) -> Config {
    let entries = policy.table.len() as u32;
    let mask = if entries.is_power_of_two() { entries - 1 } else { 0 };
    let hfunc = match policy.hfunc {
        Hfunc::Toeplitz => 0,
        Hfunc::SymmetricXor => 1,
        Hfunc::SymmetricOrXor => 2,
    };
    let exact = ranked.iter().filter(|one| is_exact(one.rule)).count() as u32;
    let others = ranked.len() as u32 - exact;
    let learns = match (policy.moves(), policy.settles) {
        (false, _) => 0,
        (true, true) => 1,
        (true, false) => 2,
    };
    let sample = match policy.follow {
        Some(Follow::Senders { sample }) => sample,
        _ => 0,
    };
    let words = [entries, mask, policy.is_inner.into(), hfunc, exact, others, learns, sample];
    let mut config = [0; 44];
    config[..32].copy_from_slice(words.as_bytes());
    let all = [Fields::SRC_IP, Fields::DST_IP, Fields::SRC_PORT, Fields::DST_PORT];
    for (byte, flow) in config[32..40].iter_mut().zip(FlowType::ALL) {
        let fields = policy.fields.get(flow);
        let bits = (0..).zip(all).filter(|(_, field)| fields.has(*field));
        *byte = bits.map(|(bit, _)| 1_u8 << bit).sum();
    }
    config[40..].copy_from_slice(cpus.as_bytes());
    config
}

pub(crate) fn forms(policy: &Policy) -> Forms {
    let mut forms = [0; size_of::<Forms>()];
    forms[..4].copy_from_slice(u32::from(policy.hashes_ipv6_ex).as_bytes());
    if let Some(quic) = &policy.quic {
        forms[4..8].copy_from_slice(u32::from(quic.id_bytes()).as_bytes());
        forms[8..12].copy_from_slice(u32::from(quic.server_bytes().unwrap_or(0)).as_bytes());
        let ports = quic.ports().as_bytes();
        forms[12..12 + ports.len()].copy_from_slice(ports);
    }
    forms
}

pub(crate) fn key(key: &FlowKey) -> Key {
    let mut bytes = [0; 64];
    bytes.copy_from_slice(key.as_bytes());
    bytes
}

pub(crate) fn action(ranked: &Ranked<'_>) -> Action {
    [ranked.rank, ranked.queue.map_or(STAY, u32::from)]
}

pub(crate) fn rule(ranked: &Ranked<'_>) -> Rule {
    let mut bytes = [0; 136];
    bytes[..64].copy_from_slice(ranked.rule.key.as_bytes());
    bytes[64..128].copy_from_slice(ranked.rule.mask.as_bytes());
    bytes[128..].copy_from_slice(action(ranked).as_bytes());
    bytes
}

/// What each value of each byte of the input contributes to the hash.
pub(crate) fn parts(toeplitz: &Toeplitz) -> Box<Parts> {
    let mut parts = Box::new([[0; 256]; INPUT_MOST]);
    for (place, values) in parts.iter_mut().enumerate() {
        for (value, part) in (0..=255).zip(values) {
            let mut input = [0; INPUT_MOST];
            input[place] = value;
            *part = toeplitz.hash(&input);
        }
    }
    parts
}

/// The key of the hash: the part of a single bit is the 32 bits of the key that begin there.
pub(crate) fn key_of(parts: &Parts) -> Vec<u8> {
    let mut key: Vec<u8> = parts.iter().map(|values| (values[128] >> 24) as u8).collect();
    key.extend_from_slice(&parts[INPUT_MOST - 1][128].to_be_bytes()[1..]);
    // No input has a bit whose part has the last bit of 40 bytes.
    key.push(((parts[INPUT_MOST - 1][1] & 0x7f) << 1) as u8);
    key
}

/// The decision in a value of the map `last`.
pub(crate) fn decision(last: &Last) -> Option<Decision> {
    let word = |at: usize| {
        let bytes = last.get(LAST_AT + 4 * at..)?.first_chunk()?;
        Some(u32::from_ne_bytes(*bytes))
    };
    let reason = *Reason::ALL.get(word(3)? as usize)?;
    let hash = (word(1)? != 0).then_some(word(0)?);
    Some(Decision { queue: word(2)? as u16, reason, hash })
}

/// The queue that was learned for a flow, unless it has ended at `now`.
pub(crate) fn learned(flow: &Flow, now: Nanos) -> Option<u16> {
    let closed = u64::from_ne_bytes(*flow.get(24..)?.first_chunk()?);
    let has_ended = closed != 0 && now.saturating_sub(closed) > LINGER;
    let wanted = u32::from_ne_bytes(*flow.first_chunk()?);
    (!has_ended && wanted != STAY).then_some(wanted as u16)
}

/// The queue of a flow's frames, if one was seen.
pub(crate) fn home(flow: &Flow) -> Option<u16> {
    let home = u32::from_ne_bytes(*flow.get(4..)?.first_chunk()?);
    (home != STAY).then_some(home as u16)
}

pub(crate) fn sampling(window: u32, every: u32, owned: u32, taken: &[u64; 16]) -> Sampling {
    let mut sampling = [0; 144];
    sampling[..16].copy_from_slice([window, every, owned, 0].as_bytes());
    sampling[16..].copy_from_slice(taken.as_bytes());
    sampling
}

/// A flow that a sketch holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) key: FlowKey,
    /// The least number of samples that are of this flow.
    pub(crate) at_least: u64,
    pub(crate) queue: u32,
}

/// The flows that were sampled in the window with this number.
pub(crate) fn ways(sketch: &Sketch, window: u32) -> impl Iterator<Item = Way> {
    sketch.as_chunks::<WAY>().0.iter().filter_map(move |way| {
        let short = |at: usize| Some(u16::from_ne_bytes(*way.get(at..)?.first_chunk()?));
        let word = |at: usize| Some(u32::from_ne_bytes(*way.get(at..)?.first_chunk()?));
        let key = FlowKey {
            src: *way.first_chunk()?,
            dst: *way.get(16..)?.first_chunk()?,
            sport: short(32)?,
            dport: short(34)?,
            eth_type: short(36)?,
            proto: short(38)? as u8,
            ..FlowKey::ZERO
        };
        let at_least = u64::from(word(40)?.saturating_sub(word(44)?));
        let is_present = word(52)? == window && at_least > 0;
        is_present.then_some(Way { key, at_least, queue: word(48)? })
    })
}

#[cfg(test)]
mod tests {
    use flowyard_flow::toeplitz::{MICROSOFT_KEY, random_key};

    use super::*;

    #[test]
    fn the_key_is_read_from_what_it_contributes() {
        for key in [MICROSOFT_KEY.to_vec(), random_key(7).to_vec()] {
            let parts = parts(&Toeplitz::new(&key).unwrap());
            let read = key_of(&parts);
            // No hash of 36 bytes depends on the last bit of 40.
            assert_eq!((&read[..39], read[39], read.len()), (&key[..39], key[39] & 0xfe, 40));
            assert_eq!(super::parts(&Toeplitz::new(&read).unwrap()), parts);
        }
    }
}
