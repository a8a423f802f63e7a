//! Explains the queue that RSS gives a frame: the bytes hashed, in order and by name.

use flowyard_frame::{FlowKey, Frag};
use serde::Serialize;

use super::{Hfunc, Rss};
use crate::hash_fields::{Fields, FlowType};
use crate::profile::SctpHash;

/// One field of the hash input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InputField {
    /// `src`, `dst`, `sport`, `dport`, or their XOR: `src^dst`, `sport^dport`.
    pub name: &'static str,
    /// The hashed bytes, in network order.
    pub bytes: Vec<u8>,
}

/// How RSS came to the queue of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RssExplanation {
    /// Microsoft's name of the hash type; `none` when nothing is hashed.
    pub hash_type: &'static str,
    /// The hash input, in the order in which it is hashed.
    pub input: Vec<InputField>,
    /// The hash value; `None` when nothing is hashed.
    pub hash: Option<u32>,
    /// The index into the indirection table: the low bits of the hash.
    pub index: Option<u16>,
    /// The receive queue.
    pub queue: u16,
    /// The reasons as text.
    pub why: String,
}

impl Rss {
    /// Explains which queue RSS gives a frame: the hash type, the bytes hashed, the table entry.
    #[must_use]
    pub fn explain(&self, key: &FlowKey) -> RssExplanation {
        let Some(flow) = FlowType::of(key) else {
            return self.unhashed(&format!("EtherType 0x{:04x} is not IP: no hash", key.eth_type));
        };
        let fields = self.fields.get(flow);
        if fields.is_none() {
            return self.unhashed(&format!("hashing is off for {flow}: no hash"));
        }
        let hash = self.hash(key);
        let index = hash.map(|h| self.index(h));
        let queue = self.queue(hash);
        let mut why = reason(self, key, flow, fields);
        why.push_str(&format!(
            "; index = low {} bits of the hash; entry {} holds queue {queue}",
            self.reta.len().trailing_zeros(),
            index.unwrap_or(0)
        ));
        if let Some(asked) = self.clamped_from {
            why.push_str(&format!(
                "; RSS uses only the first {} of {asked} queues: its table entries hold no larger number",
                self.queues
            ));
        }
        let input = input(self, key, flow, fields);
        RssExplanation { hash_type: flow.hash_type(fields), input, hash, index, queue, why }
    }

    fn unhashed(&self, why: &str) -> RssExplanation {
        let queue = self.queue(None);
        let why = format!("{why}, default queue {queue}");
        RssExplanation { hash_type: "none", input: vec![], hash: None, index: None, queue, why }
    }
}

fn reason(rss: &Rss, key: &FlowKey, flow: FlowType, fields: Fields) -> String {
    let mut why = match key.fragment() {
        Frag::No => format!("{flow} hashes {fields}"),
        Frag::First => format!("first fragment: hashed as {flow} by {fields}, without its ports"),
        Frag::Later => format!("later fragment: hashed as {flow} by {fields}"),
    };
    match rss.hfunc {
        Hfunc::Toeplitz => {}
        Hfunc::SymmetricXor => why.push_str(", after source and destination are XORed"),
        Hfunc::SymmetricOrXor => {
            why.push_str(", as the OR and the XOR of source and destination");
        }
    }
    let sctp = matches!(flow, FlowType::Sctp4 | FlowType::Sctp6) && !fields.is_portless();
    if sctp && rss.sctp == SctpHash::PortsAndTag {
        why.push_str(
            " (this adapter also hashes the verification tag, which the model does not have)",
        );
    }
    let udp = matches!(flow, FlowType::Udp4 | FlowType::Udp6);
    if udp && fields.is_portless() {
        why.push_str(" (UDP without ports: all UDP flows between two hosts share a queue)");
    }
    why
}

/// The hash input as named fields. `Rss::input` builds the same bytes without allocating; a test
/// compares the two.
fn input(rss: &Rss, key: &FlowKey, flow: FlowType, fields: Fields) -> Vec<InputField> {
    let len = if flow.bare() == FlowType::Ipv4 { 4 } else { 16 };
    let (mut src, mut dst) = (key.src[..len].to_vec(), key.dst[..len].to_vec());
    let (mut sport, mut dport) =
        (key.sport.to_be_bytes().to_vec(), key.dport.to_be_bytes().to_vec());
    let mut names = ["src", "dst", "sport", "dport"];
    let each = |a: &[u8], b: &[u8], f: fn(u8, u8) -> u8| -> Vec<u8> {
        a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect()
    };
    let (or, xor) = (|a, b| a | b, |a, b| a ^ b);
    match rss.hfunc {
        Hfunc::Toeplitz => {}
        Hfunc::SymmetricXor => {
            src = each(&src, &dst, xor);
            dst.clone_from(&src);
            sport = each(&sport, &dport, xor);
            dport.clone_from(&sport);
            names = ["src^dst", "src^dst", "sport^dport", "sport^dport"];
        }
        Hfunc::SymmetricOrXor => {
            (src, dst) = (each(&src, &dst, or), each(&src, &dst, xor));
            (sport, dport) = (each(&sport, &dport, or), each(&sport, &dport, xor));
            names = ["src|dst", "src^dst", "sport|dport", "sport^dport"];
        }
    }
    let all = [Fields::SRC_IP, Fields::DST_IP, Fields::SRC_PORT, Fields::DST_PORT];
    all.into_iter()
        .zip(names)
        .zip([src, dst, sport, dport])
        .filter(|((field, _), _)| fields.has(*field))
        .map(|((_, name), bytes)| InputField { name, bytes })
        .collect()
}
