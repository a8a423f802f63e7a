//! The table of what a device accepts, learnt by validation.
//!
//! Invariants: nothing is left in the device. A verdict is that of an example: a driver may refuse another rule of the
//! same kind, for instance because it is full.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Device, Offer, Place, Protocol, Refused, Rule, SwitchPort};

/// Kinds of matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Match {
    /// A destination address of IPv4.
    Ipv4,
    /// A destination prefix of IPv4.
    Ipv4Prefix,
    /// Both addresses, UDP, both ports.
    Udp,
    /// Both addresses, TCP, both ports.
    Tcp,
    /// A destination address of IPv6.
    Ipv6,
    /// Both addresses of IPv6, UDP, both ports.
    Udp6,
    /// A VLAN.
    Vlan,
}

/// Kinds of actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Ask {
    /// To a queue.
    Queue,
    /// Dropped.
    Drop,
    /// Marked, and to the usual queue.
    Mark,
    /// Marked, and to a queue.
    MarkQueue,
    /// Counted and dropped.
    CountDrop,
    /// Counted, and to a queue.
    CountQueue,
    /// Sent out by a port of the same embedded switch.
    Port,
    /// Counted, and sent out by such a port.
    CountPort,
}

impl Match {
    /// All kinds.
    pub const ALL: [Self; 7] =
        [Self::Ipv4, Self::Ipv4Prefix, Self::Udp, Self::Tcp, Self::Ipv6, Self::Udp6, Self::Vlan];
}

impl Ask {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Queue,
        Self::Drop,
        Self::Mark,
        Self::MarkQueue,
        Self::CountDrop,
        Self::CountQueue,
        Self::Port,
        Self::CountPort,
    ];
}

/// What the device says to a combination.
pub type Verdict = Result<(), Refused>;

/// What a device accepts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capabilities {
    table: Vec<(Match, Ask, Verdict)>,
}

impl Capabilities {
    /// Tries an example of each combination. The example of [`Ask::Port`] sends frames out by the port of the device.
    pub fn learn(device: &mut dyn Device) -> Self {
        let pairs = Match::ALL.into_iter().flat_map(|of| Ask::ALL.map(|ask| (of, ask)));
        let own = device.switch_port();
        let mut verdict = |of, ask| match (ask, own) {
            (Ask::Port | Ask::CountPort, None) => {
                Err(Refused("the port is not one of an embedded switch".into()))
            }
            _ => device.validate(&example(of, ask, own)),
        };
        let table = pairs.map(|(of, ask)| (of, ask, verdict(of, ask))).collect();
        Self { table }
    }

    /// The device's answer to a combination.
    ///
    /// # Errors
    /// Why the device refuses it.
    pub fn of(&self, of: Match, ask: Ask) -> Result<(), &Refused> {
        let found = self.table.iter().find(|(other, action, _)| (*other, *action) == (of, ask));
        match found {
            Some((_, _, Err(why))) => Err(why),
            _ => Ok(()),
        }
    }

    /// All combinations with the device's answers.
    pub fn table(&self) -> &[(Match, Ask, Verdict)] {
        &self.table
    }

    /// Whether it is worth offering rules at all.
    #[must_use]
    pub fn accepts_any(&self) -> bool {
        self.table.iter().any(|(_, _, verdict)| verdict.is_ok())
    }
}

/// A rule of this kind.
fn example(of: Match, ask: Ask, own: Option<SwitchPort>) -> Rule {
    let v4 = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
    let v6 = |last| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
    let (place, mark, count) = match ask {
        Ask::Queue => (Place::Queue(0), None, false),
        Ask::Drop => (Place::Drop, None, false),
        Ask::Mark => (Place::Usual, Some(7), false),
        Ask::MarkQueue => (Place::Queue(0), Some(7), false),
        Ask::CountDrop => (Place::Drop, None, true),
        Ask::CountQueue => (Place::Queue(0), None, true),
        Ask::Port | Ask::CountPort => {
            (own.map_or(Place::Usual, Place::Port), None, ask == Ask::CountPort)
        }
    };
    let ports = (Some(1000), Some(2000));
    let mut rule = Rule { offer: Offer { place, mark, count }, ..Rule::default() };
    match of {
        Match::Ipv4 => rule.to = Some((v4(1), 32)),
        Match::Ipv4Prefix => rule.to = Some((v4(0), 24)),
        Match::Ipv6 => rule.to = Some((v6(1), 128)),
        Match::Udp | Match::Tcp => {
            (rule.from, rule.to) = (Some((v4(1), 32)), Some((v4(2), 32)));
            (rule.from_port, rule.to_port) = ports;
            rule.protocol = Some(if of == Match::Udp { Protocol::Udp } else { Protocol::Tcp });
        }
        Match::Udp6 => {
            (rule.from, rule.to) = (Some((v6(1), 128)), Some((v6(2), 128)));
            (rule.from_port, rule.to_port) = ports;
            rule.protocol = Some(Protocol::Udp);
        }
        Match::Vlan => rule.vlan = Some(100),
    }
    rule
}
