//! The sections of scenarios: `send`, `reload`, `sim` and `expect`.

use std::collections::BTreeMap;
use std::fmt;

use flowyard_frame::{FlowKey, Nanos};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::{ExactConfig, RuleConfig, ServiceConfig};

/// `[[send]]`: frames that a port receives from memory.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendConfig {
    /// The port that receives them.
    pub port: Spanned<String>,
    /// Their flow: `tcp 10.0.0.1:1000 > 10.0.0.2:80 vlan 7`, or `ethertype 0x0806`.
    pub flow: Spanned<String>,
    /// Their MAC addresses and VLAN: `02:00:00:00:00:0a > 02:00:00:00:00:0b vlan 7`.
    pub eth: Option<Spanned<String>>,
    /// Their TTL, or hop limit.
    pub ttl: Option<u8>,
    /// The number of frames.
    #[serde(default = "one")]
    pub count: u32,
    /// The number of flows, sent in turn. The source port of each is one higher than that of the
    /// one before.
    pub flows: Option<Spanned<u16>>,
    /// TCP flags: `syn`, `ack`, `fin`, `rst`, or several.
    pub flags: Option<Spanned<String>>,
    /// The length of each frame in bytes, without the FCS; 0 is an empty record. A length shorter
    /// than the headers cuts them.
    pub length: Option<Spanned<usize>>,
    /// The bytes of the frame in hexadecimal, in place of those made from the other keys.
    pub bytes: Option<Spanned<String>>,
    /// Sends them as fragments of a datagram: `first` (with ports) or `later` (without ports).
    pub fragment: Option<Fragment>,
    /// The receive time of the first frame.
    pub at: Option<Time>,
    /// The interval between frames.
    pub every: Option<Time>,
}

/// The kind of a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fragment {
    /// The first fragment of a datagram.
    First,
    /// A later fragment.
    Later,
}

/// `[[reload]]`: new contents for `[steer]`, as if the file was changed and reloaded.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReloadConfig {
    /// The time of the reload.
    pub at: Time,
    /// Replaces `spread` in `[steer]`.
    pub spread: Option<Vec<Spanned<String>>>,
    /// Replaces `exact` in `[steer]`.
    pub exact: Option<Vec<ExactConfig>>,
    /// Replaces the rules.
    pub rule: Option<Vec<RuleConfig>>,
    /// Replaces the services.
    pub service: Option<Vec<Spanned<ServiceConfig>>>,
}

/// `[sim]`: the number of simulations, and the faults of cores.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SimConfig {
    /// The number of seeds, which begin at 0.
    pub seeds: u64,
    /// One of N ticks is followed by a stall of its core; 0 is none.
    pub stall_every: u64,
    /// The longest stall.
    pub stall: Time,
    /// One of N ticks kills its core, if the other cores can take over; 0 is none.
    pub death_every: u64,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self { seeds: 16, stall_every: 0, stall: Time(20_000), death_every: 0 }
    }
}

/// `[expect]`: the expected results for every seed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExpectConfig {
    /// Frames sent, by port; 0 for ports that are not named.
    pub sent: BTreeMap<String, Spanned<Amount>>,
    /// Frames that the work made, by the port they left by; 0 for ports that are not named.
    pub made: BTreeMap<String, Spanned<Amount>>,
    /// Frames dropped, by reason; 0 for reasons that are not named.
    pub drops: BTreeMap<String, Spanned<Amount>>,
    /// Whether the frames of each flow leave each port in the order they came; `false` means that
    /// this fails for at least one seed. The default is `true` if the configuration guarantees
    /// order.
    pub in_order: Option<Spanned<bool>>,
    /// The number of copies made.
    pub copies: Option<Spanned<Amount>>,
    /// Frames that entered each queue.
    pub queue: BTreeMap<String, Spanned<Amount>>,
    /// The results of each core, from core 0.
    pub core: Vec<CoreExpect>,
    /// Flows that moved to another queue.
    pub settle_moved: Option<Spanned<Amount>>,
    /// Frames kept on the flow's current queue because a move was not yet safe.
    pub settle_held: Option<Spanned<Amount>>,
    /// Flows that were split over several cores.
    pub promoted: Option<Spanned<Amount>>,
    /// Flows that were moved back to one core.
    pub demoted: Option<Spanned<Amount>>,
    /// Entries of the indirection table that were moved to another core.
    pub rebalanced: Option<Spanned<Amount>>,
    /// Core overloads for which no action was taken.
    pub refused: Option<Spanned<Amount>>,
    /// Frames that matched an exact or a learnt entry.
    pub exact_hit: Option<Spanned<Amount>>,
    /// Frames that matched a rule.
    pub rule_hit: Option<Spanned<Amount>>,
    /// Frames by user-defined counter; 0 for counters that are not named.
    pub counters: BTreeMap<String, Spanned<Amount>>,
    /// Bytes by user-defined counter; counters that are not named are not compared.
    pub counter_bytes: BTreeMap<String, Spanned<Amount>>,
    /// The time at which the last frame was sent, in microseconds.
    pub last_sent_us: Option<Spanned<Amount>>,
    /// Whether no two cores ever work on the same flow at a time. The work must have a cost.
    pub pinned: Option<Spanned<bool>>,
    /// Pairs of flows: the last frame of the first leaves before the last of the second.
    pub before: Vec<Spanned<[String; 2]>>,
    /// Sets of flows; one core works on all flows of a set.
    pub together: Vec<Spanned<Vec<String>>>,
    /// The results of single flows.
    pub flow: Vec<FlowExpect>,
    /// The contents of frames that a port sent.
    pub frame: Vec<FrameExpect>,
    /// Changes of the file with which the scenario must fail.
    pub mutant: Vec<Mutant>,
}

/// The results of one core.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CoreExpect {
    /// Frames that it received.
    pub received: Option<Spanned<Amount>>,
    /// Frames that it worked on.
    pub worked: Option<Spanned<Amount>>,
    /// Frames that it sent.
    pub sent: Option<Spanned<Amount>>,
}

/// `[[expect.flow]]`: the results of the frames that were sent with this `flow`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowExpect {
    /// The flow, as in its `[[send]]`.
    pub flow: Spanned<String>,
    /// The number of frames sent.
    pub sent: Option<Spanned<Amount>>,
    /// The only port by which they leave.
    pub port: Option<Spanned<String>>,
    /// Their MAC addresses, as in a `[[send]]`, and their VLAN if one is written.
    pub eth: Option<Spanned<String>>,
    /// Their TTL, or hop limit.
    pub ttl: Option<Spanned<u8>>,
    /// Their flow after the work has changed addresses and ports; for a tunnel, that of the outer
    /// header.
    pub becomes: Option<Spanned<String>>,
    /// The number of different next hops (destination MAC addresses).
    pub next_hops: Option<Spanned<Amount>>,
    /// The number of cores that worked on the flow.
    pub cores: Option<Spanned<Amount>>,
    /// As `cores`, for each of its `flows` separately.
    pub cores_each: Option<Spanned<Amount>>,
    /// The cores that worked on the flow, and no others.
    pub worked_by: Option<Spanned<Vec<u16>>>,
    /// The core that worked on its last frame.
    pub last_on: Option<Spanned<u16>>,
}

/// `[[expect.frame]]`: the contents of frames that a port sent. Their checksums must be correct, as
/// far as they can be checked.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrameExpect {
    /// The port that sent them.
    pub port: Spanned<String>,
    /// Compares only the nth frame of the port, from 1; by default every frame.
    pub nth: Option<usize>,
    /// Their flow.
    pub flow: Option<Spanned<String>>,
    /// Their VLAN IDs, outermost first.
    pub vlan: Option<Spanned<Vec<u16>>>,
    /// IPv4 time to live or IPv6 hop limit.
    pub ttl: Option<Spanned<u8>>,
    /// The upper 6 bits of IPv4 TOS or IPv6 traffic class.
    pub dscp: Option<Spanned<u8>>,
    /// The bytes with which they begin, in hexadecimal.
    pub bytes: Option<Spanned<String>>,
}

/// `[[expect.mutant]]`: if `from` is replaced by `to`, the scenario must fail.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// A text that occurs exactly once in the file before `[expect]`.
    pub from: Spanned<String>,
    /// The text that replaces it.
    pub to: String,
}

/// A number as `10`, or a range as `{ at_least = 1, at_most = 9 }`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Amount {
    /// The smallest permitted number.
    pub at_least: u64,
    /// The largest permitted number.
    pub at_most: u64,
}

impl Amount {
    /// Whether `number` is permitted.
    #[must_use]
    pub const fn holds(&self, number: u64) -> bool {
        self.at_least <= number && number <= self.at_most
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.at_least, self.at_most) {
            (least, most) if least == most => write!(f, "{least}"),
            (least, u64::MAX) => write!(f, "at least {least}"),
            (0, most) => write!(f, "at most {most}"),
            (least, most) => write!(f, "{least} to {most}"),
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Range {
            #[serde(default)]
            at_least: u64,
            #[serde(default = "most")]
            at_most: u64,
        }
        const fn most() -> u64 {
            u64::MAX
        }
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Amount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or { at_least = 1, at_most = 9 }")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Amount, E> {
                let number =
                    u64::try_from(number).map_err(|_| E::custom("a count is not negative"))?;
                Ok(Amount { at_least: number, at_most: number })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Amount, A::Error> {
                let range = Range::deserialize(MapAccessDeserializer::new(map))?;
                if range.at_least > range.at_most
                    || range.at_least == 0 && range.at_most == u64::MAX
                {
                    return Err(A::Error::custom("this range contains every number or none"));
                }
                Ok(Amount { at_least: range.at_least, at_most: range.at_most })
            }
        }
        from.deserialize_any(Either)
    }
}

/// A time as `500ns`, `10us`, `1.5ms` or `2s`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize)]
#[serde(try_from = "String")]
pub struct Time(pub Nanos);

impl TryFrom<String> for Time {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
        let time = units.iter().find_map(|(unit, size)| {
            let number: f64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
            (0.0..1e15).contains(&(number * size)).then_some(Self((number * size) as Nanos))
        });
        time.ok_or_else(|| format!("'{text}' is not a time: write 500ns, 10us, 1.5ms or 2s"))
    }
}

/// The key of a `flow`.
pub fn key(text: &str) -> Result<FlowKey, String> {
    let Some(number) = text.trim().strip_prefix("ethertype ") else {
        return text.parse::<FlowKey>().map_err(|error| error.to_string());
    };
    let number = number.trim();
    let value = match number.strip_prefix("0x") {
        Some(hex) => u16::from_str_radix(hex, 16).ok(),
        None => number.parse().ok(),
    };
    match value {
        // Smaller numbers are lengths (IEEE 802.3); frames with IP need addresses.
        Some(eth_type @ 0x0600..) if !matches!(eth_type, 0x0800 | 0x86dd) => {
            Ok(FlowKey { eth_type, ..FlowKey::ZERO })
        }
        _ => Err(format!(
            "'{number}' is not an EtherType that can be sent; write 0x0806 (ARP), 0x88cc (LLDP), ..."
        )),
    }
}

/// The MAC addresses and the VLAN of an `eth`, in a key without other fields.
pub fn eth(text: &str) -> Result<FlowKey, String> {
    let wrong = || {
        format!(
            "'{text}' is not a pair of MAC addresses; write 02:00:00:00:00:0a > 02:00:00:00:00:0b"
        )
    };
    let (addresses, vlan) = match text.split_once(" vlan ") {
        Some((addresses, vlan)) => (addresses, Some(vlan.trim())),
        None => (text, None),
    };
    let vlan_tci = match vlan.map(str::parse) {
        None => 0,
        Some(Ok(vlan @ 1..=4094)) => vlan,
        Some(_) => return Err("a VLAN ID is 1 to 4094; write one of these".into()),
    };
    let (src, dst) = addresses.split_once('>').ok_or_else(wrong)?;
    let read = |word: &str| crate::work::mac(word.trim()).ok_or_else(wrong);
    Ok(FlowKey { eth_src: read(src)?, eth_dst: read(dst)?, vlan_tci, ..FlowKey::ZERO })
}

/// The bits of TCP `flags`.
pub fn flags(text: &str) -> Result<u8, String> {
    let mut bits = text.split_whitespace().map(|word| match word.to_ascii_lowercase().as_str() {
        "fin" => Ok(FlowKey::FIN),
        "syn" => Ok(FlowKey::SYN),
        "rst" => Ok(FlowKey::RST),
        "ack" => Ok(FlowKey::ACK),
        _ => Err(format!("'{word}' is not a TCP flag here; write syn, ack, fin, rst, or several")),
    });
    bits.try_fold(0, |all, bit| Ok(all | bit?))
}

const fn one() -> u32 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_flags_and_flows_are_parsed() {
        let time = |text: &str| Time::try_from(text.to_owned());
        assert_eq!(time("10us"), Ok(Time(10_000)));
        assert_eq!(time("1.5 ms"), Ok(Time(1_500_000)));
        assert_eq!((time("7ns"), time("2s")), (Ok(Time(7)), Ok(Time(2_000_000_000))));
        for wrong in ["", "10", "us", "-1us", "1h", "nanns", "infs"] {
            assert!(time(wrong).unwrap_err().contains("write 500ns"), "{wrong}");
        }
        assert_eq!((flags("syn ACK"), flags("syn syn")), (Ok(0x12), Ok(2)));
        assert!(flags("sin").unwrap_err().contains("'sin'"));
        assert_eq!(key("ethertype 0x0806").unwrap().eth_type, 0x0806);
        let pair = eth("02:00:00:00:00:0a > ff-ff-ff-ff-ff-ff vlan 7").unwrap();
        assert_eq!((pair.eth_src, pair.eth_dst, pair.vlan_tci), ([2, 0, 0, 0, 0, 10], [255; 6], 7));
        let five = "02:00:00:00:00 > 02:00:00:00:00:01";
        for wrong in ["", "02:00:00:00:00:01", five, "2::1 > 02:00:00:00:00:01 vlan 0"] {
            assert!(eth(wrong).is_err(), "{wrong}");
        }
        for wrong in ["ethertype 0x0800", "ethertype 64", "ethertype arp", "tpc"] {
            assert!(key(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn amounts_are_numbers_or_ranges() {
        #[derive(Debug, Deserialize)]
        struct Line {
            a: Amount,
        }
        let read = |text: &str| toml::from_str::<Line>(&format!("a = {text}")).map(|line| line.a);
        let told = |text: &str| read(text).unwrap().to_string();
        assert_eq!(told("7"), "7");
        assert_eq!(told("{ at_least = 2 }"), "at least 2");
        assert_eq!(told("{ at_most = 9 }"), "at most 9");
        assert_eq!(told("{ at_least = 2, at_most = 9 }"), "2 to 9");
        for wrong in ["-1", "\"7\"", "{}", "{ at_least = 3, at_most = 2 }", "{ least = 1 }"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let range = read("{ at_least = 2, at_most = 9 }").unwrap();
        assert_eq!([1, 2, 9, 10].map(|number| range.holds(number)), [false, true, true, false]);
    }
}
