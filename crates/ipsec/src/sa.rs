//! Security associations: what is configured, and what is counted while they are used.
//!
//! ```text
//!  SaConfig (from the text of `ip xfrm state`) ──> Sa { key, next number, window, counters }
//! ```
//!
//! An SA has a direction: it is inbound if a frame with its SPI arrives at its destination address here, and outbound if
//! a policy selects it. The same text describes both, so the owner decides by the local addresses.
//!
//! Invariants: no number is taken twice, and none above the limit of the SA; the IV of a packet is unique for its key.
//! Thread-safety: any thread; counters and numbers are atomic.

use std::net::IpAddr;

use crate::replay::Window;
use crate::suite::{BadKey, Key, KeyMaterial, Suite};
use crate::sync::{AtomicU64, Ordering};

/// Whether a packet is in a packet of the SA as a whole, or only its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The whole packet.
    Tunnel,
    /// The payload.
    Transport,
}

impl Mode {
    /// The name that `ip xfrm` uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tunnel => "tunnel",
            Self::Transport => "transport",
        }
    }
}

/// UDP encapsulation of ESP (RFC 3948).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encap {
    /// The source port of packets.
    pub sport: u16,
    /// The destination port of packets.
    pub dport: u16,
}

/// Limits of packets and bytes; `u64::MAX` is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// A warning is counted when this number of packets is passed.
    pub soft_packets: u64,
    /// The SA carries no more packets than this.
    pub hard_packets: u64,
    /// A warning is counted when this number of bytes is passed.
    pub soft_bytes: u64,
    /// The SA is not used any more when this number of bytes is reached.
    pub hard_bytes: u64,
}

impl Limits {
    /// No limit.
    pub const NONE: Self = Self {
        soft_packets: u64::MAX,
        hard_packets: u64::MAX,
        soft_bytes: u64::MAX,
        hard_bytes: u64::MAX,
    };
}

/// What differs in the treatment of header fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    /// `noecn`: the outer header is not-ECT, and its ECN field is ignored on arrival.
    pub no_ecn: bool,
    /// `decap-dscp`: on arrival, the DSCP of the outer header is copied to the inner header.
    pub decap_dscp: bool,
    /// `dont-encap-dscp`: the outer header has DSCP 0.
    pub dont_encap_dscp: bool,
    /// `nopmtudisc`: the outer header permits fragmentation.
    pub no_pmtu_discovery: bool,
}

/// An SA as it is configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaConfig {
    /// The source of packets with ESP.
    pub src: IpAddr,
    /// The destination of packets with ESP.
    pub dst: IpAddr,
    /// The security parameters index.
    pub spi: u32,
    /// The number by which policies find it; 0 is none.
    pub reqid: u32,
    /// The mode.
    pub mode: Mode,
    /// The algorithms.
    pub suite: Suite,
    /// The key.
    pub key: KeyMaterial,
    /// Whether sequence numbers have 64 bits.
    pub is_extended: bool,
    /// The size of the anti-replay window; 0 is no protection.
    pub window: u32,
    /// UDP encapsulation.
    pub encap: Option<Encap>,
    /// The limits.
    pub limits: Limits,
    /// The treatment of header fields.
    pub flags: Flags,
    /// The highest sequence number that was received before the export.
    pub seq: u64,
    /// The last sequence number that was sent before the export.
    pub oseq: u64,
    /// The line of the text that describes it, from 1.
    pub line: usize,
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of an SA, in cache lines of their own: the cores that read the key do not wait for them.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counts {
            $($(#[$doc])* pub(crate) $name: AtomicU64,)*
        }

        /// The counters of an SA at one time.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct CountsRead {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            /// The values now.
            #[must_use]
            pub fn read(&self) -> CountsRead {
                CountsRead { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl CountsRead {
            /// Names and values.
            #[must_use]
            pub fn values(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }
        }
    };
}

counts! {
    /// Packets sealed, or opened and authentic.
    packets,
    /// Bytes of these packets, with the outer IP header.
    bytes,
    /// Packets refused because their sequence number was accepted before.
    replayed,
    /// Packets refused because their sequence number is below the window.
    late,
    /// Packets refused because their integrity check value is wrong.
    unauthentic,
    /// Authentic packets whose contents are not a packet of the SA's mode.
    malformed,
    /// Dummy packets (next header 59), which carry nothing.
    dummies,
    /// Packets refused because the SA has reached a hard limit.
    expired,
    /// Soft limits that were passed.
    soft_limits,
}

/// A sequence number in a cache line of its own: the core that numbers frames writes it, and all cores read the key.
#[derive(Debug)]
#[repr(align(128))]
struct Next(AtomicU64);

impl std::ops::Deref for Next {
    type Target = AtomicU64;

    fn deref(&self) -> &AtomicU64 {
        &self.0
    }
}

/// Packets of one SA that a core has sealed or opened and not yet added to the counters, which all cores change. It is
/// added after each batch; the counters of an SA with limits are exact after each packet.
#[derive(Debug, Default)]
pub struct Tally {
    packets: u64,
    bytes: u64,
}

impl Tally {
    /// Counts a packet of `bytes` bytes of `sa`.
    #[inline]
    pub(crate) fn add(&mut self, sa: &Sa, bytes: usize) {
        (self.packets, self.bytes) = (self.packets + 1, self.bytes + bytes as u64);
        if sa.is_limited {
            self.flush(sa);
        }
    }

    /// Adds what was counted to the counters of `sa`.
    #[inline]
    pub fn flush(&mut self, sa: &Sa) {
        let Self { packets, bytes } = std::mem::take(self);
        if packets > 0 {
            sa.count(packets, bytes);
        }
    }
}

/// An SA in use.
#[derive(Debug)]
pub struct Sa {
    /// The configuration. Its key material is empty.
    pub config: SaConfig,
    /// The key.
    pub(crate) key: Key,
    /// The next sequence number of an outbound SA.
    next: Next,
    /// Whether the SA has a limit, hard or soft.
    is_limited: bool,
    /// The first IV, to which the sequence number is added.
    iv: u64,
    /// The window of an inbound SA.
    pub window: Window,
    /// The counters.
    pub counts: Counts,
}

impl Sa {
    /// Makes an SA. `iv` is a random number: after a restart the same key is not used with the same IVs. `slack` is the
    /// number of frames that can be on their way between cores; the window is larger by it.
    ///
    /// # Errors
    /// When the key does not fit the suite.
    pub fn new(mut config: SaConfig, iv: u64, slack: u32) -> Result<Self, BadKey> {
        let key = Key::new(config.suite, &config.key)?;
        config.key = KeyMaterial::new(Vec::new());
        let size = match config.window {
            0 => 0,
            window => u64::from(window) + u64::from(slack),
        };
        Ok(Self {
            key,
            next: Next(AtomicU64::new(config.oseq.saturating_add(1))),
            is_limited: config.limits != Limits::NONE,
            iv,
            window: Window::new(size, config.seq),
            counts: Counts::default(),
            config,
        })
    }

    /// The last sequence number that can be sent: numbers do not wrap around (RFC 4303 section 3.3.3).
    fn last(&self) -> u64 {
        let last = if self.config.is_extended { u64::MAX - 1 } else { u32::MAX.into() };
        last.min(self.config.oseq.saturating_add(self.config.limits.hard_packets))
    }

    /// Whether the SA can carry another packet.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.next.load(Ordering::Relaxed) <= self.last() && !self.has_all_bytes()
    }

    pub(crate) fn has_all_bytes(&self) -> bool {
        let limit = self.config.limits.hard_bytes;
        limit != u64::MAX && self.counts.bytes.load(Ordering::Relaxed) >= limit
    }

    /// Takes the next sequence number; `None` if the SA has reached a limit.
    pub fn take(&self) -> Option<u64> {
        if self.has_all_bytes() {
            return None;
        }
        let last = self.last();
        if self.next.load(Ordering::Relaxed) > last {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number <= last {
            return Some(number);
        }
        // Another thread took the last number meanwhile. The counter stays near the limit, however often this happens.
        self.next.fetch_sub(1, Ordering::Relaxed);
        None
    }

    /// Takes up to `count` sequence numbers that follow each other. Returns the first, and how many there are; `None` if
    /// the SA has reached a limit.
    pub fn take_run(&self, count: u32) -> Option<(u64, u32)> {
        if self.has_all_bytes() {
            return None;
        }
        let last = self.last();
        // At most `count`, so it fits.
        let run = |next: u64| (last - next).saturating_add(1).min(count.into()) as u32;
        let taken = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            (next <= last).then(|| next + u64::from(run(next)))
        });
        taken.ok().map(|first| (first, run(first)))
    }

    /// Gives back `count` numbers from `first` on, as [`Sa::give_back`] does.
    pub fn give_back_run(&self, first: u64, count: u32) -> bool {
        let after = first.wrapping_add(count.into());
        self.next.compare_exchange(after, first, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Gives back `number`, which was taken and not used. Returns whether the next frame gets it; otherwise a number
    /// was taken after it, and there is a gap.
    pub fn give_back(&self, number: u64) -> bool {
        self.give_back_run(number, 1)
    }

    /// The last sequence number that was taken.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.next.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// The IV of the packet with this number.
    #[must_use]
    pub const fn iv_of(&self, number: u64) -> [u8; 8] {
        self.iv.wrapping_add(number).to_be_bytes()
    }

    /// The authenticated bytes beside the data, and their number (RFC 4106 section 5).
    pub(crate) fn aad(&self, number: u64) -> ([u8; 12], usize) {
        let mut aad = [0; 12];
        aad[..4].copy_from_slice(&self.config.spi.to_be_bytes());
        if self.config.is_extended {
            aad[4..].copy_from_slice(&number.to_be_bytes());
            (aad, 12)
        } else {
            aad[4..8].copy_from_slice(&(number as u32).to_be_bytes());
            (aad, 8)
        }
    }

    /// Counts packets with `bytes` bytes together, and a soft limit that they pass.
    fn count(&self, packets: u64, bytes: u64) {
        let add = |cell: &AtomicU64, n: u64| cell.fetch_add(n, Ordering::Relaxed);
        let limits = &self.config.limits;
        let before = add(&self.counts.packets, packets);
        let before_bytes = add(&self.counts.bytes, bytes);
        let passes = |before: u64, n: u64, limit: u64| before < limit && before + n >= limit;
        if passes(before, packets, limits.soft_packets)
            || passes(before_bytes, bytes, limits.soft_bytes)
        {
            add(&self.counts.soft_limits, 1);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
