//! The flows of captures or of live samples.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use flowyard_frame::{FlowKey, Nanos};
use flowyard_ports::{Error, Source};
use flowyard_wire::{Headers, LinkType};

use crate::sample::Sampled;

/// A flow in the direction that the adapter receives.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Its header fields, those of the outer header of a tunnel.
    pub key: FlowKey,
    /// Its frames.
    pub frames: u64,
    /// Whether its frames carry a tunnel: GRE, IP in IP, VXLAN, Geneve, GTP-U.
    pub tunnel: bool,
}

/// The received flows of a time.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    flows: Vec<Flow>,
    index: HashMap<Identity, usize>,
    first: Option<Nanos>,
    last: Nanos,
    /// Frames that are not IP: every adapter delivers them to its default queue.
    pub others: u64,
    /// Frames that the host sent.
    pub sent: u64,
}

/// The fields that make a flow; a fragment has no ports.
type Identity = ([u8; 16], [u8; 16], u16, u16, u8, u8);

const fn identity(key: &FlowKey) -> Identity {
    (key.src, key.dst, key.sport, key.dport, key.proto, key.frag)
}

impl Traffic {
    /// Adds the frames of a source. Frames whose source address is one of `own` were sent by the host, and are
    /// only counted.
    ///
    /// # Errors
    /// When the source cannot be read.
    pub fn add(&mut self, source: &mut dyn Source, own: &[IpAddr]) -> Result<(), Error> {
        loop {
            let burst = source.read()?;
            if burst.is_empty() {
                return Ok(());
            }
            for (record, bytes) in burst.iter() {
                let headers = Headers::parse(record.link, bytes);
                let key = flowyard_flow::parse::key(&headers, bytes, 0);
                self.at(record.time);
                self.count(key, headers.inner(bytes).is_some(), own);
            }
        }
    }

    /// Adds frames of a flow that a sampler saw at `time`.
    pub fn sample(&mut self, link: LinkType, seen: &Sampled<'_>) {
        self.at(seen.time);
        if seen.sent {
            self.sent += u64::from(seen.segments);
            return;
        }
        let headers = Headers::parse(link, seen.bytes);
        let key = flowyard_flow::parse::key(&headers, seen.bytes, 0);
        let tunnel = headers.inner(seen.bytes).is_some();
        (0..seen.segments).for_each(|_| self.count(key, tunnel, &[]));
    }

    /// A frame came at `time`.
    fn at(&mut self, time: Nanos) {
        self.first.get_or_insert(time);
        self.last = self.last.max(time);
    }

    /// Counts one frame.
    pub fn count(&mut self, key: FlowKey, tunnel: bool, own: &[IpAddr]) {
        if !key.is_ip() {
            self.others += 1;
        } else if key.src_ip().is_some_and(|ip| own.contains(&ip)) {
            self.sent += 1;
        } else {
            let flows = &mut self.flows;
            let at = *self.index.entry(identity(&key)).or_insert_with(|| {
                flows.push(Flow { key, frames: 0, tunnel });
                flows.len() - 1
            });
            self.flows[at].frames += 1;
            self.flows[at].tunnel |= tunnel;
        }
    }

    /// The flows, in the order of their first frames.
    #[must_use]
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// The frames of these flows alone.
    #[must_use]
    pub fn only(&self, flows: &[FlowKey]) -> Self {
        let wanted: HashSet<Identity> = flows.iter().map(identity).collect();
        let mut all = Self { first: self.first, last: self.last, ..Self::default() };
        for flow in self.flows.iter().filter(|flow| wanted.contains(&identity(&flow.key))) {
            all.index.insert(identity(&flow.key), all.flows.len());
            all.flows.push(*flow);
        }
        all
    }

    /// Received frames of a flow.
    #[must_use]
    pub fn of(&self, flow: &FlowKey) -> u64 {
        self.index.get(&identity(flow)).map_or(0, |at| self.flows[*at].frames)
    }

    /// Received frames.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.others + self.flows.iter().map(|flow| flow.frames).sum::<u64>()
    }

    /// Time from the first frame to the last, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.first.map_or(0.0, |first| (self.last.saturating_sub(first)) as f64 / 1e9)
    }
}
